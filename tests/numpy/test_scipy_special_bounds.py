"""The bounds that docs/NUMERICS.md states for scipy.special, against mpmath and SciPy; edges, derivatives, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mpmath
import numpy as np
import pytest
import scipy.special

import weft
from weft.scipy import special

RNG = np.random.default_rng(3)
WIDE = np.concatenate([10.0 ** RNG.uniform(-8, 2, 60), RNG.uniform(0, 10, 60)])
FAR = np.concatenate([WIDE, 10.0 ** RNG.uniform(0, 4, 30)])


def dawson(v: Any) -> Any:
    if v < 30:
        return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-v * v) * mpmath.erfi(v)
    return sum(mpmath.fac2(2 * k - 1) / (2 ** (k + 1) * v ** (2 * k + 1)) for k in range(12))


def first(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x)[0]


def second(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x)[1]


# name: (ours, by mpmath, points, ulp in float32 and float64, size below which errors are absolute)
BOUNDS: dict[str, tuple[Any, Any, np.ndarray, tuple[float, float], float]] = {
    "exp1": (special.exp1, mpmath.e1, WIDE, (4, 4), 0),
    "expi": (special.expi, mpmath.ei, WIDE, (4, 4), 1),
    "expi of negative": (special.expi, mpmath.ei, -WIDE, (4, 4), 0),
    "dawsn": (special.dawsn, dawson, WIDE, (24, 24), 0),
    "erfcx": (special.erfcx, lambda v: mpmath.exp(v * v) * mpmath.erfc(v), WIDE, (4, 4), 0),
    "erfcx of negative": (
        special.erfcx, lambda v: mpmath.exp(v * v) * mpmath.erfc(v), -RNG.uniform(0, 9, 60), (4, 4), 0,
    ),
    "fresnel S": (first(special.fresnel), mpmath.fresnels, WIDE, (6, 6), 0),
    "fresnel C": (second(special.fresnel), mpmath.fresnelc, WIDE, (6, 6), 0),
    "sici Si": (first(special.sici), mpmath.si, FAR, (32, 32), 0),
    "sici Ci": (second(special.sici), mpmath.ci, FAR, (32, 32), 1),
    "spence": (special.spence, lambda v: mpmath.polylog(2, 1 - v).real, FAR, (16, 16), 0.1),
}  # fmt: skip
EXPN = {f"expn {n}": (n, lambda v, n=n: mpmath.expint(n, v)) for n in (0, 1, 2, 3, 7)}
for key, (n, reference) in EXPN.items():
    near = WIDE[WIDE < 60]
    BOUNDS[key] = (lambda x, n=n: special.expn(n, x), reference, near, (32, 40), 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str, dtype: str) -> None:
    ours, reference, points, (single, double), floor = BOUNDS[name]
    x = points.astype(dtype)
    if dtype == "f4":
        x = x[np.abs(x) < 80] if "ex" in name else x
    with weft.enable_x64(True), mpmath.workdps(40):
        found = np.asarray(ours(x))
        jitted = np.asarray(weft.jit(ours)(x))
        expected = [mpmath.mpf(reference(mpmath.mpf(float(v)))) for v in x]
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(jitted, found)
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    bound = single if dtype == "f4" else double
    for point, got, want in zip(x, found, expected, strict=True):
        error = abs(mpmath.mpf(float(got)) - want) / (eps * max(abs(want), floor, tiny))
        assert error <= bound, f"{name}({point!r}) is {got!r}, not {float(want)!r}: {float(error)} eps"


def faddeeva(x: float, y: float) -> complex:
    with mpmath.workdps(40):
        z = mpmath.mpc(x, y)
        return complex(mpmath.exp(-z * z) * mpmath.erfc(-1j * z))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_bound_of_wofz(dtype: Any) -> None:
    x = np.concatenate([RNG.uniform(-10, 10, 200), 10.0 ** RNG.uniform(-5, 2, 60)])
    y = np.concatenate([RNG.uniform(0, 10, 140), 10.0 ** RNG.uniform(-8, 1, 60), RNG.uniform(-2, 0, 60)])
    z = (x + 1j * y).astype(dtype)
    with weft.enable_x64(True):
        found = np.asarray(special.wofz(z))
        np.testing.assert_array_equal(np.asarray(weft.jit(special.wofz)(z)), found)
        np.testing.assert_array_equal(np.asarray(special.erfcx(-1j * z)), found)
    assert found.dtype == dtype
    expected = np.array([faddeeva(v.real, v.imag) for v in z.astype(np.complex128)])
    error = np.abs(found - expected) / np.abs(expected) / np.finfo(dtype).eps
    upper = y >= 0
    assert error[upper].max() <= 16
    assert (error[~upper] / (1 + np.abs(z[~upper]) ** 2)).max() <= 4  # exp(-z**2) of a rounded square
    real = np.abs(found.real - expected.real) / expected.real / np.finfo(dtype).eps
    assert real[upper & (expected.real > 1e-30)].max() <= 40


@pytest.mark.parametrize("wide", [False, True])
def test_bound_of_owens_t(wide: bool) -> None:
    dtype = np.float64 if wide else np.float32
    h, a = (10.0 ** RNG.uniform(-3, 1, 300)).astype(dtype), (10.0 ** RNG.uniform(-3, 3, 300)).astype(dtype)
    with weft.enable_x64(wide):
        found = np.asarray(special.owens_t(h, a)).astype(np.float64)
        minus = np.asarray(special.owens_t(-h, -a)).astype(np.float64)
    np.testing.assert_array_equal(minus, -found)
    expected = scipy.special.owens_t(h.astype(np.float64), a.astype(np.float64))
    kept = expected > (1e-290 if wide else 1e-36)
    error = np.abs(found - expected)[kept] / (np.finfo(dtype).eps * expected[kept])
    assert (error / (1 + h[kept].astype(np.float64) ** 2)).max() <= 8


def by_mpmath(function: Any, *args: float) -> float:
    with mpmath.workdps(30):
        return float(function(*map(mpmath.mpf, args)))


@pytest.mark.parametrize("wide", [False, True])
def test_bound_of_hyp1f1(wide: bool) -> None:
    dtype = np.float64 if wide else np.float32
    a, b = RNG.uniform(-5, 5, (2, 40)).astype(dtype)
    x = RNG.uniform(-80, 80, 40).astype(dtype) if wide else RNG.uniform(-60, 60, 40).astype(dtype)
    with weft.enable_x64(wide):
        found = np.asarray(special.hyp1f1(a, b, x))
    expected = np.array([by_mpmath(mpmath.hyp1f1, *map(float, p)) for p in zip(a, b, x, strict=True)])
    np.testing.assert_allclose(found, expected, rtol=1e-11 if wide else 5e-3)


@pytest.mark.parametrize("wide", [False, True])
def test_bound_of_hyp2f1(wide: bool) -> None:
    dtype = np.float64 if wide else np.float32
    a, b, c = RNG.uniform(-4, 4, (3, 40)).astype(dtype)
    x = np.concatenate([RNG.uniform(-1, 1, 30), -(10.0 ** RNG.uniform(0, 3, 10))]).astype(dtype)
    with weft.enable_x64(wide):
        found = np.asarray(special.hyp2f1(a, b, c, x))
    expected = np.array([by_mpmath(mpmath.hyp2f1, *map(float, p)) for p in zip(a, b, c, x, strict=True)])
    np.testing.assert_allclose(found, expected, rtol=1e-10 if wide else 5e-3)


EDGES = np.array([-np.inf, -3, -1, -0.0, 0.0, 1, 3, np.inf, np.nan], np.float32)


@pytest.mark.parametrize("name", ["exp1", "expi", "dawsn", "erfcx", "spence", "fresnel", "sici", "wofz"])
def test_edges(name: str) -> None:
    found, expected = getattr(special, name)(EDGES), getattr(scipy.special, name)(EDGES)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for value, want in pairs:
        want = want.copy()
        if name == "spence":
            want[-2] = -np.inf  # SciPy gives NaN at infinity
        if name == "fresnel":
            np.testing.assert_allclose(np.asarray(value)[[0, -2]], [-0.5, 0.5])
        np.testing.assert_allclose(np.asarray(value), want, rtol=1e-5)


def test_edges_of_two_operands() -> None:
    x = np.array([-1.0, 0.0, 1.0, np.inf, np.nan])
    for n in (0, 1, 2, 5):
        np.testing.assert_allclose(np.asarray(special.expn(n, x)), scipy.special.expn(n, x), rtol=1e-6)
    assert np.isnan(np.asarray(special.expn(np.array([-1, 1.5]), 1.0))).all()
    h = np.array([0, 1, -1, np.inf, 1, 0, np.nan, 0.5])
    a = np.array([1, np.inf, 2, 1, -np.inf, np.inf, 1, 0])
    np.testing.assert_allclose(np.asarray(special.owens_t(h, a)), scipy.special.owens_t(h, a), rtol=1e-6)
    assert special.hyp1f1(1.0, -2.0, 3.0).item() == np.inf
    assert special.hyp1f1(-2.0, -3.0, 2.0).item() == pytest.approx(by_mpmath(mpmath.hyp1f1, -2, -3, 2), rel=1e-6)
    assert special.hyp2f1(1.0, 2.0, 3.0, 1.0).item() == np.inf
    assert special.hyp2f1(0.5, 1.0, 2.5, 1.0).item() == pytest.approx(1.5, rel=1e-6)
    assert special.hyp2f1(-2.0, 1.5, 2.5, 300.0).item() == pytest.approx(38212.4286, rel=1e-6)
    assert np.isnan(special.hyp2f1(np.nan, 1.0, 2.0, 0.5).item())


@pytest.mark.parametrize("dtype", ["f2", "i4", "u1", "bool"])
def test_dtypes(dtype: str) -> None:
    x = np.array([1, 1, 0], dtype)
    wide = x.astype(np.float32)
    for name in ("exp1", "dawsn", "erfcx", "expi"):
        found = getattr(special, name)(x)
        assert found.dtype == (np.float16 if dtype == "f2" else np.float32)
        np.testing.assert_allclose(np.asarray(found, np.float32), getattr(scipy.special, name)(wide), rtol=1e-3)


POINTS: dict[str, tuple[float, ...]] = {
    "exp1": (0.7,), "expi": (1.3,), "dawsn": (0.9,), "erfcx": (1.1,), "spence": (0.6,), "owens_t": (0.5, 1.7),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
def test_derivatives_and_batches(name: str) -> None:
    function, point = getattr(special, name), POINTS[name]
    with weft.enable_x64(True):
        weft.test_util.check_grads(function, point, order=2)
        rows = [np.array([p, 2 * p, 5 * p, 9 * p]) for p in point]
        np.testing.assert_array_equal(np.asarray(weft.vmap(function)(*rows)), np.asarray(function(*rows)))


def test_derivatives_of_pairs_orders_and_series() -> None:
    with weft.enable_x64(True):
        for pair in (special.fresnel, special.sici):
            weft.test_util.check_grads(first(pair), (1.3,), order=2)
            weft.test_util.check_grads(second(pair), (7.3,), order=2)
        for n in (0, 1, 2, 4):
            weft.test_util.check_grads(lambda x, n=n: special.expn(n, x), (1.3,), order=2)
        weft.test_util.check_grads(special.wofz, (np.array([0.3 + 0.4j, 2 - 1j]),), order=2)
        weft.test_util.check_grads(special.hyp1f1, (1.2, 2.3, 0.5), order=1)
        weft.test_util.check_grads(special.hyp2f1, (1.2, 0.3, 2.3, -0.6), order=1)
        weft.test_util.check_grads(lambda x: special.hyp2f1(1.2, 0.3, 2.3, x), (0.5,), order=2)


def test_bernoulli_numbers() -> None:
    with weft.enable_x64(True):
        for n in (0, 1, 2, 5, 60):
            expected = scipy.special.bernoulli(max(n, 2))[: n + 1]
            np.testing.assert_allclose(np.asarray(special.bernoulli(n)), expected, rtol=1e-10, atol=1e-30)
    assert special.bernoulli(70).dtype == np.float32


@pytest.mark.parametrize("wide", [False, True])
def test_spherical_harmonics(wide: bool) -> None:
    n, m = (grid.ravel() for grid in np.meshgrid(np.arange(7), np.arange(-7, 8)))
    theta, phi = RNG.uniform(0, np.pi, (9, 1)), RNG.uniform(0, 6, (9, 1))
    theta[0] = 0
    with weft.enable_x64(wide):
        found = special.sph_harm_y(n, m, theta, phi)
        expected = scipy.special.sph_harm_y(n, m, theta, phi)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-14 if wide else 4e-6)
        jitted = weft.jit(lambda n, t: special.sph_harm_y(n, m, t, phi, n_max=6))(n, theta)
        np.testing.assert_allclose(np.asarray(jitted), np.asarray(found), atol=1e-15 if wide else 1e-6)
        if wide:
            f = lambda t, p: special.sph_harm_y(np.int32(3), np.int32(-2), t, p)
            weft.test_util.check_grads(f, (0.4, 1.2), order=2)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_legendre_functions() -> None:
    z = RNG.uniform(-1, 1, 7).astype(np.float32)
    jax_special = jax.scipy.special
    for normalized in (True, False):
        found, expected = special.lpmn_values(4, 4, z, normalized), jax_special.lpmn_values(4, 4, z, normalized)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4, atol=2e-5)
    for found, expected in zip(special.lpmn(4, 4, z), jax_special.lpmn(4, 4, z), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: special.exp1(np.complex64([1])), ValueError, "does not support complex"),
        (lambda: special.expn(1, np.complex64([1])), ValueError, "does not support complex"),
        (lambda: special.dawsn([1.0]), TypeError, "requires ndarray"),
        (lambda: special.fresnel(np.complex64([1])), NotImplementedError, "complex-valued"),
        (lambda: special.sici(np.complex64([1])), ValueError, "must be real-valued"),
        (lambda: special.spence(np.int32([1])), TypeError, "x.dtype=int32 is not supported"),
        (lambda: special.bernoulli(-1), ValueError, "non-negative"),
        (lambda: special.lpmn(1, 2, np.ones(2)), NotImplementedError, "m!=n"),
        (lambda: special.lpmn(1, 1, 0.5), ValueError, "1D array"),
        (lambda: special.lpmn_values(-1, -1, np.ones(2), True), ValueError, "must not be negative"),
        (lambda: special.sph_harm_y(np.int32(1), np.int32(0), 0.1, 0.2, diff_n=1), NotImplementedError, "diff_n"),
        (
            lambda: weft.jit(special.sph_harm_y)(np.int32(1), np.int32(0), 0.1, 0.2),
            weft.errors.ConcretizationTypeError, "n_max",
        ),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_gamma_of_complex_numbers() -> None:
    """loggamma within 100 eps of its size (or 1), gamma as far from it as that says; derivatives by digamma."""
    points = RNG.uniform(-12, 30, 300) + 1j * RNG.uniform(-10, 10, 300)
    points = np.r_[points, 1 + 0.2 * points[:50] / 30, 2 + 0.2 * points[50:100] / 30, -np.abs(points[:20].real) + 0j]
    for dtype in (np.complex64, np.complex128):
        with weft.enable_x64(dtype == np.complex128):
            z = points.astype(dtype)
            found = np.asarray(weft.jit(special.loggamma)(z)).astype(complex)
            expected = scipy.special.loggamma(z.astype(complex))
            eps = np.finfo(dtype).eps
            assert (np.abs(found - expected) <= 100 * eps * np.maximum(np.abs(expected), 1)).all()
            below = np.asarray(special.loggamma(np.array([complex(-2.5, -0.0), -3, 0, np.inf], dtype)))
            assert np.isclose(below[0], -0.056243716 + 9.424778j) and np.isnan(below[1:]).all()
            gamma = np.asarray(special.gamma(z[:50]))
            size = np.abs(scipy.special.gamma(z[:50].astype(complex)))
            assert (np.abs(gamma - scipy.special.gamma(z[:50].astype(complex))) <= 2e4 * eps * size).all()
            for at in (1 + 2j, -2.5 + 1j, 1.05 + 0.01j):
                slope = weft.grad(special.loggamma, holomorphic=True)(dtype(at))
                assert np.isclose(slope, scipy.special.digamma(at), rtol=1e-5)


def test_derivatives_of_zeta() -> None:
    slopes = weft.vmap(weft.grad(lambda s, q: special.zeta(s, q), (0, 1)))
    s, q = (grid.ravel() for grid in np.meshgrid([1.25, 2.0, 5.0, 30.0], [0.25, 1.0, 7.0, 200.0]))
    with mpmath.workdps(60):
        by_s = [float(mpmath.zeta(*map(mpmath.mpf, pair), 1)) for pair in zip(s, q)]
        by_q = [float(-a * mpmath.zeta(a + 1, mpmath.mpf(b))) for a, b in zip(map(mpmath.mpf, s), q)]
    for dtype, tolerance in ((np.float32, 4 * 2.0**-23), (np.float64, 2e-10)):  # mpmath's own error is 1e-10
        with weft.enable_x64(dtype == np.float64):
            found = [np.asarray(x, np.float64) for x in slopes(s.astype(dtype), q.astype(dtype))]
        normal = np.abs(by_s) > 1e-36
        np.testing.assert_allclose(found[0][normal], np.array(by_s)[normal], rtol=tolerance)
        np.testing.assert_allclose(found[1][normal], np.array(by_q)[normal], rtol=tolerance)
    assert np.isnan(weft.grad(lambda s: special.zeta(s, 1.0))(0.5))
    with pytest.raises(NotImplementedError, match=r"zeta\(x, 1.0\)"):
        special.zeta(2.0)
