"""Two threads beside busy neighbours: medians of calls with one and with two threads while other processes take CPUs.

    python benchmarks/busy.py          # a row for each number of neighbours and each program

A neighbour is a process that computes without end, pinned to one CPU. With none, two threads should take half as long
as one; with a neighbour on either CPU, or on both, two must not take longer than one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as jnp

BUSY = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
SECONDS = 1.0  # for each number of threads, in turns


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Short and long programs, bound by arithmetic and by memory, and a product."""
    small, large, square = jnp.ones(100_000), jnp.ones(1 << 22), jnp.ones((512, 512))
    return {
        "exp(sin) of 100,000": (weft.jit(lambda x: jnp.exp(jnp.sin(x))), (small,)),
        "sum(exp(sin)) of 4M": (weft.jit(lambda x: jnp.sum(jnp.exp(jnp.sin(x)))), (large,)),
        "x * 2 + 1 of 4M": (weft.jit(lambda x: x * 2 + 1), (large,)),
        "product of 512": (weft.jit(lambda x: x @ x), (square,)),
    }


def medians(function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[int, float]:
    """Median seconds of a call with one and with two threads, taken in turns of a twentieth of a second."""
    times: dict[int, list[float]] = {1: [], 2: []}
    end = time.perf_counter() + 2 * SECONDS
    while time.perf_counter() < end:
        for threads, found in times.items():
            with weft.threads(threads):
                function(*arguments).block_until_ready()
                turn = time.perf_counter() + 0.05
                while (begin := time.perf_counter()) < turn:
                    function(*arguments).block_until_ready()
                    found.append(time.perf_counter() - begin)
    return {threads: statistics.median(found) for threads, found in times.items()}


def main() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        sys.exit("this machine has one CPU")
    os.sched_setaffinity(0, cpus)
    print(f"{'neighbours on':16}{'program':22}{'1 thread':>10}{'2 threads':>11}{'ratio':>8}")
    for neighbours in ([], cpus[:1], cpus[1:], cpus, cpus * 2):
        busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(cpu)]) for cpu in neighbours]
        try:
            time.sleep(0.3)
            for name, (function, arguments) in programs().items():
                one, two = medians(function, arguments).values()
                where = ", ".join(map(str, neighbours)) or "none"
                print(f"{where:16}{name:22}{one * 1e6:8.0f}us{two * 1e6:9.0f}us{two / one:8.2f}", flush=True)
        finally:
            for process in busy:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
