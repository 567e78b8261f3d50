"""``//`` and ``%`` of integers by a literal: the recorded sequence becomes fewer operations with the same bits.

    select_n (and (lt r 0) (ne r 0)) r (add r 8), r = rem x 8          ->  and x 7
    select_n (and (ne (sign x) 1) (ne (rem x 7) 0)) q (sub q 1), q = div x 7  ->  floor_div x 7

Powers of two become shifts and masks; other divisors from 2 on become one floored quotient, which the remainder shares.
Divisors below 1, and those that are not literals, are left as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.core.jaxpr import JaxprEqn, Literal
from weft.core.rewrite import Makers

Rewritten = tuple[Callable[..., Any], Sequence[Any]]  # a function and its arguments


def rewrite(equation: JaxprEqn, makers: Makers) -> Rewritten | None:
    """The same result by other operations, if ``equation`` ends a division by a literal."""
    if equation.primitive is lax.select_n_p:
        return _floored(equation, makers) if len(equation.invars) == 3 else None
    x, y = equation.invars
    value = _divisor(y)
    if equation.outvars[0].aval.dtype.kind != "u" or value & (value - 1) or not value:
        return None
    if equation.primitive is lax.div_p:
        return lax.shift_right_logical, [x, _like(y, value.bit_length() - 1)]
    return lax.bitwise_and, [x, _like(y, value - 1)]


def _floored(equation: JaxprEqn, makers: Makers) -> Rewritten | None:
    which, found, other = equation.invars

    def made(atom: Any, primitive: Any) -> Sequence[Any]:
        maker = makers.of(atom)
        return maker.invars if maker is not None and maker.primitive is primitive else [None, None]

    left, right = made(which, lax.and_p)
    below, zero = made(left, lax.lt_p)
    if found.aval.dtype.kind == "u" and _with([below, zero], found, 0):  # unsigned values are never below 0
        return _unchanged, [found]
    x, y = rest = made(found, lax.rem_p)
    value = _divisor(y)
    if value > 0 and _with(made(other, lax.add_p), found, value):
        if not (_with([below, zero], found, 0) and _with(made(right, lax.ne_p), found, 0)):
            return None
        return (lax.bitwise_and, [x, _like(y, value - 1)]) if value & (value - 1) == 0 else (_rest, rest)
    x, y = made(found, lax.div_p)
    value = _divisor(y)
    if value > 0 and _with(made(other, lax.sub_p), found, 1):
        sign, one = made(left, lax.ne_p)
        inexact, zero = made(right, lax.ne_p)
        dividend, divisor = made(inexact, lax.rem_p)
        if made(sign, lax.sign_p)[0] is not x or dividend is not x or _divisor(divisor) != value:
            return None
        if not (_with([sign, one], sign, 1) and _with([inexact, zero], inexact, 0)):
            return None
        if value & (value - 1) == 0:
            return lax.shift_right_arithmetic, [x, _like(y, value.bit_length() - 1)]
        return lax.floor_div_p.bind, [x, y]
    return None


def _with(operands: Sequence[Any], first: Any, number: int) -> bool:
    """Whether the operands are ``first`` and this literal."""
    return operands[0] is first and isinstance(operands[1], Literal) and bool(np.asarray(operands[1].val) == number)


def _divisor(atom: Any) -> int:
    """The value of an integer literal; 0 for anything else."""
    return int(atom.val) if isinstance(atom, Literal) and atom.aval.dtype.kind in "iu" else 0


def _like(literal: Any, value: int) -> Literal:
    return Literal(literal.aval.dtype.type(value), literal.aval)


def _unchanged(rest: Any) -> Any:
    return rest


def _rest(x: Any, y: Any) -> Any:
    return lax.sub(x, lax.mul(lax.floor_div_p.bind(x, y), y))
