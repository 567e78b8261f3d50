"""weft.image: arrays resampled to other sizes, one dimension after the other.

A column of a dimension's matrix holds the weights with which an output sample takes the input samples, a kernel centred
where the output sample lies in the input; with antialiasing the kernel is stretched by the reduction::

    resize(f32[20,512], (9, 512), "bilinear")  ->  dot_general with a matrix f32[20,9]

Where that matrix is a narrow band, its zeros are left out (``resample``).
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft import operations as lax
from weft._base import unbuilt
from weft._base.array import Array
from weft.numpy import axes, promotion
from weft.operations.settings import Precision
from weft.operations.windowed import resampling
from weft.operations.windowed.resampling import Sampling

__getattr__ = unbuilt.fallback(__name__)


class ResizeMethod(enum.Enum):
    """How an output sample is made of the input samples near it."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a word; ValueError for another word."""
        found = _WORDS.get(s)
        if found is None:
            raise ValueError(f'Unknown resize method "{s}"; choose one of {sorted(_WORDS)}')
        return found


_WORDS = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


_BANDS = {  # whose weights are a kernel, centred where the output sample lies
    ResizeMethod.LINEAR: "linear",
    ResizeMethod.LANCZOS3: "lanczos3",
    ResizeMethod.LANCZOS5: "lanczos5",
    ResizeMethod.CUBIC: "cubic",
    ResizeMethod.CUBIC_PYTORCH: "cubic",
}


def _weights(before: int, after: int, scale: Any, shift: Any, method: str, antialias: bool, dtype: Any) -> Any:
    """The matrix ``[before, after]`` of a dimension."""
    step = 1 / scale
    stretch = wnp.maximum(step, 1) if antialias else 1
    centre = (wnp.arange(after, dtype=dtype) + 0.5) * step - shift * step - 0.5
    distance = wnp.abs(centre[None, :] - wnp.arange(before, dtype=dtype)[:, None]) / stretch
    weights = resampling.normalized(wnp, resampling.KERNELS[method].weight(wnp, distance), 0)
    inside = (centre >= -0.5) & (centre <= before - 0.5)
    return wnp.where(inside[None, :], weights, 0)


def _clamped_weights(before: int, after: int, scale: Any, shift: Any, dtype: Any) -> Any:
    """PyTorch's cubic kernel without antialiasing: the first and last sample stand for those beyond them."""
    step = 1 / scale
    centre = wnp.clip((wnp.arange(after, dtype=dtype) + 0.5) * step - shift * step - 0.5, -2, before + 1)
    indices = np.arange(-3, before + 3)
    weights = resampling.cubic(wnp, wnp.abs(centre[None, :] - indices[:, None].astype(dtype)), -0.75)
    rows = (np.clip(indices, 0, before - 1)[None, :] == np.arange(before)[:, None]).astype(dtype)
    return wnp.matmul(wnp.asarray(rows), weights)


def _method_weights(
    method: ResizeMethod, before: int, after: int, scale: Any, shift: Any, antialias: bool, dtype: Any
) -> Any:
    if method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        return _clamped_weights(before, after, scale, shift, dtype)
    return _weights(before, after, scale, shift, _BANDS[method], antialias, dtype)


def _area_weights(before: int, after: int, dtype: Any) -> Any:
    """The share of every input sample in the part of the input that an output sample covers."""
    borders = np.arange(after + 1) * (before / after)
    low, high = np.arange(before)[:, None], np.arange(1, before + 1)[:, None]
    overlap = np.minimum(high, borders[1:]) - np.maximum(low, borders[:-1])
    return (np.maximum(overlap, 0) * (after / before)).astype(dtype)


def _applied(x: Any, weights: Any, axis: int, precision: Any) -> Any:
    """The array with one dimension multiplied by a matrix."""
    out = lax.dot_general(x, weights, (((axis,), (0,)), ((), ())), precision=precision)
    return wnp.moveaxis(out, -1, axis)


def _sampling(method: ResizeMethod, before: int, after: int, antialias: bool) -> Sampling | None:
    """The sampling of a dimension whose matrix of weights is a narrow band; None for others."""
    if method not in _BANDS or (method is ResizeMethod.CUBIC_PYTORCH and not antialias):
        return None
    how = Sampling(_BANDS[method], before, after, antialias)
    return how if resampling.is_narrow(how) else None


def _nearest(x: Any, axis: int, after: int) -> Any:
    before = promotion.shape_of(x)[axis]
    centres = np.floor((np.arange(after) + 0.5) * (before / after)).astype(np.int32)
    return wnp.take(x, np.minimum(centres, before - 1), axis=axis)


def _as_method(method: ResizeMethod | str) -> ResizeMethod:
    return ResizeMethod.from_string(method) if isinstance(method, str) else method


def _as_floats(x: Any) -> Any:
    (x,) = promotion.promote_dtypes_inexact(x)
    return x


def resize(
    image: Any,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """The array resampled to ``shape``, which has as many dimensions.

    ``method`` is "nearest", "linear" (and "bilinear", "trilinear", "triangle"), "cubic" (and "bicubic", "tricubic"),
    "cubic-pytorch" (differs from "cubic" without ``antialias``: as PyTorch's), "lanczos3", "lanczos5" or "area".
    ``antialias`` widens the kernel where samples become fewer.
    Integers give floating point, but for "nearest". An infinity or NaN reaches only samples near it where their sums
    are short, unlike JAX's, which multiplies the others by zero too.
    ValueError for another number of dimensions or another method.

    >>> resize(np.float32([0, 1]), (4,), "linear").tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    promotion.check_arraylike("image.resize", image)
    image = wnp.asarray(image)
    target, own = tuple([operator.index(n) for n in shape]), promotion.shape_of(image)
    if len(target) != len(own):
        raise ValueError(f"shape must have length equal to the number of dimensions of x;  {target} vs {own}")
    if any(n < 0 for n in target):
        raise ValueError(f"[image.resize] extents must not be negative, got {target}")
    chosen = _as_method(method)
    changed = [d for d in range(len(own)) if own[d] != target[d]]
    if any(target[d] and not own[d] for d in changed):
        raise ValueError(f"[image.resize] dimensions without elements cannot be resized: {own} to {target}")
    if chosen is not ResizeMethod.NEAREST:
        image = _as_floats(image)
    if 0 in target:
        return lax.full(target, 0, promotion.dtype_of(image))
    for axis in changed:
        before, after = own[axis], target[axis]
        if chosen is ResizeMethod.NEAREST:
            image = _nearest(image, axis, after)
            continue
        sampling = _sampling(chosen, before, after, antialias)
        if sampling is not None:
            image = resampling.resample(image, axis, sampling)
            continue
        dtype = promotion.dtype_of(image)
        real = np.dtype(np.float64 if dtype in (np.float64, np.complex128) else np.float32)
        if chosen is ResizeMethod.AREA:
            weights = wnp.asarray(_area_weights(before, after, real))
        else:
            weights = _method_weights(chosen, before, after, after / before, 0.0, antialias, real)
        image = _applied(image, promotion.convert(weights, dtype), axis, precision)
    return image


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """The array stretched by ``scale`` and then moved by ``translation`` along ``spatial_dims``, sampled in ``shape``.

    ``scale`` and ``translation`` are vectors, an entry for each of the dimensions, and may be traced.
    Samples that lie outside the array are 0 (with "cubic-pytorch" and no antialiasing those of its edge). Methods are
    those of ``resize`` but for "nearest" and "area". ValueError for those and for shapes that do not fit.

    >>> scale_and_translate(np.float32([1, 2]), (3,), (0,), np.ones(1), np.ones(1), "linear").tolist()
    [0.0, 1.0, 2.0]
    """
    promotion.check_arraylike("image.scale_and_translate", image, scale, translation)
    image = _as_floats(wnp.asarray(image))
    target, own = tuple([operator.index(n) for n in shape]), promotion.shape_of(image)
    if len(target) != len(own):
        raise ValueError(f"shape must have length equal to the number of dimensions of x;  {target} vs {own}")
    chosen = _as_method(method)
    if chosen is ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for scale_and_translate.")
    if chosen is ResizeMethod.AREA:
        raise ValueError("Area resampling is not supported for scale_and_translate; use resize.")
    dims = axes.canonical_axes(tuple(spatial_dims), len(own))
    if any(own[d] != target[d] for d in range(len(own)) if d not in dims):
        raise ValueError(f"[scale_and_translate] shape {target} differs from {own} outside spatial_dims {dims}")
    for name, vector in (("scale", scale), ("translation", translation)):
        if promotion.shape_of(vector) != (len(dims),):
            raise ValueError(
                f"[scale_and_translate] {name} must have shape {(len(dims),)}, got {promotion.shape_of(vector)}"
            )
    dtype = promotion.dtype_of(image)
    real = np.dtype(np.float64 if dtype in (np.float64, np.complex128) else np.float32)
    scale, translation = wnp.asarray(scale, real), wnp.asarray(translation, real)
    for i, axis in enumerate(dims):
        weights = _method_weights(chosen, own[axis], target[axis], scale[i], translation[i], antialias, real)
        image = _applied(image, promotion.convert(weights, dtype), axis, precision)
    return image
