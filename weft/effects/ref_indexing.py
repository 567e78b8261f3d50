"""Indices of references: what ``ref[1:3, i]`` says, how that is printed, and what it means on a plain array.

An index is a ``Region`` for each dimension, or None where an operand of the equation gives the position: an integer, or
an array of them. ``ref.at[1:3][0]`` has two indices, each of the array that the one before it selects.

    ref[1:3, i]     index (Region(1, 2, 1), None), operands (i,)
    ref[ds(i, 2)]   index (Region(None, 2, 1),),   operands (i,)

``read`` and ``write`` are those accesses on values: slices where no position is an array, otherwise gathers and
scatters. Positions outside of the array are moved to its nearest element; negative ones count from the end.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes, errors
from weft._base.record import NamedTuple, Record
from weft.core import avals as avals_module
from weft.core.programs.document import Document, concat
from weft.core.programs.printer import atom_text
from weft.core.tracing.tracer import Tracer
from weft.operations.data_movement import index as index_module
from weft.operations.data_movement import shape
from weft.operations.pointwise import arithmetic, convert


class Region(NamedTuple):
    """``size`` positions from ``start`` on, ``stride`` apart; a start of None is the next operand."""

    start: int | None
    size: int
    stride: int = 1


class Slice(Record):
    """What ``ds`` gives: a slice whose start need not be known while tracing, nor, for a ``BoundedSlice``, its size."""

    start: Any
    size: Any
    stride: int = 1

    @property
    def is_dynamic_start(self) -> bool:
        return not isinstance(self.start, (int, np.integer))

    @property
    def is_dynamic_size(self) -> bool:
        return not isinstance(self.size, (int, np.integer))

    @classmethod
    def from_slice(cls, slc: slice, size: int) -> Slice:
        """What a slice of Python selects of ``size`` positions."""
        start, stop, step = slc.indices(size)
        return cls(start, len(range(start, stop, step)), step)


Index = tuple["Region | None", ...]


def ds(start: Any, size: Any = None, stride: int | None = None) -> slice | Slice:
    """A slice of ``size`` positions from ``start``, for indices of references; ``start`` may be traced.

    With one argument, the slice of that many positions from 0 on. TypeError for a size that is no int, ValueError for a
    negative size or a stride below 1.

    >>> ref = weft.new_ref(jnp.arange(5))
    >>> ref[weft.ds(jnp.int32(2), 2)]
    Array([2, 3], dtype=int32)
    """
    if size is None:
        start, size = 0, start
    if size is None:
        return slice(None)
    stride = 1 if stride is None else operator.index(stride)
    if stride < 1:
        raise ValueError(f"[ds] `stride` must be at least 1, got {stride}")
    if not isinstance(size, Tracer):
        size = operator.index(size)
        if size < 0:
            raise ValueError(f"[ds] `size` must not be negative, got {size}")
    return Slice(start, size, stride)


# -- what an index says -----------------------------------------------------------------------------------------------


def parse(key: Any, extents: tuple[int, ...]) -> tuple[Index | None, list[Any]]:
    """(the index, its operands); None for all of an array without a dimension named, ``ref[...]``."""
    entries = list(key) if isinstance(key, tuple) else [key]
    dots = [position for position, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise ValueError(f"an index has at most one `...`, got {len(dots)}")
    named = len(entries) - len(dots)
    if named > len(extents):
        raise ValueError(f"`indices` must not be longer than `shape`: indices={tuple(entries)}, shape={extents}")
    if named == 0:
        return None, []
    rest = [slice(None)] * (len(extents) - named)
    position = dots[0] if dots else len(entries)
    entries[position : position + len(dots)] = rest
    index: list[Region | None] = []
    operands: list[Any] = []
    for entry, extent in zip(entries, extents, strict=True):
        region, given = _entry(entry, extent)
        index.append(region)
        operands += given
    return tuple(index), operands


def _entry(entry: Any, extent: int) -> tuple[Region | None, list[Any]]:
    """One dimension's part of an index."""
    if isinstance(entry, Slice):
        operator.index(entry.size)  # TracerIntegerConversionError: it is part of the shape
        start = _position(entry.start, extent) if extent else entry.start
        if isinstance(start, (int, np.integer)):
            if start:  # one that begins at 0 may be longer, since a mask can cover the rest: see ``_read_one``
                _check_inside(Region(int(start), entry.size, entry.stride), extent)
            return Region(int(start), entry.size, entry.stride), []
        return Region(None, entry.size, entry.stride), [start]
    if isinstance(entry, slice):
        if entry.step is not None and operator.index(entry.step) < 1:
            raise ValueError(f"slice must have a step >= 1 (found: {entry.step})")
        start, stop, step = entry.indices(extent)
        return Region(start, len(range(start, stop, step)), step), []
    if entry is None:
        raise ValueError("a reference has no index None: read it and add the dimension then, as in ref[...][None]")
    return None, [_position(entry, extent)]


def _check_inside(region: Region, extent: int) -> None:
    """ValueError for a slice whose known positions lie partly outside."""
    start, size, stride = region
    if start is not None and size and start + (size - 1) * stride >= extent:
        raise ValueError(f"Out of bound slice: start={start}, size={size}, stride={stride}, dim={extent}.")


def _position(entry: Any, extent: int) -> Any:
    """An integer, or an array of them; ValueError where it is known to be too large."""
    if isinstance(entry, (list, str)) or not avals_module.is_valid(entry):
        raise TypeError(f"an index is an integer, a slice, `...`, ds(start, size) or an integer array, got {entry!r}")
    aval = avals_module.get_aval(entry)
    if aval.dtype.kind == "b":
        raise errors.NonConcreteBooleanIndexError(entry)
    if not dtypes.issubdtype(aval.dtype, np.integer):
        raise TypeError(f"an index has integers, got {avals_module.short_text(aval)}")
    if not aval.shape and not isinstance(entry, Tracer) and int(entry) >= extent:
        raise ValueError(f"Out of bound indexer: idx={int(entry)}, dim={extent}.")
    return entry


def selected_shape(extents: tuple[int, ...], indices: Sequence[Index], operand_avals: Sequence[Any]) -> tuple[int, ...]:
    """The shape of what indices select, one after the other."""
    given = iter(operand_avals)
    for index in indices:
        sizes: list[int] = []
        arrays: list[tuple[int, ...]] = []
        dims: list[int] = []
        for dim, region in enumerate(index):
            if region is None:
                arrays.append(tuple(next(given).shape))
                dims.append(dim)
            elif region.start is None:
                next(given)
        common = np.broadcast_shapes(*arrays) if arrays else ()
        together = bool(dims) and dims[-1] - dims[0] == len(dims) - 1
        position = dims[0] if together else 0  # as NumPy puts the dimensions of index arrays
        for region in index:
            if region is not None:
                sizes.append(region.size)
        before = sum(1 for region in index[:position] if region is not None)
        extents = (*sizes[:before], *common, *sizes[before:])
    return extents


# -- text -------------------------------------------------------------------------------------------------------------


def document(
    name: str, extents: tuple[int, ...], indices: Sequence[Index], operands: Sequence[Any], context: Any
) -> Document:
    """``a[1:3,b]``, as an equation shows it; ``a[...]`` without indices."""
    if not indices:
        return f"{name}[...]"
    left = list(operands)
    text = name
    for index in indices:
        count = _operand_count(index)
        own, left = left[:count], left[count:]
        given = iter(own)
        parts = []
        for dim, region in enumerate(index):
            if region is None:
                parts.append(atom_text(next(given), context).partition(":")[0])
            elif region.start is None:
                start = atom_text(next(given), context).partition(":")[0]
                parts.append(f"{start}:{start}+{region.size * region.stride}{_step(region)}")
            else:
                parts.append(_region_text(region, extents[dim]))
        text += f"[{','.join(parts)}]"
        extents = selected_shape(extents, (index,), [atom.aval for atom in own])
    return concat(text)


def _region_text(region: Region, extent: int) -> str:
    start = region.start or 0
    stop = start + max((region.size - 1) * region.stride + 1, 0)
    ends = stop + region.stride > extent
    return f"{start or ''}:{'' if ends and not start else stop}{_step(region)}"


def _step(region: Region) -> str:
    return f":{region.stride}" if region.stride != 1 else ""


# -- the same on values -----------------------------------------------------------------------------------------------


def read(value: Any, indices: Sequence[Index], operands: Sequence[Any]) -> Any:
    """The elements of an array that indices select."""
    given = list(operands)
    for index in indices:
        taken = _operand_count(index)
        value = _read_one(value, index, given[:taken])
        del given[:taken]
    return value


def write(value: Any, indices: Sequence[Index], operands: Sequence[Any], new: Any, adds: bool = False) -> Any:
    """The array with new elements where indices point (with ``adds``, added to those there)."""
    if not indices:
        return arithmetic.add(value, new) if adds else new
    index, rest = indices[0], indices[1:]
    count = _operand_count(index)
    own, later = operands[:count], operands[count:]
    if rest:
        new, adds = write(_read_one(value, index, own), rest, later, new, adds), False
    starts = _starts(index, own)
    if starts is None:
        at = value.at[_key(index, own)]
        return at.add(new, mode="clip") if adds else at.set(new, mode="clip")
    sizes = [1 if region is None else region.size for region in index]
    if adds:
        new = arithmetic.add(_read_one(value, index, own), new)
    return index_module.dynamic_update_slice(value, shape.reshape(new, sizes), starts)


def _operand_count(index: Index) -> int:
    return sum(1 for region in index if region is None or region.start is None)


def _starts(index: Index, operands: Sequence[Any]) -> list[Any] | None:
    """The first positions of a contiguous window; None if the index selects something else."""
    given = iter(operands)
    starts: list[Any] = []
    for region in index:
        if region is not None and region.stride != 1:
            return None
        start = next(given) if region is None or region.start is None else region.start
        if avals_module.get_aval(start).shape:
            return None
        starts.append(start)
    return starts


def _read_one(value: Any, index: Index, operands: Sequence[Any]) -> Any:
    starts = _starts(index, operands)
    for region, extent in zip(index, shape.shape_of(value), strict=True):
        if region is not None:
            _check_inside(region, extent)
    if starts is None:
        return value.at[_key(index, operands)].get(mode="clip")
    extents = shape.shape_of(value)
    sizes = [1 if region is None else region.size for region in index]
    if all(isinstance(start, (int, np.integer)) for start in starts):
        first = [_inside(int(s), size, n) for s, size, n in zip(starts, sizes, extents, strict=True)]
        window = value
        if sizes != list(extents):
            window = shape.slice(value, first, [s + size for s, size in zip(first, sizes, strict=True)])
    else:
        window = index_module.dynamic_slice(value, starts, sizes)
    dropped = [dim for dim, region in enumerate(index) if region is None]
    return shape.squeeze(window, dropped) if dropped else window


def _inside(start: int, size: int, extent: int) -> int:
    return min(max(start + extent if start < 0 else start, 0), max(extent - size, 0))


def _key(index: Index, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The index as arrays take it."""
    traced = [region for region in index if region is not None and region.start is None]
    if traced and (len(traced) > 1 or len(operands) > 1):
        raise NotImplementedError(
            "[ref] ds(start, size) of a traced start, beside index arrays or strides: read the slice first"
        )
    given = iter(operands)
    key: list[Any] = []
    for region in index:
        if region is None:
            key.append(next(given))
        elif region.start is None:
            offsets = np.arange(0, region.size * region.stride, region.stride, dtype=np.int32)
            start = convert.convert(next(given), np.dtype(np.int32), False)
            key.append(arithmetic.add(shape.broadcast_in_dim(start, offsets.shape, ()), offsets))
        else:
            key.append(slice(region.start, region.start + region.size * region.stride, region.stride))
    return tuple(key)
