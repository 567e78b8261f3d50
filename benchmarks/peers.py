"""Rows that run weft beside JAX and other peers in one process, in turns; the least time of each counts."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import isa
from listing import Row, print_lowest, watched

ROUNDS, LEAST_ROUNDS, MOST_SECONDS = 12, 2, 3.0

Calls = dict[str, Callable[[], object]]


class Compared(NamedTuple):
    """A row: its name, what makes the calls of weft and its peers (which wait for the result), the ratio asked for."""

    label: str
    calls: Callable[[], Calls]
    asked: float = 1.0
    asked_of_jax: float = 1.0  # where more is asked of JAX than of the best peer

    def share(self, times: dict[str, float], ours: float) -> float:
        """The least ratio of a peer's time to ours, as a share of what is asked."""
        return min(seconds / ours / self.asked_of(system) for system, seconds in times.items())

    def asked_of(self, system: str) -> float:
        return max(self.asked, self.asked_of_jax) if system == "JAX" else self.asked


def least_times(calls: Calls, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """The least seconds of each system, whose calls take turns."""

    def seconds(call: Callable[[], object]) -> float:
        begin = clock()
        call()
        return clock() - begin

    found = {system: seconds(call) for system, call in calls.items()}
    end = time.perf_counter() + MOST_SECONDS
    for turn in range(ROUNDS):
        if turn >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        for system, call in calls.items():
            found[system] = min(found[system], seconds(call), seconds(call))
    return found


def main(table: Sequence[Compared]) -> None:
    """Time the rows whose names begin with a word of the command line (none: all), and print them, lowest first.

    With ``--cpu`` processor time counts, which is comparable on a busy machine with one thread for each system. With
    ``--v3`` nobody uses more than AVX2 (isa.py).
    """
    isa.restart("v3" if "--v3" in sys.argv else "host")
    names = tuple(name for name in sys.argv[1:] if not name.startswith("--"))
    clock = time.process_time if "--cpu" in sys.argv else time.perf_counter
    chosen = [(row.label, row) for row in table if not names or row.label.startswith(names)]
    if not chosen:
        sys.exit(f"no row begins with one of {names}")
    rows: list[Row] = []
    low = 0
    for label, row in watched(chosen):
        times = least_times(row.calls(), clock)
        ours = times.pop("weft")
        ratio = row.share(times, ours)
        low += ratio < 1
        others = ", ".join(f"{system} {found * 1e3:.2f}" for system, found in times.items())
        rows.append(
            (ratio, f"{ratio:7.2f}  {ours * 1e3:9.2f} ms  {others:42} {label} (asked: {row.asked_of('JAX'):g} x)")
        )
    mean = math.exp(sum(math.log(ratio) for ratio, _ in rows) / len(rows))
    print(f"{len(rows)} rows, {low} below what is asked; geometric mean of the shares {mean:.2f}")
    print("best peer's time over weft's as a share of what is asked, weft's, the peers', row")
    print_lowest(rows, low, len(rows))
