"""weft.scipy.stats against SciPy, the normal and uniform distributions: their gradients against differences."""

from __future__ import annotations

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
