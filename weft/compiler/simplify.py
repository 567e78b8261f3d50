"""Jaxpr -> Jaxpr: calls inlined, compound operations expanded, and everything said twice said once.

One forward pass substitutes, expands, applies the exact algebra and finds common subexpressions; one backward pass
drops what nobody reads. Afterwards every equation is of a kind that ``fuse`` knows, contractions are in a form the
matrix product takes, and no program result is a literal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, operations
from weft.compiler import (
    algebra,
    contraction,
    dynamic_slices,
    early_steps,
    gathers,
    keys,
    orders,
    own_rows,
    pad_sums,
    registers,
    reshapes,
    rolls,
    row_scatters,
    static_windows,
    unrolled_loops,
)
from weft.core import kinds
from weft.core.cache_keys import trace_key
from weft.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from weft.core.store import TRACES
from weft.core.trace import trace_to_jaxpr
from weft.higher.trace_cache import Trace

_OF_SCATTERS = (static_windows.rewrite, own_rows.rewrite, row_scatters.rewrite)
_SIMPLE = frozenset((kinds.Elementwise, kinds.View, kinds.Generate, kinds.Assemble))
NEEDS_ARRAYS = (
    kinds.Contraction, kinds.External, kinds.Effect, kinds.Reshape, kinds.DynamicUpdateSlice, kinds.DynamicSlice,
    kinds.Higher, kinds.Reduction, kinds.Cumulative, kinds.Gather, kinds.Scatter, kinds.Loop, kinds.Branch,
)  # fmt: skip


def simplify(closed: ClosedJaxpr, flatten_only: bool = False) -> ClosedJaxpr:
    """The same program, flat and small."""
    closed = keys.without_keys(closed)
    jaxpr = closed.jaxpr
    simplifier = _Simplifier(flatten_only)
    simplifier.constvars, simplifier.consts = list(jaxpr.constvars), list(closed.consts)
    simplifier.run(jaxpr.eqns)
    outvars = [simplifier.array(simplifier.atom(v)) for v in jaxpr.outvars]
    eqns = drop_dead(simplifier.eqns, outvars)
    if not flatten_only:
        summed = pad_sums.assemble_sums(eqns, outvars)
        if summed is not eqns:
            eqns = drop_dead(summed, outvars)
        parted = rolls.by_regions(eqns, outvars)
        if parted is not eqns:
            eqns = drop_dead(parted, outvars)
        eqns = contraction.fold_result_transposes(eqns, outvars)
    sunk = reshapes.sink_reshapes(eqns, outvars)
    if sunk is not eqns:
        eqns = drop_dead(sunk, outvars)
    if not flatten_only:
        pulled = gathers.pull(eqns, outvars)
        if pulled is not eqns:
            eqns = drop_dead(pulled, outvars)
        ordered = orders.positions(eqns, outvars)
        if ordered is not eqns:
            eqns = drop_dead(ordered, outvars)
        sliced = dynamic_slices.pull(eqns, outvars)
        if sliced is not eqns:
            eqns = drop_dead(sliced, outvars)
        routines = registers.in_registers(eqns, simplify_body)
        if routines is not eqns:
            eqns = drop_dead(routines, outvars)
    small = Jaxpr(simplifier.constvars, jaxpr.invars, outvars, eqns, jaxpr.effects, jaxpr.debug_info)
    return ClosedJaxpr(small, simplifier.consts)


def simplify_body(closed: ClosedJaxpr) -> ClosedJaxpr:
    """As ``simplify``, once for each loop body: every loop around it asks, and what follows doubles with the depth."""
    key: Any = ("simplified", config.token(), *map(id, closed.consts))
    return closed.jaxpr.memoize(key, lambda _: (simplify(closed), closed.consts))[0]


def without_simplify(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Only what later stages rely on: calls inlined, compound operations expanded (``WEFT_SKIP=simplify``)."""
    return simplify(closed, flatten_only=True)


def drop_dead(equations: Sequence[Any], outvars: Sequence[Any]) -> list[Any]:
    """The equations whose results reach an output, and those with effects."""
    live = {v for v in outvars if not isinstance(v, Literal)}
    kept: list[Any] = []
    for equation in reversed(equations):
        if equation.effects or not live.isdisjoint(equation.outvars):
            kept.append(equation)
            live.update([v for v in equation.invars if type(v) is not Literal])
    kept.reverse()
    return kept


def expansion(
    who: Any, function: Callable[..., Any], avals: Sequence[Any], params: dict[str, Any] | None = None
) -> ClosedJaxpr:
    """The traced form of a function that ``who`` expands into for these types and parameters, remembered by them."""
    key = trace_key(who, None, tuple(avals), tuple((params or {}).items()), config.token())
    try:
        found = TRACES.find(key)
    except TypeError:  # a parameter without a hash
        return _traced(function, avals)
    if found is None:
        found = Trace(_traced(function, avals), None, (), "expansion")
        TRACES.add(key, found)
    return found.closed


def expanded(equation: Any, kind: kinds.Resolve, invars: Sequence[Any]) -> ClosedJaxpr:
    """A compound operation on these operands in simple ones; not remembered for programs that a call made anew."""
    avals = [v.aval for v in invars]

    def function(*args: Any) -> Any:
        return kind.expand(*args, **equation.params)

    if jaxprs_in_params(equation.params):
        return _traced(function, avals)
    return expansion(equation.primitive, function, avals, equation.params)


def other_than_scatter(equation: Any, producers: Any) -> ClosedJaxpr | None:
    """What a scatter is said in instead, as a program of its operands; ``producers`` have what makes a variable."""
    found = next((found for rewrite in _OF_SCATTERS if (found := rewrite(equation, producers)) is not None), None)
    if found is None:
        return None
    avals = [v.aval for v in equation.invars]
    return expansion((equation.primitive, found[0]), found[1], avals, equation.params)


def other_than_loop(equation: Any, flatten_only: bool = False) -> ClosedJaxpr | None:
    """What a loop is said in instead, as a program of its operands; None where it stays as it is."""
    parts = equation.primitive.kind.parts(equation.params)
    if flatten_only:
        function = unrolled_loops.rewrite(parts, None)
    else:
        function = unrolled_loops.rewrite(parts, simplify) or early_steps.rewrite(parts, simplify_body)
    return None if function is None else _traced(function, [v.aval for v in equation.invars])


def _traced(function: Callable[..., Any], avals: Sequence[Any]) -> ClosedJaxpr:
    def flat(*args: Any) -> Sequence[Any]:
        out = function(*args)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    return trace_to_jaxpr(flat, avals)[0]


class _Simplifier:
    """The forward pass."""

    def __init__(self, flatten_only: bool) -> None:
        self.flatten_only = flatten_only
        self.constvars: list[Any] = []
        self.consts: list[Any] = []
        self.eqns: list[Any] = []
        self.replaced: dict[Any, Any] = {}
        self.producers: dict[Any, Any] = {}
        self.known: dict[Any, Any] = {}
        self.const_of: dict[int, Any] = {}

    def atom(self, atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else self.replaced.get(atom, atom)

    def run(self, equations: Sequence[Any]) -> None:
        for equation in equations:
            self.visit(equation)

    def visit(self, equation: Any) -> None:
        kind = equation.primitive.kind
        replaced = self.replaced
        invars = [v if type(v) is Literal else replaced.get(v, v) for v in equation.invars]
        if type(kind) in _SIMPLE:
            self._visit_simple(equation, invars)
            return
        if isinstance(kind, kinds.Higher):
            inner = kind.inline(equation.params)
            if inner is None:
                raise NotImplementedError(f"[compile] {equation.primitive.name} cannot be compiled yet.")
            self.splice(inner, invars, equation.outvars)
            return
        if isinstance(kind, kinds.Effect) and kind.admit is not None and not kind.admit(equation.params):
            return
        if isinstance(kind, kinds.Branch) and isinstance(invars[0], Literal) and not self.flatten_only:
            programs = kind.branches(equation.params)
            self.splice(programs[min(max(int(invars[0].val), 0), len(programs) - 1)], invars[1:], equation.outvars)
            return
        if isinstance(kind, kinds.Identity) and not kind.barrier:
            for operand, out in zip(invars, equation.outvars, strict=True):
                replaced[out] = operand
            return
        if isinstance(kind, kinds.Identity):
            self._visit_barrier(equation, invars)
            return
        if isinstance(kind, kinds.Resolve):
            self.splice(expanded(equation, kind, invars), invars, equation.outvars, equation.source)
            return
        if isinstance(kind, kinds.Reshape) and kind.rewrite is not None:
            function = kind.rewrite(**equation.params)
            if function is not None:
                made = expansion(equation.primitive, function, [v.aval for v in invars], equation.params)
                self.splice(made, invars, equation.outvars, equation.source)
                return
        if isinstance(kind, kinds.Loop):
            inner = other_than_loop(equation.replace(invars=invars), self.flatten_only)
            if inner is not None:
                self.splice(inner, invars, equation.outvars, equation.source)
                return
        if isinstance(kind, NEEDS_ARRAYS):
            invars = self._with_arrays(kind, invars)
        if isinstance(kind, kinds.Contraction):
            equation = contraction.fold_transposes(equation.replace(invars=invars), self.producers)
            invars = equation.invars
            function = contraction.rewrite(equation)
            if function is not None:
                made = expansion(equation.primitive, function, [v.aval for v in invars], equation.params)
                self.splice(made, invars, equation.outvars, equation.source)
                return
        if isinstance(kind, kinds.Scatter) and not self.flatten_only:
            inner = other_than_scatter(equation.replace(invars=invars), self.producers)
            if inner is not None:
                self.splice(inner, invars, equation.outvars, equation.source)
                return
        self._visit_simple(equation, invars)

    def _visit_barrier(self, equation: Any, invars: list[Any]) -> None:
        """Literals are known on both sides of a barrier; what is left stays."""
        pairs = list(zip(invars, equation.outvars, strict=True))
        self.replaced.update((out, x) for x, out in pairs if type(x) is Literal)
        kept = [(x, out) for x, out in pairs if type(x) is not Literal]
        if kept:
            operands = [x for x, _ in kept]
            self._visit_simple(equation.replace(invars=operands, outvars=[out for _, out in kept]), operands)

    def _visit_simple(self, equation: Any, invars: list[Any]) -> None:
        """An equation that stays as it is, unless the algebra knows better."""
        if invars != equation.invars:
            equation = JaxprEqn(
                invars, equation.outvars, equation.primitive, equation.params, equation.effects, equation.source
            )
        found = None if self.flatten_only else algebra.rewritten(equation, self.producers)
        if found is not None:
            function, operands = found
            made = expansion(function, function, [v.aval for v in operands])
            self.splice(made, operands, equation.outvars, equation.source)
            return
        self.emit(equation)

    def emit(self, equation: Any) -> None:
        """Record an equation, unless a rule or an earlier equation gives its result."""
        if not equation.outvars and not equation.effects:
            return
        if not equation.effects and not self.flatten_only:
            atom = algebra.simplified(equation, self.producers)
            if atom is not None:
                self.replaced[equation.outvars[0]] = atom
                return
            equation = _without_drops(equation)
            twin = self._seen(equation)
            if twin is not None:
                for out, known in zip(equation.outvars, twin.outvars, strict=True):
                    self.replaced[out] = known
                return
        self.eqns.append(equation)
        for out in equation.outvars:
            self.producers[out] = equation

    def _seen(self, equation: Any) -> Any:
        """An earlier equation that says the same; remembers this one otherwise."""
        operands = tuple([_literal_key(v) if isinstance(v, Literal) else v for v in equation.invars])
        key = (equation.primitive, operands, *equation.params.items())
        try:
            twin = self.known.setdefault(key, equation)
        except TypeError:  # an unhashable parameter
            return None
        return None if twin is equation else twin

    def splice(self, inner: ClosedJaxpr, invars: Sequence[Any], outvars: Sequence[Any], expanded: Any = None) -> None:
        """The equations of a called program, over fresh variables, in place of the call.

        ``expanded`` is the position of an equation that the program only says in others: theirs too.
        """
        jaxpr = inner.jaxpr
        names: dict[Any, Any] = dict(zip(jaxpr.invars, invars, strict=True))
        for variable, value in zip(jaxpr.constvars, inner.consts, strict=True):
            names[variable] = self._constant(variable, value)

        replaced = self.replaced
        for equation in jaxpr.eqns:
            outs = []
            for v in equation.outvars:
                fresh = names[v] = Var(v.aval)  # also for one that is dropped: an equal equation may be read later
                outs.append(fresh)
            operands = [v if type(v) is Literal else names[v] for v in equation.invars]
            source = equation.source if expanded is None else expanded
            self.visit(JaxprEqn(operands, outs, equation.primitive, equation.params, equation.effects, source))
        for out, atom in zip(outvars, jaxpr.outvars, strict=True):
            if not isinstance(out, DropVar):
                replaced[out] = atom if type(atom) is Literal else self.atom(names[atom])

    def _constant(self, variable: Any, value: Any) -> Any:
        """A captured array of an inner program, as a hidden parameter of this one."""
        found = self.const_of.get(id(value))
        if found is None:
            found = self.const_of[id(value)] = Var(variable.aval)
            self.constvars.append(found)
            self.consts.append(value)
        return found

    def _with_arrays(self, kind: Any, invars: Sequence[Any]) -> list[Any]:
        """Operands with literals made arrays where the kind needs memory (starts of slices stay literals)."""
        first = 1 if isinstance(kind, kinds.DynamicSlice) else 2 if isinstance(kind, kinds.DynamicUpdateSlice) else None
        if isinstance(kind, kinds.Reduction) and kind.operands is not None:
            first = kind.operands([v.aval for v in invars])
        return [self.array(v) if first is None or i < first else v for i, v in enumerate(invars)]

    def array(self, atom: Any) -> Any:
        """A variable for an atom."""
        if not isinstance(atom, Literal):
            return atom
        out = Var(atom.aval)
        params = {"shape": (), "broadcast_dimensions": (), "sharding": None}
        equation = JaxprEqn([atom], [out], operations.broadcast_in_dim_p, params)
        self.eqns.append(equation)
        self.producers[out] = equation
        return out


def _without_drops(equation: Any) -> Any:
    """The equation with results that can be read: an equal equation later may be replaced by this one."""
    if not any(type(out) is DropVar for out in equation.outvars):
        return equation
    return equation.replace(outvars=[Var(out.aval) if type(out) is DropVar else out for out in equation.outvars])


def _literal_key(literal: Any) -> Any:
    return (np.asarray(literal.val).tobytes(), literal.aval)
