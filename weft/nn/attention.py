"""Scaled dot-product attention: softmax of scores over the keys, block of queries by block of queries.

A block's scores are computed, masked, normalised and multiplied by the values before the next block's; in derivatives
they are computed anew. So the matrix of all scores is never stored::

    dot_product_attention(f32[2,1024,8,64], ...)  ->  scan over blocks of queries: dot_general, softmax, dot_general

Scores and their sums are float32 (or wider) whatever the operands are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.record import NamedTuple
from weft.autodiff import checkpoint
from weft.control import scan
from weft.numpy import promotion

_BLOCK_BYTES = 1 << 20  # of the scores of one block: they stay in the second cache


class _Given(NamedTuple):
    """What a call is made of: operands in the layout ``[batch, length, heads, size]``, masks broadcastable to
    ``[batch, heads, queries, keys]``."""

    bias: Any
    mask: Any
    query_lengths: Any
    key_lengths: Any
    scale: Any
    is_causal: bool
    window: tuple[int, int] | None


def _check(name: str, x: Any, shape: tuple[int, ...], dtype: Any = None) -> None:
    found = promotion.shape_of(x)
    fits = len(found) == len(shape) and all(want in (-1, have) for have, want in zip(found, shape, strict=True))
    if not fits:
        raise ValueError(f"{name} shape should be {list(shape)}: but got {found}")
    if dtype is not None and promotion.dtype_of(x) != dtype:
        raise ValueError(f"{name} dtype should be {dtype}, but got {promotion.dtype_of(x)}")


def _check_masked(name: str, x: Any, scores: tuple[int, ...]) -> Any:
    """A mask or bias as an array of four dimensions that can be broadcast to the scores."""
    shape = promotion.shape_of(x)
    if len(shape) > 4:
        raise ValueError(f"{name} must have at most 4 dimensions, but got {len(shape)}")
    shape = (1,) * (4 - len(shape)) + shape
    if any(have not in (1, want) for have, want in zip(shape, scores, strict=True)):
        raise TypeError(f"[dot_product_attention] {name} of shape {shape} cannot be broadcast to the scores {scores}")
    return wnp.reshape(x, shape)


def _window(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    if isinstance(size, int):
        return size, size
    left, right = size
    return int(left), int(right)


def _part(x: Any, start: Any, count: int) -> Any:
    """The rows of a mask that belong to some queries."""
    if x is None or promotion.shape_of(x)[2] == 1:
        return x
    return lax.dynamic_slice_in_dim(x, start, count, axis=2)


def _visible(given: _Given, start: Any, queries: int, keys: int) -> Any:
    """Where a query may look at a key, broadcastable to ``[batch, heads, queries, keys]``, or None: everywhere."""
    parts = [] if given.mask is None else [_part(given.mask, start, queries)]
    row = (wnp.arange(queries, dtype=np.int32) + start)[:, None]
    column = wnp.arange(keys, dtype=np.int32)[None, :]
    if given.is_causal:
        parts.append(row >= column)
    if given.window is not None:
        parts.append((row - given.window[0] <= column) & (column <= row + given.window[1]))
    for lengths, position in ((given.query_lengths, row), (given.key_lengths, column)):
        if lengths is not None:
            parts.append(position < lengths[:, None, None, None])
    found = None
    for part in parts:
        found = part if found is None else found & part
    return found


def _block(given: _Given, query: Any, key: Any, value: Any, start: Any) -> tuple[Any, Any]:
    """Result ``[batch, queries, heads, size]`` and logarithm of the sum ``[batch, heads, queries]`` of some queries."""
    batch, queries, heads, size = promotion.shape_of(query)
    keys, groups = promotion.shape_of(key)[1:3]
    wide = np.dtype(np.float64 if promotion.dtype_of(query) == np.float64 else np.float32)
    grouped = wnp.reshape(query, (batch, queries, groups, heads // groups, size))
    scores = wnp.einsum("btkgh,bskh->bkgts", grouped, key, preferred_element_type=wide)
    scores = wnp.reshape(scores, (batch, heads, queries, keys)) * promotion.convert(given.scale, wide)
    if given.bias is not None:
        scores = scores + promotion.convert(_part(given.bias, start, queries), wide)
    visible = _visible(given, start, queries, keys)
    if visible is not None:
        scores = wnp.where(visible, scores, np.asarray(-0.7 * np.finfo(wide).max, wide))
    largest = lax.stop_gradient(wnp.max(scores, axis=-1, keepdims=True, initial=-np.inf))
    powers = wnp.exp(scores - largest)
    total = wnp.sum(powers, axis=-1, keepdims=True)
    weights = promotion.convert(powers / total, promotion.dtype_of(key))
    weights = wnp.reshape(weights, (batch, groups, heads // groups, queries, keys))
    out = wnp.einsum("bkgts,bskh->btkgh", weights, value)
    out = wnp.reshape(out, (batch, queries, heads, promotion.shape_of(value)[-1]))
    if given.query_lengths is not None:
        row = wnp.arange(queries, dtype=np.int32) + start
        out = wnp.where((row[None, :] < given.query_lengths[:, None])[:, :, None, None], out, 0)
    return out, wnp.squeeze(wnp.log(total) + largest, -1)


def _in_blocks(given: _Given, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """All queries, as many at a time as keep the scores small."""
    batch, queries, heads, _ = promotion.shape_of(query)
    keys = promotion.shape_of(key)[1]
    count = max(8, _BLOCK_BYTES // max(1, 4 * batch * heads * keys) // 8 * 8)
    if queries <= count:
        return _block(given, query, key, value, np.int32(0))
    whole = queries // count

    @checkpoint.checkpoint
    def body(_: Any, number: Any) -> Any:
        start = number * count
        return None, _block(given, lax.dynamic_slice_in_dim(query, start, count, axis=1), key, value, start)

    _, (outs, sums) = scan.scan(body, None, wnp.arange(whole, dtype=np.int32))
    outs = wnp.reshape(wnp.moveaxis(outs, 0, 1), (batch, whole * count, heads, -1))
    sums = wnp.reshape(wnp.moveaxis(sums, 0, 2), (batch, heads, whole * count))
    if whole * count < queries:
        rest = lax.slice_in_dim(query, whole * count, queries, axis=1)
        out, total = _block(given, rest, key, value, np.int32(whole * count))
        outs, sums = wnp.concatenate([outs, out], axis=1), wnp.concatenate([sums, total], axis=2)
    return outs, sums


def _one_by_one(given: _Given, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Element by element of the batch, where eight queries of all of them have too many scores."""
    batch, _, heads, _ = promotion.shape_of(query)
    if batch == 1 or 32 * batch * heads * promotion.shape_of(key)[1] <= _BLOCK_BYTES:
        return _in_blocks(given, query, key, value)
    varying = [given.bias, given.mask]
    mapped = [x if x is not None and promotion.shape_of(x)[0] > 1 else None for x in varying]

    @checkpoint.checkpoint
    def body(_: Any, element: Any) -> Any:
        q, k, v, bias, mask, query_length, key_length = [None if x is None else x[None] for x in element]
        mine = given._replace(
            bias=given.bias if bias is None else bias,
            mask=given.mask if mask is None else mask,
            query_lengths=query_length,
            key_lengths=key_length,
        )
        out, total = _in_blocks(mine, q, k, v)
        return None, (out[0], total[0])

    elements = (query, key, value, *mapped, given.query_lengths, given.key_lengths)
    return scan.scan(body, None, elements)[1]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: Any = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """``softmax(scale * query @ key.T + bias) @ value`` for every head, with masked scores left out.

    Shapes: ``query`` [B, T, N, H] and ``key``, ``value`` [B, S, K, H], or all without B; N is a multiple of K, and K
    heads of keys serve N / K heads of queries each. The result has the shape and dtype of ``query``; with
    ``return_residual`` also the logarithms of the sums of exponentials, [B, T, N].

    ``bias`` (added) and ``mask`` (bool, true where a score counts) can be broadcast to [B, N, T, S]. ``scale`` is
    1 / sqrt(H) unless given. ``is_causal`` hides keys behind a query's position, ``local_window_size`` those further
    away than so many (to the left, to the right), the lengths ([B], int32) those beyond them; queries beyond theirs
    give 0. A query that sees no key gets the mean of all values, as in JAX. ``implementation`` is None or "xla", which
    mean the same here. ValueError for shapes and dtypes that do not fit.

    >>> x = np.ones((1, 3, 2, 4), np.float32)
    >>> dot_product_attention(x, x, x, is_causal=True).shape
    (1, 3, 2, 4)
    """
    promotion.check_arraylike("dot_product_attention", query, key, value)
    if implementation == "cudnn":
        raise RuntimeError("cuDNN is not detected: weft has no such library; leave implementation=None")
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}")
    batched = len(promotion.shape_of(query)) == 4
    query, key, value = [x if len(promotion.shape_of(x)) == 4 else x[None] for x in (query, key, value)]
    query, key, value = wnp.asarray(query), wnp.asarray(key), wnp.asarray(value)
    given, (query, key, value) = _as_given(
        query, key, value, bias, mask, scale, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size
    )
    out, total = _one_by_one(given, query, key, value)
    out = promotion.convert(out, promotion.dtype_of(query))
    total = promotion.convert(wnp.swapaxes(total, 1, 2), promotion.dtype_of(query))
    if not batched:
        out, total = out[0], total[0]
    return (out, total) if return_residual else out


def _as_given(
    query: Any, key: Any, value: Any, bias: Any, mask: Any, scale: Any, is_causal: bool, query_lengths: Any,
    key_lengths: Any, window: Any,
) -> tuple[_Given, tuple[Any, Any, Any]]:  # fmt: skip
    """The operands checked."""
    shape = promotion.shape_of(key)
    if len(shape) != 4:
        raise ValueError(f"key must have 3 or 4 dimensions, but got shape {shape}")
    batch, keys, groups, size = shape
    dtype = promotion.dtype_of(key)
    _check("value", value, (batch, keys, groups, size), dtype)
    _check("query", query, (batch, -1, -1, size), dtype)
    _, queries, heads, _ = promotion.shape_of(query)
    if groups == 0 or heads % groups:
        raise ValueError(
            f"The number of query heads must be a multiple of key/value heads, but got {heads} vs {groups}"
        )
    if not dtypes.issubdtype(dtype, np.floating):
        raise ValueError(f"[dot_product_attention] operands must be floating point, but got {dtype}")
    scores = (batch, heads, queries, keys)
    if mask is not None:
        if promotion.dtype_of(mask) != np.bool_:
            raise ValueError(f"mask dtype should be bool, but got {promotion.dtype_of(mask)}")
        mask = _check_masked("mask", mask, scores)
    if bias is not None:
        bias = _check_masked("bias", bias, scores)
    lengths = []
    for name, value_of in (("query_seq_lengths", query_lengths), ("key_value_seq_lengths", key_lengths)):
        if value_of is not None:
            value_of = wnp.asarray(value_of)
            _check(name, value_of, (batch,), np.dtype(np.int32))
        lengths.append(value_of)
    scale = 1 / math.sqrt(size) if scale is None else scale
    return _Given(bias, mask, lengths[0], lengths[1], scale, bool(is_causal), _window(window)), (query, key, value)
