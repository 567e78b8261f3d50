"""The transport: messages between the processes of a job, and small collectives on the host, through MPI.

``current()`` is the transport of this process, None before ``weft.distributed.initialize`` and in a job of one.
"""

from __future__ import annotations

from typing import Any


class Request:
    """A message or collective that is on its way; its buffers are kept alive."""

    def test(self) -> bool:
        """Whether it is done; lets MPI work."""
        raise NotImplementedError

    def wait(self, what: str, timeout: float | None = None) -> None:
        """Wait until it is done; DistributedError when ranks are missing for ``timeout`` (``collective_timeout``)."""
        raise NotImplementedError


class Transport:
    """The processes of the job as this one sees them."""

    rank: int
    size: int

    def isend(self, buffer: Any, dest: int, tag: int) -> Request:
        """Start sending a contiguous buffer; ``tag`` is below 2**20."""
        raise NotImplementedError

    def irecv(self, buffer: Any, source: int, tag: int) -> Request:
        """Start receiving into a contiguous buffer that can be written."""
        raise NotImplementedError

    def agree(self, number: int, fingerprint: int, description: str, where: str = "") -> None:
        """Compare the next launch with the other ranks'; DistributedError that names both where they differ."""
        raise NotImplementedError

    def allgather(self, data: bytes) -> list[bytes]:
        """The data of all ranks."""
        raise NotImplementedError

    def bcast(self, data: bytes, root: int = 0) -> bytes:
        """The data of ``root``."""
        raise NotImplementedError

    def barrier(self, what: str) -> None:
        """Wait until all ranks are here."""
        raise NotImplementedError


def current() -> Transport | None:
    """The transport of this process, None where there is one process only."""
    return None
