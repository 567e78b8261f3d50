"""How a traced function lies on several devices, for programs that other compilers read.

In: a traced function, and how its arguments lie. Out: a NamedSharding, or None, for each argument and result, and the
mesh of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import NamedSharding, Sharding
from weft.dispatch import devices
from weft.dispatch.calls import sharded_calls
from weft.dispatch.calls.sharded_calls import Lying


class LoweredShardings(NamedTuple):
    """What is said of arguments and results; without a mesh of devices there may still be abstract ones inside.

    ``is_for_host``: for no devices of a plugin, so that the program may call what the host's processor has.
    """

    ins: tuple[NamedSharding | None, ...]
    outs: tuple[NamedSharding | None, ...]
    mesh: Any = None
    is_for_host: bool = True

    @property
    def n_devices(self) -> int:
        """The number of devices; 0 if none are named."""
        return 0 if self.mesh is None else self.mesh.size


def of_trace(trace: Any, place: Any) -> LoweredShardings:
    """The shardings of a traced function; ValueError if it names several lists of devices."""
    said, types = [_by_type(aval) for aval in trace.closed.in_avals], [_by_type(aval) for aval in trace.out_avals]
    known = sharded_calls.known_shardings(trace, place)
    if known is None:
        calls_library = kinds.External in devices.backend_at(place).step_kinds
        return LoweredShardings(tuple(said), tuple(types), is_for_host=calls_library)
    given_ins, given_outs, named = known
    sharded_calls.check_devices(trace, given_ins, given_outs, named)
    outs = sharded_calls.given_results(trace, place) if isinstance(place, Lying) else [None] * len(types)
    meshes = [s.mesh for s in map(_named, (*given_ins, *given_outs, *named)) if s is not None]
    return LoweredShardings(
        tuple([_named(given) or own for given, own in zip(given_ins, said, strict=True)]),
        tuple([_named(given) or own for given, own in zip(outs, types, strict=True)]),
        meshes[0] if meshes else None,
    )


def of_parameters(lies: LoweredShardings, trace: Any, place: Any, kept: Sequence[int], hidden: int) -> LoweredShardings:
    """How the parameters and results of a program lie, which reads captured values before these arguments.

    Captured values are whole on each device, and so are arguments without a sharding; results lie as weft finds it.
    """
    if lies.mesh is None:
        return lies._replace(ins=(*[None] * hidden, *[lies.ins[k] for k in kept]), is_for_host=False)
    whole = NamedSharding(lies.mesh, PartitionSpec())
    places = sharded_calls.places_of_results(trace, place)
    found: Sequence[NamedSharding | None] = (None,) * len(lies.outs)
    if isinstance(places, tuple):
        found = [_named(devices.sharding_at(each)) for each in places]
    outs = [own or given or whole for own, given in zip(lies.outs, found, strict=True)]
    return LoweredShardings((*[whole] * hidden, *[lies.ins[k] or whole for k in kept]), tuple(outs), lies.mesh, False)


def lying(ins: Sequence[NamedSharding | None], mesh: Any) -> Lying:
    """How arguments lie that were pinned so: those without a sharding are whole on each device."""
    whole = NamedSharding(mesh, PartitionSpec())
    return Lying(tuple([devices.place_on(sharding or whole, described=True) for sharding in ins]))


def _named(sharding: Sharding | None) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) and not sharding.mesh.empty else None


def _by_type(aval: Any) -> NamedSharding | None:
    return getattr(aval, "explicit_sharding", None)
