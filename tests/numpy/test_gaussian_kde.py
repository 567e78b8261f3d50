"""scipy.stats.gaussian_kde against SciPy's; as a pytree, resampled, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import weft
from weft import random
from weft.scipy import stats

RNG = np.random.default_rng(0)
LINE, PLANE = RNG.normal(size=40), RNG.normal(size=(2, 40))
WEIGHTS = RNG.uniform(0.1, 1, 40)


@pytest.mark.parametrize("method", [None, "scott", "silverman", 0.4, lambda kde: 0.3])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("data", [LINE, PLANE], ids=["line", "plane"])
def test_densities_and_integrals(method: Any, weights: Any, data: np.ndarray) -> None:
    with weft.enable_x64(True):
        ours, theirs = stats.gaussian_kde(data, method, weights), scipy.stats.gaussian_kde(data, method, weights)
        points = RNG.normal(size=(*data.shape[:-1], 7))
        np.testing.assert_allclose(np.asarray(ours(points)), theirs(points), rtol=1e-10)
        np.testing.assert_allclose(np.asarray(ours.logpdf(points)), theirs.logpdf(points), rtol=1e-9)
        np.testing.assert_allclose(
            np.asarray(weft.jit(lambda k, x: k.pdf(x))(ours, points)), theirs.pdf(points), rtol=1e-10
        )
        mean, cov = np.ones(ours.d), np.eye(ours.d) * 0.7
        assert float(ours.integrate_gaussian(mean, cov)) == pytest.approx(
            theirs.integrate_gaussian(mean, cov), rel=1e-10
        )
        other, scipy_other = stats.gaussian_kde(2 * data), scipy.stats.gaussian_kde(2 * data)
        assert float(ours.integrate_kde(other)) == pytest.approx(theirs.integrate_kde(scipy_other), rel=1e-10)
        if ours.d == 1:
            assert float(ours.integrate_box_1d(-0.3, 1.2)) == pytest.approx(
                theirs.integrate_box_1d(-0.3, 1.2), rel=1e-10
            )
        np.testing.assert_allclose(np.asarray(ours.inv_cov), np.linalg.inv(theirs.covariance), rtol=1e-10)
        weft.test_util.check_grads(lambda x: ours.logpdf(x), (points,), order=1)


def test_resampled_points_have_the_moments_of_the_density() -> None:
    kde = stats.gaussian_kde(PLANE.astype(np.float32))
    drawn = np.asarray(kde.resample(random.key(0), (4000,)))
    assert drawn.shape == (2, 4000) and kde.resample(random.key(1)).shape == (2,)
    np.testing.assert_allclose(drawn.mean(axis=1), PLANE.mean(axis=1), atol=0.1)
    np.testing.assert_allclose(np.cov(drawn), np.cov(PLANE, bias=True) + np.asarray(kde.covariance), atol=0.12)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: stats.gaussian_kde(PLANE, "foo"), ValueError, "bw_method"),
        (lambda: stats.gaussian_kde(np.ones(1)), ValueError, "multiple elements"),
        (lambda: stats.gaussian_kde(np.ones((2, 2, 2))), ValueError, "one or two dimensions"),
        (lambda: stats.gaussian_kde(PLANE + 1j), NotImplementedError, "complex"),
        (lambda: stats.gaussian_kde(PLANE, weights=np.ones(3)), ValueError, "length n"),
        (lambda: stats.gaussian_kde(PLANE, weights=np.ones((2, 3))), ValueError, "one-dimensional"),
        (lambda: stats.gaussian_kde(PLANE)(np.ones((3, 2))), ValueError, "points have dimension 3"),
        (lambda: stats.gaussian_kde(PLANE).integrate_box_1d(0, 1), ValueError, "only handles 1D"),
        (lambda: stats.gaussian_kde(PLANE).integrate_box(0, 1), NotImplementedError, "integrate_box_1d"),
        (lambda: stats.gaussian_kde(PLANE).set_bandwidth(), NotImplementedError, "bandwidth"),
        (lambda: stats.gaussian_kde(PLANE).integrate_kde(stats.gaussian_kde(LINE)), ValueError, "same dimensionality"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
