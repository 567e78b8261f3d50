"""weft.numpy.linalg against NumPy; its gradients against JAX, at the points where they are not defined too."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.numpy import linalg

RNG = np.random.default_rng(0)
STACK = RNG.normal(size=(4, 3, 5)).astype(np.float32)
ORDERS = [None, 2, 1, -1, 0, 3, 2.5, -2, np.inf, -np.inf]
MATRIX_ORDERS = [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64", "bool"])
def test_norms_of_vectors(dtype: str, order: Any, keepdims: bool) -> None:
    x = (STACK * (3 + 2j if dtype == "complex64" else 3)).astype(dtype)
    for axis in (0, -1, (1,)):
        found = linalg.norm(x, order, axis=axis, keepdims=keepdims)
        with np.errstate(divide="ignore"):
            expected = np.linalg.norm(x.astype(np.complex128), order, axis=axis, keepdims=keepdims)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=2e-5)
        np.testing.assert_allclose(
            weft.jit(lambda x, a=axis: linalg.norm(x, order, a, keepdims))(x), expected, rtol=2e-5
        )
    if order is not None:
        both = linalg.vector_norm(x, axis=(0, 2), ord=order, keepdims=keepdims)
        with np.errstate(divide="ignore"):
            wide = np.linalg.vector_norm(x.astype(np.complex128), axis=(0, 2), ord=order, keepdims=keepdims)
        np.testing.assert_allclose(both, wide, rtol=2e-5)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("order", MATRIX_ORDERS, ids=str)
def test_norms_of_matrices(order: Any, keepdims: bool) -> None:
    for axis in ((0, 1), (2, 0), (-1, -3), (1, 2)):
        found = linalg.norm(STACK, order, axis, keepdims)
        np.testing.assert_allclose(found, np.linalg.norm(STACK, order, axis, keepdims), rtol=2e-5)
    np.testing.assert_allclose(linalg.norm(STACK[0], order), np.linalg.norm(STACK[0], order), rtol=2e-5)
    named = order or "fro"
    found, expected = (lib.matrix_norm(STACK, ord=named, keepdims=keepdims) for lib in (linalg, np.linalg))
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_norms_of_all_elements_and_of_none() -> None:
    assert linalg.norm(wnp.float32(-3)).item() == 3
    assert linalg.norm(STACK, keepdims=True).shape == (1, 1, 1)
    assert linalg.norm(wnp.zeros(0)).item() == 0
    assert linalg.norm(wnp.zeros((0, 3)), wnp.inf).item() == 0
    assert wnp.isnan(linalg.norm(wnp.array([1.0, wnp.nan])))
    assert linalg.norm(wnp.ones(4, "bfloat16")).dtype == wnp.bfloat16


@pytest.mark.oracle
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_gradients_are_those_of_jax_where_there_is_none(order: Any) -> None:
    for point in (np.zeros(3, np.float32), np.array([0, 2, -2], np.float32), np.array([1, -3, 2], np.float32)):
        found = weft.grad(lambda x: linalg.norm(x, order))(point)
        expected = jax.grad(lambda x: jax.numpy.linalg.norm(x, order))(point)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("order", [None, 1, 3, np.inf], ids=str)
def test_gradients_are_differences_and_maps_loops(order: Any) -> None:
    with weft.enable_x64(True):
        x = wnp.array([[0.5, -1.5, 2.0], [3.0, 0.25, -1.0]])
        weft.test_util.check_grads(lambda x: linalg.norm(x, order, axis=1), (x,), order=2)
        mapped = weft.vmap(lambda row: linalg.norm(row, order))(x)
        np.testing.assert_allclose(mapped, [linalg.norm(row, order) for row in x])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 7, 13, True, np.int8(5)], ids=str)
def test_powers(exponent: Any) -> None:
    square = STACK[:, :, :3] / 3
    np.testing.assert_allclose(
        linalg.matrix_power(square, exponent), np.linalg.matrix_power(square, int(exponent)), rtol=1e-4, atol=1e-6
    )
    whole = np.array([[1, 1], [1, 0]], np.int32)
    np.testing.assert_array_equal(linalg.matrix_power(whole, exponent), np.linalg.matrix_power(whole, int(exponent)))


def test_chains_of_products_take_the_fewest_multiplications() -> None:
    chain = [RNG.normal(size=shape).astype(np.float32) for shape in ((10, 100), (100, 5), (5, 50), (50, 2))]
    np.testing.assert_allclose(linalg.multi_dot(chain), np.linalg.multi_dot(chain), rtol=1e-3, atol=1e-3)
    first, last = chain[0][0], chain[-1][:, 0]
    np.testing.assert_allclose(
        linalg.multi_dot([first, *chain[1:-1], last]), first @ chain[1] @ chain[2] @ last, rtol=1e-3
    )
    closed = weft.make_jaxpr(lambda *arrays: linalg.multi_dot(arrays))(
        *[np.zeros(s) for s in ((9, 90), (90, 9), (9, 90))]
    )
    assert [eqn.outvars[0].aval.shape for eqn in closed.jaxpr.eqns] == [(9, 9), (9, 90)]


def test_forms_of_the_array_api() -> None:
    x, y = STACK, STACK[::-1, :, ::-1]
    pairs = [
        (linalg.cross(x[:, :, :3], y[:, :, :3]), np.linalg.cross(x[:, :, :3], y[:, :, :3])),
        (linalg.diagonal(x, offset=1), np.linalg.diagonal(x, offset=1)),
        (linalg.trace(x, offset=-1), np.linalg.trace(x, offset=-1)),
        (linalg.outer(x[0, 0], y[0, 0]), np.linalg.outer(x[0, 0], y[0, 0])),
        (linalg.matmul(x, y.swapaxes(1, 2)), np.linalg.matmul(x, y.swapaxes(1, 2))),
        (linalg.tensordot(x, y, axes=3), np.linalg.tensordot(x, y, axes=3)),
        (linalg.vecdot(x, y), np.linalg.vecdot(x, y)),
        (linalg.matrix_transpose(x), np.linalg.matrix_transpose(x)),
    ]
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: linalg.norm(STACK, 1), ValueError, "Improper number of axes"),
        (lambda: linalg.norm(STACK[0], 5), ValueError, "Invalid order '5' for matrix norm"),
        (lambda: linalg.norm(STACK[0], "x"), ValueError, "Invalid order 'x' for matrix norm"),
        (lambda: linalg.norm(STACK, "fro", 0), ValueError, "Invalid order 'fro' for vector norm"),
        (lambda: linalg.norm(STACK, 1, (1, 1)), ValueError, "duplicate"),
        (lambda: linalg.norm(STACK, 1, 3), ValueError, "out of bounds"),
        (lambda: linalg.norm([1.0, 2.0]), TypeError, "requires ndarray or scalar arguments"),
        (lambda: linalg.norm(wnp.zeros(0), -wnp.inf), ValueError, "zero-size"),
        (lambda: linalg.matrix_power(STACK, 2), TypeError, "square"),
        (lambda: linalg.matrix_power(STACK[0, 0], 2), TypeError, "two-dimensional"),
        (lambda: linalg.matrix_power(np.eye(2), 1.5), TypeError, "must be an integer"),
        (lambda: linalg.multi_dot([STACK[0]]), ValueError, "at least two"),
        (lambda: linalg.multi_dot([STACK[0], STACK[0]]), ValueError, "must match"),
        (lambda: linalg.multi_dot([STACK, STACK]), ValueError, "two-dimensional"),
        (lambda: linalg.cross(STACK, STACK), ValueError, "3-dimensional"),
        (lambda: linalg.outer(STACK, STACK), ValueError, "one-dimensional"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
def test_wrong_arguments(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
