"""``resample``: one dimension of an array at other positions, each result a weighted sum of the few samples near it.

What ``weft.image.resize`` becomes where its matrix of weights is a narrow band: a product would multiply by zeros. Each
result is a sum of slices that are gathered by constant indices, one for each tap; the transpose is the same with the
transposed band.

    512 samples to 224, linear with antialiasing: 5 taps     out[i] = sum over t < 5 of w[i, t] x[start[i] + t]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, runtime
from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.symbolic import sizes
from weft.core.tangents import along, is_undefined
from weft.operations import mapped
from weft.operations.data_movement.gather import gather
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import COMPLEX, FLOAT, check_dtype, widened
from weft.operations.settings import GatherDimensionNumbers
from weft.runtime import Array

FEW_TAPS, FEW_TAPS_BACK = 16, 64  # taps of a sum that is written out, and of its transpose
LEAST_ZEROS = 4  # a band is worth it from so many samples for each tap


# ---- kernels: weights at a distance, in samples, by the functions of ``np`` or ``weft.numpy``


def _triangle(xp: Any, x: Any) -> Any:
    return xp.maximum(0, 1 - x)


def cubic(xp: Any, x: Any, a: float) -> Any:
    """R. G. Keys' cubic convolution (1981); a is the slope at 1."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x >= 2, 0, xp.where(x >= 1, far, near))


def _lanczos(xp: Any, x: Any, radius: int) -> Any:
    inside = x < radius
    safe = xp.where(inside & (x > 1e-3), x, 1)
    waves = radius * xp.sin(np.pi * safe) * xp.sin(np.pi * safe / radius) / (np.pi * safe) ** 2
    return xp.where(x > 1e-3, xp.where(inside, waves, 0), 1)


class Kernel(NamedTuple):
    """Weights by distance, and from where on they are zero."""

    weight: Callable[[Any, Any], Any]
    reach: int


KERNELS = {
    "linear": Kernel(_triangle, 1),
    "cubic": Kernel(lambda xp, x: cubic(xp, x, -0.5), 2),
    "lanczos3": Kernel(lambda xp, x: _lanczos(xp, x, 3), 3),
    "lanczos5": Kernel(lambda xp, x: _lanczos(xp, x, 5), 5),
}


def normalized(xp: Any, weights: Any, axis: int) -> Any:
    """Weights whose sum is 1, or all zero where they nearly cancel."""
    total = xp.sum(weights, axis=axis, keepdims=True)
    counts = xp.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    return xp.where(counts, weights / xp.where(counts, total, 1), 0)


# ---- bands


class Band(NamedTuple):
    """Result i is the sum of weights[i, t] times sample starts[i] + t."""

    starts: np.ndarray
    weights: np.ndarray

    @property
    def taps(self) -> int:
        return self.weights.shape[1]


class Sampling(NamedTuple):
    """How a dimension of ``before`` samples becomes one of ``after``; ``back``: the transpose of that."""

    method: str
    before: int
    after: int
    antialias: bool
    back: bool = False

    @property
    def extents(self) -> tuple[int, int]:
        return (self.after, self.before) if self.back else (self.before, self.after)


def _banded(columns: np.ndarray, rows: np.ndarray, weights: np.ndarray, extents: tuple[int, int]) -> Band:
    """The band of a matrix from its elements; ``extents`` are those of columns and rows."""
    known = weights != 0
    columns, rows, weights = columns[known], rows[known], weights[known]
    first, last = np.full(extents[1], extents[0]), np.full(extents[1], -1)
    np.minimum.at(first, rows, columns)
    np.maximum.at(last, rows, columns)
    taps = max(int((last - first).max(initial=0)) + 1, 1)
    starts = np.clip(first, 0, extents[0] - taps)
    band = np.zeros((extents[1], taps))
    band[rows, columns - starts[rows]] = weights
    band.setflags(write=False)
    return Band(starts.astype(np.int32), band)


@sizes.cached(16)
def band_of(how: Sampling) -> Band:
    """The weights of a sampling, computed in float64."""
    if how.back:
        band = band_of(how._replace(back=False))
        positions = band.starts[:, None] + np.arange(band.taps)
        numbers = np.broadcast_to(np.arange(how.after)[:, None], positions.shape)
        return _banded(numbers, positions, band.weights, how.extents)
    kernel, step = KERNELS[how.method], how.before / how.after
    stretch = max(step, 1.0) if how.antialias else 1.0
    positions = (np.arange(how.after) + 0.5) * step - 0.5
    near = np.floor(positions - kernel.reach * stretch).astype(int)
    samples = near[:, None] + np.arange(math.ceil(2 * kernel.reach * stretch) + 2)
    weights = kernel.weight(np, np.abs(positions[:, None] - samples) / stretch)
    weights = normalized(np, np.where((samples >= 0) & (samples < how.before), weights, 0.0), 1)
    rows = np.broadcast_to(np.arange(how.after)[:, None], samples.shape)
    return _banded(samples, rows, weights, how.extents)


def is_narrow(how: Sampling) -> bool:
    """Whether sums of few taps take less time than a product with the matrix of weights."""
    reach = KERNELS[how.method].reach * (max(how.before / how.after, 1.0) if how.antialias else 1.0)
    if 2 * reach * LEAST_ZEROS > how.before or 2 * reach > FEW_TAPS:
        return False
    return band_of(how).taps <= FEW_TAPS and band_of(how._replace(back=True)).taps <= FEW_TAPS_BACK


# ---- the operation


def _typing(x: Any, *, axis: int, how: Sampling) -> Any:
    check_dtype("resample", 0, x, FLOAT | COMPLEX)
    before, after = how.extents
    if x.shape[axis] != before:
        raise ValueError(f"[resample] dimension {axis} of {x.str_short()} must have {before} elements")
    return runtime.ShapedArray((*x.shape[:axis], after, *x.shape[axis + 1 :]), x.dtype, x.weak_type)


def _expanded(x: Any, *, axis: int, how: Sampling) -> Array:
    """A sum of gathered slices, one for each tap."""
    band, shape = band_of(how), shape_of(x)
    out_shape = (*shape[:axis], band.starts.size, *shape[axis + 1 :])
    if 0 in out_shape:
        return ops.full(out_shape, 0, ops.dtype(x))
    others = tuple([dim for dim in range(len(shape)) if dim != axis])
    numbers = GatherDimensionNumbers(offset_dims=others, collapsed_slice_dims=(axis,), start_index_map=(axis,))
    sizes = (*shape[:axis], 1, *shape[axis + 1 :])
    wide = widened(ops.dtype(x))
    total: Any = None
    for tap in range(band.taps):
        taken = gather(x, (band.starts + np.int32(tap))[:, None], numbers, sizes, mode="promise_in_bounds")
        weight = ops.broadcast_in_dim(band.weights[:, tap].astype(wide), out_shape, (axis,))
        term = ops.mul(ops.convert_element_type(taken, wide), weight)
        total = term if total is None else ops.add(total, term)
    return ops.convert_element_type(total, ops.dtype(x))


resample_p = core.Primitive("resample", kind=kinds.Resolve(expand=_expanded))
resample_p.def_abstract_eval(_typing)
resample_p.partials = (along(lambda t, out, x, **params: resample_p.bind(t, **params)),)


def _transpose(ct: Any, x: Any, *, axis: int, how: Sampling) -> tuple[Any]:
    assert is_undefined(x)
    return (resample_p.bind(ct, axis=axis, how=how._replace(back=not how.back)),)


def _batch(size: int, values: list[Any], dims: list[mapped.Dim], *, axis: int, how: Sampling) -> tuple[Array, int]:
    return resample_p.bind(mapped.in_front(size, values[0], dims[0]), axis=axis + 1, how=how), 0


resample_p.transpose, resample_p.batch = _transpose, _batch


def resample(x: Any, axis: int, how: Sampling) -> Array:
    """The array, of floats or complex numbers, with one dimension sampled anew; sums are those of ``band_of(how)``.

    ValueError if the dimension has another extent than ``how`` says, TypeError for other dtypes.
    """
    return resample_p.bind(x, axis=axis, how=how)
