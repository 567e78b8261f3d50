"""Collectives over named axes: sums, extrema and indices over the elements that ``vmap`` maps over.

Inside a mapped function an axis is known by its name (``core.axis_names``); the ``vmap`` of that name replaces a
collective by an operation along its dimension. Integers among the axes are dimensions of the operand itself::

    psum[axes=('i',)] a:f32[]     under vmap(axis_name="i") of size 3     psum[axes=(0,)] a:f32[3]     a sum over axis 0
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft.core import axis_names, kinds
from weft.core.avals import get_aval
from weft.core.axis_names import Axis
from weft.core.primitive import ALL, Primitive
from weft.core.tracer import Tracer
from weft.operations import arithmetic, assemble, convert, logic, reductions, shape
from weft.operations.mapped import Dim
from weft.operations.static import canonical_axis

__all__ = [
    "axis_index",
    "axis_index_p",
    "axis_size",
    "pbroadcast",
    "pmax",
    "pmax_p",
    "pmean",
    "pmin",
    "pmin_p",
    "psum",
    "psum_p",
]

Array = Any
ArrayLike = Any
AxisName = Hashable
Groups = Sequence[Sequence[int]] | None


# -- axes and groups --------------------------------------------------------------------------------------------------


def checked_groups(groups: Groups) -> tuple[tuple[int, ...], ...] | None:
    """Groups of indices as tuples; ValueError unless they contain every index exactly once."""
    if groups is None:
        return None
    found = tuple([tuple(group) for group in groups])
    members = [index for group in found for index in group]
    if set(members) != set(range(len(members))):
        raise ValueError(f"axis_index_groups must cover all indices exactly once, got {groups}")
    return found


def no_groups(name: str, groups: Any) -> None:
    if groups is not None:
        raise NotImplementedError(
            f"[{name}] axis_index_groups not supported in vmap collectives: give the groups an axis of their own, by a "
            "reshape and a vmap inside the other, and name that"
        )


def extent(axis_name: Any, groups: Any = None) -> int:
    """The number of elements that a collective combines."""
    return axis_names.size(axis_names.as_tuple(axis_name)) if groups is None else len(groups[0])


def unresolved(name: str) -> Callable[..., Any]:
    """A function that raises the error for a collective evaluated outside the ``vmap`` of its axis."""

    def expand(*operands: Any, **params: Any) -> Any:
        names = ", ".join([repr(axis) for axis in named(params)])
        raise NameError(
            f"[{name}] the axis {names} is not mapped where this is evaluated: collectives are computed by the vmap "
            "that names their axis"
        )

    return expand


def named(params: dict[str, Any]) -> tuple[Any, ...]:
    """The names among the axes of a collective; ints among the axes of a reduction are positions."""
    if "axes" in params:
        return tuple([axis for axis in params["axes"] if not isinstance(axis, int)])
    return axis_names.as_tuple(params["axis_name"])


def collective(name: str, typing: Callable[..., Any], batch: Callable[..., Any], expand: Any = None) -> Primitive:
    """A primitive whose axes are in its parameter ``axes`` or ``axis_name``. ``typing(*avals, **params) -> aval``."""
    primitive = Primitive(name, kinds.Resolve(expand=expand or unresolved(name)), memoize=False)

    def typed(*in_avals: Any, **params: Any) -> tuple[Any, Any]:
        names = named(params)
        axis_names.check(names, name)
        return typing(*in_avals, **params), axis_names.effects(names)

    primitive.def_effectful_abstract_eval(typed)
    primitive.axis_names = named
    primitive.batch_axis = batch
    return primitive


# -- sums and extrema -------------------------------------------------------------------------------------------------


def _reduced(x: Any, *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
    positions = [axis for axis in axes if isinstance(axis, int)]
    sizes = tuple([n for d, n in enumerate(x.shape) if d not in positions])
    return runtime.ShapedArray(sizes, x.dtype, False)


def _reducer(name: str, reduce: Callable[..., Any], of_equal: Callable[[Any, int], Any]) -> Primitive:
    """Declare a reduction across elements. ``of_equal(x, n)`` is its result for n equal values x."""

    def expand(x: Any, *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
        if any(not isinstance(axis, int) for axis in axes):
            return unresolved(name)(x, axes=axes)
        return reduce(x, axes)

    def batch(axis: Axis, values: list[Any], dims: list[Dim], *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
        (x,), (dim,) = values, dims
        mine = axis.name is not None and axis.name in axes
        others = axis_names.without(axes, axis.name) if mine else axes
        if dim is None:
            if mine:
                no_groups(name, axis_index_groups)
                x = of_equal(x, axis.size)
            return (primitive.bind(x, axes=others, axis_index_groups=axis_index_groups) if others else x), None
        moved = tuple([a + (a >= dim) if isinstance(a, int) else a for a in others])
        if mine:
            no_groups(name, axis_index_groups)
            moved = (*moved[: axes.index(axis.name)], dim, *moved[axes.index(axis.name) :])
        out = primitive.bind(x, axes=moved, axis_index_groups=axis_index_groups)
        return out, None if mine else dim - sum([isinstance(a, int) and a < dim for a in moved])

    primitive = collective(name, _reduced, batch, expand)
    return primitive


def times(x: Any, count: int) -> Any:
    aval = get_aval(x)
    kind: Any = {"i": int, "f": float, "c": builtins.complex}.get(aval.dtype.kind) if aval.weak_type else None
    return arithmetic.mul(kind(count) if kind else aval.dtype.type(count), x)


psum_p = _reducer("psum", reductions.reduce_sum, times)
psum_p.linear = ALL


def _psum_transpose(ct: Any, x: Any, *, axes: tuple[Any, ...], axis_index_groups: Any) -> tuple[Any]:
    names = tuple([axis for axis in axes if not isinstance(axis, int)])
    sizes = x.aval.shape
    if len(names) < len(axes):
        ct = shape.broadcast_in_dim(ct, sizes, [d for d in range(len(sizes)) if d not in axes])
    return (psum_p.bind(ct, axes=names, axis_index_groups=axis_index_groups) if names else ct,)


psum_p.transpose = _psum_transpose


def _same(x: Any, count: int) -> Any:
    return x


def _extremum(name: str, reduce: Callable[..., Any]) -> Primitive:
    primitive = _reducer(name, reduce, _same)

    def along_positions(x: Any, *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
        if any(not isinstance(axis, int) for axis in axes):
            raise NotImplementedError(f"Differentiation rule for '{name}' not implemented")
        return reduce(x, axes)

    primitive.expansion, primitive.transpose = along_positions, None
    return primitive


pmax_p = _extremum("pmax", reductions.reduce_max)
pmin_p = _extremum("pmin", reductions.reduce_min)


def _axes_of(axis_name: Any, groups: Groups) -> tuple[Any, ...]:
    axes = axis_names.as_tuple(axis_name)
    if groups is not None and any(isinstance(axis, int) for axis in axes):
        raise ValueError("axis_index_groups only supported for sums over just named axes")
    return axes


def each_leaf(x: Any, function: Callable[[Any], Any]) -> Any:
    leaves, treedef = runtime.tree_flatten(x)
    return runtime.tree_unflatten(treedef, [function(checked_leaf(leaf)) for leaf in leaves])


def checked_leaf(leaf: Any) -> Any:
    """A leaf of a collective's operand; TypeError if it is no array."""
    try:
        get_aval(leaf)
    except TypeError:
        raise TypeError(f"Argument {leaf!r} of type {type(leaf)} is not a valid JAX type") from None
    return leaf


def _canonical(axes: tuple[Any, ...], x: Any, name: str) -> tuple[Any, ...]:
    rank = get_aval(x).ndim
    return tuple([canonical_axis(axis, rank, name) if isinstance(axis, int) else axis for axis in axes])


def psum(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The sum over the elements along named axes, the same for all of them; of each leaf of ``x``.

    ``axis_name``: one name or several; ints are axes of the operand. A Python number is multiplied by the extent at
    once, so that ``psum(1, "i")`` is an int. Booleans are counted. NameError for a name that no ``vmap`` binds;
    NotImplementedError for ``axis_index_groups`` under ``vmap``.

    >>> weft.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(jnp.float32([1, 1, 2])).tolist()
    [0.25, 0.25, 0.5]
    """
    axes = _axes_of(axis_name, axis_index_groups)
    if not axes:
        return x
    groups = checked_groups(axis_index_groups)

    def one(leaf: Any) -> Any:
        if get_aval(leaf).dtype == np.bool_:
            leaf = convert.convert(leaf, np.dtype(np.int32), False)
        if not isinstance(leaf, Tracer) and not any(isinstance(axis, int) for axis in axes):
            count = extent(axes, groups)
            if isinstance(leaf, (np.ndarray, np.generic)):
                return np.multiply(leaf, leaf.dtype.type(count))
            return leaf * count if type(leaf) in (int, float, builtins.complex) else times(leaf, count)
        return psum_p.bind(leaf, axes=_canonical(axes, leaf, "psum"), axis_index_groups=groups)

    return each_leaf(x, one)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The mean over the elements along named axes, the same for all of them; of each leaf of ``x``.

    >>> weft.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.float32([1, 2, 3])).tolist()
    [-1.0, 0.0, 1.0]
    """
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    leaves, treedef = runtime.tree_flatten(total)
    return runtime.tree_unflatten(treedef, [leaf / count for leaf in leaves])


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The maximum over the elements along named axes, the same for all of them; of each leaf of ``x``.

    >>> weft.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.float32([1, 3, 2])).tolist()
    [3.0, 3.0, 3.0]
    """
    return _extreme(pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The minimum over the elements along named axes, the same for all of them; of each leaf of ``x``.

    >>> weft.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.float32([2, 1, 3])).tolist()
    [1.0, 1.0, 1.0]
    """
    return _extreme(pmin_p, x, axis_name, axis_index_groups)


def _extreme(primitive: Primitive, x: Any, axis_name: Any, axis_index_groups: Groups) -> Any:
    axes = _axes_of(axis_name, axis_index_groups)
    groups = checked_groups(axis_index_groups)

    def one(leaf: Any) -> Any:
        return primitive.bind(leaf, axes=_canonical(axes, leaf, primitive.name), axis_index_groups=groups)

    return each_leaf(x, one)


# -- the index of an element -------------------------------------------------------------------------------------------


def _axis_index_batch(axis: Axis, values: list[Any], dims: list[Dim], *, axis_name: Any) -> Any:
    if axis_name != axis.name:
        return axis_index_p.bind(axis_name=axis_name), None
    return assemble.iota(np.int32, axis.size), 0


axis_index_p = collective(
    "axis_index", lambda *, axis_name: runtime.ShapedArray((), np.dtype(np.int32), False), _axis_index_batch
)
axis_index_p.jvp, axis_index_p.transpose = None, None


def axis_index(axis_name: Any) -> Array:
    """The position of this element along a named axis, an int32; along several, in row-major order.

    >>> weft.vmap(lambda x: x * lax.axis_index("i"), axis_name="i")(jnp.ones(3)).tolist()
    [0.0, 1.0, 2.0]
    """
    if not isinstance(axis_name, (tuple, list)):
        return axis_index_p.bind(axis_name=axis_name)
    index: Any = np.int32(0)
    inner = 1
    for name in reversed(axis_name):
        index = arithmetic.add(index, arithmetic.mul(axis_index(name), np.int32(inner)))
        inner *= axis_size(name)
    return index


def axis_size(axis_name: Any) -> int:
    """The extent of a named axis; of several, the product.

    >>> weft.vmap(lambda x: x * lax.axis_size("i"), axis_name="i")(jnp.ones(3)).tolist()
    [3.0, 3.0, 3.0]
    """
    return psum(1, axis_name)


# -- the value of one element for all ----------------------------------------------------------------------------------


def _pbroadcast_batch(axis: Axis, values: list[Any], dims: list[Dim], *, axis_name: Any, source: int) -> Any:
    (x,), (dim,) = values, dims
    names = axis_names.as_tuple(axis_name)
    if axis.name is None or axis.name not in names:
        return pbroadcast_p.bind(x, axis_name=axis_name, source=source), dim
    if len(names) > 1:
        raise NotImplementedError(f"[pbroadcast] over several named axes, {names}: name one at a time")
    if not 0 <= source < axis.size:
        raise ValueError(f"[pbroadcast] source {source} is not an index of the axis {axis.name!r}, of size {axis.size}")
    return (x if dim is None else shape.index_in_dim(x, source, dim, keepdims=False)), None


pbroadcast_p = collective("pbroadcast", lambda x, **params: x, _pbroadcast_batch)
pbroadcast_p.linear = ALL


def _pbroadcast_transpose(ct: Any, x: Any, *, axis_name: Any, source: int) -> tuple[Any]:
    """The source gets the sum of the cotangents."""
    total = psum(ct, axis_name)
    here = logic.eq(axis_index(axis_name), np.int32(source))
    return (logic.select(here, total, assemble.full_like(total, 0)),)


pbroadcast_p.transpose = _pbroadcast_transpose


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value that the element ``source`` of a named axis has, for all of them; of each leaf of ``x``.

    >>> weft.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(jnp.float32([5, 6, 7])).tolist()
    [6.0, 6.0, 6.0]
    """
    return each_leaf(x, lambda leaf: pbroadcast_p.bind(leaf, axis_name=axis_name, source=source))
