"""Policies that options ask for: calls without jit, guarded transfers, nothing executed, keys and numbers checked."""

from __future__ import annotations

from typing import Any

from weft import runtime
from weft.dispatch.calls.policies import Call
from weft.dispatch.devices import transfers
from weft.effects import key_reuse, number_checks


def without_jit(call: Call) -> Any:
    """``disable_jit``: the function itself runs."""
    return call.state.function(*call.args, **call.kwargs), None


def guarding_transfers(call: Call) -> None:
    """``transfer_guard``: values of the host among the arguments are logged, or forbidden, at every call."""
    call.caller = None  # an entry would not ask again what the arguments are
    guard = transfers.level()
    for leaf in call.state.prepare(call.args, call.kwargs).leaves:
        transfers.check(guard, leaf)


def forbidding_execution(call: Call) -> None:
    """``no_execution``: RuntimeError."""
    raise RuntimeError(f"tried to execute function jit({call.trace.name}), but the no_execution config option is set")


def tracking_keys(call: Call) -> Any:
    """``debug_key_reuse``: a call may not use a random key again, and its keys count as used after it."""
    use = key_reuse.use_program(call.trace.closed, call.prepared.leaves)
    donated = call.state.donated(call.prepared)
    result = _checked(call, donated) if number_checks.enabled() else call.run(donated)
    use.done(runtime.tree_flatten(result)[0])
    return result, None


def checking_numbers(call: Call) -> Any:
    """``debug_nans`` and ``debug_infs``: the program runs, which checks its results."""
    return _checked(call, call.state.donated(call.prepared)), None


def _checked(call: Call, donated: tuple[bool, ...]) -> Any:
    """The checked result; arguments are donated only if the check passes."""
    result = call.run((False,) * len(donated))
    for leaf, given in zip(call.prepared.leaves, donated, strict=True):
        if given and type(leaf) is runtime.Array:
            leaf.delete()
    return result
