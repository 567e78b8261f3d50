"""Every distribution against SciPy's beside its parameters' domain, and at the edges of its support and beyond."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats

import weft
from weft.scipy import stats

X = np.array([-np.inf, -2, -1, -0.5, 0, 0.25, 0.5, 1, 1.5, 2, 3, 7, np.inf, np.nan])
Q = np.array([-0.1, 0, 0.3, 1, 1.1, np.nan])
K = np.array([-np.inf, -1, 0, 0.5, 1, 2, 3, 4, 5, np.inf, np.nan])
LEVELS = [-1, 0, 0.5, 1, 2, 2.5, 4, np.nan]
SHARES = [-0.5, 0, 0.3, 1, 1.5, np.nan]
COUNTS = [-1, 0, 4, 2.5]
SCALED = [(0, 1), (0.5, 2), (0, 0), (0, -1), (0, np.nan), (np.nan, 1)]
ENDS = [(-1, 2), (2, -1), (1, 1), (np.nan, 1), (-np.inf, 1), (0, np.inf)]

SHAPES: dict[str, list[tuple[float, ...]]] = {
    "beta": list(itertools.product([-1, 0, 1, 2, 0.5, np.nan], [-1, 1, 0.5, 3])),
    **{name: [(p,) for p in LEVELS] for name in ("gamma", "chi2", "pareto", "t", "gennorm", "vonmises")},
    **{name: [()] for name in ["cauchy", "expon", "gumbel_l", "gumbel_r", "laplace", "logistic", "norm", "uniform"]},
    "truncnorm": ENDS,
    "wrapcauchy": [(p,) for p in (-0.5, 0, 0.5, 1, 1.5, np.nan)],
    **{name: [(p,) for p in SHARES] for name in ("bernoulli", "geom")},
    **{name: list(itertools.product(COUNTS, SHARES)) for name in ("binom", "nbinom")},
    "poisson": [(-1,), (0,), (2.5,), (np.nan,)],
    "betabinom": list(itertools.product(COUNTS, [-1, 0, 2.0], [1.0, -1])),
}
DISCRETE = ("bernoulli", "geom", "binom", "nbinom", "poisson", "betabinom")
WITHOUT_SCALE = ("gennorm", "vonmises", "wrapcauchy")
FUNCTIONS = ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "logpmf", "pmf"]
# SciPy gives NaN where a count or a gamma value is infinite, though the density tends to 0
TENDS_TO_ZERO = ("gamma", "chi2", "nbinom", "poisson")


@pytest.mark.parametrize("name", SHAPES)
def test_every_function_beside_its_domain(name: str) -> None:
    module = importlib.import_module(f"weft.scipy.stats.{name}")
    is_plain = name in DISCRETE or name in WITHOUT_SCALE
    rows = [(*shape, *end) for shape in SHAPES[name] for end in ([()] if is_plain else SCALED)]
    parameters = [np.array(column, np.float64) for column in zip(*rows, strict=True)]
    for function in FUNCTIONS:
        ours = getattr(module, function, None)
        if ours is None:
            continue
        points = Q if function in ("ppf", "isf") else K if name in DISCRETE else X
        if (name, function) == ("bernoulli", "ppf"):
            points = points[~np.isin(points, [0, 1])]  # SciPy's -1 for 0 is JAX's 0
        with np.errstate(all="ignore"):
            expected = getattr(getattr(scipy.stats, name), function)(points[:, None], *parameters)
            known = getattr(getattr(scipy.stats, name), function)(1.0, *parameters)
        if name in TENDS_TO_ZERO and function in ("logpdf", "pdf", "logpmf", "pmf"):
            least = -np.inf if function.startswith("log") else 0.0
            expected[points == np.inf] = np.where(np.isnan(known), np.nan, least)
        with weft.enable_x64(True):
            found = np.asarray(ours(points[:, None], *parameters))
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12, err_msg=function)


def slope(f: Any, *args: float, by: int = 0) -> float:
    with weft.enable_x64(True):
        return float(weft.grad(f, by)(*args))


EDGE_SLOPES: list[tuple[Any, tuple[float, ...], int, float]] = [
    (stats.chi2.logpdf, (0.0, 2.0), 0, -0.5),
    (stats.chi2.pdf, (0.0, 2.0), 0, -0.25),
    (stats.chi2.pdf, (0.0, 4.0), 0, 0.25),
    (stats.chi2.pdf, (0.0, 6.0), 0, 0.0),
    (stats.gamma.logpdf, (0.0, 1.0), 0, -1.0),
    (stats.gamma.pdf, (0.0, 2.0), 0, 1.0),
    (stats.gamma.pdf, (0.0, 3.0), 0, 0.0),
    (stats.beta.logpdf, (0.0, 1.0, 3.0), 0, -2.0),
    (stats.beta.logpdf, (1.0, 3.0, 1.0), 0, 2.0),
    (stats.beta.pdf, (0.0, 2.0, 1.0), 0, 2.0),
    (stats.beta.pdf, (1.0, 1.0, 2.0), 0, -2.0),
    (stats.beta.pdf, (0.0, 1.0, 1.0), 0, 0.0),
    (stats.binom.logpmf, (0.0, 3.0, 0.0), 2, -3.0),
    (stats.binom.logpmf, (3.0, 3.0, 1.0), 2, 3.0),
    (stats.binom.pmf, (1.0, 3.0, 0.0), 2, 3.0),
    (stats.binom.pmf, (2.0, 3.0, 0.0), 2, 0.0),
    (stats.binom.pmf, (2.0, 3.0, 1.0), 2, -3.0),
    (stats.nbinom.logpmf, (0.0, 3.0, 1.0), 2, 3.0),
    (stats.nbinom.pmf, (1.0, 3.0, 1.0), 2, -3.0),
    (stats.geom.logpmf, (1.0, 1.0), 1, 1.0),
    (stats.geom.pmf, (2.0, 1.0), 1, -1.0),
    (stats.poisson.logpmf, (0.0, 0.0), 1, -1.0),
    (stats.poisson.pmf, (1.0, 0.0), 1, 1.0),
    (stats.bernoulli.pmf, (1.0, 0.0), 1, 1.0),
    (stats.bernoulli.logpmf, (0.0, 0.0), 1, -1.0),
    (stats.expon.logpdf, (0.0,), 0, -1.0),
]


@pytest.mark.parametrize("number", range(len(EDGE_SLOPES)))
def test_slopes_at_the_edge(number: int) -> None:
    f, args, by, expected = EDGE_SLOPES[number]
    assert slope(f, *args, by=by) == pytest.approx(expected, abs=1e-12)


def test_shares_and_classes_of_probability_zero() -> None:
    with weft.enable_x64(True):
        alpha, x = np.array([1.0, 2.0, 1.0]), np.array([0.0, 0.4, 0.6])
        assert stats.dirichlet.logpdf(x, alpha).item() == pytest.approx(scipy.stats.dirichlet.logpdf(x, alpha))
        gradient = weft.grad(stats.dirichlet.logpdf)(x, alpha)
        np.testing.assert_allclose(gradient, [0, 1 / 0.4, 0], rtol=1e-12)
        gradient = weft.grad(stats.dirichlet.pdf)(np.array([0.0, 1.0]), np.array([2.0, 1.0]))
        np.testing.assert_allclose(gradient, [2, 0], rtol=1e-12)
        assert np.isnan(stats.dirichlet.logpdf(x, np.array([1.0, -2, 1])).item())
        p = np.array([0.0, 0.3, 0.7])
        for counts in ([0, 2, 1], [1, 1, 1]):
            found = stats.multinomial.logpmf(np.array(counts), 3, p).item()
            assert found == pytest.approx(scipy.stats.multinomial.logpmf(counts, 3, p))
        gradient = weft.grad(lambda p: stats.multinomial.logpmf(np.array([0, 2, 1]), 3, p))(p)
        np.testing.assert_allclose(gradient, [0, 2 / 0.3, 1 / 0.7], rtol=1e-12)
        assert np.isnan(stats.multinomial.logpmf(np.array([1, 2]), 3, np.array([-0.5, 1.5])).item())
