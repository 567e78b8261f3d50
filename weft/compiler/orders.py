"""Sorts of values alone, and of short rows with others, as instructions of a plan: the executor does them itself.

``sort`` of f32[5,4] along axis 1 by itself, with positions beside it, becomes::

    ("order", rows 5, row of 4, 1 apart, 4 kept, largest False, (key f32), ((x, x sorted, 4), (iota, order, 4)), None)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes

ROW, FEW = 1 << 10, 1 << 11  # elements of a row, or of all, that are sorted with positions: threads share longer rows
_SIZES = (1, 2, 4, 8, 16)  # bytes of an element that are moved natively
_COMPLEX = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


def instruction(equation: Any, place: Callable[..., Any]) -> tuple[Any, ...] | None:
    """What the executor does for an External that is a sort, None if Python is to do it; ``place`` as in plan."""
    kind, operands, results = equation.primitive.kind, equation.invars, equation.outvars
    if kind.ordering is None or not operands[0].aval.size:
        return None
    found = kind.ordering(equation.params)
    size, shape = operands[0].aval.size, operands[0].aval.shape
    n, inner = shape[found.axis], math.prod(shape[found.axis + 1 :])
    if any(dtypes.is_extended(v.aval.dtype) or v.aval.dtype.itemsize not in _SIZES for v in operands):
        return None
    keys = [words for v in operands[: found.n_keys] for words in _words(v, place)]
    if None in keys:
        return None
    if (len(keys) > 1 or len(results) > 1) and size > FEW and n > ROW:
        return None
    moved = [(place(v), place(out), v.aval.dtype.itemsize) for v, out in zip(operands, results, strict=False)]
    return (
        "order", size // n, n, inner, n if found.largest is None else found.largest,
        found.largest is not None, tuple(keys), tuple(moved),
        place(results[-1]) if len(results) > len(operands) else None,
    )  # fmt: skip


def _words(variable: Any, place: Callable[..., Any]) -> list[tuple[Any, ...] | None]:
    """Each as (place, order, bytes, bytes from one to the next, infinity): of complex numbers both parts."""
    dtype = variable.aval.dtype
    part = _COMPLEX.get(dtype, dtype)
    if part in dtypes.FLOATS:
        order, infinity = "f", int(np.array(np.inf, part).view(f"u{part.itemsize}"))
    elif part.kind in "iub":
        order, infinity = "i" if part.kind == "i" else "u", 0
    else:
        return [None]
    offsets = range(0, dtype.itemsize, part.itemsize)
    return [(place(variable, offset), order, part.itemsize, dtype.itemsize, infinity) for offset in offsets]
