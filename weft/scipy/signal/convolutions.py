"""Convolutions of arrays of any rank: sums of shifted products, or products of Fourier transforms.

convolve(f32[9,9], f32[3,3])  ->  nine shifted products of the padded array, summed
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.control import scan as scan_module
from weft.numpy import axes as axes_module
from weft.numpy import fft, promotion
from weft.operations import contract

_UNROLLED = 64  # shifted products beyond which they are summed in a loop


def _checked(name: str, in1: Any, in2: Any, mode: str, fillvalue: Any = 0) -> tuple[Any, Any]:
    promotion.check_arraylike(name, in1, in2)
    shapes = promotion.shape_of(in1), promotion.shape_of(in2)
    if len(shapes[0]) != len(shapes[1]):
        raise ValueError(f"in1 and in2 must have the same number of dimensions. [{name}] got {shapes[0]}, {shapes[1]}")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of ['full', 'same', 'valid']. [{name}] got {mode!r}")
    in1, in2 = promotion.promote_dtypes_inexact(in1, in2)
    return wnp.asarray(in1), wnp.asarray(in2)


def _part(full: Any, first: tuple[int, ...], second: tuple[int, ...], mode: str, over: Sequence[int]) -> Any:
    """What a mode keeps of the full convolution."""
    shape = promotion.shape_of(full)
    starts, stops = [0] * len(shape), list(shape)
    for d in over:
        if mode == "same":
            starts[d] = (shape[d] - first[d]) // 2
            stops[d] = starts[d] + first[d]
        elif mode == "valid":
            starts[d] = min(first[d], second[d]) - 1
            stops[d] = max(first[d], second[d])
    return lax.slice(full, starts, stops)


def _check_nested(first: tuple[int, ...], second: tuple[int, ...], mode: str, over: Sequence[int]) -> None:
    larger = [all(a[d] >= b[d] for d in over) for a, b in ((first, second), (second, first))]
    if mode == "valid" and not any(larger):
        raise ValueError(
            f"One input must be smaller than the other in every dimension. Got shapes {first} and {second}"
        )


def _direct(x: Any, v: Any) -> Any:
    """The full convolution; v is the smaller operand."""
    shape, few = promotion.shape_of(x), promotion.shape_of(v)
    out = tuple([n + m - 1 for n, m in zip(shape, few, strict=True)])
    padded = lax.pad(x, np.zeros((), promotion.dtype_of(x)), [(m - 1, m - 1, 0) for m in few])
    turned = lax.rev(v, tuple(range(len(few))))
    if math.prod(few) <= _UNROLLED:
        total: Any = None
        for offset in itertools.product(*map(range, few)):
            part = lax.slice(padded, offset, [p + n for p, n in zip(offset, out, strict=True)])
            term = part * turned[offset]
            total = term if total is None else total + term
        return total
    flat = wnp.reshape(turned, (-1,))
    offsets = np.stack(np.unravel_index(np.arange(math.prod(few)), few), axis=1).astype(np.int32)

    def step(total: Any, given: Any) -> Any:
        offset, weight = given
        return total + lax.dynamic_slice(padded, list(offset), out) * weight, None

    return scan_module.scan(step, wnp.zeros(out, promotion.dtype_of(x)), (offsets, flat))[0]


def _convolved(name: str, in1: Any, in2: Any, mode: str, method: str) -> Any:
    first, second = promotion.shape_of(in1), promotion.shape_of(in2)
    if method not in ("auto", "fft", "direct"):
        raise ValueError(f"Got method={method!r}; expected 'auto', 'fft', or 'direct'.")
    if 0 in first + second:
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {first} and {second}. [{name}]")
    over = range(len(first))
    _check_nested(first, second, mode, over)
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    small_second = math.prod(second) <= math.prod(first)
    full = _direct(in1, in2) if small_second else _direct(in2, in1)
    return _part(full, first, second, mode, over)


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The convolution of two arrays of one rank, in floating point.

    ``mode`` is "full"; "same", the middle of it in the shape of ``in1``; or "valid", where one array lies inside the
    other. ``method`` is "direct", "fft" or "auto" (direct); ``precision`` changes nothing. ValueError for different
    ranks, other modes and methods, an unknown precision, and arrays without elements.

    >>> convolve(np.float32([1, 2, 3]), np.float32([1, 1])).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    contract.canonical_precision(precision)
    in1, in2 = _checked("convolve", in1, in2, mode)
    return _convolved("convolve", in1, in2, mode, method)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The correlation of two arrays of one rank: the convolution with the second turned round and conjugated.

    Modes, methods and errors are those of ``convolve``.

    >>> correlate(np.float32([1, 2, 3]), np.float32([0, 1])).tolist()
    [1.0, 2.0, 3.0, 0.0]
    """
    contract.canonical_precision(precision)
    in1, in2 = _checked("correlate", in1, in2, mode)
    turned = wnp.conj(wnp.flip(in2)) if promotion.shape_of(in2) else wnp.conj(in2)
    return _convolved("correlate", in1, turned, mode, method)


def _two_dimensions(name: str, in1: Any, in2: Any, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"{name}() only supports boundary='fill', fillvalue=0")
    promotion.check_arraylike(name, in1, in2)
    if len(promotion.shape_of(in1)) != 2 or len(promotion.shape_of(in2)) != 2:
        raise ValueError(f"{name}() only supports 2-dimensional inputs.")


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Array:
    """The convolution of two matrices, zeros around them; NotImplementedError for other boundaries.

    >>> convolve2d(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)).tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    _two_dimensions("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct", precision)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Array:
    """The correlation of two matrices, zeros around them; NotImplementedError for other boundaries.

    >>> correlate2d(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), "valid").tolist()
    [[4.0]]
    """
    _two_dimensions("correlate2d", in1, in2, boundary, fillvalue)
    if mode != "same":
        return correlate(in1, in2, mode, "direct", precision)
    full = correlate(in1, in2, "full", "direct", precision)
    starts = [m // 2 for m in promotion.shape_of(in2)]  # the middle of an even number is the right one here
    return lax.slice(full, starts, [a + n for a, n in zip(starts, promotion.shape_of(in1), strict=True)])


def _fast_length(least: int) -> int:
    """The smallest length of at least ``least`` whose prime factors are 2, 3 and 5."""
    best = 1 << max(least - 1, 0).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            best = min(best, three << max(-(-least // three) - 1, 0).bit_length())
            three *= 3
        five *= 5
    return best


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Array:
    """The convolution of two arrays along ``axes`` (None: all) by Fourier transforms; elsewhere they are broadcast.

    ValueError for different ranks and other modes.

    >>> fftconvolve(np.float32([1, 2, 3]), np.float32([1, 1])).round(3).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    in1, in2 = _checked("fftconvolve", in1, in2, mode)
    first, second = promotion.shape_of(in1), promotion.shape_of(in2)
    over = axes_module.canonical_axes(axes_module.static_axes(axes), len(first))
    for d in range(len(first)):
        if d not in over and first[d] != second[d] and 1 not in (first[d], second[d]):
            raise ValueError(f"[fftconvolve] shapes {first} and {second} cannot be broadcast outside axes {over}")
    _check_nested(first, second, mode, over)
    lengths = [max(first[d] + second[d] - 1, 0) for d in over]
    dtype = promotion.dtype_of(in1)
    if not over:
        return in1 * in2
    if 0 in first + second:
        return wnp.zeros(tuple([first[d] if mode == "same" else 0 for d in range(len(first))]), dtype)
    is_complex = dtypes.issubdtype(dtype, np.complexfloating)
    fast = [_fast_length(n) for n in lengths]
    if is_complex:
        full = fft.ifftn(fft.fftn(in1, fast, over) * fft.fftn(in2, fast, over), fast, over)
    else:
        full = fft.irfftn(fft.rfftn(in1, fast, over) * fft.rfftn(in2, fast, over), fast, over)
    limits = list(promotion.shape_of(full))
    for d, n in zip(over, lengths, strict=True):
        limits[d] = n
    full = lax.slice(full, [0] * len(limits), limits)
    return _part(full, first, second, mode, over)
