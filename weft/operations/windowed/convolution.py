"""Convolutions: windows of an array, each multiplied by a kernel and summed.

    out[n, o, p] = sum over c, t of lhs[n, c, stride * p + dilation * t - low] * rhs[o, c, t]

for any number of spatial dimensions p, with dilation of either operand, groups of features or of the batch, in any
layout (``dimension_numbers``). The kernel is not flipped. Derivatives and ``vmap`` are convolutions again;
``windowed_products`` computes a convolution by other operations.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core import kinds
from weft.core.sharding.factors import WHOLE, Draft, Factors
from weft.core.tangents import along, is_undefined
from weft.operations import mapped, settings
from weft.operations.contract import canonical_precision
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import check_same_dtype
from weft.operations.settings import ConvDimensionNumbers
from weft.operations.static import integer, integers, placed
from weft.operations.windowed import convolution_numbers, window_padding, windowed_products
from weft.operations.windowed.convolution_numbers import dilated, from_spec_order, in_spec_order
from weft.runtime import Array

__all__ = [
    "conv",
    "conv_general_dilated",
    "conv_general_dilated_p",
    "conv_transpose",
    "conv_with_general_padding",
]

ArrayLike = Any
Params = dict[str, Any]


# ---- typing


def _check_groups(lhs: Any, rhs: Any, numbers: ConvDimensionNumbers, features: int, batches: int) -> None:
    for word, count in (("feature_group_count", features), ("batch_group_count", batches)):
        if count < 1:
            raise ValueError(f"[conv_general_dilated] {word} must be a positive integer, got {count}")
    if features > 1 and batches > 1:
        raise ValueError(
            f"[conv_general_dilated] only one of feature_group_count={features} and batch_group_count={batches} "
            f"may be larger than 1"
        )
    batch, channels = in_spec_order(lhs.shape, numbers.lhs_spec)[:2]
    results, taken = in_spec_order(rhs.shape, numbers.rhs_spec)[:2]
    for word, count, kind, extent in (
        ("feature_group_count", features, "feature", channels), ("batch_group_count", batches, "batch", batch)
    ):  # fmt: skip
        if extent % count:
            raise ValueError(
                f"conv_general_dilated {word} must divide lhs {kind} dimension size, but {count} does not divide "
                f"{extent}: lhs is {lhs.str_short()}."
            )
    if channels != taken * features:
        raise ValueError(
            "conv_general_dilated lhs feature dimension size divided by feature_group_count must equal the rhs input "
            f"feature dimension size, but {channels} // {features} != {taken}: lhs {lhs.str_short()}, rhs "
            f"{rhs.str_short()}."
        )
    for word, count in (("feature_group_count", features), ("batch_group_count", batches)):
        if results % count:
            raise ValueError(
                f"conv_general_dilated rhs output feature dimension size must be a multiple of {word}, but {results} "
                f"is not a multiple of {count}: rhs is {rhs.str_short()}."
            )


def _check_windows(rhs: Any, numbers: ConvDimensionNumbers, strides: Any, lhs_dilation: Any, rhs_dilation: Any) -> None:
    windows = in_spec_order(rhs.shape, numbers.rhs_spec)[2:]
    named = (("window_strides", strides), ("lhs_dilation", lhs_dilation), ("rhs_dilation", rhs_dilation))
    for word, given in named:
        if len(given) != len(windows):
            raise ValueError(
                f"conv_general_dilated window and {word} must have the same number of dimensions, but got "
                f"{len(windows)} and {len(given)}: rhs {rhs.str_short()}, {word} {given}."
            )
    if builtins.min(strides, default=1) < 1:
        raise ValueError(f"[conv_general_dilated] window_strides must be positive, got {strides}")
    for word, given in named[1:]:
        if builtins.min(given, default=1) < 1:
            raise TypeError(f"[conv_general_dilated] {word} must be positive, got {given}")
    if builtins.min(windows, default=1) < 1:
        raise ValueError(f"[conv_general_dilated] windows must not be empty, got {windows} of rhs {rhs.str_short()}")


def _check_specs(lhs: Any, rhs: Any, numbers: Any) -> None:
    if lhs.ndim != rhs.ndim or lhs.ndim < 2:
        raise ValueError(
            f"[conv_general_dilated] operands must have as many dimensions, and two at least: "
            f"lhs {lhs.str_short()}, rhs {rhs.str_short()}"
        )
    for word, spec in zip(("lhs_spec", "rhs_spec", "out_spec"), numbers, strict=True):
        if sorted(spec) != list(range(lhs.ndim)):
            raise ValueError(
                f"[conv_general_dilated] {word} must name each of the {lhs.ndim} dimensions once, got {tuple(spec)}"
            )


def _result_dtype(lhs: Any, rhs: Any, preferred: np.dtype | None) -> np.dtype:
    check_same_dtype("conv_general_dilated", (lhs, rhs))
    given = lhs.dtype
    if preferred is None:
        return given
    classes = [kind for kind in (np.integer, np.floating, np.complexfloating) if dtypes.issubdtype(given, kind)]
    wide = dtypes.issubdtype(given, np.integer) and dtypes.issubdtype(preferred, np.floating)
    if classes and not wide and not dtypes.issubdtype(preferred, classes[0]):
        raise TypeError(
            f"[conv_general_dilated] preferred_element_type={preferred} does not go with operands of {given}: integers "
            f"give integers or floats, floats give floats, complex numbers complex ones"
        )
    signed = dtypes.issubdtype(given, np.signedinteger)
    if signed and not wide and not dtypes.issubdtype(preferred, np.signedinteger):
        raise TypeError(f"[conv_general_dilated] preferred_element_type={preferred} must be signed as {given} is")
    if np.dtype(preferred).itemsize < np.dtype(given).itemsize:
        raise TypeError(f"[conv_general_dilated] preferred_element_type={preferred} is narrower than {given}")
    return preferred


def _typing(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    precision: Any,
    preferred_element_type: np.dtype | None,
    out_sharding: Any,
) -> Any:
    _check_specs(lhs, rhs, dimension_numbers)
    _check_groups(lhs, rhs, dimension_numbers, feature_group_count, batch_group_count)
    _check_windows(rhs, dimension_numbers, window_strides, lhs_dilation, rhs_dilation)
    left = in_spec_order(lhs.shape, dimension_numbers.lhs_spec)
    right = in_spec_order(rhs.shape, dimension_numbers.rhs_spec)
    left = (*left[:2], *map(dilated, left[2:], lhs_dilation))
    right = (*right[:2], *map(dilated, right[2:], rhs_dilation))
    extents = convolution_numbers.conv_shape_tuple(left, right, window_strides, padding, batch_group_count)
    shape = from_spec_order(extents, dimension_numbers.out_spec)
    dtype = _result_dtype(lhs, rhs, preferred_element_type)
    return runtime.ShapedArray(shape, dtype, lhs.weak_type and rhs.weak_type)


def _factors(avals: Any, out_avals: Any, params: Params) -> Factors | None:
    """Examples and output features may be shared out, input features are summed over; windows are whole."""
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return None
    draft, numbers = Draft(), params["dimension_numbers"]
    batch, taken = [draft.new(avals[0].shape[dim]) for dim in numbers.lhs_spec[:2]]
    made = draft.new(avals[1].shape[numbers.rhs_spec[0]])
    draft.reduced[taken] = "sum"
    windows = (WHOLE,) * (avals[0].ndim - 2)
    pairs = ((batch, taken), numbers.lhs_spec), ((made, taken), numbers.rhs_spec), ((batch, made), numbers.out_spec)
    left, right, out = [from_spec_order((*found, *windows), spec) for found, spec in pairs]
    return draft.done((left, right), (out,), passes=False)


conv_general_dilated_p = core.Primitive(
    "conv_general_dilated", kind=kinds.Resolve(expand=windowed_products.convolution, factors=_factors)
)
conv_general_dilated_p.def_abstract_eval(_typing)


# ---- derivatives


def _out_of(x: Any, dim: int, count: int) -> Any:
    """Split a dimension in two, the first with ``count`` elements."""
    shape = shape_of(x)
    return ops.reshape(x, (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]))


def _into(x: Any, source: int, target: int) -> Any:
    """Merge dimension ``source``, as the outer part, into dimension ``target`` (numbered without ``source``)."""
    shape = list(shape_of(x))
    order = [dim for dim in range(len(shape)) if dim != source]
    order.insert(target, source)
    extent = shape.pop(source)
    shape[target] *= extent
    return ops.reshape(x, shape, order)


def _exchanged(spec: tuple[int, ...]) -> tuple[int, ...]:
    """A spec with the first two dimensions exchanged."""
    return (spec[1], spec[0], *spec[2:])


def _as(x: Any, dtype: Any) -> Any:
    return x if core.get_aval(x).dtype == dtype else ops.convert_element_type(x, dtype)


def _spaces(lhs: Any, rhs: Any, ct: Any, params: Params) -> list[tuple[int, ...]]:
    """The dilated spatial extents of operands and cotangent, and the lower paddings."""
    numbers = params["dimension_numbers"]
    left, right, out = (
        tuple(map(dilated, in_spec_order(shape, spec)[2:], dilation))
        for shape, spec, dilation in zip(
            (lhs, rhs, ct),
            numbers,
            (params["lhs_dilation"], params["rhs_dilation"], params["window_strides"]),
            strict=True,
        )
    )
    return [left, right, out, tuple([low for low, _ in params["padding"]])]


def _transpose_left(ct: Any, lhs: Any, rhs: Any, params: Params) -> Any:
    """The cotangent of lhs: ct, dilated by the strides, convolved with the reversed kernel."""
    numbers = params["dimension_numbers"]
    lhs_spec, rhs_spec, out_spec = numbers
    spaces = _spaces(lhs.shape, shape_of(rhs), shape_of(ct), params)
    pads = []
    for left, right, out, low in zip(*spaces, strict=True):
        before = right - low - 1
        pads.append((before, left + right - 1 - out - before))
    batches = params["batch_group_count"]
    groups = builtins.max(params["feature_group_count"], batches)
    if groups > 1:
        rhs = _into(_out_of(rhs, rhs_spec[0], groups), rhs_spec[0], rhs_spec[1])
    weights = _as(ops.rev(rhs, rhs_spec[2:]), core.get_aval(ct).dtype)
    given = dict(
        params,
        window_strides=params["lhs_dilation"],
        lhs_dilation=params["window_strides"],
        padding=tuple(pads),
        dimension_numbers=ConvDimensionNumbers(out_spec, _exchanged(rhs_spec), lhs_spec),
        feature_group_count=groups,
        batch_group_count=1,
    )
    out = _as(conv_general_dilated_p.bind(ct, weights, **given), lhs.dtype)
    if batches > 1:
        out = _into(_out_of(out, lhs_spec[1], batches), lhs_spec[1], lhs_spec[0])
    return out


def _transpose_right(ct: Any, lhs: Any, rhs: Any, params: Params) -> Any:
    """The cotangent of rhs: lhs convolved with ct as the kernel, summed over the batch."""
    if 0 in shape_of(ct):  # ct would be a kernel without elements
        return ops.full(rhs.shape, 0, rhs.dtype)
    numbers = params["dimension_numbers"]
    spaces = _spaces(shape_of(lhs), rhs.shape, shape_of(ct), params)
    pads = [(low, out - left + right - low - 1) for left, right, out, low in zip(*spaces, strict=True)]
    features, batches = params["feature_group_count"], params["batch_group_count"]
    given = dict(
        params,
        window_strides=params["rhs_dilation"],
        rhs_dilation=params["window_strides"],
        padding=tuple(pads),
        dimension_numbers=ConvDimensionNumbers(*map(_exchanged, (numbers[0], numbers[2], numbers[1]))),
        feature_group_count=batches,
        batch_group_count=features,
    )
    return _as(conv_general_dilated_p.bind(_as(lhs, core.get_aval(ct).dtype), ct, **given), rhs.dtype)


def _transpose(ct: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    if is_undefined(lhs):
        return _transpose_left(ct, lhs.aval, rhs, params), None
    return None, _transpose_right(ct, lhs, rhs.aval, params)


conv_general_dilated_p.partials = (
    along(lambda t, out, lhs, rhs, **params: conv_general_dilated_p.bind(t, rhs, **params)),
    along(lambda t, out, lhs, rhs, **params: conv_general_dilated_p.bind(lhs, t, **params)),
)
conv_general_dilated_p.transpose = _transpose


# ---- vmap


def _batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    """A mapped dimension becomes part of the batch or of the features, or a group if both operands are mapped."""
    lhs, rhs = values
    left, right = dims
    if size == 0:
        avals = [core.get_aval(v) for v in values]
        alone = [a if d is None else a.update(shape=(*a.shape[:d], *a.shape[d + 1 :])) for a, d in zip(avals, dims)]
        out = _typing(*alone, **params)
        return ops.full((0, *out.shape), 0, out.dtype), 0
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    word = "batch_group_count" if params["batch_group_count"] > 1 else "feature_group_count"
    groups = params[word]
    if left is not None and right is not None:
        lhs = _into(lhs, left, lhs_spec[0] if word == "batch_group_count" else lhs_spec[1])
        params[word] = groups * size
        out = conv_general_dilated_p.bind(lhs, _into(rhs, right, rhs_spec[0]), **params)
        return _out_of(out, out_spec[1], size), out_spec[1]
    if left is not None:
        grouped = groups > 1 and word == "batch_group_count"
        out = conv_general_dilated_p.bind(_within(lhs, left, lhs_spec[0], groups if grouped else 1), rhs, **params)
        return _out_of(out, out_spec[0], size), out_spec[0]
    assert right is not None
    out = conv_general_dilated_p.bind(lhs, _within(rhs, right, rhs_spec[0], groups), **params)
    if groups == 1:
        return _out_of(out, out_spec[1], size), out_spec[1]
    out = _out_of(_out_of(out, out_spec[1], groups), out_spec[1] + 1, size)
    return _into(out, out_spec[1], out_spec[1] + 1), out_spec[1]


def _within(x: Any, source: int, target: int, groups: int) -> Any:
    """Merge the mapped dimension into ``target`` (numbered without it), inside its groups."""
    if groups == 1:
        return _into(x, source, target)
    x = _out_of(x, target + (source <= target), groups)
    x = _into(x, source + (target < source), target + 1)
    return _into(x, target, target)


conv_general_dilated_p.batch = _batch


# ---- functions


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: settings.ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The convolution of ``lhs`` with the kernel ``rhs``, two arrays of one dtype and of ``n + 2`` dimensions.

    ``dimension_numbers`` names the dimensions: three words as ("NHWC", "HWIO", "NHWC"), or None for "NC...", "OI...",
    "NC...". ``padding`` is "SAME", "SAME_LOWER", "VALID" or a pair (low, high) for each spatial dimension; negative
    ones cut off. ``lhs_dilation - 1`` zeros are put between elements of ``lhs`` before it is padded;
    ``rhs_dilation`` spreads the kernel in the same way. With ``feature_group_count`` each group of the features of
    ``lhs`` meets its own part of the kernel, with ``batch_group_count`` each group of its batch. Half precisions are
    summed in float32, integers wrap; ``preferred_element_type`` is the dtype of sums and result.

    TypeError for different ranks or dtypes, ValueError for extents that do not go together.

    >>> x, kernel = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 2, 5), np.float32)
    >>> lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 4, 4, 5)
    """
    name = "conv_general_dilated"
    if out_sharding is not None:
        others = (lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count, precision)
        return placed(
            lambda: conv_general_dilated(lhs, rhs, window_strides, padding, *others, preferred_element_type),
            out_sharding, name, "out_sharding",
        )  # fmt: skip
    left, right = core.get_aval(lhs), core.get_aval(rhs)
    numbers = convolution_numbers.conv_dimension_numbers(left.shape, right.shape, dimension_numbers)
    strides = integers(window_strides, name, "window_strides")
    ones = (1,) * builtins.max(left.ndim - 2, 0)
    holes = ones if lhs_dilation is None else integers(lhs_dilation, name, "lhs_dilation")
    spread = ones if rhs_dilation is None else integers(rhs_dilation, name, "rhs_dilation")
    if isinstance(padding, str):
        padding = _named_padding(padding, left, right, numbers, strides, holes, spread)
    preferred = None if preferred_element_type is None else dtypes.check_user_dtype(preferred_element_type, name)
    lacks_zero, result = left.dtype == right.dtype == dtypes.POWERS_OF_TWO, preferred or left.dtype
    if lacks_zero:  # padding is 0
        lhs, rhs = (ops.convert_element_type(x, np.float32) for x in (lhs, rhs))
        preferred = None
    out = conv_general_dilated_p.bind(
        lhs, rhs, window_strides=strides, padding=_pairs(padding), lhs_dilation=holes, rhs_dilation=spread,
        dimension_numbers=numbers, precision=canonical_precision(precision), preferred_element_type=preferred,
        feature_group_count=integer(feature_group_count, name, "feature_group_count"),
        batch_group_count=integer(batch_group_count, name, "batch_group_count"),
        out_sharding=None,
    )  # fmt: skip
    return ops.convert_element_type(out, result) if lacks_zero else out


def _named_padding(
    padding: str, left: Any, right: Any, numbers: Any, strides: Any, holes: tuple[int, ...], spread: tuple[int, ...]
) -> Sequence[tuple[int, int]]:
    """The pairs that a name of a padding stands for, once the operands are known to go together."""
    name = "conv_general_dilated"
    if any(dilation != 1 for dilation in holes):
        raise ValueError(
            f"[{name}] padding={padding!r} has no meaning with lhs_dilation={holes}: give (low, high) pairs, "
            f"or use conv_transpose"
        )
    _check_specs(left, right, numbers)
    _check_windows(right, numbers, strides, holes, spread)
    windows = map(dilated, in_spec_order(right.shape, numbers.rhs_spec)[2:], spread)
    space = in_spec_order(left.shape, numbers.lhs_spec)[2:]
    return window_padding.padtype_to_pads(space, tuple(windows), strides, padding)


def _pairs(padding: Any) -> tuple[tuple[int, int], ...]:
    name = "conv_general_dilated"
    try:
        return tuple([(integer(low, name, "padding"), integer(high, name, "padding")) for low, high in padding])
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"[{name}] padding must be 'SAME', 'SAME_LOWER', 'VALID' or a sequence of (low, high) pairs of integers, "
            f"got {padding!r}"
        ) from error


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """``conv_general_dilated`` of arrays in the layouts "NC..." and "OI...", without dilations.

    >>> lax.conv(np.ones((1, 2, 5), np.float32), np.ones((3, 2, 2), np.float32), (1,), "VALID").shape
    (1, 3, 4)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """``conv_general_dilated`` of arrays in the layouts "NC..." and "OI...".

    >>> x, kernel = np.ones((1, 2, 5), np.float32), np.ones((3, 2, 2), np.float32)
    >>> lax.conv_with_general_padding(x, kernel, (1,), [(1, 0)], None, (2,)).shape
    (1, 3, 4)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_LAYOUTS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def _transposed_kernel(rhs: Any, numbers: Any) -> Any:
    """The kernel with its spatial dimensions reversed and its features exchanged."""
    for dim in numbers.rhs_spec[2:]:
        rhs = ops.rev(rhs, (dim,))
    order = list(range(len(numbers.rhs_spec)))
    results, taken = numbers.rhs_spec[:2]
    order[results], order[taken] = taken, results
    return ops.transpose(rhs, order)


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: settings.ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A transposed convolution: as the gradient of one with these ``strides``, without forming it.

    "SAME" and "VALID" mean the padding of the convolution that is transposed; pairs are the padding of ``lhs`` with its
    holes, or with ``use_consistent_padding`` that of the transposed convolution too. ``transpose_kernel`` reverses the
    spatial dimensions of the kernel and exchanges its features, as gradients do. Layouts are "N...C" and "...IO"
    unless given. ValueError for more than three spatial dimensions without layouts.

    >>> x, kernel = np.ones((1, 4, 4, 2), np.float32), np.ones((4, 4, 2, 3), np.float32)
    >>> lax.conv_transpose(x, kernel, (2, 2), "SAME").shape
    (1, 8, 8, 3)
    """
    left, right = core.get_aval(lhs), core.get_aval(rhs)
    if left.ndim != right.ndim or left.ndim < 2:
        raise TypeError(
            f"[conv_transpose] operands must have as many dimensions, and two at least: lhs {left.str_short()}, "
            f"rhs {right.str_short()}"
        )
    if dimension_numbers is None:
        dimension_numbers = _LAYOUTS.get(left.ndim)
        if dimension_numbers is None:
            raise ValueError(f"[conv_transpose] give dimension_numbers for {left.ndim - 2} spatial dimensions")
    numbers = convolution_numbers.conv_dimension_numbers(left.shape, right.shape, dimension_numbers)
    strides = integers(strides, "conv_transpose", "strides")
    spread = (
        (1,) * (right.ndim - 2) if rhs_dilation is None else integers(rhs_dilation, "conv_transpose", "rhs_dilation")
    )
    pads: Any = padding
    if use_consistent_padding or (isinstance(padding, str) and padding in ("SAME", "VALID")):
        windows = map(dilated, in_spec_order(right.shape, numbers.rhs_spec)[2:], spread)
        each = [padding] * len(strides) if isinstance(padding, str) else padding
        pads = [convolution_numbers.transposed_padding(k, s, p) for k, s, p in zip(windows, strides, each, strict=True)]
    if transpose_kernel:
        rhs = _transposed_kernel(rhs, numbers)
    ones = (1,) * (left.ndim - 2)
    return conv_general_dilated(
        lhs,
        rhs,
        ones,
        pads,
        strides,
        spread,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
