"""Stencils: columns of the border are stored by the kernel of the rows between them; the bits stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.plans.instructions import Copy


def stencil(u: Any, width: int = 1) -> Any:
    """Twice the inside of an array less its upper neighbours along every axis."""
    inside = tuple([slice(width, -width)] * u.ndim)
    upper = [tuple([slice(2 * width, None) if d == axis else slice(width, -width) for d in range(u.ndim)])
             for axis in range(u.ndim)]  # fmt: skip
    return u.at[inside].add(u[inside] - sum(u[at] for at in upper))


@pytest.mark.parametrize(
    ("shape", "kernels"), [((70,), 1), ((30, 41), 3), ((1, 30, 41), 3), ((6, 41), 3), ((9, 10, 35), 5)]
)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_rungs_agree_and_border_columns_are_no_kernels(shape: tuple[int, ...], kernels: int, dtype: str) -> None:
    def function(u: Any) -> Any:
        return stencil(u[0])[None] if shape[0] == 1 else stencil(u)

    u = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    closed = weft.make_jaxpr(function)(u)
    program = ladder.compiled(closed)
    assert ladder.n_kernels(program) == kernels, program.text("loops")
    expected = ladder.by_reference(closed, [u])[0]
    for found in (ladder.by_machine_code(program, [u])[0], ladder.by_loops(program, [u])[0]):
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_row_that_workers_share_stores_its_border_once(threads: int) -> None:
    u = np.random.default_rng(1).integers(-9, 9, 1_000_003).astype(np.float32)
    expected = u.copy()
    expected[1:-1] += u[1:-1] - u[2:]
    with weft.threads(threads):
        np.testing.assert_array_equal(np.asarray(weft.jit(stencil)(u)), expected)


def test_wider_borders_stay_kernels() -> None:
    u = np.random.default_rng(2).integers(-9, 9, (30, 41)).astype(np.float32)
    closed = weft.make_jaxpr(lambda u: stencil(u, 2))(u)
    program = ladder.compiled(closed)
    assert ladder.n_kernels(program) == 5
    np.testing.assert_array_equal(ladder.by_machine_code(program, [u])[0], ladder.by_reference(closed, [u])[0])


def test_updates_of_repeated_values_are_put_together() -> None:
    u = np.arange(50, dtype=np.float32)
    closed = weft.make_jaxpr(lambda u: jnp.zeros_like(u).at[1:-1].set(u[2:] - u[:-2]) * 2)(u)
    program = ladder.compiled(closed)
    assert not any(isinstance(entry, Copy) for entry in program.plan.instructions)
    np.testing.assert_array_equal(ladder.by_machine_code(program, [u])[0], [0, *[4] * 48, 0])


def test_a_donated_array_may_be_overwritten_or_not() -> None:
    u = np.random.default_rng(3).integers(-9, 9, (30, 41)).astype(np.float32)
    expected = np.asarray(weft.jit(stencil)(u))
    given = jnp.asarray(u)
    np.testing.assert_array_equal(np.asarray(weft.jit(stencil, donate_argnums=0)(given)), expected)
    twice = weft.jit(lambda u: lax.fori_loop(0, 2, lambda i, v: stencil(v), u))(u)
    np.testing.assert_array_equal(np.asarray(twice), np.asarray(stencil(stencil(jnp.asarray(u)))))
