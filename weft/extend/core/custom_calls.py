"""How JAX's interpreters see calls of functions with derivative rules: as functions of flat values, ``subfuns``.

custom_jvp    (function, jvp): jvp(*primals, *tangents) gives the results, then their tangents
custom_vjp    (function, fwd, bwd), the rules as they were given
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import runtime
from weft.autodiff.custom_jvp import JvpRule, custom_jvp_call_p
from weft.autodiff.jvp import JVPTrace
from weft.autodiff.symbolic_zeros import as_user_sees
from weft.core import avals
from weft.core.programs.eval import jaxpr_as_fun
from weft.core.tracing import trace as tracing
from weft.dispatch.calls.call_primitive import close_over
from weft.extend import linear_util as lu


def parts(primitive: Any, params: dict[str, Any]) -> tuple[Any, ...]:
    """The function and the rules of an equation."""
    program = params["call_jaxpr"]
    info = program.debug_info
    fun = lu.wrap_init(jaxpr_as_fun(program), debug_info=info)
    if primitive is not custom_jvp_call_p:
        return fun, lu.wrap_init(params["rule"].fwd, debug_info=info), params["rule"].bwd
    rule = params["jvp"]

    def pushed(*values: Any) -> list[Any]:
        count = len(values) // 2
        captured = count - rule.in_tree.num_leaves
        outs, tangents, _ = rule.push(values[captured:count], values[count + captured :], program.out_avals)
        return [*outs, *[as_user_sees(t, rule.symbolic_zeros) for t in tangents]]

    return fun, lu.wrap_init(pushed, debug_info=info)


def bind(primitive: Any, args: Sequence[Any], subfuns: Sequence[Any] | None, params: dict[str, Any]) -> Any:
    """The results of a call of a function with a jvp rule, both of flat values; only what is needed is called."""
    if primitive is not custom_jvp_call_p or subfuns is None:
        raise NotImplementedError(
            f"[bind] {primitive} is bound with the parameters of an equation (call_jaxpr and its rules); to make a new "
            "function with rules use weft.custom_jvp or weft.custom_vjp"
        )
    fun, jvp = subfuns
    trace = tracing.current()
    if trace is tracing.EVAL and not any(isinstance(x, tracing.Tracer) for x in args):
        return fun.call_wrapped(*args)

    def flat_rule(primals: Any, tangents: Any) -> Any:
        made = list(jvp.call_wrapped(*primals, *tangents))
        count = len(made) // 2
        return made[:count], made[count:]

    symbolic = bool(params.get("symbolic_zeros", False))
    rule = JvpRule(fun.__name__, flat_rule, (), runtime.tree_flatten(tuple(args))[1], symbolic)
    if isinstance(trace, JVPTrace):
        if any(map(trace.owns, args)):
            return trace.differentiate_by(rule.push, args)
        with tracing.set_current(trace.parent):
            return bind(primitive, args, subfuns, params)
    closed, _ = tracing.trace_to_jaxpr(fun.call_wrapped, [avals.get_aval(x) for x in args], fun.debug_info)
    program, captured = close_over(closed)
    given = {"name": fun.__name__, "call_jaxpr": program, "jvp": rule, "symbolic_zeros": symbolic}
    return primitive.bind(*captured, *args, **given)
