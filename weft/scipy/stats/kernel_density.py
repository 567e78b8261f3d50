"""gaussian_kde: a density estimated from a sample, a normal distribution around each of its points.

gaussian_kde(f32[2,100])(f32[2,4])  ->  logsumexp over the sample of -|L^-1 (point - sample)|**2 / 2 + log weight
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtypes, random, tree_util
from weft import numpy as wnp
from weft import operations as lax
from weft.numpy import promotion
from weft.scipy import linalg, special

_METHODS = "`bw_method` should be 'scott', 'silverman', a scalar, or a callable."


class gaussian_kde:
    """The density of the points ``dataset``, ``[d, n]`` or a vector, smoothed by normal distributions.

    ``bw_method`` says how wide they are, in units of the sample's own spread: "scott" (None), "silverman", a number, or
    a function of this object; ``weights`` is a vector of n. A pytree of its arrays: ``neff``, ``dataset``, ``weights``,
    ``covariance``, ``inv_cov``. NotImplementedError for complex data, ValueError for what does not fit.

    >>> gaussian_kde(np.float32([0, 1, 2]))(np.float32([1])).shape
    (1,)
    """

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        promotion.check_arraylike("gaussian_kde", dataset)
        data = wnp.atleast_2d(dataset)
        if dtypes.issubdtype(promotion.dtype_of(data), np.complexfloating):
            raise NotImplementedError("gaussian_kde does not support complex data")
        if len(promotion.shape_of(data)) != 2:
            raise ValueError(f"[gaussian_kde] dataset has one or two dimensions, got {promotion.shape_of(data)}")
        if promotion.shape_of(data)[1] <= 1:
            raise ValueError("`dataset` input should have multiple elements.")
        (data,) = promotion.promote_dtypes_inexact(data)
        count = promotion.shape_of(data)[1]
        if weights is None:
            weights = wnp.full(count, 1 / count, promotion.dtype_of(data))
        else:
            promotion.check_arraylike("gaussian_kde", weights)
            if len(promotion.shape_of(weights)) != 1:
                raise ValueError("`weights` input should be one-dimensional.")
            if promotion.shape_of(weights)[0] != count:
                raise ValueError("`weights` input should be of length n")
            data, weights = promotion.promote_dtypes_inexact(data, weights)
            weights = weights / wnp.sum(weights)
        self.dataset, self.weights = wnp.asarray(data), weights
        self.neff = 1 / wnp.sum(wnp.square(weights))
        spread = wnp.atleast_2d(wnp.cov(self.dataset, rowvar=True, bias=False, aweights=self.weights))
        factor = wnp.square(self._factor(bw_method))
        self.covariance = spread * factor
        self.inv_cov = wnp.linalg.inv(spread) / factor

    def _factor(self, method: Any) -> Any:
        """How wide the kernels are, in units of the sample's spread."""
        exponent = -1.0 / (self.d + 4)
        if method is None or (isinstance(method, str) and method == "scott"):
            return self.neff**exponent
        if isinstance(method, str) and method == "silverman":
            return (self.neff * (self.d + 2) / 4.0) ** exponent
        if callable(method):
            return method(self)
        if isinstance(method, str) or wnp.ndim(method) != 0:
            raise ValueError(_METHODS)
        return method

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return promotion.shape_of(self.dataset)[0]

    @property
    def n(self) -> int:
        """The number of points."""
        return promotion.shape_of(self.dataset)[1]

    def _points(self, points: Any) -> Any:
        """Points as ``[d, m]`` in the dtype of the sample's."""
        promotion.check_arraylike("gaussian_kde", points)
        found = wnp.atleast_2d(points)
        rows, count = promotion.shape_of(found)
        if rows != self.d:
            if rows == 1 and count == self.d:
                found = wnp.reshape(found, (self.d, 1))
            else:
                raise ValueError(f"points have dimension {rows}, dataset has dimension {self.d}")
        return promotion.promote_dtypes_inexact(found, self.dataset)[0]

    def evaluate(self, points: Any) -> Any:
        """The density at ``points``, ``[d, m]``: a vector of m."""
        return wnp.exp(self.logpdf(points))

    __call__ = evaluate
    pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        """Logarithm of the density at points ``[d, m]``: a vector of m."""
        return special.logsumexp(
            _log_kernels(self.dataset, self._points(x), self.covariance), b=self.weights[:, None], axis=0
        )

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times that of a normal distribution."""
        mean, cov = wnp.atleast_1d(wnp.squeeze(wnp.asarray(mean))), wnp.atleast_2d(cov)
        if promotion.shape_of(mean) != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if promotion.shape_of(cov) != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        logs = _log_kernels(self.dataset, self._points(mean[:, None]), self.covariance + cov)
        return wnp.exp(special.logsumexp(logs[:, 0], b=self.weights))

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The probability between two positions, of one dimension; ValueError for more."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if wnp.ndim(low) != 0 or wnp.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        spread = wnp.squeeze(wnp.sqrt(self.covariance))
        at = lambda position: special.ndtr(wnp.squeeze(position - self.dataset, 0) / spread)  # noqa: E731 - twice below
        return wnp.sum(self.weights * (at(high) - at(low)))

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product of two estimated densities."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        logs = _log_kernels(self.dataset, self._points(other.dataset), self.covariance + other.covariance)
        return wnp.exp(special.logsumexp(logs, b=self.weights[:, None] * other.weights[None, :]))

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Points drawn from the density: ``[d, *shape]``."""
        which, noise = random.split(key)
        chosen = random.choice(which, self.n, shape=shape, replace=True, p=self.weights)
        eps = random.multivariate_normal(
            noise, wnp.zeros(self.d, self.covariance.dtype), self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, chosen] + wnp.moveaxis(eps, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Not there: NotImplementedError names ``integrate_box_1d``."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Any = None) -> Any:
        """Not there: NotImplementedError; make another object."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")


def _log_kernels(sample: Any, points: Any, covariance: Any) -> Any:
    """Logarithms of normal densities, a row for each point of the sample, a column for each position."""
    factor = wnp.linalg.cholesky(covariance)
    left = linalg.solve_triangular(factor, sample, lower=True)
    right = linalg.solve_triangular(factor, points, lower=True)
    squares = wnp.sum(wnp.square(left[:, :, None] - right[:, None, :]), axis=0)
    count = promotion.shape_of(sample)[0]
    scale = wnp.sum(wnp.log(wnp.diagonal(factor))) + count / 2 * math.log(2 * math.pi)
    return lax.sub(-squares / 2, wnp.broadcast_to(scale, promotion.shape_of(squares)))


_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


def _flatten(estimate: gaussian_kde) -> tuple[tuple[Any, ...], None]:
    return tuple([getattr(estimate, name) for name in _FIELDS]), None


def _unflatten(_: None, children: Any) -> gaussian_kde:
    made = object.__new__(gaussian_kde)
    for name, value in zip(_FIELDS, children, strict=True):
        setattr(made, name, value)
    return made


tree_util.register_pytree_node(gaussian_kde, _flatten, _unflatten)
