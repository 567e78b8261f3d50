"""What a process holds, counted where it is given out: resident bytes are an estimate on many processors."""

from __future__ import annotations

import ctypes
import sys

from weft import runtime

_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Statistics(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def python_blocks() -> int:
    """Blocks of memory that Python's objects have."""
    return sys.getallocatedblocks()


def native_bytes() -> int:
    """Bytes of weft's buffers, and of all that was allocated from the C library (glibc's counts; else 0)."""
    count = getattr(ctypes.CDLL(None), "mallinfo2", None)
    held = runtime.memory_stats()["live_bytes"]
    if count is None:
        return held
    count.restype = _Statistics
    found = count()
    return held + found.uordblks + found.hblkhd


def anonymous_bytes() -> int:
    """Bytes of pages without a file, which the system counts one by one when it is asked."""
    with open("/proc/self/smaps_rollup") as lines:
        (line,) = [line for line in lines if line.startswith("Anonymous:")]
    return int(line.split()[1]) << 10
