"""weft.experimental.multihost_utils: values that the processes of a job send each other, and waiting for all of them.

Every process calls the same functions in the same order with trees of the same structure, shapes and dtypes; where
they do not, DistributedError names both. Without ``weft.distributed.initialize`` there is one process.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from weft import runtime, tree_util
from weft._base import lazy, unbuilt
from weft.core.sharding.shardings import NamedSharding
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.devices import PartitionSpec, placement
from weft.distributed import preemption, transport
from weft.distributed.transport import Transport

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]
__getattr__ = unbuilt.fallback(__name__)


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here; ``name`` says where, and must be the same in all of them.

    >>> from weft.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("checkpoint written")
    """
    job = transport.current()
    if job is not None:
        job.barrier(f"sync_global_devices({name!r})")


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """All processes get the tree of the one that says ``is_source``, or of process 0, as NumPy arrays.

    Other processes give a tree of the same shapes and dtypes, whose values do not matter.

    >>> from weft.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all({"seed": np.int32(3)})
    {'seed': array(3, dtype=int32)}
    """
    leaves, treedef = _host_leaves(in_tree)
    job = transport.current()
    if job is None:
        return runtime.tree_unflatten(treedef, leaves)
    _agree_on_tree(job, "broadcast_one_to_all", leaves, treedef)
    source = job.rank == 0 if is_source is None else bool(is_source)
    said = np.empty(job.size, np.bool_)
    job.all_gather(np.array([source]), said).wait("broadcast_one_to_all")
    if said.sum() != 1:
        raise ValueError(
            f"[broadcast_one_to_all] one process is the source, is_source is true in {np.flatnonzero(said).tolist()}"
        )
    received = [np.array(leaf, order="C") for leaf in leaves]
    for leaf in received:
        job.broadcast(leaf, int(said.argmax())).wait("broadcast_one_to_all")
    return runtime.tree_unflatten(treedef, received)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The trees of all processes joined, as NumPy arrays in every process.

    Leaves are stacked along a new first axis, with ``tiled`` along the first axis they have (scalars are stacked). An
    array that lies on devices of several processes is one array already: with ``tiled=True`` all of it is gathered,
    and without it ValueError is raised.

    >>> from weft.experimental import multihost_utils
    >>> multihost_utils.process_allgather(np.arange(2))
    array([[0, 1]], dtype=int32)
    """
    leaves, treedef = runtime.tree_flatten(in_tree)
    if not tiled and any(_is_shared(leaf) for leaf in leaves):
        raise ValueError("[process_allgather] arrays on devices of several processes are gathered with tiled=True")
    shared = {i: _whole(leaf) for i, leaf in enumerate(leaves) if _is_shared(leaf)}
    own = _on_host([leaf for i, leaf in enumerate(leaves) if i not in shared])
    gathered = iter(_gathered(own, treedef, tiled))
    return runtime.tree_unflatten(treedef, [shared[i] if i in shared else next(gathered) for i in range(len(leaves))])


def _gathered(leaves: list[np.ndarray], treedef: Any, tiled: bool) -> list[np.ndarray]:
    job = transport.current()
    stacked = [leaf[None] for leaf in leaves]
    if job is not None:
        _agree_on_tree(job, "process_allgather", leaves, treedef)
        stacked = [np.empty((job.size, *leaf.shape), leaf.dtype) for leaf in leaves]
        for leaf, out in zip(leaves, stacked, strict=True):
            job.all_gather(np.ascontiguousarray(leaf), out).wait("process_allgather")
    return [out.reshape(-1, *out.shape[2:]) if tiled and out.ndim > 1 else out for out in stacked]


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """AssertionError unless all processes have the same values; NaN differs from itself.

    >>> from weft.experimental import multihost_utils
    >>> multihost_utils.assert_equal({"step": 3}, "processes are at different steps")
    """
    leaves, treedef = runtime.tree_flatten(in_tree)
    mine = _on_host([_own_part(leaf) if _is_shared(leaf) else leaf for leaf in leaves])
    for leaf, all_values in zip(mine, _gathered(mine, treedef, tiled=False), strict=True):
        differing = [rank for rank, theirs in enumerate(all_values) if not np.all(theirs == leaf)]
        if differing:
            said = f"{fail_message}. " if fail_message else ""
            raise AssertionError(
                f"{said}[assert_equal] process {_rank()} has {leaf}, processes {differing} have others: {all_values}"
            )


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """Arrays over all processes, made of what each of them has: along axes that several share, the parts are joined.

    ``pspecs``: a PartitionSpec for each leaf, or a prefix of the tree; None is ``P()``.
    """

    def together(spec: PartitionSpec | None, leaf: Any) -> Any:
        if _is_shared(leaf):
            return leaf
        sharding = NamedSharding(global_mesh, PartitionSpec() if spec is None else spec)
        return lazy.shards.make_array_from_process_local_data(sharding, leaf)

    return _with_specs(together, local_inputs, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """What this process has of arrays over all of them, on its own part of the mesh: the inverse of
    ``host_local_array_to_global_array``.
    """

    def own(spec: PartitionSpec | None, leaf: Any) -> Any:
        sharding = NamedSharding(global_mesh, PartitionSpec() if spec is None else spec)
        if not _is_shared(leaf):
            moved = placement.device_put(leaf, sharding)
            if not _is_shared(moved):
                return moved
            leaf = moved
        return placement.device_put(_own_part(leaf), NamedSharding(global_mesh.local_mesh, sharding.spec))

    return _with_specs(own, global_inputs, pspecs)


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether a process was told to end (SIGTERM), in the same step of all processes: time to save a checkpoint.

    Every process calls it in every step, with the same ``step_id``. The first call makes SIGTERM a notice that does
    not end the process any more, and must be on the main thread. Without ``weft.distributed.initialize``: False.

    >>> from weft.experimental import multihost_utils
    >>> multihost_utils.reached_preemption_sync_point(0)
    False
    """
    return preemption.reached(step_id)


# ---- leaves


def _rank() -> int:
    job = transport.current()
    return 0 if job is None else job.rank


def _is_shared(leaf: Any) -> bool:
    """Whether an array lies on devices of several processes."""
    return isinstance(leaf, runtime.Array) and not leaf.is_fully_addressable


def _on_host(leaves: list[Any]) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in placement.device_get(placement.device_put(leaves))]


def _host_leaves(tree: Any) -> tuple[list[np.ndarray], Any]:
    leaves, treedef = runtime.tree_flatten(tree)
    if any(_is_shared(leaf) for leaf in leaves):
        raise ValueError("[broadcast_one_to_all] an array on devices of several processes has no one source")
    return _on_host(leaves), treedef


def _agree_on_tree(job: Transport, name: str, leaves: list[np.ndarray], treedef: Any) -> None:
    types = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
    job.start_together(f"{name} of {types}", zlib.crc32(f"{types} {treedef}".encode()))


def _identity(x: Any) -> Any:
    return x


def _whole(leaf: Any) -> np.ndarray:
    """All of an array that lies on devices of several processes."""
    everywhere = NamedSharding(leaf.sharding.mesh, PartitionSpec())
    return np.asarray(jit_module.jit(_identity, out_shardings=everywhere)(leaf).addressable_shards[0].data)


def _own_part(leaf: Any) -> np.ndarray:
    """The shards of this process, joined: along each dimension those it has, in order."""
    shards = leaf.addressable_shards
    spans = []
    for axis, extent in enumerate(leaf.shape):
        pieces = sorted({shard.index[axis].indices(extent)[:2] for shard in shards})
        starts = np.cumsum([0, *[stop - start for start, stop in pieces]])
        spans.append((dict(zip(pieces, starts[:-1].tolist(), strict=True)), int(starts[-1])))
    whole = np.empty([size for _, size in spans], leaf.dtype)
    for shard in shards:
        at = []
        for axis, (offsets, _) in enumerate(spans):
            piece = shard.index[axis].indices(leaf.shape[axis])[:2]
            at.append(slice(offsets[piece], offsets[piece] + piece[1] - piece[0]))
        whole[tuple(at)] = np.asarray(shard.data)
    return whole


def _with_specs(function: Any, tree: Any, pspecs: Any) -> Any:
    """``function(spec, leaf)`` of each leaf, the specs being a prefix of the tree."""

    def is_spec(value: Any) -> bool:
        return value is None or isinstance(value, PartitionSpec)

    specs = tree_util.broadcast_prefix(pspecs, tree, is_leaf=is_spec)
    leaves, treedef = runtime.tree_flatten(tree)
    return runtime.tree_unflatten(treedef, [function(spec, leaf) for spec, leaf in zip(specs, leaves, strict=True)])
