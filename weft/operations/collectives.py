"""Collectives over named axes: sums, extrema and indices over the elements that ``vmap`` maps over.

Inside a mapped function an axis is known by its name (``core.axis_names``); the ``vmap`` of that name replaces a
collective by an operation along its dimension. Integers among the axes are dimensions of the operand itself::

    psum[axes=('i',)] a:f32[]     under vmap(axis_name="i") of size 3     psum[axes=(0,)] a:f32[3]     a sum over axis 0
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft.core import axis_names, kinds
from weft.core.avals import get_aval
from weft.core.axis_names import Axis
from weft.core.primitive import ALL, Primitive
from weft.core.sharding import varying
from weft.core.tracing.tracer import Tracer
from weft.operations import reductions
from weft.operations.data_movement import assemble, shape
from weft.operations.mapped import Dim, at, in_front, repeated
from weft.operations.pointwise import arithmetic, convert, logic
from weft.operations.static import canonical_axis
from weft.runtime import Array

__all__ = [
    "axis_index",
    "axis_index_p",
    "axis_size",
    "pbroadcast",
    "pcast",
    "pmax",
    "pmax_p",
    "pmean",
    "pmin",
    "pmin_p",
    "psum",
    "psum_p",
]

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


def by_groups(
    batch: Callable[..., Any], axis: Axis, x: Any, dim: Dim, groups: tuple[tuple[int, ...], ...], **params: Any
) -> tuple[Any, Dim]:
    """A collective within groups of the elements: its rule for the whole axis, on elements in the order of the groups.

    Groups become the first dimension of the values, so that dimensions among the parameters are counted on by one.
    """
    size = len(groups[0]) if groups else 0
    if any(len(group) != size for group in groups):
        raise NotImplementedError(f"axis_index_groups of different sizes, {groups}: give all groups the same size")
    order = [index for group in groups for index in group]
    if len(order) != axis.size:
        raise ValueError(
            f"axis_index_groups must cover all indices exactly once, got {groups} for axis {axis.name!r} of size "
            f"{axis.size}"
        )
    x = in_front(axis.size, x, dim)
    if order != sorted(order):
        x = _rows_in_order(x, order)
    x = shape.reshape(x, (len(groups), size, *get_aval(x).shape[1:]))
    shifted = {name: value + 1 if name in _DIMENSIONS else value for name, value in params.items()}
    out, out_dim = batch(Axis(size, axis.name), [x], [1], axis_index_groups=None, **shifted)
    out = repeated(size, out, 1) if out_dim is None else at(out, out_dim, 1)
    out = shape.reshape(out, (axis.size, *get_aval(out).shape[2:]))
    if order != sorted(order):
        out = _rows_in_order(out, [order.index(index) for index in range(len(order))])
    return out, 0


_DIMENSIONS = ("all_gather_dimension", "scatter_dimension", "split_axis", "concat_axis")


def _rows_in_order(x: Any, order: Sequence[int]) -> Any:
    return assemble.concatenate([shape.slice_in_dim(x, index, index + 1, 1, 0) for index in order], 0)


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


def collective(
    name: str, typing: Callable[..., Any], batch: Callable[..., Any], expand: Any = None, cls: type = Primitive
) -> Primitive:
    """A primitive whose axes are in its parameter ``axes`` or ``axis_name``. ``typing(*avals, **params) -> aval``."""
    primitive = cls(name, kinds.Resolve(expand=expand or unresolved(name)), memoize=False)

    def typed(*in_avals: Any, **params: Any) -> tuple[Any, Any]:
        names = named(params)
        axis_names.check(names, name)
        return typing(*in_avals, **params), axis_names.effects(names)

    primitive.def_effectful_abstract_eval(typed)
    primitive.axis_names = named
    primitive.batch_axis = batch
    primitive.varying = functools.partial(_still_varying, name)
    return primitive


def _still_varying(name: str, axes: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """The axes along which the result of a collective differs: those of its operand."""
    missing = [axis for axis in named(params) if axis not in axes and varying.is_checked(axis)]
    if missing:
        raise ValueError(
            f"[{name}] the operand must differ along the mesh axes {missing}, but its type says that it differs along "
            f"{axes}: apply lax.pcast(x, {tuple(missing)}, to='varying') to it"
        )
    return axes


def same_after(name: str, axes: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """The axes along which a result differs that is the same along the axes of the collective."""
    over = named(params) if params.get("axis_index_groups") is None else ()
    return tuple([axis for axis in _still_varying(name, axes, params) if axis not in over])


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
        if dims[0] is not None and axis.name is not None and axis.name in axes and axis_index_groups is not None:
            return by_groups(whole, axis, values[0], dims[0], axis_index_groups, axes=axes)
        return whole(axis, values, dims, axes=axes, axis_index_groups=axis_index_groups)

    def whole(axis: Axis, values: list[Any], dims: list[Dim], *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
        (x,), (dim,) = values, dims
        mine = axis.name is not None and axis.name in axes
        others = axis_names.without(axes, axis.name) if mine else axes
        if dim is None:
            if mine:
                x = of_equal(x, axis.size if axis_index_groups is None else len(axis_index_groups[0]))
                axis_index_groups = None
            return (primitive.bind(x, axes=others, axis_index_groups=axis_index_groups) if others else x), None
        moved = tuple([a + (a >= dim) if isinstance(a, int) else a for a in others])
        if mine:
            moved = (*moved[: axes.index(axis.name)], dim, *moved[axes.index(axis.name) :])
        out = primitive.bind(x, axes=moved, axis_index_groups=axis_index_groups)
        return out, None if mine else dim - sum([isinstance(a, int) and a < dim for a in moved])

    primitive = collective(name, _reduced, batch, expand)
    primitive.between = _reduced_between(reduce, name.removeprefix("p"))
    return primitive


def _reduced_between(reduce: Callable[..., Any], combiner: str) -> Callable[..., Any]:
    """A reduction across processes, in their order."""

    def between(exchanges: Any, n: int, x: Any, *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
        if axis_index_groups is not None:
            return NotImplemented
        positions = tuple([axis for axis in axes if isinstance(axis, int)])
        return exchanges.reduce(reduce(x, positions) if positions else x, combiner)

    return between


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


# In the program of a shard whose types say what differs between devices, psum_invariant replaces psum, and
# pvary lets a value that is the same everywhere count as one that differs. Each is the transpose of the other.


def _psum_invariant_batch(axis: Axis, values: list[Any], dims: list[Dim], *, axes: tuple[Any, ...]) -> Any:
    if axis.name is not None and axis.name in axes:
        return psum_p.batch_axis(axis, values, dims, axes=axes, axis_index_groups=None)
    return psum_invariant_p.bind(*values, axes=axes), dims[0]


def _pvary_batch(axis: Axis, values: list[Any], dims: list[Dim], *, axes: tuple[Any, ...]) -> Any:
    others = axis_names.without(axes, axis.name) if axis.name is not None else axes
    return (pvary_p.bind(*values, axes=others) if others else values[0]), dims[0]


class _Cast(Primitive):
    """``pvary``, which is nothing along axes along which the operand differs already."""

    def bind(self, *args: Any, axes: tuple[Any, ...], **params: Any) -> Any:
        others = tuple([axis for axis in axes if axis not in get_aval(args[0]).varying])
        return super().bind(*args, axes=others, **params) if others else args[0]


def _more_varying(axes: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    return varying.ordered([*axes, *params["axes"]])


def _psum_invariant_transpose(ct: Any, x: Any, *, axes: tuple[Any, ...]) -> tuple[Any]:
    return (pvary_p.bind(ct, axes=axes),)


def _pvary_transpose(ct: Any, x: Any, *, axes: tuple[Any, ...]) -> tuple[Any]:
    return (psum_invariant_p.bind(varying.widened(ct, axes), axes=axes),)


psum_invariant_p = collective("psum_invariant", lambda x, *, axes: x, _psum_invariant_batch)
psum_invariant_p.varying = functools.partial(same_after, "psum_invariant")
psum_invariant_p.linear, psum_invariant_p.transpose = ALL, _psum_invariant_transpose
pvary_p = collective(
    "pvary", lambda x, *, axes: x.update(varying=_more_varying(x.varying, {"axes": axes})), _pvary_batch, cls=_Cast
)
pvary_p.varying = _more_varying
pvary_p.linear, pvary_p.transpose = ALL, _pvary_transpose
AGREEMENT = varying.Agreement(lambda x, axes: pvary_p.bind(x, axes=axes))
_CASTS = ("varying", "reduced", "unreduced")


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """``x`` with a type that says that its values differ along mesh axes; leaf by leaf. Nothing is computed.

    Inside ``shard_map``, where types say along which axes values differ. ``to`` is "varying". ValueError if a leaf
    differs along one of the axes already, TypeError for a set of axes; NotImplementedError for partial sums
    (``to="unreduced"`` and "reduced").

    >>> mesh, P = weft.sharding.AbstractMesh((2,), ("i",)), weft.sharding.PartitionSpec
    >>> f = weft.shard_map(lambda x: lax.pcast(x, "i", to="varying"), mesh=mesh, in_specs=P(), out_specs=P("i"))
    >>> f(jnp.float32([1])).tolist()
    [1.0, 1.0]
    """
    if isinstance(axis_name, (set, frozenset)):
        raise TypeError(f"[pcast] axis_name is a name or a tuple of names, got {axis_name!r}")
    if to not in _CASTS:
        raise ValueError(f"[pcast] `to` is one of {_CASTS}, got {to!r}")
    names = axis_names.as_tuple(axis_name)
    if not names:
        return x
    axis_names.check(names, "pcast")
    if to != "varying":
        raise NotImplementedError(f"[pcast] to={to!r}: weft has no types of partial sums, only what varies")

    def one(leaf: Any) -> Any:
        found = [name for name in names if name in get_aval(leaf).varying]
        if found:
            raise ValueError(f"[pcast] a value of type {get_aval(leaf).str_short()} varies along {found} already")
        return varying.widened(leaf, [name for name in names if varying.is_checked(name)])

    return each_leaf(x, one)


def _same(x: Any, count: int) -> Any:
    return x


def _extremum(name: str, reduce: Callable[..., Any]) -> Primitive:
    primitive = _reducer(name, reduce, _same)

    def along_positions(x: Any, *, axes: tuple[Any, ...], axis_index_groups: Any) -> Any:
        if any(not isinstance(axis, int) for axis in axes):
            raise NotImplementedError(f"Differentiation rule for '{name}' not implemented")
        return reduce(x, axes)

    primitive.expansion, primitive.transpose = along_positions, None
    primitive.varying = functools.partial(same_after, name)
    return primitive


pmax_p = _extremum("pmax", reductions.reduce_max)
pmin_p = _extremum("pmin", reductions.reduce_min)


def _axes_of(axis_name: Any, groups: Groups) -> tuple[Any, ...]:
    axes = axis_names.as_tuple(axis_name)
    if len({*axes}) < len(axes):
        raise ValueError(f"duplicate value in 'axes' of reduction: {axes}; name each axis once")
    if groups is not None and any(isinstance(axis, int) for axis in axes):
        raise ValueError("axis_index_groups only supported for sums over just named axes")
    return axes


def each_leaf(x: Any, function: Callable[[Any], Any], over: Any = ()) -> Any:
    """``function`` of each leaf, which is made to vary along the mesh axes among ``over``."""
    leaves, treedef = runtime.tree_flatten(x)
    checked = [name for name in axis_names.as_tuple(over) if varying.is_checked(name)]
    given = [checked_leaf(leaf) for leaf in leaves]
    return runtime.tree_unflatten(
        treedef, [function(varying.widened(leaf, checked) if checked else leaf) for leaf in given]
    )


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
    """The sum over the elements along named axes, the same for all of them; leaf by leaf.

    ``axis_name``: one name or several; ints are axes of the operand. A Python number is multiplied by the extent at
    once, so that ``psum(1, "i")`` is an int. Booleans are counted. NameError for a name that no ``vmap`` binds;
    NotImplementedError for ``axis_index_groups`` of different sizes.

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
        checked = tuple([axis for axis in axes if varying.is_checked(axis)])
        if checked:
            return _over_mesh(leaf, checked, tuple([axis for axis in axes if axis not in checked]), groups)
        return psum_p.bind(leaf, axes=_canonical(axes, leaf, "psum"), axis_index_groups=groups)

    return each_leaf(x, one)


def _over_mesh(x: Any, checked: tuple[Any, ...], others: tuple[Any, ...], groups: Any) -> Any:
    """The sum over mesh axes of what their types say differs, and over other axes."""
    if groups is not None:
        raise NotImplementedError(
            "[psum] axis_index_groups with types that say what varies: give shard_map the argument check_vma=False, or "
            "the mesh an axis for the groups"
        )
    total = psum_invariant_p.bind(varying.widened(x, checked), axes=checked)
    return psum(total, others) if others else total


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The mean over the elements along named axes, the same for all of them; leaf by leaf.

    >>> weft.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.float32([1, 2, 3])).tolist()
    [-1.0, 0.0, 1.0]
    """
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    leaves, treedef = runtime.tree_flatten(total)
    return runtime.tree_unflatten(treedef, [leaf / count for leaf in leaves])


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The maximum over the elements along named axes, the same for all of them; leaf by leaf.

    >>> weft.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.float32([1, 3, 2])).tolist()
    [3.0, 3.0, 3.0]
    """
    return _extreme(pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The minimum over the elements along named axes, the same for all of them; leaf by leaf.

    >>> weft.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.float32([2, 1, 3])).tolist()
    [1.0, 1.0, 1.0]
    """
    return _extreme(pmin_p, x, axis_name, axis_index_groups)


def _extreme(primitive: Primitive, x: Any, axis_name: Any, axis_index_groups: Groups) -> Any:
    axes = _axes_of(axis_name, axis_index_groups)
    groups = checked_groups(axis_index_groups)

    def one(leaf: Any) -> Any:
        return primitive.bind(leaf, axes=_canonical(axes, leaf, primitive.name), axis_index_groups=groups)

    return each_leaf(x, one, over=axes)


# -- the index of an element -------------------------------------------------------------------------------------------


def _axis_index_batch(axis: Axis, values: list[Any], dims: list[Dim], *, axis_name: Any) -> Any:
    if axis_name != axis.name:
        return axis_index_p.bind(axis_name=axis_name), None
    return assemble.iota(np.int32, axis.size), 0


def _axis_index_typing(*, axis_name: Any) -> Any:
    names = tuple([name for name in axis_names.as_tuple(axis_name) if varying.is_checked(name)])
    return runtime.ShapedArray((), np.dtype(np.int32), False, varying=names)


axis_index_p = collective("axis_index", _axis_index_typing, _axis_index_batch)
axis_index_p.jvp, axis_index_p.transpose = None, None
axis_index_p.between = lambda exchanges, n, *, axis_name: exchanges.rank()


def axis_index(axis_name: Any) -> Array:
    """The position of this element along a named axis, an int32; along several, in row-major order.

    >>> weft.vmap(lambda x: x * lax.axis_index("i"), axis_name="i")(jnp.ones(3)).tolist()
    [0.0, 1.0, 2.0]
    """
    if not isinstance(axis_name, (tuple, list)):
        number = axis_names.cell_number(axis_name)
        return axis_index_p.bind(axis_name=axis_name) if number is None else number
    index: Any = np.int32(0)
    inner = 1
    for name in reversed(axis_name):
        index = arithmetic.add(index, arithmetic.mul(axis_index(name), np.int32(inner)))
        inner *= axis_size(name)
    return index


def axis_size(axis_name: Any) -> int:
    """The extent of a named axis, or the product of several.

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
    if not 0 <= source < extent(names):
        raise ValueError(
            f"[pbroadcast] source {source} is not an index of the axis {axis_name!r}, of size {extent(names)}"
        )
    others, inner = axis_names.without(names, axis.name), extent(names[names.index(axis.name) + 1 :])
    digit = source // inner % axis.size
    mine = x if dim is None else shape.index_in_dim(x, digit, dim, keepdims=False)
    if others:
        rest = source // (inner * axis.size) * inner + source % inner
        mine = pbroadcast_p.bind(mine, axis_name=others, source=rest)
    return mine, None


pbroadcast_p = collective("pbroadcast", lambda x, **params: x, _pbroadcast_batch)
pbroadcast_p.linear = ALL


def _pbroadcast_transpose(ct: Any, x: Any, *, axis_name: Any, source: int) -> tuple[Any]:
    """The source gets the sum of the cotangents."""
    total = psum(ct, axis_name)
    here = logic.eq(axis_index(axis_name), np.int32(source))
    return (logic.select(here, total, assemble.full_like(total, 0)),)


pbroadcast_p.transpose = _pbroadcast_transpose


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value that the element ``source`` of a named axis has, for all of them; leaf by leaf.

    >>> weft.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(jnp.float32([5, 6, 7])).tolist()
    [6.0, 6.0, 6.0]
    """
    return each_leaf(x, lambda leaf: pbroadcast_p.bind(leaf, axis_name=axis_name, source=source), axis_name)
