"""Indices with arrays of integers: the windows of one gather, or of one scatter.

In: items (``index_items``) as a static layout, and the arrays among them. Out: a ``Selection``, which holds index
vectors and the role of every axis; both x[idx] and x.at[idx].set are made from it. Slices with a step become arrays of
their positions, other slices become windows. Arrays are broadcast together; their dimensions stand where the first of
them stood, or in front if something separates them::

    x[:, i]       i32[3] of f32[5,4,3]   ->  starts i32[3,1] for axis 1, windows of sizes (5, 1, 3), result f32[5,3,3]
    x[i, :, j]    i32[3], i32[3]         ->  starts i32[3,2] for axes 0 and 2, sizes (1, 4, 1), result f32[3,4]
    x[::2, i]     iota * 2               ->  starts i32[3,3,2], sizes (1, 1, 3), result f32[3,3,3]
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.core.programs import check_scopes
from weft.numpy import promotion
from weft.numpy.subscripts import basic_indexing, index_items

WHOLE = basic_indexing.Cut(0, -1, 0)  # a whole axis, whatever its extent


class Position(NamedTuple):
    """An integer known while tracing; ``typed`` if it has a dtype of its own."""

    value: int
    typed: bool


class Operand(NamedTuple):
    """An array of integers: its number among the operands, and whether it indexes an axis made for a boolean."""

    number: int
    truth: bool


class Layout(NamedTuple):
    """The items of an index without their arrays (None, Ellipsis, Cut, Position or Operand), and how it is read."""

    items: tuple[Any, ...]
    wrap: bool  # whether negative integers count from the end


class Selection(NamedTuple):
    """Where the elements of an index are: index vectors, and what each axis is."""

    indices: Any  # i32[*block, number of components]
    offset_dims: tuple[int, ...]  # axes of the result that walk windows
    collapsed: tuple[int, ...]  # axes of the operand that have no axis in the result
    components: tuple[int, ...]  # the axis of each component of an index vector
    sizes: tuple[int, ...]  # of the windows
    shape: tuple[int, ...]  # of the result before ``new_axes``
    reversed: tuple[int, ...]  # axes of the result that run backwards
    new_axes: tuple[int, ...]
    truths: tuple[int, ...]  # axes of extent 1 that the operand is given for booleans
    ascending: bool  # no arrays: the index vectors are in order and differ


def layout_of(items: list[Any], shape: tuple[int, ...], eager: bool, wrap: bool = True) -> tuple[Layout, list[Any]]:
    """The layout of items into an array of ``shape``, and its operands; if ``eager``, integers are operands."""
    entries: list[Any] = []
    operands: list[Any] = []
    axis = 0
    for item in items:
        if item is None or item is Ellipsis:
            entries.append(item)
            continue
        if isinstance(item, index_items.Truth):
            entries.append(Operand(len(operands), True))
            operands.append(item.positions)
            continue
        if isinstance(item, slice):
            entries.append(basic_indexing.cut_of(item, shape[axis], axis))
        elif index_items.is_static(item) and not eager:
            entries.append(Position(int(item), isinstance(item, np.integer)))
        else:
            entries.append(Operand(len(operands), False))
            operands.append(item)
        axis += 1
    return Layout(tuple(entries), wrap), operands


@functools.lru_cache(maxsize=64)
def of_rows(rank: int) -> Layout:
    """The layout of ``x[indices]``."""
    return Layout((Operand(0, False), *[WHOLE for _ in range(rank - 1)]), True)


def select(layout: Layout, shape: tuple[int, ...], operands: tuple[Any, ...]) -> Selection:
    """The selection of a layout from an array of ``shape`` (before axes for booleans are added)."""
    return _Walk(layout, shape, operands).selection()


def _position_dtype(extent: int) -> np.dtype:
    """What holds every position in an axis; OverflowError if no type that is turned on does."""
    if extent < 2**31:
        return np.dtype(np.int32)
    wide = dtypes.canonicalize_dtype(np.int64)
    if wide.itemsize < 8 and extent > 2**32:
        raise OverflowError(
            f"[index] positions in an axis of {extent} elements need 64 bits: weft.config.update('enable_x64', True)"
        )
    return wide if wide.itemsize == 8 else np.dtype(np.uint32)


class _Walk:
    """Items from left to right; what each adds to the index vectors and to the result."""

    def __init__(self, layout: Layout, shape: tuple[int, ...], operands: tuple[Any, ...]) -> None:
        self.items = layout.items
        self.extents: list[int] = []  # of the operand with the axes for booleans
        self.axis_of: dict[int, int] = {}  # item -> axis
        self.truths: list[int] = []
        own = iter(shape)
        for index, item in enumerate(self.items):
            if item is None or item is Ellipsis:
                continue
            axis = self.axis_of[index] = len(self.extents)
            truth = isinstance(item, Operand) and item.truth
            if truth:
                self.truths.append(axis)
            self.extents.append(1 if truth else next(own))
        self.dtype = _position_dtype(max(self.extents, default=0))
        self.values = {
            index: self._wrapped(item, operands, self.extents[self.axis_of[index]], layout.wrap)
            for index, item in enumerate(self.items)
            if isinstance(item, Position | Operand)
        }
        self.has_arrays = any(promotion.shape_of(value) for value in self.values.values())
        empty = [axis for index in self.values if self.extents[axis := self.axis_of[index]] == 0]
        if empty and not self.has_arrays:
            raise IndexError(f"index is out of bounds for axis {empty[0]} with size 0")
        self.parts: list[tuple[Any, tuple[int, ...]]] = []  # components: a value, and its dimensions of the block
        self.components: list[int] = []
        self.block: list[int] = []
        self.collapsed: list[int] = []
        self.offset_dims: list[int] = []
        self.sizes = list(self.extents)
        self.shape: list[int] = []
        self.reversed: list[int] = []
        self.new_axes: list[int] = []
        self.rank = 0  # of the result with new axes

    def _wrapped(self, item: Any, operands: tuple[Any, ...], extent: int, wrap: bool) -> Any:
        """The integers of an item, counted from the front."""
        if isinstance(item, Position):
            value = item.value + extent if wrap and item.value < 0 else item.value
            if self.dtype.kind == "u":
                return np.asarray(value, self.dtype)
            return np.asarray(value, dtypes.canonicalize_dtype(np.int64)) if item.typed else value
        value = operands[item.number]
        dtype = promotion.dtype_of(value)
        if not wrap or dtypes.issubdtype(dtype, np.unsignedinteger):
            return value
        on_host = isinstance(value, np.ndarray)
        negative = value < 0 if on_host else lax.lt(value, np.asarray(0, dtype))
        short = extent > dtypes.iinfo(dtype).max  # int8 into 300 elements
        if short or self.dtype.kind == "u":  # the latter counted from the end modulo 2**32
            value, dtype = value if on_host else promotion.convert(value, self.dtype), self.dtype
        if on_host:
            negative, value = np.asarray(negative), value.astype(dtype, copy=False)
        return lax.select_n(negative, value, lax.add(value, core.scalar(extent, dtype)))

    def selection(self) -> Selection:
        arrays = list(self.values) if self.has_arrays else []
        together = arrays == list(range(arrays[0], arrays[-1] + 1)) if arrays else False
        if arrays and not together:
            self._add_arrays(arrays)
        for index, item in enumerate(self.items):
            if index in self.values:
                if together and index == arrays[0]:
                    self._add_arrays(arrays)
                elif not arrays:
                    self._add_scalar(index)
            elif item is None:
                self.new_axes.append(self.rank)
                self.rank += 1
            elif item is not Ellipsis:
                self._add_cut(item, self.axis_of[index])
        return Selection(
            self._index_vectors(),
            tuple(self.offset_dims),
            tuple(sorted(self.collapsed)),
            tuple(self.components),
            tuple(self.sizes),
            tuple(self.shape),
            tuple(self.reversed),
            tuple(self.new_axes),
            tuple(self.truths),
            not self.has_arrays,
        )

    def _add_component(self, axis: int, value: Any, dims: tuple[int, ...]) -> None:
        self.components.append(axis)
        self.parts.append((value, dims))

    def _collapse(self, axis: int) -> None:
        self.collapsed.append(axis)
        self.sizes[axis] = 1

    def _add_block(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """New dimensions of the block, which stand in the result too."""
        dims = tuple(range(len(self.block), len(self.block) + len(shape)))
        self.block += shape
        self.shape += shape
        self.rank += len(shape)
        return dims

    def _add_arrays(self, items: list[int]) -> None:
        """All arrays, broadcast together."""
        values = [self.values[index] for index in items]
        shape = promotion.broadcast_shapes(*map(promotion.shape_of, values))
        spread = [promotion.broadcast_to(value, shape) for value in values]
        converted = [promotion.convert(value, self.dtype) for value in spread]
        dims = self._add_block(shape)
        for index, value in zip(items, converted, strict=True):
            self._add_component(self.axis_of[index], value, dims)
            self._collapse(self.axis_of[index])

    def _add_scalar(self, index: int) -> None:
        axis = self.axis_of[index]
        self._add_component(axis, promotion.convert(self.values[index], self.dtype), ())
        self._collapse(axis)

    def _add_cut(self, cut: basic_indexing.Cut, axis: int) -> None:
        if cut == WHOLE:
            cut = basic_indexing.Cut(0, self.extents[axis], 1)
        if cut.step == 1:
            self.offset_dims.append(len(self.shape))
            if cut != (0, self.extents[axis], 1):
                self._add_component(axis, np.asarray(cut.start, self.dtype), ())
                self.sizes[axis] = cut.size
            self.shape.append(cut.size)
            self.rank += 1
            return
        if cut.step < 0:
            self.reversed.append(len(self.shape))
        positions = lax.mul(np.asarray(cut.step, self.dtype), lax.iota(self.dtype, cut.size))
        positions = lax.add(np.asarray(cut.start, self.dtype), positions)
        if cut.step < 0:
            positions = lax.rev(positions, (0,))
        self._add_component(axis, positions, self._add_block((cut.size,)))
        self._collapse(axis)

    def _index_vectors(self) -> Any:
        if not self.parts:
            return promotion.constant(np.zeros(0, self.dtype), dtype=self.dtype)
        columns = [lax.broadcast_in_dim(value, (*self.block, 1), dims) for value, dims in self.parts]
        return columns[0] if len(columns) == 1 else lax.concatenate(columns, len(self.block))


def gather(
    x: Any,
    *operands: Any,
    layout: Layout,
    mode: Any = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Array:
    """``x`` at a layout's index; ``mode`` and the rest as ``lax.gather`` takes them."""
    chosen = select(layout, promotion.shape_of(x), operands)
    x = lax.expand_dims(x, chosen.truths) if chosen.truths else promotion.as_array(x)
    if 0 in chosen.shape:
        out = lax.full_like(x, 0, shape=chosen.shape)
    elif not chosen.components:
        out = x
    else:
        numbers = lax.GatherDimensionNumbers(
            offset_dims=chosen.offset_dims,
            collapsed_slice_dims=chosen.collapsed,
            start_index_map=chosen.components,
        )
        with check_scopes.as_given(mode):
            out = lax.gather(
                x,
                chosen.indices,
                numbers,
                chosen.sizes,
                unique_indices=unique_indices or chosen.ascending,
                indices_are_sorted=indices_are_sorted or chosen.ascending,
                mode=mode,
                fill_value=fill_value,
            )
    if chosen.reversed and 0 not in chosen.shape:
        out = lax.rev(out, chosen.reversed)
    return lax.expand_dims(out, chosen.new_axes) if chosen.new_axes else out


apply = basic_indexing.inline(
    gather, static_argnames=("layout", "mode", "fill_value", "indices_are_sorted", "unique_indices")
)
