"""Programs with symbols in place of their sizes (``core.sizes``), and back.

{ a:f32[300]. b:f32[300] = mul a 2.0 in (b,) }    <->    { a:f32[n]. b:f32[n] = mul a 2.0 in (b,) }
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft._base.record import NamedTuple, Record
from weft.core import sizes
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var

EXTENTS = frozenset(("shape", "new_sizes", "slice_sizes", "limit_indices", "length"))  # parameters that are extents


class Sized(NamedTuple):
    """A program with symbols, and what is noted of them."""

    closed: ClosedJaxpr
    guards: sizes.Guards

    def once(self) -> Sized | None:
        """This program, unless it was compiled before: then nothing is noted any more."""
        return self if self.guards.is_open else None


class HiddenError(Exception):
    """A function in a program has captured sizes: it cannot be made again for numbers."""


def plain_value(literal: Literal) -> Any:
    """The Python number of a literal."""
    value = literal.val
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value


class _Rewriter:
    """Writes a program again with other types, literals and parameters."""

    def __init__(self) -> None:
        self.written: dict[int, Any] = {}  # jaxprs and literals, by identity: what is one stays one
        self.avals: dict[Any, Any] = {}

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        found = self.written.get(id(jaxpr))
        if found is None:
            variables: dict[Any, Any] = {}
            constvars = [self.variable(v, variables) for v in jaxpr.constvars]
            invars = [self.variable(v, variables) for v in jaxpr.invars]
            eqns = [
                eqn.replace(
                    invars=[self.atom(x, variables) for x in eqn.invars],
                    outvars=[self.variable(v, variables) for v in eqn.outvars],
                    params={name: self.param(name, value) for name, value in eqn.params.items()},
                )
                for eqn in jaxpr.eqns
            ]
            outvars = [self.atom(x, variables) for x in jaxpr.outvars]
            found = jaxpr.replace(constvars=constvars, invars=invars, eqns=eqns, outvars=outvars)
            self.written[id(jaxpr)] = found
        return found

    def variable(self, variable: Var, variables: dict[Any, Any]) -> Var:
        aval = variable.aval
        made = self.avals.get(aval)
        if made is None:
            made = self.avals[aval] = self.aval(aval)
        found = variables[variable] = type(variable)(made)
        return found

    def atom(self, atom: Any, variables: dict[Any, Any]) -> Any:
        if type(atom) is not Literal:
            return variables[atom]
        found = self.written.get(id(atom))
        if found is None:
            found = self.written[id(atom)] = self.literal(atom)
        return found

    def aval(self, aval: Any) -> Any:
        raise NotImplementedError

    def literal(self, literal: Literal) -> Literal:
        raise NotImplementedError

    def param(self, name: str, value: Any) -> Any:
        raise NotImplementedError


class ToSymbols(_Rewriter):
    """Puts symbols in the place of extents, and of literals that may be some."""

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
            return ClosedJaxpr(self.program(value.jaxpr), ())
        if isinstance(value, Jaxpr):
            return self.program(value)
        if name in EXTENTS:
            if type(value) is int:
                return self.extents((value,))[0]
            return self.extents(value) if type(value) is tuple and all(type(n) is int for n in value) else value
        if type(value) is tuple and value and all(isinstance(part, ClosedJaxpr | Jaxpr) for part in value):
            return tuple([self.param("", part) for part in value])
        return value


class _ToNumbers(_Rewriter):
    """Puts the present sizes in the place of symbols."""

    def aval(self, aval: Any) -> Any:
        return sizes.plain_aval(aval)

    def literal(self, literal: Literal) -> Literal:
        value, aval = literal.val, literal.aval
        if type(value) is not sizes.Size:
            return literal
        return Literal(value.value if aval.weak_type else np.asarray(value.value).astype(aval.dtype), aval)

    def param(self, name: str, value: Any) -> Any:
        return self.value(value)

    def value(self, value: Any) -> Any:
        """A tree of records, tuples and programs with numbers."""
        kind = type(value)
        if kind is sizes.Size:
            return value.value
        if kind is sizes.SizedAval:
            return value.hint
        if isinstance(value, ClosedJaxpr):
            return ClosedJaxpr(self.program(value.jaxpr), value.consts)
        if isinstance(value, Jaxpr):
            return self.program(value)
        if isinstance(value, tuple):
            items = [self.value(item) for item in value]
            if all(one is other for one, other in zip(items, value, strict=True)):
                return value
            return tuple(items) if kind is tuple else tuple.__new__(kind, items)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, Record):
            made = {name: new for name in kind._fields if (new := self.value(old := getattr(value, name))) is not old}
            return value.replace(**made) if made else value
        if kind is types.FunctionType and (value.__closure__ or value.__defaults__ or value.__kwdefaults__):
            _check_captured(value, set())
        return value


def _check_captured(function: Callable[..., Any], seen: set[int]) -> None:
    """HiddenError for a function that has captured sizes."""
    if id(function) in seen:
        return
    seen.add(id(function))
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    for value in (*cells, *(getattr(function, "__defaults__", None) or ())):
        if sizes.is_sized(value):
            raise HiddenError(function)
        if type(value) is types.FunctionType:
            _check_captured(value, seen)


def with_numbers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program with the present sizes in place of symbols. HiddenError if a function in it has captured some."""
    return ClosedJaxpr(_ToNumbers().program(closed.jaxpr), closed.consts)


def may_hold_sizes(tree: Any) -> bool:
    """Whether a structure has a node of a class of its own, such as a sparse matrix, which keeps its shape there."""
    node = tree.node_data()
    if node is None:
        return False
    return not issubclass(node[0], tuple | list | dict | type(None)) or any(map(may_hold_sizes, tree.children()))


def sized_aval(aval: Any, symbols: Mapping[Any, sizes.Size]) -> Any:
    """A type with symbols for its extents of 2 and more."""
    return aval.update(shape=tuple([symbols[n] if n > 1 else n for n in aval.shape])) if aval.shape else aval
