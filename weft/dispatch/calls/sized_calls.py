"""Calls of weft's own functions with arrays of other sizes than before: answered without a trace and the compiler.

A function of weft's own is traced with symbols for the extents of its operands, and for whole numbers of 16 and more
among its static arguments (``core.symbolic.sizes``). Comparisons of them become guards of its program, as those
of the compiler do. Everything else that can be seen of the arguments decides the class of a call
(``sized_programs.size_class``). The first call of a class is traced and compiled; the compiler's ``Family`` makes the
programs for other sizes from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft import config, dtypes, errors, runtime
from weft._base.record import NamedTuple
from weft.core.caches.store import PROGRAMS, TRACES, Entry
from weft.core.symbolic import sized_programs, sizes
from weft.dispatch import devices
from weft.dispatch.programs import executables, trace_cache

if TYPE_CHECKING:
    from weft.dispatch.calls.jit_calls import JitState, Prepared
    from weft.dispatch.calls.policies import Call
    from weft.dispatch.programs.trace_cache import Trace

_CALL_BYTES = 1000  # measured: a class of calls
_LEAST = 16  # smaller static numbers are most often axes and counts, not extents


class SizedCall(Entry):
    """The calls of one class of sizes: an entry of the trace level."""

    __slots__ = ("family", "kept", "out_tree")
    weight = _CALL_BYTES

    def __init__(self, compiled: executables.Compiled, trace: Trace) -> None:
        self.family = compiled.program.family()
        self.kept, self.out_tree = compiled.kept, trace.out_tree
        self.keys = {}

    def uses(self) -> int:
        return self.family.uses()


class Classified(NamedTuple):
    """A call: the types of its leaves, the key of its class, its sizes, and where it runs."""

    avals: tuple[Any, ...]
    key: Any
    sizes: tuple[int, ...]
    place: int


def from_other_sizes(call: Call) -> Any:
    """The policy of calls that may differ from an earlier one in sizes only: their entry, if their class is known."""
    state = call.state
    if call.caller is None or state.options.roles.donates or config.read("log_compiles"):  # no part of the token
        return None
    prepared = call.prepared = state.prepare(call.args, call.kwargs)
    call.sized = classified(state, prepared, call.token)
    found = None if call.sized is None else entry(call.sized)
    if found is not None:
        state.executables += 1
    return found


def classified(state: JitState, prepared: Prepared, token: int) -> Classified | None:
    """The class of a call; None for operands that are in none."""
    marks, shapes = [], []
    for argument, value in prepared.call.statics:
        extents = _extents(value)
        if extents:
            shapes.append(runtime.ShapedArray(extents, dtypes.bool_))
            marks.append((argument, type(value), _replaced(value, dict.fromkeys(extents))))
        elif callable(value) and not isinstance(value, type):
            return None
        else:
            marks.append((argument, type(value), value))
    avals = prepared.avals
    found = sized_programs.size_class((*avals, *shapes) if shapes else avals)
    place = devices.place_of_call(prepared.leaves)
    if found is None or not found[1] or not devices.compiles_own(place):
        return None
    key = (state.record(), state.form, (found[0], place, prepared.in_tree, *marks), (), token)
    return Classified(avals, key, found[1], place)


def _extents(value: Any) -> tuple[int, ...]:
    """The numbers of a static argument that may be extents: itself, or items of it."""
    parts = value if type(value) is tuple else (value,)
    return tuple([n for n in parts if type(n) is int and n >= _LEAST])


def _replaced(value: Any, symbols: Mapping[int, Any]) -> Any:
    """A static argument with others instead of its ``_extents``."""
    if type(value) is tuple:
        return tuple([symbols[n] if type(n) is int and n >= _LEAST else n for n in value])
    return symbols[value] if type(value) is int and value >= _LEAST else value


def entry(call: Classified) -> Any:
    """The entry of a call of a known class, or None."""
    try:
        known = TRACES.entries.get(call.key)
    except TypeError:  # an unhashable static argument
        return None
    if type(known) is not SizedCall:
        return None
    in_avals = [call.avals[index] for index in known.kept]
    answer = known.family.at(call.sizes, in_avals)
    if answer is None:
        return None
    executable, out_avals, _ = answer
    donated = (False,) * len(in_avals)
    found = runtime.CacheEntry(executable, known.kept, (), known.out_tree, out_avals, donated, call.place)
    made = executables.Runnable(executable)
    made.entry = found
    PROGRAMS.add((known, call.sizes), made)
    return found


def traced(call: Call) -> Trace:
    """The trace of a call, made with symbols unless it is known."""
    state, prepared = call.state, call.prepared
    record, key, found = state.seek(prepared)
    if found is not None or call.sized is None:
        return state.trace_of(prepared)
    guards = sizes.Guards(call.sized.sizes, len(call.sized.sizes))
    made, failed = None, None
    try:
        made = _traced_with(guards, state, prepared, key)
    except Exception as error:  # the function, or what it calls, takes no symbols
        failed = error
    finally:
        if made is None:
            guards.close()
    if made is not None:
        found, call.symbols = made
        record.store(key, found)
        return found
    found = state.trace_of(prepared)  # raises what the user has to see
    if failed is not None:
        if config.read("check"):
            raise failed
        errors.warn(
            f"[jit] {found.name} is traced anew for each size (a bug in weft, please report it): {failed!r}",
            UserWarning,
        )
    return found


def _traced_with(
    guards: sizes.Guards, state: JitState, prepared: Prepared, key: Any
) -> tuple[Trace, sized_programs.Sized] | None:
    """The trace of a call, and its program with symbols; None where sizes would be seen in what is not compiled."""
    given = with_symbols(prepared, dict(zip(guards.numbers, guards.free, strict=True)))
    made = state.trace_anew(given, key, plain=prepared)
    if sizes.has_own_nodes(made.out_tree) or trace_cache.holds_tracers(made.closed):
        return None
    try:
        closed = sized_programs.with_numbers(made.closed)
    except sized_programs.HiddenError:
        return None
    out_avals = list(map(sizes.plain_aval, made.out_avals))
    return trace_cache.Trace(closed, made.out_tree, out_avals, made.name), sized_programs.Sized(made.closed, guards)


def with_symbols(prepared: Prepared, symbols: Mapping[Any, sizes.Size]) -> Prepared:
    """A call with symbols for its sizes."""
    statics = tuple([(argument, _replaced(value, symbols)) for argument, value in prepared.call.statics])
    avals = tuple([sized_programs.sized_aval(aval, symbols) for aval in prepared.avals])
    return prepared._replace(call=prepared.call._replace(statics=statics), avals=avals)


def learn(call: Call, compiled: executables.Compiled) -> None:
    """Keep what the program of a call says of others of its class."""
    if compiled.program.sized is None or call.symbols is None or call.sized is None:
        return
    key, trace = call.sized.key, call.trace
    try:
        known = TRACES.entries.get(key)
    except TypeError:
        return
    if type(known) is not SizedCall:
        known = SizedCall(compiled, trace)
        call.state.record().store(key, known)
    if known.kept == compiled.kept and known.out_tree == trace.out_tree:
        known.family.learn(compiled.program, call.symbols.guards)
