"""The trace level of the cache: (function object, types of its arguments) -> the jaxpr and its machine code.

A trace belongs to a function object, and goes with it. What the function reads besides its arguments is not looked at
again, as in JAX; a function made anew is traced anew, and finds by its jaxpr what was compiled before.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.core import kinds
from weft.core.caches.budget import BUDGET
from weft.core.caches.cache_keys import TraceKey
from weft.core.caches.store import PROGRAMS, TRACES, Entry
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params

_LATEST_KEYS = 64  # keys of a function that are compared with a new one
_TRACE_BYTES, _EQUATION_BYTES = 3200, 500  # measured: a trace, each equation
_RECORD_BYTES = 1100  # measured: the record of a function, with the structure of a call


class Trace(Entry):
    """One trace of a function: its jaxpr (None if the program came from a file), the results' structure, machine code.

    ``calls`` maps (donated leaves, keep_unused, place) to machine code with its constants bound.
    """

    __slots__ = ("calls", "closed", "found", "name", "out_avals", "out_tree", "weight")

    def __init__(
        self, closed: ClosedJaxpr | None, out_tree: Any, out_avals: Sequence[Any], name: str, nbytes: int = 0
    ) -> None:
        self.closed: Any = closed
        self.out_tree = out_tree
        self.out_avals = tuple(out_avals)
        self.name = name
        self.calls: dict[Any, Any] = {}
        self.keys = {}
        self.found = 0  # how often Python found it again
        self.weight = _TRACE_BYTES + (nbytes if closed is None else _EQUATION_BYTES * equation_count(closed.jaxpr))

    def uses(self) -> int:
        """How often it was found or run."""
        programs = list(self.calls.values())  # a copy: another thread may add one
        return self.found + sum([compiled.program.executable.runs for compiled in programs])

    def add_call(self, code: Any, compiled: Any) -> None:
        """Let calls of a kind be answered by this machine code."""
        self.calls[code] = compiled
        compiled.program.users += 1

    def retire(self, release: Callable[[Any], None] = PROGRAMS.release) -> None:
        """Remove its entries from the dispatch tables, and release its programs."""
        calls, self.calls = self.calls, {}
        for compiled in list(calls.values()):
            if compiled.entry is not None:
                compiled.entry.retire()
            program = compiled.program
            program.users -= 1
            if program.keys and not program.users:
                release(program)


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

    __slots__ = ("__weakref__", "keys", "number")
    __hash__ = object.__hash__  # by identity: the function may compare by content
    __eq__ = object.__eq__

    keys: dict[tuple[Any, ...], None]  # TraceKeys; plain tuples for calls recorded in other programs
    number: int

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


records: dict[int, FunctionRecord] = {}


@runtime.finalizer
def _forget_function(record: FunctionRecord, records: Any = records, remove: Any = TRACES.remove) -> None:
    """As ``retire``; its globals are defaults, since at exit the names of this module may be gone."""
    if records.get(record.number) is record:
        records.pop(record.number, None)
    for key in list(record.keys):
        remove(key)
    record.keys = {}  # its keys refer to the record. Last: where a Ctrl-C ends this function, it runs again


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
    record.number, record.keys = number, {}
    records[number] = record
    BUDGET.keep(record, _RECORD_BYTES, FunctionRecord.retire, FunctionRecord.uses)
    return record


def holds_tracers(closed: ClosedJaxpr) -> bool:
    """Whether the program captured values of an enclosing trace, so that it is valid only there."""
    consts = closed.consts
    return bool(consts) and any(type(value) is not runtime.Array and hasattr(value, "_trace") for value in consts)


def forget() -> None:
    """Drop all traces (``weft.clear_caches``)."""
    TRACES.clear()
    for record in list(records.values()):
        record.clear()
