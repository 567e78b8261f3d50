"""Sums between processes beside MPI_Allreduce of the same library, in turns: weft launch -n 2 benchmarks/collectives.py

For each size the least time of several rounds is printed, in microseconds. ``agree`` is the comparison of programs that
comes before every launch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import weft
from weft import runtime
from weft.distributed import joining

SIZES = [(8, 3000), (1 << 10, 2000), (16 << 10, 1000), (64 << 10, 500), (1 << 20, 100), (16 << 20, 16), (64 << 20, 6)]
ROUNDS = 6


def least(communicator: object, calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """The least microseconds of each call, rounds in turns."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            communicator.Barrier()  # type: ignore[attr-defined] - mpi4py has no types here
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            best[i] = min(best[i], (time.perf_counter() - start) / repeats * 1e6)
    return best


def main() -> None:
    weft.distributed.initialize()
    joined = joining._joined
    assert joined is not None, "start it with weft launch -n 2"
    communicator, ranks = joined.communicator, tuple(range(weft.process_count()))
    shown = weft.process_index() == 0
    if shown:
        print(f"{len(ranks)} processes, {joined.mpi.Get_library_version().split(',')[0]}")
        print(f"{'bytes':>10} {'weft':>10} {'Allreduce':>10} {'ratio':>6}")
    for nbytes, repeats in SIZES:
        source = np.ones(nbytes // 4, np.float32)
        ours, theirs = np.empty_like(source), np.empty_like(source)
        read, written = source.view(np.uint8), ours.view(np.uint8)

        def weft_sum(read: np.ndarray = read, written: np.ndarray = written) -> None:
            runtime.mpi_all_reduce("float32", "sum", read, written, ranks, 0).wait("a sum", 0.0)

        def mpi_sum(source: np.ndarray = source, theirs: np.ndarray = theirs) -> None:
            communicator.Allreduce(source, theirs)

        own, library = least(communicator, [weft_sum, mpi_sum], repeats)
        assert (ours == len(ranks)).all() and (theirs == ours).all()
        if shown:
            print(f"{nbytes:10d} {own:10.2f} {library:10.2f} {library / own:6.2f}", flush=True)
    agree = least(communicator, [lambda: runtime.mpi_agree(1, 2, "jit(step), at train.py:31").wait("", 0.0)], 3000)
    if shown:
        print(f"agree {agree[0]:.2f}")


if __name__ == "__main__":
    main()
