"""Python's garbage collector rests while a program is made into kernels.

What the stages of a compilation allocate lives until they end and is then freed by its counts. The collector, which is
called after so many allocations, would find nothing, take all of it for long-lived and soon walk the whole heap for
it: 12 ms in the middle of a compilation of 13, in a process that has imported weft and nothing else.
"""

from __future__ import annotations

import gc
import os

_resting = False


class resting:
    """A block without collections; of several threads at once the first to begin switches the collector on again."""

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


os.register_at_fork(after_in_child=_wake)
