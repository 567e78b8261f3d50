"""jit: a Python function in, a native callable out, and what happens when that callable meets new arguments.

``JitFunction`` (native) answers calls whose signature it has seen. Everything else comes to ``JitState.slow``: split
off static arguments, flatten, find or make the trace (``trace_cache``), and then either record one ``jit`` equation
in the program being traced, or compile, run, and hand the native side an entry for the next call. State is changed
only after the step that can fail, so that an exception leaves everything as it was.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from weft import config, errors, runtime
from weft.core import source_info, tracebacks
from weft.core import trace as tracing
from weft.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, Var
from weft.core.tracer import Tracer
from weft.higher import (
    calls,
    constants,
    devices,
    donations,
    identity,
    known_calls,
    misses,
    number_checks,
    persistent,
    replay,
    signature,
    trace_cache,
)
from weft.higher.function_names import function_name, source_of
from weft.record import NamedTuple

_hooks: dict[str, Callable[..., Any]] = {}


def install_compiler(compile_jaxpr: Callable[..., Any]) -> None:
    """Set what turns a program into machine code; ``weft/__init__`` does, from ``compiler``."""
    _hooks["compile"] = compile_jaxpr


class Options(NamedTuple):
    """What the user gave to ``jit`` besides the function."""

    roles: signature.Roles = signature.NO_ROLES
    keep_unused: bool = False
    inline: bool = False


PLAIN = Options()


class CacheInfo(NamedTuple):
    """What the caches of one jitted function did since it was made or last cleared; ``milliseconds`` is per stage."""

    hits: int
    traces: int
    executables: int  # a program that came whole from disk is one too; it has no trace
    kernels_built: int  # by LLVM
    kernels_loaded: int  # from disk
    kernels_reused: int
    milliseconds: dict[str, float]


class Compiled(NamedTuple):
    """A trace in machine code: what ``higher.stages`` and the native entry need."""

    program: Any
    kept: tuple[int, ...]  # the argument leaves it takes
    donated: tuple[bool, ...]  # of the kept ones
    consts: tuple[Any, ...]  # hidden arguments, passed first
    entry: Any


class Prepared(NamedTuple):
    """One call, ready to be looked up: arguments apart, flattened and typed."""

    call: signature.Call
    leaves: list[Any]
    in_tree: Any
    avals: tuple[Any, ...]


class _Active(threading.local):
    """The (function, arguments) being traced on this thread, to stop endless recursion."""

    def __init__(self) -> None:
        self.keys: set[Any] = set()


_active = _Active()


# where the trace of a call stands, what the function is beside equal ones, what those are called with, and the trace
_Sought = tuple[
    trace_cache.FunctionRecord, trace_cache.Key, identity.Identity | None, trace_cache.Key, trace_cache.Trace | None
]


class JitState:
    """The Python half of a jitted function."""

    __slots__ = (
        "__weakref__", "executables", "function", "hits_before", "known", "name", "options", "own", "traces",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function = function
        self.options = options
        self.own: bool | None = None  # whether the function is weft's, once that was asked
        self.known: known_calls.KnownCalls | None = None  # from its first call on, until the budget drops it
        self.name: str | None = None
        self.hits_before = 0
        self.traces = 0
        self.executables = 0

    def calls(self) -> known_calls.KnownCalls:
        """What is known of the calls so far."""
        return self.known or known_calls.begin(self)

    def record(self) -> trace_cache.FunctionRecord:
        """The record of the function."""
        known = self.calls()
        if known.record is None:
            known.record = trace_cache.record_of(self.function)
        return known.record

    def forget(self, hits: int) -> None:
        """Drop what was recorded and start the counts anew; ``hits`` is the native count, which never goes back."""
        self.known = None
        self.hits_before = hits
        self.traces = 0
        self.executables = 0

    # -- a call the native side does not know -------------------------------------------------------------------------

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Any:
        """Run the call; gives its result and the entry to install for its signature (or None).

        To a native ``caller``, which runs what it is given and keeps it, the entry of its program alone, unless the
        budget has dropped that already; in a tuple if an equal function was called so before, whose entry is lent.
        """
        current = tracing.state.trace
        try:
            if current is not tracing.EVAL:
                return self._recorded(current, args, kwargs), None
            return self._slow(args, kwargs, caller)
        except Exception as error:
            tracebacks.filter_exception(error)
            raise

    def _recorded(self, current: tracing.Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call under a trace. One that was recorded before is replayed."""
        token = runtime.get_config_token()
        call = replay.call_of(current, args, kwargs, self.options.roles, token)
        if call is None:
            return self._traced(args, kwargs)
        templates = self.calls().templates
        template = replay.find(templates, call)
        if template is None:
            return self._traced(args, kwargs)
        if type(template) is replay.Template:
            return template.record(call.trace, call.operands)
        if template and _flags(token)[1]:
            return replay.watch(templates, call, self._traced, args, kwargs, not self.is_own())
        return self._traced(args, kwargs)

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same without what is known of other calls."""
        if self.options.inline and self.is_own():
            return self.function(*args, **kwargs)
        return self._slow(args, kwargs, None)[0]

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Any:
        token = runtime.get_config_token()
        if _flags(token)[0]:
            return self.function(*args, **kwargs), None
        prepared = self.prepare(args, kwargs)
        plain = caller is not None and self.options is PLAIN
        who = identity.remembered(self.function) if plain else None
        call = (prepared.in_tree, prepared.avals, token, config.version())
        entry = None if who is None else trace_cache.find_call((who, *call))
        if entry is not None:
            return (entry,)
        sought = self._seek(prepared)
        trace, request = sought[-1], None
        if trace is None:
            stored, request = self._untraced(prepared, sought)
            if stored is not None:
                compiled = next(iter(stored.compiled.values()))
                if plain:
                    trace_cache.share_call(self.function, sought[2], call, compiled.entry)
                return self._answer(compiled, stored, prepared, caller)
        warned = errors.warnings_given()
        if trace is None:
            trace = self._trace_unknown(prepared, sought)
        if tracing.is_tracing():
            return self.record_call(trace, prepared), None
        for leaf in prepared.leaves:
            if isinstance(leaf, Tracer) and leaf._trace.valid:  # inside ensure_compile_time_eval
                with tracing.set_current(leaf._trace):
                    return self.record_call(trace, prepared), None
        if trace_cache.holds_tracers(trace.closed):
            raise next(tracing.escaped_tracer(value) for value in trace.closed.consts if isinstance(value, Tracer))
        donated = self.donated(prepared)
        if number_checks.enabled():
            return self._run_checked(trace, prepared, donated), None
        compiled = self.compiled(trace, donated)
        if request is not None and errors.warnings_given() == warned:
            persistent.keep(request, trace, compiled)
        if plain:
            trace_cache.share_call(self.function, sought[2], call, compiled.entry)
        return self._answer(compiled, trace, prepared, caller)

    def _keeps(self, caller: Any) -> bool:
        """Whether the budget knows of what is installed in ``caller`` from now on."""
        known = self.calls()
        known.jitted = weakref.ref(caller)
        return self.known is known

    def _answer(self, compiled: Compiled, result: trace_cache.Result, prepared: Prepared, caller: Any) -> Any:
        if caller is not None and result.places and self._keeps(caller):
            return compiled.entry
        return run(compiled, result, prepared.leaves, prepared.avals), None

    def _run_checked(self, trace: trace_cache.Trace, prepared: Prepared, donated: tuple[bool, ...]) -> Any:
        """A call whose results are looked at; its arguments are given away only once they are fine."""
        compiled = self.compiled(trace, (False,) * len(donated))
        result = run(compiled, trace, prepared.leaves, prepared.avals)
        for leaf, given in zip(prepared.leaves, donated, strict=True):
            if given and type(leaf) is runtime.Array:
                leaf.delete()
        return result

    def is_own(self) -> bool:
        """Whether the function is weft's: it is not explained, and with ``inline`` it is simply run."""
        own = self.own
        if own is None:
            module = getattr(self.function, "__globals__", {}).get("__name__", "")
            own = self.own = module.startswith("weft.") and not module.startswith("weft.tour.")
        return own

    def calls_own_only(self) -> bool:
        """Whether it is weft's, and not what grad or vmap made of a function of the user's."""
        return self.is_own() and not getattr(self.function, "__closure__", None)

    def always_slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> tuple[Any, None]:
        """For static arguments whose place depends on the length of the call."""
        return self.slow(args, kwargs, None)[0], None

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], accept_structs: bool = False) -> Prepared:
        call = signature.split_call(self.options.roles, args, kwargs)
        leaves, in_tree = runtime.tree_flatten(call[:2])
        avals = signature.leaf_avals(self.function, call, leaves, accept_structs)
        return tuple.__new__(Prepared, (call, leaves, in_tree, avals))  # a third of the time

    # -- traces -------------------------------------------------------------------------------------------------------

    def trace(self, prepared: Prepared) -> trace_cache.Trace:
        """The trace of the function for these arguments: from the caches, or by running the function."""
        sought = self._seek(prepared)
        trace = sought[-1]
        return self._trace_unknown(prepared, sought) if trace is None else trace

    def _seek(self, prepared: Prepared) -> _Sought:
        """What this process knows of a call: its trace, or the identity under which other functions may have one."""
        record = self.record()
        token = runtime.get_config_token()
        key = (prepared.in_tree, prepared.avals, signature.static_key(prepared.call.statics), token)
        found = record.traces.get(key)
        if found is not None:
            found.found += 1
            return record, key, None, (), found
        record.refusal = None
        if self.is_own() or not config.read("share_equal_functions"):
            return record, key, None, (), None
        who, places = self._identify(prepared, token)
        if isinstance(who, identity.Refusal):
            record.refusal = who
            return record, key, None, (), None
        found = trace_cache.find_shared(who, places)
        if found is not None:
            record.store(key, found)
        return record, key, who, places, found

    def _identify(self, prepared: Prepared, token: Any) -> tuple[identity.Identity | identity.Refusal, trace_cache.Key]:
        """What the function is, and what equal functions are called with."""
        statics = prepared.call.statics
        where, values = zip(*statics, strict=True) if statics else ((), ())
        who = identity.identify(self.function, values, prepared.in_tree)
        return who, (prepared.in_tree, prepared.avals, where, token)

    def _trace_unknown(self, prepared: Prepared, sought: _Sought) -> trace_cache.Trace:
        """A new trace, for this function and for those that are equal to it."""
        record, key, who, places, _ = sought
        if config.read("explain_cache_misses") and not self.is_own():
            misses.report(self.function, record, key, prepared.call, who)
        found = self._trace_anew(prepared, key)
        if not trace_cache.holds_tracers(found.closed):
            record.store(key, found)
            if who is not None:
                trace_cache.share(who, places, found)
        return found

    def _trace_anew(self, prepared: Prepared, key: trace_cache.Key) -> trace_cache.Trace:
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
        calls_back = not self.calls_own_only() or any(callable(value) for _, value in prepared.call.statics)
        source = None if calls_back else source_info.capture(2)
        start = time.perf_counter()
        _active.keys.add(active)
        try:
            closed, out_avals = tracing.trace_to_jaxpr(flat, prepared.avals, info, source)
        finally:
            _active.keys.discard(active)
        elapsed_ms = (time.perf_counter() - start) * 1e3
        self.traces += 1
        self._spend({"trace": elapsed_ms})
        if config.read("log_compiles"):
            misses.log_traced(name, closed, elapsed_ms)
        return trace_cache.Trace(closed, out[0], out_avals, name)

    def record_call(self, trace: trace_cache.Trace, prepared: Prepared) -> Any:
        """One ``jit`` equation in the program being traced (or, with ``inline``, the inner equations)."""
        outs = calls.call(
            trace.closed,
            prepared.leaves,
            name=trace.name,
            donated_invars=self.donated(prepared),
            keep_unused=self.options.keep_unused,
            inline=self.options.inline,
        )
        return runtime.tree_unflatten(trace.out_tree, outs)

    # -- programs on disk ---------------------------------------------------------------------------------------------

    def _untraced(
        self, prepared: Prepared, sought: _Sought
    ) -> tuple[trace_cache.Stored | None, persistent.Request | None]:
        """The program of a call that this process need not trace, or the request under which to keep what it makes."""
        if tracing.is_tracing() or not persistent.usable() or self.calls_own_only():
            return None, None
        record, key, who, places, _ = sought
        code = (self.donated(prepared), self.options.keep_unused)
        found = record.stored.get((*key, code))
        if found is not None:
            found.found += 1
            return found, None
        if who is None and self.is_own():  # what grad or vmap made of a function
            who, places = self._identify(prepared, key[-1])
        if not isinstance(who, identity.Identity) or any(isinstance(leaf, Tracer) for leaf in prepared.leaves):
            return None, None
        found = trace_cache.find_program(who, (*places, code))
        if found is None:
            request = persistent.request(who, prepared.in_tree, prepared.avals, (places[2], *code))
            if request is None or record.knows(key):
                return None, request
            found = self._from_disk(request, prepared, code, who.codes)
            if found is None:
                return None, request
            if not who.arrays:  # which sharing must not keep alive
                trace_cache.share_program(who, (*places, code), found)
        record.store_program((*key, code), found)
        return found, None

    def _from_disk(
        self, request: persistent.Request, prepared: Prepared, code: tuple[Any, bool], codes: tuple[Any, ...]
    ) -> trace_cache.Stored | None:
        """A program that an earlier process has made for this call."""
        start = time.perf_counter()

        def build(program: Any, out_avals: tuple[Any, ...], out_tree: Any, kept: tuple[int, ...]) -> trace_cache.Stored:
            donated = donations.of_kept(prepared.avals, kept, code[0], out_avals)
            entry = runtime.CacheEntry(program.executable, kept, program.consts, out_tree, out_avals, donated)
            made = trace_cache.Stored(out_tree, out_avals, function_name(self.function), codes, program.nbytes)
            made.compiled[code] = Compiled(program, kept, donated, program.consts, entry)
            return made

        found = persistent.find(request, build)
        if found is None:
            return None
        elapsed_ms = (time.perf_counter() - start) * 1e3
        program = found.compiled[code].program
        self.executables += 1
        self._spend({"load": elapsed_ms}, (0, program.kernels_loaded, program.kernels_reused))
        if config.read("log_compiles") or (config.read("explain_cache_misses") and not self.is_own()):
            misses.log_loaded(found.name, prepared.avals, program.kernels_loaded, elapsed_ms)
        return found

    # -- machine code -------------------------------------------------------------------------------------------------

    def donated(self, prepared: Prepared) -> tuple[bool, ...]:
        """Which leaves are donated."""
        if not self.options.roles.donates:
            return (False,) * len(prepared.leaves)
        return donations.leaves(self.options.roles, prepared.call, prepared.in_tree)

    def compiled(self, trace: trace_cache.Trace, donated: tuple[bool, ...]) -> Compiled:
        """Machine code for a trace, made at its first use."""
        key = (donated, self.options.keep_unused)
        found = trace.compiled.get(key)
        if found is not None:
            return found
        program = trace.programs.get(key)
        changed, kept, inner = trace.closed.jaxpr.memoize(_FORMS[key[1]], _PARAMETERS[key[1]])
        jaxpr = changed or trace.closed.jaxpr
        nothing = (False,) * len(kept)
        kept_donated = (
            donations.of_kept(trace.closed.in_avals, kept, donated, trace.out_avals) if any(donated) else nothing
        )
        values = (*trace.closed.consts, *inner)
        hidden = [signature.to_array(value, v.aval) for value, v in zip(values, jaxpr.invars, strict=False)]
        if program is None:
            flags = (False,) * len(hidden) + kept_donated
            program = _hooks["compile"](ClosedJaxpr(jaxpr), name=trace.name, donated=flags)
            trace.programs[key] = program
            if program.counted and config.read("log_compiles"):  # the compiler logs those it makes
                misses.log_reused(trace.name, program)
            self._count(program)
        consts = (*program.consts, *hidden)
        entry = runtime.CacheEntry(program.executable, kept, consts, trace.out_tree, trace.out_avals, kept_donated)
        found = trace.compiled[key] = Compiled(program, kept, kept_donated, consts, entry)
        return found

    def _count(self, program: Any) -> None:
        """Add a program's costs; one that another function had compiled cost nothing here."""
        self.executables += 1
        stats = program.stats
        built, loaded, reused = stats["kernels_built"], stats["kernels_loaded"], stats["kernels_reused"]
        if program.counted:
            self._spend({}, (0, 0, built + loaded + reused))
            return
        program.counted = True
        self._spend(stats["milliseconds"], (built, loaded, reused))

    def _spend(self, milliseconds: dict[str, float], kernels: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Add to the times of stages, and to the numbers of kernels built, loaded and reused."""
        known = self.calls()
        spent = known.milliseconds
        for stage, elapsed_ms in milliseconds.items():
            spent[stage] = spent.get(stage, 0.0) + elapsed_ms
        before = known.statistics
        known.statistics = (before[0] + kernels[0], before[1] + kernels[1], before[2] + kernels[2])


def flat_function(function: Callable[..., Any], prepared: Prepared) -> tuple[Callable[..., Any], DebugInfo, list[Any]]:
    """``function`` on flat lists of leaves, what error texts say of it, and a cell for its output tree."""
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
    """Names for error texts, made when asked for; refers to the function weakly, since cached jaxprs keep it."""
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


def run(compiled: Compiled, trace: trace_cache.Result, leaves: Sequence[Any], avals: Any) -> Any:
    """Execute on the leaves of one call."""
    operands = list(compiled.consts)
    for index in compiled.kept:
        leaf = leaves[index]
        operands.append(leaf if type(leaf) is runtime.Array else _operand(leaf, avals[index]))
    if any(compiled.donated):
        donated = (False,) * len(compiled.consts) + compiled.donated
        outs = compiled.program.executable.run(operands, donated)
    else:
        outs = compiled.program.executable.run(operands)
    for index, aval in enumerate(trace.out_avals):
        if outs[index].aval is not aval:  # the program was compiled for another weak type
            outs[index] = runtime.array_alias(outs[index], aval)
    if number_checks.enabled() and isinstance(trace, trace_cache.Trace):
        number_checks.check(outs, trace.closed, leaves, f"jit({trace.name})")
    return runtime.tree_unflatten(trace.out_tree, outs)


def _operand(leaf: Any, aval: Any) -> Any:
    if isinstance(leaf, Tracer):
        raise tracing.escaped_tracer(leaf)
    return signature.to_array(leaf, aval)


_known_flags: dict[int, tuple[bool, bool]] = {}


def _flags(token: int) -> tuple[bool, bool]:
    """(jit is disabled, calls may be replayed) under a configuration."""
    found = _known_flags.get(token)
    if found is None:
        disabled = config.read("disable_jit")
        replays = not disabled and config.read("numpy_rank_promotion") != "warn"  # a warning is due at every call
        found = _known_flags[token] = (disabled, replays)
    return found


def _parameters(jaxpr: Jaxpr, keep_unused: bool) -> tuple[Jaxpr | None, tuple[int, ...], tuple[Any, ...]]:
    """(the program with all its constants as leading arguments and without the arguments it never reads, None if that
    is ``jaxpr``, which holds the answer; which arguments are left; the values of the constants of inner calls)."""
    kept = tuple(range(len(jaxpr.invars)))
    if not keep_unused:
        unused = dict.fromkeys(jaxpr.invars)
        for atoms in (*[eqn.invars for eqn in jaxpr.eqns], jaxpr.outvars):
            for atom in atoms:
                if isinstance(atom, Var):
                    unused.pop(atom, None)
        kept = tuple([index for index, v in enumerate(jaxpr.invars) if v not in unused])
    lifted = constants.lifted(jaxpr)
    if not lifted.jaxpr.constvars and len(kept) == len(jaxpr.invars):
        return None, kept, ()
    invars = [*lifted.jaxpr.constvars, *[jaxpr.invars[index] for index in kept]]
    return lifted.jaxpr.replace(constvars=[], invars=invars), kept, lifted.values


_FORMS = {False: "parameters_used", True: "parameters_all"}
_PARAMETERS = {
    False: functools.partial(_parameters, keep_unused=False),
    True: functools.partial(_parameters, keep_unused=True),
}


# -- the public function ----------------------------------------------------------------------------------------------

_UNSPECIFIED: Any = type("Unspecified", (), {"__repr__": lambda self: "UnspecifiedValue"})()


def jit(
    fun: Callable[..., Any] = _UNSPECIFIED,
    /,
    *,
    in_shardings: Any = _UNSPECIFIED,
    out_shardings: Any = _UNSPECIFIED,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Any = None,
) -> Any:
    """Compile ``fun`` at its first call for each structure, shape and dtype of its arguments.

    ``static_argnums`` / ``static_argnames`` are part of the cache key by value and must be hashable; each is inferred
    from the other. Donated arguments may not be used after the call. Without ``fun``, gives a decorator.

    >>> @weft.jit
    ... def norm(x):
    ...     return jnp.sqrt(jnp.sum(x * x))
    >>> norm(jnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    >>> norm.cache_info().traces
    1
    """
    if fun is _UNSPECIFIED:
        return functools.partial(
            jit, in_shardings=in_shardings, out_shardings=out_shardings, static_argnums=static_argnums,
            static_argnames=static_argnames, donate_argnums=donate_argnums, donate_argnames=donate_argnames,
            keep_unused=keep_unused, device=device, backend=backend, inline=inline,
            compiler_options=compiler_options,
        )  # fmt: skip
    if not callable(fun) or getattr(getattr(fun, "__code__", None), "co_flags", 0) & _NO_FUNCTION:
        check_callable(fun)
    placed = device is not None or backend is not None or compiler_options is not None
    if placed or in_shardings is not _UNSPECIFIED or out_shardings is not _UNSPECIFIED:
        _check_placement(device, backend, (in_shardings, out_shardings), compiler_options)
    roles = signature.NO_ROLES
    if not (static_argnums is static_argnames is donate_argnums is donate_argnames is None):
        roles = signature.resolve_roles(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    plain = roles is signature.NO_ROLES and not keep_unused and not inline
    options = PLAIN if plain else Options(roles, bool(keep_unused), bool(inline))
    state = JitState(fun, options)
    if roles.static_argnums and roles.static_argnums[0] < 0:  # counted from the end of *args: never seen natively
        jitted = runtime.JitFunction(state.always_slow, (), ())
    else:
        jitted = runtime.JitFunction(state.slow, roles.static_argnums, roles.static_argnames)
    jitted.__dict__ = _attributes(fun, state)
    return jitted


def _attributes(fun: Callable[..., Any], state: JitState) -> dict[str, Any]:
    """What a jitted function has of its function's attributes, and what is its own."""
    own = getattr(fun, "__dict__", None)
    if type(fun) is FunctionType and not own and fun.__doc__ is None is not fun.__module__:  # in half the time
        return {
            "__module__": fun.__module__, "__name__": fun.__name__, "__qualname__": fun.__qualname__,
            "__wrapped__": fun, "_state": state,
        }  # fmt: skip
    attributes = dict(own or ())
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(fun, name, None)
        if value is not None:
            attributes[name] = value
    return {**attributes, "__wrapped__": fun, "_state": state}


_NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE


def check_callable(fun: Any) -> None:
    """jit and its relatives take functions that can be called on arrays: no generators, no coroutines."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise TypeError(f"Expected a function, got a generator function: {fun}")
    if flags & inspect.CO_COROUTINE:
        raise TypeError(f"Expected a function, got a coroutine function: {fun}")


def _check_placement(device: Any, backend: Any, shardings: tuple[Any, Any], compiler_options: Any) -> None:
    if device is not None and backend is not None:
        raise ValueError(f"can't specify both a device and a backend for jit, got {device=} and {backend=}")
    devices.check_backend(backend)
    devices.as_device(device)
    for sharding in shardings:
        if sharding is not _UNSPECIFIED:
            for leaf in runtime.tree_flatten(sharding)[0]:
                devices.as_device(leaf)
    if compiler_options:
        raise NotImplementedError(f"[jit] compiler_options are XLA's; weft has none of {sorted(compiler_options)}")


# -- methods of jitted functions --------------------------------------------------------------------------------------

_clear_native = runtime.JitFunction.clear_cache


def _clear_cache(jitted: Any) -> None:
    """Forget what was traced and compiled for this function; ``cache_info()`` counts from 0 again."""
    _clear_native(jitted)
    state = vars(jitted).get("_state")
    if state is not None:
        state.record().clear()
        state.forget(jitted.hits)
    trace_cache.forget_shared()


def _cache_info(jitted: Any) -> CacheInfo:
    """Counts of cache hits, traces, executables and kernels of this function, and milliseconds per stage.

    A program that an earlier process left on disk counts as an executable and its kernels as loaded; it was not traced,
    and its one stage is ``load``.
    What is dropped to stay within ``cache_bytes`` takes its kernel counts and milliseconds along.
    As with ``functools.lru_cache``, ``clear_cache`` (and ``weft.clear_caches``) sets all of them back to 0.
    """
    state = jitted._state
    known = state.calls()
    built, loaded, reused = known.statistics
    return CacheInfo(
        jitted.hits - state.hits_before,
        state.traces,
        state.executables,
        built,
        loaded,
        reused,
        dict(known.milliseconds),
    )


def _identity_options(jitted: Any) -> Any:
    """What of the options counts for function identity."""
    return jitted._state.options


def _repr(jitted: Any) -> str:
    return f"<PjitFunction of {vars(jitted).get('__wrapped__')!r}>"


def _rebuild(function: Any, options: Options) -> Any:
    roles = options.roles
    return jit(
        function, static_argnums=roles.static_argnums or None, static_argnames=roles.static_argnames or None,
        donate_argnums=roles.donate_argnums or None, donate_argnames=roles.donate_argnames or None,
        keep_unused=options.keep_unused, inline=options.inline,
    )  # fmt: skip


def _reduce(jitted: Any) -> str | tuple[Any, ...]:
    """By its name where that is what a decorator left there, else by its function and options."""
    function = jitted.__wrapped__
    name = getattr(function, "__qualname__", "")
    place: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in name.split("."):
        place = getattr(place, part, None)
    return name if place is jitted else (_rebuild, (function, jitted._state.options))


def install_methods(**methods: Callable[..., Any]) -> None:
    """Give the native type its Python methods (``higher.stages`` adds trace, lower and eval_shape)."""
    for name, method in methods.items():
        setattr(runtime.JitFunction, name, method)


install_methods(
    clear_cache=_clear_cache,
    cache_info=_cache_info,
    identity_options=_identity_options,
    _cache_size=runtime.JitFunction.cache_size,
    __repr__=_repr,
    __reduce__=_reduce,
)


def clear_caches() -> None:
    """Forget every trace and executable of every jitted function; their ``cache_info()`` counts from 0 again."""
    for jitted in runtime.jit_functions():
        _clear_native(jitted)
        state = vars(jitted).get("_state")
        if state is not None:
            state.forget(jitted.hits)
    trace_cache.forget()
    for hook in _clear_hooks:
        hook()


_clear_hooks: list[Callable[[], None]] = []


def on_clear_caches(hook: Callable[[], None]) -> None:
    """Have ``clear_caches`` call ``hook`` too: what the compiler keeps, and modules that are loaded later."""
    _clear_hooks.append(hook)
