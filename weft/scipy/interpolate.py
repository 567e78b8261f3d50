"""weft.scipy.interpolate.RegularGridInterpolator: values on a grid, read between its points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base import unbuilt as _unbuilt
from weft.numpy import promotion

__getattr__ = _unbuilt.fallback("weft.scipy.interpolate")


class RegularGridInterpolator:
    """A function of points from values on the grid of ``points``, a vector of ascending coordinates for each dimension.

    ``values`` has the extents of the grid first. ``method`` is "linear" or "nearest". Outside of the grid the
    result is ``fill_value`` (NaN), or with None what the nearest cell continues to. ValueError for grids that do not
    fit, NotImplementedError for ``bounds_error``.

    >>> f = RegularGridInterpolator((np.float32([0, 1]),), np.float32([0, 10]))
    >>> f(np.float32([[0.25], [2.0]])).tolist()
    [2.5, nan]
    """

    def __init__(
        self, points: Sequence[Any], values: Any, method: str = "linear", bounds_error: bool = False,
        fill_value: Any = np.nan,
    ) -> None:  # fmt: skip
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT: use fill_value")
        _check_method(method)
        promotion.check_arraylike("RegularGridInterpolator", values, *points)
        (self.values,) = promotion.promote_dtypes_inexact(wnp.asarray(values))
        shape = promotion.shape_of(self.values)
        if len(points) > len(shape):
            raise ValueError(f"there are {len(points)} point arrays, but values has {len(shape)} dimensions")
        self.grid = tuple([wnp.asarray(p) for p in points])
        for i, knots in enumerate(self.grid):
            if len(promotion.shape_of(knots)) != 1:
                raise ValueError(f"the points in dimension {i} must be 1-dimensional")
            if promotion.shape_of(knots)[0] != shape[i]:
                raise ValueError(
                    f"there are {promotion.shape_of(knots)[0]} points and {shape[i]} values in dimension {i}"
                )
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at the points ``xi``: ``[..., d]``, or a tuple of d arrays that are broadcast."""
        method = self.method if method is None else method
        _check_method(method)
        count = len(self.grid)
        if isinstance(xi, tuple):
            xi = wnp.stack(wnp.broadcast_arrays(*xi), axis=-1)
        promotion.check_arraylike("RegularGridInterpolator", xi)
        xi = wnp.asarray(xi)
        if len(promotion.shape_of(xi)) == 1 and count == 1:
            xi = wnp.expand_dims(xi, -1)
        shape = promotion.shape_of(xi)
        if not shape or shape[-1] != count:
            raise ValueError(
                f"the requested sample points xi have dimension {shape[-1] if shape else 0}, but this "
                f"RegularGridInterpolator has dimension {count}"
            )
        (xi,) = promotion.promote_dtypes_inexact(xi)
        cells = [self._cell(xi[..., i], self.grid[i]) for i in range(count)]
        found = self._nearest(cells) if method == "nearest" else self._linear(cells)
        if self.fill_value is None:
            return found
        outside = wnp.zeros(shape[:-1], np.bool_)
        for i, knots in enumerate(self.grid):
            outside = outside | (xi[..., i] < knots[0]) | (xi[..., i] > knots[-1])
        more = (1,) * (len(promotion.shape_of(found)) - len(shape) + 1)
        return wnp.where(wnp.reshape(outside, shape[:-1] + more), self.fill_value, found)

    @staticmethod
    def _cell(x: Any, knots: Any) -> tuple[Any, Any]:
        """The interval between ``knots`` that ``x`` lies in, and how far along it."""
        last = promotion.shape_of(knots)[0] - 2
        if last < 0:
            return wnp.zeros(promotion.shape_of(x), np.int32), wnp.zeros_like(x)
        index = wnp.clip(wnp.searchsorted(knots, x, side="right") - 1, 0, last)
        low, high = knots[index], knots[index + 1]
        return index, (x - low) / wnp.where(high == low, 1, high - low)

    def _linear(self, cells: list[tuple[Any, Any]]) -> Any:
        total: Any = 0
        rank = len(promotion.shape_of(self.values)) - len(cells)
        for corner in itertools.product((0, 1), repeat=len(cells)):
            if any(c and promotion.shape_of(knots)[0] < 2 for c, knots in zip(corner, self.grid, strict=True)):
                continue
            weight: Any = 1
            for c, (_, share) in zip(corner, cells, strict=True):
                weight = weight * (share if c else 1 - share)
            value = self.values[tuple([index + c for c, (index, _) in zip(corner, cells, strict=True)])]
            total = total + value * wnp.reshape(weight, promotion.shape_of(weight) + (1,) * rank)
        return total

    def _nearest(self, cells: list[tuple[Any, Any]]) -> Any:
        return self.values[tuple([wnp.where(share <= 0.5, index, index + 1) for index, share in cells])]


def _check_method(method: str) -> None:
    if method not in ("linear", "nearest"):
        raise ValueError(f"method {method!r} is not defined: choose 'linear' or 'nearest'")
