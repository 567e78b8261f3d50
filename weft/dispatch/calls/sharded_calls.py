"""Calls over several devices: how the arguments must lie, and how the results of a program will.

In: the shardings of the arguments of one call, those that the user gave to ``jit``, and those that the program names
(``sharding_constraint``, ``device_put``). Out: a place for each result, which the dispatch entry keeps, so that a warm
call asks nothing. The program itself is the same as on one device. Where nobody said how a value lies, propagation
finds it (``weft.partitioning``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from weft import runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var, subjaxprs
from weft.core.sharding.shardings import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from weft.dispatch import devices
from weft.dispatch.calls import jit_calls, signature
from weft.dispatch.calls.function_names import function_name
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.dispatch.devices import placement, resharding, shardings
from weft.dispatch.programs import exported_values

UNSPECIFIED = jit_calls.UNSPECIFIED


class Given:
    """What the user gave to ``jit`` as ``in_shardings`` and ``out_shardings``: trees, compared by their leaves."""

    def __init__(self, ins: Any, outs: Any) -> None:
        self.ins, self.outs = ins, outs
        parts = [runtime.tree_flatten(tree, shardings.is_spec) for tree in (ins, outs)]
        for argument, (leaves, _) in zip(("in_shardings", "out_shardings"), parts, strict=True):
            for leaf in leaves:
                if leaf is not UNSPECIFIED and not isinstance(leaf, Sharding | PartitionSpec | None):
                    raise TypeError(
                        f"{argument} leaf specifications are expected to be PartitionSpec instances or None, but got "
                        f"{leaf}"
                    )
        self.says_something = any(
            leaf is not UNSPECIFIED and leaf is not None for leaves, _ in parts for leaf in leaves
        )
        self._key = tuple([(tuple(leaves), tree) for leaves, tree in parts])
        self._hash = hash(self._key)

    def named(self) -> list[Sharding]:
        """The shardings among what was given."""
        return [leaf for leaves, _ in self._key for leaf in leaves if isinstance(leaf, Sharding)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


class Lying(NamedTuple):
    """How one call over several devices lies: the place of each argument leaf (0: anywhere), and what was given."""

    places: tuple[int, ...]
    outs: Any = UNSPECIFIED  # the tree of shardings of the results, specs made shardings


def of_call(state: Any, prepared: Any) -> int | Lying:
    """Where a call runs: a place of one device, or how it lies on several."""
    given: Given | None = state.options.shardings
    if given is not None:
        return _given(state, prepared, given)
    place = state.options.place or devices.place_of_call(prepared.leaves)
    places = _committed(prepared.leaves)
    lists = {devices.sharding_at(each).device_list for each in places if each}
    if len(lists) > 1 and not state.options.place:
        words = signature.leaf_paths(state.function, prepared.call)
        devices.check_same_device(function_name(state.function), prepared.leaves, words)
    if state.options.place or not any(places):
        return place
    one = next(filter(None, places))
    if set(places) <= {0, one} and isinstance(devices.sharding_at(one), SingleDeviceSharding):
        return one
    return Lying(places)


def _committed(leaves: Sequence[Any]) -> tuple[int, ...]:
    """The place of each leaf that is committed to one, or described with a sharding; 0 of others."""
    return tuple([_place_of(x) for x in leaves])


def _place_of(x: Any) -> int:
    if type(x) is runtime.Array:
        return x.place if x.place & 1 else 0
    sharding = getattr(x, "sharding", None) if isinstance(x, ShapeDtypeStruct) else None
    if sharding is None or not has_devices(shardings.concrete(sharding, "jit")):
        return 0
    return devices.place_on(shardings.concrete(sharding, "jit"), described=True)


def _given(state: Any, prepared: Any, given: Given) -> int | Lying:
    """The lying of a call of a function with ``in_shardings`` or ``out_shardings``."""
    words = signature.leaf_paths(state.function, prepared.call)
    wanted = _wanted(prepared, given.ins)
    places = list(_committed(prepared.leaves))
    for at, (leaf, sharding, word) in enumerate(zip(prepared.leaves, wanted, words, strict=True)):
        if sharding is None:
            continue
        placement.check_fits(f"pjit arguments with pytree key path {word}", sharding, np.shape(leaf))
        if devices.many_processes():
            lazy.process_calls.check_leaf(leaf, sharding, word)
        if places[at] and not sharding.is_equivalent_to(devices.sharding_at(places[at]), np.ndim(leaf)):
            text = prepared.avals[at].str_short(short_dtypes=False)
            raise ValueError(
                f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: "
                f"{sharding},\narg sharding: {devices.sharding_at(places[at])} for arg type: {text}"
            )
        places[at] = devices.place_on(sharding, described=True)
    return Lying(tuple(places), _out_tree(given))


def _out_tree(given: Given) -> Any:
    """The tree of ``out_shardings``, specs made shardings, as part of a key."""
    if given.outs is UNSPECIFIED:
        return UNSPECIFIED
    leaves, tree = runtime.tree_flatten(given.outs, shardings.is_spec)
    return _Tree(runtime.tree_unflatten(tree, [_resolved(leaf, "out_shardings") for leaf in leaves]))


class _Tree:
    """A tree of shardings as part of a key."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        leaves, treedef = runtime.tree_flatten(tree, shardings.is_spec)
        self._key = tuple(leaves), treedef

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tree) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _resolved(value: Any, argument: str) -> Sharding | None:
    return None if value is UNSPECIFIED else shardings.concrete(value, "jit", argument)


def _wanted(prepared: Any, ins: Any) -> list[Sharding | None]:
    """For each leaf of the arguments the sharding that ``in_shardings`` names."""
    if ins is UNSPECIFIED:
        return [None] * len(prepared.leaves)
    args, kwargs = prepared.call[:2]
    if kwargs:
        raise ValueError("pjit does not support kwargs when in_shardings is specified.")
    if isinstance(ins, list | tuple) and len(ins) != len(args):
        raise ValueError(
            "pjit in_shardings specification must be a tree prefix of the positional arguments tuple. In particular, "
            "pjit in_shardings must either be a Sharding, a PartitionSpec, or a tuple of length equal to the number of "
            "positional arguments. But pjit in_shardings is the wrong length: got a tuple or list of length "
            f"{len(ins)} for an args tuple of length {len(args)}."
        )
    prefix = tuple(ins) if isinstance(ins, list) else ins
    found = shardings.spread(
        prefix, runtime.tree_structure(args), "pjit", "in_shardings", "the positional arguments tuple"
    )
    return [_resolved(value, "in_shardings") for value in found]


def constrained_arguments(state: Any, prepared: Any) -> list[Any]:
    """The arguments of a call that is recorded in another program, lying as ``in_shardings`` says."""
    wanted = _wanted(prepared, state.options.shardings.ins)
    words = signature.leaf_paths(state.function, prepared.call)
    for leaf, sharding, word in zip(prepared.leaves, wanted, words, strict=True):
        placement.check_fits(f"pjit arguments with pytree key path {word}", sharding, np.shape(leaf))
    return [shardings.constrained(leaf, sharding) for leaf, sharding in zip(prepared.leaves, wanted, strict=True)]


def constrained_results(given: Given, trace: Any, outs: Sequence[Any]) -> list[Any]:
    """The results of a call that is recorded in another program, lying as ``out_shardings`` says."""
    wanted = given_results(trace, Lying((), _out_tree(given)))
    return [shardings.constrained(out, sharding) for out, sharding in zip(outs, wanted, strict=True)]


# -- results ----------------------------------------------------------------------------------------------------------

Specs = Sequence[NamedSharding | None]
_Lies = Sequence[Sharding | None]


def places_of_results(trace: Any, place: int | Lying) -> int | tuple[int, ...]:
    """A place for each result of a program, if the call or the program names several devices; otherwise ``place``."""
    known = known_shardings(trace, place)
    if known is None:
        _tell(trace.closed.jaxpr, lambda variable: devices.sharding_at(place))  # type: ignore[arg-type] - one device
        return place  # type: ignore[return-value] - one device
    ins, outs, named = known
    everything = [sharding for sharding in (*ins, *outs, *named) if sharding is not None]
    check_devices(trace, ins, outs, named)
    if not everything:
        return 0
    device = everything[0].device_list[0]
    if len(everything[0].device_list) == 1 and not devices.is_described(everything[0]) and device.platform != "cpu":
        return device.number << 1 | 1  # the program of one device of a plugin says nothing of shardings
    if _mesh_of(everything) is None:
        _tell(trace.closed.jaxpr, lambda variable: everything[0])
    mesh = next((s.mesh for s in everything if isinstance(s, NamedSharding)), None)
    if mesh is None:
        return devices.place_on(everything[0])
    typed = [said_by_type(aval, mesh) for aval in trace.out_avals]
    wanted = [given or own for given, own in zip(outs, typed, strict=True)]
    if None in wanted or _inspects(trace.closed.jaxpr):
        given = [[s if isinstance(s, NamedSharding) else None for s in each] for each in (ins, wanted)]
        found = _propagated(trace.closed, given[0], mesh, given[1])
        if devices.many_processes():
            ranks = [aval.ndim for aval in trace.out_avals]
            found = [lazy.process_calls.regular(each, ndim) for each, ndim in zip(found, ranks, strict=True)]
        wanted = [known or other for known, other in zip(wanted, found, strict=True)]
    whole = NamedSharding(mesh, PartitionSpec())
    return tuple([devices.place_on(sharding or whole, described=True) for sharding in wanted])


def known_shardings(trace: Any, place: int | Lying) -> tuple[_Lies, list[Sharding | None], _Lies] | None:
    """What is said of arguments, results and values inside; None if nothing lies on several devices."""
    jaxpr = trace.closed.jaxpr
    named, called = constraints(jaxpr), exported_values.counts(jaxpr)
    if isinstance(place, Lying):
        lying = place
    elif named or called:
        lying = Lying((place if place & 1 else 0,) * len(trace.closed.jaxpr.invars))
    else:
        return None
    ins = [devices.sharding_at(each) if each else None for each in lying.places]
    given, said = given_results(trace, lying), _said(jaxpr)
    if called:
        listed = exported_values.checked(jaxpr, (*ins, *given, *named))
        said = [exported_values.on_devices(sharding, listed) for sharding in said]
    return ins, [one or own for one, own in zip(given, said, strict=True)], named


def said_by_type(aval: Any, mesh: Any) -> NamedSharding | None:
    """The sharding that the type of a result says; without one, whole if all axes of the mesh are explicit, or None."""
    sharding = aval.explicit_sharding
    if sharding is not None and sharding.mesh.axis_names == mesh.axis_names:
        return NamedSharding(mesh, sharding.spec)
    return NamedSharding(mesh, PartitionSpec(*[None] * aval.ndim)) if mesh.are_all_axes_explicit else None


def places_of_operation(
    name: str, closed: ClosedJaxpr, args: Sequence[Any], place: int, out: Any = None
) -> int | tuple[int, ...]:
    """A place for each result of an operation outside of jit, whose operands ask for ``place`` (-1: for several).

    ``out``: the types of the results, if these may say how they lie.
    """
    if place < 0:
        devices.check_same_device(name, args, [f"args[{index}]" for index in range(len(args))])
    elif isinstance(devices.sharding_at(place), SingleDeviceSharding) and not constraints(closed.jaxpr):
        return place
    places = _committed(args)
    hidden = len(closed.jaxpr.invars) - len(args)
    lying = Lying((0,) * hidden + places)

    types = tuple([v.aval for v in closed.jaxpr.outvars]) if out is None else out if type(out) is tuple else (out,)

    def find(jaxpr: Jaxpr) -> Any:
        return places_of_results(_Operation(name, closed, types), lying)

    found: int | tuple[int, ...] = closed.jaxpr.memoize(("lying", lying, types), find)
    return found


class _Operation(NamedTuple):
    """What ``places_of_results`` reads of a trace."""

    name: str
    closed: ClosedJaxpr
    out_avals: tuple[Any, ...]


def _inspects(jaxpr: Jaxpr) -> bool:
    shown = sys.modules.get("weft.dispatch.devices.shown_shardings")
    return shown is not None and shown.inspects(jaxpr)


def _tell(jaxpr: Jaxpr, sharding_of: Callable[[Any], Sharding]) -> None:
    """Tell those who asked (``debug.inspect_array_sharding``) how values of a program lie."""
    if _inspects(jaxpr):
        sys.modules["weft.dispatch.devices.shown_shardings"].tell(jaxpr, sharding_of)


def given_results(trace: Any, lying: Lying) -> list[Sharding | None]:
    if lying.outs is UNSPECIFIED:
        return [None] * len(trace.out_avals)
    found = shardings.spread(lying.outs.tree, trace.out_tree, "pjit", "out_shardings", "the function's result")
    for sharding, aval in zip(found, trace.out_avals, strict=True):
        placement.check_fits("pjit outputs", sharding, aval.shape)
    return found


def check_devices(trace: Any, ins: _Lies, outs: _Lies, named: _Lies) -> None:
    """ValueError if a program would run on several sets of devices."""
    lists = [sharding.device_list for sharding in (*ins, *outs, *named) if sharding is not None]
    if any(each != lists[0] for each in lists):
        _refuse_devices(trace, ins, outs, named)


def _refuse_devices(trace: Any, ins: _Lies, outs: _Lies, named: _Lies) -> None:
    info, types = trace.closed.jaxpr.debug_info, trace.closed.in_avals
    names = (info.arg_names if info else None) or ()
    words = names if len(names) == len(types) else range(len(types))
    labelled = [
        (f"argument {word} of {trace.name} with shape {aval.str_short(short_dtypes=False)}", sharding)
        for word, aval, sharding in zip(words, types, ins, strict=True)
    ]
    labelled += [("explicit output sharding", sharding) for sharding in outs]
    labelled += [(f"sharding_constraint inside {trace.name}", sharding) for sharding in named]
    known = [(text, sharding.device_list) for text, sharding in labelled if sharding is not None]
    (first, one), (second, two) = known[0], next(pair for pair in known if pair[1] != known[0][1])
    raise ValueError(
        f"Received incompatible devices for jitted computation. Got {first} and with {devices.on_devices(one)} and "
        f"{second} and with {devices.on_devices(two)}"
    )


def constraints(jaxpr: Jaxpr) -> tuple[Sharding, ...]:
    """The shardings that equations anywhere in a program name."""
    return jaxpr.memoize("constraints", _find_constraints)


def _find_constraints(jaxpr: Jaxpr) -> tuple[Sharding, ...]:
    found = [eqn.params["sharding"] for eqn in jaxpr.eqns if eqn.primitive is shardings.sharding_constraint_p]
    found += [resharding.on_mesh(eqn.params) for eqn in jaxpr.eqns if eqn.primitive is resharding.reshard_p]
    found += [t for t in placement.named_targets(jaxpr) if isinstance(t, NamedSharding) and not t.mesh.empty]
    for eqn in jaxpr.eqns:
        if eqn.primitive.result_shardings is not None:
            found += [sharding for sharding in eqn.primitive.result_shardings(eqn.params) if sharding is not None]
    for inner in subjaxprs(jaxpr):
        found += constraints(inner)
    return tuple(dict.fromkeys([s for s in found if has_devices(s)]))


def _said(jaxpr: Jaxpr) -> list[Sharding | None]:
    """For each result the sharding that the equation that makes it says; also inside calls."""
    known: dict[Any, Sharding | None] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.result_shardings is not None:
            said = list(eqn.primitive.result_shardings(eqn.params))
        elif eqn.primitive is exported_values.exported_value_p:
            said = [eqn.params["sharding"]]
        else:
            held = eqn.params.get("jaxpr") if eqn.primitive.linearize is not None else None
            said = _said(held.jaxpr) if isinstance(held, ClosedJaxpr) else []
        known.update(zip(eqn.outvars, said) if len(said) == len(eqn.outvars) else ())
    return [known.get(atom) if isinstance(atom, Var) else None for atom in jaxpr.outvars]


def has_devices(sharding: Sharding) -> bool:
    """Whether a sharding is over devices, not over an abstract mesh."""
    return not isinstance(sharding, NamedSharding) or hasattr(sharding.mesh, "flat_devices")


# -- programs compiled ahead of time ----------------------------------------------------------------------------------


def _mesh_of(everything: Sequence[Sharding | None]) -> Any:
    return next((s.mesh for s in everything if isinstance(s, NamedSharding)), None)


def input_shardings(arguments: Any) -> list[Sharding]:
    """How the argument leaves of a compiled program lie."""
    if not isinstance(arguments.place, Lying):
        return [devices.sharding_at(arguments.place)] * len(arguments.avals)
    found = [devices.sharding_at(place) if place else None for place in arguments.place.places]
    mesh = _mesh_of(found)
    other = devices.sharding_at(0) if mesh is None else NamedSharding(mesh, PartitionSpec())
    return [other if sharding is None else sharding for sharding in found]


def output_shardings(trace: Any, place: int | tuple[int, ...]) -> list[Sharding]:
    """How the results of a compiled program lie."""
    places = place if isinstance(place, tuple) else (place,) * len(trace.out_avals)
    return [devices.sharding_at(each) for each in places]


def check_arguments(arguments: Any, leaves: Sequence[Any]) -> None:
    """ValueError if committed arguments lie otherwise than those that a program was compiled for."""
    lines = []
    for path, leaf, wanted in zip(arguments.paths(), leaves, input_shardings(arguments), strict=True):
        place = _place_of(leaf)
        own = devices.sharding_at(place)
        if place and not own.is_equivalent_to(wanted, leaf.ndim):
            text = leaf.aval.strip_weak_type().str_short(short_dtypes=False)
            lines.append(f"Argument {path} with shape {text}:\n  Passed sharding: {own}\n  Required sharding: {wanted}")
    if lines:
        raise ValueError(
            "Computation was compiled for input shardings that disagree with the shardings of arguments passed to it. "
            f"Here are the {len(lines)} mismatches:\n" + "\n".join(lines)
        )


# -- propagation ------------------------------------------------------------------------------------------------------


def _propagated(closed: ClosedJaxpr, ins: Specs, mesh: Any, outs: Specs) -> list[NamedSharding | None]:
    """The sharding of each result, found from those of arguments, of constraints and of given results."""
    partitioning = lazy.submodule("weft.partitioning")
    sizes = dict(mesh.shape_tuple)
    given = [[plain_spec(sharding, sizes) for sharding in each] for each in (ins, outs)]
    shown = sys.modules.get("weft.dispatch.devices.shown_shardings")
    with nullcontext() if shown is None else shown.kept():
        program, known = partitioning.propagated(closed, sizes, *given)
    whole = NamedSharding(mesh, PartitionSpec())
    _tell(program.closed.jaxpr, lambda v: whole if isinstance(v, Literal) else _named(mesh, known.of(v)) or whole)
    found = []
    for atom, given in zip(program.closed.jaxpr.outvars, closed.out_avals, strict=True):
        found.append(None if isinstance(atom, Literal) else _named(mesh, known.of(atom)[: given.ndim]))
    return found


def plain_spec(sharding: NamedSharding | None, sizes: dict[Any, int]) -> Any:
    """A spec as plain data; None for a sharding of other axes."""
    if sharding is None or any(sizes.get(axis) != size for axis, size in sharding.mesh.shape_tuple):
        return None
    return sharding.spec.partitions


def _named(mesh: Any, spec: Any) -> NamedSharding | None:
    entries = [axes or None for axes in spec]
    while entries and entries[-1] is None:
        entries.pop()
    return NamedSharding(mesh, PartitionSpec(*entries)) if entries else None
