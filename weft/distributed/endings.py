"""How a process of a job ends: with the others, or with all of them when its error is not caught.

MPI_Finalize returns when all ranks call it, so a rank that raised would wait for others who wait for it. Therefore an
uncaught error ends the whole job (MPI_Abort), after its traceback is printed. A rank that ends in order tells the
others, so that one that still waits for it raises. Children by fork do neither: they are not part of the job.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from types import TracebackType
from typing import Any

from weft import errors, runtime
from weft.distributed.joining import Joined
from weft.distributed.transport import Transport

_INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


class _Member:
    """The hooks of a process while it is part of a job."""

    def __init__(self, transport: Transport, joined: Joined) -> None:
        self.transport, self.joined = transport, joined
        self.process = os.getpid()
        self.before, self.before_in_threads = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = self.uncaught, self.uncaught_in_thread
        atexit.register(self.at_exit)

    def uncaught(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        self.before(kind, error, traceback)
        self.end_job(_INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1)

    def uncaught_in_thread(self, failed: Any) -> None:
        """Ends the job if the thread took part in exchanges: others wait for it. A helper thread may fail alone."""
        self.before_in_threads(failed)
        thread = failed.thread.ident if failed.thread is not None else None
        took_part = thread in self.transport.participants or issubclass(failed.exc_type, errors.DistributedError)
        if took_part and not issubclass(failed.exc_type, SystemExit):
            self.end_job(1)

    def end_job(self, status: int) -> None:
        """End all processes of the job; returns only in children by fork."""
        if os.getpid() != self.process:
            return
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        who = f"rank {self.transport.rank} of {self.transport.size}"
        os.write(2, f"[weft] {who} ends the job, since its error above was not caught\n".encode())
        if not runtime.mpi_lost():  # else MPI_Abort would end this process with status 0 (Open MPI 5.0)
            self.joined.mpi.COMM_WORLD.Abort(status)
        os._exit(status)

    def at_exit(self) -> None:
        """The program ended, or sys.exit was called; errors have ended the job before."""
        if os.getpid() != self.process:
            return
        self.leave("its program ended")
        mpi = self.joined.mpi
        if self.joined.ends_mpi and not mpi.Is_finalized():
            mpi.Finalize()

    def leave(self, why: str) -> None:
        """Tell the others, and wait for them: for as long as they compute, but not silently."""
        try:
            runtime.stream_drain()
            runtime.mpi_leave(why).wait("the end of their programs", float("inf"))
        except errors.DistributedError as error:
            print(f"[weft] {error}", file=sys.stderr)
            self.end_job(1)
        self.remove()
        runtime.mpi_disconnect()

    def remove(self) -> None:
        if sys.excepthook == self.uncaught:
            sys.excepthook = self.before
        if threading.excepthook == self.uncaught_in_thread:
            threading.excepthook = self.before_in_threads


_member: _Member | None = None


def install(transport: Transport, joined: Joined) -> None:
    """From now on this process ends with the others."""
    global _member
    _member = _Member(transport, joined)


def leave(why: str) -> None:
    """Leave the job in order, before the program ends."""
    global _member
    if _member is not None:
        atexit.unregister(_member.at_exit)
        _member.leave(why)
        if _member.joined.ends_mpi:
            atexit.register(_finalize, _member.joined.mpi, os.getpid())
        _member = None


def _finalize(mpi: Any, process: int) -> None:
    if os.getpid() == process and not mpi.Is_finalized():
        mpi.Finalize()
