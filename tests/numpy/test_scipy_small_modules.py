"""scipy.integrate, cluster.vq, ndimage, interpolate and optimize against SciPy."""

from __future__ import annotations

from typing import Any

import jax.scipy.ndimage
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
import scipy.interpolate
import scipy.optimize

import weft
import weft.numpy as wnp
from weft.scipy import integrate, interpolate, ndimage, optimize
from weft.scipy.cluster import vq

RNG = np.random.default_rng(9)


def test_trapezoid() -> None:
    y, x = RNG.normal(size=(3, 7)), np.sort(RNG.normal(size=7))
    np.testing.assert_allclose(np.asarray(integrate.trapezoid(y, x)), scipy.integrate.trapezoid(y, x), rtol=1e-5)
    found = integrate.trapezoid(y, dx=0.5, axis=0)
    np.testing.assert_allclose(np.asarray(found), scipy.integrate.trapezoid(y, dx=0.5, axis=0), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_vq(dtype: str) -> None:
    for observations, codes in (((20, 3), (5, 3)), ((20,), (5,)), ((0, 3), (2, 3))):
        x = (10 * RNG.normal(size=observations)).astype(dtype)
        book = (10 * RNG.normal(size=codes)).astype(dtype)
        index, distance = vq.vq(x, book)
        assert index.dtype == np.int32 and distance.dtype == np.float32
        if x.size:
            want, want_distance = scipy.cluster.vq.vq(x.astype(float), book.astype(float))
            np.testing.assert_array_equal(np.asarray(index), want)
            np.testing.assert_allclose(np.asarray(distance), want_distance, rtol=1e-5)
    jitted = weft.jit(vq.vq)(x, book)
    assert jitted[0].shape == (0,)


MODES = ["constant", "nearest", "wrap", "mirror", "reflect"]


@pytest.mark.oracle
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "i4", "c8"])
def test_map_coordinates(mode: str, order: int, dtype: str) -> None:
    for shape in ((5,), (4, 3), (2, 3, 1)):
        x = RNG.integers(-9, 10, shape).astype(dtype)
        positions = [RNG.uniform(-7, 9, (3, 4)).astype(np.float32) for _ in shape]
        found = ndimage.map_coordinates(x, positions, order, mode, 3.0)
        want = jax.scipy.ndimage.map_coordinates(x, positions, order, mode, 3.0)
        assert found.dtype == want.dtype
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-5, atol=1e-4)
        jitted = weft.jit(lambda x, *p: ndimage.map_coordinates(x, p, order, mode, 3.0))(x, *positions)
        np.testing.assert_array_equal(np.asarray(jitted), np.asarray(found))
    with weft.enable_x64(True):
        if dtype == "f4" and order == 1:
            f = lambda x, a, b: ndimage.map_coordinates(x, [a, b], 1, mode)
            weft.test_util.check_grads(
                f, (RNG.normal(size=(4, 3)), np.array([0.3, 2.2]), np.array([1.7, 0.4])), order=2
            )


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, -1.0, None])
def test_regular_grids(method: str, fill: Any) -> None:
    grid = (np.sort(RNG.normal(size=4)), np.arange(3.0), np.array([0.0, 2.0]))
    for trailing in ((), (2,)):
        values = RNG.normal(size=(4, 3, 2, *trailing))
        points = np.concatenate([RNG.uniform(0, 1, (30, 3)) * 3 - 1, np.array([[9.0, 1, 1]])])
        with weft.enable_x64(True):
            ours = interpolate.RegularGridInterpolator(grid, values, method, False, fill)
            theirs = scipy.interpolate.RegularGridInterpolator(grid, values, method, False, fill)
            np.testing.assert_allclose(np.asarray(ours(points)), theirs(points), rtol=1e-10)
            np.testing.assert_allclose(np.asarray(weft.jit(ours)(points)), theirs(points), rtol=1e-10)
            np.testing.assert_allclose(np.asarray(ours((points[:, 0], 1.0, 0.5))), theirs((points[:, 0], 1.0, 0.5)))
    if method == "linear" and fill is None:
        with weft.enable_x64(True):
            weft.test_util.check_grads(
                lambda v, x: interpolate.RegularGridInterpolator(grid, v, fill_value=None)(x),
                (RNG.normal(size=(4, 3, 2)), np.array([[0.1, 0.3, 0.7]])), order=2,
            )  # fmt: skip


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


LIMITED = "l-bfgs-experimental-do-not-rely-on-this"


def test_minimize_with_limited_memory() -> None:
    def valley(x: Any) -> Any:
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    with weft.enable_x64(True):
        found = optimize.minimize(valley, np.zeros(6), method=LIMITED, options={"ftol": 0.0})
        assert found.success and int(found.status) == 0 and found.hess_inv is None
        np.testing.assert_allclose(found.x, np.ones(6), atol=1e-6)
        np.testing.assert_allclose(found.jac, weft.grad(valley)(found.x), atol=1e-12)
        few = weft.jit(lambda x: optimize.minimize(valley, x, method=LIMITED, options={"maxcor": 2, "ftol": 0.0}).x)
        np.testing.assert_allclose(few(np.zeros(4)), np.ones(4), atol=1e-5)
        for option, status in (("maxiter", 1), ("maxfun", 2), ("maxgrad", 3)):
            short = optimize.minimize(valley, np.zeros(6), method=LIMITED, options={option: 3})
            assert (bool(short.success), int(short.status)) == (False, status)
        flat = optimize.minimize(valley, np.zeros(6), method=LIMITED, options={"ftol": 1e3})
        assert int(flat.status) == 4
    with pytest.raises(TypeError, match="nonsense"):
        optimize.minimize(valley, np.zeros(2, np.float32), method=LIMITED, options={"nonsense": 1})


def test_minimize() -> None:
    with weft.enable_x64(True):
        start = np.array([-1.2, 1.0, 0.7])
        found = optimize.minimize(rosenbrock, start, method="BFGS")
        want = scipy.optimize.minimize(lambda x: float(rosenbrock(x)), start, method="BFGS")
        assert bool(found.success) and int(found.status) == 0
        np.testing.assert_allclose(np.asarray(found.x), np.ones(3), atol=1e-5)
        np.testing.assert_allclose(np.asarray(found.x), want.x, atol=1e-4)
        hessian = np.asarray(weft.hessian(rosenbrock)(wnp.ones(3)))
        np.testing.assert_allclose(np.asarray(found.hess_inv), np.linalg.inv(hessian), rtol=0.2, atol=0.05)
        jitted = weft.jit(lambda x: optimize.minimize(rosenbrock, x, method="BFGS").x)(start)
        np.testing.assert_allclose(np.asarray(jitted), np.ones(3), atol=1e-5)
        rows = np.stack([start, -start])
        mapped = weft.vmap(lambda x: optimize.minimize(rosenbrock, x, method="bfgs").fun)(rows)
        assert (np.asarray(mapped) < 1e-8).all()
    found = optimize.minimize(
        lambda x, a: ((x - a) ** 2).sum(), np.zeros(2, np.float32), (3.0,), method="BFGS", tol=1e-3
    )
    np.testing.assert_allclose(np.asarray(found.x), [3, 3], atol=1e-3)
    short = optimize.minimize(rosenbrock, np.float32([-1.2, 1.0]), method="BFGS", options={"maxiter": 2})
    assert int(short.status) == 1 and not bool(short.success) and int(short.nit) == 2
    assert int(optimize.minimize(lambda x: x.sum() * np.nan, np.ones(2, np.float32), method="BFGS").status) == 5


GRID = (np.arange(3.0), np.arange(4.0))
CELLS = np.ones((3, 4))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: vq.vq(np.ones((2, 2)), np.ones(2)), ValueError, "same rank"),
        (lambda: vq.vq(np.ones((2, 2, 2)), np.ones((2, 2, 2))), ValueError, "ndim different"),
        (lambda: vq.vq(np.ones((2, 3)), np.ones((2, 2))), TypeError, "features"),
        (lambda: ndimage.map_coordinates(CELLS, [np.ones(1)], 1), ValueError, "must be a sequence of length"),
        (lambda: ndimage.map_coordinates(CELLS, [np.ones(1)] * 2, 2), NotImplementedError, "order<=1"),
        (lambda: ndimage.map_coordinates(CELLS, [np.ones(1)] * 2, 1, "foo"), NotImplementedError, "mode foo"),
        (lambda: interpolate.RegularGridInterpolator(GRID, CELLS, "cubic"), ValueError, "'cubic' is not defined"),
        (
            lambda: interpolate.RegularGridInterpolator(GRID, CELLS, bounds_error=True),
            NotImplementedError, "bounds_error",
        ),
        (lambda: interpolate.RegularGridInterpolator(GRID * 2, CELLS), ValueError, "4 point arrays"),
        (lambda: interpolate.RegularGridInterpolator(GRID[::-1], CELLS), ValueError, "4 points and 3 values"),
        (lambda: interpolate.RegularGridInterpolator(GRID, CELLS)(np.ones((1, 3))), ValueError, "dimension 3"),
        (lambda: optimize.minimize(rosenbrock, np.ones(2), method="foo"), ValueError, "Method foo not recognized"),
        (lambda: optimize.minimize(rosenbrock, np.ones((2, 2)), method="BFGS"), ValueError, "must be a vector"),
        (lambda: optimize.minimize(rosenbrock, np.ones(2), [1], method="BFGS"), TypeError, "must be a tuple"),  # type: ignore[arg-type]
        (
            lambda: optimize.minimize(rosenbrock, np.ones(2), method="BFGS", options={"foo": 3}),
            TypeError, "unexpected keyword argument",
        ),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
