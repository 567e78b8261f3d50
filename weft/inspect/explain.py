"""``explain(f, *args)``: tells what a call of a jitted function would do, without tracing or running it.

Out: one sentence (found, shared, or traced) and, for a miss, the differences from the nearest earlier call.
"""

from __future__ import annotations

from typing import Any

from weft._base import lazy
from weft.dispatch.calls import cache_diagnostics, function_names, jit_calls


def explain(jitted: Any, *args: Any, **kwargs: Any) -> str:
    """Whether ``jitted(*args, **kwargs)`` would reuse a trace, and if not, why.

    >>> f = weft.jit(lambda x: x * 2)
    >>> y = f(jnp.ones(3))
    >>> print(weft.inspect.explain(f, jnp.ones(4)))
    <lambda> would be traced:
      * different input shape at x, now f32[4] and before f32[3]
        cure: pad to a few sizes, or pass arrays of one shape; a new shape costs a trace but reuses machine code
    """
    found_state = getattr(jitted, "_state", None)
    if not isinstance(found_state, jit_calls.JitState):
        raise TypeError(f"[explain] takes a jitted function, got {jitted!r}: weft.inspect.explain(weft.jit(f), x)")
    state: jit_calls.JitState = found_state
    prepared = state.prepare(args, kwargs, accept_structs=True)
    name = function_names.function_name(state.function)
    sought = state.seek(prepared)
    if sought.trace is not None:
        text = f"{name} was traced for these arguments: the call reuses its trace and machine code"
        return "\n".join([text, *_moved(sought.trace, state.place(prepared))])
    found = cache_diagnostics.reasons(state.function, sought.record, sought.key, prepared.call)
    lines = [f"  * {cause.text}\n    cure: {cause.cure}" for cause in found]
    return "\n".join([f"{name} would be traced:", *lines])


def _moved(trace: Any, place: Any) -> list[str]:
    """The collectives of a program over several devices; what is run in one process needs none."""
    lines = lazy.submodule("weft.dispatch.programs.sharding_text").collectives(trace, place)
    return ["cut among the devices of its mesh:", *lines] if lines else []
