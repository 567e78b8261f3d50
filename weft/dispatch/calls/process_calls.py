"""Calls whose arrays lie across processes: the program that this process runs on its blocks, and how it is called.

In: a trace, how the arguments of a call lie and how its results will (``sharded_calls``). Out: a program of blocks
(``partitioning.between_processes``) in machine code, whose collectives exchange messages with the other processes. All
processes make the same calls in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import config, runtime
from weft._base import lazy
from weft.core.caches.store import PROGRAMS
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.sharding import process_grids
from weft.core.sharding.shardings import NamedSharding, PartitionSpec, Sharding
from weft.dispatch import devices
from weft.dispatch.calls import sharded_calls
from weft.dispatch.programs import constants, executables

Places = int | tuple[int, ...]


def crosses(trace: Any, ins: Any, outs: Places) -> bool:
    """Whether arguments at these places (``Lying`` for several), results or captured arrays lie across processes."""
    if is_across([*trace.closed.consts, *constants.lifted(trace.closed.jaxpr).values]):
        return True
    places = ins.places if isinstance(ins, sharded_calls.Lying) else (ins,)
    return any(map(devices.spans_processes, (*places, *_each(outs, 1))))


def _each(places: Places, count: int) -> tuple[int, ...]:
    return places if isinstance(places, tuple) else (places,) * count


def bind(trace: Any, donated: tuple[bool, ...], keep_unused: bool, ins: Any, outs: Places) -> executables.Compiled:
    """Machine code for a trace, on the blocks of this process."""
    parts = executables.parameters(trace, donated, keep_unused)
    given = ins.places if isinstance(ins, sharded_calls.Lying) else (ins,) * len(trace.closed.jaxpr.invars)
    places = [x.place for x in parts.hidden] + [given[index] for index in parts.kept]
    found = _each(outs, len(trace.out_avals))
    blocks = _of_blocks(parts.closed, places, found, trace.name)
    program = devices.OWN.compile(blocks, name=trace.name, donated=parts.flags)
    hidden = [block_of(x) for x in parts.hidden]
    consts = (*program.consts, *hidden)
    return executables.bound(
        program, parts.kept, consts, trace.out_tree, trace.out_avals, parts.donated, found if found else 0
    )


def _of_blocks(closed: ClosedJaxpr, ins: Sequence[int], outs: Sequence[int], name: str) -> ClosedJaxpr:
    """The program of this process's blocks, whose arguments and results are at these places."""
    shardings = [[_across(place) for place in each] for each in (ins, outs)]
    transport = lazy.submodule("weft.distributed.transport").current()
    if transport is not None:
        transport.participants.add(threading.get_ident())
    meshes = [s.mesh for s in (*shardings[0], *shardings[1]) if s is not None]
    other = next(
        (mesh for mesh in meshes if mesh.shape_tuple != meshes[0].shape_tuple or _differ(mesh, meshes[0])), None
    )
    if other is not None:
        raise NotImplementedError(
            f"[jit] {name}: arrays on two meshes across processes, {meshes[0]} and {other}: move them to one by "
            "weft.device_put(x, sharding) outside of jit"
        )
    between = lazy.submodule("weft.partitioning.between_processes")
    return between.program_of_process(closed, meshes[0], *shardings, name).local


def _differ(mesh: Any, other: Any) -> bool:
    return mesh.flat_devices != other.flat_devices


def _across(place: int) -> NamedSharding | None:
    """The sharding of a place, None for one that is not across processes: every process has the whole value."""
    if not devices.spans_processes(place):
        return None
    sharding = devices.sharding_at(place)
    assert isinstance(sharding, NamedSharding)
    return sharding


def block_of(array: Any) -> Any:
    """What this process has of an array, as an Array of one process."""
    if not devices.spans_processes(array.place):
        return array
    shape = process_grids.block_shape(devices.sharding_at(array.place), array.shape)
    return runtime.array_block(array, runtime.ShapedArray(shape, array.dtype, array.weak_type))


def of_block(block: Any, aval: Any, sharding: Sharding) -> Any:
    """The array across processes, of type ``aval``; this process has ``block``, an Array, of it."""
    place = devices.place_on(sharding)
    if block.shape == aval.shape:
        return runtime.array_to_place(block if block.aval is aval else runtime.array_alias(block, aval), place)
    if block.aval.nbytes == aval.nbytes:  # without elements
        return runtime.array_to_place(runtime.array_alias(block, aval), place)
    return runtime.array_with_block(aval, block, place)


def regular(sharding: Sharding | None, ndim: int) -> Sharding | None:
    """A sharding that was found by propagation, or whole values where a process would have no rectangle."""
    if not isinstance(sharding, NamedSharding) or devices.process_count() == 1 or sharding.is_fully_addressable:
        return sharding
    try:
        process_grids.block_spec(sharding, ndim)
    except NotImplementedError:
        return NamedSharding(sharding.mesh, PartitionSpec())
    return sharding


def check_leaf(leaf: Any, sharding: Sharding, word: str) -> None:
    """ValueError for a value that this process alone has, where ``in_shardings`` wants a part in each process."""
    if devices.process_count() == 1 or sharding.is_fully_addressable:
        return
    if type(leaf) is runtime.Array and devices.spans_processes(leaf.place):
        return
    shape = np.shape(leaf)
    if process_grids.block_shape(sharding, shape) != tuple(shape):
        raise ValueError(
            f"[jit] the argument {word} is a value of this process alone, and in_shardings cuts it between processes: "
            f"{sharding}. Make the array first: weft.device_put(x, sharding) where all processes have the same value, "
            "weft.make_array_from_process_local_data where each has its part"
        )


# -- operations outside of jit ----------------------------------------------------------------------------------------


def is_across(args: Sequence[Any]) -> bool:
    """Whether operands lie across processes."""
    return any(type(x) is runtime.Array and devices.spans_processes(x.place) for x in args)


def evaluate(
    primitive: Any, args: Sequence[Any], avals: Sequence[Any], params: Any, make: Any, out: Any
) -> list[Any] | None:
    """The results of an operation; None if nothing lies across processes.

    ``make()`` gives (its program, its name), ``out`` types that may say how the results lie.
    """
    places = tuple([x.place if type(x) is runtime.Array else 0 for x in args])
    key: Any = ((primitive, tuple(avals), *params.items()), ("processes", places, out), config.x64_enabled())
    try:
        found = PROGRAMS.find(key)
    except TypeError:  # an unhashable parameter
        key, found = None, None
    if found is None:
        closed, name = make()
        where = sharded_calls.places_of_operation(name, closed, args, devices.place_of_call(args), out)
        outs = _each(where, len(closed.jaxpr.outvars))
        if not any(map(devices.spans_processes, (*places, *outs))):
            return None
        ins = [0] * (len(closed.jaxpr.invars) - len(args)) + list(places)
        local = _of_blocks(closed, ins, outs, name)
        program = devices.OWN.compile(local, name=name)
        found = executables.Runnable(program.executable, program.consts)
        found.places = outs
        if key is not None:
            PROGRAMS.add(key, found)
    results = found.run(args, None, found.places)
    types = primitive.typed(tuple(avals), params)[0]
    types = types if primitive.multiple_results else (types,)
    return [executables.typed(x, aval) for x, aval in zip(results, types, strict=True)]


def resharded(array: Any, sharding: NamedSharding) -> Any:
    """An array across processes, lying otherwise."""
    own = devices.sharding_at(array.place)
    assert isinstance(own, NamedSharding)
    if sharding.is_equivalent_to(own, array.ndim):
        return of_block(block_of(array), array.aval, sharding)
    jit = lazy.submodule("weft.dispatch.calls.jit").jit
    if own.mesh == sharding.mesh:
        return jit(_same, out_shardings=sharding)(array)
    if not own.is_fully_replicated:
        array = jit(_same, out_shardings=NamedSharding(own.mesh, PartitionSpec()))(array)
    return part_of_whole(array, sharding)


def _same(x: Any) -> Any:
    return x


def part_of_whole(array: Any, sharding: Sharding) -> Any:
    """The array across processes that lies so, made from all its elements, which this process has."""
    whole = lazy.shards.whole_values(array)
    index = process_grids.block_index(sharding, array.shape)
    return of_block(lazy.shards.array_of(whole[index], array.aval), array.aval, sharding)


def check_same_value(array: Any, name: str) -> None:
    """ValueError unless all processes give the same value."""
    transport = lazy.submodule("weft.distributed.transport").current()
    if transport is None:
        return
    values = lazy.shards.whole_values(array)
    digest = lazy.hashlib.sha256(f"{array.aval}".encode())
    digest.update(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data if values.size else b"")
    found = transport.allgather(digest.digest(), name)
    other = next((rank for rank, each in enumerate(found) if each != found[0]), None)
    if other is not None:
        raise ValueError(
            f"[{name}] the value differs between processes: process {other} has not the {array.aval.str_short()} that "
            "process 0 has. All processes have to give the same value for a sharding over their devices; "
            "weft.make_array_from_process_local_data takes the part of each"
        )
