"""Primitives that call a function: ``call`` and ``closed_call``, and those that users make with ``CallPrimitive``.

``call_p.bind(*args, subfuns=(f,))`` (in old versions of JAX ``call_p.bind(f, *args)``) records one equation that holds
the program of ``f``, a ``linear_util.WrappedFun`` on flat values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.autodiff.transpose import backward_pass
from weft.batching.batch_trace import map_flat
from weft.core import avals, kinds
from weft.core.axis_names import Axis
from weft.core.effects import Effects
from weft.core.primitive import Primitive
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.tracing import trace as tracing
from weft.dispatch.calls.call_primitive import close_over, constvars_as_invars
from weft.extend import linear_util as lu


def call_impl(f: lu.WrappedFun, *args: Any, **params: Any) -> Any:
    """What a call does to concrete values: it calls the function."""
    return f.call_wrapped(*args)


def _closed(program: Any) -> ClosedJaxpr:
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


class CallPrimitive(Primitive):
    """A primitive whose equation holds a program, ``call_jaxpr``: an open one, or with ``closes`` a closed one."""

    multiple_results = True
    call_primitive = True
    closes = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.kind = kinds.Higher(inline=lambda params: _closed(params["call_jaxpr"]))
        self.def_effectful_abstract_eval(_type_call)
        self.expansion = lambda *args, call_jaxpr, **_: _evaluated(call_jaxpr, args)
        self.transpose, self.batch_axis = _transpose_call, self._batch

    def bind(self, *args: Any, **params: Any) -> Any:
        trace = tracing.current()
        if "call_jaxpr" not in params:
            subfuns = params.pop("subfuns", None)
            (fun,), operands = (subfuns, args) if subfuns is not None else (args[:1], args[1:])
            if trace is tracing.EVAL and not any(isinstance(x, tracing.Tracer) for x in operands):
                return self.impl(fun, *operands, **params)
            args, params = self._recorded(fun, operands, params)
        return trace.process(self, args, params)

    def _recorded(self, fun: Any, operands: Sequence[Any], params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The operands and parameters of the equation that calls ``fun``."""
        types = [avals.get_aval(x) for x in operands]
        closed, _ = tracing.trace_to_jaxpr(fun.call_wrapped, types, fun.debug_info)
        if self.closes:
            program, captured = close_over(closed)
            return (*captured, *operands), {**params, "call_jaxpr": program}
        return (*closed.consts, *operands), {**params, "call_jaxpr": constvars_as_invars(closed.jaxpr)}

    def impl(self, f: Any, *args: Any, **params: Any) -> Any:
        return call_impl(f, *args, **params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of ``bind`` with the program as a function, ``subfuns``."""
        program = _closed(params["call_jaxpr"])
        run = lu.wrap_init(lambda *args: _evaluated(program, args), debug_info=program.debug_info)
        return {**{name: value for name, value in params.items() if name != "call_jaxpr"}, "subfuns": (run,)}

    def _batch(self, axis: Axis, values: list[Any], dims: list[Any], *, call_jaxpr: Any, **params: Any) -> Any:
        return map_flat(lambda *args: _evaluated(call_jaxpr, args), axis, values, dims)


def _evaluated(program: Any, args: Sequence[Any]) -> list[Any]:
    closed = _closed(program)
    return eval_jaxpr(closed.jaxpr, closed.consts, *args)


def _type_call(*types: Any, call_jaxpr: Jaxpr | ClosedJaxpr, **params: Any) -> tuple[list[Any], Effects]:
    return _closed(call_jaxpr).out_avals, call_jaxpr.effects


def _transpose_call(cts: Sequence[Any], *operands: Any, call_jaxpr: Any, **params: Any) -> list[Any]:
    closed = _closed(call_jaxpr)
    return backward_pass(closed.jaxpr, closed.consts, operands, cts)


class ClosedCallPrimitive(CallPrimitive):
    """A call of a program with its constants."""

    closes = True


call_p = CallPrimitive("call")
call = call_p.bind
closed_call_p = ClosedCallPrimitive("closed_call")
