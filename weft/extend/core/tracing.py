"""Traces of one's own, and questions about the trace that is going on, under JAX's names.

A subclass of ``Trace`` with ``process_primitive(primitive, tracers, params)`` sees every operation that is done under
``with set_current_trace(trace):``, as weft's own transformations do. Its values are instances of a subclass of
``Tracer``; calls of functions with rules of their own arrive in ``process_custom_jvp_call`` and
``process_custom_vjp_call``.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from weft import config
from weft.autodiff.custom_jvp import custom_jvp_call_p
from weft.autodiff.custom_vjp import custom_vjp_call_p
from weft.batching.batch_trace import BatchTrace
from weft.core import axis_names
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import DynamicJaxprTrace
from weft.extend.core import custom_calls


class TraceTag:
    """Tells transformations apart: compared by identity."""


class _AnyTrace(type):
    """weft's own traces are instances of ``Trace`` too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (cls is Trace and isinstance(instance, tracing.Trace))


class Trace(tracing.Trace, metaclass=_AnyTrace):
    """Base class of traces of one's own."""

    takes_over = True

    def __init__(self) -> None:
        super().__init__(tracing.state.level + 1)

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        with tracing.eval_context():
            if primitive is custom_jvp_call_p:
                fun, jvp = custom_calls.parts(primitive, params)
                return self.process_custom_jvp_call(primitive, fun, jvp, args, symbolic_zeros=params["symbolic_zeros"])
            if primitive is custom_vjp_call_p:
                fun, fwd, bwd = custom_calls.parts(primitive, params)
                return self.process_custom_vjp_call(
                    primitive, fun, fwd, bwd, args, out_trees=None, symbolic_zeros=params["symbolic_zeros"]
                )
            if primitive.call_primitive:
                parts = dict(primitive.get_bind_params(params))
                (fun,) = parts.pop("subfuns")
                return self.process_call(primitive, fun, args, parts)
            return self.process_primitive(primitive, list(args), params)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        raise self._unknown("process_primitive", "operations")

    def process_call(self, call_primitive: Any, f: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        raise self._unknown("process_call", "call-like primitives")

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Sequence[Any], /, *, symbolic_zeros: bool
    ) -> Any:
        raise self._unknown("process_custom_jvp_call", "functions with a jvp rule of their own")

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Sequence[Any], /, *, out_trees: Any,
        symbolic_zeros: bool,
    ) -> Any:  # fmt: skip
        raise self._unknown("process_custom_vjp_call", "functions with a vjp rule of their own")

    def _unknown(self, method: str, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} must override {method} to handle {what}")


# -- the trace that is going on ---------------------------------------------------------------------------------------


class set_current_trace:
    """A context manager under which operations are those of ``trace``."""

    __slots__ = ("_context", "check_leaks", "prev", "trace")

    def __init__(self, trace: Any, check_leaks: bool = False) -> None:
        self.trace = trace
        self.check_leaks = check_leaks

    def __enter__(self) -> None:
        self.prev = tracing.current()
        self._context = tracing.set_current(self.trace)
        self._context.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)


class take_current_trace:
    """A context manager that gives the current trace, and under which operations on concrete values run at once."""

    __slots__ = ("_context", "prev")

    def __enter__(self) -> Any:
        self.prev = tracing.current()
        self._context = tracing.eval_context()
        self._context.__enter__()
        return self.prev

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)


class OpaqueTraceState:
    """What is being traced, to be compared with ==. It keeps no trace alive."""

    def __init__(self, trace_ref: weakref.ref[Any]) -> None:
        self._trace_ref = trace_ref

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace_ref == other._trace_ref

    __hash__ = None  # type: ignore[assignment] - as in JAX: it is compared, and is no key


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """The state of tracing now: equal to another if and only if the same trace is current.

    >>> before = weft.extend.core.get_opaque_trace_state()
    >>> before == weft.extend.core.get_opaque_trace_state()
    True
    """
    return OpaqueTraceState(weakref.ref(tracing.current()))


def trace_state_clean() -> bool:
    """Whether nothing is being traced."""
    return not tracing.is_tracing()


def find_top_trace(values: Any = None) -> Any:
    """The current trace."""
    return tracing.current()


def _enclosing(trace: Any) -> list[Any]:
    """The trace and those around it, the innermost first."""
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.outer() if type(trace) is DynamicJaxprTrace else getattr(trace, "parent", None)
    return found


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a program is being recorded."""
    return any(type(trace) is DynamicJaxprTrace for trace in _enclosing(tracing.current()))


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether a mapped function is being traced."""
    return any(isinstance(trace, BatchTrace) for trace in _enclosing(tracing.current()))


# -- named axes -------------------------------------------------------------------------------------------------------


class AxisEnv:
    """The named axes of the mapped functions that are being traced."""

    def __init__(self, axes: Sequence[tuple[Hashable, int]]) -> None:
        self.axis_sizes = dict(axes)

    def axis_exists(self, axis_name: Hashable) -> bool:
        return axis_name in self.axis_sizes

    def axis_size(self, axis_name: Hashable) -> int:
        return axis_names.size([axis_name])

    def axis_names(self) -> tuple[Hashable, ...]:
        return tuple(self.axis_sizes)


def get_axis_env() -> AxisEnv:
    """The named axes that are bound where it is called."""
    return AxisEnv(config.bound_axes())


def axis_frame(axis_name: Hashable) -> int:
    """The size of a named axis; NameError if there is none of this name."""
    return axis_names.size([axis_name])


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether any axis has a name here."""
    return bool(config.bound_axes())


def unsafe_get_axis_names_DO_NOT_USE() -> list[Hashable]:
    """The names of the axes that mapped functions have here."""
    return list(get_axis_env().axis_sizes)
