"""Reads of assembled arrays inside a kernel: every piece is read at every point, and the index chooses among them.

    c = concatenate x[:, 1:] x[:, :1], x f32[n,5]    at (i, j):  x[i, j + 1] if j <= 3, otherwise x[i, j - 4]

What is read outside of a piece may be outside of its array too. Such a load has a condition (``ir.LoadAt.inside``), and
gives zero where it does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.core import kinds
from weft.core.index_maps import CONSTANT, Affine, Piece
from weft.loops import indexed, ir
from weft.loops.kernel import Access

INT32 = np.dtype(np.int32)

AT_LEAST = kinds.Elementwise(
    scalar=lambda emit, index, least: emit.compare("le", least, index), reference=np.greater_equal, cost=1.0
)
AT_MOST = kinds.Elementwise(
    scalar=lambda emit, index, most: emit.compare("le", index, most), reference=np.less_equal, cost=1.0
)


class Reader:
    """Writes the conditions of one lowering; ``extents`` are those of the kernel's axes, all below 2**31.

    ``indexed`` collects the axes whose index is read.
    """

    def __init__(self, writer: indexed.IndexWriter, extents: Mapping[int, int], read: set[int]) -> None:
        self.writer, self.extents, self.indexed = writer, extents, read
        self.known: dict[tuple[Any, ...], int] = {}  # conditions written before

    def inside(self, bucket: indexed.Bucket, access: Access, shape: Sequence[int]) -> int | None:
        """A value that tells whether an access reads inside an array; None if it always does."""
        return self._all(bucket, [(use, 0, extent) for use, extent in zip(access, shape, strict=True)])

    def chosen(
        self, bucket: indexed.Bucket, access: Access, pieces: Sequence[Piece], values: Sequence[int], dtype: np.dtype
    ) -> int:
        """The value of the last piece that holds the element read at an access."""
        result = values[0]
        for piece, value in zip(pieces[1:], values[1:], strict=True):
            bounds = zip(access, piece.region.start, piece.region.stop, strict=True)
            here = self._all(bucket, list(bounds))
            if here is not None:
                value = self.writer.apply(bucket, "choose", indexed.CHOOSE, (here, value, result), dtype)
            result = value
        return result

    def _all(self, bucket: indexed.Bucket, bounds: Sequence[tuple[Affine, int, int]]) -> int | None:
        """Whether every index is at least the first bound and below the second; None if that is always so."""
        every: int | None = None
        for use, low, high in bounds:
            for one in self._within(bucket, use, low, high):
                every = one if every is None or every == one else self._both(bucket, every, one)
        return every

    def _within(self, bucket: indexed.Bucket, use: Affine, low: int, high: int) -> list[int]:
        """Conditions on the index along an axis, so that ``low <= start + step * i < high``."""
        if use.axis == CONSTANT:
            return []
        ends = [-((use.start - low) // use.step), (high - 1 - use.start) // use.step]
        if use.step < 0:
            ends = [-((use.start - high + 1) // use.step), (low - use.start) // use.step]
        tests = [("at_least", AT_LEAST, ends[0])] if ends[0] > 0 else []
        tests += [("at_most", AT_MOST, ends[1])] if ends[1] < self.extents[use.axis] - 1 else []
        found = []
        for name, kind, bound in tests:
            key = (id(bucket), use.axis, name, bound)
            if key not in self.known:
                args = (self._index(bucket, use.axis), self.writer.scalar(bound, INT32))
                self.known[key] = self.writer.apply(bucket, name, kind, args, indexed.BOOL)
            found.append(self.known[key])
        return found

    def _both(self, bucket: indexed.Bucket, left: int, right: int) -> int:
        key = (id(bucket), left, right)
        if key not in self.known:
            self.known[key] = self.writer.apply(bucket, "both", indexed.BOTH, (left, right), indexed.BOOL)
        return self.known[key]

    def _index(self, bucket: indexed.Bucket, axis: int) -> int:
        key = (id(bucket), axis)
        if key not in self.known:
            self.indexed.add(axis)
            self.known[key] = self.writer.number()
            bucket.append(ir.IndexOf(self.known[key], axis, INT32))
        return self.known[key]
