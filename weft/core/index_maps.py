"""Index maps: where an element of a result comes from (affine maps, regions, pieces, strided views).

    y = x[:, ::-2].T    x f32[4,8]    index of x (i1, 7 - 2 i0)    (Affine(1), Affine(0, 7, -2))
    c = concatenate a b along 0       two pieces: rows 0..2 from a, 3..7 from b, each with an affine map
    v = qkv[:, 64:128].reshape(8, 4, 16), qkv f32[8,192] in memory    offset 64, strides (192, 16, 1)

An index map has one ``Affine`` for each dimension of the source; its axes are dimensions of the result, or keys of a
kernel's axes. A region is a box of elements, each dimension with a start, a step and an extent. A piece says what fills
a region of a result. A strided view says where elements are in memory; a dimension that a reshape has joined from
dimensions that are not contiguous has a mixed-radix index.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from weft._base.record import NamedTuple, Record

CONSTANT = -1  # the axis of a constant index


class Affine(NamedTuple):
    """The index along one dimension: ``start + step * i``, i the index along ``axis`` (``CONSTANT``: none)."""

    axis: int
    start: int = 0
    step: int = 1


IndexMap = tuple[Affine, ...]
FIXED = Affine(CONSTANT, 0, 0)


def constant(start: int) -> Affine:
    """A constant index."""
    return Affine(CONSTANT, start, 0) if start else FIXED


def identity(rank: int) -> IndexMap:
    """The map of a result that is the whole source."""
    return tuple([Affine(dim) for dim in range(rank)])


def compose(outer: IndexMap, inner: Sequence[Affine] | Mapping[int, Affine]) -> IndexMap:
    """The map of a view of a view: ``outer`` maps the first view, ``inner`` gives the index along each of its axes.

    >>> compose((Affine(1), Affine(0, 7, -2)), (Affine(0, 1), constant(3)))  # x[:, ::-2].T[1:, 3]
    (Affine(axis=-1, start=3, step=0), Affine(axis=0, start=5, step=-2))
    """
    found = []
    for index in outer:
        axis, start, step = index
        if axis == CONSTANT:
            found.append(index)
            continue
        use = inner[axis]
        found.append(use if start == 0 and step == 1 else Affine(use.axis, start + step * use.start, step * use.step))
    return tuple(found)


def invert(index_map: IndexMap, shape: Sequence[int], extents: Mapping[int, int]) -> dict[int, Affine] | None:
    """The index along every axis, given the index of the source; None unless the map reaches each element once.

    ``shape`` is the source's, ``extents`` those of the axes; an axis of extent 1 has the index 0.

    >>> invert((Affine(1, 7, -1), FIXED), (8, 1), {0: 1, 1: 8})
    {1: Affine(axis=0, start=7, step=-1), 0: Affine(axis=-1, start=0, step=0)}
    """
    found: dict[int, Affine] = {}
    for dim, ((axis, start, step), extent) in enumerate(zip(index_map, shape, strict=True)):
        if extent == 1:
            continue
        if axis in found or extents.get(axis) != extent or (start, step) not in ((0, 1), (extent - 1, -1)):
            return None
        found[axis] = Affine(dim, start, step)
    unnamed = [axis for axis in extents if axis not in found]
    if any(extents[axis] != 1 for axis in unnamed):
        return None
    return {**found, **dict.fromkeys(unnamed, FIXED)}


class Region(NamedTuple):
    """The elements ``start + step * i`` with i < ``extent``, along every dimension."""

    start: tuple[int, ...]
    step: tuple[int, ...]
    extent: tuple[int, ...]

    @classmethod
    def box(cls, start: Iterable[int], stop: Iterable[int]) -> Region:
        """The elements from ``start`` to before ``stop``."""
        start = tuple(start)
        return cls(start, (1,) * len(start), tuple([high - low for low, high in zip(start, stop, strict=True)]))

    @property
    def is_dense(self) -> bool:
        return all(step == 1 for step in self.step)

    @property
    def stop(self) -> tuple[int, ...]:
        """The index after the last element of each dimension."""
        bounds = zip(self.start, self.step, self.extent, strict=True)
        return tuple([start + step * (extent - 1) + 1 if extent else start for start, step, extent in bounds])

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple([slice(*bounds) for bounds in zip(self.start, self.stop, self.step, strict=True)])

    def index_map(self) -> IndexMap:
        """The map of the region as a view of the array."""
        bounds = zip(self.start, self.step, strict=True)
        return tuple([Affine(dim, start, step) for dim, (start, step) in enumerate(bounds)])

    def within(self, outer: Region) -> Region:
        """This region of the ``outer`` region, as a region of the array."""
        trios = list(zip(outer.start, outer.step, self.start, strict=True))
        steps = zip(outer.step, self.step, strict=True)
        return Region(
            tuple([at + step * start for at, step, start in trios]), tuple([a * b for a, b in steps]), self.extent
        )


def restrict(index_map: IndexMap, region: Region) -> IndexMap:
    """The index map restricted to a region of the result."""
    return compose(index_map, region.index_map())


def split(shape: Sequence[int], cuts: Iterable[tuple[int, int]]) -> list[Region]:
    """The boxes into which ``cuts``, pairs (dimension, position), divide an index set, in row-major order.

    >>> [region.extent for region in split((4, 6), [(1, 2), (1, 5)])]
    [(4, 2), (4, 3), (4, 1)]
    """
    ends: list[set[int]] = [{0, extent} for extent in shape]
    for dim, position in cuts:
        ends[dim].add(position)
    boxes = itertools.product(*[itertools.pairwise(sorted(found)) for found in ends])
    return [Region.box([low for low, _ in box], [high for _, high in box]) for box in boxes]


def around(region: Region, shape: Sequence[int]) -> list[Region]:
    """Disjoint boxes that cover what is outside a dense region: those beside it along dimension 0, then along 1, ...

    >>> [slab.extent for slab in around(Region((1, 0), (1, 1), (2, 5)), (4, 6))]
    [(1, 6), (1, 6), (2, 1)]
    """
    low, high, slabs = [0] * len(shape), list(shape), []
    for dim, (start, stop) in enumerate(zip(region.start, region.stop, strict=True)):
        for first, last in ((0, start), (stop, shape[dim])):
            if first < last:
                slab = Region.box([*low[:dim], first, *low[dim + 1 :]], [*high[:dim], last, *high[dim + 1 :]])
                slabs.append(slab)
        low[dim], high[dim] = start, stop
    return slabs


class Piece(Record):
    """A region of a result that operand number ``operand`` fills: region[i] = operand[index_map(i)].

    Regions do not overlap, except that a ``fill`` is written before the other pieces. A 0-d operand has the map () and
    is broadcast over the region.
    """

    operand: int
    region: Region
    index_map: IndexMap
    fill: bool = False


def indices(index: Affine, extents: Mapping[int, int]) -> tuple[int, int]:
    """The least and the largest index along a dimension; the axis is not empty."""
    last = index.start if index.axis == CONSTANT else index.start + index.step * (extents[index.axis] - 1)
    return min(index.start, last), max(index.start, last)


def piece_of(pieces: Sequence[Piece], access: IndexMap, extents: Mapping[int, int]) -> tuple[Piece, IndexMap] | None:
    """The piece that holds all an access to a result reads, and the map; None for several pieces, or one with steps."""
    spans = [indices(index, extents) for index in access]
    for piece in reversed(pieces):  # the piece written last comes first
        start, stop = piece.region.start, piece.region.stop
        if not piece.region.is_dense:
            return None
        bounds = list(zip(start, stop, spans, strict=True))
        if all(first <= low and high < end for first, end, (low, high) in bounds):
            inner = [Affine(use.axis, use.start - at, use.step) for use, at in zip(access, start, strict=True)]
            return piece, compose(piece.index_map, inner)
        if all(low < end and first <= high for first, end, (low, high) in bounds):
            return None
    return None


def pieces_of(
    pieces: Sequence[Piece], access: IndexMap, extents: Mapping[int, int]
) -> list[tuple[Piece, IndexMap]] | None:
    """The pieces that an access to a result reads, and the map of each, valid in its region; None if one has steps."""
    spans = [indices(index, extents) for index in access]
    found = []
    for piece in pieces:
        if not piece.region.is_dense:
            return None
        bounds = list(zip(piece.region.start, piece.region.stop, spans, strict=True))
        if all(low < end and first <= high for first, end, (low, high) in bounds):
            inner = [Affine(use.axis, use.start - at, use.step) for use, (at, _, _) in zip(access, bounds, strict=True)]
            found.append((piece, compose(piece.index_map, inner)))
    return found


# strided views

Part = tuple[int, int]  # extent and stride of one digit of an index
Digits = tuple[Part, ...]  # of a dimension's mixed-radix index, outermost first


class StridedView(NamedTuple):
    """Where elements are in memory: an offset, and the digits of every dimension; all in elements."""

    offset: int
    dims: tuple[Digits, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([math.prod([extent for extent, _ in digits]) for digits in self.dims])

    def view(self, index_map: IndexMap, shape: Sequence[int]) -> StridedView | None:
        """An affine view of this one; None if it slices a dimension of several digits, or uses an axis twice."""
        found: list[Digits | None] = [None] * len(shape)
        offset = self.offset
        for extent, digits, (axis, start, step) in zip(self.shape, self.dims, index_map, strict=True):
            is_whole = axis != CONSTANT and (start, step, extent) == (0, 1, shape[axis])
            if not is_whole and len(digits) != 1:
                return None
            stride = digits[-1][1]
            offset += start * stride
            if axis == CONSTANT:
                continue
            if found[axis] is not None:
                return None
            found[axis] = digits if is_whole else ((shape[axis], step * stride),)
        return StridedView(offset, tuple([digits or ((n, 0),) for digits, n in zip(found, shape, strict=True)]))

    def reshape(self, shape: Sequence[int]) -> StridedView | None:
        """The same elements in row-major order under another shape; None where extents do not divide each other."""
        if 0 in shape:
            return dense(shape)
        rest = joined([part for digits in self.dims for part in digits])
        dims: list[Digits] = []
        for extent in reversed(shape):
            digits: list[Part] = []
            while extent != 1:
                n, stride = rest.pop()
                if n > extent:
                    if n % extent:
                        return None
                    rest.append((n // extent, stride * extent))
                    n = extent
                elif extent % n:
                    return None
                digits.append((n, stride))
                extent //= n
            dims.append(tuple(digits[::-1]) or ((1, 0),))
        return StridedView(self.offset, tuple(dims[::-1]))


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    found, stride = [], 1
    for extent in reversed(shape):
        found.append(stride)
        stride *= extent
    return tuple(found[::-1])


def dense(shape: Sequence[int]) -> StridedView:
    """All of an array in memory."""
    return StridedView(0, tuple([((extent, stride),) for extent, stride in zip(shape, strides_of(shape), strict=True)]))


def as_strides(index_map: IndexMap, strides: Sequence[int], rank: int) -> tuple[int, list[int]]:
    """The offset and the strides of an affine view of an array with such strides; an axis may move several."""
    offset, found = 0, [0] * rank
    for (axis, start, step), stride in zip(index_map, strides, strict=True):
        offset += start * stride
        if axis != CONSTANT:
            found[axis] += step * stride
    return offset, found


def joined(digits: Iterable[Part]) -> list[Part]:
    """The same index with fewer digits: digits that are contiguous in memory are merged."""
    found: list[Part] = []
    for extent, stride in digits:
        if extent == 1:
            continue
        if found and found[-1][1] == stride * extent:
            found[-1] = found[-1][0] * extent, stride
        else:
            found.append((extent, stride))
    return found


def strides_in(digits: Digits, extents: Sequence[int]) -> list[int] | None:
    """The strides of a dimension split into digits of these extents; None if its own digits do not allow that."""
    found = StridedView(0, (digits,)).reshape(extents)
    if found is None or any(len(digits) != 1 for digits in found.dims):
        return None
    return [stride for ((_, stride),) in found.dims]
