"""A call of a jitted function with a new signature: finds or makes its trace, then runs or records it.

``JitFunction`` (native) answers calls whose signature is in its table. All others come to ``JitState.slow``. It splits
off static arguments, flattens the rest, and finds or makes the trace (``trace_cache``). Then it either records one
``jit`` equation in the program being traced, or compiles, runs, and gives the native side an entry for the next call.
State is changed only after the last step that can fail, so that an exception leaves everything as it was.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from weft import config, errors, runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.caches.cache_keys import TraceKey, trace_key
from weft.core.caches.store import TRACES
from weft.core.caches.weak_table import WeakTable
from weft.core.primitive import Primitive
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import DebugInfo
from weft.core.ref_types import uses_refs
from weft.core.symbolic import sizes
from weft.core.symbolic.sized_programs import Sized
from weft.core.tracing import source_info, tracebacks
from weft.core.tracing import trace as tracing
from weft.dispatch import devices
from weft.dispatch.calls import call_primitive, policies, replay, signature
from weft.dispatch.calls.function_names import function_name, source_of
from weft.dispatch.programs import executables, trace_cache
from weft.dispatch.programs import history as events
from weft.dispatch.programs.trace_cache import FunctionRecord, Trace
from weft.effects import key_reuse

_MOST_ON_DISK = 16  # programs of one code object: thousands of functions or shapes would fill the disk


class Options(NamedTuple):
    """What the user gave to ``jit`` besides the function."""

    roles: signature.Roles = signature.NO_ROLES
    keep_unused: bool = False
    inline: bool = False
    place: int = 0  # where it runs, if the user says so (``devices``)
    shardings: Any = None  # in_shardings and out_shardings, if given: ``sharded_calls.Given``
    required: bool = False  # whether all donations must be used
    checks: str | None = None  # the guards of its programs, whatever the option says


UNSPECIFIED: Any = type("Unspecified", (), {"__repr__": lambda self: "UnspecifiedValue"})()  # an option not given
PLAIN, INLINED = Options(), Options(inline=True)
_forms: dict[Options, int] = {}
SOUGHT: WeakTable[int] = WeakTable()  # code object -> programs that were looked for on disk


class Prepared(NamedTuple):
    """One call with its arguments split, flattened and typed."""

    call: signature.Call
    leaves: list[Any]
    in_tree: Any
    avals: tuple[Any, ...]


class Sought(NamedTuple):
    """The key under which the trace of a call is looked up, and the trace if it was found."""

    record: FunctionRecord
    key: TraceKey
    trace: Trace | None


class _Active(threading.local):
    """The (function, arguments) being traced on this thread, to stop endless recursion."""

    def __init__(self) -> None:
        self.keys: set[Any] = set()


_active = _Active()


def _opened(leaf: Any) -> Any:
    """The array of an object with ``__jax_array__``; other values unchanged."""
    return leaf if not hasattr(leaf, "__jax_array__") else leaf.__jax_array__()


class JitState:
    """The Python half of a jitted function."""

    __slots__ = (
        "__weakref__", "alone", "executables", "form", "function", "hits_before", "kernels", "milliseconds", "name",
        "options", "own", "traces",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function = function
        self.options = options
        # stands for the options in keys
        self.form = 0 if options is PLAIN else _forms.setdefault(options, len(_forms) + 1)
        self.own: bool | None = None  # whether the function is weft's own; None: not yet computed
        self.alone: bool | None = None  # whether it calls no user function
        self.name: str | None = None
        self.hits_before = self.traces = self.executables = 0  # what ``forget`` sets back
        self.milliseconds: dict[str, float] | None = None  # in each stage
        self.kernels = (0, 0, 0)  # built, loaded, reused

    def forget(self, hits: int) -> None:
        """Set the counts back to 0; ``hits`` is the native count, which is never set back."""
        self.hits_before = hits
        self.traces = self.executables = 0
        self.milliseconds = None
        self.kernels = (0, 0, 0)

    def record(self) -> FunctionRecord:
        """The record of the function."""
        return trace_cache.record_of(self.function, self)

    # -- a call the native side does not know -------------------------------------------------------------------------

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Any:
        """Run the call; gives its result and the entry to install for its signature (or None).

        If a native ``caller`` is given, which runs and keeps the program itself, gives the entry alone, unless the
        budget has already dropped it.
        """
        if self.options.checks is not None and config.read("checks") != self.options.checks:
            with check_scopes.checks(self.options.checks):
                return self.slow(args, kwargs, caller)
        current = tracing.state.trace
        try:
            if current is not tracing.EVAL:
                return replay.answer(self, current, args, kwargs), None
            if sizes.opened.all:  # values computed while a program with symbols is traced have numbers
                args, kwargs = sizes.fixed(args), {name: sizes.fixed(value) for name, value in kwargs.items()}
            return policies.answer(self, args, kwargs, caller, runtime.get_config_token())
        except errors.ArrayHolderError as error:
            leaves, tree = runtime.tree_flatten((args, kwargs))
            opened = [_opened(leaf) for leaf in leaves]
            if self.is_own() and caller is None and any(a is not b for a, b in zip(leaves, opened, strict=True)):
                args, kwargs = runtime.tree_unflatten(tree, opened)
                return self.slow(args, kwargs, None)
            tracebacks.filter_exception(error)
            raise
        except Exception as error:
            tracebacks.filter_exception(error)
            raise

    def place(self, prepared: Prepared) -> Any:
        """Where a call runs: where the user said; if nowhere, where its committed arguments are; then on the default.

        A place; a ``sharded_calls.Lying`` for a call over several devices.
        """
        options = self.options
        place = options.place or devices.place_of_call(prepared.leaves)
        if place < 0 or place >> 1 >= devices.SPREAD or options.shardings is not None:
            return place if options.place else lazy.sharded_calls.of_call(self, prepared)
        return place

    def is_own(self) -> bool:
        """Whether the function is weft's own: its misses are not explained, and with ``inline`` it is simply run."""
        own = self.own
        if own is None:
            module = getattr(self.function, "__globals__", {}).get("__name__", "")
            own = self.own = module.startswith("weft.") and not module.startswith("weft.tour.")
        return own

    def calls_own_only(self) -> bool:
        """Whether it is weft's own and calls no user function (as what grad or vmap returns does)."""
        alone = self.alone
        if alone is None:
            alone = self.alone = self.is_own() and _captures_own_only(self.function)
        return alone

    def always_slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> tuple[Any, None]:
        """For static arguments whose position depends on the number of arguments."""
        return self.slow(args, kwargs, None)[0], None

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], accept_structs: bool = False) -> Prepared:
        call = signature.split_call(self.options.roles, args, kwargs)
        leaves, in_tree = runtime.tree_flatten(call[:2])
        avals = signature.leaf_avals(self.function, call, leaves, accept_structs)
        return tuple.__new__(Prepared, (call, leaves, in_tree, avals))  # a third of the time

    # -- traces -------------------------------------------------------------------------------------------------------

    def trace(self, prepared: Prepared) -> Trace:
        """The trace of the function for these arguments: from the caches, or by running the function."""
        if self.options.checks is not None and config.read("checks") != self.options.checks:
            with check_scopes.checks(self.options.checks):
                return self.trace(prepared)
        return self.trace_of(prepared)

    def seek(self, prepared: Prepared) -> Sought:
        """Look up the trace of a call."""
        record = self.record()
        token = runtime.get_config_token()
        key = trace_key(record, prepared.in_tree, prepared.avals, signature.static_key(prepared.call.statics), token)
        return Sought(record, key, TRACES.find(key))

    def trace_of(self, prepared: Prepared) -> Trace:
        """``trace`` under the options of this thread."""
        guards = sizes.keeper((prepared.in_tree, prepared.avals, prepared.call.statics)) if sizes.opened.all else None
        if guards is not None:
            return self._within(guards, prepared)
        record, key, found = self.seek(prepared)
        if found is not None:
            found.found += 1
            return found
        causes = None
        if not self.is_own():
            if config.read("explain_cache_misses"):
                lazy.misses.report(self.function, record, key, prepared.call)
            causes = events.causes_of(self.function, record, key, prepared.call.count)
        found = self.trace_anew(prepared, key, causes)
        if not trace_cache.holds_tracers(found.closed):
            record.store(key, found)
        return found

    def _within(self, guards: sizes.Guards, prepared: Prepared) -> Trace:
        """The trace for the types of one compilation, which keeps it."""
        statics, token = signature.static_key(prepared.call.statics), runtime.get_config_token()
        key = sizes.key_of(trace_key(self.record(), prepared.in_tree, prepared.avals, statics, token))
        found = guards.memo.get(key)
        if found is None:
            found = self.trace_anew(prepared, key)
            if not trace_cache.holds_tracers(found.closed):
                guards.memo[key] = found
        return found

    def trace_anew(self, prepared: Prepared, key: TraceKey, causes: Any = None, plain: Prepared | None = None) -> Trace:
        """Run the function for a call, on traced values. ``plain``: the call with numbers instead of its symbols."""
        name = self.name = self.name or function_name(self.function)
        active = (id(self.function), key)
        if active in _active.keys:
            types = ", ".join(aval.str_short() for aval in prepared.avals)
            raise RecursionError(
                f"[jit] {name} calls itself with arguments of the same types ({types}), so that tracing it cannot end; "
                "use weft.lax.while_loop or fori_loop, or call the undecorated function with a static counter"
            )
        if config.read("no_tracing"):
            raise RuntimeError(f"re-tracing function {source_of(self.function)} for `jit`, but 'no_tracing' is set")
        flat, info, out = flat_function(self.function, prepared)
        if plain is not None:
            info = debug_info(self.function, plain, out)
        calls_back = not self.calls_own_only() or any(callable(value) for _, value in prepared.call.statics)
        source = None if calls_back else source_info.capture(2)
        start = time.perf_counter()
        _active.keys.add(active)
        try:
            closed, out_avals = tracing.trace_to_jaxpr(flat, prepared.avals, info, source)
        finally:
            _active.keys.discard(active)
        elapsed_ms = (time.perf_counter() - start) * 1e3
        if config.keys_watched and key_reuse.enabled():
            key_reuse.check(closed)
        self.traces += 1
        self._spend({"trace": elapsed_ms})
        events.add("trace", name, (plain or prepared).avals, elapsed_ms, causes)
        if config.read("log_compiles"):
            lazy.misses.log_traced(name, closed, elapsed_ms)
        return Trace(closed, out[0], out_avals, name)

    def record_call(self, trace: Trace, prepared: Prepared) -> Any:
        """One ``jit`` equation in the program being traced (or, with ``inline``, the inner equations)."""
        if uses_refs(trace.closed.jaxpr):
            lazy.ref_calls.check_distinct(self.function, trace, prepared)
        lying = self.options.shardings
        leaves = prepared.leaves if lying is None else lazy.sharded_calls.constrained_arguments(self, prepared)
        outs = call_primitive.call(
            trace.closed,
            leaves,
            name=trace.name,
            donated_invars=self.donated(prepared),
            keep_unused=self.options.keep_unused,
            inline=self.options.inline,
        )
        if lying is not None:
            outs = lazy.sharded_calls.constrained_results(lying, trace, outs)
        return runtime.tree_unflatten(trace.out_tree, outs)

    # -- machine code -------------------------------------------------------------------------------------------------

    def donated(self, prepared: Prepared) -> tuple[bool, ...]:
        """Which leaves are donated."""
        if not self.options.roles.donates:
            return (False,) * len(prepared.leaves)
        return lazy.donations.leaves(self.options.roles, prepared.call, prepared.in_tree)

    def compiled(
        self, trace: Trace, donated: tuple[bool, ...], place: Any = 0, sized: Sized | None = None
    ) -> executables.Compiled:
        """Machine code for a trace at a place (see ``place``), made at its first use."""
        if self.options.checks is not None and config.read("checks") != self.options.checks:
            with check_scopes.checks(self.options.checks):
                return self.compiled(trace, donated, place, sized)
        keep = self.options.keep_unused
        code = (donated if any(donated) else (), keep, place)
        found = trace.calls.get(code)
        if found is None:
            where = executables.where_results_lie(trace, place)
            if devices.many_processes() and lazy.process_calls.crosses(trace, place, where):
                found = lazy.process_calls.bind(trace, donated, keep, place, where)
            else:
                own = self.calls_own_only()
                on_disk = not (own or self.options.required) and _may_be_on_disk(self.function)
                found = executables.bind(trace, donated, keep, own, where, sized, on_disk=on_disk)
            trace.add_call(code, found)
            self._count(found.program, trace.name)
        if self.options.required:
            lazy.donations.check_used(trace, donated, found)
        return found

    def _count(self, program: Any, name: str) -> None:
        """Add the time and kernels of a program; nothing if another function had compiled it."""
        self.executables += 1
        stats = program.stats
        built, loaded, reused = stats["kernels_built"], stats["kernels_loaded"], stats["kernels_reused"]
        if program.counted:
            if config.read("log_compiles"):  # the compiler logs programs that it compiles
                lazy.misses.log_reused(name, program)
            self._spend({}, (0, 0, built + loaded + reused))
            return
        program.counted = True
        self._spend(stats["milliseconds"], (built, loaded, reused))
        spent = stats["milliseconds"]
        kind = "load" if "load" in spent else "compile"
        events.add(kind, name, program.in_avals, sum(spent.values()), None, spent, (built, loaded, reused))
        if kind == "load" and config.read("log_compiles"):
            lazy.misses.log_loaded(name, program)

    def _spend(self, milliseconds: dict[str, float], kernels: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Add times of stages, and numbers of kernels built, loaded and reused."""
        spent = self.milliseconds = self.milliseconds or {}
        for stage, elapsed_ms in milliseconds.items():
            spent[stage] = spent.get(stage, 0.0) + elapsed_ms
        before = self.kernels
        self.kernels = (before[0] + kernels[0], before[1] + kernels[1], before[2] + kernels[2])


_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), type, np.dtype, np.generic, Primitive)


def _captures_own_only(value: Any) -> bool:
    """Whether a function of weft's own has captured nothing but constants and such functions."""
    if isinstance(value, _PLAIN_VALUES):
        return True
    if isinstance(value, tuple | frozenset):
        return all(map(_captures_own_only, value))
    value = vars(value).get("__wrapped__") if type(value) is runtime.JitFunction else value
    if type(value) is not FunctionType or not value.__globals__.get("__name__", "").startswith("weft."):
        return False
    return all(_captures_own_only(cell.cell_contents) for cell in value.__closure__ or ())


def _may_be_on_disk(function: Any) -> bool:
    """Whether this is one of the first programs of the user's code."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return True
    count = SOUGHT.get(code) or 0
    SOUGHT.set(code, count + 1)
    return count < _MOST_ON_DISK


def flat_function(function: Callable[..., Any], prepared: Prepared) -> tuple[Callable[..., Any], DebugInfo, list[Any]]:
    """``function`` on flat lists of leaves, its names for error texts, and a list that receives its output tree."""
    statics, count, in_tree = prepared.call.statics, prepared.call.count, prepared.in_tree
    out: list[Any] = [None]
    simple = not statics

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = runtime.tree_unflatten(in_tree, leaves)
        if not simple:
            args, kwargs = signature.join_call(statics, count, args, kwargs)
        result = function(*args, **kwargs)
        flat_result, out[0] = runtime.tree_flatten(result)
        return flat_result

    return flat, debug_info(function, prepared, out), out


def debug_info(function: Callable[..., Any], prepared: Prepared, out: list[Any]) -> DebugInfo:
    """Names for error texts, made when needed; a weak reference to the function, since cached jaxprs hold this."""
    statics, count, in_tree = prepared.call.statics, prepared.call.count, prepared.in_tree
    try:
        reference: Callable[[], Any] = weakref.ref(function)
    except TypeError:
        reference = functools.partial(_same, function)

    def arg_names() -> list[str]:
        args, kwargs = runtime.tree_unflatten(in_tree, list(range(in_tree.num_leaves)))
        return signature.leaf_paths(reference(), signature.Call(args, kwargs, statics, count))

    def result_paths() -> list[str]:
        return signature.tree_paths(out[0]) if out[0] is not None else []

    return DebugInfo("jit", source_of(function), arg_names, result_paths)


def _same(value: Any) -> Any:
    return value
