"""Grids and rows by subscript: ``mgrid``, ``ogrid``, ``r_`` and ``c_``.

mgrid[0:2, 0:3]     two arrays i32[2,3] in one, of row and column numbers
r_[1:4, 0, x]       the pieces joined along the first axis
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.numpy import axes, creation, even_spacing, joining, promotion, rearrange


def _vector(part: slice) -> Any:
    """The values of a slice: a range, or with an imaginary step that many evenly spaced values."""
    start = 0 if part.start is None else part.start
    if isinstance(part.step, complex):
        return even_spacing.linspace(start, part.stop, int(abs(part.step)))
    return creation.arange(start, part.stop, part.step if part.step is not None else 1)


class _Grid:
    """``mgrid`` (dense) or ``ogrid`` (open)."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _vector(key)
        vectors = promotion.promote_dtypes(*(_vector(part) for part in key))
        grid = creation.meshgrid(*vectors, indexing="ij", sparse=self.sparse)
        return grid if self.sparse else joining.stack(grid)


class _Rows:
    """``r_`` or ``c_``: pieces joined along an axis."""

    def __init__(self, name: str, axis: int, least_rank: int) -> None:
        self.name, self.axis, self.least_rank = name, axis, least_rank

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, str) for part in parts):
            raise NotImplementedError(f"weft.numpy.{self.name} with a directive string is not implemented yet")
        pieces = [self._piece(part) for part in parts]
        return joining.concatenate(pieces, axes.canonical_axis(self.axis, max(map(np.ndim, pieces), default=1)))

    def _piece(self, part: Any) -> Any:
        own = _vector(part) if isinstance(part, slice) else creation.asarray(part)
        piece = creation.array(own, copy=False, ndmin=self.least_rank)
        return rearrange.matrix_transpose(piece) if self.least_rank > max(len(promotion.shape_of(own)), 1) else piece


mgrid = _Grid(sparse=False)
ogrid = _Grid(sparse=True)
r_ = _Rows("r_", 0, 1)
c_ = _Rows("c_", -1, 2)
