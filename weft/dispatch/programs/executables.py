"""Programs that can be run, and traces bound to them: callable from the native side and from Python.

A program is a ``Runnable``, whoever compiled it: at least an executable. All the rest of it may come later: of one that
was made from a like program, or read from disk, it is compiled when somebody asks for it.

In: a ``Trace``, and which of its leaves are donated. Out: ``Compiled``, with the entry that the native side installs
for a signature. Equal programs share machine code in the compiler; constants of the trace become hidden arguments.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft import config, errors, runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.caches.store import Entry
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Var
from weft.core.ref_types import is_ref, uses_refs
from weft.core.symbolic.sized_programs import Sized
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices
from weft.dispatch.calls import signature
from weft.dispatch.devices import placement
from weft.dispatch.programs import constants
from weft.dispatch.programs.trace_cache import Trace
from weft.effects import number_checks

# attributes that a program has when it is compiled
_OF_WHOLE = frozenset(("compiled", "forms", "jaxpr", "kernels", "lowered", "nested", "nests", "plan", "stages"))
_BYTES = 1600  # measured: an executable with its entry
_said: set[str] = set()  # warnings given once in a process


def ignore_compiler_options(options: Any) -> None:
    """Say once that options of another compiler have no effect."""
    if options and "compiler_options" not in _said:
        _said.add("compiler_options")
        errors.warn(
            f"[jit] compiler_options are those of XLA, which weft has not: {sorted(options)} have no effect "
            "(this is said once)",
            UserWarning,
        )


class Runnable(Entry):
    """A program whose ``executable`` takes ``consts`` and then the arguments.

    ``whole()`` is it with all that the compiler knows of it; ``compile_new`` gives that. One without it is machine code
    only. ``nbytes``: what it holds besides the executable.
    """

    name = ""
    source: Any = None  # the program that it was made from, if that is known
    entry: Any = None  # of the dispatch table, if no trace has it
    kin: Any = None  # the family of programs that are like it
    sized: Any = None  # what makes it at other sizes
    places: Any = 0  # of the results, where an operation found them
    users = 0  # traces that run it
    counted = False  # whether the function that compiled it has counted its costs
    kernels_built = kernels_loaded = kernels_reused = 0
    donated: tuple[bool, ...] = ()
    copied: frozenset[int] = frozenset()
    in_avals: tuple[Any, ...] = ()
    out_avals: tuple[Any, ...] = ()
    milliseconds: dict[str, float] = {}  # noqa: RUF012 - of each stage; nobody writes into this one
    compile_new: Callable[[], Any] | None = None
    _whole: Any = None

    def __init__(self, executable: Any = None, consts: tuple[Any, ...] = (), nbytes: int = 0) -> None:
        self.keys = {}
        self.executable, self.consts, self.nbytes = executable, consts, nbytes

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in _OF_WHOLE or self.compile_new is None:
            raise AttributeError(attribute)
        return getattr(self.whole(), attribute)

    def whole(self) -> Any:
        """The program with its plan, compiled now if that is still to be done."""
        if self._whole is None:
            if self.compile_new is None:
                raise NotImplementedError("[as_text] a saved program has machine code only: no forms, no estimates")
            self._whole = self.compile_new()
        return self._whole

    def run(self, operands: Sequence[Any], *how: Any) -> list[Any]:
        """The results; ``how``: the donated operands, and where results lie, as for ``runtime.Executable.run``."""
        return self.executable.run([*self.consts, *operands], *how)

    def with_consts(self, consts: Sequence[Any]) -> Any:
        """The same program for these captured Arrays, which come before those of its own."""
        if not consts:
            return self
        program = type(self).__new__(type(self))
        program.__dict__.update(self.__dict__)
        program.keys = {}
        program.consts = (*consts, *self.consts)
        return program

    def family(self) -> Any:
        """What makes programs at other sizes, once it has learned this one; None: nothing."""
        return self.whole().family()

    def uses(self) -> int:
        """The number of times it was started."""
        return self.executable.runs

    def retire(self) -> None:
        """Take it out of the dispatch tables. Traces keep the programs that they run."""
        if self.entry is not None:
            self.entry.retire()
        if self.kin is not None:
            self.kin.left(self)

    @property
    def weight(self) -> int:
        return _BYTES + self.nbytes

    @property
    def stats(self) -> dict[str, Any]:
        """Milliseconds of each stage, and what the kernel cache answered."""
        return {
            "milliseconds": dict(self.milliseconds),
            "kernels_built": self.kernels_built,
            "kernels_loaded": self.kernels_loaded,
            "kernels_reused": self.kernels_reused,
        }

    def text(self, form: str) -> str:
        """The program in one of its forms."""
        return self.whole().text(form)

    def cost_analysis(self) -> dict[str, float]:
        """Estimates, by name."""
        return self.whole().cost_analysis()

    def memory_analysis(self) -> dict[str, int]:
        """Sizes in bytes, by name."""
        return self.whole().memory_analysis()


class Compiled(NamedTuple):
    """A trace in machine code, as ``dispatch.programs.ahead_of_time`` and the native entry need it."""

    program: Any
    kept: tuple[int, ...]  # the argument leaves that the program reads
    donated: tuple[bool, ...]  # of the kept ones
    consts: tuple[Any, ...]  # hidden arguments, passed first
    entry: Any  # None: each call goes through Python
    place: Any = 0  # where results live (see ``devices``): one for all, or a tuple with each result's


def bind(
    trace: Trace,
    donated: tuple[bool, ...],
    keep_unused: bool,
    shares: bool = False,
    place: Any = 0,
    sized: Sized | None = None,
    anew: bool = False,
    on_disk: bool = False,
) -> Compiled:
    """Machine code for a trace with these leaves donated, on the device of ``place``.

    ``shares``: a result that is an argument is no copy of it. ``anew``: an equal program compiled before is not used.
    ``sized``: the trace with symbols for sizes. ``on_disk``: it may come from an earlier process.
    """
    parts = parameters(trace, donated, keep_unused)
    placement.check_program(parts.closed.jaxpr, place, trace.name)
    backend = devices.backend_at(place)
    if sized is not None:  # constants belong to one size
        closed = parameters(trace, donated, keep_unused, sized.closed).closed
        sized = None if parts.hidden else Sized(closed, sized.guards)
    program = backend.compile(
        parts.closed, name=trace.name, donated=parts.flags, shares=shares, anew=anew, sized=sized, on_disk=on_disk,
    )  # fmt: skip
    hidden = [backend.place(value) for value in parts.hidden]
    consts = (*program.consts, *hidden)
    return bound(program, parts.kept, consts, trace.out_tree, trace.out_avals, parts.donated, place)


class Parameters(NamedTuple):
    """A trace as a compiler gets it: the program, whose first parameters are the hidden arguments."""

    closed: ClosedJaxpr
    hidden: tuple[Any, ...]  # Arrays
    kept: tuple[int, ...]  # the argument leaves that the program reads
    donated: tuple[bool, ...]  # of the kept ones
    flags: tuple[bool, ...]  # donation of all parameters


def parameters(
    trace: Trace, donated: tuple[bool, ...], keep_unused: bool, given: ClosedJaxpr | None = None
) -> Parameters:
    """The program of a trace with its constants as leading parameters, and without arguments that it never reads.

    ``given``: the program in another form.
    """
    closed = given or trace.closed
    if uses_refs(closed.jaxpr):
        if any(map(is_ref, (*closed.jaxpr.constvars, *closed.jaxpr.invars))):
            raise NotImplementedError(
                f"[jit] {trace.name} takes or closes over a mutable array reference, and cannot be compiled ahead of "
                "time: call the jitted function"
            )
        closed = lazy.discharge.pure(closed)
    changed, kept, inner = closed.jaxpr.memoize(_FORMS[keep_unused], _PARAMETERS[keep_unused])
    jaxpr = changed or closed.jaxpr
    kept_donated = (False,) * len(kept)
    if any(donated):
        kept_donated = lazy.donations.of_kept(closed.in_avals, kept, donated, trace.out_avals)
    values = (*closed.consts, *inner)
    hidden = [signature.to_array(value, v.aval) for value, v in zip(values, jaxpr.invars, strict=False)]
    flags = (False,) * len(hidden) + kept_donated
    return Parameters(ClosedJaxpr(jaxpr), tuple(hidden), kept, kept_donated, flags)


def where_results_lie(trace: Trace, place: Any) -> Any:
    """The place of all results of a call that runs at ``place``, or a tuple with that of each."""
    if type(place) is not int or names_shardings(trace.closed.jaxpr):
        places = lazy.sharded_calls.places_of_results(trace, place)
        devices.check_here(places if type(places) is tuple else (places,))
        return places
    return place


def names_shardings(jaxpr: Any) -> bool:
    """Whether equations of a program name shardings, ask for those of values, or call exported functions."""
    exported = sys.modules.get("weft.dispatch.programs.exported_values")
    if exported is not None and exported.counts(jaxpr):
        return True
    if "weft.dispatch.devices.shardings" in sys.modules and lazy.sharded_calls.constraints(jaxpr):
        return True
    shown = sys.modules.get("weft.dispatch.devices.shown_shardings")
    return shown is not None and shown.inspects(jaxpr)


def bound(
    program: Any,
    kept: tuple[int, ...],
    consts: tuple[Any, ...],
    out_tree: Any,
    out_avals: Any,
    donated: tuple[bool, ...],
    place: Any = 0,
) -> Compiled:
    """A program bound to its hidden arguments, with results of these types and structure at a place."""
    entry = None
    if type(program.executable) is runtime.Executable:
        entry = runtime.CacheEntry(program.executable, kept, consts, out_tree, out_avals, donated, place)
    return Compiled(program, kept, donated, consts, entry, place)


def run(compiled: Compiled, trace: Trace, leaves: Sequence[Any], avals: Any) -> Any:
    """Execute on the leaves of one call."""
    if config.execution_watched and config.read("no_execution"):
        raise RuntimeError(f"tried to execute function jit({trace.name}), but the no_execution config option is set")
    operands = list(compiled.consts)
    for index in compiled.kept:
        leaf = leaves[index]
        operands.append(leaf if type(leaf) is runtime.Array else _operand(leaf, avals[index]))
    donated = (False,) * len(compiled.consts) + compiled.donated if any(compiled.donated) else None
    outs = compiled.program.executable.run(operands, donated, compiled.place)
    for index, aval in enumerate(trace.out_avals):
        if type(outs[index]) is runtime.Array and outs[index].aval is not aval:  # compiled for another weak type
            outs[index] = typed(outs[index], aval)
    if trace.closed is not None and number_checks.enabled():
        number_checks.check(outs, trace.closed, leaves, f"jit({trace.name})")
    return runtime.tree_unflatten(trace.out_tree, outs)


def typed(result: Any, aval: Any) -> Any:
    """A result with the type that it has for the user: its own, or that of an array across processes."""
    if result.aval is aval:
        return result
    if result.aval.nbytes == aval.nbytes:
        return runtime.array_alias(result, aval)
    return runtime.array_with_block(aval, result, result.place)


def _operand(leaf: Any, aval: Any) -> Any:
    if isinstance(leaf, Tracer):
        raise tracing.escaped_tracer(leaf)
    return signature.to_array(leaf, aval)


def _parameters(jaxpr: Jaxpr, keep_unused: bool) -> tuple[Jaxpr | None, tuple[int, ...], tuple[Any, ...]]:
    """(program, arguments that are left, constants of inner calls).

    The program has all constants as leading arguments, and no arguments that it never reads; None stands for ``jaxpr``
    itself, which memoises this result.
    """
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
