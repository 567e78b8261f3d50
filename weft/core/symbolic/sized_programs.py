"""Programs with symbols instead of their sizes (``core.symbolic.sizes``), and back.

{ a:f32[300]. b:f32[300] = mul a 2.0 in (b,) }    <->    { a:f32[n]. b:f32[n] = mul a 2.0 in (b,) }
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft._base.record import NamedTuple, Record
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var
from weft.core.symbolic import sizes

EXTENTS = frozenset(("shape", "new_sizes", "slice_sizes", "limit_indices", "length"))  # parameters that are extents

_MOST_ELEMENTS = 1 << 46  # elements of all operands broadcast to one shape


class Sized(NamedTuple):
    """A program with symbols, and what is noted of them."""

    closed: ClosedJaxpr
    guards: sizes.Guards

    def once(self) -> Sized | None:
        """This program, unless it was compiled before: then nothing is noted any more."""
        return self if self.guards.is_open else None


class HiddenError(Exception):
    """A value may contain sizes that cannot be replaced, such as those that a function has captured."""


def plain_value(literal: Literal) -> Any:
    """The Python number of a literal."""
    value = literal.val
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value


class _Rewriter:
    """Writes a program again with other types, literals and parameters."""

    def __init__(self) -> None:
        self.written: dict[int, Any] = {}  # jaxprs and literals, by identity: what is one stays one
        self.avals: dict[Any, Any] = {}
        self.changes = 0

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        """The jaxpr itself if nothing in it changes."""
        found = self.written.get(id(jaxpr))
        if found is None:
            before = self.changes
            variables: dict[Any, Any] = {}
            constvars = [self.variable(v, variables) for v in jaxpr.constvars]
            invars = [self.variable(v, variables) for v in jaxpr.invars]
            eqns = [
                eqn.replace(
                    invars=[self.atom(x, variables) for x in eqn.invars],
                    outvars=[self.variable(v, variables) for v in eqn.outvars],
                    params={name: self.noted(value, self.param(name, value)) for name, value in eqn.params.items()},
                )
                for eqn in jaxpr.eqns
            ]
            outvars = [self.atom(x, variables) for x in jaxpr.outvars]
            changed = self.changes > before
            found = jaxpr.replace(constvars=constvars, invars=invars, eqns=eqns, outvars=outvars) if changed else jaxpr
            self.written[id(jaxpr)] = found
        return found

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = self.program(closed.jaxpr)
        return closed if jaxpr is closed.jaxpr else ClosedJaxpr(jaxpr, closed.consts)

    def noted(self, old: Any, new: Any) -> Any:
        self.changes += new is not old
        return new

    def variable(self, variable: Var, variables: dict[Any, Any]) -> Var:
        aval = variable.aval
        made = self.avals.get(aval)
        if made is None:
            made = self.avals[aval] = self.aval(aval)
        found = variables[variable] = type(variable)(self.noted(aval, made))
        return found

    def atom(self, atom: Any, variables: dict[Any, Any]) -> Any:
        if type(atom) is not Literal:
            return variables[atom]
        found = self.written.get(id(atom))
        if found is None:
            found = self.written[id(atom)] = self.literal(atom)
        return self.noted(atom, found)

    def aval(self, aval: Any) -> Any:
        raise NotImplementedError

    def literal(self, literal: Literal) -> Literal:
        raise NotImplementedError

    def param(self, name: str, value: Any) -> Any:
        raise NotImplementedError


class ToSymbols(_Rewriter):
    """Replaces extents, and literals that may be some, by symbols."""

    def __init__(self, symbols: dict[int, sizes.Size], literals: dict[Any, sizes.Size]) -> None:
        super().__init__()
        self.symbols, self.literals = symbols, literals

    def aval(self, aval: Any) -> Any:
        return aval.update(shape=self.extents(aval.shape)) if aval.shape else aval

    def extents(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple([self.symbols[n] if n > 1 else n for n in shape])

    def literal(self, literal: Literal) -> Literal:
        value = plain_value(literal)
        symbol = self.literals.get((type(value), value))
        return literal if symbol is None else Literal(symbol, literal.aval)

    def param(self, name: str, value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.program(value)
        if name in EXTENTS:
            if type(value) is int:
                return self.extents((value,))[0]
            return self.extents(value) if type(value) is tuple and all(type(n) is int for n in value) else value
        if type(value) is tuple and value and all(isinstance(part, ClosedJaxpr | Jaxpr) for part in value):
            return tuple([self.param("", part) for part in value])
        return value


class ToNumbers(_Rewriter):
    """Replaces symbols by numbers; what has no symbol in it stays the same object."""

    def __init__(self, number: Callable[[sizes.Size], Any]) -> None:
        super().__init__()
        self.number = number
        self.functions: set[int] = set()  # those that were looked at

    def aval(self, aval: Any) -> Any:
        if type(aval) is not sizes.SizedAval:
            return aval
        return aval.hint.update(shape=tuple([self.value(n) for n in aval.shape]))

    def literal(self, literal: Literal) -> Literal:
        value, aval = literal.val, literal.aval
        if type(value) is not sizes.Size:
            return literal
        number = self.number(value)
        return Literal(number if aval.weak_type else np.asarray(number).astype(aval.dtype), aval)

    def param(self, name: str, value: Any) -> Any:
        return self.value(value)

    def value(self, value: Any) -> Any:
        """A tree of records, containers and programs with numbers. HiddenError where a function has captured sizes."""
        kind = type(value)
        if kind is sizes.Size:
            return self.number(value)
        if kind is sizes.SizedAval:
            return self.aval(value)
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.program(value)
        if isinstance(value, tuple | list):
            items = [self.value(item) for item in value]
            if all(map(operator.is_, items, value)):
                return value
            return items if kind is list else tuple(items) if kind is tuple else tuple.__new__(kind, items)
        if isinstance(value, dict):
            items = {key: self.value(item) for key, item in value.items()}
            return value if all(map(operator.is_, items.values(), value.values())) else items
        if isinstance(value, Record):
            made = {name: new for name in kind._fields if (new := self.value(old := getattr(value, name))) is not old}
            return value.replace(**made) if made else value
        if kind is types.FunctionType:
            self.check_captured(value)
        return value

    def check_captured(self, function: types.FunctionType) -> None:
        """HiddenError for a function of weft's that has captured sizes: it cannot be made again with others."""
        if function.__module__.partition(".")[0] != "weft" or id(function) in self.functions:
            return
        self.functions.add(id(function))
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        for value in (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if self.value(value) is not value:
                raise HiddenError(function.__qualname__)


def with_numbers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program with the present sizes instead of symbols. HiddenError if a function in it has captured some."""
    return ToNumbers(sizes.present).closed(closed)


def size_class(avals: Iterable[Any], traced: bool = False) -> tuple[Any, tuple[int, ...]] | None:
    """The types of operands without their extents, and the distinct extents of 2 and more in order.

    In a class the same extents are 1, and the same ones are equal to each other. None for operands in no class: empty
    ones, others than plain arrays, and, unless their program is known (``traced``), those that may broadcast to more
    elements than memory has.
    """
    numbers: dict[int, int] = {}
    pattern, elements = [], 1
    for aval in avals:
        if type(aval) is not runtime.ShapedArray or aval.explicit_sharding or aval.memory_space or aval.varying:
            return None
        shape = aval.shape
        if shape and dtypes.is_extended(aval.dtype):
            return None
        pattern.append(
            (aval.dtype, aval.weak_type, *[numbers.setdefault(n, len(numbers)) if n > 1 else -n for n in shape])
        )
        for n in shape:
            elements *= n
    return None if not elements or (elements > _MOST_ELEMENTS and not traced) else (tuple(pattern), tuple(numbers))


def sized_aval(aval: Any, symbols: Mapping[Any, sizes.Size]) -> Any:
    """A type with symbols for its extents of 2 and more."""
    return aval.update(shape=tuple([symbols[n] if n > 1 else n for n in aval.shape])) if aval.shape else aval
