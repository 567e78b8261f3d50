"""How a traced function lies on several devices, for programs that other compilers read.

In: a traced function, and how its arguments lie. Out: a NamedSharding, or None, for each argument and result, and the
number of devices.
"""

from __future__ import annotations

from typing import Any

from weft._base.record import NamedTuple
from weft.core.shardings import NamedSharding, Sharding
from weft.dispatch import sharded_calls
from weft.dispatch.sharded_calls import Lying


class LoweredShardings(NamedTuple):
    """What is said of arguments and results; ``count`` is 0 if no devices are named (but perhaps abstract meshes)."""

    ins: tuple[NamedSharding | None, ...]
    outs: tuple[NamedSharding | None, ...]
    count: int = 0


def of_trace(trace: Any, place: Any) -> LoweredShardings:
    """The shardings of a traced function; ValueError if it names several lists of devices."""
    said, types = [_by_type(aval) for aval in trace.closed.in_avals], [_by_type(aval) for aval in trace.out_avals]
    known = sharded_calls.known_shardings(trace, place)
    if known is None:
        return LoweredShardings(tuple(said), tuple(types))
    given_ins, given_outs, named = known
    sharded_calls.check_devices(trace, given_ins, given_outs, named)
    outs = sharded_calls.given_results(trace, place) if isinstance(place, Lying) else [None] * len(types)
    everything = [s for s in (*given_ins, *given_outs, *named) if s is not None]
    return LoweredShardings(
        tuple([_named(given) or own for given, own in zip(given_ins, said, strict=True)]),
        tuple([_named(given) or own for given, own in zip(outs, types, strict=True)]),
        len(everything[0].device_list) if everything else 0,
    )


def _named(sharding: Sharding | None) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) and not sharding.mesh.empty else None


def _by_type(aval: Any) -> NamedSharding | None:
    return getattr(aval, "explicit_sharding", None)
