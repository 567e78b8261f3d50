"""dot_general on its way to a matrix product: what is rewritten before, and the layout of what remains.

Half precisions are multiplied in float32 and rounded once; integers and booleans become a product and a reduction;
an operand whose batch, free and contracted dimensions cannot be walked as a matrix is transposed first. Transposes
of operands become dimension numbers, that is strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import operations
from weft.loops.index_math import dense_elems

GEMM_DTYPES = {np.dtype(np.float32): "f", np.dtype(np.float64): "d", np.dtype("c8"): "F", np.dtype("c16"): "D"}


@dataclass(frozen=True, slots=True)
class Matrix:
    """How a dense operand is a stack of matrices: elements and strides, rows before columns."""

    rows: int
    columns: int
    transposed: bool
    leading: int  # the stride of the dimension that is not contiguous
    batch: tuple[int, ...]  # strides of the batch dimensions, in elements


def fold_transposes(equation: Any, producers: dict[Any, Any]) -> Any:
    """Take operands before their transposes, as far as the order of the free dimensions allows."""
    invars = list(equation.invars)
    sums, batches = (list(pair) for pair in equation.params["dimension_numbers"])
    changed = False
    for side in (0, 1):
        maker = producers.get(invars[side]) if not hasattr(invars[side], "val") else None
        if maker is None or maker.primitive.name != "transpose" or hasattr(maker.invars[0], "val"):
            continue
        permutation = maker.params["permutation"]
        free = [permutation[d] for d in range(len(permutation)) if d not in (*sums[side], *batches[side])]
        if free != sorted(free):
            continue
        sums[side] = tuple(permutation[d] for d in sums[side])
        batches[side] = tuple(permutation[d] for d in batches[side])
        invars[side] = maker.invars[0]
        changed = True
    if not changed:
        return equation
    numbers = ((tuple(sums[0]), tuple(sums[1])), (tuple(batches[0]), tuple(batches[1])))
    return equation.replace(invars=invars, params={**equation.params, "dimension_numbers": numbers})


def rewrite(equation: Any) -> Callable[..., Any] | None:
    """The function that says a contraction in other operations, or None if it is a matrix product as it stands."""
    lhs, rhs = (atom.aval for atom in equation.invars)
    out = equation.outvars[0].aval
    if out.dtype not in GEMM_DTYPES or lhs.dtype != out.dtype or rhs.dtype != out.dtype:
        return _in_wider_type(equation)
    if layouts(equation) is None:
        return _transposed_first(equation)
    return None


def _in_wider_type(equation: Any) -> Callable[..., Any]:
    out = equation.outvars[0].aval
    lhs, rhs = (atom.aval for atom in equation.invars)
    numbers = equation.params["dimension_numbers"]
    if out.dtype.kind in "iub" and lhs.dtype.kind in "iub":
        return lambda x, y: _product_and_sum(x, y, numbers, out.dtype)
    wide = np.dtype(out.dtype)
    for dtype in (out.dtype, lhs.dtype, rhs.dtype):
        wide = np.dtype(np.float32) if wide not in GEMM_DTYPES else wide
        if np.dtype(dtype) in GEMM_DTYPES:
            wide = np.promote_types(wide, dtype)

    def widened(x: Any, y: Any) -> Any:
        x, y = (operations.convert_element_type(v, wide) for v in (x, y))
        product = operations.dot_general(x, y, numbers, preferred_element_type=wide)
        return operations.convert_element_type(product, out.dtype)

    return widened


def _product_and_sum(x: Any, y: Any, numbers: Any, dtype: Any) -> Any:
    """Integers: broadcast to (batch, m, k, n), multiply, add over k. Rows of n are contiguous on both sides."""
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    x = operations.transpose(x, _order(left_batch, _free(x.ndim, left_sum, left_batch), left_sum))
    y = operations.transpose(y, _order(right_batch, right_sum, _free(y.ndim, right_sum, right_batch)))
    n_batch, n_sum = len(left_batch), len(left_sum)
    n_left, n_right = x.ndim - n_batch - n_sum, y.ndim - n_batch - n_sum
    shape = (*x.shape, *y.shape[n_batch + n_sum :])
    wide_x = operations.broadcast_in_dim(x, shape, tuple(range(x.ndim)))
    y_dims = (*range(n_batch), *range(n_batch + n_left, n_batch + n_left + n_sum), *range(x.ndim, x.ndim + n_right))
    wide_y = operations.broadcast_in_dim(y, shape, y_dims)
    axes = tuple(range(n_batch + n_left, n_batch + n_left + n_sum))
    if dtype == np.bool_:
        return operations.reduce_or(operations.bitwise_and(wide_x, wide_y), axes)
    wide_x, wide_y = (operations.convert_element_type(v, dtype) for v in (wide_x, wide_y))
    return operations.reduce_sum(operations.mul(wide_x, wide_y), axes)


def _free(rank: int, sums: Sequence[int], batches: Sequence[int]) -> tuple[int, ...]:
    return tuple(dim for dim in range(rank) if dim not in (*sums, *batches))


def _order(*parts: Sequence[int]) -> tuple[int, ...]:
    return tuple(dim for part in parts for dim in part)


def _transposed_first(equation: Any) -> Callable[..., Any]:
    """Operands as (batch, m, k) and (batch, k, n), copied where they are not so already."""
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    preferred = equation.outvars[0].aval.dtype

    def canonical(x: Any, y: Any) -> Any:
        n_batch, n_sum = len(left_batch), len(left_sum)
        x = operations.transpose(x, _order(left_batch, _free(x.ndim, left_sum, left_batch), left_sum))
        y = operations.transpose(y, _order(right_batch, right_sum, _free(y.ndim, right_sum, right_batch)))
        batch = tuple(range(n_batch))
        sums = (tuple(range(x.ndim - n_sum, x.ndim)), tuple(range(n_batch, n_batch + n_sum)))
        return operations.dot_general(
            operations.optimization_barrier(x), operations.optimization_barrier(y), (sums, (batch, batch)),
            preferred_element_type=preferred,
        )  # fmt: skip

    return canonical


def layouts(equation: Any) -> tuple[Matrix, Matrix] | None:
    """Both operands as matrices (m, k) and (k, n), or None if one cannot be walked so."""
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    pairs = sorted(zip(left_sum, right_sum, strict=True))
    left_sum, right_sum = [a for a, _ in pairs], [b for _, b in pairs]
    lhs, rhs = (atom.aval.shape for atom in equation.invars)
    left = _matrix(lhs, left_batch, _free(len(lhs), left_sum, left_batch), left_sum)
    right = _matrix(rhs, right_batch, right_sum, _free(len(rhs), right_sum, right_batch))
    return None if left is None or right is None else (left, right)


def _matrix(shape: Sequence[int], batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Matrix | None:
    strides = dense_elems(shape)
    row, column = _joined(shape, strides, rows), _joined(shape, strides, columns)
    if row is None or column is None:
        return None
    (n_rows, row_stride), (n_columns, column_stride) = row, column
    steps = tuple(strides[dim] for dim in batch)
    if column_stride == 1 or n_columns == 1:
        return Matrix(n_rows, n_columns, False, max(row_stride if n_rows > 1 else 0, n_columns, 1), steps)
    if row_stride == 1 or n_rows == 1:
        return Matrix(n_rows, n_columns, True, max(column_stride, n_rows, 1), steps)
    return None


def _joined(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> tuple[int, int] | None:
    """(extent, stride) of several dimensions walked as one, or None."""
    extent, stride = 1, 0
    for dim in reversed(dims):
        if shape[dim] == 1:
            continue
        if extent != 1 and strides[dim] != stride * extent:
            return None
        if extent == 1:
            stride = strides[dim]
        extent *= shape[dim]
    return extent, stride if extent != 1 else 1
