"""Products beside OpenBLAS on one thread: every kind of product, four dtypes, sizes from the first cache to memory.

    python benchmarks/products.py                # every point: two to three minutes
    python benchmarks/products.py vector "512"   # the points whose names hold one of these words

NumPy's own OpenBLAS multiplies the same numbers in the same process, in turns with weft. Where a matrix nearly fills a
cache, a product takes up to 1.5 times as long as the same one elsewhere in memory, by how its pages share the cache's
sets; so each point is timed at several addresses, each with operands of its own, and what counts is their median.
Both write to memory that they have written before. The points below 0.97 are listed, then the lowest others.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read as NumPy is imported
os.environ["WEFT_ENABLE_X64"] = "1"  # two of the four dtypes

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from listing import Row, print_lowest, watched

import weft
import weft.numpy as jnp

ADDRESSES = 7
SECONDS = 0.02  # seconds at each address, for both together; at least five turns
ASKED = 0.97
Shape = tuple[int, ...]
RECTANGLES = [(128, 784, 1024), (128, 1024, 10), (4096, 8, 8), (32, 4096, 32), (1000, 3, 1000), (1000, 8, 1000),
              (1000, 32, 1000), (100, 4, 10000), (2000, 64, 300)]  # fmt: skip
DTYPES = (np.float32, np.float64, np.complex64, np.complex128)
multiply = weft.jit(lambda a, b: a @ b)


def shapes() -> Iterator[tuple[str, Shape, Shape]]:
    """The operands of each product, by kind."""
    for n in (32, 64, 100, 128, 200, 250, 256, 300, 400, 500, 512, 600, 700, 720, 1000, 1024, 1600, 2048):
        yield "matrix by vector", (n, n), (n,)
        yield "vector by matrix", (n,), (n, n)
    for k in (3, 5, 8, 13, 16, 32, 64):
        yield "tall matrix by vector", (4096, k), (k,)
        yield "vector by tall matrix", (4096,), (4096, k)
    for k in (5, 16, 64):
        yield "flat matrix by vector", (k, 4096), (4096,)
    for k in (5, 16, 24, 64, 72, 80, 100, 128):
        for n in (1000, 1024, 2048, 4096, 40000):
            yield "vector by flat matrix", (k,), (k, n)
    for n in (8, 16, 24, 32, 48, 64, 80, 96, 100, 128, 200, 256, 300, 500, 512, 700, 1024):
        yield "square", (n, n), (n, n)
    for m, k, n in RECTANGLES:
        yield "rectangular", (m, k), (k, n)
    for count, n in ((100, 8), (100, 16), (100, 32), (100, 64), (16, 100), (16, 128)):
        yield "batch", (count, n, n), (count, n, n)


def points() -> Iterator[tuple[str, tuple[type, Shape, Shape]]]:
    for dtype in DTYPES:
        for kind, a, b in shapes():
            yield f"{kind}, {np.dtype(dtype)} {'x'.join(map(str, a))} by {'x'.join(map(str, b))}", (dtype, a, b)


def random(rng: np.random.Generator, shape: Shape, dtype: type) -> Any:
    numbers = rng.standard_normal(shape)
    imaginary = 1j * rng.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else 0
    return (numbers + imaginary).astype(dtype)


def seconds(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def at_an_address(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> tuple[float, float]:
    """The least seconds of weft and of OpenBLAS for one product, in turns."""
    result = np.matmul(*theirs)

    def of_weft() -> None:
        multiply(*ours).block_until_ready()

    def of_openblas() -> None:
        np.matmul(*theirs, out=result)

    of_weft()
    count = max(1, int(SECONDS / 20 / max(seconds(of_openblas, 2), 1e-7)))
    found: list[tuple[float, float]] = []
    end = time.perf_counter() + SECONDS
    while len(found) < 5 or time.perf_counter() < end:
        found.append((seconds(of_weft, count), seconds(of_openblas, count)))
    return min(weft for weft, _ in found), min(openblas for _, openblas in found)


def ratios(dtype: type, left: Shape, right: Shape) -> list[tuple[float, float, float]]:
    """(OpenBLAS' time over weft's, weft's, OpenBLAS') at each address, in order. No address is used twice."""
    rng = np.random.default_rng(0)
    theirs = [(random(rng, left, dtype), random(rng, right, dtype)) for _ in range(ADDRESSES)]
    ours = [(jnp.array(a), jnp.array(b)) for a, b in theirs]
    found = [at_an_address(*operands) for operands in zip(ours, theirs, strict=True)]
    return sorted((openblas / weft, weft, openblas) for weft, openblas in found)


def main() -> None:
    words = sys.argv[1:]
    chosen = [point for point in points() if not words or any(word in point[0] for word in words)]
    if not chosen:
        sys.exit(f"no point has a name with one of {words}")
    medians: list[Row] = []
    with weft.threads(1):
        for name, operands in watched(chosen):
            found = ratios(*operands)
            ratio, ours, openblas = found[ADDRESSES // 2]
            times = f"{ours * 1e6:9.2f} {openblas * 1e6:9.2f} us"
            medians.append((ratio, f"{ratio:6.3f}  ({found[0][0]:.2f} to {found[-1][0]:.2f}) {times}  {name}"))
    low = sum(ratio < ASKED for ratio, _ in medians)
    print(f"{len(medians)} points, {low} below {ASKED}, median {statistics.median(r for r, _ in medians):.2f}")
    print("OpenBLAS' time over weft's: median of addresses (least to greatest), their times at that address")
    print_lowest(medians, low, 10)


if __name__ == "__main__":
    main()
