"""Named axes: the dimensions that ``vmap`` maps over, known to the mapped function by name.

While a mapped function is traced, its axis is bound on this thread; ``size`` and ``check`` look there. A trace may hold
the size of an axis as a constant, so that bound axes are part of the key of the trace cache (``config.axes_bound``). An
equation that refers to a name carries a ``NamedAxis`` effect until the ``vmap`` of that name resolves it::

    vmap(lambda x: psum(x, "i"), axis_name="i")        psum[axes=('i',)] a:f32[]   ->   psum[axes=(0,)] a:f32[3]
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from weft import config
from weft._base.record import NamedTuple
from weft.core.effects import Effect
from weft.core.programs.jaxpr import jaxprs_in_params


class Axis(NamedTuple):
    """A mapped dimension: its extent, its name if it has one, and the mesh axes along which it lies (JAX's word)."""

    size: int
    name: Hashable | None = None
    spmd_name: tuple[Hashable, ...] | None = None

    explicit_mesh_axis = None  # JAX's word


class ManualExtent(int):
    """The extent of an axis of a mesh whose shards the program inside works on; equal only to its like, so that traces
    inside a ``shard_map`` are told apart from those under a ``vmap`` of the same name."""

    def __eq__(self, other: object) -> bool:
        return type(other) is ManualExtent and int(self) == int(other)

    def __hash__(self) -> int:
        return hash((ManualExtent, int(self)))


class CellExtent(int):
    """The extent of a named axis of a grid, whose kernel is being traced, and the number of the cell along it.

    A traced extent, which has no value, counts as -1; ``size`` refuses it.
    """

    number: Any

    def __new__(cls, extent: Any, number: Any) -> CellExtent:
        made = super().__new__(cls, extent if isinstance(extent, int) else -1)
        made.number = number
        return made

    def __eq__(self, other: object) -> bool:
        return type(other) is CellExtent and self.number is other.number

    def __hash__(self) -> int:
        return hash((CellExtent, int(self)))


class NamedAxis(Effect):
    """An equation computes across the elements of a named axis."""

    removable = True

    def __init__(self, name: Hashable) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedAxis) and self.name == other.name

    def __hash__(self) -> int:
        return hash((NamedAxis, self.name))

    def __repr__(self) -> str:
        return f"NamedAxisEffect({self.name})"


class Exchange(Effect):
    """An equation sends values from one element of a named axis to another, so that all have to run it."""

    removable = True

    def __repr__(self) -> str:
        return "Exchange"


EXCHANGE = Exchange()


def bound(axes: Iterable[tuple[Hashable, int]]) -> Any:
    """A context manager inside which these names are bound; they hide outer bindings of the same names."""
    return config.axes_bound(tuple(axes))


def bound_axis(axis: Axis) -> Any:
    """``bound`` for one mapped dimension, which need not have a name."""
    return config.axes_bound(() if axis.name is None else ((axis.name, axis.size),))


def _find(name: Hashable) -> int | None:
    for known, extent in reversed(config.bound_axes()):
        if known == name:
            return extent
    return None


def is_manual(name: Hashable) -> bool:
    """Whether a bound name is that of a mesh axis."""
    return type(_find(name)) is ManualExtent


def cell_number(name: Hashable) -> Any:
    """The number of the cell along an axis of a grid of this name; None if the name is bound to something else."""
    extent = _find(name)
    return extent.number if type(extent) is CellExtent else None


def size(names: Iterable[Hashable]) -> int:
    """The product of the extents of named axes; NameError for a name that is not bound."""
    extents = []
    for name in names:
        extent = _find(name)
        if extent is None:
            raise NameError(f"unbound axis name: {name}")
        if extent < 0:
            raise NotImplementedError(
                f"the axis {name} of a grid has a traced extent, which is no int: ask for pallas.num_programs(axis)"
            )
        extents.append(int(extent))
    return math.prod(extents)


def check(names: Iterable[Any], operation: str) -> None:
    """NameError if a name is not bound."""
    for name in names:
        if _find(name) is None:
            known = ", ".join([repr(axis) for axis, _ in config.bound_axes()]) or "none"
            raise NameError(
                f"Found an unbound axis name: {name}. To fix this, please call {operation} under "
                f"`shard_map` over a mesh with that axis, or `vmap(..., axis_name={name!r})`. Bound here: {known}."
            )


def effects(names: Iterable[Any]) -> frozenset[Effect]:
    """The effects of an equation that refers to these names."""
    return frozenset([NamedAxis(name) for name in names])


def concerned(primitive: Any, params: dict[str, Any], name: Hashable) -> bool:
    """Whether an equation, or a jaxpr inside it, refers to a named axis, or may do so in its rule."""
    if primitive.has_hidden_rules:
        return True
    if primitive.axis_names is not None:
        return name in primitive.axis_names(params)
    effect = NamedAxis(name)
    return any(effect in jaxpr.effects for jaxpr in jaxprs_in_params(params))


def as_tuple(names: Any) -> tuple[Any, ...]:
    """One name or several, as a tuple."""
    return tuple(names) if isinstance(names, (tuple, list)) else (names,)


def without(names: Sequence[Any], name: Hashable) -> tuple[Any, ...]:
    return tuple([other for other in names if other != name])
