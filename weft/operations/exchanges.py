"""Exchanges over named axes between the elements of a ``vmap``: all_gather, all_to_all, ppermute and others.

Several names together are one axis, in row-major order of the names. The ``vmap`` of one of them replaces its digit of
the index by a dimension, and leaves an exchange over the other names. After the last name, only moves of dimensions are
left.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft.core import axis_names
from weft.core.avals import get_aval
from weft.core.axis_names import Axis
from weft.core.primitive import ALL
from weft.core.sharding import varying
from weft.operations import collectives, reductions
from weft.operations.collectives import Groups, by_groups, checked_groups, collective, each_leaf, extent
from weft.operations.data_movement import assemble, index, shape
from weft.operations.data_movement.gather import GatherDimensionNumbers, gather
from weft.operations.mapped import Dim, at, in_front
from weft.operations.pointwise import arithmetic
from weft.operations.static import canonical_axis

__all__ = [
    "all_gather",
    "all_gather_p",
    "all_to_all",
    "all_to_all_p",
    "ppermute",
    "ppermute_p",
    "precv",
    "psend",
    "pshuffle",
    "psum_scatter",
    "pswapaxes",
]

_MOST_RUNS = 8  # a permutation of at most so many runs becomes slices, others a gather


def _split_dim(x: Any, dim: int, sizes: Sequence[int]) -> Any:
    extents = get_aval(x).shape
    return shape.reshape(x, (*extents[:dim], *sizes, *extents[dim + 1 :]))


def _merge_dims(x: Any, dim: int) -> Any:
    """Merge dimension ``dim`` with the next one."""
    extents = get_aval(x).shape
    return shape.reshape(x, (*extents[:dim], extents[dim] * extents[dim + 1], *extents[dim + 2 :]))


def _around(names: tuple[Any, ...], name: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(names before a name, names after it)."""
    at = names.index(name)
    return names[:at], names[at + 1 :]


# -- all_gather -------------------------------------------------------------------------------------------------------


def _gathered(
    x: Any, *, all_gather_dimension: int, axis_name: Any, axis_index_groups: Any, axis_size: int, tiled: bool
) -> Any:
    sizes = list(x.shape)
    if tiled:
        sizes[all_gather_dimension] *= axis_size
    else:
        sizes.insert(all_gather_dimension, axis_size)
    return runtime.ShapedArray(tuple(sizes), x.dtype, x.weak_type)


def _gather_over(x: Any, dim: int, names: tuple[Any, ...]) -> Any:
    """The values of the elements along the other axes, in a new dimension before ``dim``."""
    return all_gather_p.bind(
        x, all_gather_dimension=dim, axis_name=names, axis_index_groups=None, axis_size=extent(names), tiled=False
    )


def _all_gather_batch(
    axis: Axis, values: list[Any], dims: list[Dim], *, all_gather_dimension: int, axis_name: tuple[Any, ...],
    axis_index_groups: Any, axis_size: int, tiled: bool,
) -> Any:  # fmt: skip
    (x,), (dim,) = values, dims
    dimension = all_gather_dimension
    if axis.name is None or axis.name not in axis_name:
        if dim is not None and dim <= dimension:
            dimension += 1
        elif dim is not None and not tiled:
            dim += 1
        out = all_gather_p.bind(
            x, all_gather_dimension=dimension, axis_name=axis_name, axis_index_groups=axis_index_groups,
            axis_size=axis_size, tiled=tiled,
        )  # fmt: skip
        return out, dim
    if axis_index_groups is not None:
        return by_groups(
            _all_gather_batch, axis, x, dim, axis_index_groups, all_gather_dimension=dimension, axis_name=axis_name,
            axis_size=axis_size, tiled=tiled,
        )  # fmt: skip
    before, after = _around(axis_name, axis.name)
    x = at(in_front(axis.size, x, dim), 0, dimension)
    if after:
        x = _merge_dims(_gather_over(x, dimension + 1, after), dimension)
    if before:
        x = _merge_dims(_gather_over(x, dimension, before), dimension)
    return (_merge_dims(x, dimension) if tiled else x), None


def _all_gather_transpose(ct: Any, x: Any, *, all_gather_dimension: int, axis_size: int, **params: Any) -> tuple[Any]:
    return (reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, axis_size=axis_size, **params),)


all_gather_p = collective("all_gather", _gathered, _all_gather_batch)
all_gather_p.linear, all_gather_p.transpose = ALL, _all_gather_transpose


def _all_gather_between(
    exchanges: Any, n: int, x: Any, *, all_gather_dimension: int, axis_index_groups: Any, tiled: bool, **params: Any
) -> Any:
    if axis_index_groups is not None:
        return NotImplemented
    stacked = at(exchanges.gather(x), 0, all_gather_dimension)
    return _merge_dims(stacked, all_gather_dimension) if tiled else stacked


all_gather_p.between = _all_gather_between


def _invariant_batch(axis: Axis, values: list[Any], dims: list[Dim], **params: Any) -> Any:
    names = params["axis_name"]
    if axis.name is not None and axis.name in names:
        return _all_gather_batch(axis, values, dims, axis_index_groups=None, **params)
    dimension, dim = params["all_gather_dimension"], dims[0]
    if dim is not None and dim <= dimension:
        dimension += 1
    elif dim is not None and not params["tiled"]:
        dim += 1
    return all_gather_invariant_p.bind(*values, **{**params, "all_gather_dimension": dimension}), dim


def _invariant_transpose(
    ct: Any, x: Any, *, all_gather_dimension: int, axis_name: Any, axis_size: int, tiled: bool
) -> tuple[Any]:
    """Each device gets its own part of the cotangent, which is the same on all."""
    here = collectives.axis_index(axis_name)
    sizes = list(get_aval(ct).shape)
    sizes[all_gather_dimension] //= axis_size
    start = arithmetic.mul(here, np.int32(sizes[all_gather_dimension]))
    starts = [start if d == all_gather_dimension else np.int32(0) for d in range(len(sizes))]
    part = index.dynamic_slice(ct, starts, sizes)
    return (part if tiled else shape.squeeze(part, (all_gather_dimension,)),)


all_gather_invariant_p = collective(
    "all_gather_invariant", lambda x, **params: _gathered(x, axis_index_groups=None, **params), _invariant_batch
)
all_gather_invariant_p.varying = functools.partial(collectives.same_after, "all_gather_invariant")
all_gather_invariant_p.linear, all_gather_invariant_p.transpose = ALL, _invariant_transpose
_ALL_GATHER_TO = ("varying", "reduced", "invarying")


def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Groups = None, axis: int = 0, tiled: bool = False, to: str = "varying"
) -> Any:
    """Every element gets the values of all elements along named axes, joined along ``axis``; leaf by leaf.

    ``axis`` is a new dimension of the result, or, if ``tiled``, a dimension of ``x`` along which they are concatenated.
    With ``to="invarying"`` the type of the result, inside ``shard_map``, says that it is the same along these axes.
    NotImplementedError for ``to="reduced"`` there, which asks for types of partial sums.

    >>> weft.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.float32([1, 2])).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    if to not in _ALL_GATHER_TO:
        raise ValueError(f"[all_gather] Got unexpected `to` value {to!r}. Allowed values are: {_ALL_GATHER_TO}")
    names = axis_names.as_tuple(axis_name)
    if not names:
        return x
    groups = checked_groups(axis_index_groups)
    size = extent(names, groups)
    same = to != "varying" and any(varying.is_checked(name) for name in names)
    if same and (to == "reduced" or groups is not None):
        raise NotImplementedError(f"[all_gather] to={to!r} with groups or partial sums")

    def one(leaf: Any) -> Any:
        rank = get_aval(leaf).ndim
        dimension = canonical_axis(axis, rank if tiled else rank + 1, "all_gather")
        if same:
            return all_gather_invariant_p.bind(
                leaf, all_gather_dimension=dimension, axis_name=names, axis_size=size, tiled=tiled
            )
        return all_gather_p.bind(
            leaf, all_gather_dimension=dimension, axis_name=names, axis_index_groups=groups, axis_size=size, tiled=tiled
        )

    return each_leaf(x, one, over=names)


# -- psum_scatter -----------------------------------------------------------------------------------------------------


def _scattered(
    x: Any, *, scatter_dimension: int, axis_name: Any, axis_index_groups: Any, axis_size: int, tiled: bool
) -> Any:
    sizes = list(x.shape)
    if tiled:
        sizes[scatter_dimension] //= axis_size
    else:
        del sizes[scatter_dimension]
    return runtime.ShapedArray(tuple(sizes), x.dtype, x.weak_type)


def _reduce_scatter_batch(
    axis: Axis, values: list[Any], dims: list[Dim], *, scatter_dimension: int, axis_name: tuple[Any, ...],
    axis_index_groups: Any, axis_size: int, tiled: bool,
) -> Any:  # fmt: skip
    (x,), (dim,) = values, dims
    dimension = scatter_dimension
    if axis.name is None or axis.name not in axis_name:
        if dim is not None and dim <= dimension:
            dimension += 1
        elif dim is not None and not tiled:
            dim -= 1
        out = reduce_scatter_p.bind(
            x, scatter_dimension=dimension, axis_name=axis_name, axis_index_groups=axis_index_groups,
            axis_size=axis_size, tiled=tiled,
        )  # fmt: skip
        return out, dim
    if axis_index_groups is not None:
        return by_groups(
            _reduce_scatter_batch, axis, x, dim, axis_index_groups, scatter_dimension=dimension, axis_name=axis_name,
            axis_size=axis_size, tiled=tiled,
        )  # fmt: skip
    before, after = _around(axis_name, axis.name)
    total = collectives.times(x, axis.size) if dim is None else reductions.reduce_sum(x, (dim,))
    rest = get_aval(total).shape[dimension] // (extent(before) * axis.size)
    # The digit of this axis becomes the mapped dimension, the other digits stay in order.
    total = at(_split_dim(total, dimension, (extent(before), axis.size, rest)), dimension + 1, 0)
    total = _merge_dims(total, dimension + 1)
    others = (*before, *after)
    if others:
        total = reduce_scatter_p.bind(
            total, scatter_dimension=dimension + 1, axis_name=others, axis_index_groups=None, axis_size=extent(others),
            tiled=tiled,
        )  # fmt: skip
    elif not tiled:
        total = shape.squeeze(total, (dimension + 1,))
    return total, 0


def _reduce_scatter_transpose(ct: Any, x: Any, *, scatter_dimension: int, axis_size: int, **params: Any) -> tuple[Any]:
    return (all_gather_p.bind(ct, all_gather_dimension=scatter_dimension, axis_size=axis_size, **params),)


reduce_scatter_p = collective("reduce_scatter", _scattered, _reduce_scatter_batch)


def _reduce_scatter_between(
    exchanges: Any, n: int, x: Any, *, scatter_dimension: int, axis_index_groups: Any, tiled: bool, **params: Any
) -> Any:
    if axis_index_groups is not None:
        return NotImplemented
    rest = get_aval(x).shape[scatter_dimension] // n
    rows = at(_split_dim(x, scatter_dimension, (n, rest)), scatter_dimension, 0)
    total = exchanges.scatter(rows)
    return total if tiled else shape.squeeze(total, (scatter_dimension,))


reduce_scatter_p.between = _reduce_scatter_between
reduce_scatter_p.linear, reduce_scatter_p.transpose = ALL, _reduce_scatter_transpose


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Groups = None, tiled: bool = False
) -> Any:
    """The sum over the elements along named axes, divided among them: each gets its own part; leaf by leaf.

    ``scatter_dimension`` has the extent of the axis and is not in the result, or, if ``tiled``, a multiple of it
    and is cut into that many parts. ValueError for any other extent.

    >>> weft.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.float32([[1, 2], [3, 4]])).tolist()
    [4.0, 6.0]
    """
    names = axis_names.as_tuple(axis_name)
    if not names:
        return x
    groups = checked_groups(axis_index_groups)
    size = extent(names, groups)

    def one(leaf: Any) -> Any:
        dimension = canonical_axis(scatter_dimension, get_aval(leaf).ndim, "psum_scatter")
        found = get_aval(leaf).shape[dimension]
        if tiled and found % size:
            raise ValueError(
                f"tiled reduce_scatter operand scatter dimension size {found} must be divisible by shard_count {size}"
            )
        if not tiled and found != size:
            raise ValueError(f"reduce_scatter operand scatter dimension size {found} must match shard count {size}")
        return reduce_scatter_p.bind(
            leaf, axis_name=names, scatter_dimension=dimension, axis_index_groups=groups, axis_size=size, tiled=tiled
        )

    return each_leaf(x, one, over=names)


# -- ppermute ---------------------------------------------------------------------------------------------------------


def _sources(perm: Sequence[tuple[int, int]], size: int) -> list[int | None]:
    """For every index the index that its value comes from; None if nothing is sent to it."""
    found: list[int | None] = [None] * size
    for source, target in perm:
        found[target % size] = source % size
    return found


def _permuted(x: Any, dim: int, sources: Sequence[int | None]) -> Any:
    """Slices of a dimension in another order, zeros where there is no source."""
    runs: list[tuple[int | None, int]] = []  # (first source, number of consecutive sources)
    for source in sources:
        first, count = runs[-1] if runs else (None, 0)
        follows = source == (None if first is None else first + count)
        if count and follows:
            runs[-1] = (first, count + 1)
        else:
            runs.append((source, 1))
    if len(runs) > _MOST_RUNS:
        return rows(x, dim, np.array([len(sources) if source is None else source for source in sources], np.int32))
    parts = []
    for first, count in runs:
        start = first or 0
        part = shape.slice_in_dim(x, start, start + 1 if first is None else start + count, 1, dim)
        if first is None:
            aval = get_aval(part)
            part = assemble.full((*aval.shape[:dim], count, *aval.shape[dim + 1 :]), 0, aval.dtype)
        parts.append(part)
    return assemble.concatenate(parts, dim) if len(parts) > 1 else parts[0]


def rows(x: Any, dim: int, index: Any) -> Any:
    """x[..., index, ...] along ``dim``, zeros where the index is past the end."""
    sizes = get_aval(x).shape
    numbers = GatherDimensionNumbers(
        offset_dims=tuple([d for d in range(len(sizes)) if d != dim]),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
    )
    windows = (*sizes[:dim], 1, *sizes[dim + 1 :])
    return gather(
        x, shape.expand_dims(index, (1,)), numbers, windows, mode="fill", fill_value=get_aval(x).dtype.type(0)
    )


def _ppermute_batch(axis: Axis, values: list[Any], dims: list[Dim], *, axis_name: tuple[Any, ...], perm: Any) -> Any:
    (x,), (dim,) = values, dims
    if axis.name is None or axis.name not in axis_name:
        return ppermute_p.bind(x, axis_name=axis_name, perm=perm), dim
    if len(axis_name) == 1:
        if dim is None and sorted([target % axis.size for _, target in perm]) == list(range(axis.size)):
            return x, None
        x, dim = (in_front(axis.size, x, None), 0) if dim is None else (x, dim)
        return _permuted(x, dim, _sources(perm, axis.size)), dim
    # Over several axes: gather all values, and each element takes its own.
    before, after = _around(axis_name, axis.name)
    whole, _ = _all_gather_batch(
        axis, [x], [dim], all_gather_dimension=0, axis_name=axis_name, axis_index_groups=None,
        axis_size=extent(before) * axis.size * extent(after), tiled=False,
    )  # fmt: skip
    count = get_aval(whole).shape[0]
    table = np.array([count if source is None else source for source in _sources(perm, count)], np.int32)
    mine = assemble.iota(np.int32, axis.size)
    if before:
        mine = arithmetic.add(mine, arithmetic.mul(collectives.axis_index(before), np.int32(axis.size)))
    if after:
        mine = arithmetic.mul(mine, np.int32(extent(after)))
        mine = arithmetic.add(mine, collectives.axis_index(after))
    return rows(whole, 0, rows(table, 0, mine)), 0


def _ppermute_transpose(ct: Any, x: Any, *, axis_name: Any, perm: Any) -> tuple[Any]:
    back = tuple([(target, source) for source, target in perm])
    return (ppermute_p.bind(ct, axis_name=axis_name, perm=back),)


ppermute_p = collective("ppermute", lambda x, **params: x, _ppermute_batch)
ppermute_p.linear, ppermute_p.transpose = ALL, _ppermute_transpose
ppermute_p.between = lambda exchanges, n, x, *, axis_name, perm: exchanges.permute(
    x, [(source % n, target % n) for source, target in perm]
)


def ppermute(x: Any, axis_name: Any, perm: Any) -> Any:
    """Each element along a named axis gets the value of another: ``perm`` lists pairs (source, target); leaf by leaf.

    A target that no pair names gets zeros. ValueError if two pairs have the same source or the same target, or an index
    is outside of the axis.

    >>> shift = [(0, 1), (1, 2), (2, 0)]
    >>> weft.vmap(lambda x: lax.ppermute(x, "i", shift), axis_name="i")(jnp.float32([1, 2, 3])).tolist()
    [3.0, 1.0, 2.0]
    """
    names = axis_names.as_tuple(axis_name)
    pairs = tuple([(int(source), int(target)) for source, target in perm])
    size = extent(names)
    for end in (0, 1):
        found = [pair[end] for pair in pairs]
        if any(not -size <= index < size for index in found):
            raise ValueError(f"[ppermute] indices must lie in the axis {axis_name!r} of size {size}, got {pairs}")
        if len({index % size for index in found}) != len(found):
            raise ValueError(f"ppermute sources and destinations must be unique, got {pairs}.")
    return each_leaf(x, lambda leaf: ppermute_p.bind(leaf, axis_name=names, perm=pairs), over=names)


def psend(x: Any, axis_name: Any, perm: Any) -> Any:
    """Send along a named axis: what ``precv`` of the same permutation receives.

    ``perm`` lists pairs (source, target), as for ``ppermute``; what is given back stands for the values on their way.

    >>> swap = [(0, 1), (1, 0)]
    >>> like = weft.ShapeDtypeStruct((), jnp.float32)
    >>> send = lambda x: lax.precv(lax.psend(x, "i", swap), like, "i", swap)
    >>> weft.vmap(send, axis_name="i")(jnp.float32([1, 2])).tolist()
    [2.0, 1.0]
    """
    return ppermute(x, axis_name, perm)


def precv(token: Any, out_shape: Any, axis_name: Any, perm: Any) -> Any:
    """Receive along a named axis what ``psend`` has sent by the same permutation; ``out_shape`` has its types.

    ValueError if what was sent has another structure, shape or dtype.
    """
    extent(axis_names.as_tuple(axis_name))
    sent, sent_tree = runtime.tree_flatten(token)
    wanted, wanted_tree = runtime.tree_flatten(out_shape)
    if sent_tree != wanted_tree:
        raise ValueError(f"[precv] out_shape has the structure {wanted_tree}, what was sent {sent_tree}")
    for value, struct in zip(sent, wanted, strict=True):
        aval = get_aval(value)
        if aval.shape != tuple(struct.shape) or aval.dtype != struct.dtype:
            raise ValueError(f"[precv] out_shape is {struct}, what was sent {aval.str_short()}")
    return token


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Each element along a named axis gets the value of the element ``perm[i]``, i its index; leaf by leaf.

    >>> weft.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")(jnp.float32([1, 2, 3])).tolist()
    [3.0, 1.0, 2.0]
    """
    if set(perm) != set(range(len(perm))):
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


# -- all_to_all -------------------------------------------------------------------------------------------------------


def _exchanged(
    x: Any, *, axis_name: Any, split_axis: int, concat_axis: int, axis_index_groups: Any, tiled: bool
) -> Any:
    sizes, count = list(x.shape), extent(axis_name, axis_index_groups)
    sizes[split_axis] //= count
    sizes[concat_axis] *= count
    return runtime.ShapedArray(tuple(sizes), x.dtype, False)


def _all_to_all_batch(
    axis: Axis, values: list[Any], dims: list[Dim], *, axis_name: Any, split_axis: int, concat_axis: int,
    axis_index_groups: Any, tiled: bool,
) -> Any:  # fmt: skip
    (x,), (dim,) = values, dims
    names = axis_names.as_tuple(axis_name)
    if axis.name is None or axis.name not in names:
        if dim is not None:
            split_axis, concat_axis = split_axis + (dim <= split_axis), concat_axis + (dim <= concat_axis)
        out = all_to_all_p.bind(
            x, axis_name=axis_name, split_axis=split_axis, concat_axis=concat_axis,
            axis_index_groups=axis_index_groups, tiled=tiled,
        )  # fmt: skip
        return out, dim
    if axis_index_groups is not None:
        return by_groups(
            _all_to_all_batch, axis, x, dim, axis_index_groups, axis_name=axis_name, split_axis=split_axis,
            concat_axis=concat_axis, tiled=tiled,
        )  # fmt: skip
    before, after = _around(names, axis.name)
    # x[source, ..., target part of split_axis, ...]: the target's digit becomes the mapped dimension.
    x = in_front(axis.size, x, dim)
    rest = get_aval(x).shape[split_axis + 1] // (extent(before) * axis.size)
    x = at(_split_dim(x, split_axis + 1, (extent(before), axis.size, rest)), split_axis + 2, 0)
    x = _merge_dims(x, split_axis + 2)
    others = (*before, *after)
    if others:
        x = all_to_all_p.bind(
            x, axis_name=others, split_axis=split_axis + 2, concat_axis=concat_axis + 2, axis_index_groups=None,
            tiled=tiled,
        )  # fmt: skip
    # x[target, source, ...]: the source's digit goes between those of the axes around it.
    joined, outer = concat_axis + 2, extent(before)
    x = _split_dim(x, joined, (outer, get_aval(x).shape[joined] // outer))
    x = at(x, 1, joined)
    return _merge_dims(_merge_dims(x, joined - 1), joined - 1), 0


def _all_to_all_transpose(ct: Any, x: Any, *, split_axis: int, concat_axis: int, **params: Any) -> tuple[Any]:
    return (all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params),)


all_to_all_p = collective("all_to_all", _exchanged, _all_to_all_batch)
all_to_all_p.linear, all_to_all_p.transpose = ALL, _all_to_all_transpose


def _all_to_all_between(
    exchanges: Any, n: int, x: Any, *, split_axis: int, concat_axis: int, axis_index_groups: Any, **params: Any
) -> Any:
    if axis_index_groups is not None:
        return NotImplemented
    rest = get_aval(x).shape[split_axis] // n
    rows = exchanges.to_all(at(_split_dim(x, split_axis, (n, rest)), split_axis, 0))
    return _merge_dims(at(rows, 0, concat_axis), concat_axis)


all_to_all_p.between = _all_to_all_between


def all_to_all(
    x: Any,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Groups = None,
    tiled: bool = False,
) -> Any:
    """Each element along a named axis sends one part of its value to every other; leaf by leaf.

    ``split_axis`` has the extent of the named axis: its part i goes to element i, where the parts are stacked
    along a new dimension ``concat_axis``. If ``tiled``, ``split_axis`` is cut into as many parts and the parts are
    concatenated along ``concat_axis``. ValueError for an extent that cannot be split so.

    >>> weft.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(jnp.float32([[1, 2], [3, 4]])).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    groups = checked_groups(axis_index_groups)
    count = extent(axis_name, groups)

    def one(leaf: Any) -> Any:
        rank = get_aval(leaf).ndim
        split = canonical_axis(split_axis, rank, "all_to_all")
        concat = canonical_axis(concat_axis, rank, "all_to_all")
        found = get_aval(leaf).shape[split]
        params = {"axis_name": axis_name, "axis_index_groups": groups, "tiled": tiled}
        if tiled:
            if found % count:
                raise ValueError(
                    f"The size of all_to_all split_axis ({found}) has to be divisible by the size of the named axis "
                    f"{axis_name} ({count})"
                )
            return all_to_all_p.bind(leaf, split_axis=split, concat_axis=concat, **params)
        if found != count:
            raise ValueError(
                "all_to_all requires the size of the mapped axis axis_name to equal x.shape[split_axis], but they are "
                f"{count} and {found} respectively."
            )
        if split == concat:
            return all_to_all_p.bind(leaf, split_axis=split, concat_axis=concat, **params)
        # split_axis, of extent 1 by now, is dropped, and the new dimension is put there.
        split, concat = (split, concat + 1) if split < concat else (split + 1, concat)
        out = all_to_all_p.bind(shape.expand_dims(leaf, (concat,)), split_axis=split, concat_axis=concat, **params)
        return shape.squeeze(out, (split,))

    return each_leaf(x, one, over=axis_name)


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Groups = None) -> Any:
    """The named axis and the axis ``axis`` of the same extent are exchanged; leaf by leaf.

    >>> weft.vmap(lambda x: lax.pswapaxes(x, "i", 0), axis_name="i")(jnp.float32([[1, 2], [3, 4]])).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
