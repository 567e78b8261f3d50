"""Which processes run this program together, as they told each other in ``weft.distributed.initialize``."""

from __future__ import annotations

from weft._base.record import Record


class Job(Record):
    """All processes of a job; a process that did not join one is a job of its own."""

    rank: int = 0
    size: int = 1
    launcher: str = ""  # what started them, in words
    local_device_counts: tuple[int, ...] = ()  # virtual devices of the CPU in each process; empty before initialize
    hosts: tuple[str, ...] = ()  # the machine of each process


ALONE = Job()
_job = ALONE


def job() -> Job:
    """The job of this process."""
    return _job


def rank() -> int:
    """The number of this process among those that run the program together."""
    return _job.rank


def size() -> int:
    """How many processes run the program together."""
    return _job.size


def set_job(job: Job) -> None:
    """Called by ``initialize`` and ``shutdown``."""
    global _job
    _job = job
