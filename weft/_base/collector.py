"""Python's garbage collector is paused during compilation.

All that a compilation allocates lives until its end, and is then freed by reference counts. The collector runs after a
number of allocations: it would find nothing, promote all of it to the oldest generation, and soon walk the whole heap.
That took 12 of the 13 ms of a compilation, in a process that had imported only weft.
"""

from __future__ import annotations

import gc

from weft._base import forks

_resting = False


class resting:
    """A block without collections. Where several threads are in one, the first that began switches the collector on
    again."""

    def __enter__(self) -> None:
        global _resting
        self.begun = gc.isenabled()
        if self.begun:
            gc.disable()
            _resting = True

    def __exit__(self, *failure: object) -> None:
        global _resting
        if not self.begun:
            return
        gc.enable()
        _resting = False


def _wake() -> None:
    """After a fork: the thread that would switch the collector on is not there."""
    if _resting:
        gc.enable()


forks.in_child(_wake)
