"""Gathers in registers: the position of every element, from the clamped components of index vectors.

y[b, w] = x[start(i[b]) + w]   ->   at = min(max(i[b, 0], 0), most) * stride + ... + offset(w);   y = x[at]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.loops import indexed
from weft.loops.indexed import INT32
from weft.loops.routines.promoted_values import Values

MOST = 32  # elements of a gather in registers


def _windows(equation: JaxprEqn) -> kinds.Windows:
    avals = [atom.aval for atom in equation.invars[:2]]
    return equation.primitive.kind.windows(avals, equation.outvars[0].aval, equation.params)


def is_small(equation: JaxprEqn) -> bool:
    """Whether the windows fit into the array, positions into 32 bits, and the elements are few.

    Each element is a load. More of them are as fast in a kernel, which is the same for all numbers of them.
    """
    if equation.outvars[0].aval.size > MOST:
        return False
    return min(_windows(equation).most, default=0) >= 0 and 0 < equation.invars[0].aval.size < indexed.FEW


def positions(low: Values, equation: JaxprEqn, index: int) -> tuple[int, int | None]:
    """The positions of a gather's elements, and whether their windows are inside (None: always)."""
    array, indices = [atom.aval for atom in equation.invars[:2]]
    windows = _windows(equation)
    vectors, offsets = _elements(windows, indices.shape, equation.outvars[0].aval.shape, array.shape)
    count = len(windows.starts)
    position = low.constant(offsets.astype(np.int32)) if offsets.any() or not count else None
    inside: int | None = None
    wide = INT32 if indices.dtype.itemsize < 4 else np.dtype(indices.dtype)
    for k, (dim, most) in enumerate(zip(windows.starts, windows.most, strict=True)):
        given = low.pick(indices.dtype, [(index, int(row) * count + k) for row in vectors])
        bound = low.constant(np.asarray([min(most, int(np.iinfo(wide).max))], wide))
        start = low.apply("start", indexed.CLAMP, (given, bound), np.int32, (("dtype", INT32),))
        stride = math.prod(array.shape[dim + 1 :])
        if stride != 1:
            start = low.apply("scaled", indexed.SCALED, (start, low.constant(np.asarray([stride], np.int32))), np.int32)
        position = start if position is None else low.apply("sum", indexed.SUM, (position, start), np.int32)
        here = low.apply("inside", indexed.INSIDE, (given, bound), np.bool_)
        inside = here if inside is None else low.apply("both", indexed.BOTH, (inside, here), np.bool_)
    assert position is not None
    return position, inside


def _elements(
    windows: kinds.Windows, indices: Sequence[int], out: tuple[int, ...], array: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """For every element of the result the number of its index vector, and its offset from the window's start."""
    vectors, offsets = np.zeros(out, np.int64), np.zeros(out, np.int64)
    grid = np.indices(out, np.int64, sparse=True)
    for k, dim in enumerate(windows.batch):
        vectors += grid[dim] * math.prod(indices[k + 1 : -1])
    for k, dim in enumerate(windows.moved):
        if dim is not None:
            offsets += grid[dim] * math.prod(array[k + 1 :])
    return vectors.ravel(), offsets.ravel()
