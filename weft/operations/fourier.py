"""The primitive of discrete Fourier transforms over the last dimensions of an array.

Four kinds (``FftType``): complex forward and inverse, real forward (which gives the half of the spectrum that is not
redundant), and its inverse. Lengths are any positive integers::

    fft[fft_lengths=(8,) fft_type=RFFT]  f32[3,8] -> c64[3,5]

The runtime computes them on all threads (``runtime/src/fft/fft.h``); results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core import kinds
from weft.core.primitive import ALL
from weft.operations import mapped
from weft.operations.algorithms import FftType
from weft.operations.later import ops

_MOST = 1 << 30  # elements along one dimension, and arrays of a batch, that the runtime transforms
_REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
_COMPLEX = {real: whole for whole, real in _REAL.items()}


def _transformed(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> np.ndarray:
    """The transform of a NumPy array by NumPy: the reference, and what computes arrays of 2**30 rows and more."""
    x = np.asarray(x)
    shape, dtype = _result(x.shape, x.dtype, fft_type, fft_lengths)
    if math.prod(shape) * x.size == 0:
        return np.zeros(shape, dtype)
    function = {
        FftType.FFT: np.fft.fftn,
        FftType.IFFT: np.fft.ifftn,
        FftType.RFFT: np.fft.rfftn,
        FftType.IRFFT: np.fft.irfftn,
    }[fft_type]
    found = function(x, s=fft_lengths, axes=tuple(range(-len(fft_lengths), 0)))
    return np.ascontiguousarray(found, dtype)


def _library(avals: Any, params: Any, read: Sequence[bool]) -> kinds.Library | None:
    """The runtime's transform: which one, of how many arrays, and the lengths; None where a size is none of its own."""
    (x,), lengths = avals, params["fft_lengths"]
    batch = math.prod(x.shape[: x.ndim - len(lengths)])
    sizes = (int(params["fft_type"]), batch, *lengths)
    if not lengths or 0 in sizes[1:] or max(sizes) >= _MOST:
        return None
    return kinds.Library("fft", x.dtype.char, 1, sizes)


def _call(x: Any, **params: Any) -> tuple[np.ndarray]:
    return (_transformed(x, **params),)


def _result(
    shape: tuple[int, ...], dtype: np.dtype, fft_type: FftType, fft_lengths: tuple[int, ...]
) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the transform of an array."""
    if not fft_lengths:
        return shape, dtype
    if fft_type == FftType.RFFT:
        return (*shape[:-1], fft_lengths[-1] // 2 + 1), _COMPLEX[dtype]
    if fft_type == FftType.IRFFT:
        return (*shape[:-1], fft_lengths[-1]), _REAL[dtype]
    return shape, dtype


def _typing(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> list[Any]:
    _check_dtype(x, fft_type)
    rank = len(fft_lengths)
    if rank > x.ndim:
        raise ValueError(
            f"FFT input shape {x.shape} must have at least as many input dimensions as fft_lengths {fft_lengths}."
        )
    if rank > 3:
        raise ValueError(f"[fft] at most 3 dimensions are transformed at once, got fft_lengths={fft_lengths}")
    if any(n < 0 for n in fft_lengths):
        raise ValueError(f"[fft] lengths must not be negative, got fft_lengths={fft_lengths}")
    given, needed = x.shape[x.ndim - rank :], fft_lengths
    if fft_type == FftType.IRFFT and rank:
        needed = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
        if given != needed and not (fft_lengths[-1] == 0 and given == fft_lengths):
            raise ValueError(
                f"[fft] IRFFT to lengths {fft_lengths} needs operands of shape {needed} in the last dimensions, "
                f"got shape {x.shape}"
            )
    elif given != needed:
        raise ValueError(f"FFT input shape {x.shape} minor dimensions must be equal to fft_lengths {fft_lengths}")
    shape, dtype = _result(x.shape, x.dtype, fft_type, fft_lengths)
    return [runtime.ShapedArray(shape, dtype)]


def _check_dtype(x: Any, fft_type: FftType) -> None:
    if fft_type == FftType.RFFT:
        if x.dtype not in _COMPLEX:
            raise ValueError(f"RFFT input must be float32 or float64, got {x.dtype}")
    elif x.dtype not in _REAL:
        raise ValueError(f"{fft_type.name} input must be complex64 or complex128, got {x.dtype}")


def _in_common(avals: Any, params: Any) -> int:
    return avals[0].ndim - len(params["fft_lengths"])


fft_p = core.Primitive("fft", kind=kinds.External(call=_call, library=_library, batch=_in_common))
fft_p.def_abstract_eval(lambda x, **params: _typing(x, **params)[0])
fft_p.linear = ALL


def _transpose(ct: Any, x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    """The matrix of the complex transforms is symmetric; the real ones drop or repeat half of the spectrum."""
    if fft_type == FftType.RFFT:
        return (_rfft_transpose(ct, fft_lengths),)
    if fft_type == FftType.IRFFT:
        return (_irfft_transpose(ct, fft_lengths),)
    return (fft_p.bind(ct, fft_type=fft_type, fft_lengths=fft_lengths),)


def _rfft_transpose(ct: Any, fft_lengths: tuple[int, ...]) -> Any:
    if not fft_lengths or 0 in fft_lengths:
        return ops.real(ct)
    aval = core.get_aval(ct)
    missing = fft_lengths[-1] - aval.shape[-1]
    config = [(0, 0, 0)] * (aval.ndim - 1) + [(0, missing, 0)]
    whole = ops.pad(ct, np.zeros((), aval.dtype), config)
    return ops.real(fft_p.bind(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths))


def _irfft_transpose(ct: Any, fft_lengths: tuple[int, ...]) -> Any:
    """Every frequency except the first and, for an even length, the last, stands for two."""
    spectrum = fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths)
    aval, length = core.get_aval(spectrum), fft_lengths[-1]
    weights = np.full(length // 2 + 1, 2 / math.prod(fft_lengths), _REAL[aval.dtype]) if length else np.zeros(1)
    weights[0] /= 2
    if length % 2 == 0 and length > 1:
        weights[-1] /= 2
    spread = ops.broadcast_in_dim(weights.astype(aval.dtype), aval.shape, (aval.ndim - 1,))
    return ops.conj(ops.mul(spectrum, spread))


fft_p.transpose = _transpose


def _batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    return fft_p.bind(mapped.in_front(size, values[0], dims[0]), **params), 0


fft_p.batch = _batch


def as_fft_type(value: Any) -> FftType:
    """A kind of transform, or its name in any case."""
    if isinstance(value, FftType):
        return value
    if isinstance(value, str):
        found = FftType.__members__.get(value.upper())
        if found is None:
            raise ValueError(f"Unknown FFT type '{value}'")
        return found
    raise TypeError(f"Unknown FFT type value '{value}'")


def operand_dtype(dtype: np.dtype, fft_type: FftType) -> np.dtype:
    """The dtype in which values of ``dtype`` are transformed."""
    if fft_type == FftType.RFFT:
        if dtypes.issubdtype(dtype, np.complexfloating):
            raise ValueError("only real valued inputs supported for rfft")
        return dtype if dtypes.issubdtype(dtype, np.floating) else dtypes.canonicalize_dtype(np.float64)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return dtype
    wide = dtype == np.float64 or (dtypes.issubdtype(dtype, np.integer) and np.dtype(dtype).itemsize == 8)
    return np.dtype(np.complex128 if wide else np.complex64)
