"""Bits of bytes: packbits and unpackbits.

packbits(bool[10])   ->  pad to 16, reshape [2,8], shift each bit to its position, sum over the last axis: u8[2]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, reductions

jit = jit_module.jit
_BYTE = np.dtype(np.uint8)


def _check_order(bitorder: str) -> None:
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")


@jit(static_argnames=("axis", "bitorder"))
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight elements along ``axis`` (None: flattened), as bits (nonzero is 1), in one byte; the last is filled with 0.

    >>> packbits(np.array([1, 0, 1])).tolist()
    [160]
    """
    promotion.check_arraylike("packbits", a)
    dtype = promotion.dtype_of(a)
    if not (dtype == np.bool_ or dtypes.issubdtype(dtype, np.integer)):
        raise TypeError("Expected an input array of integer or boolean data type")
    _check_order(bitorder)
    bits = promotion.convert(lax.ne(a, np.asarray(0, dtype)), _BYTE)
    if axis is None:
        bits, axis = rearrange.ravel(bits), 0
    dim = axes.canonical_axis(axis, len(promotion.shape_of(bits)))
    positions = lax.iota(_BYTE, 8)
    positions = positions if bitorder == "little" else lax.rev(positions, (0,))
    bits = rearrange.moveaxis(bits, dim, -1)
    *outer, count = promotion.shape_of(bits)
    missing = -count % 8
    if missing:
        bits = lax.pad(bits, np.uint8(0), [(0, 0, 0)] * len(outer) + [(0, missing, 0)])
    bits = lax.reshape(bits, (*outer, (count + missing) // 8, 8))
    positions = lax.broadcast_in_dim(positions, (*(1 for _ in outer), 1, 8), (len(outer) + 1,))
    packed = reductions.sum(lax.shift_left(bits, positions), axis=-1)
    return rearrange.moveaxis(promotion.convert(packed, _BYTE), -1, dim)


@jit(static_argnames=("axis", "count", "bitorder"))
def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """The bits of bytes along ``axis`` (None: flattened), each as a byte; ``count`` of them, filled with 0.

    >>> unpackbits(np.array([160], np.uint8), count=3).tolist()
    [1, 0, 1]
    """
    promotion.check_arraylike("unpackbits", a)
    if promotion.dtype_of(a) != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    _check_order(bitorder)
    positions = np.arange(8, dtype=np.uint8)
    positions = positions if bitorder == "little" else positions[::-1].copy()
    if axis is None:
        a, axis = rearrange.ravel(a), 0
    dim = axes.canonical_axis(axis, len(promotion.shape_of(a)))
    rows = rearrange.moveaxis(promotion.as_array(a), dim, -1)
    *outer, bytes_ = promotion.shape_of(rows)
    shape = (*outer, bytes_, 8)
    spread = lax.broadcast_in_dim(rows, shape, tuple(range(len(shape) - 1)))
    shifts = lax.broadcast_in_dim(promotion.constant(positions), shape, (len(shape) - 1,))
    bits = lax.bitwise_and(lax.shift_right_logical(spread, shifts), lax.full(shape, np.uint8(1)))
    bits = lax.reshape(bits, (*outer, bytes_ * 8))
    if count is not None:
        total = bytes_ * 8
        wanted = count if count >= 0 else total + count
        if wanted > total:
            bits = lax.pad(bits, np.uint8(0), [(0, 0, 0)] * len(outer) + [(0, wanted - total, 0)])
        else:
            bits = lax.slice_in_dim(bits, 0, max(wanted, 0), axis=len(outer))
    return rearrange.moveaxis(bits, -1, dim)
