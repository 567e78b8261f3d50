"""``Term``: emitter values with Python operators, so that a long scalar expression reads like a formula.

    x, y = term(emit, a), term(emit, b)
    (x * x + y * y).sqrt().value

Numbers beside a term become constants of its dtype. Comparisons give ``Condition``s, for ``where(cond, x, y)``.
Nothing is reassociated: the expression is evaluated as written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Condition:
    """A bool value with the logical operators."""

    __slots__ = ("emit", "value")

    def __init__(self, emit: Any, value: Any) -> None:
        self.emit = emit
        self.value = value

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.emit, self.emit.and_(self.value, other.value))

    def __or__(self, other: Condition) -> Condition:
        return Condition(self.emit, self.emit.or_(self.value, other.value))

    def __invert__(self) -> Condition:
        return Condition(self.emit, self.emit.not_(self.value))


class Term:
    """A real (float or integer) value of an emitter."""

    __slots__ = ("emit", "value")

    def __init__(self, emit: Any, value: Any) -> None:
        self.emit = emit
        self.value = value

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def lift(self, other: Any) -> Any:
        """The emitter value of another term, or of a number as a constant of this dtype."""
        return other.value if isinstance(other, Term) else self.emit.const(other, self.dtype)

    def constant(self, number: Any) -> Term:
        return Term(self.emit, self.emit.const(number, self.dtype))

    def __add__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.add(self.value, self.lift(other)))

    def __radd__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.add(self.lift(other), self.value))

    def __sub__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.sub(self.value, self.lift(other)))

    def __rsub__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.sub(self.lift(other), self.value))

    def __mul__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.mul(self.value, self.lift(other)))

    def __rmul__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.mul(self.lift(other), self.value))

    def __truediv__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.div(self.value, self.lift(other)))

    def __rtruediv__(self, other: Any) -> Term:
        return Term(self.emit, self.emit.div(self.lift(other), self.value))

    def __neg__(self) -> Term:
        return Term(self.emit, self.emit.neg(self.value))

    def __abs__(self) -> Term:
        return Term(self.emit, self.emit.abs(self.value))

    def compare(self, direction: str, other: Any) -> Condition:
        return Condition(self.emit, self.emit.compare(direction, self.value, self.lift(other)))

    def __lt__(self, other: Any) -> Condition:
        return self.compare("lt", other)

    def __le__(self, other: Any) -> Condition:
        return self.compare("le", other)

    def __gt__(self, other: Any) -> Condition:
        return self.compare("gt", other)

    def __ge__(self, other: Any) -> Condition:
        return self.compare("ge", other)

    def equals(self, other: Any) -> Condition:
        return self.compare("eq", other)

    def differs(self, other: Any) -> Condition:
        return self.compare("ne", other)

    def is_nan(self) -> Condition:
        return self.differs(self)

    def is_infinite(self) -> Condition:
        return abs(self).equals(np.inf)

    def is_finite(self) -> Condition:
        return Condition(self.emit, self.emit.is_finite(self.value))

    def call(self, name: str, *others: Any) -> Term:
        """Call a function of the vector math library: ``x.call("sin")``, ``y.call("atan2", x)``."""
        return Term(self.emit, self.emit.function(name, self.value, *(self.lift(o) for o in others)))

    def fma(self, factor: Any, addend: Any) -> Term:
        """self * factor + addend, rounded once."""
        return Term(self.emit, self.emit.fma(self.value, self.lift(factor), self.lift(addend)))

    def sqrt(self) -> Term:
        return self.call("sqrt")

    def max(self, other: Any) -> Term:
        return Term(self.emit, self.emit.max(self.value, self.lift(other)))

    def min(self, other: Any) -> Term:
        return Term(self.emit, self.emit.min(self.value, self.lift(other)))

    def copysign(self, sign: Term) -> Term:
        """The magnitude of this term with the sign bit of ``sign``."""
        bits = np.dtype(f"uint{8 * self.dtype.itemsize}")
        top = 1 << (8 * self.dtype.itemsize - 1)
        emit = self.emit
        magnitude = emit.and_(emit.bitcast(self.value, bits), emit.const(top - 1, bits))
        negative = emit.and_(emit.bitcast(sign.value, bits), emit.const(top, bits))
        return Term(emit, emit.bitcast(emit.or_(magnitude, negative), self.dtype))


def repeat(
    going: Condition, state: Sequence[Term], body: Callable[..., tuple[Condition, Sequence[Term]]], bound: int
) -> list[Term]:
    """Repeat ``body(*state)`` -> (continues, next state), while an element continues, at most ``bound`` times."""
    emit = going.emit

    def turn(*values: Any) -> tuple[Any, list[Any]]:
        goes_on, following = body(*(Term(emit, v) for v in values))
        return goes_on.value, [t.value for t in following]

    return [Term(emit, v) for v in emit.loop(going.value, [t.value for t in state], turn, bound)]


def only_where(condition: Condition, compute: Callable[[], Sequence[Term]], *otherwise: Term) -> list[Term]:
    """``compute()`` where the condition holds; skipped for a vector in which it holds in no lane."""
    return repeat(condition, otherwise, lambda *_: (~condition, compute()), 1)


def where(condition: Condition, yes: Term | float, no: Term | float) -> Term:
    """``yes`` where the condition holds, otherwise ``no``; at least one of them is a term."""
    model = yes if isinstance(yes, Term) else no
    assert isinstance(model, Term)
    emit = condition.emit
    return Term(emit, emit.select(condition.value, model.lift(no), model.lift(yes)))
