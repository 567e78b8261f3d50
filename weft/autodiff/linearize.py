"""Linearisation: evaluates a function at a point and records the linear program of its tangents.

Values are computed (or recorded by the enclosing trace) while the function runs. Tangents are recorded in a separate
program, whose inputs are the tangents of the arguments. The values that it needs, the residuals, are its constants::

    x sin(x) at 2.0   ->   1.81, { lambda a:f32[] b:f32[]; t:f32[]. let c = mul t a; d = mul b t; ... in (f,) }

Each derivative rule runs once: ``TangentTrace`` records the equations on tangents and passes all others to the
enclosing trace. Primitives with jaxprs as parameters have a rule ``linearize``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.autodiff import jvp as jvp_module
from weft.core import avals, kinds
from weft.core.programs import dependence, rewrite
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var
from weft.core.tangents import Zero, is_differentiable, tangent_aval
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import DynamicJaxprTrace, DynamicJaxprTracer, Trace, set_current
from weft.core.tracing.tracer import Tracer

state = tracing.state


class TangentTrace(DynamicJaxprTrace):
    """Records the operations on tangents, and passes all others to the parent."""

    __slots__ = ("parent",)
    records_tangents = True

    def __init__(self, parent: Trace) -> None:
        super().__init__(None, state.level + 1)
        self.parent = parent

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        for x in args:
            if type(x) is DynamicJaxprTracer and x._trace is self:
                if primitive.linearize is not None and type(primitive.kind) is kinds.Higher:
                    inner: ClosedJaxpr = primitive.kind.inline(params)
                    if not all(dependence.reached(inner.jaxpr, tuple([self.owns(x) for x in args]))):
                        return eval_jaxpr(inner.jaxpr, inner.consts, *args)  # some results are values
                return super().process(primitive, args, params)
        with set_current(self.parent):
            return self.parent.process(primitive, args, params)

    def owns(self, value: Any) -> bool:
        """Whether a value is a tangent being recorded here."""
        return type(value) is DynamicJaxprTracer and value._trace is self

    def constant(self, value: Any) -> Any:
        """The variable of a residual, or the literal if it is one in the enclosing program."""
        if type(value) is DynamicJaxprTracer and type(value.val) is Literal:
            return value.val
        return super().constant(value)


class LinearizeTracer(jvp_module.JVPTracer):
    """A value, and its tangent in the program being recorded."""

    __slots__ = ()

    def __repr__(self) -> str:
        tangent = avals.short_text(self.tangent.aval)
        return f"GradTracer(primal={jvp_module._short(self.primal)}, typeof(tangent)={tangent})"


class LinearizeTrace(jvp_module.JVPTrace):
    """Operations on values whose tangents are being recorded."""

    __slots__ = ()
    tracer = LinearizeTracer
    rules: TangentTrace

    def differentiate(self, primitive: Any, primals: list[Any], tangents: list[Any], params: dict[str, Any]) -> Any:
        if primitive.linearize is None:
            return super().differentiate(primitive, primals, tangents, params)
        with set_current(self.parent):
            return jvp_module.split(primitive, primals, tangents, params, self.rules)


class Linearized(NamedTuple):
    """A linearised function. ``jaxpr`` takes tangents of the live arguments and gives those of the live results."""

    outs: list[Any]
    in_live: tuple[bool, ...]
    out_live: tuple[bool, ...]
    jaxpr: Jaxpr
    residuals: list[Any]  # the values of its constvars


def linearize_flat(
    fun: Callable[..., Sequence[Any]], primals: Sequence[Any], live: Sequence[bool] | None = None
) -> Linearized:
    """Linearise a function on flat lists with respect to the ``live`` arguments (by default all that have tangents)."""
    recorder = TangentTrace(state.trace)
    trace = LinearizeTrace(state.trace, recorder)
    in_avals = [avals.get_aval(x) for x in primals]
    wanted = [True] * len(in_avals) if live is None else live
    in_live = tuple([has and is_differentiable(aval.dtype) for has, aval in zip(wanted, in_avals, strict=True)])
    arguments = [
        LinearizeTracer(trace, x, recorder.new_arg(tangent_aval(aval))) if has else x
        for x, aval, has in zip(primals, in_avals, in_live, strict=True)
    ]
    try:
        with set_current(trace):
            pairs = [trace.split(out) for out in fun(*arguments)]
        outs = [x for x, _ in pairs]
        out_live = tuple([type(t) is not Zero for _, t in pairs])
        closed = recorder.to_jaxpr([recorder.atom(t) for _, t in pairs if type(t) is not Zero])
    finally:
        trace.valid = recorder.valid = False
    return Linearized(outs, in_live, out_live, closed.jaxpr, closed.consts)


# -- programs ---------------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """A linearised program as two programs: one of the values and residuals, one of the tangents.

    ``known`` gives the results of the program followed by residuals. ``linear`` takes the residuals and the tangents of
    the live inputs, and gives the tangents of the live results. ``residuals`` says where to find each residual.
    """

    known: ClosedJaxpr
    linear: ClosedJaxpr
    residuals: tuple[tuple[str, Any], ...]  # ("input", index), ("result", index of known's), ("constant", array)
    out_live: tuple[bool, ...]

    def find_residuals(self, inputs: Sequence[Any], results: Sequence[Any] | dict[int, Any]) -> list[Any]:
        """The values of the residuals in one call."""
        where: dict[str, Any] = {"input": inputs, "result": results}
        return [source if word == "constant" else where[word][source] for word, source in self.residuals]


def linearize_jaxpr(closed: ClosedJaxpr, live: tuple[bool, ...]) -> Split:
    """A program linearised with respect to its ``live`` inputs; memoised on the program."""
    key: Any = ("linearize", live, tuple([id(const) for const in closed.consts]))
    return closed.jaxpr.memoize(key, lambda jaxpr: (_linearize_jaxpr(closed, live), closed.consts))[0]


def _linearize_jaxpr(closed: ClosedJaxpr, live: tuple[bool, ...]) -> Split:
    jaxpr = closed.jaxpr
    made: Any = None
    sources: list[tuple[str, Any]] = []

    def known(*values: Any) -> list[Any]:
        nonlocal made
        made = without_dead(linearize_flat(lambda *args: eval_jaxpr(jaxpr, closed.consts, *args), values, live))
        results = list(made.outs)
        inputs = {value.val: ("input", index) for index, value in enumerate(values)}
        known_results: dict[Var, tuple[str, Any]] = {}
        for index, out in enumerate(results):
            if isinstance(out, Tracer) and type(out.val) is Var:  # type: ignore[attr-defined]
                known_results.setdefault(out.val, ("result", index))  # type: ignore[attr-defined]
        for residual in made.residuals:
            if not isinstance(residual, Tracer) or residual._trace is not state.trace:
                sources.append(("constant", residual))  # an array, or a value that a custom rule captured
                continue
            v = residual.val  # type: ignore[attr-defined]
            source = inputs.get(v) or known_results.get(v)
            if source is None:
                source = known_results[v] = ("result", len(results))
                results.append(residual)
            sources.append(source)
        return results

    known_jaxpr, _ = tracing.trace_to_jaxpr(known, [v.aval for v in jaxpr.invars], jaxpr.debug_info, of_program=True)
    known_jaxpr = known_jaxpr.replace(jaxpr=rewrite.dce(known_jaxpr.jaxpr)[0])
    tangents = made.jaxpr
    linear = tangents.replace(constvars=[], invars=[*tangents.constvars, *tangents.invars])
    return Split(known_jaxpr, ClosedJaxpr(linear), tuple(sources), made.out_live)


def without_dead(made: Linearized) -> Linearized:
    """Without dead equations of tangents, and without residuals that only those read."""
    jaxpr, _ = rewrite.dce(made.jaxpr)
    used = {atom for eqn in jaxpr.eqns for atom in eqn.invars if type(atom) is Var}
    used.update(atom for atom in jaxpr.outvars if type(atom) is Var)
    kept = [(v, x) for v, x in zip(jaxpr.constvars, made.residuals, strict=True) if v in used]
    return made._replace(jaxpr=jaxpr.replace(constvars=[v for v, _ in kept]), residuals=[x for _, x in kept])
