"""Extents without a value: polynomials of unknown sizes, such as ``2*b + 1``, ``b*c``, ``floordiv(b, 2)``.

A Python program computes with them, and compares them: a comparison is decided by bounds that hold for all values
(``size_bounds``), or raises InconclusiveDimensionOperation. Equality cannot raise, since sets and dictionaries ask for
it: undecided sizes are unequal. While a function is traced for unknown sizes (``open_traces``), weft's own lines
get the integers of the trace for them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core import avals
from weft.core.symbolic import open_sizes
from weft.errors import InconclusiveDimensionOperation
from weft.stablehlo.unknown_sizes import size_bounds

Term = tuple[tuple[Any, int], ...]  # factors with their powers; () is the constant
_HINT = (
    "Symbolic sizes stand for every value that their constraints allow; a comparison must have one answer for all of "
    "them. Add a constraint, as in symbolic_shape('b', constraints=['b >= 4']), or do without the branch."
)


class Operation(NamedTuple):
    """What is no polynomial: floordiv, mod, max or min of two sizes; a factor of terms."""

    name: str
    left: Any
    right: Any

    def at(self, sizes: Mapping[str, int]) -> int:
        left, right = (x.at(sizes) if isinstance(x, SymbolicDim) else x for x in (self.left, self.right))
        return VALUES[self.name](left, right)

    def __str__(self) -> str:
        return f"{self.name}({self.left}, {self.right})"


VALUES: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min
}  # fmt: skip


def _order(term: Term) -> Any:
    """Terms are written by their degrees, the highest first."""
    degree = sum(power for _, power in term)
    return (degree, len(term), [(not isinstance(f, str), str(f), power) for f, power in reversed(term)])


class SymbolicDim:
    """A polynomial of unknown sizes; ``terms`` maps products of factors to whole numbers.

    >>> batch, = weft.export.symbolic_shape("batch")
    >>> 2 * batch + 1
    2*batch + 1
    >>> batch >= 1, 2 * batch > batch, (2 * batch + 4) // 2, batch % 8
    (True, True, batch + 2, mod(batch, 8))
    """

    is_symbolic = True
    python_type = int
    __slots__ = ("_hash", "scope", "terms")
    __array_priority__ = 1001  # NumPy's numbers leave arithmetic to it

    def __init__(self, terms: Mapping[Term, int], scope: Any) -> None:
        self.terms = {term: terms[term] for term in sorted(terms, key=_order, reverse=True)}
        self.scope = scope
        self._hash: int | None = None

    # -- parts --------------------------------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """The unknown sizes in it."""
        found: set[str] = set()
        for factor in self.factors():
            parts = (factor.left, factor.right) if isinstance(factor, Operation) else ()
            found |= {factor} if isinstance(factor, str) else set()
            found.update(*[x.names() for x in parts if isinstance(x, SymbolicDim)])
        return found

    def factors(self) -> set[Any]:
        return {factor for term in self.terms for factor, _ in term}

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value where the unknown sizes have these values."""
        total = 0
        for term, count in self.terms.items():
            for factor, power in term:
                count *= (sizes[factor] if isinstance(factor, str) else factor.at(sizes)) ** power
            total += count
        return total

    def linear(self) -> tuple[str, int, int] | None:
        """(name, factor, constant) of a sum with one unknown, otherwise None."""
        rest = dict(self.terms)
        constant = rest.pop((), 0)
        (term, *more), (count, *_) = list(rest), list(rest.values())
        if more or len(term) != 1 or term[0][1] != 1 or not isinstance(term[0][0], str):
            return None
        return term[0][0], count, constant

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _joined(self, other: Any, what: str) -> SymbolicDim | int | None:
        """The other operand as a size of the same scope; None if it is no size."""
        if isinstance(other, SymbolicDim):
            if other.scope is not self.scope:
                raise ValueError(
                    f"Invalid mixing of symbolic scopes {what}.\nExpected scope {self.scope}\nand found for '{other}' "
                    f"scope {other.scope}\nMake the sizes of one function by one symbolic_shape, or with one "
                    "scope=SymbolicScope()."
                )
            return other
        if isinstance(other, (int, np.integer)) and not isinstance(other, bool):
            return int(other)
        return None

    def _with(self, other: Any, combine: Callable[[Any, Any], Any], name: str, swapped: bool = False) -> Any:
        joined = self._joined(other, f"in '{self}' {name} '{other}'")
        if joined is None:
            return self._as_array(other, name, swapped)
        return combine(joined, self) if swapped else combine(self, joined)

    def _as_array(self, other: Any, name: str, swapped: bool) -> Any:
        """Arithmetic with what is no size: this is a number of the program then."""
        if hasattr(other, "aval") or not isinstance(other, (bool, float, complex, np.generic, np.ndarray)):
            return NotImplemented
        value = self.as_value()
        function = ARRAY_OPERATORS[name]
        return function(other, value) if swapped else function(value, other)

    def as_value(self) -> Any:
        """A number of the program that is traced."""
        if open_sizes.thread.session is None:
            raise NotImplementedError(
                f"[symbolic_shape] the value of '{self}' is asked for outside of a function that is exported: only "
                "there symbolic sizes are numbers of a program"
            )
        return lazy.submodule("weft.operations").convert_element_type(self.value(), int)

    def value(self) -> int:
        """The integer of the trace that this thread is in."""
        return open_sizes.thread.session.value_of(self)

    def __jax_array__(self) -> Any:
        return self.as_value() if open_sizes.thread.session is None else self.value()

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda x, y: combined(((x, 1), (y, 1)), self.scope), "+")

    def __radd__(self, other: Any) -> Any:
        return self._with(other, lambda x, y: combined(((x, 1), (y, 1)), self.scope), "+", True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda x, y: combined(((x, 1), (y, -1)), self.scope), "-")

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda x, y: combined(((x, 1), (y, -1)), self.scope), "-", True)

    def __neg__(self) -> Any:
        return combined(((self, -1),), self.scope)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, functools.partial(product, self.scope), "*")

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, functools.partial(product, self.scope), "*", True)

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, SymbolicDim) or int(power) != power:
            raise ValueError(f"Symbolic dimension cannot be raised to non-integer powers: '{self}' ** '{power}'")
        if power < 0:
            raise ValueError(f"Symbolic dimension cannot be raised to negative powers: '{self}' ** '{power}'")
        return math.prod([self] * int(power))

    def __rpow__(self, other: Any) -> Any:
        return other ** self.as_value()

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, functools.partial(quotient, self.scope), "//")

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, functools.partial(quotient, self.scope), "//", True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, functools.partial(remainder, self.scope), "%")

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, functools.partial(remainder, self.scope), "%", True)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self.as_value() / (other.as_value() if isinstance(other, SymbolicDim) else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.as_value()

    # -- comparison ---------------------------------------------------------------------------------------------------

    def _at_least(self, other: Any, word: str, left: Any, right: Any, offset: int) -> bool:
        """Whether ``left - right - offset >= 0``."""
        if self._joined(other, f"in '{self}' {word} '{other}'") is None:
            return NotImplemented
        if open_sizes.thread.session is not None and open_sizes.asked_by_weft(2):
            values = [x.value() if isinstance(x, SymbolicDim) else x for x in (left, right)]
            return values[0] - values[1] >= offset
        found = size_bounds.decided(left - right - offset)
        if found is None:
            text = f"Symbolic dimension comparison '{self}' {word} '{other}' is inconclusive.\n{_HINT}"
            raise InconclusiveDimensionOperation(text)
        return found

    def check_above(self, least: int) -> None:
        """Raise InconclusiveDimensionOperation unless this is known to be more than ``least``."""
        if not size_bounds.decided(self - least - 1):
            raise InconclusiveDimensionOperation(
                f"Symbolic dimension comparison '{self}' > '{least}' is inconclusive.\n{_HINT}"
            )

    def __ge__(self, other: Any) -> bool:
        return self._at_least(other, ">=", self, other, 0)

    def __gt__(self, other: Any) -> bool:
        return self._at_least(other, ">", self, other, 1)

    def __le__(self, other: Any) -> bool:
        return self._at_least(other, "<=", other, self, 0)

    def __lt__(self, other: Any) -> bool:
        return self._at_least(other, "<", other, self, 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (SymbolicDim, int, np.integer)):
            return NotImplemented
        if not isinstance(other, SymbolicDim) and open_sizes.thread.session is not None:
            if open_sizes.asked_by_weft(1):
                return self.value() == other
        elif isinstance(other, SymbolicDim) and other.scope is not self.scope:
            return False
        return size_bounds.is_zero(self - other)

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self.terms.items()))
        return self._hash

    # -- conversion ---------------------------------------------------------------------------------------------------

    def not_constant(self) -> InconclusiveDimensionOperation:
        return InconclusiveDimensionOperation(
            f"Symbolic dimension '{self}' used in a context that requires a constant.\n{_HINT}"
        )

    def __int__(self) -> int:
        if open_sizes.thread.session is None or not open_sizes.asked_by_weft(1):
            raise self.not_constant()
        return self.value()

    def __index__(self) -> int:
        by_weft = open_sizes.asked_by_weft(1)
        if open_sizes.thread.session is None and by_weft:
            raise self.not_constant()
        if not by_weft:
            raise TypeError(
                f"the symbolic dimension '{self}' cannot be interpreted as an integer: it has no value while a "
                "function is exported. Loops over it are lax.fori_loop or lax.scan, arrays of it are of weft.numpy."
            )
        return self.value()

    def __float__(self) -> float:
        if open_sizes.thread.session is None or not open_sizes.asked_by_weft(1):
            raise TypeError(f"float() argument must be a string or a real number, not the symbolic dimension '{self}'")
        return float(self.value())

    def __reduce__(self) -> Any:
        return SymbolicDim, (self.terms, self.scope)

    def __copy__(self) -> SymbolicDim:
        return self

    def __deepcopy__(self, memo: Any) -> SymbolicDim:
        return self

    def __repr__(self) -> str:
        words = []
        for term, count in self.terms.items():
            factors = [str(f) if power == 1 else f"{f}^{power}" for f, power in term]
            size = abs(count)
            words += ["-" if count < 0 else "+", "*".join([*([str(size)] if size != 1 or not term else []), *factors])]
        return " ".join(words[1:] if words[0] == "+" else words)


ARRAY_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod
}  # fmt: skip


# -- polynomials ------------------------------------------------------------------------------------------------------


def terms_of(x: Any) -> Mapping[Term, int]:
    """The terms of a size or an integer."""
    return x.terms if isinstance(x, SymbolicDim) else ({(): x} if x else {})


def made(terms: Mapping[Term, int], scope: Any) -> Any:
    """The size with these terms, by the scope's equations: an int where no unknown is left."""
    rest = {term: count for term, count in terms.items() if count}
    for equation in scope.equations:
        count = rest.get(equation.term, 0)
        if count and count % equation.times == 0:
            del rest[equation.term]
            return combined(((made(rest, scope), 1), (equation.value, count // equation.times)), scope)
    if not rest or list(rest) == [()]:
        return rest.get((), 0)
    return SymbolicDim(rest, scope)


def combined(parts: Any, scope: Any) -> Any:
    """The sum of sizes, each times a whole number."""
    terms: dict[Term, int] = {}
    for x, count in parts:
        for term, own in terms_of(x).items():
            terms[term] = terms.get(term, 0) + count * own
    return made(terms, scope)


def _times(left: Term, right: Term) -> Term:
    powers: dict[Any, int] = {}
    for factor, power in (*left, *right):
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: (not isinstance(item[0], str), str(item[0]))))


def product(scope: Any, x: Any, y: Any) -> Any:
    """The product of two sizes."""
    terms: dict[Term, int] = {}
    for left, m in terms_of(x).items():
        for right, n in terms_of(y).items():
            term = _times(left, right)
            terms[term] = terms.get(term, 0) + m * n
    return made(terms, scope)


def variable(name: str, scope: Any) -> Any:
    """An unknown size: an int if the scope's constraints say so."""
    return made({((name, 1),): 1}, scope)


def operation(name: str, x: Any, y: Any, scope: Any) -> Any:
    """floordiv, mod, max or min of two sizes, in a simpler form if there is one."""
    return SIMPLER[name](scope, x, y)


def _opaque(name: str, x: Any, y: Any, scope: Any) -> Any:
    return made({((Operation(name, x, y), 1),): 1}, scope)


def _term_quotient(term: Term, divisor: Term) -> Term | None:
    powers = dict(term)
    for factor, power in divisor:
        powers[factor] = powers.get(factor, 0) - power
    if any(power < 0 for power in powers.values()):
        return None
    return tuple([(factor, power) for factor, power in powers.items() if power])


def _divided(x: Any, y: Any) -> tuple[dict[Term, int], dict[Term, int]]:
    """Quotient and remainder of polynomials by long division: terms stay that the first of ``y`` does not divide."""
    divisor = terms_of(y)
    leading = max(divisor, key=_order)
    rest, found, left = dict(terms_of(x)), {}, {}
    while rest:
        term = max(rest, key=_order)
        count = rest.pop(term)
        over = _term_quotient(term, leading)
        if over is None or count % divisor[leading]:
            left[term] = count
            continue
        times = count // divisor[leading]
        found[over] = found.get(over, 0) + times
        for other, own in divisor.items():
            if other != leading:
                into = _times(over, other)
                rest[into] = rest.get(into, 0) - times * own
                if not rest[into]:
                    del rest[into]
    return found, left


def quotient(scope: Any, x: Any, y: Any) -> Any:
    """``x // y``."""
    if isinstance(y, int) and y == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    if not isinstance(x, SymbolicDim) and not isinstance(y, SymbolicDim):
        return x // y
    found, left = _divided(x, y)
    if not left:
        return made(found, scope)
    if list(left) == [()] and isinstance(y, int):
        return combined(((made(found, scope), 1), (left[()] // y, 1)), scope)
    return _opaque("floordiv", x, y, scope)


def remainder(scope: Any, x: Any, y: Any) -> Any:
    """``x % y``."""
    if not isinstance(x, SymbolicDim) and not isinstance(y, SymbolicDim):
        return x % y
    found = combined(((x, 1), (product(scope, quotient(scope, x, y), y), -1)), scope)
    return found if isinstance(found, int) else _opaque("mod", x, y, scope)


def _extremum(name: str, scope: Any, x: Any, y: Any) -> Any:
    if not isinstance(x, SymbolicDim) and not isinstance(y, SymbolicDim):
        return VALUES[name](x, y)
    for first, second in ((x, y), (y, x)):
        if size_bounds.decided(combined(((first, 1), (second, -1)), scope)):
            return first if name == "max" else second
    return _opaque(name, x, y, scope)


SIMPLER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "floordiv": quotient, "mod": remainder, "max": functools.partial(_extremum, "max"),
    "min": functools.partial(_extremum, "min"),
}  # fmt: skip


def extremum(name: str, x: Any, y: Any) -> Any:
    """``max`` or ``min`` of sizes and integers, without a decision between them."""
    scope = x.scope if isinstance(x, SymbolicDim) else getattr(y, "scope", None)
    return VALUES[name](int(x), int(y)) if scope is None else _extremum(name, scope, x, y)


avals.pytype_avals[SymbolicDim] = lambda dim: avals.scalar_aval(int)


def is_symbolic_dim(p: Any) -> bool:
    """Whether an extent is an expression in unknown sizes.

    >>> weft.export.is_symbolic_dim(3)
    False
    """
    return isinstance(p, SymbolicDim)
