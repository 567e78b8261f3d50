"""Pooling by ``weft.lax.reduce_window`` and its gradient beside JAX and, where it is installed, torch.

    python benchmarks/pooling.py              # windows of 2x2 and 3x3, stride 2, of (32, 112, 112, 64): a minute
    python benchmarks/pooling.py max NHWC     # the rows that have all of these words

Rows are a pooling (forward) or the pooling and its gradient with a given cotangent (gradient), of float32 images in
both layouts. All compute the same arrays in one process, in turns; what counts is the least time. ``--cpu`` counts
processor time instead, for machines that are not idle.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from listing import Row, print_lowest, watched

import weft
import weft.lax

ROUNDS, MOST_SECONDS = 12, 6.0
ASKED = 1.5  # of the best peer in the same run
BATCH, SIDE, CHANNELS = 32, 112, 64
Call = Callable[[], object]


def image(layout: str) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(BATCH, SIDE, SIDE, CHANNELS)).astype(np.float32)
    return x if layout == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def pool(module: Any, kind: str, window: int, layout: str) -> Callable[[Any], Any]:
    """The pooling over ``reduce_window``, as users write it."""

    def sizes(n: int) -> tuple[int, ...]:
        return (1, n, n, 1) if layout == "NHWC" else (1, 1, n, n)

    edge = (1, 1) if window == 3 else (0, 0)  # as torch pads
    padding = tuple(edge if n > 1 else (0, 0) for n in sizes(2))
    lax = module.lax

    def run(x: Any) -> Any:
        if kind == "max":
            return lax.reduce_window(x, -np.inf, lax.max, sizes(window), sizes(2), padding)
        return lax.reduce_window(x, 0.0, lax.add, sizes(window), sizes(2), padding) / window**2

    return run


def compiled(module: Any, kind: str, window: int, layout: str, x: np.ndarray, gradient: bool) -> Call:
    function = pool(module, kind, window, layout)

    def both(x: Any, cotangent: Any) -> Any:
        out, pull = module.vjp(function, x)
        return out, pull(cotangent)[0]

    given = [module.numpy.asarray(x)]
    if gradient:
        given.append(module.numpy.ones_like(module.jit(function)(given[0])))
    jitted = module.jit(both if gradient else function)
    return lambda: module.block_until_ready(jitted(*given))


def torchs(kind: str, window: int, layout: str, x: np.ndarray, gradient: bool) -> Call:
    torch = importlib.import_module("torch")
    functional = torch.nn.functional
    function = functional.max_pool2d if kind == "max" else functional.avg_pool2d
    given = torch.from_numpy(x)
    given = given.permute(0, 3, 1, 2) if layout == "NHWC" else given  # channels last
    padding = 1 if window == 3 else 0
    if not gradient:
        return lambda: function(given, window, 2, padding)
    given = given.requires_grad_()
    ones = torch.ones_like(function(given, window, 2, padding))
    return lambda: torch.autograd.grad(function(given, window, 2, padding), given, ones)


def best_times(calls: dict[str, Call], clock: Callable[[], float]) -> dict[str, float]:
    """The least seconds of each system."""

    def seconds(call: Call) -> float:
        begin = clock()
        call()
        return clock() - begin

    found = {system: seconds(call) for system, call in calls.items()}
    end = time.perf_counter() + MOST_SECONDS
    for turn in range(ROUNDS):
        if turn >= 2 and time.perf_counter() > end:
            break
        for system, call in calls.items():
            found[system] = min(found[system], seconds(call))
    return found


def main() -> None:
    words = {word for word in sys.argv[1:] if not word.startswith("--")}
    clock = time.process_time if "--cpu" in sys.argv else time.perf_counter
    cases = list(itertools.product(("NHWC", "NCHW"), ("max", "mean"), (2, 3), (False, True)))
    labels = [f"{kind} {n}x{n} {layout} {'gradient' if grad else 'forward'}" for layout, kind, n, grad in cases]
    chosen = [row for row in zip(labels, cases, strict=True) if words <= set(row[0].split())]
    if not chosen:
        sys.exit(f"no row has all of {sorted(words)}; rows are {labels}")
    rows: list[Row] = []
    low = 0
    for label, (layout, kind, window, gradient) in watched(chosen):
        x = image(layout)
        calls = {
            "weft": compiled(weft, kind, window, layout, x, gradient),
            "JAX": compiled(jax, kind, window, layout, x, gradient),
        }
        if importlib.util.find_spec("torch"):
            calls["torch"] = torchs(kind, window, layout, x, gradient)
        times = best_times(calls, clock)
        ours = times.pop("weft")
        ratio = min(times.values()) / ours / ASKED
        low += ratio < 1
        others = ", ".join(f"{system} {found * 1e3:.2f}" for system, found in times.items())
        rows.append((ratio, f"{ratio:7.2f}  {ours * 1e3:9.2f} ms  {others:30} {label}"))
    print(f"{len(rows)} rows of {BATCH}x{SIDE}x{SIDE}x{CHANNELS}, {low} below {ASKED:g} x the best peer")
    print("best peer's time over weft's as a share of what is asked, weft's, the peers', row")
    print_lowest(rows, low, len(rows))


if __name__ == "__main__":
    main()
