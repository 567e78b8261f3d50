"""weft.scipy.fft: the cosine transform of type 2 and its inverse, by Fourier transforms of the same length.

The even elements in order and the odd ones backwards have a Fourier transform whose frequencies, turned by a quarter
of a step each, are the cosine transform (J. Makhoul, "A fast cosine transform in one and two dimensions", 1980)::

    dct(f32[8])  ->  gather of even and odd elements, rfft, mul, concatenate
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.numpy import axes as axes_module
from weft.numpy import fft, promotion


def _checked(name: str, x: Any, type: int, norm: str | None) -> Any:
    if type != 2:
        raise NotImplementedError(f"Only DCT type 2 is implemented. [{name}] got type={type!r}")
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.{name}: norm={norm!r} is not implemented; choose None, 'backward' or 'ortho'")
    promotion.check_arraylike(name, x)
    (x,) = promotion.promote_dtypes_inexact(x)
    if promotion.dtype_of(x) in (np.float16, dtypes.bfloat16):
        x = promotion.convert(x, np.dtype(np.float32))
    return x


def _fitted(name: str, x: Any, n: int | None) -> Any:
    """The array cut or padded along its last axis."""
    shape = promotion.shape_of(x)
    count = shape[-1] if n is None else operator.index(n)
    if count < 1:
        raise ValueError(f"[{name}] the length of the transform must be positive, got {count}")
    x = lax.slice_in_dim(x, 0, min(count, shape[-1]), axis=len(shape) - 1)
    config = [(0, 0, 0)] * (len(shape) - 1) + [(0, max(0, count - shape[-1]), 0)]
    return lax.pad(x, np.zeros((), promotion.dtype_of(x)), config)


def _turns(count: int, sign: int, like: Any) -> np.ndarray:
    """``exp(sign * i pi k / (2 count))`` of the frequencies of ``rfft``."""
    wide = promotion.dtype_of(like) in (np.float64, np.complex128)
    angles = np.pi / (2 * count) * np.arange(count // 2 + 1)
    return (np.cos(angles) + sign * 1j * np.sin(angles)).astype(np.complex128 if wide else np.complex64)


def _along_last(row: np.ndarray, x: Any) -> Any:
    """A constant for each index of the last axis of ``x``."""
    return row.reshape((1,) * (len(promotion.shape_of(x)) - 1) + row.shape)


def _forward(x: Any, norm: str | None) -> Any:
    count = promotion.shape_of(x)[-1]
    v = wnp.concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], axis=-1)
    z = fft.rfft(v) * _along_last(_turns(count, -1, x), x)
    found = 2 * wnp.concatenate([wnp.real(z), -wnp.imag(z)[..., 1 : (count + 1) // 2][..., ::-1]], axis=-1)
    return found if norm != "ortho" else found * _along_last(_ortho(count, promotion.dtype_of(found)), found)


def _backward(x: Any, norm: str | None) -> Any:
    count = promotion.shape_of(x)[-1]
    if norm == "ortho":
        x = x / _along_last(_ortho(count, promotion.dtype_of(x)), x)
    half = count // 2
    low = x[..., : half + 1]
    zero = wnp.zeros_like(x[..., :1])
    high = wnp.concatenate([zero, x[..., count - half :][..., ::-1]], axis=-1)
    v = fft.irfft(lax.complex(low, -high) * _along_last(_turns(count, 1, x) / 2, x), count)
    odd, even = v[..., (count + 1) // 2 :][..., ::-1], v[..., : (count + 1) // 2]
    shape = promotion.shape_of(x)
    padded = wnp.concatenate([odd, zero], axis=-1) if count % 2 else odd
    pairs = wnp.stack([even, padded], axis=-1)
    return wnp.reshape(pairs, (*shape[:-1], count + count % 2))[..., :count]


def _ortho(count: int, dtype: Any) -> np.ndarray:
    """What makes the transform orthogonal."""
    factors = np.full(count, np.sqrt(1 / (2 * count)))
    factors[0] = np.sqrt(1 / (4 * count))
    return factors.astype(dtype)


def _along(x: Any, axis: int, norm: str | None, function: Any, name: str, n: int | None) -> Any:
    """A transform of one axis, of real and imaginary parts apart."""
    position = axes_module.canonical_axis(axis, len(promotion.shape_of(x)))
    rows = _fitted(name, wnp.moveaxis(x, position, -1), n)
    if dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        found = lax.complex(function(wnp.real(rows), norm), function(wnp.imag(rows), norm))
    else:
        found = function(rows, norm)
    return wnp.moveaxis(found, -1, position)


def _along_all(x: Any, s: Any, axes: Any, norm: str | None, function: Any, name: str) -> Any:
    rank = len(promotion.shape_of(x))
    lengths = None if s is None else [operator.index(n) for n in s]
    if axes is None:
        axes = range(rank) if lengths is None else range(rank - len(lengths), rank)
    positions = [axes_module.canonical_axis(axis, rank) for axis in axes_module.as_tuple(axes)]
    if len(set(positions)) != len(positions):
        raise ValueError(f"[{name}] repeated axis: {tuple(positions)}")
    if lengths is not None and len(lengths) != len(positions):
        raise ValueError(f"[{name}] s and axes have different lengths: s={tuple(lengths)}, axes={tuple(positions)}")
    for i, position in enumerate(positions):
        x = _along(x, position, norm, function, name, None if lengths is None else lengths[i])
    return x


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete cosine transform of type 2 along an axis, cut or padded to length ``n``.

    ``y[k] = 2 * sum(x[j] * cos(pi * k * (2j + 1) / (2n)))``; with ``norm="ortho"`` scaled so that the transform is
    orthogonal. Real operands give float32 or float64; both parts of complex ones are transformed.
    NotImplementedError for other types, ValueError for another ``norm`` or an empty axis.

    >>> dct(np.float32([1, 1])).tolist()
    [4.0, 0.0]
    """
    x = _checked("dct", x, type, norm)
    return _along(x, axis, norm, _forward, "dct", n)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of ``dct``.

    >>> idct(np.float32([4, 0])).tolist()
    [1.0, 1.0]
    """
    x = _checked("idct", x, type, norm)
    return _along(x, axis, norm, _backward, "idct", n)


def dctn(x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """``dct`` along each of ``axes`` (None: all, or the last ``len(s)``), with lengths ``s``.

    >>> dctn(np.ones((2, 2), np.float32)).tolist()
    [[16.0, 0.0], [0.0, 0.0]]
    """
    checked = _checked("dctn", x, type, norm)
    if axes is not None and not axes_module.as_tuple(axes):
        return wnp.asarray(x)
    x = checked
    return _along_all(x, s, axes, norm, _forward, "dctn")


def idctn(x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """The inverse of ``dctn``.

    >>> idctn(np.float32([[16, 0], [0, 0]])).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    checked = _checked("idctn", x, type, norm)
    if axes is not None and not axes_module.as_tuple(axes):
        return wnp.asarray(x)
    x = checked
    return _along_all(x, s, axes, norm, _backward, "idctn")
