"""weft.scipy.stats against SciPy, the normal and uniform distributions: their gradients against differences."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.scipy.special
import jax.scipy.stats
import numpy as np
import pytest
import scipy.stats

import weft
from weft.scipy import stats

X = np.array([-40, -3, -0.5, -0.0, 0.25, 1, 2, 30, np.nan, np.inf, -np.inf], np.float32)
Q = np.array([-0.5, 0, 1e-6, 0.3, 0.5, 0.999, 1, 1.5, np.nan], np.float32)
CASES = [("norm", name) for name in ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")]
CASES += [("uniform", name) for name in ("logpdf", "pdf", "cdf", "ppf")]


@pytest.mark.parametrize(("module", "name"), CASES)
@pytest.mark.parametrize("parameters", [(), (0.5,), (-1.0, 2.5), (np.array([[0.0], [1.0]], np.float32), 2)], ids=str)
def test_values_are_those_of_scipy(module: str, name: str, parameters: tuple[object, ...]) -> None:
    points = Q if name in ("ppf", "isf") else X
    if module == "uniform" and name.endswith("pdf"):  # NaN is inside for JAX, not for SciPy
        points = points[~np.isnan(points)]
    function = getattr(getattr(stats, module), name)
    found = function(points, *parameters)
    wide = [np.asarray(p, np.float64) for p in (points, *parameters)]
    with np.errstate(all="ignore"):
        expected = getattr(getattr(scipy.stats, module), name)(*wide)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-5, atol=1e-30)
    np.testing.assert_array_equal(np.asarray(weft.jit(function)(points, *parameters)), np.asarray(found))


@pytest.mark.parametrize("name", ["logpdf", "pdf", "cdf", "logcdf", "sf", "logsf"])
def test_gradients_of_the_normal_distribution_are_differences(name: str) -> None:
    with weft.enable_x64(True):
        x, loc, scale = weft.numpy.array([-1.5, 0.2, 3.0]), 0.3, 1.7
        weft.test_util.check_grads(getattr(stats.norm, name), (x, loc, scale), order=2)
        mapped = weft.vmap(getattr(stats.norm, name), in_axes=(0, None, None))(x, loc, scale)
        np.testing.assert_array_equal(np.asarray(mapped), np.asarray(getattr(stats.norm, name)(x, loc, scale)))


def test_the_uniform_density_at_nan_is_nan_as_in_scipy() -> None:
    assert np.isnan(stats.uniform.pdf(np.nan, 0.0, 4.0)) and np.isnan(scipy.stats.uniform.pdf(np.nan, 0.0, 4.0))


def test_bfloat16_stays_and_numbers_may_be_python_numbers_in_a_program() -> None:
    x = weft.numpy.array([0.25, 0.5], "bfloat16")
    for f, wanted in (
        (lambda: stats.cauchy.logpdf(x), scipy.stats.cauchy.logpdf([0.25, 0.5])),
        (lambda: stats.gennorm.logpdf(x, 0.5), scipy.stats.gennorm.logpdf([0.25, 0.5], 0.5)),
        (lambda: stats.t.logpdf(x, 3), scipy.stats.t.logpdf([0.25, 0.5], 3)),
        (lambda: stats.gamma.logpdf(x, 2, scale=2.0), scipy.stats.gamma.logpdf([0.25, 0.5], 2, scale=2)),
    ):
        for found in (f(), weft.jit(f)()):
            assert found.dtype == x.dtype
            np.testing.assert_allclose(np.asarray(found, float), wanted, rtol=0.03)
    np.testing.assert_allclose(weft.jit(lambda: stats.poisson.entropy(2))(), scipy.stats.poisson.entropy(2), rtol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["betaln", "comb", "factorial", "kl_div", "rel_entr", "binom.logpmf"])
def test_functions_of_numbers_alone_are_weakly_typed_as_in_jax(name: str) -> None:
    def types(library: Any) -> list[tuple[bool, Any]]:
        module = library.scipy.stats if "." in name else library.scipy.special
        function = operator.attrgetter(name)(module)
        rest = {"factorial": (), "binom.logpmf": (5, 0.3)}.get(name, (1,))
        given = (1, library.numpy.array([1, 2]), library.numpy.ones(2))
        found = [function(first, *rest) for first in given]
        return [(x.weak_type, x.dtype) for x in found]

    assert types(weft) == types(jax)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_modes_along_an_axis_have_the_shapes_of_scipy(axis: int | None, keepdims: bool) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 5, 4))
    found, expected = stats.mode(x, axis=axis, keepdims=keepdims), scipy.stats.mode(x, axis=axis, keepdims=keepdims)
    for ours, scipys in zip(found, expected, strict=True):
        assert ours.shape == scipys.shape
        np.testing.assert_array_equal(np.asarray(ours), scipys)
