"""Ragged matrix products: rows of one operand lie in groups, and each group meets a matrix of its own.

Rows are cut into tiles of one size, each within one group, so that every tile is a plain product, and all of them are
little more work than one product of all rows::

    ragged_dot  f[m,k], f[g,k,n], i[g] -> f[m,n]    group 0: rows 0..3, group 1: rows 3..8 -> tiles 0..3, 3..7, 7..8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft.autodiff.checkpoint import checkpoint
from weft.batching.vmap import vmap
from weft.control.scan import scan
from weft.core import avals
from weft.operations.contract import check_dimension_numbers
from weft.operations.settings import RaggedDotDimensionNumbers
from weft.operations.static import placed

SMALLEST, LARGEST = 8, 128  # rows of a tile: a matrix product runs well from the latter on


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> runtime.Array:
    """Row i of f[m,k] times the matrix of its group in f[g,k,n]: f[m,n].

    The first ``group_sizes[0]`` rows are in group 0, the next ``group_sizes[1]`` in group 1, and so on; rows behind the
    last group give zeros. NotImplementedError for a ``group_offset``.

    >>> import weft.numpy as jnp
    >>> weft.lax.ragged_dot(jnp.ones((3, 2)), jnp.array([[[1.0], [1.0]], [[5.0], [5.0]]]), jnp.array([1, 2])).tolist()
    [[2.0], [10.0], [10.0]]
    """
    if out_sharding is not None:
        return placed(
            lambda: ragged_dot(lhs, rhs, group_sizes, precision, preferred_element_type, group_offset),
            out_sharding,
            "ragged_dot",
            "out_sharding",
        )
    dims = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(
        lhs, rhs, group_sizes, dims, precision=precision,
        preferred_element_type=preferred_element_type, group_offset=group_offset,
    )  # fmt: skip


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> runtime.Array:
    """``lax.dot_general`` along a ragged dimension of ``lhs``, which lies in groups of ``group_sizes`` i[..., g].

    The ragged dimension is free: f[b,m,k], f[g,b,k,n] -> f[b,m,n], each row meets the matrix of its group. It is
    contracted: f[b,m,k], f[b,k,n] -> f[g,b,m,n], a product for each group. It is a batch dimension: the groups make no
    difference. Sizes are i[g], or have the dimensions of lhs outside of the ragged one (batch first) in front.
    TypeError for dimensions that do not fit, NotImplementedError for a ``group_offset``.
    """
    if out_sharding is not None:
        args = (lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision, preferred_element_type, group_offset)
        return placed(lambda: ragged_dot_general(*args), out_sharding, "ragged_dot_general")
    if group_offset is not None:
        raise NotImplementedError("[ragged_dot_general] Unimplemented group_offset support: slice the groups instead")
    lhs, rhs, sizes = (x if hasattr(x, "ndim") else np.asarray(x) for x in (lhs, rhs, group_sizes))
    numbers = ragged_dot_dimension_numbers
    (lhs_in, rhs_in), (lhs_batch, rhs_batch) = (
        tuple(tuple(map(int, side)) for side in pair) for pair in numbers.dot_dimension_numbers
    )
    groups = tuple(numbers.rhs_group_dimensions)
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeError(
            "ragged_dot_general expects exactly one lhs ragged dimension, got "
            f"lhs_ragged_dimensions={numbers.lhs_ragged_dimensions}"
        )
    (ragged,) = numbers.lhs_ragged_dimensions
    _check_in_range("lhs ragged dimension", "lhs", ragged, lhs)
    if not np.issubdtype(avals.get_aval(sizes).dtype, np.integer) or sizes.ndim < 1:
        raise TypeError(
            "ragged_dot_general requires that group_sizes.dtype is subtype of np.integer, and group_sizes of shape "
            f"(..., g), got {sizes.dtype}{sizes.shape}"
        )
    check_dimension_numbers(avals.get_aval(lhs), avals.get_aval(rhs), numbers.dot_dimension_numbers)
    free = ragged not in (*lhs_in, *lhs_batch)
    _check_groups(rhs, sizes, groups, free, (*rhs_in, *rhs_batch))
    preferred = preferred_element_type
    if ragged in lhs_batch:
        return lax.dot_general(
            lhs, rhs, ((lhs_in, rhs_in), (lhs_batch, rhs_batch)), precision=precision, preferred_element_type=preferred
        )
    lhs_free = [d for d in range(lhs.ndim) if d not in (*lhs_in, *lhs_batch)]
    rhs_free = [d for d in range(rhs.ndim) if d not in (*rhs_in, *rhs_batch, *groups)]
    lhs = lax.transpose(lhs, (*lhs_batch, *lhs_free, *lhs_in))
    rhs = lax.transpose(rhs, (*rhs_batch, *groups, *rhs_in, *rhs_free))
    product = _options(precision, preferred)
    if free:
        return _free(lhs, rhs, sizes, len(lhs_batch), len(lhs_in), lhs_free.index(ragged), product)
    return _contracted(lhs, rhs, sizes, len(lhs_batch), len(lhs_in), lhs_in.index(ragged), product)


def _check_in_range(what: str, side: str, dim: int, x: Any) -> None:
    if not 0 <= dim < x.ndim:
        raise TypeError(
            f"ragged_dot_general requires {what} numbers to be nonnegative and less than the number of axes of the "
            f"{side} value, got {dim} for {side} of rank {x.ndim}."
        )


def _check_groups(rhs: Any, sizes: Any, groups: tuple[int, ...], free: bool, used: tuple[int, ...]) -> None:
    """A dimension of rhs holds the groups where the ragged dimension is free, and none does elsewhere."""
    if len(groups) != int(free):
        wanted = "exactly one rhs group dimension" if free else "zero group dimensions in the rhs"
        kind = "noncontracting" if free else "contracting or batch"
        raise TypeError(
            f"ragged_dot_general requires {wanted} when lhs ragged dimension is {kind}, got "
            f"rhs_group_dimensions={groups} for rhs {rhs.shape}."
        )
    for group in groups:
        _check_in_range("rhs group dimension", "rhs", group, rhs)
        if group in used:
            raise TypeError(
                f"ragged_dot_general requires rhs group dimension numbers to be distinct from contracting and batch "
                f"dimensions, got {group} and {used}."
            )
        if rhs.shape[group] != sizes.shape[-1]:
            raise TypeError(
                f"[ragged_dot_general] expected rhs group dimension size to be {sizes.shape[-1]}, got "
                f"{rhs.shape[group]}: rhs {rhs.shape} for group_sizes {sizes.shape}"
            )


def _options(precision: Any, preferred: Any) -> Callable[[Any, Any], Any]:
    def product(a: Any, b: Any) -> Any:
        return lax.dot_general(
            a, b, (((a.ndim - 1,), (0,)), ((), ())), precision=precision, preferred_element_type=preferred
        )

    return product


def _flat(x: Any, lengths: Sequence[int]) -> Any:
    """Neighbouring dimensions joined, ``lengths`` of them at a time."""
    shape, at = [], 0
    for length in lengths:
        shape.append(math.prod(x.shape[at : at + length]))
        at += length
    return lax.reshape(x, tuple(shape))


def _sizes(sizes: Any, outside: Sequence[int]) -> Any:
    """Sizes for each element of the dimensions outside of the ragged one, flat: i[n,g]."""
    count = sizes.shape[-1]
    expected = f"({count},)" if not outside else f"{(*outside, count)} or ({count},)"
    if sizes.ndim > 1 and sizes.shape[:-1] != tuple(outside):
        raise TypeError(f"[ragged_dot_general] expected group_sizes to have shape {expected}, got {sizes.shape}")
    wide = lax.broadcast_in_dim(sizes, (*outside, count), tuple(range(len(outside) + 1 - sizes.ndim, len(outside) + 1)))
    return lax.reshape(wide, (math.prod(outside), count))


class _Tiles:
    """The tiles of m rows in g groups: a static number of tiles of ``size`` rows; some may be empty."""

    def __init__(self, rows: int, sizes: Any) -> None:
        groups = sizes.shape[0]
        self.size = min(LARGEST, max(SMALLEST, 1 << max(0, (rows // max(groups, 1)).bit_length())))
        self.count = -(-rows // self.size) + groups
        sizes = lax.convert_element_type(sizes, np.int32)
        zero = np.zeros(1, np.int32)
        self.ends = lax.cumsum(sizes)
        self.starts = lax.sub(self.ends, sizes)
        tiles = lax.div(lax.add(sizes, np.int32(self.size - 1)), np.int32(self.size))
        self.tile_ends = lax.cumsum(tiles)
        self.first = lax.concatenate([zero, lax.slice_in_dim(self.tile_ends, 0, groups - 1)], 0)
        self.groups = groups

    def group_of(self, indices: Any, ends: Any) -> Any:
        """The group in which a row or tile lies, ``groups`` behind the last."""
        behind = lax.ge(lax.expand_dims(indices, (1,)), lax.expand_dims(ends, (0,)))
        return lax.reduce_sum(lax.convert_element_type(behind, np.int32), (1,))

    def rows(self, numbers: Any) -> tuple[Any, Any]:
        """For every tile its group, and the rows i[tiles,size] that it holds; a row that it does not hold is -1."""
        group = self.group_of(numbers, self.tile_ends)
        at = lax.min(group, np.int32(self.groups - 1))
        begin = lax.add(_take(self.starts, at), lax.mul(lax.sub(numbers, _take(self.first, at)), np.int32(self.size)))
        rows = lax.add(lax.expand_dims(begin, (1,)), lax.broadcasted_iota(np.int32, (1, self.size), 1))
        held = lax.lt(rows, lax.expand_dims(_take(self.ends, at), (1,)))
        held = lax.bitwise_and(held, lax.expand_dims(lax.lt(group, np.int32(self.groups)), (1,)))
        return at, lax.select(held, rows, lax.full_like(rows, -1))


def _take(x: Any, indices: Any) -> Any:
    """``x[indices]`` along the first dimension; zeros where an index is negative."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, x.ndim)), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    return lax.gather(
        x, lax.expand_dims(indices, (1,)), numbers, (1, *x.shape[1:]),
        mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=0,
    )  # fmt: skip


def _row_products(lhs: Any, rhs: Any, sizes: Any, product: Callable[[Any, Any], Any]) -> Any:
    """f[m,k], f[g,k,n], i[g] -> f[m,n]."""
    rows = lhs.shape[0]
    tiles = _Tiles(rows, sizes)
    group, held = tiles.rows(lax.iota(np.int32, tiles.count))

    @checkpoint
    def tile(_: Any, numbered: tuple[Any, Any]) -> tuple[Any, Any]:
        number, rows = numbered
        matrix = lax.squeeze(lax.dynamic_slice_in_dim(rhs, number, 1, axis=0), (0,))
        return None, product(_take(lhs, rows), matrix)

    _, out = scan(tile, None, (group, held))
    numbers = lax.iota(np.int32, rows)
    own = tiles.group_of(numbers, tiles.ends)
    at = lax.min(own, np.int32(tiles.groups - 1))
    index = lax.add(lax.mul(_take(tiles.first, at), np.int32(tiles.size)), lax.sub(numbers, _take(tiles.starts, at)))
    index = lax.select(lax.lt(own, np.int32(tiles.groups)), index, lax.full_like(index, -1))
    return _take(_flat(out, (2, 1)), index)


def _group_products(lhs: Any, rhs: Any, sizes: Any, product: Callable[[Any, Any], Any]) -> Any:
    """f[k,m], f[k,n], i[g] -> f[g,m,n]: the products of the tiles are added up by group."""
    tiles = _Tiles(lhs.shape[0], sizes)
    group, held = tiles.rows(lax.iota(np.int32, tiles.count))

    @checkpoint
    def part(rows: Any) -> Any:
        return product(lax.transpose(_take(lhs, rows), (1, 0)), _take(rhs, rows))

    def tile(sums: Any, numbered: tuple[Any, Any]) -> tuple[Any, Any]:
        number, rows = numbered
        sum_ = lax.add(lax.dynamic_slice_in_dim(sums, number, 1, axis=0), lax.expand_dims(part(rows), (0,)))
        return lax.dynamic_update_slice_in_dim(sums, sum_, number, axis=0), None

    dtype = avals.get_aval(part(held[0])).dtype
    zeros = lax.full((tiles.groups, lhs.shape[1], rhs.shape[1]), 0, dtype)
    return scan(tile, zeros, (group, held))[0]


def _free(lhs: Any, rhs: Any, sizes: Any, n_batch: int, n_in: int, ragged: int, product: Any) -> Any:
    """The ragged dimension is free one number ``ragged`` of lhs [b..., m..., k...]; rhs is [b..., g, k..., n...]."""
    n_free = lhs.ndim - n_batch - n_in
    outer, shape = ragged, (*lhs.shape[: n_batch + n_free], *rhs.shape[n_batch + 1 + n_in :])
    left = _flat(lhs, (n_batch, outer, 1, n_free - outer - 1, n_in))
    right = _flat(rhs, (n_batch, 1, n_in, rhs.ndim - n_batch - 1 - n_in))
    wide = _sizes(sizes, lhs.shape[: n_batch + outer])
    wide = lax.reshape(wide, (left.shape[0], left.shape[1], wide.shape[1]))

    def one(left: Any, right: Any, sizes: Any) -> Any:
        return _row_products(left, right, sizes, product)

    inner = vmap(one, in_axes=(1, None, None), out_axes=1)
    out = vmap(vmap(inner, in_axes=(0, None, 0)))(left, right, wide)
    return lax.reshape(out, shape)


def _contracted(lhs: Any, rhs: Any, sizes: Any, n_batch: int, n_in: int, ragged: int, product: Any) -> Any:
    """The ragged dimension is the contracted one number ``ragged``; rhs is [b..., k..., n...]."""
    n_free = lhs.ndim - n_batch - n_in
    batch, outside = lhs.shape[:n_batch], lhs.shape[n_batch + n_free : n_batch + n_free + ragged]
    free, rest = lhs.shape[n_batch : n_batch + n_free], rhs.shape[n_batch + n_in :]
    left = _flat(lhs, (n_batch, n_free, ragged, 1, n_in - ragged - 1))
    right = _flat(rhs, (n_batch, ragged, 1, n_in - ragged - 1, len(rest)))
    wide = _sizes(sizes, (*batch, *outside))
    wide = lax.reshape(wide, (left.shape[0], left.shape[2], wide.shape[1]))

    def one(left: Any, right: Any, sizes: Any) -> Any:
        return _group_products(lax.transpose(left, (1, 0)), right, sizes, product)

    inner = vmap(one, in_axes=(2, 1, None))
    out = vmap(vmap(inner, in_axes=(1, 0, 0)))(left, right, wide)  # f[b, x, inner, g, m, n]
    out = lax.reduce_sum(out, (1, 2))
    return lax.reshape(lax.transpose(out, (1, 0, 2, 3)), (sizes.shape[-1], *batch, *free, *rest))
