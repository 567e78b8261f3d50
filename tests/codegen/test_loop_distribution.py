"""Long chains of functions in parts: over blocks and their ends, with any dtype between them, into shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft._base import target

SIZES = [0, 1, 7, 8, 63, 64, 511, 512, 513, 1031]


def option(s, k, t, v):
    spread = v * jnp.sqrt(t) + 0.1
    d = (jnp.log(s / k) + (0.03 + 0.5 * v * v) * t) / spread
    return s * weft.lax.erf(d) - k * jnp.exp(-0.03 * t) * weft.lax.erf(d - spread)


def several(s, k, t, v):
    """Results of every stage, one of them a bool, which are stored by the last."""
    a = jnp.log(s) * k
    b = jnp.sin(a) + t
    return a, b > v, jnp.exp(b * jnp.tanh(b)), jnp.where(b > v, s, k), b


def choices(s, k, t, v):
    near = jnp.exp(-t) < 0.5
    a = jnp.where(near, jnp.tanh(jnp.log(s)), k)
    return jnp.where(a > v, jnp.cos(jnp.exp(a) + 1.0), a) * near


def whole_numbers(s, k, t, v):
    n = (jnp.exp(s) * 7).astype(jnp.int32) // 3
    return jnp.sin(n.astype(s.dtype) * 0.5 + jnp.arange(s.size, dtype=s.dtype)), n


PROGRAMS = [option, several, choices, whole_numbers]


def operands(size: int, dtype: str) -> list[weft.Array]:
    rng = np.random.default_rng(size)
    return [jnp.asarray(rng.uniform(0.2, 4, size)).astype(dtype) for _ in range(4)]


def apart(function, given):
    """Operation by operation, without kernels of several."""
    with weft.disable_jit():
        return weft.tree.leaves(function(*given))


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_sizes_around_blocks(function, dtype):
    with weft.enable_x64(dtype == "float64"):
        compiled = weft.jit(function)
        for size in SIZES if dtype == "float32" else SIZES[3::3]:
            given = operands(size, dtype)
            for found, expected in zip(weft.tree.leaves(compiled(*given)), apart(function, given), strict=True):
                np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), err_msg=f"{size} elements")


@pytest.mark.parametrize("shape", [(3, 5), (40, 9), (7, 600), (2, 1031), (130, 64), (0, 7), (3, 0)], ids=str)
def test_rows_with_other_operands(shape):
    """Beside operands of one row, of one column, and rows of a wider array; the last lanes have masks."""
    rng = np.random.default_rng(1)
    s, t = (jnp.asarray(rng.uniform(0.2, 4, shape).astype(np.float32)) for _ in range(2))
    k, v = jnp.linspace(0.3, 3, shape[1]), jnp.linspace(0.5, 2, shape[0])[:, None]
    wide = jnp.asarray(rng.uniform(0.2, 4, (2 * shape[0], shape[1] + 3)).astype(np.float32))
    for function in (option, several, choices):
        cut = lambda s, k, w, v, function=function: function(s, k, w[::2, 2:-1], v)
        runs: list[tuple[Any, Any]] = [((s, k, t, v), function), ((s, k, wide, v), cut)]
        for given, run in runs:
            for found, expected in zip(weft.tree.leaves(weft.jit(run)(*given)), apart(run, given), strict=True):
                np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_special_numbers():
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 1.0], np.float32)
    given = [jnp.asarray(np.roll(np.tile(special, 60), k * (1 + k))) for k in range(4)]
    for function in (option, several, choices):
        for found, expected in zip(weft.tree.leaves(weft.jit(function)(*given)), apart(function, given), strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("function", [option, several], ids=lambda f: f.__name__)
def test_a_result_in_the_memory_of_an_operand(function):
    for which in range(4):
        given = operands(1031, "float32")
        expected = [np.array(one) for one in apart(function, given)]
        found = weft.jit(function, donate_argnums=(which,))(*given)
        for one, other in zip(weft.tree.leaves(found), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)


def schedule_of(function, count: int, shape: tuple[int, ...] = (100_000,)) -> str:
    given = [weft.ShapeDtypeStruct(shape, jnp.float32)] * count
    return weft.jit(function).lower(*given).compile().as_text("loops")


def test_which_bodies_have_parts():
    if target.host().model.masks:
        pytest.skip("bodies are in halves where masks have registers")
    assert "4 parts over blocks of 256 elements" in schedule_of(option, 4)
    assert "2 parts" in schedule_of(lambda x: jnp.exp(jnp.sin(x) * jnp.cos(x)), 1)  # which share their reduction
    assert "2 parts" in schedule_of(lambda x, y: jnp.exp(jnp.sin(x[:100, :90] + y[0, :90])), 2, (101, 91))  # rows apart
    assert "parts" not in schedule_of(jnp.tanh, 1)
    assert "parts" not in schedule_of(lambda x, y: jnp.sin(x) * jnp.exp(y), 2)  # they do not wait for each other
