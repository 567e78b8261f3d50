"""Calls of jitted functions with mutable references among their arguments, or closed over.

The trace, which has references, is discharged into one of values; that is compiled and run on what the references hold,
and gives what they hold afterwards. An array that nobody but its reference holds is donated, and so changed in place.
"""

from __future__ import annotations

from typing import Any

from weft import runtime
from weft.core.jaxpr import ClosedJaxpr
from weft.core.ref_types import is_ref
from weft.dispatch.calls import signature
from weft.dispatch.calls.function_names import source_of
from weft.dispatch.programs import executables
from weft.dispatch.programs.trace_cache import Trace
from weft.effects.discharge import discharged
from weft.effects.refs import same


def takes_refs(trace: Trace) -> bool:
    """Whether references come into the program from outside."""
    jaxpr = trace.closed.jaxpr
    return any(map(is_ref, (*jaxpr.constvars, *jaxpr.invars)))


def check_distinct(function: Any, trace: Trace, prepared: Any) -> None:
    """ValueError if one reference comes in by two ways."""
    refs = [(place, leaf) for place, leaf in enumerate(prepared.leaves) if is_ref(leaf)]
    closed_over = [const for const in trace.closed.consts if is_ref(const)]
    for number, (place, ref) in enumerate(refs):
        for other, earlier in refs[:number]:
            if same(ref, earlier):
                paths = signature.leaf_paths(function, prepared.call)
                raise ValueError(
                    "only one reference to a mutable array may be passed as an argument to a function, but when "
                    f"tracing {source_of(function)} for jit the mutable array reference of type {ref.aval} appeared at "
                    f"both {paths[other]} and {paths[place]}."
                )
        if any(same(ref, const) for const in closed_over):
            paths = signature.leaf_paths(function, prepared.call)
            raise ValueError(
                f"when tracing {source_of(function)} for jit, a mutable array reference of type {ref.aval} was both "
                f"closed over and passed as the argument {paths[place]}"
            )


def run(state: Any, trace: Trace, prepared: Any) -> Any:
    """The result of a call; what it writes is in the references afterwards."""
    check_distinct(state.function, trace, prepared)
    found, values = of_values(trace)
    given = [*trace.closed.consts, *prepared.leaves]
    before = len(found.captured)
    donated = [False] * before + [False] * len(trace.closed.consts) + list(state.donated(prepared))
    for place, x in enumerate(given):
        if is_ref(x):
            donated[before + place] = place in found.written and not x._lent
    return _run(state.compiled(values, tuple(donated)), trace, given)


def compiled_ahead(state: Any, trace: Trace, donated: tuple[bool, ...], place: Any) -> executables.Compiled:
    """The program of values of a trace; it leaves what references hold, since others may hold it when it is called."""
    found, values = of_values(trace)
    return state.compiled(values, (False,) * (len(found.captured) + len(trace.closed.consts)) + donated, place)


def run_compiled(compiled: executables.Compiled, trace: Trace, leaves: list[Any]) -> Any:
    """The result of a call of what ``compiled_ahead`` gives; an array in place of a reference is only read."""
    return _run(compiled, trace, [*trace.closed.consts, *leaves])


def _run(compiled: executables.Compiled, trace: Trace, given: list[Any]) -> Any:
    found, values = of_values(trace)
    leaves = [*found.captured, *[x._value if is_ref(x) else x for x in given]]
    outs = executables.run(compiled, values, leaves, values.closed.in_avals)
    count = len(trace.out_avals)
    for place, value in zip(found.written, outs[count:], strict=True):
        if is_ref(given[place]):
            given[place]._value, given[place]._lent = value, False
    return runtime.tree_unflatten(trace.out_tree, outs[:count])


def of_values(trace: Trace) -> tuple[Any, Trace]:
    """(the discharged program, its trace), both memoised."""
    found = discharged(trace.closed.jaxpr)
    return found, trace.closed.jaxpr.memoize("trace_of_values", lambda _: _trace_of_values(trace, found))


def _trace_of_values(trace: Trace, found: Any) -> Trace:
    tree = runtime.tree_flatten([0] * len(found.jaxpr.outvars))[1]
    return Trace(ClosedJaxpr(found.jaxpr), tree, found.closed.out_avals, trace.name)
