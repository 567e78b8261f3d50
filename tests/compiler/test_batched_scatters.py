"""Scatters whose index vectors count rows: which are taken for a batch of rows, and that results stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import compiler
from weft.compiler import verify
from weft.core import kinds

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 15)).astype(np.float32)
CUBE = RNG.standard_normal((6, 4, 15)).astype(np.float32)
Y = RNG.integers(-20, 20, 24).astype(np.int32)

BATCHED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "one entry a row": (lambda x, y: x.at[jnp.arange(24), y].add(1.5), (X, Y), (0,)),
    "one entry a column": (lambda x, y: x.T.at[y, jnp.arange(24)].multiply(jnp.sin(y)), (X, Y), (1,)),
    "several entries a row": (
        lambda x, y: x.at[jnp.arange(24)[:, None], jnp.stack([y, y + 1, y], 1)].set(jnp.arange(3.0)), (X, Y), (0,)
    ),
    "dropped": (lambda x, y: x.at[jnp.arange(24), y].min(-1.0, mode="drop"), (X, Y), (0,)),
    "clipped": (lambda x, y: x.at[jnp.arange(24), y].max(9.0, mode="clip"), (X, Y), (0,)),
    "two counts": (
        lambda x, y: x.at[jnp.arange(6)[:, None], jnp.arange(4)[None], y.reshape(6, 4)].add(2.0), (CUBE, Y), (0, 1)
    ),
    "mapped": (
        lambda x, y: weft.vmap(lambda x, y: x.at[jnp.arange(4), y].add(2.0))(x, y.reshape(6, 4)), (CUBE, Y), (0, 1)
    ),
}  # fmt: skip
NOT_BATCHED: dict[str, Callable[..., Any]] = {
    "fewer rows": lambda x, y: x.at[jnp.arange(15), y[:15]].add(1.5),
    "backwards": lambda x, y: x.at[jnp.arange(24)[::-1], y].add(1.5),
    "counted by NumPy": lambda x, y: x.at[np.arange(24), y].add(1.5),
    "shifted": lambda x, y: x.at[jnp.arange(24) + 1, y].add(1.5),
    "the same row": lambda x, y: x.at[jnp.zeros(24, jnp.int32), y].add(1.5),
}


def scatters(program: compiler.Program) -> list[Any]:
    return [eqn for eqn in program.jaxpr.eqns if isinstance(eqn.primitive.kind, kinds.Scatter)]


def checked(function: Callable[..., Any], args: tuple[Any, ...]) -> compiler.Program:
    """The compiled program, whose result is that of the operations one by one."""
    closed = ladder.traced(lambda *xs: [function(*xs)], args)
    program = ladder.compiled(closed)
    (machine,) = ladder.by_machine_code(program, args)
    (eager,) = ladder.by_eager(closed, args)
    assert verify.same_bits(eager, machine)
    (reference,) = ladder.by_reference(closed, args)
    np.testing.assert_allclose(reference, machine, 1e-5, 1e-6)
    return program


@pytest.mark.parametrize("name", BATCHED)
def test_counted_rows_are_a_batch(name: str) -> None:
    function, args, batch = BATCHED[name]
    (scatter,) = scatters(checked(function, args))
    assert scatter.params["dimension_numbers"].operand_batching_dims == batch


@pytest.mark.parametrize("name", NOT_BATCHED)
def test_other_index_vectors_stay(name: str) -> None:
    (scatter,) = scatters(checked(NOT_BATCHED[name], (X, Y)))
    assert scatter.params["dimension_numbers"].operand_batching_dims == ()


def test_the_gradient_of_picked_entries_is_one_kernel() -> None:
    def loss(x: Any, y: Any) -> Any:
        return -jnp.mean(weft.nn.log_softmax(x)[jnp.arange(24), y])

    assert ladder.n_kernels(checked(weft.grad(loss), (X, np.abs(Y) % 15))) == 1
