"""The trace cache: a function and the types of its arguments -> the jaxpr.

First level: the function object by weak reference, argument tree, avals, static values and configuration. Second
level, for what the first has not: ``identity`` in place of the object. A shared trace never keeps a captured weft
Array alive: it holds such constants weakly and is dropped with the first of them. Traces count in ``core.budget``.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.core import kinds
from weft.core.budget import BUDGET
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params
from weft.higher import code_facts, identity
from weft.higher.identity import Identity, Refusal

Key = tuple[Any, ...]  # (in_tree, avals, static_key, config token)

_TRACES_PER_FUNCTION = 4096  # as many as the native table has signatures
_SHARED_TRACES = 1 << 16
_TRACE_BYTES, _EQUATION_BYTES = 4500, 850  # measured: a trace with its dispatch entry, each equation


class Trace:
    """One trace of a function: the program and the structure of its results.

    ``programs`` maps (donation, keep_unused) to machine code, which knows no constants; ``compiled`` to the same with
    the constants of this trace bound.
    """

    __slots__ = (
        "__weakref__", "closed", "compiled", "found", "name", "out_avals", "out_tree", "places", "programs",
    )  # fmt: skip

    def __init__(self, closed: ClosedJaxpr, out_tree: Any, out_avals: Sequence[Any], name: str) -> None:
        self.closed = closed
        self.out_tree = out_tree
        self.out_avals = tuple(out_avals)
        self.name = name
        self.compiled: dict[Any, Any] = {}
        self.programs: dict[Any, Any] = {}
        self.found = 0  # times it was found again by Python
        self.places: list[tuple[Any, Any]] | None = None  # who holds it (weakly: a dict's owner) under which key

    def uses(self) -> int:
        """How often it was found or run."""
        return self.found + sum([compiled.program.executable.runs for compiled in self.compiled.values()])

    def drop(self) -> None:
        """Take it, and its dispatch entries, out of every cache."""
        for reference, key in self.places or ():
            owner = reference()
            if owner is None:
                continue
            held = owner.traces.get(key)
            if held is self or (held is not None and held.trace is self):
                del owner.traces[key]
        for compiled in self.compiled.values():
            compiled.entry.retire()

    def placed(self, owner: Any, key: Any) -> None:
        """Note a holder; the first time, the trace joins the budget."""
        if self.places is None:
            self.places = []
            nbytes = _TRACE_BYTES + _EQUATION_BYTES * equation_count(self.closed.jaxpr)
            BUDGET.keep(self, nbytes, Trace.drop, Trace.uses)
        if len(self.places) > 8 and len(self.places) & (len(self.places) - 1) == 0:
            self.places = [place for place in self.places if place[0]() is not None]
        self.places.append((weakref.ref(owner), key))


def equation_count(jaxpr: Jaxpr) -> int:
    """Equations of a program with those of its loops and branches; calls of jitted functions are counted elsewhere."""
    count = len(jaxpr.eqns)
    for eqn in jaxpr.eqns:
        if type(eqn.primitive.kind) is kinds.Higher and eqn.primitive.name != "jit":
            count += sum(equation_count(inner) for inner in jaxprs_in_params(eqn.params))
    return count


class FunctionRecord:
    """What is known of one function object."""

    __slots__ = ("__weakref__", "reference", "refusal", "traces")

    def __init__(self) -> None:
        self.traces: dict[Key, Trace] = {}
        self.refusal: Refusal | None = None  # why its latest trace was not looked up by identity
        self.reference: Any = None

    def store(self, key: Key, trace: Trace) -> None:
        if len(self.traces) >= _TRACES_PER_FUNCTION:
            oldest = self.traces.pop(next(iter(self.traces)))
            for compiled in oldest.compiled.values():
                compiled.entry.retire()
        self.traces[key] = trace
        trace.placed(self, key)


_records: dict[int, FunctionRecord] = {}


def record_of(function: Callable[..., Any]) -> FunctionRecord:
    """The record of a function object; it dies with the function."""
    number = id(function)
    record = _records.get(number)
    if record is not None and record.reference() is function:
        return record
    record = FunctionRecord()
    try:
        record.reference = weakref.ref(function, lambda _, number=number, forget=_records.pop: forget(number, None))
    except TypeError:
        return record  # cannot be referred to weakly: the caller's jitted function owns the record
    _records[number] = record
    return record


# -- second level -----------------------------------------------------------------------------------------------------


class _Shared:
    """A trace found by identity. ``constants`` and ``program_constants`` hold captured Arrays weakly."""

    __slots__ = ("constants", "identity", "references", "trace", "weak_trace")

    def __init__(self, identity: Identity, trace: Trace, dropped: Callable[[Any], None]) -> None:
        self.identity = Identity(identity.key, {}, identity.codes)
        self.references = {number: weakref.ref(array, dropped) for number, array in identity.arrays.items()}
        self.weak_trace: Any = None
        self.trace: Trace | None = None
        self.constants: list[Any] = []
        if not identity.arrays:
            self.trace = trace
        elif _inner_constants(trace.closed.jaxpr):
            self.weak_trace = weakref.ref(trace)
        else:
            self.constants = [self.references.get(id(value), value) for value in trace.closed.consts]
            empty = ClosedJaxpr.__new__(ClosedJaxpr)
            empty.jaxpr, empty.consts = trace.closed.jaxpr, []
            self.trace = Trace(empty, trace.out_tree, trace.out_avals, trace.name)
            self.trace.programs = trace.programs

    def restore(self) -> Trace | None:
        """The trace with its constants, or None if it is gone."""
        if self.weak_trace is not None:
            return self.weak_trace()
        trace = self.trace
        if trace is None or not self.references:  # complete: its constants were made while tracing
            return trace
        constants = [value() if type(value) is weakref.ref else value for value in self.constants]
        if any(value is None for value in constants):
            return None
        closed = ClosedJaxpr(trace.closed.jaxpr, constants)
        restored = Trace(closed, trace.out_tree, trace.out_avals, trace.name)
        restored.programs = trace.programs
        return restored


def _inner_constants(jaxpr: Jaxpr) -> bool:
    """Whether a program inside ``jaxpr`` holds constants, which cannot be made weak from here."""
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(inner, ClosedJaxpr) and (inner.consts or _inner_constants(inner.jaxpr)):
                    return True
                if isinstance(inner, Jaxpr) and _inner_constants(inner):
                    return True
    return False


class _SharedTraces:
    """The second level, a holder of traces as a FunctionRecord is."""

    def __init__(self) -> None:
        self.traces: OrderedDict[Any, _Shared] = OrderedDict()


_level = _SharedTraces()
_shared = _level.traces


def find_shared(identity: Identity, key: Key) -> Trace | None:
    """The trace of an equal function for the same arguments."""
    place = (identity.key, key)
    shared = _shared.get(place)
    if shared is None:
        return None
    trace = shared.restore()
    if trace is None:
        _shared.pop(place, None)
    return trace


def share(identity: Identity, key: Key, trace: Trace) -> None:
    """Let equal functions find ``trace``."""
    place = (identity.key, key)

    def dropped(_: Any, place: Any = place, forget: Any = _shared.pop) -> None:
        forget(place, None)

    shared = _shared[place] = _Shared(identity, trace, dropped)
    if shared.trace is not None:
        shared.trace.placed(_level, place)
    while len(_shared) > _SHARED_TRACES:
        _shared.popitem(last=False)


def holds_tracers(closed: ClosedJaxpr) -> bool:
    """Whether the program captured values of an enclosing trace, so that it is valid only there."""
    consts = closed.consts
    return bool(consts) and any(type(value) is not runtime.Array and hasattr(value, "_trace") for value in consts)


def forget_shared() -> None:
    """Drop the second level, so that a cleared function is traced anew."""
    _shared.clear()


def forget() -> None:
    """Drop all traces (``weft.clear_caches``)."""
    for record in list(_records.values()):
        record.traces.clear()
    _shared.clear()
    identity.forget()
    code_facts.forget()
