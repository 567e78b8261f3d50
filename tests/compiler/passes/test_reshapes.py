"""Reshapes of repeated arrays move to the results: what ``repeat``, ``tile`` and ``kron`` give is not stored first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax

PROGRAMS: dict[str, Callable[..., Any]] = {
    "rows": lambda m, x, y: m.repeat(x, 3, axis=0) * 2,
    "columns": lambda m, x, y: m.repeat(x, 3, axis=1) - 1,
    "tiles": lambda m, x, y: m.tile(x, (2, 3)) * 2 + 1,
    "with_an_array": lambda m, x, y: m.tile(x, (3, 1)) + y,
    "with_a_computed_array": lambda m, x, y: m.tile(x, (3, 1)) * (y * 2 + 1),
    "kron": lambda m, x, y: m.kron(x[:5, :4], x[:3, :2]) * 2 - 1,
    "compared": lambda m, x, y: m.where(m.tile(x, (3, 1)) > 2, y, 0),
}
ALSO: dict[str, Callable[..., Any]] = {
    "upsampled": lambda m, x, y: m.repeat(m.repeat(x, 2, axis=0), 2, axis=1) * 5,
    "also_transposed": lambda m, x, y: m.tile(x, (3, 1)) + y.reshape(y.shape[::-1]).T,
    "also_a_result": lambda m, x, y: (m.tile(x, (3, 1)), m.tile(x, (3, 1)) + y),
    "reduced": lambda m, x, y: (m.tile(x, (3, 1)) + y).sum(0),
    "used_twice": lambda m, x, y: (lambda t: (t + 1) * (t + y))(m.tile(x, (3, 1))),
    "two_repeats": lambda m, x, y: m.tile(x, (3, 1)) + m.repeat(x, 3, axis=0),
}


def arrays(n: int = 6, w: int = 4) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0).integers(-9, 9, 4 * n * w).astype(np.float32)
    return numbers[: n * w].reshape(n, w), numbers[n * w :].reshape(3 * n, w)


@pytest.mark.parametrize("name", [*PROGRAMS, *ALSO])
def test_results_equal_numpys(name: str) -> None:
    program = {**PROGRAMS, **ALSO}[name]
    for x, y in (arrays(), arrays(500, 5)):
        found, expected = weft.jit(lambda x, y: program(jnp, x, y))(x, y), program(np, x, y)
        for left, right in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(np.asarray(left), right)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel(name: str) -> None:
    text = weft.jit(lambda x, y: PROGRAMS[name](jnp, x, y)).lower(*arrays()).as_text("kernel")
    assert text.count("kernel ") == 1


def test_derivative() -> None:
    x, y = arrays()
    found = weft.jit(weft.grad(lambda x: (jnp.repeat(x, 3, axis=0) * y).sum()))(x)
    np.testing.assert_allclose(np.asarray(found), y.reshape(6, 3, 4).sum(1), rtol=1e-6)


def test_operations() -> None:
    x = np.ones((6, 4), np.float32)
    assert ladder.after("reshapes", lambda x: lax.exp(lax.reshape(lax.sin(x), (24,))), x) == ["reshape", "sin", "exp"]
    repeated = lambda x: lax.exp(lax.reshape(lax.broadcast_in_dim(x, (6, 3, 4), (0, 2)), (18, 4)))
    assert ladder.after("reshapes", repeated, x) == ["broadcast_in_dim", "exp", "reshape"]
    both = lambda x: (lambda y: (y, lax.reshape(y, (24,))))(lax.sin(x))
    assert ladder.after("reshapes", both, x) == ["sin", "reshape"]  # it is stored in any case
