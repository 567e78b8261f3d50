"""What checks cost: each workload compiled plainly and with guards, timed in turns in one process.

    python benchmarks/checks.py                               # all workloads of workloads.py, with every check
    python benchmarks/checks.py --only 'softmax|mlp' --checks nan --rounds 9

The figure of a workload is the ratio of the minima over rounds; at the end the geometric mean, and the worst.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import worker
import workloads

ROUND_SECONDS = 0.02


def seconds(call: Callable[[], Any], wait: Callable[[Any], Any], times: int) -> float:
    """The time of one of several calls."""
    start = time.perf_counter()
    for _ in range(times):
        wait(call())
    return (time.perf_counter() - start) / times


def measure(weft: worker.Tracing, w: workloads.Workload, words: str, rounds: int) -> tuple[float, float]:
    """(seconds plain, seconds with guards)."""
    args = [weft.array(value, w.bfloat16) for value in w.inputs(np.random.default_rng(1), 0)]
    function = w.jx(weft.module) if w.jx else w.xp(weft.module.numpy)  # type: ignore[misc] - one of the two is there
    calls: list[Callable[[], Any]] = []
    for jitted in (weft.module.jit(function), weft.module.jit(function, checks=words)):
        weft.wait(jitted(*args))
        calls.append(lambda jitted=jitted: jitted(*args))
    times = max(1, int(ROUND_SECONDS / max(seconds(calls[0], weft.wait, 2), 1e-9)))
    best = [math.inf, math.inf]
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            best[which] = min(best[which], seconds(calls[which], weft.wait, times))
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--checks", default="all")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    weft = worker.start_system("weft")
    ratios: dict[str, float] = {}
    for name, w in workloads.REGISTRY.items():
        if w.own_jit or (w.jx is None and w.xp is None) or not re.search(given.only, name):
            continue
        with weft.module.enable_x64(w.x64):
            try:
                plain, checked = measure(weft, w, given.checks, given.rounds)
            except weft.module.errors.CheckError as error:
                print(f"{name:32} {str(error).splitlines()[0]}", file=worker.PROTOCOL)
                continue
        ratios[name] = checked / plain
        print(f"{name:32} {plain * 1e6:10.1f} us {checked * 1e6:10.1f} us  x{ratios[name]:.3f}", file=worker.PROTOCOL)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        worst = max(ratios, key=ratios.__getitem__)
        print(f"geometric mean x{mean:.3f}, worst x{ratios[worst]:.3f} ({worst})", file=worker.PROTOCOL)


if __name__ == "__main__":
    main()
