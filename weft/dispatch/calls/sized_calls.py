"""Calls of weft's own functions with arrays of other sizes than before: answered without a trace and the compiler.

A function that is marked (``any_size``) promises that what it records depends on extents only by which are 1, and
which are equal: so do broadcasting functions of elements. Operands are then divided into classes by all else that can
be seen of them (``runtime.size_class``). The first call of a class is traced and compiled; from its program the
compiler's ``Family`` makes those for other sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft import config, dtypes, runtime
from weft._base.record import NamedTuple
from weft.core.store import PROGRAMS, TRACES, Entry
from weft.dispatch import devices
from weft.dispatch.programs import executables

if TYPE_CHECKING:
    from weft.dispatch.calls.jit_calls import JitState
    from weft.dispatch.calls.policies import Call
    from weft.dispatch.programs.trace_cache import Trace

_CALL_BYTES = 1000  # measured: a class of calls


class SizedCall(Entry):
    """The calls of one class of sizes: an entry of the trace level."""

    __slots__ = ("family", "in_avals", "kept", "out_tree")
    weight = _CALL_BYTES

    def __init__(self, compiled: executables.Compiled, trace: Trace) -> None:
        self.family = compiled.program.family()
        self.kept, self.out_tree, self.in_avals = compiled.kept, trace.out_tree, compiled.program.in_avals
        self.keys = {}

    def uses(self) -> int:
        return self.family.uses()


class Classified(NamedTuple):
    """A call: its leaves, the key of its class, its sizes, and where it runs."""

    leaves: tuple[Any, ...]
    key: Any
    sizes: tuple[int, ...]
    place: int


def from_other_sizes(call: Call) -> Any:
    """The policy of calls that may differ from an earlier one in sizes only: their entry, if their class is known."""
    state = call.state
    if call.caller is None or config.read("log_compiles"):  # which is no part of the configuration's token
        return None
    call.sized = classified(state, call.args, call.kwargs, call.token)
    found = None if call.sized is None else entry(call.sized)
    if found is not None:
        state.executables += 1
    return found


def classified(state: JitState, args: tuple[Any, ...], kwargs: dict[str, Any], token: int) -> Classified | None:
    """The class of a call; None for operands that are in none."""
    roles, leaves, marks, shapes = state.options.roles, [], [], []
    for number, value in enumerate(args):
        if number in roles.static_argnums or value is None:
            marks.append((type(value), value))
        else:
            leaves.append(value)
            marks.append(None)
    for name in sorted(kwargs) if len(kwargs) > 1 else kwargs:
        value = kwargs[name]
        if name in (state.extents or ()):
            shape = _shape(value)
            if shape is None:
                return None
            shapes.append(shape)
            marks.append((name, type(value)))
        elif name in roles.static_argnames or value is None:
            marks.append((name, type(value), value))
        else:
            leaves.append(value)
            marks.append(name)
    operands = tuple(leaves)
    found = runtime.size_class((*operands, *shapes) if shapes else operands)
    place = devices.place_of_call(operands)
    if found is None or not devices.compiles_own(place):
        return None
    return Classified(operands, (state.record(), state.form, (found[0], place, *marks), (), token), found[1], place)


def _shape(value: Any) -> Any:
    """A type with the extents of a static argument; None for what is not sure to be extents."""
    extents = (value,) if type(value) is int else value
    if type(extents) is not tuple or any(type(n) is not int or n < 0 for n in extents):
        return None
    return runtime.ShapedArray(extents, dtypes.bool_)


def entry(call: Classified) -> Any:
    """The entry of a call of a known class, or None."""
    try:
        known = TRACES.entries.get(call.key)
    except TypeError:  # an unhashable static argument
        return None
    if type(known) is not SizedCall:
        return None
    leaves = call.leaves
    in_avals = [
        leaves[index].aval if type(leaves[index]) is runtime.Array else aval
        for index, aval in zip(known.kept, known.in_avals, strict=True)
    ]
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


def learn(state: JitState, call: Classified, compiled: executables.Compiled, trace: Trace) -> None:
    """Keep what the program of a call says of others of its class."""
    try:
        known = TRACES.entries.get(call.key)
    except TypeError:
        return
    if type(known) is not SizedCall:
        if compiled.consts or any(compiled.donated):
            return
        known = SizedCall(compiled, trace)
        state.record().store(call.key, known)
    known.family.learn(compiled.program, call.sizes)
