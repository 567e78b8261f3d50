"""What a kernel asks about the cell of the grid that it runs on: ``program_id`` and ``num_programs``.

While a kernel or an index map is traced, its grid is noted on this thread; the numbers of the cell are values of that
trace.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.core import axis_names
from weft.effects import refs
from weft.experimental.pallas import spaces


class Grid(NamedTuple):
    """The grid of the kernel that is being traced: extents, the numbers of the cell, names of the axes (or None)."""

    extents: Sequence[Any]
    numbers: Sequence[Any]
    names: Sequence[Any] | None = None


class _Grids(threading.local):
    def __init__(self) -> None:
        self.known: list[Grid | None] = []


_grids = _Grids()


@contextlib.contextmanager
def on(grid: Grid | None) -> Iterator[None]:
    """A context in which ``program_id`` gives the numbers of a cell of this grid; with None (index maps) it raises."""
    named: Any = contextlib.nullcontext()
    if grid is not None and grid.names is not None:
        pairs = zip(grid.extents, grid.numbers, strict=True)
        sizes = [axis_names.CellExtent(extent, number) for extent, number in pairs]
        named = axis_names.bound(zip(grid.names, sizes, strict=True))
    _grids.known.append(grid)
    try:
        with named:
            yield
    finally:
        _grids.known.pop()


def _entry(name: str, axis: Any) -> tuple[Grid, int]:
    grid = _grids.known[-1] if _grids.known else None
    if grid is None:
        where = "an index map, which takes them as arguments" if _grids.known else "code outside of a kernel"
        raise ValueError(f"pallas.{name} is called in {where}: numbers of cells are known to the kernel of pallas_call")
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"pallas.{name} takes the number of an axis of the grid, an int, got {axis!r}")
    if not 0 <= axis < len(grid.extents):
        raise ValueError(f"[{name}] axis must be in [0, {len(grid.extents)}), the axes of the grid; got {axis}")
    return grid, axis


def program_id(axis: int) -> Any:
    """The number of the cell along an axis of the grid, an int32 from 0 on.

    >>> def kernel(out_ref):
    ...     out_ref[pallas.program_id(0)] = 10 * pallas.program_id(0)
    >>> pallas.pallas_call(kernel, weft.ShapeDtypeStruct((3,), "int32"), grid=3)()
    Array([ 0, 10, 20], dtype=int32)
    """
    grid, axis = _entry("program_id", axis)
    return grid.numbers[axis]


def num_programs(axis: int) -> Any:
    """The extent of the grid along an axis."""
    grid, axis = _entry("num_programs", axis)
    return grid.extents[axis]


# -- references that all cells share ----------------------------------------------------------------------------------


class _Shared(threading.local):
    """The references that ``get_global`` gives while a kernel is traced, in order, and what was asked for."""

    def __init__(self) -> None:
        self.given: list[Any] | None = None
        self.asked: list[Any] = []
        self.named: dict[str, int] = {}  # the indices of those with a name


_shared = _Shared()


@contextlib.contextmanager
def sharing(given: Sequence[Any]) -> Iterator[list[Any]]:
    """Within, ``get_global`` gives these references in turn; yields the list of what is asked for."""
    before = (_shared.given, _shared.asked, _shared.named)
    _shared.given, _shared.asked, _shared.named = list(given), [], {}
    try:
        yield _shared.asked
    finally:
        _shared.given, _shared.asked, _shared.named = before


def get_global(what: Any) -> Any:
    """A reference that all cells of the grid share, one for each call; ``what`` is as for ``run_scoped``.

    Semaphores are zero when the first cell begins, arrays undefined.
    """
    if _shared.given is None:
        raise ValueError(
            "pallas.get_global is called outside of a kernel of pallas_call; core_map has `scratch_shapes`"
        )
    kind = spaces.ref_type(what, "get_global")
    _shared.asked.append(kind)
    return _given(len(_shared.asked) - 1)


def _given(index: int) -> Any:
    assert _shared.given is not None
    if index < len(_shared.given):
        return _shared.given[index]
    # the kernel is traced again, with this one among its operands
    return refs.new_ref(spaces.first_value(_shared.asked[index]))


def shared(name: str, what: Any) -> Any:
    """The reference of this name, one for a kernel, that all of its cells share."""
    index = _shared.named.get(name)
    if index is not None:
        return _given(index)
    found = get_global(what)
    _shared.named[name] = len(_shared.asked) - 1
    return found
