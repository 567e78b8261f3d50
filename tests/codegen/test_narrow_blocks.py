"""Narrow rows of operands at distances that are compiled in: vectors over all elements, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp

DTYPES = ["bool", "uint8", "int16", "bfloat16", "float32", "float64", "complex64", "complex128"]
PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "part": lambda m, x, c: x[:, 1:4],
    "part, backwards": lambda m, x, c: x[:, 2::-1],
    "every second": lambda m, x, c: x[:, :5:2],
    "every third, backwards": lambda m, x, c: x[:, 7::-3],
    "last row first": lambda m, x, c: x[::-1, 2:5],
    "last row first, backwards": lambda m, x, c: m.where(x[::-1, 3:1:-1] != 0, x[::-1, 5:7], x[:, :2]),
    "repeated rows": lambda m, x, c: m.repeat(m.repeat(x[: len(x) // 90 * 90, :2].reshape(-1, 90, 2), 2, 0), 2, 1),
    "rows apart": lambda m, x, c: x[::3, :2],
    "rows and a column": lambda m, x, c: m.where(c[:, None] != 0, x[:, :3], x[:, 3:6]),
    "rows and one of their elements": lambda m, x, c: m.where(x[:, :2] == x[:, 4:5], x[:, 2:4], x[:, 6:7]),
    "rows and a vector": lambda m, x, c: m.where(x[:, 1:5] != x[0, :4], x[:, 2:6], x[1, :4]),
    "neighbours": lambda m, x, c: m.where(x[:, 1:4] == x[:, :3], x[:, 2:5], x[:, 4:7]),
    "of several axes": lambda m, x, c: x[: len(x) // 20 * 20].reshape(-1, 20, x.shape[1])[:, 1:, 1:4],
    "transposed and not": lambda m, x, c: m.where(x[: len(x) // 3 * 3].T[:3].T == 0, x[: len(x) // 3 * 3, 1:4], 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_narrow_rows(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for number, dtype in enumerate(DTYPES):
        rows, width = 8193 + 17 * number + len(name), (8, 9, 11, 16, 33, 64, 70, 8)[number]
        x = rng.integers(0, 3, (rows, width)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        if x.dtype.kind in "fc":
            x[0, 0], x[-1, -1], x[1, 2] = np.nan, -0.0, np.inf
        c = rng.integers(0, 2, rows).astype(np.int32)
        with weft.enable_x64(True):
            got = np.asarray(weft.jit(lambda x, c: PROGRAMS[name](jnp, x, c))(x, c))
        expected = np.asarray(PROGRAMS[name](np, x, c)).astype(got.dtype)
        assert got.shape == expected.shape and got.tobytes() == expected.tobytes(), (dtype, width)


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_elements_at_small_strides(step: int) -> None:
    """Of one stride, which is compiled in; of several; backwards."""
    x = np.arange(3001 * step, dtype=np.float32).reshape(-1, step)
    given = weft.jit(lambda x: (x[:, 0] + x[:, 1] * x[:, -1], x[:, 1] - x.reshape(-1)[: len(x)], x[::-1, 0] * x[:, 1]))(
        x
    )
    expected = x[:, 0] + x[:, 1] * x[:, -1], x[:, 1] - x.reshape(-1)[: len(x)], x[::-1, 0] * x[:, 1]
    for a, b in zip(given, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)


def test_a_result_in_the_memory_of_an_operand() -> None:
    x = np.arange(90000, dtype=np.float32).reshape(-1, 3)
    given = jnp.asarray(x) + 0
    got = weft.jit(lambda x: x * 3 + x[:, :1], donate_argnums=0)(given)
    np.testing.assert_array_equal(np.asarray(got), x * 3 + x[:, :1])
