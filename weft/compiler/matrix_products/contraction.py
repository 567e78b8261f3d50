"""Rewrites dot_general as matrix products, and gives the loops of a matrix product.

Sums are kept in float32 (half precisions) or 32 bits (narrower integers, booleans) and converted afterwards. A product
without free dimensions, or of many short rows by vectors, becomes a multiplication and a reduction. Operands that
cannot be read as matrices (``product_loops``) are transposed first.

    c:bf16[] = dot_general a:bf16[9] b:bf16[9]   ->   a and b as f32; d = mul a b; e = reduce_sum d; c = e as bf16
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, operations
from weft.compiler.matrix_products import product_loops
from weft.compiler.matrix_products.product_loops import Loops, StridedOperand
from weft.core import index_maps, kinds
from weft.core.index_maps import Affine
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.loops.schedules.thresholds import LONG
from weft.operations.contract import contraction_dtype
from weft.operations.pointwise.elementwise import BOOL, INTEGER, category
from weft.operations.settings import DotAlgorithm

FEW = 4  # up to so many terms one matrix by a vector is a reduction; with 8, 4096 rows take 13 us so, 4 as a product
FEW_IN_BATCH = 16  # terms up to which matrices of a batch, each by a vector, are a reduction
_CHARS: dict[Any, str] = {np.dtype(char): char for char in "?bBhHiIlLefdFD"} | {np.dtype(dtypes.bfloat16): "E"}
IN_PAIRS = (dtypes.bfloat16,)  # some processors add terms in adjacent pairs: the sum must be over one dimension
SOURCES = {
    "f": "feE",
    "d": "d",
    "i": "?bBhHiI",
    "I": "?bBhHiI",
    "l": "lL",
    "L": "lL",
    "F": "F",
    "D": "D",
    "e": "e",
    "E": "E",
}


def is_summed_alike(product: JaxprEqn) -> bool:
    """Whether the product with exchanged operands sums in the same order, that of the left operand's dimensions."""
    _, right_sum = _in_order(product.params["dimension_numbers"][0])
    return list(right_sum) == sorted(right_sum)


def _in_order(sums: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The contracting dimensions of both operands, in the order of summation."""
    pairs = sorted(zip(*sums, strict=True))
    return tuple([left for left, _ in pairs]), tuple([right for _, right in pairs])


def exchanged(product: JaxprEqn, out: Any) -> Any:
    """The product of the exchanged operands, as ``out``."""
    (left_sum, right_sum), (left_batch, right_batch) = product.params["dimension_numbers"]
    params = {**product.params, "dimension_numbers": ((right_sum, left_sum), (right_batch, left_batch))}
    if not params.pop("exchanged", False):
        params["exchanged"] = True  # a matrix unit adds the products of parts of both operands in a fixed order
    if isinstance(params.get("precision"), tuple):
        params["precision"] = params["precision"][::-1]
    return JaxprEqn(product.invars[::-1], [out], product.primitive, params, product.effects, product.source)


def free_sizes(product: JaxprEqn) -> tuple[int, int]:
    """The numbers of rows and columns of a product, without its batch."""
    if isinstance(product.primitive.kind, kinds.StridedContraction):
        return product.params["space"].sizes
    numbers = product.params["dimension_numbers"]
    left, right = (
        math.prod([atom.aval.shape[d] for d in free_dims(atom.aval.ndim, numbers[0][side], numbers[1][side])])
        for side, atom in enumerate(product.invars)
    )
    return left, right


def exchanged_order(product: JaxprEqn, order: Sequence[int]) -> list[int]:
    """``order``, which names axes of a product's result, for the product of the exchanged operands."""
    (left_sum, _), (left_batch, _) = product.params["dimension_numbers"]
    n_batch, n_left = len(left_batch), len(free_dims(product.invars[0].aval.ndim, left_sum, left_batch))
    n_right = len(order) - n_batch - n_left
    axes = [*range(n_batch), *range(n_batch + n_right, len(order)), *range(n_batch, n_batch + n_right)]
    return [axes[axis] for axis in order]


def loops_of(
    equation: JaxprEqn, views: Sequence[StridedOperand | None] = (None, None), order: Sequence[int] | None = None
) -> Loops | None:
    """The loops of a product. ``views``: operands that are read in other arrays. ``order``: of a transposed result."""
    if isinstance(equation.primitive.kind, kinds.StridedContraction):
        operands = zip(equation.invars, views, strict=True)
        dense = all(
            v is None or v.view is None or v.view.dims == index_maps.dense(x.aval.shape).dims for x, v in operands
        )
        return product_loops.loops_of_space(equation.params["space"]) if dense and order is None else None
    dims = []
    for atom, operand in zip(equation.invars, views, strict=True):
        view = index_maps.dense(atom.aval.shape) if operand is None else operand.view
        if view is None:
            return None
        dims.append(view.dims)
    sums = 2 if equation.invars[0].aval.dtype not in IN_PAIRS else 1
    return product_loops.loops(equation.params["dimension_numbers"], dims[0], dims[1], order, sums)


def permutation(equation: JaxprEqn) -> list[int] | None:
    """The operand's axis for each axis of the result of a view that only reorders axes, otherwise None."""
    operand, out = equation.invars[0], equation.outvars[0].aval
    if not isinstance(equation.primitive.kind, kinds.View) or type(operand) is Literal or operand.aval.ndim != out.ndim:
        return None
    shape = operand.aval.shape
    index_map = equation.primitive.kind.index_map(operand.aval, out, equation.params)
    order = [index.axis for index in index_map]
    if any(index != Affine(index.axis) for index in index_map) or sorted(order) != list(range(out.ndim)):
        return None
    found = [order.index(axis) for axis in range(out.ndim)]
    return found if tuple([shape[dim] for dim in found]) == out.shape else None


def precision_of(asked: Any) -> str:
    """The precision of a product's parameter: float32 if it asks for more than TF32, or tf32; empty: for neither."""
    if isinstance(asked, DotAlgorithm):
        in_parts = max(asked.lhs_component_count, asked.rhs_component_count, asked.num_primitive_operations) > 1
        sides = asked.lhs_precision_type, asked.rhs_precision_type
        return "float32" if in_parts or np.dtype(np.float32) in sides else ""
    if isinstance(asked, tuple):  # of two Precisions
        return {1: "tf32", 2: "float32"}.get(max([side.value for side in asked]), "")
    name = getattr(asked, "name", "")
    if name == "F32_F32_F32" or name.endswith(("_X3", "_X6", "_X9")):
        return "float32"
    return "tf32" if name == "TF32_TF32_F32" else ""


def rewrite(equation: JaxprEqn) -> Callable[..., Any] | None:
    """A function that computes a contraction by other operations, or None if it is a matrix product already."""
    if isinstance(equation.primitive.kind, kinds.StridedContraction):
        return _rewritten_strided(equation)
    lhs, rhs = (atom.aval for atom in equation.invars)
    out = equation.outvars[0].aval
    numbers = equation.params["dimension_numbers"]
    precision = equation.params["precision"]
    converted = _converted(equation, lambda x, y, dtype: _product(x, y, numbers, dtype, precision))
    if converted is not None:
        return converted
    if lhs.size and rhs.size and loops_of(equation) is None:
        return _transposed_first(equation)
    short = out.dtype.kind in "fiu" and is_short_sums(lhs, rhs, numbers) and out.size >= LONG
    # not for extents of 1: other shapes must give the same program
    if short or is_of_vectors(equation) or is_outer(equation):
        return lambda x, y: _product_and_sum(x, y, numbers, out.dtype)
    return None


def is_outer(equation: JaxprEqn) -> bool:
    """Whether a product sums nothing, so that it becomes a multiplication at all sizes."""
    return not equation.params["dimension_numbers"][0][0] and equation.outvars[0].aval.dtype.kind in "fiu"


def is_of_vectors(equation: JaxprEqn) -> bool:
    """Whether a product has no free dimensions, so that it becomes a multiplication and a reduction at all sizes."""
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    ndim = sum([atom.aval.ndim for atom in equation.invars])
    is_real = equation.outvars[0].aval.dtype.kind in "fiu"
    return is_real and ndim == len((*left_sum, *right_sum, *left_batch, *right_batch))


def _converted(equation: JaxprEqn, product: Callable[[Any, Any, Any], Any]) -> Callable[..., Any] | None:
    """A product with operands and a result of dtypes that there are kernels for; None if they are."""
    lhs, rhs, out = (np.dtype(v.aval.dtype) for v in (*equation.invars, equation.outvars[0]))
    wide = _accumulator(lhs, rhs, out)
    if wide != out:
        return lambda x, y: operations.convert_element_type(product(x, y, wide), out)
    if source_and_result(lhs, rhs, out) is not None:
        return None

    def converted(x: Any, y: Any) -> Any:
        x, y = (operations.convert_element_type(v, out) for v in (x, y))
        return product(x, y, out)

    return converted


def _rewritten_strided(equation: JaxprEqn) -> Callable[..., Any] | None:
    """A strided product with contiguous columns in the result: its operands are exchanged, or the result is copied."""
    bind, space, order = equation.primitive.bind, equation.params["space"], equation.params["space"].order
    params = {**equation.params, "preferred_element_type": np.dtype(equation.outvars[0].aval.dtype)}
    converted = _converted(equation, lambda x, y, dtype: bind(x, y, **{**params, "preferred_element_type": dtype}))
    if converted is not None or product_loops.loops_of_space(space) is not None:
        return converted
    if product_loops.loops_of_space(space.exchanged) is None:
        return lambda x, y: operations.transpose(bind(x, y, **{**params, "space": space._replace(order=None)}), order)
    params["space"] = space.exchanged
    if not params.pop("exchanged", False):
        params["exchanged"] = True
    return lambda x, y: bind(y, x, **params)


def is_short_sums(lhs: Any, rhs: Any, numbers: Any) -> bool:
    """Matrices by vectors with rows too short for a matrix product; the bound for a single matrix is lower."""
    sums, batches = numbers
    vectors = [not free_dims(aval.ndim, sums[side], batches[side]) for side, aval in enumerate((lhs, rhs))]
    return any(vectors) and _is_short(math.prod([lhs.shape[dim] for dim in sums[0]]), bool(batches[0]))


def _is_short(terms: int, in_batch: bool) -> bool:
    return 1 < terms <= (FEW_IN_BATCH if in_batch else FEW)


def is_reduced(results: int, terms: int, in_batch: bool) -> bool:
    """Whether matrices by vectors, with so many results and terms, become a multiplication and a reduction."""
    return results >= LONG and _is_short(terms, in_batch)


def _product(x: Any, y: Any, numbers: Any, dtype: Any, precision: Any) -> Any:
    return operations.dot_general(x, y, numbers, precision, preferred_element_type=dtype)


def dtype_of(char: str) -> np.dtype:
    """The dtype of one of the runtime's characters."""
    return next(dtype for dtype, known in _CHARS.items() if known == char)


def source_and_result(lhs: Any, rhs: Any, out: Any) -> tuple[str, str] | None:
    """The runtime's characters for the dtypes of a product, or None if it has no kernels for them."""
    result = _CHARS.get(np.dtype(out))
    source = _CHARS.get(np.dtype(lhs))
    if lhs != rhs or result is None or source is None or source not in SOURCES.get(result, ""):
        return None
    return source, result


def kernels_of(equation: JaxprEqn) -> tuple[str, str] | None:
    """The runtime's characters for the dtypes of a product equation; None if it has no kernels for them."""
    lhs, rhs, out = (np.dtype(v.aval.dtype) for v in (*equation.invars, equation.outvars[0]))
    return source_and_result(lhs, rhs, out)


def _accumulator(lhs: Any, rhs: Any, out: Any) -> np.dtype:
    """The dtype of the sums."""
    if all(category(dtype) in BOOL | INTEGER for dtype in (lhs, rhs, out)):
        signed = category(out) == "signed integer"
        return out if out.itemsize >= 4 else np.dtype(np.int32 if signed else np.uint32)
    wide = contraction_dtype(lhs, rhs, out)
    return wide if wide in _CHARS and _CHARS[wide] in "fdFD" else np.dtype(np.float32)


def _product_and_sum(x: Any, y: Any, numbers: Any, dtype: Any) -> Any:
    """Broadcast to (batch, m, k, n), multiply, add over k."""
    (left_sum, right_sum), (left_batch, right_batch) = _in_order(numbers[0]), numbers[1]
    x = operations.transpose(x, _order(left_batch, free_dims(x.ndim, left_sum, left_batch), left_sum))
    y = operations.transpose(y, _order(right_batch, right_sum, free_dims(y.ndim, right_sum, right_batch)))
    n_batch, n_sum = len(left_batch), len(left_sum)
    n_left, n_right = x.ndim - n_batch - n_sum, y.ndim - n_batch - n_sum
    shape = (*x.shape, *y.shape[n_batch + n_sum :])
    wide_x = operations.broadcast_in_dim(x, shape, tuple(range(x.ndim)))
    y_dims = (*range(n_batch), *range(n_batch + n_left, n_batch + n_left + n_sum), *range(x.ndim, x.ndim + n_right))
    wide_y = operations.broadcast_in_dim(y, shape, y_dims)
    axes = tuple(range(n_batch + n_left, n_batch + n_left + n_sum))
    wide_x, wide_y = (operations.convert_element_type(v, dtype) for v in (wide_x, wide_y))
    product = operations.mul(wide_x, wide_y)
    return operations.reduce_sum(product, axes) if axes else product


def free_dims(rank: int, sums: Sequence[int], batches: Sequence[int]) -> tuple[int, ...]:
    return tuple(dim for dim in range(rank) if dim not in (*sums, *batches))


def _order(*parts: Sequence[int]) -> tuple[int, ...]:
    return tuple(dim for part in parts for dim in part)


def _transposed_first(equation: JaxprEqn) -> Callable[..., Any]:
    """Operands as (batch, m, k) and (batch, k, n), copied if necessary."""
    sums, (left_batch, right_batch) = equation.params["dimension_numbers"]
    left_sum, right_sum = _in_order(sums)
    preferred, precision = equation.outvars[0].aval.dtype, equation.params["precision"]

    def canonical(x: Any, y: Any) -> Any:
        n_batch, n_sum = len(left_batch), len(left_sum)
        x = operations.transpose(x, _order(left_batch, free_dims(x.ndim, left_sum, left_batch), left_sum))
        y = operations.transpose(y, _order(right_batch, right_sum, free_dims(y.ndim, right_sum, right_batch)))
        batch = tuple(range(n_batch))
        sums = (tuple(range(x.ndim - n_sum, x.ndim)), tuple(range(n_batch, n_batch + n_sum)))
        return operations.dot_general(
            operations.optimization_barrier(x), operations.optimization_barrier(y), (sums, (batch, batch)), precision,
            preferred_element_type=preferred,
        )  # fmt: skip

    return canonical
