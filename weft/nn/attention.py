"""Scaled dot-product attention: softmax of scores over the keys, block of queries by block of queries.

A block's scores are computed, masked, exponentiated and multiplied by the values before the next block's; in
derivatives they are computed anew. So the matrix of all scores is never stored::

    dot_product_attention(f32[2,1024,8,64], ...)  ->  scan over blocks of queries: dot_general, softmax, dot_general

So it is for weft's own compiler. For other hardware it is two products and a softmax, which compilers there know.

Scores and their sums are float32 (or wider) whatever the operands are.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.record import NamedTuple
from weft.autodiff import checkpoint
from weft.control import branches, scan
from weft.core.symbolic import open_sizes
from weft.core.tracing import trace as tracing
from weft.dispatch import devices
from weft.numpy import promotion

_BLOCK_BYTES = 1 << 20  # bytes of the scores of one block: they stay in the second cache
_ROWS = 256  # queries of a block, if there are as many: fewer make products that read all keys for little work
_CAUSAL_PARTS = 4  # parts of the queries, each with the keys up to its end: five eighths of the scores are computed


class _Given(NamedTuple):
    """The arguments of a call: operands in the layout ``[batch, length, heads, size]``, masks broadcastable to
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
            parts.append(position[None, None] < lengths[:, None, None, None])
    found = None
    for part in parts:
        found = promotion.with_rank(part, 4) if found is None else found & promotion.with_rank(part, 4)
    return found


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype of scores."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _block(given: _Given, query: Any, key: Any, value: Any, start: Any, normalised: bool = False) -> tuple[Any, Any]:
    """Result ``[batch, queries, heads, size]`` and logarithm of the sum ``[batch, heads, queries]`` of some queries.

    ``normalised``: weights are divided by their sum, instead of the result, which has fewer elements.
    """
    batch, queries, heads, size = promotion.shape_of(query)
    keys, groups = promotion.shape_of(key)[1:3]
    wide = _wide(promotion.dtype_of(query))
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
    dtype = promotion.dtype_of(key)
    weights = promotion.convert(powers / total if normalised else powers, dtype)
    weights = wnp.reshape(weights, (batch, groups, heads // groups, queries, keys))
    out = wnp.einsum("bkgts,bskh->btkgh", weights, value, preferred_element_type=dtype if normalised else wide)
    out = wnp.reshape(out, (batch, queries, heads, promotion.shape_of(value)[-1]))
    if not normalised:
        out = promotion.convert(out / wnp.moveaxis(total, 1, 2), dtype)
    if given.query_lengths is not None:
        row = wnp.arange(queries, dtype=np.int32) + start
        out = wnp.where((row[None, :] < given.query_lengths[:, None])[:, :, None, None], out, 0)
    return out, wnp.squeeze(wnp.log(total) + largest, -1)


def _in_blocks(given: _Given, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """All queries, as many at a time as keep the scores small; only those keys that some of them may see."""
    batch, queries, heads, _ = promotion.shape_of(query)
    keys = promotion.shape_of(key)[1]
    count = max(8, _BLOCK_BYTES // max(1, 4 * batch * heads * keys) // 8 * 8)
    if queries <= count:
        return _block(given, query, key, value, np.int32(0))
    # A row that sees no key has the mean of all values, so no key is left out unless each row sees the first one.
    cuts = given.is_causal and given.bias is given.mask is given.key_lengths is given.window is None
    step = -(-queries // (_CAUSAL_PARTS * count)) * count if cuts else queries
    parts = []
    for first in range(0, queries, step):
        stop = min(first + step, queries)
        seen = min(stop, keys) if cuts else keys
        rows, near, of_near = [
            lax.slice_in_dim(x, low, high, axis=1) if high - low < promotion.shape_of(x)[1] else x
            for x, low, high in ((query, first, stop), (key, 0, seen), (value, 0, seen))
        ]
        parts += _blocks_of_rows(given, rows, near, of_near, first, count)
    outs, sums = zip(*parts, strict=True)
    if len(parts) == 1:
        return outs[0], sums[0]
    return wnp.concatenate(outs, axis=1), wnp.concatenate(sums, axis=2)


def _blocks_of_rows(given: _Given, query: Any, key: Any, value: Any, first: int, count: int) -> list[tuple[Any, Any]]:
    """Queries from number ``first`` on, ``count`` at a time, and the rest of them."""
    batch, queries, heads, _ = promotion.shape_of(query)
    whole = queries // count

    @checkpoint.checkpoint
    def body(_: Any, number: Any) -> Any:
        start = number * count
        rows = lax.dynamic_slice_in_dim(query, start, count, axis=1)
        return None, _block(given, rows, key, value, start + np.int32(first))

    found = []
    if whole:
        _, (outs, sums) = scan.scan(body, None, wnp.arange(whole, dtype=np.int32))
        outs = wnp.reshape(wnp.moveaxis(outs, 0, 1), (batch, whole * count, heads, -1))
        found.append((outs, wnp.reshape(wnp.moveaxis(sums, 0, 2), (batch, heads, whole * count))))
    if whole * count < queries:
        rest = lax.slice_in_dim(query, whole * count, queries, axis=1)
        found.append(_block(given, rest, key, value, np.int32(first + whole * count)))
    return found


def _attended(given: _Given, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """All queries, in the form for the compiler of the device."""
    batch, queries, heads, _ = promotion.shape_of(query)
    whole = functools.partial(_block, given, start=np.int32(0), normalised=True)
    if open_sizes.thread.session is not None:  # parts of an unknown size would be another program for each value
        return whole(query, key, value)
    if 4 * batch * heads * queries * promotion.shape_of(key)[1] <= _BLOCK_BYTES:
        return _block(given, query, key, value, np.int32(0))
    if not devices.backend_at(devices.place_of_call([query, key, value])).step_kinds:
        return whole(query, key, value)
    blocks = functools.partial(_by_elements, given)
    if not tracing.is_tracing():
        return blocks(query, key, value)

    # stores the operands alone, so that derivatives of one form keep nothing for the other
    @functools.partial(checkpoint.checkpoint, prevent_cse=False)
    def either(*operands: Any) -> Any:
        return branches.own_or_elsewhere(blocks, whole, *operands)

    return either(query, key, value)


def _together(count: int, fitting: int) -> int:
    """The largest divisor of ``count`` that is at most ``fitting``; at least 1."""
    return next(n for n in range(max(1, min(count, fitting)), 0, -1) if count % n == 0)


def _by_elements(given: _Given, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Some elements of the batch at a time: as many as let ``_ROWS`` queries of all of them have few scores."""
    batch, queries, heads, _ = promotion.shape_of(query)
    scores = 4 * heads * min(queries, _ROWS) * promotion.shape_of(key)[1]
    together = _together(batch, _BLOCK_BYTES // max(1, scores)) if batch else batch
    if together == batch:
        return _by_heads(given, query, key, value)
    varying = [given.bias, given.mask]
    mapped = [x if x is not None and promotion.shape_of(x)[0] > 1 else None for x in varying]

    @checkpoint.checkpoint
    def body(_: Any, elements: Any) -> Any:
        q, k, v, bias, mask, query_lengths, key_lengths = elements
        mine = given._replace(
            bias=given.bias if bias is None else bias,
            mask=given.mask if mask is None else mask,
            query_lengths=query_lengths,
            key_lengths=key_lengths,
        )
        return None, _by_heads(mine, q, k, v)

    def cut(x: Any) -> Any:
        return None if x is None else wnp.reshape(x, (batch // together, together, *promotion.shape_of(x)[1:]))

    elements = (query, key, value, *mapped, given.query_lengths, given.key_lengths)
    _, found = scan.scan(body, None, tuple([cut(x) for x in elements]))
    out, total = [wnp.reshape(x, (batch, *promotion.shape_of(x)[2:])) for x in found]
    return out, total


def _by_heads(given: _Given, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Some heads at a time, likewise: products of many queries read the keys of a head less often."""
    batch, queries, heads, size = promotion.shape_of(query)
    keys, groups = promotion.shape_of(key)[1:3]
    scores = 4 * batch * (heads // groups) * min(queries, _ROWS) * keys
    together = _together(groups, _BLOCK_BYTES // max(1, scores))
    parts = groups // together
    if parts == 1:
        return _in_blocks(given, query, key, value)

    def part_of(x: Any, number: Any, axis: int) -> Any:
        if x is None or promotion.shape_of(x)[axis] == 1:
            return x
        count = promotion.shape_of(x)[axis] // parts
        return lax.dynamic_slice_in_dim(x, number * count, count, axis=axis)

    @checkpoint.checkpoint
    def attended(number: Any) -> Any:
        mine = given._replace(bias=part_of(given.bias, number, 1), mask=part_of(given.mask, number, 1))
        return _in_blocks(mine, *[part_of(x, number, 2) for x in (query, key, value)])

    def body(found: Any, number: Any) -> Any:
        start = number * (heads // parts)
        pairs = zip(found, attended(number), (2, 1), strict=True)
        return tuple([lax.dynamic_update_slice_in_dim(x, new, start, axis) for x, new, axis in pairs]), None

    dtype = promotion.dtype_of(key)
    out = wnp.zeros((batch, queries, heads, size), dtype)
    total = wnp.zeros((batch, heads, queries), _wide(dtype))
    return scan.scan(body, (out, total), wnp.arange(parts, dtype=np.int32))[0]


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
    out, total = _attended(given, query, key, value)
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
