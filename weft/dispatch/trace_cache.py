"""The trace level of the cache: (function, types of its arguments) -> the jaxpr and its machine code.

A trace is found by the record of the function object and, if the function has an ``identity``, also by that, so that
equal functions share it. A program that came from disk is an entry here too; its jaxpr is made only if it is needed.
Sharing keeps no captured weft Array alive: an ``Outline`` holds them weakly and is dropped with the first of them.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.core import kinds
from weft.core.budget import BUDGET
from weft.core.cache_keys import TraceKey
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params
from weft.core.store import TRACES
from weft.dispatch import code_facts, identity, persistent
from weft.dispatch.identity import Identity, Refusal

_FEW_EQUATIONS = 64  # 50 take 1.1 ms with their kernels; reading a program takes 0.45 ms
_LATEST_KEYS = 64  # keys of a function that are compared with a new one
_TRACE_BYTES, _EQUATION_BYTES = 3200, 500  # measured: a trace, each equation
_RECORD_BYTES = 1100  # measured: the record of a function, with the structure of a call


class Trace:
    """One trace of a function: its jaxpr (None if the program came from disk), the results' structure, machine code.

    ``calls`` maps (donated leaves, keep_unused) to machine code with its constants bound. ``codes`` keeps alive the
    objects that its keys contain by id.
    """

    __slots__ = ("__weakref__", "calls", "closed", "codes", "found", "keys", "name", "out_avals", "out_tree", "weight")

    def __init__(
        self, closed: ClosedJaxpr | None, out_tree: Any, out_avals: Sequence[Any], name: str, nbytes: int = 0
    ) -> None:
        self.closed: Any = closed
        self.out_tree = out_tree
        self.out_avals = tuple(out_avals)
        self.name = name
        self.calls: dict[Any, Any] = {}
        self.codes: tuple[Any, ...] = ()
        self.keys: dict[Any, None] = {}
        self.found = 0  # how often Python found it again
        self.weight = _TRACE_BYTES + (nbytes if closed is None else _EQUATION_BYTES * equation_count(closed.jaxpr))

    def uses(self) -> int:
        """How often it was found or run."""
        programs = list(self.calls.values())  # a copy: another thread may add one
        return self.found + sum([compiled.program.executable.runs for compiled in programs])

    def retire(self) -> None:
        """Remove its entries from the dispatch tables."""
        for compiled in list(self.calls.values()):
            if compiled.entry is not None:
                compiled.entry.retire()


class Outline:
    """A trace with weak references to the Arrays that its function captured."""

    __slots__ = (
        "__weakref__",
        "codes",
        "constants",
        "found",
        "jaxpr",
        "keys",
        "name",
        "out_avals",
        "out_tree",
        "references",
    )

    def __init__(self, trace: Trace, who: Identity, dropped: Callable[[Any], None]) -> None:
        references = {number: weakref.ref(array, dropped) for number, array in who.arrays.items()}
        self.jaxpr = trace.closed.jaxpr
        self.constants = [references.get(id(value), value) for value in trace.closed.consts]
        self.references = list(references.values())  # includes Arrays that the program does not read, for the callbacks
        self.codes = who.codes
        self.out_tree, self.out_avals, self.name = trace.out_tree, trace.out_avals, trace.name
        self.keys: dict[Any, None] = {}
        self.found = 0

    def restore(self) -> Trace | None:
        """The trace with its constants, or None if one is gone."""
        constants = [value() if type(value) is weakref.ref else value for value in self.constants]
        if any(value is None for value in constants):
            return None
        self.found += 1
        closed = ClosedJaxpr(self.jaxpr, constants)
        return Trace(closed, self.out_tree, self.out_avals, self.name)

    @property
    def weight(self) -> int:
        return _TRACE_BYTES + _EQUATION_BYTES * equation_count(self.jaxpr)

    def uses(self) -> int:
        return self.found

    def retire(self) -> None:
        """Nothing to do: it has no dispatch entries."""


def equation_count(jaxpr: Jaxpr) -> int:
    """Number of equations, with those in loops and branches; inner jitted functions have traces of their own."""
    count = len(jaxpr.eqns)
    for eqn in jaxpr.eqns:
        if type(eqn.primitive.kind) is kinds.Higher and eqn.primitive.name != "jit":
            count += sum(equation_count(inner) for inner in jaxprs_in_params(eqn.params))
    return count


# -- functions --------------------------------------------------------------------------------------------------------


class FunctionRecord(weakref.ref[Any]):
    """A function object, held weakly, and the keys of its traces; it is the ``who`` of those keys."""

    __slots__ = ("__weakref__", "keys", "number", "refusal")
    __hash__ = object.__hash__  # by identity: the function may compare by content
    __eq__ = object.__eq__

    keys: dict[tuple[Any, ...], None]  # TraceKeys; plain tuples for calls recorded in other programs
    number: int
    refusal: Refusal | None  # why its latest trace was not looked up by identity

    def store(self, key: tuple[Any, ...], trace: Any) -> None:
        """Let ``trace`` be found under ``key``, one of this function."""
        # remove keys whose traces the budget has dropped
        if len(self.keys) >= 16 and len(self.keys) & (len(self.keys) - 1) == 0:
            self.keys = {known: None for known in list(self.keys) if known in TRACES.entries}
        self.keys[key] = None
        TRACES.add(key, trace)

    def newest(self, count: int) -> list[tuple[Any, ...]]:
        """The keys that were stored last, newest first."""
        while True:
            try:
                return list(itertools.islice(reversed(self.keys), count))
            except RuntimeError:  # another thread has stored one meanwhile
                continue

    def latest_keys(self) -> list[TraceKey]:
        """The keys of traces that exist, newest first, without calls recorded in other programs."""
        return [key for key in self.newest(_LATEST_KEYS) if type(key) is TraceKey and key in TRACES.entries]

    def knows(self, key: TraceKey) -> bool:
        """Whether there is a cheap trace of a call that differs at most in sizes."""
        structure = _structure(key)
        return any(
            _structure(known) == structure and _is_short(TRACES.entries.get(known)) for known in self.latest_keys()
        )

    def uses(self) -> int:
        """How often its traces were found or run."""
        return sum([trace.uses() for key in list(self.keys) if (trace := TRACES.entries.get(key)) is not None])

    def clear(self) -> None:
        """Drop its traces."""
        keys, self.keys = self.keys, {}
        for key in list(keys):
            TRACES.remove(key)

    def retire(self) -> None:
        """Drop the record; the next call of the function makes another."""
        if records.get(self.number) is self:
            records.pop(self.number, None)
        self.clear()


def _is_short(trace: Any) -> bool:
    """Whether tracing and binding it takes about as long as reading it from disk."""
    if trace is None or trace.closed is None or len(trace.closed.eqns) > _FEW_EQUATIONS:
        return False
    count = len(trace.closed.eqns)
    for eqn in trace.closed.eqns:
        if type(eqn.primitive.kind) is kinds.Higher:
            count += sum([len(inner.eqns) for inner in jaxprs_in_params(eqn.params)])
    return count <= _FEW_EQUATIONS


def _structure(key: TraceKey) -> Any:
    return key.in_tree, [(aval.dtype, aval.ndim, aval.weak_type) for aval in key.types], key.statics, key.token


records: dict[int, FunctionRecord] = {}


@runtime.finalizer
def _forget_function(record: FunctionRecord, records: Any = records, remove: Any = TRACES.remove) -> None:
    """As ``retire``; its globals are defaults, since at exit the names of this module may be gone."""
    if records.get(record.number) is record:
        records.pop(record.number, None)
    keys, record.keys = record.keys, {}  # which name the record
    for key in list(keys):
        remove(key)


def record_of(function: Callable[..., Any], owner: Any) -> FunctionRecord:
    """The record of a function object; it is freed with the function, or when the budget drops it.

    For a function without weak references the record refers to ``owner``, the jitted function.
    """
    number = id(function)
    record = records.get(number)
    if record is not None and record() is function:
        return record
    try:
        record = FunctionRecord(function, _forget_function)
    except TypeError:
        number = id(owner)
        record = records.get(number)
        if record is not None and record() is owner:
            return record
        record = FunctionRecord(owner, _forget_function)
    record.number, record.keys, record.refusal = number, {}, None
    records[number] = record
    BUDGET.keep(record, _RECORD_BYTES, FunctionRecord.retire, FunctionRecord.uses)
    return record


# -- equal functions --------------------------------------------------------------------------------------------------


def find_shared(key: TraceKey) -> Trace | None:
    """The trace of an equal function for the same arguments."""
    found = TRACES.find(key)
    if type(found) is not Outline:
        return found
    restored = found.restore()
    if restored is None:
        TRACES.remove(key)
    return restored


def share(who: Identity, key: TraceKey, trace: Trace) -> None:
    """Let equal functions find ``trace``."""
    if not who.arrays:
        trace.codes = who.codes
        TRACES.add(key, trace)
    elif trace.closed is not None and not _inner_constants(trace.closed.jaxpr):

        def dropped(_: Any, key: TraceKey = key, remove: Callable[..., Any] = TRACES.remove) -> None:
            remove(key)

        TRACES.add(key, Outline(trace, who, runtime.finalizer(dropped)))


def _inner_constants(jaxpr: Jaxpr) -> bool:
    """Whether an inner program of ``jaxpr`` holds constants, to which an ``Outline`` cannot refer weakly."""
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(inner, ClosedJaxpr) and (inner.consts or _inner_constants(inner.jaxpr)):
                    return True
                if isinstance(inner, Jaxpr) and _inner_constants(inner):
                    return True
    return False


def holds_tracers(closed: ClosedJaxpr) -> bool:
    """Whether the program captured values of an enclosing trace, so that it is valid only there."""
    consts = closed.consts
    return bool(consts) and any(type(value) is not runtime.Array and hasattr(value, "_trace") for value in consts)


def forget_shared() -> None:
    """Drop what equal functions share, so that a cleared function is traced anew."""
    TRACES.clear(lambda key: type(key[0]) is tuple and type(key[1]) is runtime.PyTreeDef)


def forget() -> None:
    """Drop all traces (``weft.clear_caches``)."""
    TRACES.clear()
    for record in list(records.values()):
        record.clear()
    persistent.forget()
    identity.forget()
    code_facts.forget()
