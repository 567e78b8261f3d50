"""Special functions against mpmath, at the bounds of docs/NUMERICS.md, and their edges against JAX.

A bound is stated in units of eps * (1 + |log result|), because a relative error of an operand moves a logarithm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import mpmath
import numpy as np
import pytest

import weft
import weft.lax as lax
from weft import config
from weft.numpy import asarray
from weft.operations.pointwise import special

RNG = np.random.default_rng(11)
# eps * (1 + |log result|) in float64; float32 is the float64 value rounded
BOUNDS = {
    "igamma": 24.0,
    "igammac": 24.0,
    "igamma_grad_a": 16.0,
    "random_gamma_grad": 16.0,
    "betainc": 48.0,
    "zeta": 4.0,
    "polygamma": 16.0,
    "bessel_i0e": 4.0,
    "bessel_i1e": 8.0,
}
SINGLE_BOUNDS = {"bessel_i0e": 1.6, "bessel_i1e": 2.3}  # eps; those of float32 that are not evaluated in float64


def gamma_points(count: int, low: float = -3, high: float = 4) -> tuple[np.ndarray, np.ndarray]:
    """a of many magnitudes, x near it, far from it, and both small."""
    a = 10 ** RNG.uniform(low, high, count)
    x = a * np.exp(RNG.normal(size=count) * RNG.choice([0.05, 0.3, 2.0], count))
    tiny = 10 ** RNG.uniform(-8, 0, (2, count // 4))
    return np.concatenate([a, tiny[0], [1, 2, 3, 30, 12, 12.5]]), np.concatenate([x, tiny[1], [1, 1, 30, 3, 12, 12]])


def beta_points() -> tuple[np.ndarray, ...]:
    a, b = 10 ** RNG.uniform(-2, 3, (2, 300))
    x = RNG.uniform(0, 1, 300)
    near = np.minimum(a / (a + b) * np.exp(RNG.normal(size=300) * 0.2), 0.999)
    return np.concatenate([a, a]), np.concatenate([b, b]), np.concatenate([x, near])


def slope(a: Any, x: Any) -> Any:
    h = a * mpmath.mpf(10) ** -15
    if x < a:
        p = lambda s: mpmath.gammainc(s, 0, x, regularized=True)
    else:
        p = lambda s: -mpmath.gammainc(s, x, mpmath.inf, regularized=True)
    return (p(a + h) - p(a - h)) / (2 * h)


def density(a: Any, x: Any) -> Any:
    return mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))


EXACT: dict[str, Callable[..., Any]] = {
    "igamma": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
    "igammac": lambda a, x: mpmath.gammainc(a, x, mpmath.inf, regularized=True),
    "igamma_grad_a": slope,
    "random_gamma_grad": lambda a, x: -slope(a, x) / density(a, x),
    "betainc": lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True),
    "zeta": mpmath.zeta,
    "polygamma": lambda m, x: mpmath.polygamma(int(m), x),
    "bessel_i0e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
    "bessel_i1e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
}
LINE = np.concatenate([RNG.uniform(-20, 20, 200), 10 ** RNG.uniform(-8, 6, 100)])
NEGATIVE = 2 * np.round(RNG.uniform(1, 3, 20)), RNG.uniform(-12, 0, 20)
POINTS: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
    "igamma": lambda: gamma_points(400),
    "igammac": lambda: gamma_points(400),
    "igamma_grad_a": lambda: gamma_points(120, -2, 3),
    "random_gamma_grad": lambda: gamma_points(120, -2, 3),
    "betainc": beta_points,
    "zeta": lambda: (
        np.concatenate([1 + 10 ** RNG.uniform(-4, 2, 200), NEGATIVE[0]]),
        np.concatenate([10 ** RNG.uniform(-3, 3, 200), NEGATIVE[1]]),
    ),
    "polygamma": lambda: (np.round(RNG.uniform(0, 20, 200)), 10 ** RNG.uniform(-2, 3, 200)),
    "bessel_i0e": lambda: (LINE,),
    "bessel_i1e": lambda: (LINE,),
}


START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_samples() -> None:
    """The points of a test do not depend on which tests ran before."""
    RNG.bit_generator.state = START


def run(name: str, *arrays: np.ndarray) -> np.ndarray:
    with config.context("enable_x64", True):
        return np.asarray(getattr(lax, name)(*map(asarray, arrays)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str, dtype: Any) -> None:
    arrays = [v.astype(dtype) for v in POINTS[name]()]
    found, eps = run(name, *arrays), float(np.finfo(dtype).eps)
    tiny = 1e-290 if dtype == np.float64 else 1e-37
    bound = BOUNDS[name] if dtype == np.float64 else SINGLE_BOUNDS.get(name, 0.51)
    compared = 0
    with mpmath.workdps(45):
        for value, *point in zip(found, *arrays, strict=True):
            # mpmath takes the zeta function from terms near 1 where it is near q^-s
            lost = int(abs(point[0]) * np.log10(max(point[1], 1.0))) if name == "zeta" else 0
            with mpmath.workdps(45 + lost):
                exact = EXACT[name](*(mpmath.mpf(float(v)) for v in point))
            size = abs(exact)
            if size < tiny:
                assert abs(float(value)) <= 2 * tiny
                continue
            if size > np.finfo(dtype).max:
                assert np.isinf(value)
                continue
            compared += 1
            error = float(abs(mpmath.mpf(float(value)) - exact) / size) / eps
            allowed = bound * (1 + abs(float(mpmath.log(size)))) if dtype == np.float64 else bound
            if name == "betainc":  # the complement of a value near 1
                allowed = max(allowed, float(8 / size)) if dtype == np.float64 else max(allowed, 0.6)
            if name == "polygamma" and point[0] == 0:
                allowed = max(allowed, float(16 / size)) if dtype == np.float64 else float(2 * max(1, 1 / size))
            assert error <= allowed, (name, point, value, mpmath.nstr(exact, 18), error)
    assert compared > 100


GRID = np.array([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, 2.5, 1e3, np.nan])
ORDERS = np.array([-np.inf, -3.0, -2.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.nan])
# JAX gives NaN for a = 0, where the limit is known, and loses Q of a tiny a
JAX_ODD = {"igamma": lambda a, x: a == 0, "igammac": lambda a, x: (a == 0) | ((a < 1e-20) & (a > 0))}


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["igamma", "igammac", "zeta", "polygamma"])
def test_edges_agree_with_jax(name: str) -> None:
    line = GRID if name.startswith("igamma") else ORDERS
    a, x = (v.ravel() for v in np.meshgrid(line, line, indexing="ij"))
    with jax.enable_x64(True):
        expected = np.asarray(getattr(jax.lax, name)(a, x))
    found = run(name, a, x)
    same = (np.isnan(found) == np.isnan(expected)) | JAX_ODD.get(name, lambda a, x: a != a)(a, x)
    assert same.all(), [(a[i], x[i], found[i], expected[i]) for i in np.flatnonzero(~same)]
    both = np.isfinite(found) & np.isfinite(expected) & ~JAX_ODD.get(name, lambda a, x: a != a)(a, x)
    np.testing.assert_allclose(found[both], expected[both], rtol=1e-9)
    np.testing.assert_array_equal(np.isinf(found)[~np.isnan(expected)], np.isinf(expected)[~np.isnan(expected)])


@pytest.mark.oracle
def test_betainc_edges_agree_with_jax() -> None:
    line = np.array([-1.0, -0.0, 0.0, 0.5, 1.0, 1.5, np.inf, np.nan])
    grids = [v.ravel() for v in np.meshgrid(line, line, [-0.5, 0.0, 0.5, 1.0, 1.5, np.nan], indexing="ij")]
    with jax.enable_x64(True):
        expected = np.asarray(jax.lax.betainc(*grids))
    np.testing.assert_allclose(run("betainc", *grids), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["igamma", "igammac", "igamma_grad_a", "random_gamma_grad"])
def test_infinities(name: str) -> None:
    a, x = np.array([2.0, np.inf, np.inf, 1e300, 2.0]), np.array([np.inf, 2.0, np.inf, 1e300, 1e300])
    expected = {
        "igamma": [1, 0, 1, 0.5, 1],
        "igammac": [0, 1, 0, 0.5, 0],
        "igamma_grad_a": [0, 0, 0, 0, 0],
        "random_gamma_grad": [np.nan, np.nan, np.nan, 1, np.nan],
    }[name]
    keep = ~np.isnan(expected)
    np.testing.assert_allclose(run(name, a, x)[keep], np.array(expected)[keep], rtol=1e-6, atol=1e-150)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precisions_round_once(name: str, dtype: Any) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        arrays = [v.astype(dtype) for v in POINTS[name]()]
        wide = run(name, *(v.astype(np.float32) for v in arrays))
        found, expected = run(name, *arrays), wide.astype(dtype)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("name", ["igamma", "betainc", "zeta"])
def test_a_lane_does_not_depend_on_its_neighbours(name: str) -> None:
    arrays = [v[:48].astype(np.float32) for v in POINTS[name]()]
    together = run(name, *arrays)
    for k in range(0, 48, 7):
        np.testing.assert_array_equal(run(name, *(v[k : k + 1] for v in arrays)), together[k : k + 1])


def test_loops_inside_every_form_of_kernel() -> None:
    """Rows, columns, masked tails, scalars and strided operands."""
    a, x = (np.abs(RNG.normal(size=(37, 45))).astype(np.float32) + 0.1 for _ in range(2))
    full = run("igamma", a, x)
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda a, x: lax.igamma(a.T, x.T))(a, x)), full.T)
    np.testing.assert_array_equal(np.asarray(weft.jit(lax.igamma)(a[3, 4], x[3, 4])), full[3, 4])
    for axis in (0, 1, None):
        total = np.asarray(weft.jit(lambda a, x, axis=axis: lax.igamma(a, x).sum(axis))(a, x))
        np.testing.assert_allclose(total, full.sum(axis, dtype=np.float64), rtol=1e-5)
    biased = weft.jit(lambda a, x: lax.igamma(a, x) - lax.igamma(a, x).max(1, keepdims=True))(a, x)
    np.testing.assert_allclose(np.asarray(biased), full - full.max(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_gcd(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x, y = (RNG.integers(info.min + (info.min < 0), info.max, 500, dtype=dtype, endpoint=True) for _ in range(2))
    x[:50] //= 7
    y[:20], x[10:30] = 0, 0
    with config.context("enable_x64", True):
        found = np.asarray(special.gcd(asarray(x), asarray(y)))
    np.testing.assert_array_equal(found, np.gcd(x, y))


@pytest.mark.parametrize("name", ["igamma", "zeta", "bessel_i0e", "betainc"])
def test_integers_are_refused(name: str) -> None:
    count = {"bessel_i0e": 1, "betainc": 3}.get(name, 2)
    with pytest.raises(TypeError, match="float"):
        getattr(lax, name)(*[asarray(np.ones(3, np.int32))] * count)


@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_gcd_and_lcm_of_numpy(name: str) -> None:
    x, y = np.arange(-20, 20)[:, None].astype(np.int32), np.arange(-9, 9).astype(np.int32)
    found = getattr(weft.numpy, name)(x, y)
    np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, y))
    assert getattr(weft.numpy, name)(np.int8(4), np.int32(6)).dtype == np.int32
    with pytest.raises(ValueError, match="integers"):
        getattr(weft.numpy, name)(1.5, 2)
