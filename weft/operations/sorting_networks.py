"""Sorting networks: many short rows sorted by comparisons of neighbours, which are elementwise operations.

    sort f32[1000,3]  ->  a, b, c = its columns;  a, b = ordered(a, b);  b, c = ordered(b, c);  a, b = ordered(a, b)

Only neighbours are exchanged, and only where the second is smaller, so that equal elements keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.operations.later import ops

ROWS = 64  # least rows: fewer are sorted faster by the native sort than by a kernel of their own
LONGEST = 12  # elements of a row
MOST = 160  # operations of a network, which is to be one kernel


def of_rows(avals: Sequence[Any], dimension: int, num_keys: int) -> Callable[..., Any] | None:
    """The function that sorts operands of these types by their first, or None if the native sort is to do it."""
    key, n = avals[0], avals[0].shape[dimension]
    if num_keys != 1 or not are_short(key.shape, dimension):
        return None
    whole = np.dtype(key.dtype).kind in "iu" and key.dtype != np.dtype(bool)
    if not whole and key.dtype not in dtypes.FLOATS:
        return None
    alone = whole and len(avals) == 1
    steps = n * (n - 1) // 2
    if steps * (2 if alone else 2 * len(avals) + (1 if whole else 3)) > MOST:
        return None
    compare = _extrema if alone else _ordered_integers if whole else _ordered_floats

    def function(*operands: Any) -> list[Any]:
        rows = [[ops.index_in_dim(x, k, dimension, keepdims=False) for x in operands] for k in range(n)]
        for last in range(n - 1, 0, -1):
            for k in range(last):
                rows[k], rows[k + 1] = compare(rows[k], rows[k + 1])
        return [ops.concatenate([ops.expand_dims(x, (dimension,)) for x in column], dimension) for column in zip(*rows)]

    return function


def are_short(shape: Sequence[int], dimension: int) -> bool:
    """Whether rows along a dimension are so short and many that they may be sorted by a network."""
    return 1 < shape[dimension] <= LONGEST and math.prod(shape) >= ROWS * shape[dimension]


Row = list[Any]  # one element of each operand


def _extrema(a: Row, b: Row) -> tuple[Row, Row]:
    return [ops.min(a[0], b[0])], [ops.max(a[0], b[0])]


def _ordered_integers(a: Row, b: Row) -> tuple[Row, Row]:
    return _exchanged(ops.lt(b[0], a[0]), a, b)


def _ordered_floats(a: Row, b: Row) -> tuple[Row, Row]:
    """NaN is last: b is smaller if it is a number and a is not, or if a is larger."""
    smaller = ops.bitwise_not(ops.le(a[0], b[0]))
    return _exchanged(ops.bitwise_and(smaller, ops.eq(b[0], b[0])), a, b)


def _exchanged(swap: Any, a: Row, b: Row) -> tuple[Row, Row]:
    pairs = list(zip(a, b, strict=True))
    return [ops.select_n(swap, x, y) for x, y in pairs], [ops.select_n(swap, y, x) for x, y in pairs]
