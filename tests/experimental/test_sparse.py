"""weft.experimental.sparse beside dense NumPy arrays, and SciPy's matrices; layouts of buffers are JAX's."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import weft
import weft.numpy as jnp
from weft.experimental import sparse
from weft.experimental.sparse import BCOO, BCSR, COO, CSC, CSR

RNG = np.random.default_rng(0)
M = np.where(RNG.random((4, 5)) < 0.4, RNG.integers(1, 9, (4, 5)), 0).astype(np.float32)
N = np.where(RNG.random((4, 5)) < 0.4, RNG.integers(1, 9, (4, 5)), 0).astype(np.float32)
B = RNG.integers(-4, 5, (5, 3)).astype(np.float32)
CUBE = np.where(RNG.random((2, 4, 5)) < 0.4, RNG.integers(1, 9, (2, 4, 5)), 0).astype(np.float32)
MATRICES = [BCOO, BCSR, COO, CSR, CSC]


def dense(x: Any) -> np.ndarray:
    return np.asarray(sparse.todense(x))


def same(ours: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(dense(ours), wanted)


def messy() -> BCOO:
    """Unsorted, with repeated indices, padding and a stored zero."""
    indices = np.array([[3, 1], [0, 0], [3, 1], [4, 5], [2, 2], [9, 1], [0, 4]])
    return BCOO((jnp.array([1.0, 2.0, 3.0, 4.0, 0.0, 5.0, 6.0]), jnp.array(indices)), shape=(4, 5))


@pytest.mark.parametrize("cls", MATRICES)
def test_matrices_and_their_products(cls: Any) -> None:
    m = cls.fromdense(M)
    assert (m.shape, m.ndim, m.size, m.nse, m.dtype) == ((4, 5), 2, 20, np.count_nonzero(M), np.float32)
    assert repr(m) == f"{cls.__name__}(float32[4, 5], nse={m.nse})"
    same(m, M)
    same(m @ B, M @ B)
    same(m @ B[:, 0], M @ B[:, 0])
    same(weft.jit(lambda m, b: m @ b)(m, B), M @ B)
    same(cls.from_scipy_sparse(scipy.sparse.csr_array(M)), M)
    gradient = sparse.grad(lambda m: ((m @ B) ** 2).sum())(m)
    np.testing.assert_allclose(dense(gradient), 2 * (M @ B) @ B.T * (M != 0), rtol=1e-6)
    same(sparse.empty((2, 3), sparse_format=cls.__name__.lower()), np.zeros((2, 3)))
    for k in (-1, 0, 2):
        same(sparse.eye(3, 4, k, sparse_format=cls.__name__.lower()), np.eye(3, 4, k))
    if cls is not BCSR:
        same(m.T, M.T)
        same(m.T @ B[:4], M.T @ B[:4])


@pytest.mark.parametrize("cls", [COO, CSR])
def test_products_by_the_transpose(cls: Any) -> None:
    name = cls.__name__.lower()
    m = cls.fromdense(M, nse=15)
    same(getattr(sparse, f"{name}_matvec")(m, B[:4, 0], transpose=True), M.T @ B[:4, 0])
    same(getattr(sparse, f"{name}_matmat")(m, B[:4], transpose=True), M.T @ B[:4])
    same(getattr(sparse, f"{name}_matmat")(m, B), M @ B)
    with pytest.raises(ValueError, match="cannot be multiplied"):
        _ = m @ B[:4]


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["bcoo", "bcsr", "coo", "csr"])
def test_modules_of_formats_have_jaxs_functions(name: str) -> None:
    """Names and parameters; ``from ...sparse.coo import COO`` in a new process gives a class that has its methods."""
    ours, theirs = (importlib.import_module(f"{x}.experimental.sparse.{name}") for x in ("weft", "jax"))
    absent = {"bcoo_conv_general_dilated", "bcoo_eliminate_zeros", "bcsr_eliminate_zeros"}
    functions = {key for key in dir(theirs) if key.startswith(f"{name}_") and not key.endswith("_p")} - absent
    assert functions and getattr(ours, name.upper()) is getattr(sparse, name.upper())
    for key in functions:
        found, wanted = (inspect.signature(getattr(module, key)).parameters for module in (ours, theirs))
        assert list(found) == list(wanted), key
        assert getattr(ours, key) is getattr(sparse, key)
    program = (
        f"from weft.experimental.sparse.{name} import {name.upper()} as M\nassert (M.fromdense([[2.0]]) @ [3.0]) == 6"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["coo", "csr"])
@pytest.mark.parametrize("transpose", [False, True])
def test_functions_of_plain_matrices_beside_jax(name: str, transpose: bool) -> None:
    ours, theirs = (importlib.import_module(f"{x}.experimental.sparse.{name}") for x in ("weft", "jax"))
    right, found = (B[:4] if transpose else B), []
    for module in (ours, theirs):
        of = {key: getattr(module, f"{name}_{key}") for key in ("fromdense", "todense", "matvec", "matmat")}
        m = of["fromdense"](M)
        products = of["matvec"](m, right[:, 0], transpose=transpose), of["matmat"](m, right, transpose=transpose)
        leaves = m.tree_flatten()[0]
        found.append([*leaves, of["todense"](m), *products])
    for mine, wanted in zip(*found, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(wanted))
        assert mine.dtype == wanted.dtype


def test_buffers_of_sorted_and_unique_arrays() -> None:
    for nse in (3, 40):
        m, indices = BCOO.fromdense(CUBE, nse=nse), np.argwhere(CUBE)[:nse].tolist()
        assert m.indices.tolist() == indices + [[2, 4, 5]] * (nse - len(indices))
    m = BCOO.fromdense(CUBE, n_batch=1, n_dense=1)
    assert m.indices.shape == (2, m.nse, 1) and m.data.shape == (2, m.nse, 5)
    m = messy().sort_indices()
    assert m.indices.tolist() == [[0, 0], [0, 4], [2, 2], [3, 1], [3, 1], [4, 5], [9, 1]]
    assert m.data.tolist() == [2, 6, 0, 1, 3, 4, 5]
    m = messy().sum_duplicates()
    assert (m.indices.tolist(), m.data.tolist()) == ([[0, 0], [0, 4], [3, 1]], [2, 6, 4])
    m = messy().sum_duplicates(remove_zeros=False)
    assert (m.indices.tolist(), m.data.tolist()) == ([[0, 0], [0, 4], [2, 2], [3, 1]], [2, 6, 0, 4])
    bcsr, csr = BCSR.fromdense(CUBE, n_batch=1), [scipy.sparse.csr_array(m) for m in CUBE]
    np.testing.assert_array_equal(bcsr.indptr, [m.indptr for m in csr])
    for k, m in enumerate(csr):
        np.testing.assert_array_equal(bcsr.indices[k, : m.nnz], m.indices)


def test_padding_and_duplicates() -> None:
    m = messy()
    whole = dense(m)
    assert whole.sum() == 12 and whole[3, 1] == 4
    same(m @ B, whole @ B)
    same(B[:4].T @ m, B[:4].T @ whole)
    same(m.T, whole.T)
    same(m.sum(0), whole.sum(0))
    assert m.sum() == 12
    same(m.sum(1, keepdims=True), whole.sum(1, keepdims=True))
    same(m.reshape(2, -1), whole.reshape(2, -1))
    same(m[::-1, 1:4:2], whole[::-1, 1:4:2])
    same(abs(-m), whole)
    same(m**2, whole**2)
    same(sparse.bcoo_multiply_sparse(m, m), whole**2)
    same(m.sum_duplicates(nse=8, remove_zeros=False), whole)
    same(weft.jit(lambda m: m.sum_duplicates(nse=5))(m), whole)
    same(sparse.bcoo_concatenate([m, m], dimension=1), np.concatenate([whole, whole], 1))
    same(sparse.bcoo_extract(m, N), N * (whole != 0) + N * np.eye(4, 5) * (np.arange(4) == 2)[:, None])
    same(BCSR.from_bcoo(m), whole)
    same(BCSR.from_bcoo(m) @ B, whole @ B)


def test_arithmetic() -> None:
    m, n = BCOO.fromdense(M), BCOO.fromdense(N)
    for ours, wanted in (
        (m + n, M + N), (m - n, M - N), (m * n, M * N), (m * 2.0, M * 2), (3 * m, 3 * M), (m * N, M * N),
        (m / 2.0, M / 2), (m / (N + 1), M / (N + 1)), (-m, -M), (m + N, M + N), (N - m, N - M), (m * N[0], M * N[0]),
        (m * N[:, :1], M * N[:, :1]), (m.astype("int32"), M), (+m, M),
        (m @ n.T, M @ N.T), (B.T @ m.T, B.T @ M.T), (m[0] @ n[1], M[0] @ N[1]), (m[0] @ B, M[0] @ B),
    ):  # fmt: skip
        np.testing.assert_allclose(dense(ours), wanted, rtol=1e-6)
    for bad in (
        lambda: m + 1.0,
        lambda: m > 0,
        lambda: m == m,
        lambda: 1 / m,
        lambda: m**0,
        lambda: m @ BCSR.fromdense(B),
    ):
        with pytest.raises(NotImplementedError):
            bad()
    with pytest.raises(TypeError, match="unhashable"):
        hash(m)
    with pytest.raises(TypeError, match="contracting sizes differ"):
        _ = m @ B[:4]


def test_parts() -> None:
    m = BCOO.fromdense(CUBE)
    every = slice(None)
    for item in ((-1, every, 3), (..., 1), (0, None), (every, slice(1, 3), slice(None, None, -2)), (slice(0, 0),)):
        same(m[item], CUBE[item])
    same(m[jnp.array([1, 0, -1]), 3], CUBE[[1, 0, -1], 3])
    assert [dense(row).tolist() for row in BCOO.fromdense(M)] == M.tolist()
    sliced = weft.jit(lambda m, i: sparse.bcoo_dynamic_slice(m, (i, 0, i), (1, 4, 3)))(m, 1)
    same(sliced, CUBE[1:2, :, 1:4])
    with pytest.raises(IndexError):
        m[2]


@pytest.mark.parametrize(("n_batch", "n_dense"), [(1, 0), (1, 1)])
def test_parts_of_batch_and_dense_dimensions(n_batch: int, n_dense: int) -> None:
    m = BCOO.fromdense(CUBE, n_batch=n_batch, n_dense=n_dense)

    def parts(m: BCOO) -> list[BCOO]:
        sums = [sparse.bcoo_reduce_sum(m, axes=axes) for axes in ((0,), (1,), (2,), (0, 2))]
        cuts = [m[1:, ::2, :4], sparse.bcoo_dynamic_slice(m, (1, 1, 1), (1, 2, 3)), sparse.bcoo_rev(m, (0, 2))]
        return [*sums, *cuts, sparse.bcoo_squeeze(m[:1, 1:2], dimensions=(0, 1))]

    wanted = [*[CUBE.sum(axes) for axes in ((0,), (1,), (2,), (0, 2))],
              CUBE[1:, ::2, :4], CUBE[1:, 1:3, 1:4], CUBE[::-1, :, ::-1], CUBE[0, 1]]  # fmt: skip
    for ours, right in zip(weft.jit(parts)(m), wanted, strict=True):
        same(ours, right)
    assert m.sum() == CUBE.sum()


@pytest.mark.parametrize(("n_batch", "n_dense"), [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 1), (0, 3)])
def test_layouts(n_batch: int, n_dense: int) -> None:
    m = BCOO.fromdense(CUBE, n_batch=n_batch, n_dense=n_dense)
    same(m, CUBE)
    if (n_batch, n_dense) in ((0, 0), (1, 1), (2, 1)):
        same(m.update_layout(n_batch=0, n_dense=0), CUBE)
        same(m.update_layout(n_batch=1, n_dense=1, on_inefficient=None), CUBE)
    right = B[:, :2]
    same(m @ right, CUBE @ right)
    dims = (((0, 2), (0, 1)), ((), ()))
    other = RNG.integers(-4, 5, (2, 5, 3)).astype(np.float32)
    same(sparse.bcoo_dot_general(m, other, dimension_numbers=dims), np.einsum("bij,bjk->ik", CUBE, other))
    swapped = sparse.bcoo_dot_general(other, m, dimension_numbers=(((1,), (2,)), ((), ())))
    same(swapped, np.einsum("bjk,cij->bkci", other, CUBE))
    if n_batch:
        same(m @ other, CUBE @ other)
        same(weft.vmap(lambda m, x: m @ x)(m, other), CUBE @ other)
        row = weft.vmap(lambda m: m * 2.0)(m)
        assert row.shape == m.shape
        same(row, CUBE * 2)
        same(sparse.bcoo_concatenate([m, m[:1]], dimension=0), np.concatenate([CUBE, CUBE[:1]]))
    same(sparse.bcoo_multiply_sparse(m, m), CUBE**2)
    same(m * CUBE[:1], CUBE * CUBE[:1])
    wide = sparse.bcoo_broadcast_in_dim(m[:1], shape=(3, 2, 4, 5), broadcast_dimensions=(1, 2, 3)) if n_batch else None
    if wide is not None:
        same(wide, np.broadcast_to(CUBE[:1], (3, 2, 4, 5)))


def test_broadcast_and_reshape() -> None:
    m = BCOO.fromdense(M)
    same(sparse.bcoo_broadcast_in_dim(m, shape=(2, 4, 3, 5), broadcast_dimensions=(1, 3)),
         np.broadcast_to(M[None, :, None], (2, 4, 3, 5)))  # fmt: skip
    same(sparse.bcoo_broadcast_in_dim(m[:1], shape=(4, 5, 2), broadcast_dimensions=(0, 1)),
         np.broadcast_to(M[:1, :, None], (4, 5, 2)))  # fmt: skip
    batched = BCOO.fromdense(CUBE.reshape(2, 2, 2, 5), n_batch=2)
    same(sparse.bcoo_reshape(batched, new_sizes=(4, 10)), CUBE.reshape(4, 10))
    with pytest.raises(ValueError, match="mix"):
        sparse.bcoo_reshape(batched, new_sizes=(2, 20))
    same(sparse.bcoo_transpose(batched, permutation=(1, 0, 3, 2)), CUBE.reshape(2, 2, 2, 5).transpose(1, 0, 3, 2))


def test_sampled_products() -> None:
    indices = jnp.array([[0, 0], [3, 2], [4, 3], [1, 1]])
    data = sparse.bcoo_dot_general_sampled(M, B, indices, dimension_numbers=(((1,), (0,)), ((), ())))
    np.testing.assert_array_equal(data, [*(M @ B)[[0, 3], [0, 2]], 0, (M @ B)[1, 1]])
    batched = sparse.bcoo_dot_general_sampled(
        CUBE, np.stack([B, -B]), jnp.stack([indices, indices]), dimension_numbers=(((2,), (1,)), ((0,), (0,)))
    )
    assert batched.shape == (2, 4) and batched[0, 1] == (CUBE[0] @ B)[3, 2]


def test_derivatives() -> None:
    m = BCOO.fromdense(M, nse=12)
    value, gradient = sparse.value_and_grad(lambda m, b: jnp.sin(m @ b).sum())(m, B)
    np.testing.assert_allclose(value, np.sin(M @ B).sum(), rtol=1e-5)
    assert isinstance(gradient, BCOO) and gradient.nse == 12
    np.testing.assert_allclose(dense(gradient), (np.cos(M @ B) @ B.T) * (M != 0), rtol=1e-4, atol=1e-5)
    by_dense = weft.grad(lambda b: jnp.sin(m @ b).sum())(B)
    np.testing.assert_allclose(by_dense, M.T @ np.cos(M @ B), rtol=1e-4, atol=1e-5)
    one = BCOO.fromdense(M)
    both, aux = sparse.grad(lambda m, b: ((m @ b).sum(), m.nse), argnums=(0, 1), has_aux=True)(one, B)
    assert aux == one.nse and isinstance(both[0], BCOO)
    np.testing.assert_allclose(both[1], M.T @ np.ones((4, 3)), rtol=1e-6)
    for transform in (sparse.jacfwd, sparse.jacrev):
        rows = transform(lambda m: m @ B[:, 0])(one)
        wanted = np.einsum("ab,c->abc", np.eye(4), B[:, 0]) * (M != 0)
        np.testing.assert_array_equal(dense(rows), wanted)
    tangent = weft.jvp(lambda d: BCOO((d, one.indices), shape=one.shape) @ B, (one.data,), (one.data,))[1]
    np.testing.assert_array_equal(tangent, M @ B)
    hessian = weft.hessian(lambda d: (BCOO((d, one.indices), shape=one.shape).T @ M[:, 0]).sum() ** 2)(one.data)
    assert hessian.shape == (one.nse, one.nse)


def test_no_product_makes_the_matrix_dense() -> None:
    """The largest array of a product and its derivative is that of the gathered rows."""
    m = sparse.random_bcoo(weft.random.key(0), (1000, 900), nse=50)
    b = np.ones((900, 4), np.float32)
    for f in (lambda m, b: m @ b, lambda m, b: sparse.grad(lambda m: (m @ b).sum())(m).data):
        text = str(weft.make_jaxpr(f)(m, b))
        assert "1000,900" not in text


def test_sparsify() -> None:
    m, v = BCOO.fromdense(M), np.arange(5, dtype=np.float32)
    cases: list[tuple[Any, Any]] = [
        (lambda m, v: 2 * m.T.T @ v, 2 * M @ v),
        (lambda m, v: jnp.sin(m).sum(0), np.sin(M).sum(0)),
        (lambda m, v: (m * v + m).reshape(20), (M * v + M).reshape(20)),
        (lambda m, v: jnp.concatenate([m, m])[3:6, ::2], np.concatenate([M, M])[3:6, ::2]),
        (lambda m, v: jnp.square(m)[1], (M**2)[1]),
        (lambda m, v: jnp.exp(sparse.todense(m)), np.exp(M)),
        (lambda m, v: jnp.squeeze(m[None] / 2, 0) @ v, M / 2 @ v),
        (lambda m, v: weft.jit(lambda m: m @ v)(m), M @ v),
        (lambda m, v: weft.lax.fori_loop(0, 3, lambda i, x: x + m @ v, jnp.zeros(4)), 3 * (M @ v)),
        (lambda m, v: weft.lax.cond(v[1] > 0, lambda m: m * 2, lambda m: -m, m), 2 * M),
        (lambda m, v: weft.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, m))[1], 8 * M),
    ]
    for f, wanted in cases:
        np.testing.assert_allclose(dense(sparse.sparsify(f)(m, v)), wanted, rtol=1e-5)
    same(weft.jit(sparse.sparsify(lambda m, v: m @ v))(m, v), M @ v)
    with pytest.raises(NotImplementedError, match="would be dense"):
        sparse.sparsify(jnp.exp)(m)


def test_random_arrays() -> None:
    m = sparse.random_bcoo(weft.random.key(1), (3, 20, 10), nse=0.1, n_batch=1, sorted_indices=True)
    assert (m.n_batch, m.nse, m.dtype) == (1, 20, np.float32)
    flat = np.asarray(m.indices[..., 0] * 10 + m.indices[..., 1])
    assert all(len(set(row)) == 20 and sorted(row) == list(row) for row in flat)
    assert sparse.random_bcoo(weft.random.key(1), (8, 4, 2), nse=5, n_dense=1).data.shape == (5, 2)


def test_bcsr_functions() -> None:
    m = BCSR.fromdense(CUBE, n_batch=1)
    other = RNG.integers(-4, 5, (2, 5, 3)).astype(np.float32)
    dims = (((2,), (1,)), ((0,), (0,)))
    same(sparse.bcsr_dot_general(m, other, dimension_numbers=dims), CUBE @ other)
    data = sparse.bcsr_extract(m.indices, m.indptr, CUBE * 2)
    np.testing.assert_array_equal(data[0, : np.count_nonzero(CUBE[0])], CUBE[0][CUBE[0] != 0] * 2)
    same(sparse.bcsr_concatenate([m, m], dimension=1), np.concatenate([CUBE, CUBE], 1))
    same(sparse.bcsr_broadcast_in_dim(BCSR.fromdense(M), shape=(2, 4, 5), broadcast_dimensions=(1, 2)),
         np.broadcast_to(M, (2, 4, 5)))  # fmt: skip
    same(sparse.bcsr_sum_duplicates(m), CUBE)
    same(weft.vmap(lambda m, x: m @ x)(m, other), CUBE @ other)
    same(m * 2.0, CUBE * 2)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="do not make the shape"):
        BCOO((jnp.ones(3), jnp.zeros((3, 2), int)), shape=(4,))
    with pytest.raises(TypeError, match="integers"):
        BCOO((jnp.ones(3), jnp.zeros((3, 1))), shape=(4,))
    with pytest.raises(sparse.SparseEfficiencyError):
        BCOO.fromdense(M).update_layout(n_batch=1)
    with pytest.warns(sparse.SparseEfficiencyWarning):
        BCOO.fromdense(M).update_layout(n_dense=1, on_inefficient="warn")
    with pytest.raises(NotImplementedError, match="batch dimensions"):
        _ = BCOO.fromdense(CUBE) @ CUBE.transpose(0, 2, 1)
    with pytest.raises(weft.errors.ConcretizationTypeError):
        weft.jit(BCOO.fromdense)(M)
    with pytest.raises(ValueError, match="sparse_format"):
        sparse.empty((2, 2), sparse_format="dia")


def test_direct_solution() -> None:
    a = M[:, :4] + 9 * np.eye(4, dtype=np.float32)
    b = B[:4, 0]
    m = CSR.fromdense(a)

    def solve(data: Any, b: Any) -> Any:
        return sparse.linalg.spsolve(data, m.indices, m.indptr, b)

    np.testing.assert_allclose(weft.jit(solve)(m.data, b), np.linalg.solve(a, b), rtol=1e-5, atol=1e-6)
    ours = weft.grad(lambda d, b: (solve(d, b) ** 2).sum(), (0, 1))(m.data, b)
    x = np.linalg.solve(a, b)
    by_b = np.linalg.solve(a.T, 2 * x)  # x = a^-1 b, so that dx = a^-1 (db - da x)
    np.testing.assert_allclose(ours[0], -np.outer(by_b, x)[a != 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours[1], by_b, rtol=1e-4, atol=1e-6)


def test_largest_eigenvalues() -> None:
    half = RNG.normal(size=(40, 40))
    a = (half @ half.T).astype(np.float32)
    start = RNG.normal(size=(40, 3)).astype(np.float32)
    theta, vectors, steps = sparse.linalg.lobpcg_standard(a, start)
    wanted = np.linalg.eigvalsh(a)[::-1][:3]
    np.testing.assert_allclose(theta, wanted, rtol=1e-5)
    np.testing.assert_allclose(a @ np.asarray(vectors), np.asarray(vectors) * wanted, atol=2e-2)
    assert 0 < int(steps) < 100
    with pytest.raises(ValueError, match="5 k < n"):
        sparse.linalg.lobpcg_standard(a, np.ones((40, 8), np.float32))
