"""Grids and rows by subscript: ``mgrid``, ``ogrid``, ``r_`` and ``c_``.

mgrid[0:2, 0:3]     two arrays i32[2,3] in one, of row and column numbers
r_[1:4, 0, x]       the pieces joined along the first axis
r_["0,2", x, y]     along axis 0, each of at least two axes
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import config, core
from weft import operations as lax
from weft.numpy import axes, joining, promotion
from weft.numpy.array_creation import creation, even_spacing


def _vector(part: slice, name: str) -> Any:
    """The values of a slice: a range, or with an imaginary step that many evenly spaced values."""
    for word in ("start", "stop", "step"):
        core.concrete_or_error(None, getattr(part, word), f"slice {word} of jnp.{name}")
    start = 0 if part.start is None else part.start
    if isinstance(part.step, complex):
        return even_spacing.linspace(start, part.stop, int(abs(part.step)))
    return creation.arange(start, part.stop, part.step if part.step is not None else 1)


def _no_grid(sparse: bool) -> Any:
    """The grid of no axes, as NumPy's."""
    return () if sparse else creation.zeros((0,), int)


class _Grid:
    """``mgrid`` (dense) or ``ogrid`` (open)."""

    def __init__(self, sparse: bool) -> None:
        self.sparse, self.name = sparse, "ogrid" if sparse else "mgrid"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _vector(key, self.name)
        if not key:
            return _no_grid(self.sparse)
        with config.context("numpy_dtype_promotion", "standard"):  # slices of integers and of floats
            vectors = promotion.promote_dtypes(*(_vector(part, self.name) for part in key))
        grid = creation.meshgrid(*vectors, indexing="ij", sparse=self.sparse)
        return grid if self.sparse else joining.stack(grid)


class _Rows:
    """``r_`` or ``c_``: pieces joined along an axis; a first string gives axis and rank, or is "r" or "c"."""

    def __init__(self, name: str, axis: int, least_rank: int, first: int) -> None:
        self.name = name
        self.axis, self.least_rank, self.first = axis, least_rank, first

    def __getitem__(self, key: Any) -> Any:
        axis, least_rank, first = self.axis, self.least_rank, self.first
        parts = key if isinstance(key, tuple) else (key,)
        as_matrix = ""
        if parts and isinstance(parts[0], str):
            directive, parts = parts[0], parts[1:]
            if directive in ("r", "c"):
                as_matrix = directive
            else:
                axis, least_rank, first = self._read(directive)
        if any(isinstance(part, str) for part in parts):
            raise ValueError("string directive must be placed at the beginning")
        pieces = [_piece(part, self.name, least_rank, first) for part in parts]
        joined = joining.concatenate(pieces, axes.canonical_axis(axis, max(map(np.ndim, pieces), default=1)))
        if as_matrix and joined.ndim == 1:
            return joined[None, :] if as_matrix == "r" else joined[:, None]
        return joined

    def _read(self, directive: str) -> tuple[int, int, int]:
        """Axis, least rank, and where the first axis goes, of "axis", "axis,rank" or "axis,rank,first"."""
        try:
            given = [int(number) for number in directive.split(",")]
        except ValueError:
            given = []
        if not given:
            raise ValueError(f"could not understand directive {directive!r}")
        given = given[: 3 if len(given) == 3 else 2]  # as NumPy reads them
        axis, least_rank, first = (*given, *(self.axis, self.least_rank, self.first)[len(given) :])
        return axis, least_rank, first


def _piece(part: Any, name: str, least_rank: int, first: int) -> Any:
    """An array of at least ``least_rank`` axes; new ones stand before its own, or behind from position ``first`` on."""
    own = _vector(part, name) if isinstance(part, slice) else creation.asarray(part)
    rank = max(len(promotion.shape_of(own)), 1)
    piece = creation.array(own, copy=False, ndmin=least_rank)
    added = least_rank - rank
    if added <= 0 or first == -1:
        return piece
    position = first + added + 1 if first < 0 else first
    if not 0 <= position <= added:
        raise ValueError(f"[{name}] the first axis cannot stand at {first} among {least_rank} axes")
    return lax.transpose(piece, [*range(position), *range(added, added + rank), *range(position, added)])


mgrid = _Grid(sparse=False)
ogrid = _Grid(sparse=True)
r_ = _Rows("r_", 0, 1, -1)
c_ = _Rows("c_", -1, 2, 0)
