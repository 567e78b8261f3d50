"""weft.interpreters.partial_eval: recording programs, and splitting them by what is known, under JAX's names.

``trace_to_jaxpr_dynamic`` records a whole function. ``trace_to_jaxpr_nounits`` runs what depends on known values alone,
and records the rest::

    f(x, y) = sin(x) * y, x known, y unknown    ->    0.84 is computed;  { lambda a; b. let c = mul a b in (c,) }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff import dead_code
from weft.autodiff.dead_code import dce_jaxpr, dce_rules
from weft.core import avals, kinds
from weft.core.programs import rewrite
from weft.core.programs.eval import eval_jaxpr, jaxpr_as_fun
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import DynamicJaxprTrace, DynamicJaxprTracer, Trace, set_current
from weft.dispatch.calls.call_primitive import constvars_as_invars, jit_p
from weft.extend import linear_util as lu
from weft.extend.core import closed_call_p

Val = Any
# Rules by which JAX splits equations of a primitive; weft splits by data dependence, and needs none.
custom_partial_eval_rules: dict[Any, Callable[..., Any]] = {}
partial_eval_jaxpr_custom_rules: dict[Any, Callable[..., Any]] = {}

__all__ = [
    "DynamicJaxprTrace", "DynamicJaxprTracer", "JaxprTrace", "JaxprTracer", "PartialVal", "Val", "abstract_eval_fun",
    "close_jaxpr", "convert_constvars_jaxpr", "convert_invars_to_constvars", "custom_partial_eval_rules",
    "dce_jaxpr", "dce_jaxpr_call_rule", "dce_jaxpr_closed_call_rule", "dce_jaxpr_consts", "dce_rules",
    "partial_eval_jaxpr_custom_rules", "partial_eval_jaxpr_nounits", "trace_to_jaxpr_dynamic",
    "trace_to_jaxpr_nounits",
]  # fmt: skip


class PartialVal(tuple[Any, Any]):
    """A known value, ``(None, value)``, or the type of an unknown one, ``(aval, None)``."""

    __slots__ = ()

    def __new__(cls, xs: tuple[Any, Any]) -> PartialVal:
        return super().__new__(cls, xs)

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        return cls((aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        """The value; None if it is not known."""
        return self[1] if self[0] is None else None

    def get_aval(self) -> Any:
        return avals.get_aval(self[1]) if self[0] is None else self[0]


class JaxprTrace(DynamicJaxprTrace):
    """Records operations on unknown values, and passes all others to the enclosing trace."""

    __slots__ = ("parent",)

    def __init__(self, parent: Trace, debug_info: Any = None) -> None:
        super().__init__(debug_info, tracing.state.level + 1)
        self.parent = parent

    def owns(self, value: Any) -> bool:
        return isinstance(value, DynamicJaxprTracer) and value._trace is self

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        unknown = [self.owns(x) for x in args]
        if not any(unknown):
            with set_current(self.parent):
                return self.parent.process(primitive, args, params)
        if (
            type(primitive.kind) is kinds.Higher
            and not all(unknown)
            and (primitive is jit_p or primitive.call_primitive)
        ):
            inner: ClosedJaxpr = primitive.kind.inline(params)
            return eval_jaxpr(inner.jaxpr, inner.consts, *args)  # some of its results may be known
        if primitive.separate is not None and not all(unknown):
            with set_current(self.parent):
                rest = primitive.separate(args, tuple(unknown), params)
            if rest is not None:
                return self._with_known(primitive, rest)
        return super().process(primitive, args, params)

    def _with_known(self, primitive: Any, rest: Any) -> list[Any]:
        """The results of an equation: those computed from the rest, and those that are known already."""
        made = super().process(primitive, tuple(rest.operands), rest.params)
        found = {index: out for index, out in zip(rest.indices, made, strict=True) if index is not None} | rest.known
        return [found[index] for index in range(len(found))]


class _TypeOfTracer(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, DynamicJaxprTracer) and type(instance._trace) is JaxprTrace


class JaxprTracer(metaclass=_TypeOfTracer):
    """The values that ``trace_to_jaxpr_nounits`` does not know are instances of it."""


# -- recording --------------------------------------------------------------------------------------------------------


def trace_to_jaxpr_dynamic(
    fun: lu.WrappedFun,
    in_avals: Sequence[Any],
    *,
    keep_inputs: Sequence[bool] | None = None,
    lower: bool = False,
    auto_dce: bool = False,
) -> tuple[Jaxpr, list[Any], list[Any]]:
    """(program, types of its results, constants) of a function of flat values.

    ``keep_inputs``: the function takes only these of the program's inputs. With ``auto_dce`` dead equations go.
    """
    kept = [True] * len(in_avals) if keep_inputs is None else list(keep_inputs)

    def flat(*args: Any) -> Any:
        return fun.call_wrapped(*[x for x, keep in zip(args, kept, strict=True) if keep])

    closed, out_avals = tracing.trace_to_jaxpr(flat, list(in_avals), fun.debug_info)
    jaxpr = rewrite.dce(closed.jaxpr)[0] if auto_dce else closed.jaxpr
    return jaxpr, out_avals, closed.consts


def abstract_eval_fun(fun: Callable[..., Any], *in_avals: Any, debug_info: Any = None, **params: Any) -> list[Any]:
    """The types of the results of ``fun(*values, **params)``."""
    return trace_to_jaxpr_dynamic(lu.wrap_init(fun, params, debug_info=debug_info), in_avals)[1]


def trace_to_jaxpr_nounits(
    fun: lu.WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """(program, results, constants): what depends on known values is computed, the program holds the rest.

    The program takes the unknown values and gives the unknown results; with ``instantiate`` it gives known ones too.
    """
    trace = JaxprTrace(tracing.current(), fun.debug_info)
    given = [trace.new_arg(pval[0]) if pval[0] is not None else pval[1] for pval in map(PartialVal, pvals)]
    try:
        with set_current(trace):
            outs = list(fun.call_wrapped(*given))
        forced = [instantiate] * len(outs) if isinstance(instantiate, bool) else list(instantiate)
        unknown = [trace.owns(out) or force for out, force in zip(outs, forced, strict=True)]
        atoms = [trace.atom(out) for out, has in zip(outs, unknown, strict=True) if has]
        results = [
            PartialVal.unknown(avals.get_aval(out)) if has else PartialVal.known(out)
            for out, has in zip(outs, unknown, strict=True)
        ]
        closed = trace.to_jaxpr(atoms)
    finally:
        trace.valid = False
    return closed.jaxpr, results, closed.consts


def partial_eval_jaxpr_nounits(
    jaxpr: ClosedJaxpr, unknowns: Sequence[bool], instantiate: bool | Sequence[bool]
) -> tuple[ClosedJaxpr, ClosedJaxpr, list[bool], list[Any]]:
    """(program of what is known, program of the rest, which results are unknown, types of the residuals).

    The first takes the known inputs and gives the known results and the residuals; the second takes the residuals and
    the unknown inputs, and gives the unknown results.
    """
    rest: Any = None
    out_unknown: list[bool] = []
    residuals: list[Any] = []
    fun = lu.wrap_init(jaxpr_as_fun(jaxpr), debug_info=jaxpr.debug_info)

    def known(*values: Any) -> list[Any]:
        nonlocal rest
        given = iter(values)
        pvals = [
            PartialVal.unknown(aval) if unknown else PartialVal.known(next(given))
            for aval, unknown in zip(jaxpr.in_avals, unknowns, strict=True)
        ]
        rest, results, consts = trace_to_jaxpr_nounits(fun, pvals, instantiate)
        out_unknown[:] = [not result.is_known() for result in results]
        residuals[:] = [avals.get_aval(x) for x in consts]
        return [*[result.get_known() for result in results if result.is_known()], *consts]

    known_avals = [aval for aval, unknown in zip(jaxpr.in_avals, unknowns, strict=True) if not unknown]
    first, _ = tracing.trace_to_jaxpr(known, known_avals)
    return first, ClosedJaxpr(constvars_as_invars(rest), ()), out_unknown, residuals


# -- constants and inputs ---------------------------------------------------------------------------------------------


def convert_constvars_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The program with its constants as first inputs."""
    return constvars_as_invars(jaxpr)


def convert_invars_to_constvars(jaxpr: Jaxpr, n: int) -> Jaxpr:
    """The program with its first ``n`` inputs as constants."""
    info = jaxpr.debug_info
    if info is not None and info.arg_names is not None:
        info = info._replace(arg_names=info.arg_names[n:])
    return jaxpr.replace(constvars=jaxpr.invars[:n], invars=jaxpr.invars[n:], debug_info=info)


def close_jaxpr(jaxpr: Jaxpr) -> ClosedJaxpr:
    """A program without constants as a closed one."""
    return ClosedJaxpr(jaxpr.replace(), ())


# -- dead code --------------------------------------------------------------------------------------------------------

dce_jaxpr_call_rule = dce_jaxpr_closed_call_rule = dead_code.rule_of_call("call_jaxpr")
dce_rules[closed_call_p] = dce_jaxpr_closed_call_rule


def dce_jaxpr_consts(
    jaxpr: Jaxpr, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool], list[bool]]:
    """As ``dce_jaxpr``: (program, which constants it has, which inputs it takes)."""
    count = len(jaxpr.constvars)
    kept = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    made, used = dce_jaxpr(convert_constvars_jaxpr(jaxpr), used_outputs, [False] * count + kept)
    return convert_invars_to_constvars(made, sum(used[:count])), used[:count], used[count:]
