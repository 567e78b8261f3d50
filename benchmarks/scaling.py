"""Compile time against program size: microseconds per equation, from 1,250 to 20,000 equations.

    python benchmarks/scaling.py                 # every family, about a minute
    python benchmarks/scaling.py --only layers --sizes 1000,4000

Each family is one way for a program to be large. Compilation is linear where the last column stays about 1: the cost
of an equation in the largest program over that in the smallest. Machine code is built in a first round that is not
counted, so that the figures are of tracing, simplify, fuse, lower, schedule and plan. A JSON line per family is
appended to ``results/scaling.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax

HERE = Path(__file__).resolve().parent
Program = tuple[Callable[..., Any], tuple[Any, ...]]
SIZES = (1250, 5000, 20000)


def chain(size: int) -> Program:
    """One value after the other."""

    def run(x: Any) -> Any:
        for _ in range(size // 2):
            x = lax.mul(lax.add(x, x), wnp.float32(0.25))
        return x

    return run, (wnp.ones(1000),)


def layers(size: int) -> Program:
    """Products, activations and normalisation, with shared weights."""
    w, b = wnp.ones((8, 8)) * 0.1, wnp.ones(8)

    def run(x: Any, w: Any, b: Any) -> Any:
        for _ in range(size // 15):
            x = wnp.tanh(x @ w + b)
            x = x - x.mean(-1, keepdims=True)
            x = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x

    return run, (wnp.ones((4, 8)), w, b)


def step(size: int) -> Program:
    """A step of an optimiser: many small arrays, each on its own."""

    def run(parameters: list[Any], gradients: list[Any]) -> Any:
        return [p - 0.1 * (g + 0.01 * p) / (1 + g * g) for p, g in zip(parameters, gradients, strict=True)]

    count = size // 7
    return run, ([wnp.ones(16) for _ in range(count)], [wnp.ones(16) for _ in range(count)])


def fan(size: int) -> Program:
    """One value read by thousands of others, all of them alive until they are summed."""

    def run(x: Any) -> Any:
        parts = [wnp.sin(x + float(i)) for i in range(size // 3)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    return run, (wnp.ones(100),)


def sums(size: int) -> Program:
    """Thousands of reductions of one array."""

    def run(x: Any) -> Any:
        total = 0.0
        for i in range(size // 3):
            total = total + wnp.sum(x * float(i))
        return total

    return run, (wnp.ones(64),)


def slices(size: int) -> Program:
    """Thousands of slices, put together again."""

    def run(x: Any) -> Any:
        return wnp.concatenate([x[i : i + 2] * 2 for i in range(size // 2)])

    return run, (wnp.ones(size),)


FAMILIES = {function.__name__: function for function in (chain, layers, step, fan, sums, slices)}


def measure(family: str, size: int) -> dict[str, Any]:
    """Microseconds per equation of the first call, without those of LLVM, and what was built."""
    function, args = FAMILIES[family](size)
    jitted = weft.jit(function)
    start = time.perf_counter()
    weft.block_until_ready(jitted(*args))
    elapsed_ms = (time.perf_counter() - start) * 1e3
    info = jitted.cache_info()
    equations = len(jitted.trace(*args).jaxpr.eqns)
    per_equation = (elapsed_ms - info.milliseconds.get("codegen", 0.0)) * 1e3 / equations
    stages = {stage: round(ms * 1e3 / equations, 2) for stage, ms in info.milliseconds.items()}
    return {"equations": equations, "us": per_equation, "kernels_built": info.kernels_built, "stages_us": stages}


def main() -> None:
    parser = argparse.ArgumentParser(description="compile time against program size")
    parser.add_argument("--only", default="", help="families, separated by commas")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--json", type=Path, default=HERE / "results" / "scaling.jsonl")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    print(f"{'us per equation':16}" + "".join(f"{size:>10,}" for size in sizes) + f"{'growth':>10}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    for family in options.only.split(",") if options.only else FAMILIES:
        rows = [measure(family, size) for size in sizes]
        growth = rows[-1]["us"] / rows[0]["us"]
        print(f"{family:16}" + "".join(f"{row['us']:>10.1f}" for row in rows) + f"{growth:>10.2f}", flush=True)
        with options.json.open("a") as file:
            file.write(json.dumps({"family": family, "growth": growth, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
