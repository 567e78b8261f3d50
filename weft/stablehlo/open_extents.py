"""Programs for extents without a value: a function is traced at several sizes, and what differs is fitted.

    traced at n = 83, 89, 251:  sum of f32[83,4], div 83.0   ->   sum of f32[n,4], div n

The programs must be equal but for integers (extents, parameters, literals), each of which must be a sum of the unknown
sizes with whole factors (``dispatch.symbolic_dims``). The result is a jaxpr whose extents and parameters are such sums;
only the writer of StableHLO reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var
from weft.dispatch import symbolic_dims
from weft.errors import InconclusiveDimensionOperation
from weft.runtime import ShapedArray


class OpenAval:
    """The type of an array with open extents."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: tuple[Any, ...], dtype: Any, weak_type: bool = False) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def strip_weak_type(self) -> OpenAval:
        return OpenAval(self.shape, self.dtype)

    def str_short(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"ShapedArray({self.dtype}[{','.join(map(str, self.shape))}])"


class Fit:
    """Fits values of several traces; ``points`` are the sizes of each: ``points_of``, then those that only check."""

    def __init__(self, names: Sequence[str], points: Sequence[Mapping[str, int]]) -> None:
        self.names = names
        self.points = points

    def refuse(self, what: str) -> Exception:
        return InconclusiveDimensionOperation(
            f"[export] the program of the function depends on an unknown size in a way that is not exported: {what}"
        )

    def number(self, values: Sequence[int]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        count = len(self.names) + 2
        found = symbolic_dims.fitted(self.names, self.points[:count], values[:count])
        for sizes, value in zip(self.points[count:], values[count:], strict=True):
            if (found.at(sizes) if symbolic_dims.is_symbolic_dim(found) else found) != value:
                raise self.refuse(f"an extent is {found}, but {value} where {dict(sizes)}")
        return found

    def aval(self, avals: Sequence[Any]) -> Any:
        first = avals[0]
        if any((a.dtype, len(a.shape)) != (first.dtype, len(first.shape)) for a in avals):
            raise self.refuse(f"types {', '.join(a.str_short() for a in avals[:2])}")
        shape = tuple([self.number(extents) for extents in zip(*[a.shape for a in avals], strict=True)])
        if any(map(symbolic_dims.is_symbolic_dim, shape)):
            return OpenAval(shape, first.dtype, first.weak_type)
        return first

    def value(self, values: Sequence[Any]) -> Any:
        """A parameter."""
        first = values[0]
        if any(type(v) is not type(first) for v in values):
            raise self.refuse(f"{first!r} and {values[1]!r}")
        if isinstance(first, (ClosedJaxpr, Jaxpr)):
            return self.program(values)
        if isinstance(first, ShapedArray):
            return self.aval(values)
        if isinstance(first, (tuple, list)):
            return self._items(first, values)
        if isinstance(first, dict):
            return {key: self.value([v[key] for v in values]) for key in first}
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            return self.number(values) if len(set(values)) > 1 else first
        if callable(first) or all(v is first for v in values):
            return first
        if isinstance(first, np.ndarray):
            if any(v.shape != first.shape or not np.array_equal(v, first) for v in values):
                raise self.refuse("constant arrays differ")
            return first
        if any(v != first for v in values):
            raise self.refuse(f"{first!r} and {values[1]!r}")
        return first

    def _items(self, first: Any, values: Sequence[Any]) -> Any:
        if any(len(v) != len(first) for v in values):
            raise self.refuse(f"{first!r} and {values[1]!r}")
        items = [self.value(row) for row in zip(*values, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)

    def literal(self, literals: Sequence[Literal]) -> Literal:
        values, aval = [np.asarray(x.val)[()] for x in literals], self.aval([x.aval for x in literals])
        if all(v == values[0] or v != v for v in values):
            return Literal(literals[0].val, aval)
        whole = [int(v) for v in values] if not dtypes.issubdtype(aval.dtype, np.complexfloating) else []
        if not whole or any(float(v) != n for v, n in zip(values, whole, strict=True)):
            raise self.refuse(f"the numbers {values[0]} and {values[1]}")
        return Literal(self.number(whole), aval)

    def program(self, programs: Sequence[Any]) -> Any:
        """The program that all of these are, at their sizes."""
        jaxprs = [p.jaxpr if isinstance(p, ClosedJaxpr) else p for p in programs]
        first = jaxprs[0]
        env: dict[Var, Var] = {}
        places = [{} for _ in jaxprs]

        def bind(variables: Sequence[Sequence[Var]]) -> list[Var]:
            if any(len(row) != len(variables[0]) for row in variables):
                raise self.refuse("numbers of values")
            made = []
            for row in zip(*variables, strict=True):
                kind = DropVar if all(type(v) is DropVar for v in row) else Var
                new = kind(self.aval([v.aval for v in row]))
                env[row[0]] = new
                for table, v in zip(places, row, strict=True):
                    table[v] = len(env)
                made.append(new)
            return made

        def read(row: Sequence[Any]) -> Any:
            if all(type(x) is Literal for x in row):
                return self.literal(row)
            if any(type(x) is Literal for x in row) or len({t[x] for t, x in zip(places, row, strict=True)}) > 1:
                raise self.refuse("which values an operation reads")
            return env[row[0]]

        constvars, invars = bind([j.constvars for j in jaxprs]), bind([j.invars for j in jaxprs])
        eqns = []
        if any(len(j.eqns) != len(first.eqns) for j in jaxprs):
            raise self.refuse("numbers of operations")
        for row in zip(*[j.eqns for j in jaxprs], strict=True):
            eqns.append(self._equation(row, read, bind))
        outvars = [read(row) for row in zip(*[j.outvars for j in jaxprs], strict=True)]
        fitted = Jaxpr(constvars, invars, outvars, eqns, first.effects, first.debug_info)
        if not isinstance(programs[0], ClosedJaxpr):
            return fitted
        consts = [self.value([np.asarray(c) for c in row]) for row in zip(*[p.consts for p in programs], strict=True)]
        return ClosedJaxpr(fitted, consts)

    def _equation(self, eqns: Sequence[JaxprEqn], read: Any, bind: Any) -> JaxprEqn:
        first = eqns[0]
        if any(eqn.primitive is not first.primitive or len(eqn.invars) != len(first.invars) for eqn in eqns):
            raise self.refuse(f"{first.primitive.name} and {eqns[1].primitive.name}")
        operands = [read(row) for row in zip(*[eqn.invars for eqn in eqns], strict=True)]
        params = {name: self.value([eqn.params[name] for eqn in eqns]) for name in first.params}
        return JaxprEqn(
            operands, bind([eqn.outvars for eqn in eqns]), first.primitive, params, first.effects, first.source
        )
