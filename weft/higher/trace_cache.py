"""The trace cache: a function and the types of its arguments -> the jaxpr.

The first level is keyed by the function object (held weakly), argument tree, avals, static values and options. The
second level, asked if the first has no trace, has the function's ``identity`` in the place of the object. A shared
trace never keeps a captured weft Array alive: it holds such constants weakly, and is dropped when one of them dies.
Traces count in ``core.budget``.
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
from weft.higher import code_facts, identity, persistent
from weft.higher.identity import Identity, Refusal

Key = tuple[Any, ...]  # (in_tree, avals, static_key, config token)

_TRACES_PER_FUNCTION = 4096  # as many as the native table has signatures
_SHARED_TRACES = 1 << 16
_FEW_EQUATIONS = 64  # making a program of 50 equations takes 1.1 ms, reading one from disk 0.45
_ENTRIES = 1 << 12
_TRACE_BYTES, _EQUATION_BYTES = 3500, 500  # measured: a trace with its dispatch entry, each equation
_RECORD_BYTES = 1100  # measured: the record of a function, with the structure of a call
_CALL_BYTES = 600  # of a call by which equal functions are found
_LENT_BYTES = 350  # measured: of a signature in the native table of a function that such a call answered
_LENT_BETWEEN_LOOKS = 256


class Result:
    """What the caches keep of a function for one kind of call: the structure of its results, and machine code.

    ``compiled`` maps (donation, keep_unused) to machine code with its constants bound.
    """

    __slots__ = ("__weakref__", "compiled", "found", "name", "out_avals", "out_tree", "places")

    def __init__(self, out_tree: Any, out_avals: Sequence[Any], name: str) -> None:
        self.out_tree = out_tree
        self.out_avals = tuple(out_avals)
        self.name = name
        self.compiled: dict[Any, Any] = {}
        self.found = 0  # times it was found again by Python
        # (owner of a cache, held weakly; key) for each cache that holds it; empty once it was dropped
        self.places: list[tuple[Any, Any]] | None = None

    def uses(self) -> int:
        """How often it was found or run."""
        programs = list(self.compiled.values())  # at once: another thread may be adding one
        return self.found + sum([compiled.program.executable.runs for compiled in programs])

    def drop(self) -> None:
        """Take it, and its dispatch entries, out of every cache."""
        places, self.places = self.places or (), []
        for reference, key in places:
            owner = reference()
            if owner is not None:
                owner.drop(key, self)
        for compiled in self.compiled.values():
            compiled.entry.retire()

    @property
    def weight(self) -> int:
        """Bytes it takes in the process."""
        raise NotImplementedError

    def placed(self, owner: Any, key: Any) -> None:
        """Note a cache that holds it. The first time the result is entered in the budget."""
        if self.places is None:
            self.places = []
            BUDGET.keep(self, self.weight, Result.drop, Result.uses)
        if len(self.places) > 8 and len(self.places) & (len(self.places) - 1) == 0:
            self.places = [place for place in self.places if place[0]() is not None]
        self.places.append((weakref.ref(owner), key))


class Trace(Result):
    """One trace of a function. ``programs`` holds the machine code of ``compiled``, without constants."""

    __slots__ = ("closed", "programs")

    def __init__(self, closed: ClosedJaxpr, out_tree: Any, out_avals: Sequence[Any], name: str) -> None:
        super().__init__(out_tree, out_avals, name)
        self.closed = closed
        self.programs: dict[Any, Any] = {}

    @property
    def weight(self) -> int:
        return _TRACE_BYTES + _EQUATION_BYTES * equation_count(self.closed.jaxpr)


class Stored(Result):
    """A program from disk, which was not traced. ``codes`` keeps alive the objects that its keys name by id."""

    __slots__ = ("_weight", "codes")

    def __init__(self, out_tree: Any, out_avals: Sequence[Any], name: str, codes: tuple[Any, ...], nbytes: int) -> None:
        super().__init__(out_tree, out_avals, name)
        self.codes = codes
        self._weight = _TRACE_BYTES + nbytes

    @property
    def weight(self) -> int:
        return self._weight


def equation_count(jaxpr: Jaxpr) -> int:
    """Equations of a program with those of its loops and branches; calls of jitted functions are counted elsewhere."""
    count = len(jaxpr.eqns)
    for eqn in jaxpr.eqns:
        if type(eqn.primitive.kind) is kinds.Higher and eqn.primitive.name != "jit":
            count += sum(equation_count(inner) for inner in jaxprs_in_params(eqn.params))
    return count


class FunctionRecord:
    """What is known of one function object."""

    __slots__ = ("__weakref__", "reference", "refusal", "stored", "structures", "traces")

    reference: _Reference

    def __init__(self) -> None:
        self.traces: dict[Key, Trace] = {}
        self.structures: dict[Any, int] = {}  # call without its sizes -> number of short traces that differ in sizes
        self.stored: dict[Key, Stored] = {}
        self.refusal: Refusal | None = None  # why its latest trace was not looked up by identity

    def uses(self) -> int:
        """How often its results were found or run."""
        return sum([result.uses() for result in (*self.traces.values(), *self.stored.values())])

    def retire(self) -> None:
        """Forget the function; its next call makes another record."""
        number = self.reference.number
        if _records.get(number) is self:
            del _records[number]

    def store(self, key: Key, trace: Trace) -> None:
        if len(self.traces) >= _TRACES_PER_FUNCTION:
            place = next(iter(self.traces))
            oldest = self.traces.pop(place)
            for compiled in oldest.compiled.values():
                compiled.entry.retire()
            self._count(place, oldest, -1)
        if key not in self.traces:
            self._count(key, trace, 1)
        self.traces[key] = trace
        trace.placed(self, key)

    def _count(self, key: Key, trace: Trace, more: int) -> None:
        if _is_short(trace.closed.jaxpr):
            structure = _structure(key)
            left = self.structures[structure] = self.structures.get(structure, 0) + more
            if left <= 0:
                del self.structures[structure]

    def knows(self, key: Key) -> bool:
        """Whether there is a short trace of a call that differs in nothing but sizes."""
        return bool(self.structures) and _structure(key) in self.structures

    def store_program(self, key: Key, stored: Stored) -> None:
        self.stored[key] = stored
        stored.placed(self, key)

    def drop(self, key: Key, result: Result) -> None:
        trace = self.traces.get(key)
        if trace is not None and trace is result:
            del self.traces[key]
            self._count(key, trace, -1)
        if self.stored.get(key) is result:
            del self.stored[key]

    def clear(self) -> None:
        self.traces.clear()
        self.stored.clear()
        self.structures.clear()


def _is_short(jaxpr: Jaxpr) -> bool:
    """Whether a program is so short that making it takes no longer than reading one from disk."""
    count = len(jaxpr.eqns)
    if count > _FEW_EQUATIONS:
        return False
    for eqn in jaxpr.eqns:
        if type(eqn.primitive.kind) is kinds.Higher:
            count += sum([len(inner.eqns) for inner in jaxprs_in_params(eqn.params)])
    return count <= _FEW_EQUATIONS


def _structure(key: Key) -> Any:
    in_tree, avals, statics, token = key
    return in_tree, tuple([(aval.dtype, aval.ndim, aval.weak_type) for aval in avals]), statics, token


_records: dict[int, FunctionRecord] = {}


class _Reference(weakref.ref[Any]):
    """A weak reference to a function, with the id under which its record is found."""

    __slots__ = ("number",)
    number: int


def _forget_record(reference: _Reference, forget: Callable[..., Any] = _records.pop) -> None:
    forget(reference.number, None)


def record_of(function: Callable[..., Any]) -> FunctionRecord:
    """The record of a function object; it dies with the function, or when the budget drops it."""
    number = id(function)
    record = _records.get(number)
    if record is not None and record.reference() is function:
        return record
    record = FunctionRecord()
    try:
        record.reference = _Reference(function, _forget_record)
    except TypeError:
        return record  # cannot be referred to weakly: the caller's jitted function owns the record
    record.reference.number = number
    _records[number] = record
    BUDGET.keep(record, _RECORD_BYTES, FunctionRecord.retire, FunctionRecord.uses)
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
        self.stored: dict[Any, Stored] = {}
        self.entries: dict[Key, weakref.ref[Any]] = {}
        self.lent = 0

    def drop(self, place: Any, result: Result) -> None:
        held = self.traces.get(place)
        if held is not None and held.trace is result:
            del self.traces[place]
        if self.stored.get(place) is result:
            del self.stored[place]


_level = _SharedTraces()
_shared = _level.traces
BUDGET.enlist(_level.entries.__len__, _CALL_BYTES, _level.entries.clear)
BUDGET.enlist(runtime.lent_count, _LENT_BYTES, runtime.take_back_lent)


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


def find_program(identity: Identity, key: Key) -> Stored | None:
    """The program from disk that an equal function runs for the same arguments."""
    return _level.stored.get((identity.key, key))


def share_program(identity: Identity, key: Key, stored: Stored) -> None:
    """Let equal functions run ``stored``."""
    _level.stored[identity.key, key] = stored
    stored.placed(_level, (identity.key, key))


def find_call(call: Key) -> Any:
    """The dispatch entry with which ``call``, an identity with the types and options of a call, was answered before.

    It is lent to the function: nothing else is known of one that goes no other way, whose like a loop makes anew.
    """
    _level.lent += 1
    if _level.lent % _LENT_BETWEEN_LOOKS == 0:
        BUDGET.look()
    reference = _level.entries.get(call)
    return None if reference is None else reference()


def share_call(function: Any, who: Identity | None, call: Key, entry: Any) -> None:
    """Answer equal calls by ``entry`` while its program is in the caches.

    Not if the function reads something else by now than when it was looked up as ``who``.
    """
    if who is None or who is not identity.remembered(function):
        return
    if len(_level.entries) >= _ENTRIES:
        _level.entries.clear()
    _level.entries[who, *call] = weakref.ref(entry)


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
    _level.stored.clear()
    _level.entries.clear()


def forget() -> None:
    """Drop all traces (``weft.clear_caches``)."""
    for record in list(_records.values()):
        record.clear()
    forget_shared()
    persistent.forget()
    identity.forget()
    code_facts.forget()
