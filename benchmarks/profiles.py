"""What ``weft.profile`` costs: the time of a call with and without it, in turns in one process, medians.

``python -m benchmarks.profiles`` prints a row for each of some programs, from a call of a microsecond to a loop.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import weft
import weft.numpy as jnp

ROUNDS = 31


def programs() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Name, jitted function and arguments."""
    reduce = weft.jit(lambda x: jnp.sum(x**2 + jnp.sin(x)))
    yield "add of 4", weft.jit(lambda x: x + 1), (jnp.ones(4),)
    for size in (1_000, 100_000, 1_000_000):
        yield f"sum of {size}", reduce, (jnp.arange(float(size)),)
    mlp = weft.jit(lambda x, a, b: jnp.tanh(x @ a) @ b)
    for size in (32, 256, 768):
        yield f"mlp {size}", mlp, (jnp.ones((size, size)),) * 3
    loop = weft.jit(lambda x: weft.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, None, length=200)[0])
    for size in (8, 64):
        yield f"scan {size}", loop, (jnp.ones((size, size)) / size,)


def seconds(function: Callable[..., Any], arguments: tuple[Any, ...], count: int) -> float:
    """The time of a call, of ``count`` that follow each other."""
    begin = time.perf_counter()
    out = function(*arguments)
    for _ in range(count - 1):
        out = function(*arguments)
    out.block_until_ready()
    return (time.perf_counter() - begin) / count


def overhead(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, float]:
    """(median seconds without a profile, with one)."""
    count = max(1, int(12e-3 / seconds(function, arguments, 20)))
    without, during = [], []
    for _ in range(ROUNDS):
        without.append(seconds(function, arguments, count))
        with weft.profile(most_spans=20_000):
            during.append(seconds(function, arguments, count))
    return statistics.median(without), statistics.median(during)


def main() -> None:
    for name, function, arguments in programs():
        function(*arguments).block_until_ready()
        without, during = overhead(function, arguments)
        print(f"{name:16} {without * 1e6:10.2f} us  {during * 1e6:10.2f} us  {100 * (during / without - 1):+6.2f} %")


if __name__ == "__main__":
    main()
