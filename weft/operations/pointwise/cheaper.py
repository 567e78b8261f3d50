"""Cheaper operations with the same bits, where operands are literals: the compiler asks a kind for them (``cheaper``).

Each function takes the operands of an equation and gives another function and its operands, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.programs.jaxpr import Literal
from weft.operations.later import ops

Cheaper = tuple[Callable[..., Any], Sequence[Any]] | None
Test = Callable[[Any], bool]  # whether all finite elements of an operand are whole numbers


def quotient(operands: Sequence[Any], _: Test) -> Cheaper:
    """Natural numbers divided by a power of two are shifted."""
    x, y = operands
    value = _power_of_two(y)
    return (ops.shift_right_logical, [x, like(y, value.bit_length() - 1)]) if value else None


def rest(operands: Sequence[Any], _: Test) -> Cheaper:
    """The rest of natural numbers divided by a power of two is their low bits."""
    x, y = operands
    value = _power_of_two(y)
    return (ops.bitwise_and, [x, like(y, value - 1)]) if value else None


def power(operands: Sequence[Any], is_whole: Test) -> Cheaper:
    """Of 2, and of some exponents."""
    x, y = operands
    if isinstance(x, Literal) and x.val == 2 and x.aval.dtype == y.aval.dtype and y.aval.dtype.kind != "c":
        return (ops.exp2, [y]) if is_whole(y) else None  # both give the exact power of two of every whole number
    if not isinstance(y, Literal) or x.aval.dtype.kind == "c":
        return None
    function = _POWERS.get(float(y.val))
    if function is _square_root and x.aval.dtype.itemsize == 1:
        return None  # some floats of a byte have no 0 or no infinity
    return None if function is None else (function, [x])


def divisor(atom: Any) -> int:
    """The value of an integer literal; 0 for anything else."""
    return int(atom.val) if isinstance(atom, Literal) and atom.aval.dtype.kind in "iu" else 0


def _power_of_two(atom: Any) -> int:
    """The value of a literal of an unsigned integer that is a power of two; 0 for anything else."""
    value = divisor(atom) if atom.aval.dtype.kind == "u" else 0
    return 0 if value & (value - 1) else value


def like(literal: Any, value: int) -> Literal:
    """A literal of the same type."""
    return Literal(literal.aval.dtype.type(value), literal.aval)


def _square_root(x: Any) -> Any:
    """pow's 1/2: +0.0 for -0.0, and +inf for -inf."""
    dtype = x.dtype.type
    root = ops.sqrt(ops.add(x, dtype(0)))
    infinite = ops.eq(x, dtype(-np.inf))
    return ops.select_n(infinite, root, ops.full_like(x, np.inf))


# exponents for which pow's own expression has these special cases
_POWERS: dict[float, Callable[[Any], Any]] = {
    0.5: _square_root,
    2.0: lambda x: ops.mul(x, x),
    -1.0: lambda x: ops.div(ops.full_like(x, 1), x),
}
