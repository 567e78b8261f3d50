"""Loop-invariant code motion: what a loop would compute again in every step is computed once, before the loop.

    fori_loop: r = (0.85 * p) @ r + b.sum() / n      ->      q = 0.85 * p;  c = b.sum() / n;  fori_loop: r = q @ r + c

A view is read inside the loop as it lies, and so is a transposed array that the loop only multiplies. Elementwise
results go before it if they take no more bytes than what they are made of, so that a step reads no more than it did;
products, sums and the like always do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.target_model import FUNCTION
from weft.compiler.matrix_products import contraction
from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxprs_in_params, joined_effects
from weft.core.programs.rewrite import Makers, Splicer, live, variables

_READ_IN_PLACE = (kinds.View, kinds.Reshape, kinds.Generate, kinds.DynamicSlice)
_FUSED = (kinds.Elementwise, kinds.Assemble)  # computed again where they are read, in kernels with their readers
_LONG = (
    kinds.Contraction, kinds.StridedContraction, kinds.Reduction, kinds.Cumulative, kinds.Window, kinds.External,
    kinds.Gather, kinds.Scatter, kinds.DynamicUpdateSlice, kinds.Routine, kinds.Loop, kinds.Branch,
)  # fmt: skip
_FUSING = (*_READ_IN_PLACE, *_FUSED, kinds.Reduction)  # readers that need no array of what they read
_STORED_ANYWAY = 8  # times the bytes of its sources that a result may take which every step would store
_SMALL = 4096  # bytes of results that are cheaper to compute again than by a kernel of their own


Simplified = Callable[[ClosedJaxpr], ClosedJaxpr]


def loop_invariants(closed: ClosedJaxpr, simplified: Simplified) -> ClosedJaxpr:
    """The program with such loops; ``simplified`` gives the body of a loop after all passes."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        parts = eqn.primitive.kind.parts(eqn.params)
        if (parts.trips is not None and parts.trips < 2) or check_scopes.asked(parts.body):
            return None
        body, operands = _as_they_lie(simplified(parts.body), eqn.invars, parts, splicer.makers)
        step = _Step(body, parts.n_consts, once=parts.trips is not None)
        cond = None if parts.cond is None else _Step(simplified(parts.cond), parts.n_cond_consts, once=True)
        if operands == list(eqn.invars) and not step.values and (cond is None or not cond.values):
            return None
        return splicer.splice(_divided(eqn, parts, step, cond), operands)

    return Splicer(closed, rule, (kinds.Loop,)).run()


def _as_they_lie(
    body: ClosedJaxpr, operands: Sequence[Atom], parts: kinds.LoopParts, makers: Makers
) -> tuple[ClosedJaxpr, list[Atom]]:
    """(the body, the loop's operands) with transposed arrays that are only multiplied transposed in the body."""
    old, atoms = body.jaxpr, list(operands)
    invars, views = list(old.invars), list[JaxprEqn]()
    for index in range(parts.n_consts):
        maker = makers.of(atoms[parts.n_cond_consts + index])
        if maker is None or not maker.invars or contraction.permutation(maker) is None:
            continue
        if _is_only_multiplied(old, invars[index]):
            atoms[parts.n_cond_consts + index] = maker.invars[0]
            array = Var(maker.invars[0].aval)
            views.append(maker.replace(invars=[array], outvars=[invars[index]]))
            invars[index] = array
    if not views:
        return body, atoms
    return ClosedJaxpr(old.replace(invars=invars, eqns=[*views, *old.eqns]), body.consts), atoms


def _is_only_multiplied(jaxpr: Jaxpr, v: Var) -> bool:
    """Whether a value is only an operand of products, with few enough dimensions that they take it transposed."""
    readers = [equation for equation in jaxpr.eqns if v in equation.invars]
    sums = [
        len(e.params["dimension_numbers"][0][0]) for e in readers if isinstance(e.primitive.kind, kinds.Contraction)
    ]
    return v not in jaxpr.outvars and v.aval.ndim == 2 and bool(readers) and sums == [1] * len(readers)


def _divided(loop: JaxprEqn, parts: kinds.LoopParts, body: _Step, cond: _Step | None) -> ClosedJaxpr:
    """The loop as a program that begins with what its steps have in common."""
    state = [Var(v.aval) for v in loop.invars[parts.n_cond_consts + parts.n_consts :]]
    params = {**loop.params, **_params(body, cond)}
    captured = [*(cond.captured if cond is not None else ()), *body.captured]
    outvars = [Var(v.aval) for v in loop.outvars]
    shorter = loop.replace(invars=[*captured, *state], outvars=outvars, params=params)
    steps = [body] if cond is None else [cond, body]
    eqns = [*[equation for step in steps for equation in step.early], shorter]
    invars = [*[v for step in steps for v in step.operands], *state]
    constvars = [v for step in steps for v in step.program.jaxpr.constvars]
    consts = [value for step in steps for value in step.program.consts]
    return ClosedJaxpr(Jaxpr(constvars, invars, outvars, eqns, loop.effects, None), consts)


def _params(body: _Step, cond: _Step | None) -> dict[str, Any]:
    if cond is None:
        return {"jaxpr": body.late, "num_consts": len(body.captured)}
    return {
        "body_jaxpr": body.late, "body_nconsts": len(body.captured), "cond_jaxpr": cond.late,
        "cond_nconsts": len(cond.captured),
    }  # fmt: skip


class _Step:
    """A divided program: ``early`` equations give ``values``, which ``late`` takes with the other ``captured`` ones.

    ``once``: the program runs at least once.
    """

    def __init__(self, program: ClosedJaxpr, n_consts: int, once: bool) -> None:
        jaxpr = program.jaxpr
        self.program, self.operands = program, jaxpr.invars[:n_consts]
        fixed = [*jaxpr.constvars, *self.operands]
        found = _Invariants(jaxpr, fixed, once)
        self.values = found.values
        self.early = live([equation for equation in jaxpr.eqns if equation in found.equations], list(self.values))
        late = live([equation for equation in jaxpr.eqns if self.values.isdisjoint(equation.outvars)], jaxpr.outvars)
        read = {*variables(jaxpr.outvars), *[v for equation in late for v in variables(equation.invars)]}
        made = [v for equation in self.early for v in equation.outvars if v in self.values]
        self.captured = [v for v in [*made, *fixed] if v in read]
        invars = [*self.captured, *jaxpr.invars[n_consts:]]
        # debug_info: a condition that ends element by element is known by it
        self.late = ClosedJaxpr(Jaxpr([], invars, jaxpr.outvars, late, joined_effects(late), jaxpr.debug_info), ())


class _Invariants:
    """The equations of a program that depend only on ``fixed``, and the ``values`` of theirs that are worth keeping."""

    def __init__(self, jaxpr: Jaxpr, fixed: Sequence[Var], once: bool) -> None:
        self.once = once
        self.sources: dict[Var, frozenset[Var]] = {v: frozenset([v]) for v in fixed}
        self.costs: dict[Var, float] = dict.fromkeys(fixed, 0.0)  # the dearest operation among those that give a value
        self.equations: dict[JaxprEqn, None] = {}
        self.values: set[Var] = set()
        self.wanted: set[Var] = {*variables(jaxpr.outvars)}  # values that a step reads, or computes others of
        self.stored: set[Var] = set()
        for equation in jaxpr.eqns:
            reads = variables(equation.invars)
            if self._is_fixed(equation, reads):
                self._add(equation, reads)
            else:
                self.wanted.update(reads)
                if not isinstance(equation.primitive.kind, _FUSING):
                    self.stored.update(reads)
        for equation in reversed(self.equations):
            for v in equation.outvars:
                if v in self.wanted:
                    self._choose(v, equation)

    def _is_fixed(self, equation: JaxprEqn, reads: Sequence[Var]) -> bool:
        kind = equation.primitive.kind
        movable = isinstance(kind, (*_READ_IN_PLACE, *_FUSED, *_LONG)) and not equation.effects
        if not movable or (isinstance(kind, kinds.External) and kind.foreign):
            return False
        return all(v in self.sources for v in reads) and (self.once or _ends(equation))

    def _add(self, equation: JaxprEqn, reads: Sequence[Var]) -> None:
        self.equations[equation] = None
        kind = equation.primitive.kind
        own = getattr(kind, "cost", FUNCTION if isinstance(kind, _LONG) else 0.0)
        self.costs.update(dict.fromkeys(equation.outvars, max([own, *[self.costs[v] for v in reads]])))
        sources = frozenset[Var]().union(*[self.sources[v] for v in reads])
        self.sources.update(dict.fromkeys(equation.outvars, sources))

    def _choose(self, v: Var, equation: JaxprEqn) -> None:
        """Keep a value if it is worth it; if not, those that it is made of are asked for."""
        if not isinstance(equation.primitive.kind, _READ_IN_PLACE) and self._is_worth(v, equation):
            self.values.add(v)
            return
        operands = variables(equation.invars)
        self.wanted.update(operands)
        if v in self.stored:
            self.stored.update(operands)

    def _is_worth(self, v: Var, equation: JaxprEqn) -> bool:
        if isinstance(equation.primitive.kind, _LONG):
            return True
        nbytes = v.aval.nbytes
        if nbytes <= _SMALL and self.costs[v] < FUNCTION:
            return False
        times = _STORED_ANYWAY if v in self.stored else 1
        return nbytes <= times * sum(source.aval.nbytes for source in self.sources[v])


def _ends(equation: JaxprEqn) -> bool:
    """Whether an equation ends for all operands, so that it may be computed though no step of a loop asks for it."""
    kind, params = equation.primitive.kind, equation.params
    parts = kind.parts(params) if isinstance(kind, kinds.Loop) else params.get("parts")
    if isinstance(parts, kinds.LoopParts) and parts.trips is None:
        return False
    inside = [jaxprs_in_params(params), *([[parts.body.jaxpr]] if isinstance(parts, kinds.LoopParts) else [])]
    return all(_ends(inner) for programs in inside for jaxpr in programs for inner in jaxpr.eqns)
