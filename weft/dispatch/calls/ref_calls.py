"""Calls of jitted functions with mutable references among their arguments, or closed over.

The trace, which has references, is discharged into one of values; that is compiled and run on what the references hold,
and gives what they hold afterwards. An array that nobody but its reference holds is donated, and so changed in place.
"""

from __future__ import annotations

import functools
from typing import Any

from weft import runtime
from weft.core import ref_types
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.ref_types import is_ref
from weft.dispatch.calls import signature
from weft.dispatch.calls.function_names import source_of
from weft.dispatch.programs import executables
from weft.dispatch.programs.trace_cache import Trace
from weft.effects.discharge import discharged


def takes_refs(trace: Trace) -> bool:
    """Whether references come into the program from outside."""
    jaxpr = trace.closed.jaxpr
    return any(map(is_ref, (*jaxpr.constvars, *jaxpr.invars)))


def check_distinct(function: Any, trace: Trace, prepared: Any) -> None:
    """ValueError if one reference comes in by two ways."""
    traced, paths = f"{source_of(function)} for jit", functools.partial(signature.leaf_paths, function, prepared.call)
    ref_types.check_distinct(prepared.leaves, paths, traced)
    ref_types.check_not_captured(prepared.leaves, trace.closed.consts, paths, traced)


def run(state: Any, trace: Trace, prepared: Any) -> Any:
    """The result of a call; what it writes is in the references afterwards."""
    check_distinct(state.function, trace, prepared)
    found, values = of_values(trace)
    given = [*trace.closed.consts, *prepared.leaves]
    before = len(found.captured)
    donated = [False] * before + [False] * len(trace.closed.consts) + list(state.donated(prepared))
    for index, x in enumerate(given):
        if is_ref(x):
            donated[before + index] = index in found.written and not x._lent
    return _run(state.compiled(values, tuple(donated)), trace, given)


def compiled_ahead(state: Any, trace: Trace, donated: tuple[bool, ...], place: Any) -> executables.Compiled:
    """The program of values of a trace; it leaves what references hold, since others may hold it when it is called."""
    found, values = of_values(trace)
    return state.compiled(values, (False,) * (len(found.captured) + len(trace.closed.consts)) + donated, place)


def run_compiled(compiled: executables.Compiled, trace: Trace, leaves: list[Any]) -> Any:
    """The result of a call of what ``compiled_ahead`` gives; an array instead of a reference is only read."""
    return _run(compiled, trace, [*trace.closed.consts, *leaves])


def _run(compiled: executables.Compiled, trace: Trace, given: list[Any]) -> Any:
    found, values = of_values(trace)
    leaves = [*found.captured, *[x._value if is_ref(x) else x for x in given]]
    outs = executables.run(compiled, values, leaves, values.closed.in_avals)
    count = len(trace.out_avals)
    for index, value in zip(found.written, outs[count:], strict=True):
        if is_ref(given[index]):
            given[index]._value, given[index]._lent = value, False
    return runtime.tree_unflatten(trace.out_tree, outs[:count])


def of_values(trace: Trace) -> tuple[Any, Trace]:
    """(the discharged program, its trace), both memoised."""
    found = discharged(trace.closed.jaxpr)
    return found, trace.closed.jaxpr.memoize("trace_of_values", lambda _: _trace_of_values(trace, found))


def _trace_of_values(trace: Trace, found: Any) -> Trace:
    tree = runtime.tree_flatten([0] * len(found.jaxpr.outvars))[1]
    return Trace(ClosedJaxpr(found.jaxpr), tree, found.closed.out_avals, trace.name)
