"""Every distribution of weft.scipy.stats against SciPy's, over wide ranges of points and parameters."""

from __future__ import annotations

import importlib
import inspect
import pickle
import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

import weft
from weft.scipy import stats

RNG = np.random.default_rng(5)
LINE = np.concatenate(
    [RNG.uniform(-6, 6, 60), [-1e3, -40, -1, 0, 0.25, 0.5, 1, 2, 40, 1e3], 10.0 ** RNG.uniform(-9, 9, 20)]
)
UNIT = np.concatenate([RNG.uniform(0, 1, 60), [1e-9, 0.5, 1 - 1e-9]])
COUNTS = np.concatenate([np.arange(-2, 30), [0.5, 3.25, 120, 1000]])
UNITS = np.append(UNIT, LINE)
EDGES = np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])

# name: (functions, parameters, points)
CONTINUOUS: dict[str, tuple[str, list[tuple[float, ...]], np.ndarray]] = {
    "beta": ("logpdf pdf cdf logcdf sf logsf", [(2.0, 1.0), (0.5, 0.5), (30.0, 4.0), (1.0, 7.0)], UNITS),
    "cauchy": ("logpdf pdf cdf logcdf sf logsf ppf isf", [()], LINE),
    "chi2": ("logpdf pdf cdf logcdf sf logsf", [(1.0,), (2.0,), (3.5,), (40.0,)], LINE),
    "expon": ("logpdf pdf cdf logcdf sf logsf ppf", [()], LINE),
    "gamma": ("logpdf pdf cdf logcdf sf logsf", [(0.5,), (1.0,), (3.5,), (40.0,)], LINE),
    "gumbel_l": ("logpdf pdf cdf logcdf sf logsf ppf", [()], np.clip(LINE, -700, 6)),
    "gumbel_r": ("logpdf pdf cdf logcdf sf logsf ppf", [()], np.clip(LINE, -6, 700)),
    "laplace": ("logpdf pdf cdf", [()], np.clip(LINE, -80, 80)),  # SciPy takes logarithms of densities
    "logistic": ("logpdf pdf cdf sf ppf isf", [()], LINE),
    "norm": ("logpdf pdf cdf logcdf sf logsf ppf isf", [()], LINE),
    "pareto": ("logpdf pdf cdf logcdf sf logsf ppf", [(0.5,), (1.0,), (6.5,)], np.append(LINE, UNIT[:60] * 9 + 1)),
    "t": ("logpdf pdf", [(0.5,), (3.0,), (1e6,)], LINE),
    "truncnorm": (
        "logpdf pdf cdf logcdf sf logsf",
        [(-1.0, 2.0), (-np.inf, 0.5), (1.0, np.inf), (20.0, 22.0), (-30.0, -25.0)],
        np.concatenate([LINE, UNIT[:60] * 3 - 1, UNIT[:60] * 2 + 20, UNIT[:60] * 5 - 30]),
    ),
    "uniform": ("logpdf pdf cdf ppf", [()], LINE),
}  # fmt: skip
WITHOUT_LOC: dict[str, tuple[str, list[tuple[float, ...]], np.ndarray]] = {
    "gennorm": ("logpdf pdf cdf", [(0.7,), (1.0,), (2.0,), (5.0,)], np.clip(LINE, -30, 30)),
    "vonmises": ("logpdf pdf", [(0.1,), (2.0,), (300.0,)], RNG.uniform(-np.pi, np.pi, 60)),
    "wrapcauchy": ("logpdf pdf", [(0.1,), (0.9,)], np.append(RNG.uniform(0, 2 * np.pi, 60), [-1, 0, 7])),
}
DISCRETE: dict[str, tuple[str, list[tuple[float, ...]]]] = {
    "bernoulli": ("logpmf pmf", [(0.3,), (0.0,), (1.0,), (1.5,)]),
    "betabinom": ("logpmf pmf", [(20, 2.0, 3.0), (1200, 0.5, 4.0)]),
    "binom": ("logpmf pmf", [(20, 0.3), (1, 0.5), (1200, 0.9), (10, 0.0), (10, 1.0)]),
    "geom": ("logpmf pmf", [(0.3,), (1e-6,), (1.0,)]),
    "nbinom": ("logpmf pmf", [(4, 0.3), (0.5, 0.9), (1200, 0.5)]),
    "poisson": ("logpmf pmf cdf", [(0.3,), (7.0,), (900.0,)]),
}
ALL_CONTINUOUS = {**CONTINUOUS, **WITHOUT_LOC}


def cases(table: dict[str, Any]) -> list[tuple[str, str, tuple[float, ...]]]:
    return [(name, f, p) for name, entry in table.items() for f in entry[0].split() for p in entry[1]]


def ours(name: str, function: str) -> Any:
    return getattr(importlib.import_module(f"weft.scipy.stats.{name}"), function)


def theirs(name: str, function: str, *args: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(getattr(getattr(scipy.stats, name), function)(*args))


def check(name: str, function: str, points: np.ndarray, args: tuple[Any, ...], wide: bool) -> None:
    with weft.enable_x64(wide):
        dtype = np.float64 if wide else np.float32
        points = points.astype(dtype)
        given = tuple([np.asarray(p, dtype) for p in args])
        found = np.asarray(ours(name, function)(points, *given))
        assert found.dtype == dtype
        jitted = np.asarray(weft.jit(ours(name, function))(points, *given))
        np.testing.assert_array_equal(jitted, found)
        expected = theirs(name, function, points.astype(np.float64), *[p.astype(np.float64) for p in given])
    kept = np.abs(expected) > (1e-290 if wide else 1e-37)
    kept |= ~np.isfinite(expected) | (expected == 0)
    logs = function.startswith("log")
    if function in ("logsf", "logcdf") and name in ("gamma", "chi2", "beta") and not wide:
        kept &= np.abs(expected) < 86  # logarithms of what underflows are -inf, as in JAX
    tolerance = (1e-9 if wide else 3e-4) if not logs else (1e-10 if wide else 3e-5)
    absolute = (1e-11 if wide else 3e-5) if logs else (1e-300 if wide else 1e-37)
    np.testing.assert_allclose(found[kept], expected[kept], rtol=tolerance, atol=absolute)


@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
@pytest.mark.parametrize(("name", "function", "parameters"), cases(CONTINUOUS), ids=str)
def test_continuous(name: str, function: str, parameters: tuple[float, ...], wide: bool) -> None:
    points = CONTINUOUS[name][2]
    if function in ("ppf", "isf"):
        points = np.concatenate([UNIT, [-0.5, 0, 1, 1.5, np.nan]])
    check(name, function, points, parameters, wide)
    check(name, function, points[:7].reshape(7, 1), (*parameters, np.array([0.5, -1.0]), np.array([2.5, 0.25])), wide)


@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
@pytest.mark.parametrize(("name", "function", "parameters"), cases(WITHOUT_LOC), ids=str)
def test_continuous_without_loc(name: str, function: str, parameters: tuple[float, ...], wide: bool) -> None:
    check(name, function, WITHOUT_LOC[name][2], parameters, wide)


@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
@pytest.mark.parametrize(("name", "function", "parameters"), cases(DISCRETE), ids=str)
def test_discrete(name: str, function: str, parameters: tuple[float, ...], wide: bool) -> None:
    large = max(parameters) > 500  # logarithms of large gammas: their absolute error counts
    if large and not wide:
        pytest.skip("differences of logarithms near 7,000 in float32 have an absolute error of 1e-3")
    check(name, function, np.append(COUNTS, np.nan), parameters, wide)
    check(name, function, COUNTS[:20] + 2, (*parameters, 2.0), wide)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_edges(name: str) -> None:
    functions, parameters, _ = CONTINUOUS[name]
    for function in functions.split():
        if name == "uniform" and function.endswith("pdf"):  # NaN is inside for JAX, not for SciPy
            continue
        found = np.asarray(ours(name, function)(EDGES.astype(np.float32), *parameters[0]))
        np.testing.assert_allclose(found, theirs(name, function, EDGES, *parameters[0]), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("name", ALL_CONTINUOUS)
def test_gradients_and_batches(name: str) -> None:
    functions, parameters, _ = ALL_CONTINUOUS[name]
    point = {"beta": 0.3, "pareto": 1.7, "truncnorm": 0.4, "wrapcauchy": 1.3}.get(name, 0.6)
    chosen = (0.3, 0.7) if name == "pareto" else tuple(parameters[0])
    with weft.enable_x64(True):
        for function in functions.split():
            f = ours(name, function)
            x = 0.35 if function in ("ppf", "isf") else point
            fixed = chosen[:1] if name == "pareto" else chosen
            weft.test_util.check_grads(lambda x, f=f, fixed=fixed: f(x, *fixed), (x,), order=2)
            rows = np.array([x, 1.1 * x, 0.9 * x])
            mapped = weft.vmap(lambda x, f=f, fixed=fixed: f(x, *fixed))(rows)
            np.testing.assert_array_equal(np.asarray(mapped), np.asarray(f(rows, *fixed)))


@pytest.mark.parametrize("name", ["gamma", "beta", "t", "chi2"])
def test_gradients_of_parameters(name: str) -> None:
    parameters = CONTINUOUS[name][1][0]
    with weft.enable_x64(True):
        weft.test_util.check_grads(ours(name, "logpdf"), (0.4, *parameters, 0.1, 1.3), order=2)


@pytest.mark.parametrize("name", ["gamma", "beta", "expon", "pareto", "truncnorm"])
def test_gradients_outside_the_support_are_zero(name: str) -> None:
    slope = weft.grad(lambda x: ours(name, "pdf")(x, *CONTINUOUS[name][1][0]))(-3.0)
    assert float(slope) == 0.0


def test_bernoulli_and_its_quantiles() -> None:
    k = np.array([-1, 0, 0.5, 1, 2, np.nan], np.float32)
    np.testing.assert_allclose(np.asarray(stats.bernoulli.cdf(k, 0.3)), scipy.stats.bernoulli.cdf(k, 0.3), rtol=1e-6)
    q = np.array([-0.1, 0.3, 0.7, 0.8, 1, 1.1, np.nan])
    with weft.enable_x64(True):
        np.testing.assert_array_equal(np.asarray(stats.bernoulli.ppf(q, 0.3)), scipy.stats.bernoulli.ppf(q, 0.3))


def entropy_of_poisson(mu: float) -> float:
    with mpmath.workdps(30):
        m = mpmath.mpf(mu)
        low, high = max(0, int(mu - 15 * mu**0.5 - 40)), int(mu + 15 * mu**0.5 + 60)
        total = mpmath.mpf(0)
        for k in range(low, high):
            log = k * mpmath.log(m) - m - mpmath.loggamma(k + 1)
            total -= mpmath.exp(log) * log
        return float(total)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.5, 1.0, 7.5, 60.0, 99.9, 100.1, 150.0, 2500.0])
def test_entropy_of_poisson(mu: float) -> None:
    assert float(stats.poisson.entropy(mu)) == pytest.approx(entropy_of_poisson(mu), rel=2e-5)
    with weft.enable_x64(True):
        assert float(stats.poisson.entropy(mu)) == pytest.approx(entropy_of_poisson(mu), rel=2e-12)


def test_entropy_of_poisson_at_the_edges() -> None:
    found = np.asarray(stats.poisson.entropy(np.array([0.0, -1.0, np.inf, np.nan], np.float32)))
    np.testing.assert_array_equal(found, [0, np.nan, np.inf, np.nan])


def test_dirichlet() -> None:
    alpha = np.array([1.5, 2.0, 0.7])
    with weft.enable_x64(True):
        for shape in ((), (4,)):
            x = np.moveaxis(RNG.dirichlet([2, 2, 2], shape), -1, 0)
            expected = scipy.stats.dirichlet.logpdf(x, alpha)
            np.testing.assert_allclose(np.asarray(stats.dirichlet.logpdf(x, alpha)), expected, rtol=1e-12)
            np.testing.assert_allclose(np.asarray(stats.dirichlet.logpdf(x[:2], alpha)), expected, rtol=1e-12)
            np.testing.assert_allclose(np.asarray(stats.dirichlet.pdf(x, alpha)), np.exp(expected), rtol=1e-12)
    assert stats.dirichlet.logpdf(np.float32([0.2, 0.9, 0.1]), alpha).item() == -np.inf
    with pytest.raises(ValueError, match="must be one-dimensional"):
        stats.dirichlet.logpdf(np.float32([0.2, 0.8]), np.ones((1, 2)))
    with pytest.raises(ValueError, match="one entry fewer"):
        stats.dirichlet.logpdf(np.ones(4), np.ones(2))


def test_multinomial() -> None:
    x, p = np.array([[1, 2, 1], [0, 4, 0], [1, 1, 1]]), np.array([0.2, 0.5, 0.3])
    with weft.enable_x64(True):
        found = stats.multinomial.logpmf(x, 4, p)
        np.testing.assert_allclose(np.asarray(found), scipy.stats.multinomial.logpmf(x, 4, p), rtol=1e-12)
        found = stats.multinomial.pmf(x, np.array([4, 4, 3]), p)
        np.testing.assert_allclose(np.asarray(found), scipy.stats.multinomial.pmf(x, [4, 4, 3], p), rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (4,), (2, 4)])
def test_multivariate_normal(shape: tuple[int, ...]) -> None:
    root = RNG.normal(size=(3, 3))
    cov, mean = root @ root.T + np.eye(3), RNG.normal(size=3)
    x = RNG.normal(size=(*shape, 3))
    with weft.enable_x64(True):
        for spread in (cov, 2.5):
            found = stats.multivariate_normal.logpdf(x, mean, spread)
            want = scipy.stats.multivariate_normal.logpdf(x, mean, spread)
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-11)
            np.testing.assert_allclose(
                np.asarray(stats.multivariate_normal.pdf(x, mean, spread)), np.exp(want), rtol=1e-11
            )
        weft.test_util.check_grads(stats.multivariate_normal.logpdf, (x, mean, cov), order=1)
        several = np.stack([cov, 2 * cov, cov, cov])
        if shape == (4,):
            found = stats.multivariate_normal.logpdf(x, mean, several)
            want = [scipy.stats.multivariate_normal.logpdf(a, mean, c) for a, c in zip(x, several, strict=True)]
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-11)
    assert float(stats.multivariate_normal.logpdf(0.5, 0.25, 2.0)) == pytest.approx(
        scipy.stats.multivariate_normal.logpdf(0.5, 0.25, 2.0), rel=1e-6
    )
    with pytest.raises(ValueError, match="incompatible shapes"):
        stats.multivariate_normal.logpdf(x, mean, np.eye(2))
    with pytest.raises(NotImplementedError, match="allow_singular"):
        stats.multivariate_normal.logpdf(x, mean, cov, allow_singular=True)


SAMPLES = [RNG.integers(0, 4, shape) for shape in ((9,), (4, 6), (2, 3, 5))]


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mode(axis: int | None, keepdims: bool) -> None:
    for x in (*SAMPLES, SAMPLES[1].astype(np.float32) / 3):
        found, expected = stats.mode(x, axis, keepdims=keepdims), scipy.stats.mode(x, axis, keepdims=keepdims)
        np.testing.assert_array_equal(np.asarray(found.mode), expected.mode)
        np.testing.assert_array_equal(np.asarray(found.count), expected.count)
    jitted = weft.jit(lambda x: tuple(stats.mode(x, axis, keepdims=keepdims)))(SAMPLES[1])
    np.testing.assert_array_equal(np.asarray(jitted[0]), scipy.stats.mode(SAMPLES[1], axis, keepdims=keepdims).mode)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_rankdata(method: str, axis: int | None) -> None:
    for x in (*SAMPLES, RNG.normal(size=(3, 4)).astype(np.float32), np.array([[1.0, np.nan, 3], [1, 2, 2]])):
        found = stats.rankdata(x, method, axis=axis)
        expected = scipy.stats.rankdata(x, method, axis=axis)
        np.testing.assert_array_equal(np.asarray(found), expected.ravel() if axis is None else expected)


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("ddof", [0, 1])
def test_sem(axis: int | None, ddof: int) -> None:
    for x in SAMPLES:
        np.testing.assert_allclose(np.asarray(stats.sem(x, axis, ddof)), scipy.stats.sem(x, axis, ddof), rtol=1e-5)
        found = stats.sem(x, axis, ddof, keepdims=True)
        assert found.shape == scipy.stats.sem(x, axis, ddof, keepdims=True).shape
    x = np.array([[1.0, np.nan, 3, 2], [1, 2, 2, np.nan]])
    found = stats.sem(x, axis, ddof, "omit")
    kept = np.isfinite(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a single value has no standard deviation
        expected = np.nanstd(x, axis=axis, ddof=ddof) / np.sqrt(kept.sum(axis=axis))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["expon.pdf", "norm.sf", "chi2.cdf", "gamma.logcdf", "geom.pmf", "cauchy.isf"])
def test_functions_are_found_by_name_and_take_keywords(name: str) -> None:
    function = ours(*name.split("."))
    assert (function.__module__, function.__qualname__) == tuple(f"weft.scipy.stats.{name}".rsplit(".", 1))
    assert pickle.loads(pickle.dumps(function)) is function
    assert ">>> round(" in function.__doc__
    names = list(inspect.signature(function).parameters)
    values = dict(zip(names, (0.5, *[2.0] * (len(names) - 1)), strict=True))
    assert names[0] == ("q" if name.endswith("isf") else "k" if name == "geom.pmf" else "x")
    assert float(function(**values)) == pytest.approx(theirs(*name.split("."), *values.values()), rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: stats.mode(np.ones(3), nan_policy="foo"), ValueError, "Illegal nan_policy"),
        (lambda: stats.mode(np.ones(3), nan_policy="omit"), NotImplementedError, "omit is not implemented"),
        (lambda: stats.mode([1, 2]), TypeError, "requires ndarray"),
        (lambda: stats.mode(np.ones(3), axis=2), ValueError, "out of bounds"),
        (lambda: stats.rankdata(np.ones(3), "foo"), ValueError, "unknown method 'foo'"),
        (lambda: stats.rankdata([1, 2]), TypeError, "requires ndarray"),
        (lambda: stats.sem(np.ones(3), nan_policy="raise"), ValueError, "raise is not supported"),
        (lambda: stats.sem([1, 2]), TypeError, "requires ndarray"),
        (lambda: stats.gamma.pdf([1.0], 2.0), TypeError, "gamma.pdf requires ndarray"),
        (lambda: stats.chi2.logsf(1.0), TypeError, r"missing 1 required positional argument: 'df'"),
        (lambda: stats.norm.sf(1.0, mean=2.0), TypeError, "unexpected keyword argument 'mean'"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
