"""Jaxpr -> its shape-free description: what programs have in common that differ in extents and counts alone.

Calls are walked through, variables numbered in order. Extents are told apart by which of them are equal and which are
0 or 1; literals of floating point by which are equal, whole, or of consequence (0, 1, the exponents of ``algebra``).
Everything else, such as where a view reads, is in the key as it is. What has no such description is ``Unfit``.

    f32[64,100] -> reduce_sum[axes=(1,)] -> div 100.0        the key of        f32[80,120] -> ... -> div 120.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.compiler import algebra
from weft.compiler.groups import FAR, LONG_ROW, LONG_SIDE
from weft.core import kinds
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from weft.loops.schedule import LONG, NARROW

MAX_ELEMENTS = 1 << 48
MAX_EQUATIONS = 512  # of a larger program the compilation costs little beside its tracing
_EXACT = frozenset([0.0, 1.0, *algebra.POWERS])  # values at which a rewrite looks


class Unfit(Exception):
    """The program has no shape-free description."""


class Flat:
    """A program described: ``key`` without its sizes, ``numbers`` with the rest.

    Atoms are numbers: 0, 1, ... the variables, -1, -2, ... the literals.
    """

    __slots__ = (
        "avals", "constants", "extents", "invars", "key", "literals", "numbers", "outvars", "rows", "variables",
    )  # fmt: skip

    def __init__(self, closed: ClosedJaxpr) -> None:
        jaxpr = closed.jaxpr
        self.avals: list[Any] = []
        self.literals: list[Literal] = []
        self.rows: list[tuple[JaxprEqn, list[int], int]] = []  # equation, operands, first result
        self.variables: dict[int, Var] = {}
        self.constants, self.invars = len(jaxpr.constvars), len(jaxpr.invars)
        writer = _Writer(self)
        env: dict[Any, int] = {}
        types = [writer.bind(env, v) for v in (*jaxpr.constvars, *jaxpr.invars)]
        writer.walk(jaxpr, env)
        self.outvars = [writer.atom(env, atom) for atom in jaxpr.outvars]
        self.extents = writer.extents
        self.key = (self.constants, *types, *writer.key, *self.outvars, writer.narrow())
        weak = tuple([aval.weak_type for aval in self.avals[: self.constants + self.invars]])
        self.numbers = (*self.extents, *writer.values, *weak, *[v.aval.weak_type for v in jaxpr.outvars])

    def variable(self, number: int) -> Var:
        """The variable of a number, always the same."""
        found = self.variables.get(number)
        if found is None:
            found = self.variables[number] = Var(self.avals[number])
        return found

    def jaxpr(self) -> Jaxpr:
        """The program without calls, over variables and literals of its own."""
        own = [Literal(literal.val, literal.aval) for literal in self.literals]
        self.literals = own

        def atom(number: int) -> Any:
            return own[-number - 1] if number < 0 else self.variable(number)

        eqns = [
            JaxprEqn(
                [atom(n) for n in operands],
                [self.variable(first + i) for i in range(len(eqn.outvars))],
                eqn.primitive, eqn.params, eqn.effects, eqn.source,
            )
            for eqn, operands, first in self.rows
        ]  # fmt: skip
        inputs = [self.variable(number) for number in range(self.constants + self.invars)]
        outvars = [atom(number) for number in self.outvars]
        return Jaxpr(inputs[: self.constants], inputs[self.constants :], outvars, eqns)


def describe(closed: ClosedJaxpr) -> Flat | None:
    """The description of a program, or None if it has none."""
    try:
        return Flat(closed)
    except Unfit:
        return None


def flatten(closed: ClosedJaxpr, flat: Flat) -> ClosedJaxpr:
    """The described program itself, without calls: what a ``Template`` is made of."""
    return ClosedJaxpr(flat.jaxpr(), closed.consts)


class _Writer:
    """One program on its way to a key."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.key: list[Any] = []
        self.extents: list[int] = []
        self.values: list[float] = []
        self.classes: dict[int, int] = {0: 0, 1: 1}
        self.types: dict[Any, Any] = {}  # aval -> what of it is in the key
        self.equal: dict[Any, int] = {}  # literals' values -> a number for each
        self.largest = 0

    def bind(self, env: dict[Any, int], variable: Any) -> Any:
        """Number a variable; gives its type without sizes."""
        avals, aval = self.flat.avals, variable.aval
        env[variable] = len(avals)
        avals.append(aval)
        return self.types.get(aval) or self._type(aval)

    def _type(self, aval: Any) -> Any:
        classes, shape = self.classes, aval.shape
        for extent in shape:
            if extent not in classes:
                classes[extent] = len(classes)
                self.extents.append(extent)
        found = (aval.dtype, tuple([classes[extent] for extent in shape]))
        size = math.prod(shape)
        self.largest = max(self.largest, size)
        if size > MAX_ELEMENTS:
            raise Unfit
        if size >= FAR:  # fusion looks at the extents of such arrays
            found = (*found, size >= LONG_ROW, tuple([extent >= LONG_SIDE for extent in shape]))
        self.types[aval] = found
        return found

    def narrow(self) -> Any:
        """The extents themselves where a dimension is so narrow, and another may be so long, that lanes turn."""
        narrow = self.largest >= LONG and any(1 < extent <= NARROW for extent in self.extents)
        return tuple(self.extents) if narrow else None

    def atom(self, env: dict[Any, int], atom: Any) -> int:
        return env[atom] if type(atom) is not Literal else self._literal(atom)

    def _literal(self, literal: Literal) -> int:
        literals = self.flat.literals
        literals.append(literal)
        value, aval = literal.val, literal.aval
        dtype = aval.dtype
        if aval.shape or dtype.kind not in "fbiu":
            raise Unfit
        if dtype.kind != "f":
            self.key.append((aval, type(value), value.item() if hasattr(value, "item") else value))
            return -len(literals)
        number = float(value)
        if number in _EXACT or not math.isfinite(number):
            self.key.append((aval, repr(number)))
            return -len(literals)
        rounded, equal = float(dtype.type(number)), self.equal
        same = equal.setdefault((number, type(value), getattr(value, "dtype", None), aval), len(equal))
        self.key.append((aval, same, equal.setdefault((rounded, dtype), len(equal)), rounded.is_integer()))
        self.values.append(number)
        return -len(literals)

    def walk(self, jaxpr: Jaxpr, env: dict[Any, int]) -> None:
        """Describe the equations of a program whose inputs have numbers."""
        flat, key = self.flat, self.key
        rows = flat.rows
        for eqn in jaxpr.eqns:
            operands = [env[atom] if type(atom) is not Literal else self._literal(atom) for atom in eqn.invars]
            describe = _PARAMETERS.get(type(eqn.primitive.kind))
            if describe is None:
                self._through(eqn, operands, env)
                continue
            if eqn.effects or len(rows) >= MAX_EQUATIONS:
                raise Unfit
            params = describe(eqn)
            rows.append((eqn, operands, len(flat.avals)))
            key += (eqn.primitive, params, *operands)
            for out in eqn.outvars:
                key.append(self.bind(env, out))

    def _through(self, eqn: JaxprEqn, operands: Sequence[int], env: dict[Any, int]) -> None:
        """A call is its equations, an identity its operand."""
        kind = eqn.primitive.kind
        if isinstance(kind, kinds.Identity) and not kind.barrier:
            env.update(zip(eqn.outvars, operands, strict=True))
            return
        inner = kind.inline(eqn.params) if isinstance(kind, kinds.Higher) else None
        if inner is None or inner.consts:
            raise Unfit
        names = dict(zip(inner.jaxpr.invars, operands, strict=True))
        self.walk(inner.jaxpr, names)
        for out, atom in zip(eqn.outvars, inner.jaxpr.outvars, strict=True):
            env[out] = self.atom(names, atom)


# what of an equation's parameters is in the key; sizes are those of its operands and results


def _all(eqn: JaxprEqn) -> Any:
    return tuple(eqn.params.items()) if eqn.params else ()


def _places(eqn: JaxprEqn) -> Any:
    """Where a view reads."""
    found = eqn.primitive.kind.index_map(eqn.invars[0].aval, eqn.outvars[0].aval, eqn.params)
    return tuple([(dim.out_dim, dim.start, dim.step) for dim in found])


def _dimension(eqn: JaxprEqn) -> Any:
    return eqn.primitive.kind.dimension(eqn.params)


def _reshaped(eqn: JaxprEqn) -> Any:
    kind = eqn.primitive.kind
    if kind.rewrite is not None and kind.rewrite(**eqn.params) is not None:
        raise Unfit
    return ()


_PARAMETERS = {
    kinds.Elementwise: _all,
    kinds.Reduction: _all,
    kinds.View: _places,
    kinds.Generate: _dimension,
    kinds.Reshape: _reshaped,
}
