"""Products of BCOO arrays: rows of the dense operand are gathered, multiplied by the values, added up by one scatter.

    (M @ B)[i, :] = sum over elements e with row i:  data[e] * B[col[e], :]     never a dense M

Batch dimensions go through ``vmap``. The product of two sparse arrays looks at all pairs of elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import numpy as jnp
from weft import operations as lax
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.bcoo_layout import bcoo_sum_duplicates, groups, inside, padded, with_buffers, zero_padding
from weft.experimental.sparse.matrix import JAXSparse, add_rows, compiled, gather_rows, over_batches
from weft.numpy import promotion

Dims = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def dimension_tuples(dimension_numbers: Any) -> Dims:
    """Dimension numbers of a product as tuples of ints."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    return (
        (tuple(map(int, lhs_contract)), tuple(map(int, rhs_contract))),
        (tuple(map(int, lhs_batch)), tuple(map(int, rhs_batch))),
    )


def check_dimensions(name: str, lhs: Sequence[int], rhs: Sequence[int], dims: Dims) -> None:
    """TypeError where contracted or batch dimensions differ in number or extent."""
    for kind, (left, right) in zip(("contracting", "batch"), dims, strict=True):
        if len(left) != len(right):
            raise TypeError(f"[{name}] {len(left)} {kind} dimensions of lhs, {len(right)} of rhs")
        for a, b in zip(left, right, strict=True):
            if not (0 <= a < len(lhs) and 0 <= b < len(rhs)):
                raise TypeError(f"[{name}] {kind} dimensions {a} and {b} of operands {tuple(lhs)} and {tuple(rhs)}")
            if lhs[a] != rhs[b]:
                raise TypeError(
                    f"[{name}] {kind} sizes differ: lhs {tuple(lhs)} axis {a} is {lhs[a]}, rhs {tuple(rhs)} axis {b} "
                    f"is {rhs[b]}"
                )


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """``lax.dot_general`` where at least one operand is BCOO; the result is dense unless both are.

    Batch dimensions of the product must be batch dimensions of the sparse operands (NotImplementedError otherwise).
    ``precision`` and ``out_sharding`` make no difference. The product of two sparse arrays stores up to
    ``lhs.nse * rhs.nse`` elements, and no more than the result has.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.bcoo_dot_general(m, jnp.array([1.0, 10.0]), dimension_numbers=(((1,), (0,)), ((), ()))).tolist()
    [20.0, 3.0]
    """
    dims = dimension_tuples(dimension_numbers)
    if not isinstance(lhs, JAXSparse) and not isinstance(rhs, JAXSparse):
        return lax.dot_general(lhs, rhs, dims, precision=precision, preferred_element_type=preferred_element_type)
    for operand in (lhs, rhs):
        if isinstance(operand, JAXSparse) and not isinstance(operand, BCOO):
            raise TypeError(f"[bcoo_dot_general] takes BCOO and dense arrays, got {operand!r}")
    lhs, rhs = (x if isinstance(x, BCOO) else jnp.asarray(x) for x in (lhs, rhs))
    check_dimensions("bcoo_dot_general", lhs.shape, rhs.shape, dims)
    if not isinstance(rhs, BCOO):
        return _sparse_dense(lhs, rhs, dims, preferred_element_type)
    if isinstance(lhs, BCOO):
        return _sparse_sparse(lhs, rhs, dims, preferred_element_type)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dims
    swapped = _sparse_dense(rhs, lhs, ((rhs_contract, lhs_contract), (rhs_batch, lhs_batch)), preferred_element_type)
    n_batch, n_free = len(lhs_batch), lhs.ndim - len(lhs_batch) - len(lhs_contract)
    own = tuple(range(swapped.ndim - n_free, swapped.ndim))
    return lax.transpose(swapped, (*range(n_batch), *own, *range(n_batch, swapped.ndim - n_free)))


def _check_batch(operand: BCOO, batch: tuple[int, ...]) -> None:
    if any(dim >= operand.n_batch for dim in batch):
        raise NotImplementedError(
            f"[bcoo_dot_general] batch dimensions {batch} must be among the {operand.n_batch} batch dimensions of "
            f"{operand!r}: see `update_layout(n_batch=...)`"
        )


def _promoted(lhs: Any, rhs: Any, preferred: Any) -> tuple[Any, Any]:
    """Values in the dtype that the product is computed in."""
    if preferred is not None:
        return lhs.astype(preferred), rhs.astype(preferred)
    lhs, rhs = promotion.promote_dtypes(lhs, rhs)
    return lhs, rhs


@compiled("dims", "preferred")
def _sparse_dense(lhs: BCOO, rhs: Any, dims: Dims, preferred: Any) -> Any:
    """The product with a dense array: batch dimensions of lhs are mapped, one after the other."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dims
    _check_batch(lhs, lhs_batch)
    data, rhs = _promoted(lhs.data, rhs, preferred)
    partner = dict(zip((*lhs_contract, *lhs_batch), (*rhs_contract, *rhs_batch), strict=True))
    n_batch, n_sparse = lhs.n_batch, lhs.n_sparse
    sparse_in = [d - n_batch for d in lhs_contract if n_batch <= d < n_batch + n_sparse]
    dense_in = [d - n_batch - n_sparse for d in lhs_contract if d >= n_batch + n_sparse]
    shared = [d for d in range(n_batch) if d in partner]
    inner = [partner[d + n_batch] for d in sparse_in] + [partner[d + n_batch + n_sparse] for d in dense_in]
    free = [d for d in range(rhs.ndim) if d not in partner.values()]
    rhs = lax.transpose(rhs, tuple([partner[d] for d in shared] + inner + free))
    rhs = lax.expand_dims(rhs, tuple(d for d in range(n_batch) if d not in partner))  # rhs is the same for all of them

    def product(data: Any, indices: Any, rhs: Any) -> Any:
        return _rows_product(data, indices, rhs, lhs, sparse_in, dense_in)

    out = over_batches(product, lhs.batch_shape, data, lhs.indices, rhs)
    summed = tuple(d for d in lhs_contract if d < n_batch)
    if summed:
        out = jnp.sum(out, axis=summed, dtype=out.dtype)
    left = [d for d in range(n_batch) if d not in summed]
    order = [left.index(d) for d in lhs_batch] + [left.index(d) for d in left if d not in lhs_batch]
    return lax.transpose(out, (*order, *range(len(left), out.ndim)))


def _rows_product(
    data: Any, indices: Any, rhs: Any, lhs: BCOO, sparse_in: Sequence[int], dense_in: Sequence[int]
) -> Any:
    """The product without batch: rhs begins with the contracted sparse dimensions, then the contracted dense ones."""
    sparse_free = [d for d in range(lhs.n_sparse) if d not in sparse_in]
    dense_free = [d for d in range(lhs.n_dense) if d not in dense_in]
    if sparse_in:
        rows = gather_rows(rhs, columns_of(indices, sparse_in))
    else:
        rows = lax.expand_dims(rhs, (0,))
    if dense_in:
        rows = jnp.broadcast_to(rows, (data.shape[0], *rows.shape[1:]))
        contract = (tuple(1 + d for d in dense_in), tuple(range(1, 1 + len(dense_in))))
        values = lax.dot_general(data, rows, (contract, ((0,), (0,))), preferred_element_type=data.dtype)
    else:
        n_rest = rows.ndim - 1
        wide = lax.expand_dims(data, tuple(range(data.ndim, data.ndim + n_rest)))
        values = wide * lax.expand_dims(rows, tuple(range(1, data.ndim)))
    if not sparse_free:
        return jnp.sum(values, axis=0, dtype=values.dtype) if lhs.n_sparse else lax.squeeze(_only(values), (0,))
    shape = (*[lhs.sparse_shape[d] for d in sparse_free], *values.shape[1:])
    assert values.ndim == 1 + len(dense_free) + rhs.ndim - len(sparse_in) - len(dense_in)
    in_order = lhs.indices_sorted and sparse_free == list(range(len(sparse_free)))
    return add_rows(shape, columns_of(indices, sparse_free), values, is_sorted=in_order)


def _only(values: Any) -> Any:
    """The elements of an array without sparse dimensions, added up."""
    return jnp.sum(values, axis=0, keepdims=True, dtype=values.dtype)


def columns_of(indices: Any, columns: Sequence[int]) -> Any:
    """Some columns of indices; a slice where they are neighbours, which costs nothing."""
    columns = list(columns)
    if columns == list(range(columns[0], columns[0] + len(columns))):
        return lax.slice_in_dim(indices, columns[0], columns[0] + len(columns), axis=indices.ndim - 1)
    return jnp.stack([indices[..., column] for column in columns], axis=-1)


@compiled("dims", "preferred")
def _sparse_sparse(lhs: BCOO, rhs: BCOO, dims: Dims, preferred: Any) -> BCOO:
    """The product of two sparse arrays: pairs of elements whose contracted indices are equal."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dims
    for operand, contract, batch in ((lhs, lhs_contract, lhs_batch), (rhs, rhs_contract, rhs_batch)):
        _check_batch(operand, batch)
        sparse = range(operand.n_batch, operand.n_batch + operand.n_sparse)
        if operand.n_dense or any(d not in sparse for d in contract) or len(batch) != operand.n_batch:
            raise NotImplementedError(
                f"[bcoo_dot_general] of two sparse arrays: {operand!r} may have no dense dimensions, no batch "
                "dimension that is not one of the product, and no contracted batch dimension: see `update_layout`"
            )
    ldata, rdata = _promoted(zero_padding(lhs), zero_padding(rhs), preferred)
    order = [rhs_batch[lhs_batch.index(d)] for d in range(lhs.n_batch)]
    rdata = lax.transpose(rdata, (*order, rdata.ndim - 1))
    rindices = lax.transpose(rhs.indices, (*order, rhs.n_batch, rhs.n_batch + 1))
    lin = [d - lhs.n_batch for d in lhs_contract]
    rin = [d - rhs.n_batch for d in rhs_contract]
    lfree = [d for d in range(lhs.n_sparse) if d not in lin]
    rfree = [d for d in range(rhs.n_sparse) if d not in rin]
    shape = (*[lhs.sparse_shape[d] for d in lfree], *[rhs.sparse_shape[d] for d in rfree])

    def pairs(ldata: Any, lindices: Any, rdata: Any, rindices: Any) -> tuple[Any, Any]:
        both = (ldata.shape[0], rdata.shape[0])
        match = jnp.all(lindices[:, None, lin] == rindices[None, :, rin], axis=-1)
        match = match & inside(lindices, lhs.sparse_shape)[:, None] & inside(rindices, rhs.sparse_shape)
        left = jnp.broadcast_to(lindices[:, None, lfree], (*both, len(lfree)))
        right = jnp.broadcast_to(rindices[None, :, rfree], (*both, len(rfree)))
        found = jnp.concatenate([left, right.astype(left.dtype)], axis=-1)
        found = jnp.where(match[..., None], found, jnp.array(shape, found.dtype))
        values = jnp.where(match, ldata[:, None] * rdata, jnp.zeros((), ldata.dtype))
        return values.reshape(-1), found.reshape(math.prod(both), len(shape))

    data, indices = over_batches(pairs, lhs.batch_shape, ldata, lhs.indices, rdata, rindices)
    made = BCOO((data, indices), shape=(*lhs.batch_shape, *shape))
    out = bcoo_sum_duplicates(made, nse=min(made.nse, math.prod(shape)))
    where = [lhs_batch[k] for k in range(len(lhs_batch))]
    data = lax.transpose(out.data, (*where, out.data.ndim - 1))
    indices = lax.transpose(out.indices, (*where, out.indices.ndim - 2, out.indices.ndim - 1))
    shape = (*[lhs.shape[d] for d in where], *shape)
    return BCOO((data, indices), shape=shape, indices_sorted=True, unique_indices=True)


@compiled("dimension_numbers")
def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Any:
    """``lax.dot_general(A, B)`` at the positions ``indices`` of a BCOO array, without the rest of the product.

    The batch dimensions of indices are those of the product, all other dimensions of the result are indexed: each
    element is one inner product. Indices of another layout take the positions from the whole product.
    """
    a, b, indices = jnp.asarray(A), jnp.asarray(B), jnp.asarray(indices)
    dims = dimension_tuples(dimension_numbers)
    check_dimensions("bcoo_dot_general_sampled", a.shape, b.shape, dims)
    (a_in, b_in), (a_batch, b_batch) = dims
    a_free = [d for d in range(a.ndim) if d not in (*a_in, *a_batch)]
    b_free = [d for d in range(b.ndim) if d not in (*b_in, *b_batch)]
    a, b = promotion.promote_dtypes(a, b)
    n_batch = indices.ndim - 2
    if n_batch != len(a_batch) or indices.shape[-1] != len(a_free) + len(b_free):
        whole = lax.dot_general(a, b, dims)
        return over_batches(gather_rows, whole.shape[:n_batch], whole, indices)
    a = lax.transpose(a, (*a_batch, *a_free, *a_in))
    b = lax.transpose(b, (*b_batch, *b_free, *b_in))

    def sample(a: Any, b: Any, indices: Any) -> Any:
        left = gather_rows(a, indices[:, : len(a_free)]) if a_free else lax.expand_dims(a, (0,))
        right = gather_rows(b, indices[:, len(a_free) :]) if b_free else lax.expand_dims(b, (0,))
        products = jnp.broadcast_to(left * right, (indices.shape[0], *left.shape[1:]))
        return jnp.sum(products, axis=tuple(range(1, products.ndim)), dtype=products.dtype)

    return over_batches(sample, a.shape[:n_batch], a, b, indices)


# -- element by element -----------------------------------------------------------------------------------------------


@compiled("fill")
def values_at(mat: BCOO, v: Any, fill: Any = 0) -> Any:
    """The elements of a dense array that broadcasts to the shape of ``mat``, at its positions: like ``mat.data``."""
    v = jnp.asarray(v)
    if v.ndim > mat.ndim or any(e not in (1, s) for e, s in zip(v.shape[::-1], mat.shape[::-1], strict=False)):
        raise ValueError(f"[bcoo_multiply_dense] shape {v.shape} does not broadcast to {mat.shape}")
    if v.ndim == 0:
        return v
    v = lax.expand_dims(v, tuple(range(mat.ndim - v.ndim)))
    first = mat.n_batch
    wide = [d for d in range(mat.n_sparse) if v.shape[first + d] != 1 or mat.shape[first + d] == 1]
    v = lax.squeeze(v, tuple(first + d for d in range(mat.n_sparse) if d not in wide))

    def take(v: Any, indices: Any) -> Any:
        if not wide:
            return lax.expand_dims(v, (0,))
        return gather_rows(v, columns_of(indices, wide), fill)

    return over_batches(take, mat.batch_shape, v, mat.indices)


@compiled()
def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Any:
    """The values of ``sp_mat * v`` for a dense ``v`` that broadcasts to it: data for the indices of ``sp_mat``.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_multiply_dense(sparse.BCOO.fromdense(jnp.array([0.0, 2.0])), jnp.array([5.0, 7.0])).tolist()
    [14.0]
    """
    return sp_mat.data * values_at(sp_mat, v)


@compiled()
def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product element by element of two BCOO arrays of one shape and layout, at the indices of ``lhs``."""
    if lhs.shape != rhs.shape:
        raise ValueError(f"[bcoo_multiply_sparse] shapes {lhs.shape} and {rhs.shape} differ")
    if (lhs.n_batch, lhs.n_dense) != (rhs.n_batch, rhs.n_dense):
        raise NotImplementedError(f"[bcoo_multiply_sparse] the layouts of {lhs!r} and {rhs!r} differ")
    ldata, rdata = promotion.promote_dtypes(lhs.data, zero_padding(rhs))
    count = lhs.nse
    bounds = lhs.sparse_shape

    def product(ldata: Any, lindices: Any, rdata: Any, rindices: Any) -> Any:
        joined = jnp.concatenate([padded(lindices, bounds), padded(rindices, bounds).astype(lindices.dtype)])
        order, _, numbers = groups(joined)
        group = jnp.zeros(joined.shape[0], "int32").at[order].set(numbers)
        sums = add_rows((joined.shape[0], *rdata.shape[1:]), group[count:, None], rdata)
        return ldata * gather_rows(sums, group[:count, None])

    data = over_batches(product, lhs.batch_shape, ldata, lhs.indices, rdata, rhs.indices)
    return with_buffers(lhs, data, lhs.indices)
