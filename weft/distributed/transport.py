"""The transport: messages between the processes of a job, and small collectives on the host, through MPI.

``current()`` is the transport of this process, None before ``weft.distributed.initialize`` and in a job of one.
Programs run the operations of ``weft/runtime/src/mpi/mpi.h``; those here are for the host.

No wait is silent or without end: after 10 s it says on stderr which ranks it waits for, and after the seconds of the
option ``collective_timeout`` it raises DistributedError.
"""

from __future__ import annotations

import itertools
import sys
import threading
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from weft import runtime
from weft.core.tracing import source_info

Combine = Literal["sum", "max", "min"]

MAX_TAG = 1 << 20  # tags of users are below, but for the two that collectives of the host use
_SIZES, _DATA = MAX_TAG - 1, MAX_TAG - 2


class Request:
    """An exchange that is on its way; what it reads and writes is kept alive."""

    __slots__ = ("_operation",)

    def __init__(self, operation: runtime.MpiOperation) -> None:
        self._operation = operation

    def test(self) -> bool:
        """Whether it is done; lets MPI work."""
        return self._operation.test()

    def wait(self, what: str, timeout: float | None = None) -> None:
        """Wait until it is done, other threads running; ``what`` is for messages.

        DistributedError after ``timeout`` seconds (default: the option ``collective_timeout``; 0: never), or when a
        rank has ended.
        """
        self._operation.wait(what, 0.0 if timeout is None else timeout or float("inf"))

    def awaited(self) -> tuple[int, ...]:
        """The ranks whose part has not come."""
        return self._operation.awaited()


def as_bytes(buffer: Any) -> Any:
    """A contiguous array, of any dtype, as the bytes that it is; other buffers as they are."""
    if not isinstance(buffer, np.ndarray):
        return buffer
    if not buffer.flags.c_contiguous:
        raise ValueError(f"[distributed] messages are contiguous, got an array of strides {buffer.strides}")
    return buffer.reshape(-1).view(np.uint8)


class Transport:
    """The processes of the job as this one sees them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.participants: set[int] = set()  # threads that took part in exchanges: their errors end the job
        self._launches = itertools.count(1)

    def next_number(self) -> int:
        """The number of the next launch, the same on all ranks that run the same program."""
        return next(self._launches)

    def start_agree(self, number: int, fingerprint: int, description: str, where: str = "") -> Request:
        """``agree`` as a request: its ``wait`` raises where ranks differ."""
        self.participants.add(threading.get_ident())
        words = f"{description}, at {where}" if where else description
        fitting = words.encode()[:480].decode(errors="ignore")
        return Request(runtime.mpi_agree(number, fingerprint & (1 << 64) - 1, fitting))

    def agree(self, number: int, fingerprint: int, description: str, where: str = "") -> None:
        """Compare what this rank is about to do with the others; called before everything that ranks do together.

        DistributedError on ranks that differ in number or fingerprint, which names both descriptions and locations; on
        ranks whose partner has ended; and after ``collective_timeout``.
        """
        self.start_agree(number, fingerprint, description, where).wait(f"the start of {description}")

    def isend(self, buffer: Any, dest: int, tag: int) -> Request:
        """Start sending a contiguous buffer, which must not change until the request is done."""
        return Request(runtime.mpi_isend(as_bytes(buffer), dest, tag))

    def irecv(self, buffer: Any, source: int, tag: int) -> Request:
        """Start receiving into a contiguous buffer that can be written."""
        return Request(runtime.mpi_irecv(as_bytes(buffer), source, tag))

    # ---- collectives over arrays: the same calls in the same order on all ranks of the group

    def _group(self, ranks: Sequence[int] | None) -> Sequence[int]:
        return range(self.size) if ranks is None else ranks

    def all_reduce(
        self, source: np.ndarray, out: np.ndarray, combine: Combine, ranks: Sequence[int] | None = None, tag: int = 0
    ) -> Request:
        """The sum or extremum of the arrays of all ranks, in the order of ranks; ``out`` may be ``source``."""
        written = as_bytes(out)
        read = written if source is out else as_bytes(source)
        return Request(runtime.mpi_all_reduce(source.dtype.name, combine, read, written, self._group(ranks), tag))

    def reduce_scatter(
        self, source: np.ndarray, out: np.ndarray, combine: Combine, ranks: Sequence[int] | None = None, tag: int = 0
    ) -> Request:
        """Each rank's part of the reduction: ``source`` has one for each rank, one after the other."""
        name, read, written = source.dtype.name, as_bytes(source), as_bytes(out)
        return Request(runtime.mpi_reduce_scatter(name, combine, read, written, self._group(ranks), tag))

    def all_gather(
        self, source: np.ndarray, out: np.ndarray, ranks: Sequence[int] | None = None, tag: int = 0
    ) -> Request:
        """The arrays of all ranks one after the other."""
        return Request(runtime.mpi_all_gather(as_bytes(source), as_bytes(out), self._group(ranks), tag))

    def all_to_all(
        self, source: np.ndarray, out: np.ndarray, ranks: Sequence[int] | None = None, tag: int = 0
    ) -> Request:
        """Part j of ``source`` goes to rank j, which has it as part i of ``out``, i being this rank."""
        return Request(runtime.mpi_all_to_all(as_bytes(source), as_bytes(out), self._group(ranks), tag))

    def permute(
        self, source: np.ndarray, out: np.ndarray, from_rank: int, destinations: Sequence[int], tag: int = 0
    ) -> Request:
        """``source`` goes to all destinations, and ``out`` comes from ``from_rank``; -1: it is zeros."""
        return Request(runtime.mpi_permute(as_bytes(source), as_bytes(out), from_rank, destinations, tag))

    def broadcast(self, data: np.ndarray, root: int, ranks: Sequence[int] | None = None, tag: int = 0) -> Request:
        """The array of the rank at position ``root`` of the group, in place."""
        return Request(runtime.mpi_broadcast(as_bytes(data), self._group(ranks), root, tag))

    # ---- collectives of the host; ranks agree on each of them first

    def start_together(self, what: str, fingerprint: int = 0) -> None:
        """Agree that all ranks are at the same collective of the host: ``what``, and what else must be equal."""
        runtime.stream_drain()  # programs launched before exchange messages before
        self.agree(self.next_number(), zlib.crc32(what.encode()) ^ fingerprint, what, users_line())

    def allgather(self, data: bytes, what: str = "allgather") -> list[bytes]:
        """The data of all ranks, which may be of different sizes."""
        self.start_together(what)
        sizes = np.empty(self.size, np.int64)
        self.all_gather(np.array([len(data)], np.int64), sizes, tag=_SIZES).wait(what)
        parts = [bytearray(int(size)) for size in sizes]
        others = [rank for rank in range(self.size) if rank != self.rank]
        requests = [self.irecv(parts[rank], rank, _DATA) for rank in others]
        requests += [self.isend(data, rank, _DATA) for rank in others]
        for request in requests:
            request.wait(what)
        parts[self.rank][:] = data
        return [bytes(part) for part in parts]

    def bcast(self, data: bytes, root: int = 0, what: str = "bcast") -> bytes:
        """The data of ``root``; what other ranks give is not looked at."""
        if not 0 <= root < self.size:
            raise ValueError(f"[distributed] there is no rank {root}: ranks are 0 to {self.size - 1}")
        self.start_together(what, root)
        size = np.array([len(data)], np.int64)
        self.broadcast(size, root, tag=_SIZES).wait(what)
        whole = np.frombuffer(data, np.uint8).copy() if self.rank == root else np.empty(int(size[0]), np.uint8)
        self.broadcast(whole, root, tag=_DATA).wait(what)
        return whole.tobytes()

    def barrier(self, what: str) -> None:
        """Wait until all ranks are here."""
        self.start_together(what)
        arrived = np.empty(self.size, np.uint8)
        self.all_gather(np.ones(1, np.uint8), arrived, tag=_SIZES).wait(what)


def users_line() -> str:
    """``file:line`` of the user's call of weft on this thread."""
    frame = source_info.user_frame(sys._getframe(1))
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


_current: Transport | None = None


def current() -> Transport | None:
    """The transport of this process, None where there is one process only."""
    return _current


def set_current(transport: Transport | None) -> None:
    """Called by ``initialize`` and ``shutdown``."""
    global _current
    _current = transport
