"""Contractions: dot_general, and functions defined by it.

dimension_numbers = ((lhs contracting, rhs contracting), (lhs batch, rhs batch)); the result's axes are the batch
axes, the free axes of lhs, the free axes of rhs. Operands may differ in dtype: they are promoted, half precisions
accumulate in float32, integers wrap.

    dot_general (([1], [0]), ([], []))  f32[2,3] f32[3,4] -> f32[2,4]
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from weft import config, core, dtypes, runtime
from weft.core import kinds
from weft.core.tangents import along, is_undefined
from weft.operations import mapped, product_sums, settings
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import category, widened
from weft.operations.static import integers, placed
from weft.runtime import Array

__all__ = ["batch_matmul", "dot", "dot_general", "dot_general_p"]

ArrayLike = Any
Params = dict[str, Any]


def check_dimension_numbers(lhs: Any, rhs: Any, dimension_numbers: Any) -> None:
    """TypeError unless contracting and batch dimensions exist in the operands, are distinct, and have equal sizes."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    sides = (("lhs", lhs, lhs_contract, lhs_batch), ("rhs", rhs, rhs_contract, rhs_batch))
    for word, aval, contract, batch in sides:
        if any(not 0 <= d < aval.ndim for d in (*contract, *batch)):
            raise TypeError(
                f"dot_general requires {word} dimension numbers to be nonnegative and less than the number of axes of "
                f"the {word} value, got {word}_batch of {batch} and {word}_contracting of {contract} for "
                f"{word} of rank {aval.ndim}."
            )
        for kind, dims in (("batch", batch), ("contracting", contract)):
            if len(set(dims)) != len(dims):
                raise TypeError(
                    f"dot_general requires {word} {kind} dimensions to be distinct, got {word}_{kind} {dims}."
                )
        if set(contract) & set(batch):
            raise TypeError(
                f"dot_general requires {word} batch dimensions to be disjoint from contracting dimensions, got "
                f"{word}_batch {batch} and {word}_contracting {contract}."
            )
    _check_extents("batch", lhs, rhs, lhs_batch, rhs_batch)
    _check_extents("contracting", lhs, rhs, lhs_contract, rhs_contract)


def _check_extents(word: str, lhs: Any, rhs: Any, lhs_dims: Any, rhs_dims: Any) -> None:
    if len(lhs_dims) != len(rhs_dims):
        raise TypeError(f"[dot_general] as many {word} dimensions are needed on both sides, got {lhs_dims}, {rhs_dims}")
    for i, j in zip(lhs_dims, rhs_dims, strict=True):
        if lhs.shape[i] != rhs.shape[j]:
            raise TypeError(
                f"[dot_general] {word} sizes differ: lhs {lhs.str_short()} axis {i} is {lhs.shape[i]}, "
                f"rhs {rhs.str_short()} axis {j} is {rhs.shape[j]}; dot_general requires {word} dimensions to have the "
                f"same shape, got {tuple(lhs.shape[d] for d in lhs_dims)} and {tuple(rhs.shape[d] for d in rhs_dims)}."
            )


def _free(ndim: int, contract: Any, batch: Any) -> list[int]:
    return [d for d in range(ndim) if d not in contract and d not in batch]


def _dot_typing(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any,
    preferred_element_type: np.dtype | None,
    out_sharding: Any = None,
    exchanged: bool = False,
) -> Any:
    check_dimension_numbers(lhs, rhs, dimension_numbers)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    shape = [lhs.shape[d] for d in lhs_batch]
    shape += [lhs.shape[d] for d in _free(lhs.ndim, lhs_contract, lhs_batch)]
    shape += [rhs.shape[d] for d in _free(rhs.ndim, rhs_contract, rhs_batch)]
    common = common_dtype(lhs.dtype, rhs.dtype)
    weak_type = lhs.weak_type and rhs.weak_type
    if preferred_element_type is None:
        return runtime.ShapedArray(tuple(shape), common, weak_type)
    return runtime.ShapedArray(tuple(shape), preferred_element_type, weak_type)


def _precedence(dtype: np.dtype) -> tuple[int, int, bool]:
    rank = ("bool", "unsigned integer", "signed integer", "float", "complex").index(category(dtype))
    wide_class = {0: 0, 1: 1, 2: 1, 3: 2, 4: 3}[rank]
    return wide_class, dtype.itemsize, rank == 2 or dtype == dtypes.bfloat16


def common_dtype(lhs: np.dtype, rhs: np.dtype) -> np.dtype:
    """The dtype of a product: the higher class, then the wider; signed wins over unsigned, bfloat16 over float16."""
    return lhs if _precedence(lhs) >= _precedence(rhs) else rhs


def contraction_dtype(lhs: np.dtype, rhs: np.dtype, preferred: np.dtype | None) -> np.dtype:
    """The dtype in which products and sums are computed."""
    common = common_dtype(lhs, rhs)
    return widened(common if preferred is None else common_dtype(common, preferred))


def _dot_reference(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any,
    preferred_element_type: np.dtype | None,
    out_sharding: Any = None,
    exchanged: bool = False,
) -> Any:
    lhs, rhs = np.asarray(lhs), np.asarray(rhs)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    out_dtype = preferred_element_type or common_dtype(lhs.dtype, rhs.dtype)
    dtype = contraction_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    lhs_free, rhs_free = _free(lhs.ndim, lhs_contract, lhs_batch), _free(rhs.ndim, rhs_contract, rhs_batch)
    batch = [lhs.shape[d] for d in lhs_batch]
    rows, columns = [lhs.shape[d] for d in lhs_free], [rhs.shape[d] for d in rhs_free]
    inner = math.prod(lhs.shape[d] for d in lhs_contract)
    sums = sorted(zip(lhs_contract, rhs_contract, strict=True))  # in the order of the left operand's dimensions
    a = np.transpose(lhs, [*lhs_batch, *lhs_free, *(left for left, _ in sums)]).astype(dtype)
    b = np.transpose(rhs, [*rhs_batch, *(right for _, right in sums), *rhs_free]).astype(dtype)
    a = a.reshape([*batch, math.prod(rows), inner])
    b = b.reshape([*batch, inner, math.prod(columns)])
    with np.errstate(all="ignore"):
        out = product_sums.product(a, b).reshape([*batch, *rows, *columns])
        out = np.real(out) if out.dtype.kind == "c" and np.dtype(out_dtype).kind != "c" else out
        return out.astype(out_dtype)


def _dot_params(params: Params) -> Params:
    """Dimension numbers are printed as lists; parameters that are None are not printed."""
    shown = {}
    for key, value in params.items():
        if key == "dimension_numbers":
            shown[key] = tuple(tuple(list(dims) for dims in pair) for pair in value)
        elif value is not None:
            shown[key] = value
    return shown


dot_general_p = core.Primitive("dot_general", kind=kinds.Contraction(reference=_dot_reference))
dot_general_p.def_abstract_eval(_dot_typing)
dot_general_p.print_params = _dot_params


def _dot_transpose_left(ct: Any, x: Any, y: Any, numbers: Any, rest: Params, swap: bool = False) -> Any:
    """The cotangent of the left operand x; with ``swap`` the free axes of the product come in the other order."""
    (x_contract, y_contract), (x_batch, y_batch) = numbers
    x_kept = _free(x.aval.ndim, x_contract, x_batch)
    y_kept = _free(y.ndim, y_contract, y_batch)
    count = len(x_batch)
    out_batch = tuple(range(count))
    first = count if swap else count + len(x_kept)
    out_y = tuple(range(first, first + len(y_kept)))
    numbers = ((out_y, tuple(y_kept)), (out_batch, tuple(y_batch)))
    product = dot_general_p.bind(ct, y, dimension_numbers=numbers, **rest)
    contract_order = [c for _, c in sorted(zip(y_contract, x_contract, strict=True))]
    axes = [*x_batch, *x_kept, *contract_order]
    return ops.transpose(product, np.argsort(axes).tolist())


def _dot_transpose(ct: Any, lhs: Any, rhs: Any, *, dimension_numbers: Any, **rest: Any) -> Any:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    operand = lhs if is_undefined(lhs) else rhs
    if operand is lhs:
        back = _dot_transpose_left(ct, lhs, rhs, dimension_numbers, rest)
    else:
        numbers = ((rhs_contract, lhs_contract), (rhs_batch, lhs_batch))
        back = _dot_transpose_left(ct, rhs, lhs, numbers, rest, swap=True)
    back = ops.convert_element_type(back, operand.aval.dtype)
    return (back, None) if operand is lhs else (None, back)


dot_general_p.partials = (
    along(lambda t, out, lhs, rhs, **params: dot_general_p.bind(t, rhs, **params)),
    along(lambda t, out, lhs, rhs, **params: dot_general_p.bind(lhs, t, **params)),
)
dot_general_p.transpose = _dot_transpose


def _dot_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, dimension_numbers: Any, **params: Any) -> Any:
    sums, batches = ([list(side) for side in pair] for pair in dimension_numbers)
    both = all(dim is not None for dim in dims)
    for side, dim in enumerate(dims):
        if dim is not None:
            sums[side] = [d + (d >= dim) for d in sums[side]]
            batches[side] = [d + (d >= dim) for d in batches[side]]
            if both:
                batches[side].insert(0, dim)
    numbers = (tuple(map(tuple, sums)), tuple(map(tuple, batches)))
    out = dot_general_p.bind(*values, dimension_numbers=numbers, **params)
    if both:
        return out, 0
    side = 0 if dims[0] is not None else 1
    at = dims[side]
    assert at is not None
    free = [d for d in range(core.get_aval(values[side]).ndim) if d not in (*sums[side], *batches[side])]
    before = len(batches[0])
    if side == 1:
        before += len([d for d in range(core.get_aval(values[0]).ndim) if d not in (*sums[0], *batches[0])])
    return out, before + free.index(at)


dot_general_p.batch = _dot_batch


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: settings.DotDimensionNumbers | None,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """The sum of products over the contracting dimensions, for each index of the batch and free dimensions.

    With ``dimension_numbers`` None it is the product of vectors and matrices that ``dot`` gives.

    >>> x, y = np.ones((2, 3, 4), np.float32), np.ones((2, 5, 4), np.float32)
    >>> lax.dot_general(x, y, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 5)
    """
    if out_sharding is not None:
        return placed(
            lambda: dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type),
            out_sharding,
            "dot_general",
            "out_sharding",
        )
    if dimension_numbers is None:
        return dot(lhs, rhs, precision=precision, preferred_element_type=preferred_element_type)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    numbers = tuple(
        (integers(left, "dot_general", "dimensions"), integers(right, "dot_general", "dimensions"))
        for left, right in ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))
    )
    preferred = None if preferred_element_type is None else dtypes.as_dtype(preferred_element_type)
    if preferred is not None and preferred not in (core.get_aval(lhs).dtype, core.get_aval(rhs).dtype):
        preferred = dtypes.allowed_dtype(preferred)
    return dot_general_p.bind(
        lhs,
        rhs,
        dimension_numbers=numbers,
        precision=canonical_precision(precision),
        preferred_element_type=preferred,
        out_sharding=None,
    )


def canonical_precision(precision: settings.PrecisionLike) -> Any:
    """None, an algorithm, or a pair of ``Precision``s; None means the option ``default_matmul_precision``."""
    if precision is None:
        precision = config.read("default_matmul_precision")
    if precision is None:
        return None
    if isinstance(precision, settings.Precision):
        return (precision, precision)
    if isinstance(precision, (settings.DotAlgorithm, ops.DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str):
        preset = ops.DotAlgorithmPreset.__members__.get(precision)
        if preset is not None and precision != "DEFAULT":
            return preset
        return (_one_precision(precision),) * 2
    if isinstance(precision, (tuple, list)) and len(precision) == 2:
        return (_one_precision(precision[0]), _one_precision(precision[1]))
    raise _unknown_precision(precision)


def _one_precision(precision: Any) -> settings.Precision:
    if precision is None:
        return settings.Precision.DEFAULT
    if isinstance(precision, settings.Precision):
        return precision
    if isinstance(precision, str) and precision in settings.PRECISION_WORDS:
        return settings.PRECISION_WORDS[precision]
    raise _unknown_precision(precision)


def _unknown_precision(precision: Any) -> ValueError:
    return ValueError(
        f"Precision argument must be one of {sorted(settings.PRECISION_WORDS)}, a lax.Precision, a lax.DotAlgorithm, a "
        f"lax.DotAlgorithmPreset or its name, or two of these; got {precision!r}"
    )


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: settings.DotDimensionNumbers | None = None,
    precision: settings.PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Product of vectors and matrices, or with ``dimension_numbers`` any ``dot_general``.

    >>> lax.dot(np.float32([1, 2]), np.float32([3, 4])).item()
    11.0
    """
    if out_sharding is not None:
        return placed(
            lambda: dot(
                lhs,
                rhs,
                dimension_numbers=dimension_numbers,
                precision=precision,
                preferred_element_type=preferred_element_type,
            ),
            out_sharding,
            "dot",
            "out_sharding",
        )
    if dimension_numbers is None:
        left, right = core.get_aval(lhs), core.get_aval(rhs)
        if not (1 <= left.ndim <= 2 and 1 <= right.ndim <= 2 and left.shape[-1] == right.shape[0]):
            raise ValueError(
                f"[dot] jax.lax.dot: dimension_numbers must be specified unless vectors or matrices are multiplied: "
                f"got lhs {left.str_short()}, rhs {right.str_short()}"
            )
        dimension_numbers = (((left.ndim - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: settings.PrecisionLike = None) -> Array:
    """Products of matrices in the last two axes, batched over the equal leading axes.

    >>> lax.batch_matmul(np.ones((2, 3, 4), np.float32), np.ones((2, 4, 5), np.float32)).shape
    (2, 3, 5)
    """
    left, right = core.get_aval(lhs), core.get_aval(rhs)
    if left.ndim != right.ndim or left.ndim < 2:
        wanted = "be at least 2D" if builtins.min(left.ndim, right.ndim) < 2 else "have same ndim"
        raise ValueError(
            f"Arguments to batch_matmul must {wanted}, got {left.ndim}, {right.ndim}: {left.str_short()}, "
            f"{right.str_short()}"
        )
    batch = tuple(range(left.ndim - 2))
    return dot_general(lhs, rhs, (((left.ndim - 1,), (left.ndim - 2,)), (batch, batch)), precision)
