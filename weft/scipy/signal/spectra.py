"""Spectra of pieces of a signal: short-time Fourier transforms, spectral densities, and trends taken away.

The signal is cut into overlapping pieces along its last axis, each multiplied by a window and transformed::

    stft(f32[100], nperseg=16)  ->  pad, gather of pieces f32[14,16], mul, rfft
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base import lazy
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.numpy import axes, fft, promotion


class _Segments(NamedTuple):
    """How a signal is cut: the window, its length, the overlap, the length of the transform."""

    window: np.ndarray | Any
    length: int
    overlap: int
    points: int


# ---- trends


def _linear_residual(x: Any) -> Any:
    """The last axis without its least-squares line."""
    count = promotion.shape_of(x)[-1]
    centred = x - wnp.mean(x, axis=-1, keepdims=True)
    if count < 2:
        return centred
    line = np.arange(count) - (count - 1) / 2
    line = (line / np.sqrt((line * line).sum())).astype(promotion.dtype_of(x))
    line = line.reshape((1,) * (len(promotion.shape_of(x)) - 1) + (count,))
    return centred - wnp.sum(centred * line, axis=-1, keepdims=True) * line


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: None = None) -> Array:
    """``data`` without its line of least squares along ``axis``, or with "constant" without its mean.

    ``bp`` are static indices where a new line begins. Floating point. ValueError for another ``type`` and for indices
    outside, NotImplementedError for ``overwrite_data``.

    >>> detrend(np.float32([1, 3, 5]), type="constant").tolist()
    [-2.0, 0.0, 2.0]
    """
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    promotion.check_arraylike("detrend", data)
    (x,) = promotion.promote_dtypes_inexact(wnp.asarray(data))
    if type == "constant":
        return x - wnp.mean(x, axis, keepdims=True)
    position = axes.canonical_axis(axis, len(promotion.shape_of(x)))
    count = promotion.shape_of(x)[position]
    borders = sorted({0, count, *map(operator.index, np.atleast_1d(bp).tolist())})
    if borders[0] < 0 or borders[-1] > count:
        raise ValueError("Breakpoints must be non-negative and less than length of data along given axis.")
    rows = wnp.moveaxis(x, position, -1)
    parts = [_linear_residual(rows[..., a:b]) for a, b in itertools.pairwise(borders)]
    return wnp.moveaxis(wnp.concatenate(parts, axis=-1) if parts else rows, -1, position)


# ---- pieces


def _plan(name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, count: int, default: int) -> _Segments:
    if isinstance(window, str | tuple):
        length = default if nperseg is None else operator.index(nperseg)
        if length < 1:
            raise ValueError(f"nperseg must be a positive integer. [{name}] got {length}")
        length = min(length, count)
        window = lazy.scipy_windows.get_window(window, length)
    else:
        shape = promotion.shape_of(window)
        if len(shape) != 1:
            raise ValueError(f"window must be 1-D. [{name}] got shape {shape}")
        if shape[0] > count:
            raise ValueError(f"window is longer than input signal. [{name}] {shape[0]} > {count}")
        if nperseg is not None and operator.index(nperseg) != shape[0]:
            raise ValueError(
                f"value specified for nperseg is different from length of window. [{name}] {nperseg} and {shape[0]}"
            )
        length = shape[0]
    overlap = length // 2 if noverlap is None else operator.index(noverlap)
    if overlap >= length:
        raise ValueError(f"noverlap must be less than nperseg. [{name}] got {overlap} and {length}")
    points = length if nfft is None else operator.index(nfft)
    if points < length:
        raise ValueError(f"nfft must be greater than or equal to nperseg. [{name}] got {points} and {length}")
    return _Segments(window, length, overlap, points)


def _pieces(x: Any, plan: _Segments) -> Any:
    """``[..., count]`` as ``[..., pieces, length]``."""
    count = promotion.shape_of(x)[-1]
    starts = np.arange(0, count - plan.length + 1, plan.length - plan.overlap)
    return wnp.take(x, starts[:, None] + np.arange(plan.length)[None, :], axis=-1)


def _trend_remover(kind: Any) -> Callable[[Any], Any]:
    if callable(kind):
        return kind
    if not kind:
        return lambda x: x
    return lambda x: detrend(x, axis=-1, type=kind)


def _transforms(x: Any, plan: _Segments, kind: Any, one_sided: bool) -> Any:
    """The transforms of the pieces: ``[..., pieces, frequencies]``."""
    pieces = _trend_remover(kind)(_pieces(x, plan))
    window = wnp.asarray(plan.window, promotion.dtype_of(pieces))
    windowed = pieces * promotion.with_rank(window, len(promotion.shape_of(pieces)))
    return fft.rfft(windowed, plan.points) if one_sided else fft.fft(windowed, plan.points)


def _extended(x: Any, boundary: str | None, size: int) -> Any:
    """The last axis continued at both ends."""
    if boundary is None or size == 0:
        return x
    count = promotion.shape_of(x)[-1]
    if boundary in ("even", "odd") and size > count - 1:
        raise ValueError(f"[stft] boundary={boundary!r} needs more than {size} samples, got {count}")
    rank = len(promotion.shape_of(x))
    if boundary == "zeros":
        return lax.pad(x, np.zeros((), promotion.dtype_of(x)), [(0, 0, 0)] * (rank - 1) + [(size, size, 0)])
    first, last = x[..., :1], x[..., -1:]
    if boundary == "constant":
        shape = (*promotion.shape_of(x)[:-1], size)
        return wnp.concatenate([wnp.broadcast_to(first, shape), x, wnp.broadcast_to(last, shape)], axis=-1)
    left, right = x[..., 1 : size + 1][..., ::-1], x[..., -size - 1 : -1][..., ::-1]
    if boundary == "odd":
        left, right = 2 * first - left, 2 * last - right
    return wnp.concatenate([left, x, right], axis=-1)


_BOUNDARIES = ("even", "odd", "constant", "zeros", None)


def _frequencies(points: int, fs: Any, one_sided: bool) -> Any:
    return fft.rfftfreq(points, 1 / fs) if one_sided else fft.fftfreq(points, 1 / fs)


def _times(count: int, step: Any) -> Any:
    """The first ``count`` multiples of ``step``."""
    return promotion.convert(wnp.arange(count), promotion.dtype_of(0.0)) * step


def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
    padded: bool = True, axis: int = -1,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The short-time Fourier transform: frequencies, times of the pieces' middles, and the transforms.

    Pieces are ``nperseg`` long and overlap by ``noverlap`` (half); ``window`` is a name SciPy knows, or a vector. The
    transforms stand on ``axis``, followed by a last axis of pieces. ``boundary`` ("even", "odd", "constant", "zeros",
    None) continues the signal at both ends, ``padded`` fills the last piece. ValueError for what does not fit.

    >>> [part.shape for part in stft(np.ones(100, np.float32), nperseg=16)]
    [(9,), (14,), (9, 14)]
    """
    if boundary not in _BOUNDARIES:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: {list(_BOUNDARIES)}")
    promotion.check_arraylike("stft", x)
    (x,) = promotion.promote_dtypes_inexact(wnp.asarray(x))
    position = axes.canonical_axis(axis, len(promotion.shape_of(x)))
    if 0 in promotion.shape_of(x):
        nothing = wnp.zeros(promotion.shape_of(x))
        return nothing, nothing, wnp.zeros(promotion.shape_of(x), promotion.complex_dtype(promotion.dtype_of(x)))
    rows = wnp.moveaxis(x, position, -1)
    plan = _plan("stft", window, nperseg, noverlap, nfft, promotion.shape_of(rows)[-1], 256)
    one_sided = return_onesided and not dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating)
    rows = _extended(rows, boundary, plan.length // 2)
    hop, count = plan.length - plan.overlap, promotion.shape_of(rows)[-1]
    if padded:
        more = (-(count - plan.length) % hop) % plan.length
        zeros = [(0, 0, 0)] * (len(promotion.shape_of(rows)) - 1)
        rows = lax.pad(rows, np.zeros((), promotion.dtype_of(rows)), [*zeros, (0, more, 0)])
    found = _transforms(rows, plan, detrend, one_sided)
    total = wnp.sum(wnp.asarray(plan.window, dtypes.finfo(promotion.dtype_of(x)).dtype))
    found = found / promotion.convert(total, promotion.dtype_of(found))
    times = _times(promotion.shape_of(found)[-2], hop / fs)
    if boundary is None:
        times = times + plan.length / 2 / fs
    return _frequencies(plan.points, fs, one_sided), times, wnp.moveaxis(found, -1, position)


def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Any, Any]:  # fmt: skip
    """The inverse of ``stft``: times, and the signal put together from overlapping pieces.

    ``boundary`` says that the signal had been continued at both ends. ValueError for what does not fit.

    >>> signal = np.arange(64, dtype=np.float32)
    >>> np.allclose(istft(stft(signal, nperseg=16)[2])[1][:64], signal, atol=1e-3)
    True
    """
    promotion.check_arraylike("istft", Zxx)
    spectra = wnp.asarray(Zxx)
    rank = len(promotion.shape_of(spectra))
    if rank < 2:
        raise ValueError("Input stft must be at least 2d!")
    time, frequency = axes.canonical_axis(time_axis, rank), axes.canonical_axis(freq_axis, rank)
    if time == frequency:
        raise ValueError("Must specify differing time and frequency axes!")
    spectra = wnp.moveaxis(spectra, (time, frequency), (-2, -1))
    bins, pieces = promotion.shape_of(spectra)[-1], promotion.shape_of(spectra)[-2]
    default = 2 * (bins - 1) if input_onesided else bins
    length = default if nperseg is None else operator.index(nperseg)
    if nfft is None and input_onesided and nperseg is not None and length == default + 1:
        nfft = length  # an odd length, which the number of frequencies does not tell
    points = default if nfft is None else operator.index(nfft)
    plan = _plan("istft", window, length, noverlap, max(points, length), length, length)
    signals = fft.irfft(spectra, points) if input_onesided else fft.ifft(spectra, points)
    signals = signals[..., : plan.length]
    dtype = promotion.dtype_of(signals)
    weights = wnp.asarray(plan.window, dtypes.finfo(dtype).dtype)
    hop = plan.length - plan.overlap
    total = plan.length + (pieces - 1) * hop
    samples = np.arange(pieces)[:, None] * hop + np.arange(plan.length)[None, :]
    shape = (*promotion.shape_of(signals)[:-2], total)
    window = promotion.convert(weights * wnp.sum(weights), dtype)
    summed = wnp.zeros(shape, dtype).at[..., samples].add(signals * promotion.with_rank(window, rank))
    norm = wnp.zeros(total, promotion.dtype_of(weights)).at[samples].add(wnp.square(weights)[None, :])
    if boundary:
        edge = plan.length // 2
        summed, norm = summed[..., edge : total - edge], norm[edge : total - edge]
    norm = promotion.convert(wnp.where(norm > 1e-10, norm, 1), dtype)
    summed = summed / promotion.with_rank(norm, rank - 1)
    if rank > 2 and time != rank - 1:
        summed = wnp.moveaxis(summed, -1, time - (frequency < time))
    return _times(promotion.shape_of(norm)[0], 1 / fs), summed


def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """The cross spectral density of two signals by Welch's method: frequencies and densities.

    The shorter signal is continued by zeros. ``scaling`` is "density" or "spectrum", ``average`` "mean" or "median" of
    the pieces. The density of a signal with itself (``y`` None) is real. ValueError for what does not fit.

    >>> [part.shape for part in csd(np.ones(100, np.float32), np.ones(100, np.float32), nperseg=16)]
    [(9,), (9,)]
    """
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling}")
    if average not in ("mean", "median"):
        raise ValueError(f'average must be "median" or "mean", got {average}')
    same = y is None
    promotion.check_arraylike("csd", x, *(() if same else (y,)))
    operands = promotion.promote_dtypes_inexact(*map(wnp.asarray, (x,) if same else (x, y)))
    if any(0 in promotion.shape_of(a) for a in operands):
        nothing = wnp.zeros(promotion.shape_of(operands[0]))
        return nothing, nothing
    position = axes.canonical_axis(axis, len(promotion.shape_of(operands[0])))
    rows = [wnp.moveaxis(a, position, -1) for a in operands]
    count = max(promotion.shape_of(a)[-1] for a in rows)
    rows = [_lengthened(a, count) for a in rows]
    dtype = promotion.dtype_of(rows[0])
    one_sided = return_onesided and not dtypes.issubdtype(dtype, np.complexfloating)
    plan = _plan("csd", window, nperseg, noverlap, nfft, count, 256)
    found = [_transforms(a, plan, detrend, one_sided) for a in rows]
    product = wnp.conj(found[0]) * found[-1]
    weights = wnp.asarray(plan.window, dtypes.finfo(dtype).dtype)
    scale = 1 / (fs * wnp.sum(weights * weights)) if scaling == "density" else 1 / wnp.square(wnp.sum(weights))
    product = product * promotion.convert(scale, promotion.dtype_of(product))
    if one_sided:
        doubled = np.full(promotion.shape_of(product)[-1], 2.0, promotion.dtype_of(product))
        doubled[0] = 1
        if plan.points % 2 == 0:
            doubled[-1] = 1
        product = product * promotion.with_rank(doubled, len(promotion.shape_of(product)))
    density = _averaged(product, average)
    density = wnp.real(density) if same else density
    return _frequencies(plan.points, fs, one_sided), wnp.moveaxis(density, -1, position)


def _lengthened(x: Any, count: int) -> Any:
    shape = promotion.shape_of(x)
    return lax.pad(x, np.zeros((), promotion.dtype_of(x)), [*[(0, 0, 0)] * (len(shape) - 1), (0, count - shape[-1], 0)])


def _averaged(product: Any, average: str) -> Any:
    if average == "mean":
        return wnp.mean(product, axis=-2)
    count = promotion.shape_of(product)[-2]
    even = 2 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1 + float(np.sum(1 / (even + 1) - 1 / even))  # of the median of squares
    parts = [wnp.median(part(product), axis=-2) / bias for part in (wnp.real, wnp.imag)]
    return lax.complex(*parts)


def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """The power spectral density of a signal by Welch's method: frequencies and real densities, as ``csd``.

    >>> [part.shape for part in welch(np.ones(100, np.float32), nperseg=16)]
    [(9,), (9,)]
    """
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
