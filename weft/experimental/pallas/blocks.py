"""What a cell of a grid sees of an array: BlockSpec, the kinds of its dimensions, GridSpec.

    BlockSpec((None, 128), lambda i, j: (i, j))      row i, columns 128 * j to 128 * j + 127, as a vector of 128

A dimension of a block is ``Blocked(n)`` (or ``n``): ``index_map`` gives the number of the block; ``Element(n)``: it
gives the first element; ``Squeezed()`` (or None): it gives the one element, and the kernel's reference has no such
dimension. In ``emit_pipeline`` alone, ``BoundedSlice(n)``: it gives a slice of at most n elements; ``Indirect(n)``: it
gives an array of n indices.
"""

from __future__ import annotations

import copy
import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import Record


class Blocked(Record):
    """A dimension of ``block_size`` elements, numbered by blocks."""

    block_size: int

    def __repr__(self) -> str:
        return f"Blocked({self.block_size})"


class Element(Record):
    """A dimension of ``block_size`` elements; the index is that of the first.

    ``padding`` is how many elements outside of the array there are before and after it; indices count from the first
    of them.
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        return f"Element({self.block_size}{'' if self.padding == (0, 0) else f', padding={self.padding}'})"


class Squeezed(Record):
    """A dimension in which a cell has one element. The kernel does not see it."""

    def __repr__(self) -> str:
        return "Squeezed()"


class BoundedSlice(Record):
    """A dimension of ``emit_pipeline``: a cell sees at most ``block_size`` elements, by ``ds(start, size)``."""

    block_size: int

    def __repr__(self) -> str:
        return f"BoundedSlice({self.block_size})"


class Indirect(Record):
    """A dimension of ``emit_pipeline`` whose ``block_size`` elements an array of indices selects."""

    block_size: int

    def __repr__(self) -> str:
        return f"Indirect({self.block_size})"


BlockDim = Element | Squeezed | Blocked | BoundedSlice | Indirect
squeezed = Squeezed()


class RevisitMode(enum.Enum):
    """When a block of an output may be visited again: in the next cell, or in any."""

    IMMEDIATE = "immediate"
    ANY = "any"


class Buffered(Record):
    """How many buffers a pipeline has for a block: a hint, which changes no result."""

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


class NoBlockSpec:
    """No spec: the whole array, for every cell."""

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


class BlockSpec:
    """Which block of an array each cell of the grid sees.

    ``block_shape`` has an int, None or a ``BlockDim`` for each dimension; None alone stands for the whole array.
    ``index_map`` takes the cell's position on the grid (and the references to scalars that are fetched before) and
    gives an index for each dimension; None stands for zeros.

    >>> spec = pallas.BlockSpec((8, None), lambda i, j: (i, j))
    >>> spec.block_shape, spec.index_map(2, 3)
    ((8, None), (2, 3))
    """

    __module__ = "weft.experimental.pallas"

    def __init__(
        self,
        block_shape: Sequence[BlockDim | int | None] | None = None,
        index_map: Callable[..., Any] | None = None,
        pipeline_mode: Any = None,
        *,
        memory_space: Any = None,
    ) -> None:
        if callable(block_shape):
            raise TypeError(
                "[BlockSpec] block_shape comes before index_map: BlockSpec(block_shape, index_map); got "
                f"{block_shape!r} as block_shape"
            )
        self.block_shape = None if block_shape is None else tuple([_dimension(size) for size in block_shape])
        self.index_map = index_map
        self.pipeline_mode = pipeline_mode
        self.memory_space = memory_space

    def replace(self, **changes: Any) -> BlockSpec:
        """A copy with some fields changed."""
        made = copy.copy(self)
        for name, value in changes.items():
            if name not in vars(self):
                raise TypeError(f"[BlockSpec] there is no field {name!r}: there are {', '.join(vars(self))}")
            setattr(made, name, value)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockSpec) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.block_shape, self.index_map, self.memory_space))

    def __repr__(self) -> str:
        return (
            f"BlockSpec(block_shape={self.block_shape}, index_map={self.index_map}, "
            f"memory_space={self.memory_space}, pipeline_mode={self.pipeline_mode})"
        )


def _dimension(size: Any) -> Any:
    """An entry of a block shape, as the user wrote it; TypeError and ValueError for what is none."""
    if size is None or isinstance(size, BlockDim):
        extent = getattr(size, "block_size", 1)
    else:
        try:
            extent = size = operator.index(size)
        except TypeError as error:
            raise TypeError(
                "[BlockSpec] an entry of block_shape is an int, None (one element, squeezed), Blocked, Element, "
                f"Squeezed, BoundedSlice or Indirect; got {size!r}"
            ) from error
    if extent < 0:
        raise ValueError(f"[BlockSpec] an extent of a block must not be negative, got {size!r}")
    return size


class GridSpec:
    """A grid and the specs over it, for the ``grid_spec`` of ``pallas_call``.

    ``grid`` is an int or a sequence of them, or of pairs ``(name, int)``; ``in_specs`` and ``out_specs`` are trees of
    BlockSpecs; ``scratch_shapes`` is a tree of what cells have in common that is no input and no output.
    """

    __module__ = "weft.experimental.pallas"
    num_scalar_prefetch = 0

    def __init__(
        self, grid: Any = (), in_specs: Any = no_block_spec, out_specs: Any = no_block_spec, scratch_shapes: Any = ()
    ) -> None:
        self.grid, self.grid_names = _grid(grid)
        self.in_specs = tuple(in_specs) if isinstance(in_specs, list) else in_specs
        self.out_specs = tuple(out_specs) if isinstance(out_specs, list) else out_specs
        self.scratch_shapes = tuple(scratch_shapes) if isinstance(scratch_shapes, list) else scratch_shapes
        if not isinstance(self.in_specs, (tuple, NoBlockSpec)):
            raise ValueError(f"`in_specs` must be a tuple or a list, found: {in_specs}")

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={value!r}" for name, value in vars(self).items()])
        return f"{type(self).__name__}({fields})"


def _grid(grid: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """(extents, their names or None)."""
    extents: list[Any] = list(grid) if isinstance(grid, (tuple, list)) else [grid]
    names: list[Any] = []
    if extents and all(isinstance(extent, tuple) for extent in extents):
        names = [name for name, _ in extents]
        extents = [extent for _, extent in extents]
    return tuple([_extent(extent) for extent in extents]), tuple(names) or None


def _extent(extent: Any) -> Any:
    """An int, or a traced integer scalar."""
    try:
        known = operator.index(extent)
    except TypeError:
        dtype = getattr(extent, "dtype", None)
        if getattr(extent, "shape", None) != () or getattr(dtype, "kind", "") not in ("i", "u"):
            raise TypeError(f"an extent of the grid is an int or a traced integer scalar, got {extent!r}") from None
        return extent
    if known < 0:
        raise ValueError(f"an extent of the grid must not be negative, got {known}")
    return known
