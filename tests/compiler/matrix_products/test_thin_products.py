"""Products of few terms and columns, alone and in batches, of every dtype; vectors by matrices of narrow elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler.matrix_products.exact_products import exact_product
from weft import config, dtypes

KINDS = ["float32", "float64", "complex64", "bfloat16", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind.startswith(("int", "uint")):
        return rng.integers(0 if kind[0] == "u" else -9, 10, shape).astype(kind)
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind == "complex64" else 0)
    return x.astype(dtypes.bfloat16 if kind == "bfloat16" else kind)


def wide_product(a: np.ndarray, b: np.ndarray, wide: Any) -> np.ndarray:
    """Of each pair of matrices of a batch, in the stated order."""
    if a.dtype.kind in "biu":
        return np.matmul(a.astype(wide), b.astype(wide))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    pairs = [np.broadcast_to(v, (*batch, *v.shape[-2:])).reshape(-1, *v.shape[-2:]) for v in (a, b)]
    found = [exact_product(x, y) for x, y in zip(*pairs, strict=True)]
    return np.stack(found).reshape(*batch, a.shape[-2], b.shape[-1])


def layouts(x: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any]:
    """An array, and the view of it that is x: rows or columns one after another, or every other one."""
    turned = np.ascontiguousarray(np.swapaxes(x, -1, -2))
    apart = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    apart[..., ::2] = x
    pairs = [(x, lambda v: v), (turned, lambda v: jnp.swapaxes(v, -1, -2)), (apart, lambda v: v[..., ::2])]
    return pairs[rng.integers(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_few_terms_and_columns_have_the_stated_bits(kind: str) -> None:
    rng = np.random.default_rng([5, KINDS.index(kind)])
    wide = {"f": "float32", "i": "int32", "u": "uint32", "b": "int32", "V": "float32"}
    with weft.enable_x64(True), config.context("check", False):
        for n_try in range(24):
            m, k, n = (int(size) for size in rng.integers(2, 18, 3))
            m = 1000 * m if n_try % 8 == 0 else m
            batch = [(), (), (3,), (70,), (2, 3)][rng.integers(5)] if m < 100 else ()
            shared = [bool(flag) for flag in rng.random(2) < 0.2]
            a = drawn(rng, (*(() if shared[0] else batch), m, k), kind)
            b = drawn(rng, (*(() if shared[1] else batch), k, n), kind)
            to: Any = wide[a.dtype.kind] if a.dtype.itemsize < 4 else a.dtype
            (x, left), (y, right) = layouts(a, rng), layouts(b, rng)

            def product(x: Any, y: Any, left: Any = left, right: Any = right, to: Any = to) -> Any:
                return jnp.matmul(left(x), right(y), preferred_element_type=to)

            plan = weft.jit(product).lower(x, y).as_text("plan")
            if "added in tiles" in plan or "added in pairs" in plan:
                continue  # test_matrix_unit and test_products have their rules
            expected = wide_product(a, b, to)
            with weft.threads(int(rng.integers(1, 3))):
                found = weft.jit(product)(jnp.asarray(x), jnp.asarray(y))
                np.testing.assert_array_equal(np.asarray(found), expected, err_msg=f"{batch} {shared} {(m, k, n)}")
                scaled = weft.jit(lambda x, y, left=left, right=right: left(x) @ right(y))(
                    jnp.asarray(x), jnp.asarray(y)
                )
                np.testing.assert_array_equal(np.asarray(scaled), expected.astype(a.dtype))


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8", "uint8", "int16"])
def test_vectors_by_matrices_of_narrow_elements(kind: str) -> None:
    rng = np.random.default_rng([6, KINDS.index(kind)])
    wide: Any = np.float32 if "float" in kind else np.uint32 if kind == "uint8" else np.int32
    for m, k in [(1, 1), (3, 7), (5, 16), (9, 33), (64, 100), (200, 17), (31, 700), (513, 65)]:
        a, v, w = drawn(rng, (m, k), kind), drawn(rng, (k,), kind), drawn(rng, (m,), kind)
        for f, expected in [
            (lambda a, v, w: jnp.matmul(a, v, preferred_element_type=wide), wide_product(a, v[:, None], wide)[:, 0]),
            (lambda a, v, w: jnp.matmul(w, a, preferred_element_type=wide), wide_product(w[None], a, wide)[0]),
            (lambda a, v, w: jnp.matmul(a.T[::-1], w, preferred_element_type=wide),
             wide_product(np.ascontiguousarray(a.T[::-1]), w[:, None], wide)[:, 0]),
        ]:  # fmt: skip
            found = np.asarray(weft.jit(f)(a, v, w))
            if m > 1 and k > 1:
                np.testing.assert_array_equal(found, expected, err_msg=f"{(m, k)}")
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_values_that_are_not_finite_stay_in_their_rows() -> None:
    x = np.ones((100, 3), np.float32)
    x[7], x[50], x[99] = np.inf, np.nan, -np.inf
    w = np.array([[1, -1, 0, 1, 2], [1, 1, 1, 1, 1], [0, 1, 2, 3, 4]], np.float32)
    with np.errstate(all="ignore"):
        expected = np.stack([row @ w for row in x.astype(np.float64)]).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(weft.jit(jnp.matmul)(x, w)), expected)
    half = x.astype(dtypes.bfloat16)
    np.testing.assert_array_equal(
        np.asarray(weft.jit(jnp.matmul)(half, w.astype(half.dtype))).astype(np.float32), expected
    )


@pytest.mark.parametrize("shape", [(0, 3, 4), (5, 0, 4), (5, 3, 0)])
def test_products_of_nothing(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    for dtype in ("float32", "bfloat16", "int8"):
        a, b = jnp.ones((2, m, k), dtype), jnp.ones((2, k, n), dtype)
        np.testing.assert_array_equal(np.asarray(weft.jit(jnp.matmul)(a, b)), np.zeros((2, m, n)))
