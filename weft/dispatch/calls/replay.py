"""Replay: a call that was recorded before is recorded again without running its Python code.

While tracing, a jitted function called on arrays and scalars records the same equations whenever the types, the
scalars, the static arguments and the configuration are the same. ``call_of`` gives a key of these. ``watch`` runs the
function and stores what it recorded in a ``Template``. ``Template.record`` writes the equations with new variables::

    add(a:f32[3], 1)   ->   add 0 1.0:f32[]  =>  1        # operand 0 is the first argument, result 1 the first new one

Templates are entries of the trace level of the cache, found by the function, its options and this key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes, runtime
from weft.core.caches.budget import BUDGET
from weft.core.caches.store import TRACES, Entry
from weft.core.programs.jaxpr import JaxprEqn, Literal, jaxprs_in_params
from weft.core.tracing import source_info
from weft.core.tracing.trace import DynamicJaxprTrace, DynamicJaxprTracer
from weft.dispatch.calls import policies
from weft.dispatch.programs import trace_cache

if TYPE_CHECKING:
    from weft.dispatch.calls.jit_calls import JitState

WATCHED = 3  # the call, counted from 1, that is made a template: for fewer calls it does not pay
_LONGEST = 256  # equations of a template
_MOST_COUNTED = 512  # calls that were made less often, which are forgotten together
_COUNTED_BYTES = 400  # a guess: one with its key
_TEMPLATE_BYTES = 1200  # measured, with one equation and its key

runtime.install_replay(
    frozenset((bool, int, float, complex, *dtypes.SCALAR_TYPES)), frozenset((complex, np.complex64, np.complex128))
)

NONE: list[int] = []  # all operands are traced

Key = tuple[Any, ...]
Step = tuple[Any, dict[str, Any], Any, tuple[Any, ...], tuple[Any, ...]]  # primitive, params, effects, reads, avals


_times: dict[Any, int] = {}  # how often calls without a template were made
BUDGET.enlist(_times.__len__, _COUNTED_BYTES, _times.clear)


def is_due(key: Any) -> bool:
    """Count a call; whether it is made a template now."""
    if len(_times) >= _MOST_COUNTED:
        _times.clear()
    times = _times[key] = _times.get(key, 0) + 1
    if times == WATCHED:
        del _times[key]
    return times == WATCHED


class Template(Entry):
    """The equations of one call. Operands and results are numbers (arguments first, then new variables) or literals.

    ``steps`` is empty if it cannot be replayed.
    """

    __slots__ = ("captured", "results", "steps", "times", "tree")
    weight = _TEMPLATE_BYTES

    def __init__(self) -> None:
        self.times = 0  # how often it was replayed
        self.steps: list[Step] | None = None
        self.captured = NONE  # operands that are arrays with values, in the order in which they become constvars
        self.results: list[tuple[bool, Any]] = []  # (is the argument itself, number or literal)
        self.tree: Any = None  # None: the result is one traced value
        self.keys = {}

    def uses(self) -> int:
        return self.times

    def record(self, trace: DynamicJaxprTrace, operands: list[Any]) -> Any:
        """Append the equations to ``trace`` and return the call's result."""
        atoms: list[Any]
        if self.captured is NONE:
            atoms = [tracer.val for tracer in operands]
        else:
            atoms = [x.val if type(x) is DynamicJaxprTracer else None for x in operands]
            for slot in self.captured:
                atoms[slot] = trace.constant(operands[slot])
        count = len(operands)
        source = source_info.capture(2)
        runtime.replay(trace.eqns, self.steps or [], atoms, source)
        results: list[Any] = []
        for itself, slot in self.results:
            if itself:
                results.append(operands[slot])
                continue
            fresh = type(slot) is int
            atom = atoms[slot] if fresh else slot
            made = source if fresh and slot >= count else None
            results.append(DynamicJaxprTracer(trace, atom.aval, atom, made))
        return results[0] if self.tree is None else runtime.tree_unflatten(self.tree, results)


_records, _traces = trace_cache.records, TRACES.entries  # read at every call under a trace


def answer(state: JitState, current: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call under a trace; replayed if the same call was recorded before."""
    token = runtime.get_config_token()
    call = call_of(current, args, kwargs, state.options.roles, token)
    if call is None:
        return _traced(state, args, kwargs, token)
    known, operands = call
    record = _records.get(id(state.function))
    if record is None or record() is not state.function:
        record = state.record()
    key = (record, state.form, known, (), token)  # a TraceKey in a tenth of the time
    try:
        template = _traces.get(key)
    except TypeError:  # an unhashable static argument
        return _traced(state, args, kwargs, token)
    if template is not None:
        template.times += 1
        return _traced(state, args, kwargs, token) if template.steps is None else template.record(current, operands)
    if not is_due(key) or not policies.chosen(token).replays:
        return _traced(state, args, kwargs, token)
    template = Template()
    record.store(key, template)
    run = functools.partial(_traced, state, args, kwargs, token)
    return watch(template, current, operands, run, not state.is_own())


def _traced(state: JitState, args: tuple[Any, ...], kwargs: dict[str, Any], token: int) -> Any:
    """The result of a call under a trace, without replay."""
    if state.options.inline and state.is_own():
        return state.function(*args, **kwargs)
    return policies.answer(state, args, kwargs, None, token)[0]


def call_of(
    trace: Any, args: tuple[Any, ...], kwargs: dict[str, Any], roles: Any, token: int
) -> tuple[Key, list[Any]] | None:
    """The key of a call under ``trace``, and its distinct operands: traced values of it and arrays.

    None if it holds anything but those, scalars and static arguments, and inside weft's own functions: their traces are
    cached as a whole, so that few of their calls come a third time.
    """
    if type(trace) is not DynamicJaxprTrace or trace.source is not None:
        return None
    return runtime.call_key(trace, token, args, kwargs, roles.static_argnums, roles.static_argnames)


def watch(template: Template, trace: Any, operands: list[Any], run: Callable[[], Any], single: bool) -> Any:
    """The result of ``run()``; the equations it recorded in ``trace`` go into ``template``, if they can be replayed.

    ``single`` asks for one equation on exactly the operands.
    """
    before, constants = len(trace.eqns), len(trace.consts)
    result = run()
    known = all(any(x is operand for operand in operands) for x in trace.consts[constants:])
    if known and len(trace.eqns) - before <= _LONGEST:
        recorded = trace.eqns[before:]
        here = source_info.capture(2)
        if all(eqn.source == here for eqn in recorded):
            _note(template, recorded, trace, operands, result, single)
    return result


def _note(template: Template, eqns: list[JaxprEqn], trace: Any, operands: list[Any], result: Any, single: bool) -> None:
    """Fill the template with ``eqns``, unless they depend on more than the operands."""
    slots = _slots(trace, operands)
    fresh = count = len(operands)
    traced = [type(operand) is DynamicJaxprTracer for operand in operands]
    captured: dict[int, None] = {}
    steps: list[Step] = []
    for eqn in eqns:
        reads = tuple([atom if type(atom) is Literal else slots.get(atom) for atom in eqn.invars])
        if None in reads or is_new_each_time(eqn):
            return
        for read in reads:
            if type(read) is int and read < count and not traced[read]:
                captured[read] = None
        for v in eqn.outvars:
            slots[v] = fresh
            fresh += 1
        steps.append((eqn.primitive, eqn.params, eqn.effects, reads, tuple([v.aval for v in eqn.outvars])))
    if single and (len(eqns) != 1 or sum(type(read) is int for read in steps[0][3]) != count):
        return
    plain = type(result) is DynamicJaxprTracer
    leaves, tree = ([result], None) if plain else runtime.tree_flatten(result)
    results: list[tuple[bool, Any]] = []
    for leaf in leaves:
        if type(leaf) is not DynamicJaxprTracer:
            return
        own = next((slot for slot, operand in enumerate(operands) if operand is leaf), None)
        slot = own if own is not None else leaf.val if type(leaf.val) is Literal else slots.get(leaf.val)
        if slot is None or (type(slot) is int and slot < count and not traced[slot] and slot not in captured):
            return
        results.append((own is not None, slot))
    template.captured = NONE if all(traced) else list(captured)
    template.results, template.tree = results, tree
    template.steps = steps  # last, since from now on it is replayed


def _slots(trace: Any, operands: list[Any]) -> dict[Any, int]:
    """The number of each operand's variable."""
    slots: dict[Any, int] = {}
    for slot, operand in enumerate(operands):
        if type(operand) is DynamicJaxprTracer:
            slots[operand.val] = slot
        elif (constant := trace.const_vars.get(id(operand))) is not None:
            slots[constant] = slot
    return slots


def is_new_each_time(eqn: JaxprEqn) -> bool:
    """Whether running the call does more than record this equation: it warns (complex to real) or makes a new jaxpr."""
    if eqn.primitive.name == "convert_element_type":
        source, target = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
        return isinstance(source, np.dtype) and source.kind == "c" and getattr(target, "kind", "c") != "c"
    return eqn.primitive.name != "jit" and bool(jaxprs_in_params(eqn.params))
