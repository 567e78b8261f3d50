"""lax.ragged_dot, ragged_dot_general, scaled_dot and nn.scaled_matmul beside NumPy loops over groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.lax import RaggedDotDimensionNumbers as Numbers

RNG = np.random.default_rng(5)
SIZES = np.array([3, 0, 9, 1, 4], np.int32)  # of 20 rows: 3 are in no group


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def by_rows(lhs: np.ndarray, rhs: np.ndarray, sizes: Any) -> np.ndarray:
    """f[m,k], f[g,k,n] -> f[m,n]."""
    out, start = np.zeros((lhs.shape[0], rhs.shape[2]), lhs.dtype), 0
    for group, size in enumerate(np.asarray(sizes)):
        out[start : start + size] = lhs[start : start + size] @ rhs[group]
        start += size
    return out


def by_groups(lhs: np.ndarray, rhs: np.ndarray, sizes: Any) -> np.ndarray:
    """f[k,m], f[k,n] -> f[g,m,n]."""
    ends = np.cumsum(sizes)
    return np.stack([lhs[e - s : e].T @ rhs[e - s : e] for s, e in zip(np.asarray(sizes), ends, strict=True)])


def test_rows_meet_the_matrix_of_their_group() -> None:
    lhs, rhs = normal(20, 6), normal(5, 6, 3)
    f = weft.jit(lax.ragged_dot)
    np.testing.assert_allclose(f(lhs, rhs, SIZES), by_rows(lhs, rhs, SIZES), rtol=1e-5, atol=1e-5)
    for sizes in ([20, 0, 0, 0, 0], [0, 0, 0, 0, 20], [0, 0, 0, 0, 0], [8, 1, 8, 1, 2]):
        np.testing.assert_allclose(
            f(lhs, rhs, np.array(sizes, np.int32)), by_rows(lhs, rhs, sizes), rtol=1e-5, atol=1e-5
        )
    many = normal(700, 6)
    sizes = np.array([300, 17, 0, 256, 127], np.int32)
    np.testing.assert_allclose(lax.ragged_dot(many, rhs, sizes), by_rows(many, rhs, sizes), rtol=1e-5, atol=1e-5)
    assert lax.ragged_dot(jnp.ones((4, 2), "bfloat16"), jnp.ones((1, 2, 3), "bfloat16"), jnp.array([4]),
                          preferred_element_type="float32").dtype == np.float32  # fmt: skip


def test_derivatives() -> None:
    lhs, rhs, ct = normal(20, 6), normal(5, 6, 3), normal(20, 3)
    by_lhs, by_rhs = weft.jit(weft.grad(lambda a, b: (lax.ragged_dot(a, b, SIZES) * ct).sum(), (0, 1)))(lhs, rhs)
    np.testing.assert_allclose(by_lhs, by_rows(ct, rhs.transpose(0, 2, 1), SIZES), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_rhs, by_groups(lhs, ct, SIZES), rtol=1e-4, atol=1e-5)


def test_batches_and_the_other_two_kinds() -> None:
    lhs, rhs = normal(2, 20, 4, 6), normal(5, 3, 2, 6)  # [b, m, x, k], [g, n, b, k]
    sizes = np.stack([SIZES, SIZES[::-1]])
    out = lax.ragged_dot_general(lhs, rhs, sizes, Numbers((((3,), (3,)), ((0,), (2,))), (1,), (0,)))
    wanted = [
        np.stack([by_rows(lhs[b, :, x], rhs[:, :, b].transpose(0, 2, 1), sizes[b]) for x in range(4)], 1)
        for b in range(2)
    ]
    np.testing.assert_allclose(out, np.stack(wanted), rtol=1e-4, atol=1e-5)

    lhs, rhs = normal(2, 20, 6), normal(2, 3, 20)  # [b, k, m], [b, n, k]
    numbers = Numbers((((1,), (2,)), ((0,), (0,))), (1,), ())
    out = weft.jit(lambda a, b: lax.ragged_dot_general(a, b, SIZES, numbers))(lhs, rhs)
    wanted = np.stack([by_groups(lhs[b], rhs[b].T, SIZES) for b in range(2)], 1)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)

    batch = Numbers((((2,), (1,)), ((0,), (0,))), (0,), ())
    left, right = normal(3, 2, 4), normal(3, 4, 2)
    np.testing.assert_allclose(lax.ragged_dot_general(left, right, np.array([1, 2]), batch), left @ right, rtol=1e-5)


def test_bad_input() -> None:
    lhs, rhs = normal(20, 6), normal(5, 6, 3)
    with pytest.raises(NotImplementedError, match="Unimplemented group_offset support"):
        lax.ragged_dot(lhs, rhs, SIZES, group_offset=np.array([1]))
    with pytest.raises(TypeError, match=r"np\.integer"):
        lax.ragged_dot(lhs, rhs, SIZES.astype(np.float32))
    with pytest.raises(TypeError, match="group dimension"):
        lax.ragged_dot(lhs, rhs, SIZES[:4])
    with pytest.raises(TypeError, match="differ"):
        lax.ragged_dot(lhs[:, :5], rhs, SIZES)


def test_scaled_products() -> None:
    a, b, sa, sb = normal(2, 3, 8), normal(2, 5, 8), normal(2, 3, 2), normal(2, 5, 4)
    wide_a, wide_b = a * np.repeat(sa, 4, 2), b * np.repeat(sb, 2, 2)
    wanted = np.einsum("bmk,bnk->bmn", wide_a, wide_b)
    np.testing.assert_allclose(weft.nn.scaled_matmul(a, b, sa, sb), wanted, rtol=1e-4, atol=1e-5)
    turned, scales = b.transpose(0, 2, 1), sb.transpose(0, 2, 1)
    out = lax.scaled_dot(a, turned, lhs_scale=sa, rhs_scale=scales, preferred_element_type=np.float32)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    assert lax.scaled_dot(a, turned).dtype == jnp.bfloat16
    small = a.astype(jnp.float8_e4m3fn)
    out = lax.scaled_dot(small, turned, lhs_scale=sa, preferred_element_type=np.float32)
    np.testing.assert_allclose(out, (small.astype(np.float32) * np.repeat(sa, 4, 2)) @ turned, rtol=1e-4, atol=1e-5)
    gradient = weft.grad(lambda s: weft.nn.scaled_matmul(a, b, s, sb).sum())(sa)
    each = np.einsum("bmk,bnk->bmk", a, wide_b).reshape(2, 3, 2, 4).sum(3)
    np.testing.assert_allclose(gradient, each, rtol=1e-4, atol=1e-5)
    dims = (((2,), (2,)), ((0,), (0,)))
    np.testing.assert_allclose(weft.nn.scaled_dot_general(a, b, dims), a @ b.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="blocks"):
        lax.scaled_dot(a, turned, lhs_scale=normal(2, 3, 3))
    with pytest.raises(ValueError, match="contracted dimensions only"):
        lax.scaled_dot(a, turned, lhs_scale=normal(2, 1, 2))
    with pytest.raises(NotImplementedError, match="configs"):
        weft.nn.scaled_dot_general(a, b, dims, configs=[1, 2, 3])
