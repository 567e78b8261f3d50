"""Preemption: a process that gets SIGTERM tells the others, and all of them know it in the same step."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import numpy as np

from weft.distributed import membership, transport

_noticed = False  # whether this process got the signal
_listening = False


def _notice(number: int, frame: FrameType | None) -> None:
    global _noticed
    _noticed = True


def _listen() -> None:
    """SIGTERM becomes a notice, for the rest of the process: clusters send it some time before they end a job."""
    global _listening
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "[distributed] the first call of reached_preemption_sync_point is on the main thread, where Python allows "
            "handlers of signals"
        )
    signal.signal(signal.SIGTERM, _notice)
    _listening = True


def reached(step: int) -> bool:
    """Whether a process has got SIGTERM before this step; all processes get the same answer."""
    if not membership.is_initialized():
        return False
    if not _listening:
        _listen()
    job = transport.current()
    if job is None:
        return _noticed
    job.start_together("reached_preemption_sync_point", int(step))
    noticed = np.array([_noticed])
    job.all_reduce(noticed, noticed, "max").wait("reached_preemption_sync_point")
    return bool(noticed[0])
