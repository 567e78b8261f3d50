"""weft.numpy.fft: discrete Fourier transforms, the frequencies they belong to, and shifts of the zero frequency.

A transform cuts or pads the array to the lengths asked for, is one ``lax.fft`` (of at most three dimensions at once),
and is scaled where ``norm`` says so::

    rfft(f32[3,8])      ->  jit[name=fft]: fft[fft_lengths=(8,) fft_type=RFFT]   # c64[3,5]

``norm`` is "backward" (the default: inverses are divided by the number of elements), "forward" (the others are) or
"ortho" (all are divided by its square root).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jitted_fourier
from weft.numpy import axes as axes_module
from weft.numpy import promotion, rearrange
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic, rounding
from weft.operations.algorithms import FftType

Norm = str | None
_NORMS = (None, "backward", "ortho", "forward")


def _scale(norm: Norm, count: int, inverse: bool) -> float:
    """What a transform of ``count`` elements, divided by ``count`` if inverse, is multiplied by."""
    if norm not in _NORMS:
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    if norm in (None, "backward") or count == 0:
        return 1.0
    if norm == "ortho":
        return math.sqrt(count) if inverse else 1 / math.sqrt(count)
    return float(count) if inverse else 1 / count


def _scaled(x: Any, scale: float) -> Any:
    if scale == 1.0:
        return x
    return lax.mul(x, np.asarray(scale).astype(promotion.dtype_of(x)))


def _lengths(name: str, x: Any, s: Any, over: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths of a transform as the caller gives them, or those of the array."""
    shape = promotion.shape_of(x)
    if s is None:
        return tuple([shape[axis] for axis in over])
    lengths = tuple([operator.index(n) for n in s])
    if len(lengths) != len(over):
        raise ValueError(f"Shape and axes have different lengths. [{name}] s={lengths} for axes {over}")
    if any(n <= 0 for n in lengths):
        raise ValueError(f"Shape should be positive. [{name}] s={lengths}")
    return lengths


def _fitted(x: Any, extents: Sequence[int]) -> Any:
    """The array cut, or padded with zeros at the end, to new extents."""
    shape = promotion.shape_of(x)
    if tuple(extents) == shape:
        return x
    kept = [min(old, new) for old, new in zip(shape, extents, strict=True)]
    x = lax.slice(x, (0,) * len(shape), kept)
    config = [(0, new - old, 0) for old, new in zip(kept, extents, strict=True)]
    return lax.pad(x, np.zeros((), promotion.dtype_of(x)), config)


def _over(name: str, x: Any, s: Any, given: Any) -> tuple[int, ...]:
    """The axes that a transform of several dimensions runs over."""
    rank = len(promotion.shape_of(x))
    if given is None:
        if s is None:
            return tuple(range(rank))
        if len(s) > rank:
            raise ValueError(
                f"[{name}] input shape {promotion.shape_of(x)} must have at least as many dimensions as s={tuple(s)}"
            )
        return tuple(range(rank - len(s), rank))
    given = tuple([operator.index(axis) for axis in given])
    over = tuple([axes_module.canonical_axis(axis, rank) for axis in given])
    if len(set(over)) != len(over):
        raise ValueError(f"jax.numpy.fft.{name} does not support repeated axes. Got axes {given}.")
    return over


def _transform(name: str, kind: FftType, a: Any, s: Any, given: Any, norm: Norm) -> Any:
    """A transform over some axes; a real transform halves the last of them."""
    promotion.check_arraylike(f"jax.numpy.fft.{name}", a)
    x = promotion.as_array(a)
    over = _over(name, x, s, given)
    complex_operand = dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating)
    if kind == FftType.RFFT and complex_operand:
        raise ValueError("only real valued inputs supported for rfft")
    if not over:
        return promotion.convert(x, promotion.complex_dtype(promotion.dtype_of(x)))
    lengths = _lengths(name, x, s, over)
    extents = list(promotion.shape_of(x))
    for axis, n in zip(over, lengths, strict=True):
        extents[axis] = n
    if kind == FftType.IRFFT:
        lengths = lengths if s is not None else (*lengths[:-1], max(2 * (lengths[-1] - 1), 0))
        extents[over[-1]] = lengths[-1] // 2 + 1 if s is not None or lengths[-1] else extents[over[-1]]
        if lengths[-1] == 0:  # a spectrum of one frequency and no length given: nothing
            return _nothing(x, over[-1])
    x = _fitted(x, extents)
    rank = len(extents)
    order = [d for d in range(rank) if d not in over] + list(over)
    moved = x if order == list(range(rank)) else lax.transpose(x, order)
    moved = _in_threes(moved, kind, lengths)
    found = moved if order == list(range(rank)) else lax.transpose(moved, np.argsort(order).tolist())
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    return _scaled(found, _scale(norm, math.prod(lengths), inverse))


def _nothing(x: Any, axis: int) -> Any:
    shape = list(promotion.shape_of(x))
    shape[axis] = 0
    wide = promotion.dtype_of(x) in (np.complex128, np.float64)
    return lax.full(shape, 0, np.dtype(np.float64 if wide else np.float32))


def _in_threes(x: Any, kind: FftType, lengths: tuple[int, ...]) -> Any:
    """A transform over the last dimensions, three at a time: the others follow, or come before an inverse real one."""
    count = len(lengths)
    if count <= 3:
        return jitted_fourier.fft(x, kind, lengths)
    whole = FftType.IFFT if kind in (FftType.IFFT, FftType.IRFFT) else FftType.FFT
    rank = len(promotion.shape_of(x))

    def outer(x: Any) -> Any:
        """The transform over all but the last three."""
        behind = [*range(rank - count), *range(rank - 3, rank), *range(rank - count, rank - 3)]
        turned = _in_threes(lax.transpose(x, behind), whole, lengths[:-3])
        return lax.transpose(turned, np.argsort(behind).tolist())

    if kind == FftType.IRFFT:
        return jitted_fourier.fft(outer(x), kind, lengths[-3:])
    return outer(jitted_fourier.fft(x, kind, lengths[-3:]))


def fftn(a: Any, s: Any = None, axes: Any = None, norm: Norm = None) -> Array:
    """The Fourier transform over ``axes`` (None: all, or the last ``len(s)``), cut or padded to the lengths ``s``.

    The result is complex64, or complex128 for operands of 64 bits. ValueError for repeated axes, lengths that are not
    positive, or another ``norm``.

    >>> fftn(np.eye(2, dtype="float32")).real.tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    return _transform("fftn", FftType.FFT, a, s, axes, norm)


def ifftn(a: Any, s: Any = None, axes: Any = None, norm: Norm = None) -> Array:
    """The inverse of ``fftn``.

    >>> ifftn(np.float32([[4, 0], [0, 0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _transform("ifftn", FftType.IFFT, a, s, axes, norm)


def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Norm = None) -> Array:
    """The Fourier transform of real numbers: the first ``n // 2 + 1`` frequencies of the last axis.

    >>> rfftn(np.ones((2, 4), np.float32)).shape
    (2, 3)
    """
    return _transform("rfftn", FftType.RFFT, a, s, axes, norm)


def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Norm = None) -> Array:
    """The inverse of ``rfftn``: real; without ``s`` the last length is ``2 * (n - 1)``.

    >>> irfftn(np.ones((2, 3), np.complex64)).shape
    (2, 4)
    """
    return _transform("irfftn", FftType.IRFFT, a, s, axes, norm)


def _one(name: str, kind: FftType, a: Any, n: Any, axis: Any, norm: Norm) -> Any:
    if isinstance(axis, tuple | list | np.ndarray):
        raise ValueError(
            f"jax.numpy.fft.{name} does not support multiple axes. Please use jax.numpy.fft.{name}n. "
            f"Got axis = {axis!r}."
        )
    promotion.check_arraylike(f"jax.numpy.fft.{name}", a)
    return _transform(name, kind, a, None if n is None else (operator.index(n),), (-1 if axis is None else axis,), norm)


def fft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The Fourier transform along one axis, cut or padded to length ``n``.

    Shapes: ``[..., m, ...]`` to ``[..., n, ...]``; complex64, or complex128 for operands of 64 bits (NumPy: always
    complex128).

    >>> fft(np.float32([1, 1, 1, 1])).real.tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    return _one("fft", FftType.FFT, a, n, axis, norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The inverse of ``fft``.

    >>> ifft(np.float32([4, 0, 0, 0])).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _one("ifft", FftType.IFFT, a, n, axis, norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The Fourier transform of real numbers along one axis: ``n // 2 + 1`` frequencies.

    >>> rfft(np.float32([1, 1, 1, 1])).real.tolist()
    [4.0, 0.0, 0.0]
    """
    return _one("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The inverse of ``rfft``: ``n`` real numbers, ``2 * (m - 1)`` unless given.

    >>> irfft(np.complex64([4, 0, 0])).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _one("irfft", FftType.IRFFT, a, n, axis, norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The spectrum of a signal whose second half mirrors its first: real, ``n`` long, ``2 * (m - 1)`` unless given.

    >>> hfft(np.complex64([1, 0, 0])).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    promotion.check_arraylike("jax.numpy.fft.hfft", a)
    conjugate = rounding.conj(a)
    if n is None:
        axis = axes_module.canonical_axis(axis, len(promotion.shape_of(conjugate)))
        n = 2 * (promotion.shape_of(conjugate)[axis] - 1)
        if n == 0:
            return irfft(conjugate, None, axis)
    found = irfft(conjugate, n, axis)
    return _scaled(found, n * _scale(norm, n, False))


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The inverse of ``hfft``: the first ``n // 2 + 1`` elements.

    >>> ihfft(np.float32([1, 1, 1, 1])).real.tolist()
    [1.0, 0.0, 0.0]
    """
    promotion.check_arraylike("jax.numpy.fft.ihfft", a)
    dim = axes_module.canonical_axis(axis, len(promotion.shape_of(a)))
    count = promotion.shape_of(a)[dim] if n is None else operator.index(n)
    found = rounding.conj(rfft(a, n, axis))
    return found if count == 0 else _scaled(found, _scale(norm, count, True) / count)


def _two(name: str, kind: FftType, a: Any, s: Any, given: Any, norm: Norm) -> Any:
    if len(given) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {given!r}.")
    return _transform(name, kind, a, s, given, norm)


def fft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: Norm = None) -> Array:
    """The Fourier transform over two axes.

    >>> fft2(np.ones((2, 2), np.float32)).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _two("fft2", FftType.FFT, a, s, axes, norm)


def ifft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: Norm = None) -> Array:
    """The inverse of ``fft2``.

    >>> ifft2(np.float32([[4, 0], [0, 0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _two("ifft2", FftType.IFFT, a, s, axes, norm)


def rfft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: Norm = None) -> Array:
    """The Fourier transform of real numbers over two axes; the second axis is halved.

    >>> rfft2(np.ones((2, 4), np.float32)).shape
    (2, 3)
    """
    return _two("rfft2", FftType.RFFT, a, s, axes, norm)


def irfft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: Norm = None) -> Array:
    """The inverse of ``rfft2``.

    >>> irfft2(np.ones((2, 3), np.complex64)).shape
    (2, 4)
    """
    return _two("irfft2", FftType.IRFFT, a, s, axes, norm)


def _count_and_spacing(name: str, n: Any, d: Any) -> int:
    if isinstance(n, tuple | list):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = {list(n)}.")
    if isinstance(d, tuple | list):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got d = {list(d)}.")
    return operator.index(n)


def _float(name: str, dtype: Any) -> Any:
    chosen = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, name)
    return chosen


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of ``fft`` of ``n`` samples ``d`` apart: 0 and positive ones, then negative ones.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    count = _count_and_spacing("fftfreq", n, d)
    if device is not None:
        return devices.placed(lambda: fftfreq(n, d, dtype=dtype), device=device)
    dtype = _float("fftfreq", dtype)
    numbers = np.concatenate([np.arange((count - 1) // 2 + 1), np.arange(-(count // 2), 0)])
    return arithmetic.true_divide(creation.array(numbers, dtype=dtype), creation.array(d * count, dtype=dtype))


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of ``rfft`` of ``n`` samples ``d`` apart.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    count = _count_and_spacing("rfftfreq", n, d)
    if device is not None:
        return devices.placed(lambda: rfftfreq(n, d, dtype=dtype), device=device)
    dtype = _float("rfftfreq", dtype)
    numbers = creation.array(np.arange(count // 2 + 1), dtype=dtype)
    return arithmetic.true_divide(numbers, creation.array(d * count, dtype=dtype))


def _shifted(name: str, x: Any, given: Any, towards: int) -> Any:
    promotion.check_arraylike(name, x)
    shape = promotion.shape_of(x)
    over = tuple(range(len(shape))) if given is None else given
    if isinstance(over, int | np.integer):
        over = (operator.index(over),)
    over = tuple([axes_module.canonical_axis(axis, len(shape)) for axis in over])
    steps = tuple([shape[axis] // 2 if towards > 0 else -(shape[axis] // 2) for axis in over])
    return rearrange.roll(x, steps, over)


def fftshift(x: Any, axes: Any = None) -> Array:
    """The array rolled so that the zero frequency stands in the middle of each of ``axes`` (None: all).

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Array:
    """The inverse of ``fftshift``.

    >>> ifftshift(fftshift(fftfreq(5))).tolist() == fftfreq(5).tolist()
    True
    """
    return _shifted("ifftshift", x, axes, -1)
