"""``explain(f, *args)``: what a call of a jitted function would do, found without tracing or running it.

Out: one sentence (found, shared, or traced) and, for a miss, the differences from the nearest earlier call.
"""

from __future__ import annotations

from typing import Any

from weft import config
from weft.higher import function_names, identity, misses, signature, trace_cache
from weft.higher import jit as jit_module


def explain(jitted: Any, *args: Any, **kwargs: Any) -> str:
    """Whether ``jitted(*args, **kwargs)`` would reuse a trace, and if not, why.

    >>> f = weft.jit(lambda x: x * 2)
    >>> y = f(jnp.ones(3))
    >>> print(weft.inspect.explain(f, jnp.ones(4)))
    <lambda> would be traced:
      * different input shape at x, now f32[4] and before f32[3]
    """
    state: jit_module.JitState = jitted._state
    prepared = state.prepare(args, kwargs, accept_structs=True)
    name = function_names.function_name(state.function)
    record = state.record()
    statics = prepared.call.statics
    token = config.token()
    key = (prepared.in_tree, prepared.avals, signature.static_key(statics), token)
    if key in record.traces:
        return f"{name} was traced for these arguments: the call reuses its trace and machine code"
    who = identity.identify(state.function, tuple(value for _, value in statics), prepared.in_tree)
    if isinstance(who, identity.Refusal):
        record.refusal, who = who, None
    elif config.read("share_equal_functions"):
        places = (prepared.in_tree, prepared.avals, tuple(place for place, _ in statics), token)
        if trace_cache.find_shared(who, places) is not None:
            return f"{name} is a new function object, equal to one traced before: the call shares its trace"
    found = misses.reasons(state.function, record, key, prepared.call, who)
    return "\n".join([f"{name} would be traced:", *[f"  * {reason}" for reason in found]])
