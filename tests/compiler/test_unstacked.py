"""Stacks that are only reduced or sliced again: no stack is made, and the results have the bits of a reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, test_util

PROGRAMS: dict[str, Callable[..., Any]] = {
    "max_of_shifted": lambda x: jnp.stack([x[:-2], x[1:-1], x[2:]]).max(0),
    "sum_along_last": lambda x: jnp.stack([x * i for i in range(1, 6)], -1).sum(-1),
    "logsumexp": lambda x: weft.nn.logsumexp(jnp.stack([x, x + 1, -x]), axis=0),
    "weighted": lambda x: (jnp.stack([x, x + 1]) * lax.broadcasted_iota(x.dtype, (2, x.size), 0)).sum(0),
    "norm_in_the_middle": lambda x: jnp.sqrt((jnp.stack([x[:-1, None], x[1:, None]], 1) ** 2).sum(1)),
    "product_of_seventeen": lambda x: jnp.stack([x / (i + 1) for i in range(17)]).prod(0),
    "of_two_stacks": lambda x: (jnp.stack([x, x + 1]) * jnp.stack([x - 1, x * 2])).min(0),
    "of_scalars": lambda x: jnp.stack([x[0], x[1], x[2]]).sum() + x,
    "position_of_the_largest": lambda x: jnp.argmax(jnp.stack([x, -x, x * 0, x]), 0),
    "position_of_the_smallest": lambda x: jnp.argmin(jnp.stack([x, -x, x * 0, x - 1], -1), -1),
    "position_in_scalars": lambda x: jnp.argmax(jnp.stack([x[0], x[1], x[2]])) + x,
    "also_a_result": lambda x: (lambda s: (s, s.max(0)))(jnp.stack([x, -x])),
    "also_sliced": lambda x: (lambda s: s[1] + s.max(0))(jnp.stack([x, -x])),
    "also_sliced_in_part": lambda x: (lambda s: s[1, :1] + s.max(0))(jnp.stack([x, -x])),
}
UNSTACKED = sorted(PROGRAMS.keys() - {"product_of_seventeen", "also_a_result", "also_sliced_in_part"})


def numbers(n: int, dtype: Any = np.float32) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=n) * 3
    x[::7] = -0.0
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_are_those_of_eager_operations(name: str, dtype: str) -> None:
    if dtype in ("complex64", "int8") and name in ("logsumexp", "norm_in_the_middle", "max_of_shifted"):
        return
    x = jnp.asarray(numbers(300, jnp.dtype(dtype)))
    jitted, eager = weft.jit(PROGRAMS[name])(x), PROGRAMS[name](x)
    for left, right in zip(weft.tree.leaves(jitted), weft.tree.leaves(eager), strict=True):
        assert left.dtype == right.dtype
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


@pytest.mark.parametrize("name", UNSTACKED)
def test_one_kernel_and_no_stack(name: str) -> None:
    text = weft.jit(PROGRAMS[name]).lower(numbers(300)).as_text("kernel")
    assert text.count("kernel ") == 1


def test_nan_and_minus_zero() -> None:
    x = np.float32([-0.0, 0.0, np.nan, 1.0, -np.inf])
    y = np.float32([-0.0, -0.0, 2.0, np.nan, -np.inf])
    total = weft.jit(lambda x, y: jnp.stack([x, y]).sum(0))(x, y)
    assert np.signbit(np.asarray(total))[:2].tolist() == [False, False]
    most = weft.jit(lambda x, y: jnp.stack([x, y]).max(0))(x, y)
    np.testing.assert_array_equal(np.asarray(most), np.maximum(x, y))


def test_derivatives() -> None:
    x = numbers(50, np.float64)
    with weft.enable_x64():
        test_util.check_grads(lambda x: jnp.stack([x[:-1], x[1:] * 2]).max(0), (x,), order=2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("axis", [0, -1])
def test_positions_are_the_first_of_equals_and_of_nan(axis: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 3, (5, 200)).astype(np.float32)
    if dtype in ("float32", "bfloat16"):
        rows[rng.random(rows.shape) < 0.1] = np.nan
        rows[rows == 1] *= -0.0
    rows = rows.astype(jnp.dtype(dtype))
    for name in ("argmax", "argmin"):
        position = getattr(jnp, name)
        jitted = weft.jit(lambda *xs, position=position: position(jnp.stack(xs, axis), axis))
        wanted = getattr(np, name)(rows.astype(np.float32), 0)
        np.testing.assert_array_equal(np.asarray(jitted(*rows)), wanted)
        assert "reduced" not in (jitted.lower(*rows).compile().as_text("loops") or "")


def test_positions_in_complex_stacks_are_those_of_the_reduction() -> None:
    x = numbers(50, np.complex64) * np.complex64(1 + 2j)
    f = lambda x: jnp.argmax(jnp.stack([x, -x, x * 1j]), 0)
    np.testing.assert_array_equal(np.asarray(weft.jit(f)(x)), np.asarray(f(x)))


def test_complex_products_have_the_bits_of_the_reduction() -> None:
    x = np.array([complex(np.inf, 1), complex(-0.0, -0.0), 1 + 2j], np.complex64)
    y = np.array([1 + 1j, complex(0, -0.0), complex(np.nan, 1)], np.complex64)
    product = lambda x, y: jnp.stack([x, y]).prod(0)
    eager = np.asarray(product(jnp.asarray(x), jnp.asarray(y)))
    assert np.asarray(weft.jit(product)(x, y)).tobytes() == eager.tobytes()
