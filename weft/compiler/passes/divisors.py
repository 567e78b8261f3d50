"""``//`` and ``%`` of integers by a literal: the recorded sequence becomes fewer operations with the same bits.

    select_n (and (lt r 0) (ne r 0)) r (add r 8), r = rem x 8          ->  and x 7
    select_n (and (ne (sign x) 1) (ne (rem x 7) 0)) q (sub q 1), q = div x 7  ->  floor_div x 7

Powers of two become shifts and masks; other divisors from 2 on become one floored quotient, which the remainder shares.
Divisors below 1, and those that are not literals, are left as recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft.compiler import expansions
from weft.core.programs.jaxpr import Atom, JaxprEqn, Literal
from weft.core.programs.rewrite import Makers, index, variables
from weft.operations.pointwise.cheaper import Cheaper, divisor, like


def rewrite(equation: JaxprEqn, makers: Makers) -> Cheaper:
    """The same result by other operations, if ``equation`` ends a division by a literal."""
    for recorded, cheaper in _FORMS.get(equation.outvars[0].aval.dtype.kind, ()):
        found = _operands(recorded, equation, makers)
        if found is not None:
            return cheaper(*found)
    return None


def _natural(rest: Any, other: Any) -> Any:
    """``x % y`` of natural numbers, which are never below 0."""
    zero = np.asarray(0, rest.dtype)
    return lax.select_n(lax.bitwise_and(lax.lt(rest, zero), lax.ne(rest, zero)), rest, other)


def _remainder(x: Any, y: Any) -> Any:
    """``x % y`` as ``weft.numpy`` records it, for y above 0."""
    rest = lax.rem(x, y)
    zero = np.asarray(0, x.dtype)
    return lax.select_n(lax.bitwise_and(lax.lt(rest, zero), lax.ne(rest, zero)), rest, lax.add(rest, y))


def _quotient(x: Any, y: Any) -> Any:
    """``x // y`` as ``weft.numpy`` records it, for y above 0."""
    quotient = lax.div(x, y)
    zero, one = np.asarray(0, x.dtype), np.asarray(1, x.dtype)
    too_large = lax.bitwise_and(lax.ne(lax.sign(x), one), lax.ne(lax.rem(x, y), zero))
    return lax.select_n(too_large, quotient, lax.sub(quotient, one))


def _rest(x: Any, y: Any) -> Cheaper:
    value = divisor(y)
    if value <= 0:
        return None
    return (lax.bitwise_and, [x, like(y, value - 1)]) if value & (value - 1) == 0 else (_rest_of_floored, [x, y])


def _rest_of_floored(x: Any, y: Any) -> Any:
    return lax.sub(x, lax.mul(lax.floor_div_p.bind(x, y), y))


def _floored(x: Any, y: Any) -> Cheaper:
    value = divisor(y)
    if value <= 0:
        return None
    if value & (value - 1) == 0:
        return lax.shift_right_arithmetic, [x, like(y, value.bit_length() - 1)]
    return lax.floor_div_p.bind, [x, y]


def _unchanged(rest: Any) -> Any:
    return rest


# recorded operation -> its replacement, by the kind of dtype
_FORMS = {"u": [(_natural, lambda rest, _: (_unchanged, [rest]))], "i": [(_remainder, _rest), (_quotient, _floored)]}


def _operands(function: Callable[..., Any], equation: JaxprEqn, makers: Makers) -> list[Any] | None:
    """The operands of a function whose result an equation is, as far as equations tell; None for others."""
    scalar = runtime.ShapedArray((), equation.outvars[0].aval.dtype)
    jaxpr = expansions.expansion(function, function, (scalar, scalar)).jaxpr
    search = _Search(index(jaxpr).makers, makers)
    (result,) = variables(jaxpr.outvars)
    is_it = search.is_made(search.recorded[result], equation)
    return [search.known[v] for v in jaxpr.invars] if is_it else None


class _Search:
    """Whether equations are those that a function records; ``known``: what its variables stand for."""

    def __init__(self, recorded: Makers, makers: Makers) -> None:
        self.recorded, self.makers, self.known = recorded, makers, dict[Any, Any]()

    def is_made(self, wanted: JaxprEqn, maker: JaxprEqn | None) -> bool:
        if maker is None or maker.primitive is not wanted.primitive or maker.params != wanted.params:
            return False
        return len(maker.invars) == len(wanted.invars) and all(map(self._is_same, wanted.invars, maker.invars))

    def _is_same(self, wanted: Any, atom: Atom) -> bool:
        known = wanted if isinstance(wanted, Literal) else self.known.get(wanted)
        if isinstance(known, Literal):
            return isinstance(atom, Literal) and bool(atom.val == known.val)
        if known is not None:
            return known is atom
        self.known[wanted] = atom
        maker = self.recorded.of(wanted)
        return maker is None or self.is_made(maker, self.makers.of(atom))
