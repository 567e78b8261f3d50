"""``as_text("sharding")``: how a program would be cut among the devices of its mesh, for the stages and ``explain``."""

from __future__ import annotations

from typing import Any

from weft._base import lazy
from weft.core.sharding.shardings import NamedSharding
from weft.dispatch.calls import sharded_calls

ONE_DEVICE = "the program runs on one device, or on several that all have every value: no mesh is named"


def report(trace: Any, place: Any, names: Any) -> str:
    """The whole report of a traced function whose arguments lie as ``place`` says."""
    found = partitioned(trace, place)
    if found is None:
        return ONE_DEVICE
    partition, given = found
    debug = trace.closed.debug_info
    count = len(partition.out_specs)
    paths = (debug and debug.result_paths) or ()
    known = len(paths) == count
    results = [(paths[index] if known else f"[{index}]") or "result" for index in range(count)]
    return lazy.submodule("weft.partitioning.report").text(partition, names, given, results)


def collectives(trace: Any, place: Any) -> list[str]:
    """Only the lines on collectives; none on one device."""
    found = partitioned(trace, place)
    return [] if found is None else list(lazy.submodule("weft.partitioning.report").collectives(found[0]))


def partitioned(trace: Any, place: Any) -> tuple[Any, list[bool]] | None:
    """(the partitioned program, whether the sharding of each input was given); None without a mesh."""
    known = sharded_calls.known_shardings(trace, place)
    if known is None:
        return None
    ins, outs, named = known
    mesh = next((s.mesh for s in (*ins, *outs, *named) if isinstance(s, NamedSharding)), None)
    if mesh is None:
        return None
    sizes = dict(mesh.shape_tuple)
    outs = [given or sharded_calls.said_by_type(aval, mesh) for given, aval in zip(outs, trace.out_avals, strict=True)]
    specs = [[sharded_calls.plain_spec(_named(s), sizes) for s in each] for each in (ins, outs)]
    closed = lazy.submodule("weft.core.sharding.explicit").erased(trace.closed)
    made = lazy.submodule("weft.partitioning").partition(closed, sizes, *specs, _said_by_types(trace, closed, sizes))
    return made, [spec is not None for spec in specs[0]]


def _said_by_types(trace: Any, closed: Any, sizes: dict[Any, int]) -> dict[Any, Any]:
    """The specs of values whose types say how they lie; ``closed`` is the program without shardings in types."""
    found = {}
    if closed is not trace.closed:
        for old, new in zip(trace.closed.eqns, closed.eqns, strict=True):
            for typed, plain in zip(old.outvars, new.outvars, strict=True):
                found[plain] = sharded_calls.plain_spec(_named(typed.aval.explicit_sharding), sizes)
    return found


def _named(sharding: Any) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) else None
