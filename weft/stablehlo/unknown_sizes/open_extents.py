"""Programs for extents without a value: a function is traced at several sizes, and what differs is fitted.

    traced at n = 83, 89, 251:  sum of f32[83,4], div 83.0   ->   sum of f32[n,4], div n

The programs must be equal but for integers (extents, parameters, literals), and each integer must be a sum of the
unknown sizes (``size_fits``). The result is a jaxpr whose extents and parameters are such sums; only the writer of
StableHLO reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from weft import dtypes
from weft._base.record import Record
from weft.core.programs.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var
from weft.core.symbolic import open_sizes
from weft.errors import InconclusiveDimensionOperation
from weft.runtime import ShapedArray
from weft.stablehlo import module
from weft.stablehlo.unknown_sizes import open_equations, open_traces, symbolic_dims
from weft.stablehlo.unknown_sizes.size_fits import MorePoints


class Fit:
    """Fits values of several traces: those at the session's points, then those at ``more`` sizes."""

    def __init__(self, session: open_traces.Session, more: Sequence[Mapping[str, int]] = ()) -> None:
        self.session = session
        self.more = more

    def refuse(self, what: str) -> Exception:
        return InconclusiveDimensionOperation(
            f"[export] the program of the function depends on an unknown size in a way that is not exported: {what}"
        )

    def of_each(self, eqns: Sequence[JaxprEqn], function: Callable[[JaxprEqn], Any]) -> list[Any]:
        """The answers of a function about equations that are alike, asked in the traces for their sizes."""
        found = []
        for sizes, eqn in zip((*self.session.points, *self.more), eqns, strict=True):
            with self.session.at(sizes):
                found.append(function(eqn))
        return found

    def joined(self, values: Sequence[Any]) -> Any:
        """What holds for all sizes, or, where small ones differ, for the large ones alone."""
        try:
            return self.value(values)
        except InconclusiveDimensionOperation:
            if not self.more:
                raise
            return Fit(self.session).value(values[: len(self.session.points)])

    def number(self, values: Sequence[int]) -> Any:
        return self.session.fitted([int(value) for value in values], self.more)

    def aval(self, avals: Sequence[Any]) -> Any:
        first = avals[0]
        if any((a.dtype, len(a.shape)) != (first.dtype, len(first.shape)) for a in avals):
            raise self.refuse(f"types {', '.join(a.str_short() for a in avals[:2])}")
        shape = tuple([self.number(extents) for extents in zip(*[a.shape for a in avals], strict=True)])
        if any(map(symbolic_dims.is_symbolic_dim, shape)):
            return open_sizes.OpenAval(shape, first.dtype, first.weak_type)
        return first

    def value(self, values: Sequence[Any]) -> Any:
        """A parameter."""
        first = values[0]
        if all(v is first for v in values):
            return first
        if any(type(v) is not type(first) for v in values):
            raise self.refuse(f"{first!r} and {values[1]!r}")
        if isinstance(first, (ClosedJaxpr, Jaxpr)):
            return self.program(values)
        if isinstance(first, ShapedArray):
            return self.aval(values)
        if isinstance(first, (tuple, list)):
            return self._items(first, values)
        if isinstance(first, Record):
            return type(first)(**{name: self.value([getattr(v, name) for v in values]) for name in first._fields})
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
        if any(v != first and (v == v or first == first) for v in values):  # NaN is NaN
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
        tables = [{} for _ in jaxprs]

        def bind(variables: Sequence[Sequence[Var]]) -> list[Var]:
            if any(len(row) != len(variables[0]) for row in variables):
                raise self.refuse("numbers of values")
            made = []
            for row in zip(*variables, strict=True):
                kind = DropVar if all(type(v) is DropVar for v in row) else Var
                new = kind(self.aval([v.aval for v in row]))
                env[row[0]] = new
                for table, v in zip(tables, row, strict=True):
                    table[v] = len(env)
                made.append(new)
            return made

        def read(row: Sequence[Any]) -> Any:
            if all(type(x) is Literal for x in row):
                return self.literal(row)
            if any(type(x) is Literal for x in row) or len({t[x] for t, x in zip(tables, row, strict=True)}) > 1:
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
        found = open_equations.OpenEqn(
            operands, bind([eqn.outvars for eqn in eqns]), first.primitive, params, first.effects, first.source
        )
        found.alike, found.fit = tuple(eqns), self
        return found


# -- traces of a function ---------------------------------------------------------------------------------------------

Written = TypeVar("Written")
Interface = tuple[tuple[Any, ...], tuple[Any, ...]]
Small = tuple[Mapping[str, int], tuple[Any, ...], tuple[Any, ...]]


def traced(
    leaves: Sequence[Any],
    trace: Callable[[Sequence[Any]], Any],
    written: Callable[[ClosedJaxpr, Any, Interface], Written],
) -> tuple[Written, list[Small]]:
    """What ``written`` makes of the program of ``trace(specs)`` with open extents, of one trace, and of the types of
    arguments and results; and the shapes that these have at small sizes.
    """
    session = open_traces.Session(leaves)

    def at(sizes: Mapping[str, int]) -> Any:
        return trace([open_traces.with_integers(leaf, sizes) for leaf in leaves])

    while True:
        try:
            traces = session.traces(at)
            if any(other.out_tree != traces[0].out_tree for other in traces):
                raise InconclusiveDimensionOperation("[export] the structure of the result depends on an unknown size")
            closed, interface, small = _fitted(session, at, traces)
            return written(closed, traces[0], interface), small
        except MorePoints as more:
            session.extend(more.point)


def _fitted(
    session: open_traces.Session, at: Callable[..., Any], traces: Sequence[Any]
) -> tuple[Any, Interface, list[Small]]:
    """The program of traces, which is also that of small sizes where it has the same form there."""
    small = open_traces.small_points(session.names, session.scope, session.extents)
    pairs: list[Any] = [pair for pair in zip(small, session.more(at, small), strict=True) if pair[1] is not None]
    closed, alike = _of_all(session, traces, pairs), pairs
    if closed is None:
        alike = [pair for pair in pairs if _of_all(session, traces, [pair]) is not None]
        closed = _of_all(session, traces, alike) if alike else None
    if closed is None:
        alike, closed = [], Fit(session).program([module.on_words(t.jaxpr) for t in traces])
    fit = Fit(session, [sizes for sizes, _ in alike])
    rows = [t.jaxpr for t in (*traces, *[found for _, found in alike])]
    ins, outs = (
        tuple([fit.aval(row).strip_weak_type() for row in zip(*avals, strict=True)])
        for avals in ([jaxpr.in_avals for jaxpr in rows], [jaxpr.out_avals for jaxpr in rows])
    )
    shapes = [(sizes, _shapes(found.jaxpr.in_avals), _shapes(found.jaxpr.out_avals)) for sizes, found in pairs]
    return closed, (ins, outs), shapes


def _shapes(avals: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([aval.shape for aval in avals])


def _of_all(session: open_traces.Session, traces: Sequence[Any], pairs: Sequence[Any]) -> Any:
    """The program of traces and of those at further sizes; None if they have none in common."""
    programs = [module.on_words(t.jaxpr) for t in (*traces, *[found for _, found in pairs])]
    try:
        return Fit(session, [sizes for sizes, _ in pairs]).program(programs)
    except MorePoints:
        raise
    except InconclusiveDimensionOperation:
        return None
