"""Windows of an array as an array (patches), and locally connected layers: a kernel for each position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core
from weft.operations import settings
from weft.operations.contract import canonical_precision
from weft.operations.later import ops
from weft.operations.static import integers
from weft.operations.windowed import convolution, convolution_numbers
from weft.runtime import Array

__all__ = ["conv_general_dilated_local", "conv_general_dilated_patches"]

ArrayLike = Any


def _moved(x: Any, sources: Sequence[int], targets: Sequence[int]) -> Any:
    """The array with dimensions ``sources`` at ``targets``, the others in their order."""
    rank = core.get_aval(x).ndim
    order = [dim for dim in range(rank) if dim not in [source % rank for source in sources]]
    for target, source in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source % rank)
    return x if order == list(range(rank)) else ops.transpose(x, order)


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: settings.ConvGeneralDilatedDimensionNumbers = None,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """The windows that a convolution with a kernel of ``filter_shape`` multiplies, each flattened into features.

    A feature of the result is a feature of ``lhs`` and, inside of it, a position in the window. Other parameters are
    those of ``conv_general_dilated``.

    >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    >>> lax.conv_general_dilated_patches(x, (2,), (1,), "VALID").tolist()
    [[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]]
    """
    aval = core.get_aval(lhs)
    filter_shape = integers(filter_shape, "conv_general_dilated_patches", "filter_shape")
    numbers = convolution_numbers.conv_dimension_numbers(aval.shape, (1, 1, *filter_shape), dimension_numbers)
    channels, size = aval.shape[numbers.lhs_spec[1]], math.prod(filter_shape)
    rows = ops.add(ops.broadcasted_iota(np.int32, (size, size), 0), np.int32(0))
    eye = ops.convert_element_type(ops.eq(rows, ops.broadcasted_iota(np.int32, (size, size), 1)), aval.dtype)
    kernel = ops.broadcast_in_dim(eye, (channels, size, size), (1, 2))
    kernel = ops.reshape(kernel, (channels * size, 1, *filter_shape))
    kernel = _moved(kernel, (0, 1), numbers.rhs_spec[:2])
    return convolution.conv_general_dilated(
        lhs,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=channels,
        precision=None if precision is None else (precision, settings.Precision.DEFAULT),
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: settings.ConvGeneralDilatedDimensionNumbers = None,
    precision: settings.PrecisionLike = None,
) -> Array:
    """A convolution with a kernel of its own at every output position (a locally connected layer).

    The spatial dimensions of ``rhs`` are positions of the result; its input features are those of the windows, as
    ``conv_general_dilated_patches`` orders them. Other parameters are those of ``conv_general_dilated``.

    >>> x, kernels = np.ones((1, 2, 5), np.float32), np.ones((3, 4, 4), np.float32)
    >>> lax.conv_general_dilated_local(x, kernels, (1,), "VALID", (2,)).shape
    (1, 3, 4)
    """
    precisions = canonical_precision(precision)
    if precisions is not None and not isinstance(precisions, tuple):
        raise ValueError(f"[conv_general_dilated_local] precision must be None, a word or a pair, got {precision!r}")
    patches = conv_general_dilated_patches(
        lhs,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        None if precisions is None else precisions[0],
    )
    shape = core.get_aval(lhs).shape
    numbers = convolution_numbers.conv_dimension_numbers(shape, (1, 1, *filter_shape), dimension_numbers)
    _, rhs_spec, out_spec = numbers
    pairs = sorted(zip(out_spec[2:], rhs_spec[2:], strict=True))
    batch = (tuple([out for out, _ in pairs]), tuple([kernel for _, kernel in pairs]))
    out = ops.dot_general(patches, rhs, (((out_spec[1],), (rhs_spec[1],)), batch), precision=precision)
    return _moved(out, (-2, -1), out_spec[:2])
