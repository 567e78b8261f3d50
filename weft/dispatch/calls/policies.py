"""Who answers a call that the native table does not know: policies, asked in turn until one has an answer.

Options choose which policies there are, once for each configuration: those that watch calls (``watched_calls``) are
loaded when an option asks for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft import config
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.ref_types import uses_refs
from weft.core.symbolic.sized_programs import Sized
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import sized_calls
from weft.dispatch.devices import transfers
from weft.dispatch.programs import executables, trace_cache
from weft.effects import key_reuse, number_checks

if TYPE_CHECKING:
    from weft.dispatch.calls.jit_calls import JitState, Prepared
    from weft.dispatch.programs.trace_cache import Trace


class Call:
    """A call on its way from one policy to the next."""

    __slots__ = ("args", "caller", "kwargs", "place", "prepared", "sized", "state", "symbols", "token", "trace")

    def __init__(self, state: JitState, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any, token: int) -> None:
        self.state, self.args, self.kwargs = state, args, kwargs
        self.caller = caller  # the native function, which runs and keeps an entry by itself; None: it gets the result
        self.token = token  # of the configuration
        self.sized: sized_calls.Classified | None = None
        self.symbols: Sized | None = None  # its trace with symbols for sizes
        self.prepared: Prepared  # from ``recorded`` on, as the others
        self.place: Any
        self.trace: Trace

    def run(self, donated: tuple[bool, ...]) -> Any:
        """The result of the program with these leaves donated."""
        compiled = self.state.compiled(self.trace, donated, self.place)
        return executables.run(compiled, self.trace, self.prepared.leaves, self.prepared.avals)


Policy = Callable[[Call], Any]  # (result, entry), the entry alone for a caller, or None: another answers


class Chosen(NamedTuple):
    """What the options of a configuration choose."""

    policies: tuple[Policy, ...]
    of_own: tuple[Policy, ...]  # for weft's own functions, which are traced with symbols for sizes
    replays: bool  # whether a call may be recorded without running its function


_chosen: dict[int, Chosen] = {}


def chosen(token: int) -> Chosen:
    """The choice of a configuration, by its token."""
    found = _chosen.get(token)
    if found is None:
        disabled = config.read("disable_jit")
        wanted = (
            *_watched("without_jit", disabled), *_watched("guarding_transfers", transfers.level() is not None),
            recorded, *_watched("forbidding_execution", config.read("no_execution")),
            with_refs, *_watched("tracking_keys", key_reuse.enabled()),
            *_watched("checking_numbers", number_checks.enabled()), compiled,
        )  # fmt: skip
        is_plain = wanted == (recorded, with_refs, compiled) and not config.read("checks")
        of_own = (sized_calls.from_other_sizes, *wanted) if is_plain else wanted
        # a warning about ranks is due at every call
        replays = not disabled and config.read("numpy_rank_promotion") != "warn"
        found = _chosen[token] = Chosen(wanted, of_own, replays)
    return found


def _watched(name: str, wanted: bool) -> tuple[Policy, ...]:
    return (getattr(lazy.submodule("weft.dispatch.calls.watched_calls"), name),) if wanted else ()


def answer(state: JitState, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any, token: int) -> Any:
    """The answer of the first policy that has one: the result and the entry to install, or the entry alone."""
    call, choice = Call(state, args, kwargs, caller, token), chosen(token)
    try:
        for policy in choice.of_own if state.calls_own_only() else choice.policies:
            found = policy(call)
            if found is not None:
                return found
    finally:
        if call.symbols is not None:
            call.symbols.guards.close()
    raise AssertionError("the last policy answers every call")


def recorded(call: Call) -> Any:
    """Under a trace, and for traced arguments, a call is an equation. Finds the trace of the others."""
    state = call.state
    if call.sized is None:
        call.prepared = state.prepare(call.args, call.kwargs)
    prepared = call.prepared
    if tracing.is_tracing():
        return state.record_call(state.trace_of(prepared), prepared), None
    call.place = state.place(prepared)
    trace = call.trace = state.trace_of(prepared) if call.sized is None else sized_calls.traced(call)
    for leaf in prepared.leaves:
        if isinstance(leaf, Tracer) and leaf._trace.valid:  # inside ensure_compile_time_eval
            with tracing.set_current(leaf._trace):
                return state.record_call(trace, prepared), None
    if trace_cache.holds_tracers(trace.closed):
        raise next(tracing.escaped_tracer(value) for value in trace.closed.consts if isinstance(value, Tracer))
    return None


def with_refs(call: Call) -> Any:
    """A function of mutable references runs on what they hold."""
    if not uses_refs(call.trace.closed.jaxpr) or not lazy.ref_calls.takes_refs(call.trace):
        return None
    if type(call.place) is not int or call.place > 1:
        raise NotImplementedError(f"[jit] {call.trace.name} takes mutable array references, which live on the CPU")
    return lazy.ref_calls.run(call.state, call.trace, call.prepared), None


def compiled(call: Call) -> Any:
    """All other calls are answered by machine code."""
    state, trace, prepared = call.state, call.trace, call.prepared
    found = state.compiled(trace, state.donated(prepared), call.place, call.symbols)
    if call.symbols is not None:
        sized_calls.learn(call, found)
    if call.caller is not None and trace.keys and found.entry is not None:
        return found.entry
    return executables.run(found, trace, prepared.leaves, prepared.avals), None
