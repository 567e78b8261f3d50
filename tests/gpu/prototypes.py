"""Prototypes of kernels that ran on an H100: their PTX (``prototypes/``), grids, registers and measured times.

The texts were made by LLVM from a kernel writer on weft's emitter, before weft had kernels for GPUs; all of them gave
the bits of weft's CPU kernels there. ``case`` makes the operands of a small part of the launch and what it must give.
"""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.gpu.native_build import HERE
from tests.gpu.ptx_machine import Buffer

F = np.float32


class Prototype(NamedTuple):
    """A launch that was measured: so many microseconds."""

    blocks: int
    threads: int
    registers: int
    microseconds: float


MEASURED = {
    "exp": Prototype(65536, 256, 30, 179.8),
    "tanh": Prototype(65536, 256, 30, 187.1),
    "logistic": Prototype(65536, 256, 30, 217.3),
    "pow17": Prototype(65536, 256, 56, 242.4),
    "sum_w16": Prototype(1024, 256, 30, 91.3),
    "combine": Prototype(1, 256, 32, 21.7),
    "softmaxb_4096": Prototype(16384, 256, 36, 181.4),
    "softmax_4096": Prototype(4096, 128, 168, 278.5),
    "columns4": Prototype(1024, 64, 38, 91.1),
    "transpose64o": Prototype(16384, 256, 32, 186.5),
    "cumsum8x16": Prototype(4096, 256, 128, 222.7),
    "gather": Prototype(32768, 256, 28, 371.6),
    "scatter": Prototype(16384, 256, 20, 215.2),
    "fori": Prototype(1, 32, 12, 419.5),
    "rnn1": Prototype(1, 64, 132, 1860.9),
    "heat4": Prototype(4096, 256, 40, 48.3),
    "normal4": Prototype(65536, 256, 34, 425.9),
}


class Case(NamedTuple):
    """A part of a launch: blocks, arguments, the result and what it is, buffers that have the whole launch's size."""

    blocks: int
    arguments: list[Any]
    result: Buffer
    expected: np.ndarray
    relative: float = 0.0
    whole: tuple[Buffer, ...] = ()
    repeats: float = 1.0  # what the measured launch did of a loop, for one turn of this one


def text(name: str) -> str:
    return gzip.decompress((HERE / "prototypes" / f"{name}.ptx.gz").read_bytes()).decode()


def kernel_name(name: str) -> str:
    return "k" if name in FUNCTIONS else name


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=F)


def mixed(n: int) -> np.ndarray:
    """What the elementwise prototypes were measured on: normal values, any bits, and -100 to 100."""
    rng = np.random.default_rng(1)
    some = (rng.standard_normal(n // 2) * 3).astype(F)
    return np.concatenate(
        [some, rng.integers(0, 2**32, n // 4, np.uint32).view(F), rng.uniform(-100, 100, n // 4).astype(F)]
    )


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "pow17": lambda x: (np.abs(x) + 0.1) ** 1.7,
}


def elementwise(name: str) -> Case:
    x = mixed(1 << 15)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x.astype(np.float64)).astype(F)
    out = Buffer(x.nbytes)
    return Case(x.size // 1024, [Buffer.of(x), out, x.size // 4], out, expected, 4e-6)


def partial_sums(x: np.ndarray) -> np.ndarray:
    """The sums of blocks of 8192: 32 accumulators, then a tree."""
    parts = x.reshape(-1, 256, 32)
    sums = np.zeros((parts.shape[0], 32), F)
    for row in range(256):
        sums = sums + parts[:, row]
    for width in (16, 8, 4, 2, 1):
        sums = sums[:, :width] + sums[:, width : 2 * width]
    return sums[:, 0]


def sum_w16() -> Case:
    x = numbers(8192 * 16)
    out = Buffer(64)
    return Case(2, [Buffer.of(x), out, x.size, 16], out, partial_sums(x))


def combine() -> Case:
    x, out = numbers(8192), Buffer(4)
    return Case(1, [Buffer.of(x), out, 8192], out, np.add.accumulate(np.concatenate([[F(0)], x]))[-1:])


def softmax(rows: int, blocks: int) -> Case:
    x = numbers(rows, 4096)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    out = Buffer(x.nbytes)
    return Case(blocks, [Buffer.of(x), out, rows], out, (e / e.sum(1, keepdims=True)).astype(F), 1e-5)


def columns4() -> Case:
    x = numbers(256, 4096)
    expected = np.zeros(4096, F)
    for row in x:
        expected = expected + row
    out = Buffer(4 * 4096)
    return Case(16, [Buffer.of(x), out, 256, 4096], out, expected)


def transpose64o() -> Case:
    x = numbers(256, 512)
    out = Buffer(x.nbytes)
    return Case(32, [Buffer.of(x), out, 256, 512], out, np.ascontiguousarray(x.T))


def cumsum8x16() -> Case:
    x = numbers(16384 * 6)
    out, state, ticket = Buffer(x.nbytes), Buffer.of(np.zeros(64, np.uint64)), Buffer.of(np.zeros(1, np.uint32))
    exact = np.cumsum(x.astype(np.float64)).astype(F)
    return Case(6, [Buffer.of(x), out, state, ticket, x.size, 1], out, exact, 1e-4)


def gather() -> Case:
    rows = 2048
    x = numbers(rows * 4, 128)
    at = np.random.default_rng(2).permutation(rows * 4)[:rows].astype(np.int32)
    out = Buffer(512 * rows)
    return Case(rows // 32, [Buffer.of(x), Buffer.of(at), out, rows], out, x[at])


def scatter() -> Case:
    count, bins = 1 << 14, 1 << 20
    at = np.random.default_rng(2).integers(0, bins, count).astype(np.int32)
    values = np.random.default_rng(3).integers(-9, 9, count).astype(F)  # sums of whole numbers have no order
    expected = np.zeros(bins, F)
    np.add.at(expected, at, values)
    out = Buffer.of(np.zeros(bins, F))
    return Case(count // 1024, [Buffer.of(at), Buffer.of(values), out, count // 4], out, expected, 0.0, (out,))


def fori() -> Case:
    value = F(0.25)
    for _ in range(5000):
        value = value * F(0.999) + F(0.5)
    out = Buffer.of(np.array([0.25], F))
    return Case(1, [out, 5000], out, np.array([value]), 0.0, (), 100_000 / 5000)


def rnn1() -> Case:
    steps, h, w = 200, numbers(64), numbers(64, 64, seed=2) * F(0.1)
    x = numbers(steps, 64, seed=3)
    state = h.astype(np.float64)
    for row in x:
        state = np.tanh(state @ w + row)
    out = Buffer(256)
    arguments = [Buffer.of(h), Buffer.of(x), Buffer.of(w), out, steps]
    return Case(1, arguments, out, state.astype(F), 1e-4, (), 10_000 / steps)


def heat4() -> Case:
    u = numbers(64, 1024)
    expected = u.copy()
    middle = u[1:-1, 1:-1]
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    expected[1:-1, 1:-1] = middle + F(0.1) * (around - F(4) * middle)
    out = Buffer(u.nbytes)
    return Case(16, [Buffer.of(u), out, 64, 1024], out, expected, 1e-5)


def case(name: str) -> Case:
    if name in FUNCTIONS:
        return elementwise(name)
    makers: dict[str, Callable[[], Case]] = {
        "softmaxb_4096": lambda: softmax(8, 8),
        "softmax_4096": lambda: softmax(8, 2),
        "normal4": normal4,
    }
    makers |= {
        f.__name__: f
        for f in (sum_w16, combine, columns4, transpose64o, cumsum8x16, gather, scatter, fori, rnn1, heat4)
    }
    return makers[name]()


def threefry(key: tuple[int, int], count: np.ndarray) -> np.ndarray:
    """Both words of threefry2x32 of the counters (0, count), combined by exclusive or."""
    ks = [np.uint32(key[0]), np.uint32(key[1]), np.uint32(key[0] ^ key[1] ^ 0x1BD11BDA)]
    x, y = np.full_like(count, ks[0]), count + ks[1]
    for group in range(5):
        for d in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(d)) | (y >> np.uint32(32 - d)))
        x, y = x + ks[(group + 1) % 3], y + ks[(group + 2) % 3] + np.uint32(group + 1)
    return x ^ y


def normal4() -> Case:
    n = 1 << 14
    word = threefry((1, 2), np.arange(n, dtype=np.uint32))
    unit = ((word >> np.uint32(9)) | np.uint32(0x3F800000)).view(F) - F(1)
    low = np.nextafter(F(-1), F(0))
    u = np.maximum(low, unit * (F(1) - low) + low).astype(np.float64)
    inverse = statistics.NormalDist().inv_cdf
    expected = np.array([inverse((v + 1) / 2) for v in u], F)
    out = Buffer(4 * n)
    return Case(n // 1024, [out, n // 4, 1, 2], out, expected, 2e-3)
