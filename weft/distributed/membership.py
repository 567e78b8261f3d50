"""``initialize`` and ``shutdown``: this process joins the processes that run the program together, and leaves them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from weft._base import lazy
from weft.distributed import endings, environment, joining, processes, transport
from weft.distributed.environment import Launch

_initialized = False

_NO_LAUNCHER = (
    "[distributed] weft.distributed.initialize(): nothing says which processes belong together, since this one was "
    "started alone. Processes find each other through MPI: start the program with `weft launch -n 4 script.py`, with "
    "`mpirun -n 4 python script.py`, or with `srun python script.py` in a SLURM job. A program of one process passes "
    "num_processes=1, or does not call it."
)


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Join the processes that ``weft launch``, ``mpirun`` or ``srun`` started, before any computation.

    MPI knows who they are, so all arguments may be left out. Those that are given are checked: ``num_processes`` and
    ``process_id`` against what the launcher says, ``local_device_ids`` against the local devices. There is no
    coordinator: its addresses, the heartbeat and ``shutdown_timeout_seconds`` are accepted and not used.
    ``initialization_timeout``: seconds for the other processes to come.

    ValueError: no launcher, or one that says something else. RuntimeError: called twice, or the MPI library is not the
    launcher's. DistributedError: processes are missing, or run other versions.

    >>> weft.distributed.initialize(num_processes=1, process_id=0)  # a job of one needs no launcher
    >>> weft.process_count(), weft.distributed.is_initialized()
    (1, True)
    >>> weft.distributed.shutdown()
    """
    global _initialized
    if _initialized:
        raise RuntimeError("[distributed] weft.distributed.initialize is called once, and was called before")
    _check_numbers(num_processes, process_id, initialization_timeout)
    if slice_index is not None or partition_index is not None:
        raise NotImplementedError("[distributed] partition_index (slice_index): meshes know of one partition only")
    launch = environment.find(cluster_detection_method)
    searched = cluster_detection_method == "mpi4py"  # then MPI itself is asked
    if launch is None and num_processes not in (None, 1) and not searched:
        raise ValueError(f"{_NO_LAUNCHER} (num_processes={num_processes})")
    if launch is None and num_processes is None and not searched:
        raise ValueError(_NO_LAUNCHER)
    if launch is not None:
        _check_launch(launch, num_processes, process_id)
    _check_local_devices(local_device_ids)
    if searched or (launch is not None and launch.size > 1):
        _join(launch, initialization_timeout)
    _initialized = True


def is_initialized() -> bool:
    """Whether ``initialize`` was called."""
    return _initialized


def shutdown() -> None:
    """Leave the other processes, when all of them do; the end of the program does it too. Without a job, nothing."""
    global _initialized
    if not _initialized:
        return
    if transport.current() is not None:
        endings.leave("weft.distributed.shutdown()")
    processes.set_job(processes.ALONE)
    transport.set_current(None)
    _initialized = False


def _check_numbers(num_processes: Any, process_id: Any, timeout: Any) -> None:
    for name, value, least in (
        ("num_processes", num_processes, 1),
        ("process_id", process_id, 0),
        ("initialization_timeout", timeout, 0),
    ):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"[distributed] {name} is an int, got {value!r}")
        if value < least:
            raise ValueError(f"[distributed] {name} is at least {least}, got {value}")
    if None not in (num_processes, process_id) and process_id >= num_processes:
        raise ValueError(f"[distributed] process_id is below num_processes={num_processes}, got {process_id}")


def _check_launch(launch: Launch, num_processes: int | None, process_id: int | None) -> None:
    if num_processes not in (None, launch.size):
        raise ValueError(f"[distributed] num_processes={num_processes}, but {launch.launcher} started {launch.size}")
    if process_id not in (None, launch.rank):
        raise ValueError(
            f"[distributed] process_id={process_id}, but {launch.launcher} started this process as {launch.rank}"
        )


def _check_local_devices(local_device_ids: int | Sequence[int] | None) -> None:
    """Ids of devices of this process. As in JAX, those of the CPU all stay visible."""
    if local_device_ids is None:
        return
    ids = [local_device_ids] if isinstance(local_device_ids, int) else list(local_device_ids)
    count = _local_devices()
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < count:
            raise ValueError(f"[distributed] local_device_ids: this process has {count} devices, got id {id!r}")


def _local_devices() -> int:
    return lazy.submodule("weft.dispatch.devices").cpu_count()


def _join(launch: Launch | None, timeout_s: float) -> None:
    """Start the transport, and tell each other what every process has."""
    devices = lazy.submodule("weft.dispatch.devices")
    devices.check_unused()
    made, joined = joining.join(launch, timeout_s)
    endings.install(made, joined)
    mine = json.dumps({"devices": _local_devices(), "host": os.uname().nodename})
    facts = [json.loads(each) for each in made.allgather(mine.encode(), "weft.distributed.initialize")]
    processes.set_job(
        processes.Job(
            made.rank,
            made.size,
            launch.launcher if launch is not None else "MPI",
            tuple(fact["devices"] for fact in facts),
            tuple(fact["host"] for fact in facts),
        )
    )
    devices.join()
    transport.set_current(made)
