"""Calls over several devices: how the arguments must lie, and how the results of a program will.

In: the shardings of the arguments of one call, those that the user gave to ``jit``, and those that the program names
(``sharding_constraint``, ``device_put``). Out: a place for each result, which the dispatch entry keeps, so that a warm
call asks nothing. The program itself is the same as on one device. What nobody said is found by ``propagate``
(``install_propagation``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple
from weft.core import avals as avals_module
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, subjaxprs
from weft.core.shardings import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from weft.dispatch import devices, jit_calls, placement, shardings, signature
from weft.dispatch.function_names import function_name

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
    place = devices.place_of_call(prepared.leaves)
    if place < 0:
        devices.check_same_device(
            function_name(state.function), prepared.leaves, signature.leaf_paths(state.function, prepared.call)
        )
    elif isinstance(devices.sharding_at(place), SingleDeviceSharding):
        return place
    return Lying(_committed(prepared.leaves))


def _committed(leaves: Sequence[Any]) -> tuple[int, ...]:
    return tuple([x.place if type(x) is runtime.Array and x.place & 1 else 0 for x in leaves])


def _given(state: Any, prepared: Any, given: Given) -> int | Lying:
    """The lying of a call of a function with ``in_shardings`` or ``out_shardings``."""
    words = signature.leaf_paths(state.function, prepared.call)
    wanted = _wanted(prepared, given.ins)
    places = list(_committed(prepared.leaves))
    for at, (leaf, sharding, word) in enumerate(zip(prepared.leaves, wanted, words, strict=True)):
        if sharding is None:
            continue
        placement.check_fits(f"pjit arguments with pytree key path {word}", sharding, np.shape(leaf))
        if places[at] and not sharding.is_equivalent_to(devices.sharding_at(places[at]), np.ndim(leaf)):
            text = prepared.avals[at].str_short(short_dtypes=False)
            raise ValueError(
                f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: "
                f"{sharding},\narg sharding: {devices.sharding_at(places[at])} for arg type: {text}"
            )
        places[at] = devices.place_on(sharding)
    outs = given.outs
    if outs is not UNSPECIFIED:
        leaves, tree = runtime.tree_flatten(outs, shardings.is_spec)
        outs = runtime.tree_unflatten(tree, [_resolved(leaf, "out_shardings") for leaf in leaves])
    return Lying(tuple(places), outs if outs is UNSPECIFIED else _Tree(outs))


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


# -- results ----------------------------------------------------------------------------------------------------------

Specs = Sequence[NamedSharding | None]
_Lies = Sequence[Sharding | None]


def places_of_results(trace: Any, place: int | Lying) -> int | tuple[int, ...]:
    """A place for each result of a program, if the call or the program names several devices; else ``place``."""
    named = constraints(trace.closed.jaxpr)
    if isinstance(place, Lying):
        lying = place
    elif named:
        lying = Lying((place if place & 1 else 0,) * len(trace.closed.jaxpr.invars))
    else:
        return place
    ins = [devices.sharding_at(each) if each else None for each in lying.places]
    outs = _given_results(trace, lying)
    everything = [sharding for sharding in (*ins, *outs, *named) if sharding is not None]
    _check_devices(trace, ins, outs, named)
    if not everything:
        return 0
    mesh = next((s.mesh for s in everything if isinstance(s, NamedSharding)), None)
    if mesh is None:
        return devices.place_on(everything[0])
    found = _hooks["propagate"](
        trace.closed, [s if isinstance(s, NamedSharding) else None for s in ins], mesh,
        [s if isinstance(s, NamedSharding) else None for s in outs],
    )  # fmt: skip
    return tuple(
        [
            devices.place_on(given or sharding or NamedSharding(mesh, PartitionSpec()))
            for given, sharding in zip(outs, found, strict=True)
        ]
    )


def places_of_operation(name: str, closed: ClosedJaxpr, args: Sequence[Any], place: int) -> int | tuple[int, ...]:
    """A place for each result of an operation outside of jit, whose operands ask for ``place`` (-1: for several)."""
    if place < 0:
        devices.check_same_device(name, args, [f"args[{index}]" for index in range(len(args))])
    elif isinstance(devices.sharding_at(place), SingleDeviceSharding):
        return place
    places = _committed(args)
    hidden = len(closed.jaxpr.invars) - len(args)
    lying = Lying((0,) * hidden + places)

    def find(jaxpr: Jaxpr) -> Any:
        return places_of_results(_Operation(name, closed, tuple([v.aval for v in jaxpr.outvars])), lying)

    found: int | tuple[int, ...] = closed.jaxpr.memoize(("lying", lying), find)
    return found


class _Operation(NamedTuple):
    """What ``places_of_results`` reads of a trace."""

    name: str
    closed: ClosedJaxpr
    out_avals: tuple[Any, ...]


def _given_results(trace: Any, lying: Lying) -> list[Sharding | None]:
    if lying.outs is UNSPECIFIED:
        return [None] * len(trace.out_avals)
    found = shardings.spread(lying.outs.tree, trace.out_tree, "pjit", "out_shardings", "the function's result")
    for sharding, aval in zip(found, trace.out_avals, strict=True):
        placement.check_fits("pjit outputs", sharding, aval.shape)
    return found


def _check_devices(trace: Any, ins: _Lies, outs: _Lies, named: _Lies) -> None:
    """ValueError if a program would run on several sets of devices."""
    names = trace.closed.jaxpr.debug_info.arg_names if trace.closed.jaxpr.debug_info else None
    labelled = [
        (
            f"argument {names[at] if names else at} of {trace.name} with shape {aval.str_short(short_dtypes=False)}",
            s,
        )
        for at, (s, aval) in enumerate(zip(ins, trace.closed.in_avals, strict=True))
    ]
    labelled += [("explicit output sharding", s) for s in outs]
    labelled += [(f"sharding_constraint inside {trace.name}", s) for s in named]
    known = [(text, s.device_list) for text, s in labelled if s is not None]
    other = next((pair for pair in known if pair[1] != known[0][1]), None)
    if other is not None:
        (first, one), (second, two) = known[0], other
        raise ValueError(
            f"Received incompatible devices for jitted computation. Got {first} and with {devices.on_devices(one)} and "
            f"{second} and with {devices.on_devices(two)}"
        )


def constraints(jaxpr: Jaxpr) -> tuple[Sharding, ...]:
    """The shardings that equations anywhere in a program name."""
    return jaxpr.memoize("constraints", _find_constraints)


def _find_constraints(jaxpr: Jaxpr) -> tuple[Sharding, ...]:
    found = [eqn.params["sharding"] for eqn in jaxpr.eqns if eqn.primitive is shardings.sharding_constraint_p]
    found += [t for t in placement.named_targets(jaxpr) if isinstance(t, NamedSharding) and not t.mesh.empty]
    for inner in subjaxprs(jaxpr):
        found += constraints(inner)
    return tuple(dict.fromkeys([s for s in found if _has_devices(s)]))


def _has_devices(sharding: Sharding) -> bool:
    return not isinstance(sharding, NamedSharding) or hasattr(sharding.mesh, "flat_devices")


# -- propagation ------------------------------------------------------------------------------------------------------


def _alike(closed: ClosedJaxpr, ins: Specs, mesh: Any, outs: Specs) -> list[NamedSharding | None]:
    """The least that can be said: a result with the shape of an operand lies as it does."""
    return _walk(closed.jaxpr, ins)


def _walk(jaxpr: Jaxpr, ins: Specs) -> list[NamedSharding | None]:
    known: dict[Any, NamedSharding | None] = dict(zip(jaxpr.invars, ins, strict=True))
    for eqn in jaxpr.eqns:
        operands = [known.get(atom) if atom.__class__.__name__ == "Var" else None for atom in eqn.invars]
        inner = eqn.primitive.kind.inline(eqn.params) if hasattr(eqn.primitive.kind, "inline") else None
        if "sharding" in eqn.params and isinstance(eqn.params["sharding"], NamedSharding):
            results = [eqn.params["sharding"]]
        elif inner is not None and len(inner.jaxpr.invars) == len(operands):
            results = _walk(inner.jaxpr, operands)
        else:
            results = [_like(out.aval, eqn.invars, operands) for out in eqn.outvars]
        known.update(zip(eqn.outvars, results, strict=True))
    return [known.get(atom) if atom.__class__.__name__ == "Var" else None for atom in jaxpr.outvars]


def _like(aval: Any, atoms: Sequence[Any], operands: Specs) -> NamedSharding | None:
    shape = avals_module.get_aval(aval).shape if not hasattr(aval, "shape") else aval.shape
    for atom, sharding in zip(atoms, operands, strict=True):
        if sharding is not None and atom.aval.shape == shape and sharding.spec.axes():
            return sharding
    return None


_hooks: dict[str, Callable[..., Any]] = {"propagate": _alike}


def install_propagation(propagate: Callable[..., Any]) -> None:
    """Set the function that says how results lie.

    ``propagate(closed, ins, mesh, outs)`` gets a program, the sharding of each argument (None: not said), the mesh, and
    the sharding that the user gave for each result; it gives a NamedSharding of the mesh for each result, or None for
    one that is whole on every device.
    """
    _hooks["propagate"] = propagate
