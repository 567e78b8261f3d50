"""Lowers sorts to native instructions: of values alone, by a key packed with its position, of short or many rows.

Argsort of f32[5,4], after ``library_calls``::

    b = sort_order[dimension=1 num_keys=1 moved=() positions=int32] x
    ("order", rows 5, row of 4, 1 apart, 4 kept, largest False, (key f32), moved (), location of b, 4 bytes)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.compiler.plans.instructions import Sort
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.operations import sorting_networks

# most elements of a row, or of all rows, sorted natively with positions: Python's sort uses threads within longer rows
ROW, FEW = 1 << 10, 1 << 11
MANY, LONG = 8, 1 << 16  # so many rows of one key are divided among threads, up to this length
SMALL = 1 << 14  # elements that a program of one sort sorts natively, even if the rows are short
_PACKED = (2, 4)  # bytes of a key that is sorted in one word with its position, a long row on all threads
_SIZES = (1, 2, 4, 8, 16)  # bytes of an element that are moved natively
_COMPLEX = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


def instruction(equation: JaxprEqn, location: Callable[..., Any], on_gpu: bool = False) -> Sort | None:
    """The instruction for an External that is a sort, None if Python has to do it; ``location`` as in plan.

    A GPU has kernels for every size.
    """
    kind, operands, results = equation.primitive.kind, equation.invars, equation.outvars
    if kind.ordering is None or not operands[0].aval.size:
        return None
    found = kind.ordering(equation.params)
    size, shape = operands[0].aval.size, operands[0].aval.shape
    n, inner = shape[found.axis], math.prod(shape[found.axis + 1 :])
    if any(dtypes.is_extended(v.aval.dtype) or v.aval.dtype.itemsize not in _SIZES for v in operands):
        return None
    keys: list[Any] = [words for v in operands[: found.n_keys] for words in _words(v, location)]
    if None in keys:
        return None
    sources = operands if found.moved is None else [operands[k] for k in found.moved]
    if not on_gpu and not is_native(keys if found.largest is None else (), is_alone(equation), size, n):
        return None
    moved = [(location(v), location(out), v.aval.dtype.itemsize) for v, out in zip(sources, results, strict=False)]
    counts = results[-1] if len(results) > len(sources) else None
    return Sort(
        size // n, n, inner, n if found.largest is None else found.largest,
        found.largest is not None, tuple(keys), tuple(moved),
        None if counts is None else location(counts), 0 if counts is None else counts.aval.dtype.itemsize, found.bits,
    )  # fmt: skip


def is_small_sort(equation: JaxprEqn) -> bool:
    """Whether a program of this equation alone stays a native sort, which serves all sizes without compiling."""
    kind = equation.primitive.kind
    is_sort = isinstance(kind, kinds.External) and kind.ordering is not None
    return is_sort and equation.invars[0].aval.size < SMALL


def may_be_unrolled(equation: JaxprEqn, shape: Sequence[int]) -> bool:
    """Whether at such a shape a sort may become other operations (``library_calls``)."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.External) or kind.ordering is None:
        return False
    found = kind.ordering(equation.params)
    return found.largest is None and sorting_networks.are_short(shape, found.axis)


def is_alone(equation: JaxprEqn) -> bool:
    """Whether the only key is sorted, and nothing else."""
    kind, operands = equation.primitive.kind, equation.invars
    assert isinstance(kind, kinds.External) and kind.ordering is not None
    found = kind.ordering(equation.params)
    sources = operands if found.moved is None else [operands[k] for k in found.moved]
    return (
        found.n_keys == 1 and operands[0].aval.dtype not in _COMPLEX
        and list(sources) == list(operands[:1]) and len(equation.outvars) == 1
    )  # fmt: skip


def is_native(keys: Sequence[Any], alone: bool, size: int, n: int) -> bool:
    """Whether rows of ``n`` of ``size`` elements are sorted natively; ``keys``: none for the largest elements."""
    is_shared_out = len(keys) == 1 and size // n >= MANY and n <= LONG
    is_packed = len(keys) == 1 and keys[0][2] in _PACKED
    return alone or is_packed or is_shared_out or size <= FEW or n <= ROW


def _words(variable: Any, location: Callable[..., Any]) -> list[tuple[Any, ...] | None]:
    """Each as (location, order, bytes, stride in bytes, infinity); two entries for complex numbers."""
    dtype = variable.aval.dtype
    part = _COMPLEX.get(dtype, dtype)
    if part in dtypes.FLOATS:
        order, infinity = "f", int(np.array(np.inf, part).view(f"u{part.itemsize}"))
    elif part.kind in "iub":
        order, infinity = "i" if part.kind == "i" else "u", 0
    else:
        return [None]
    offsets = range(0, dtype.itemsize, part.itemsize)
    return [(location(variable, offset), order, part.itemsize, dtype.itemsize, infinity) for offset in offsets]
