"""What this machine can do at best, measured once in a process when a report first asks: memory and arithmetic."""

from __future__ import annotations

import functools
import time

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple
from weft.dispatch.calls.jit import jit

_BYTES = 96 << 20  # bytes of the array that is copied: more than caches hold
_SIDE = 1024  # rows and columns of the matrices that are multiplied


class Limits(NamedTuple):
    """Bytes a second from memory and operations a second of float32 products, on all threads."""

    bandwidth: float
    flops: float
    threads: int


@functools.cache
def limits() -> Limits:
    """The limits, by the best of a few runs; takes about a fifth of a second."""
    array = runtime.array_from_numpy(np.ones(_BYTES // 4, np.float32), _aval((_BYTES // 4,)))
    copy = jit(lambda x: -x)
    moved = 2 * _BYTES / _best(lambda: copy(array).block_until_ready())
    matrix = runtime.array_from_numpy(np.ones((_SIDE, _SIDE), np.float32), _aval((_SIDE, _SIDE)))
    product = jit(lambda a: a @ a)
    return Limits(moved, 2 * _SIDE**3 / _best(lambda: product(matrix).block_until_ready()), runtime.Pool.get_threads())


def _aval(shape: tuple[int, ...]) -> runtime.ShapedArray:
    return runtime.ShapedArray(shape, np.dtype(np.float32), False)


def _best(call: object) -> float:
    assert callable(call)
    found = []
    for _ in range(6):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found[1:])
