"""weft on a GPU: microseconds of a call, beside the floor of an H100, JAX, PyTorch and CuPy where they are installed.

    python benchmarks/gpu.py [--only WORD] [--peers jax,torch,cupy] [--scale 1] [--seconds 180] [--row-seconds 40]

Calls follow each other and the last is waited for. The floor is bytes over 2.97 TB/s, the copy that was measured on an
H100, or operations over the best rate seen there (bfloat16 817, TF32 409, float32 51 TFLOP/s). ``first ms`` are those
of the first call, ``new size`` those at another size. Each library has a process of its own, begun anew after a row
that failed or took too long (``rows_apart``); one line a row, and those without time are said to be left out.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rows_apart import Child, RowError, serve

BYTES_PER_US = 2.97e6
PER_US = {"bfloat16": 817e6, "tf32": 409e6, "float32": 51e6}  # operations
SECONDS = 0.4  # seconds of timed calls for a row
BASE = 1 << 20  # random numbers, again and again in larger arrays


class Library(NamedTuple):
    """How a library is called: itself, its modules, a jit, arrays on the GPU, and a wait."""

    name: str
    own: Any
    np: Any
    lax: Any
    nn: Any
    jit: Callable[[Any], Any]
    array: Callable[[np.ndarray, str], Any]
    wait: Callable[[Any], Any]


class Row(NamedTuple):
    """A workload: ``function`` gives, from a library, the function of arrays of these shapes and dtypes."""

    name: str
    arrays: tuple[tuple[tuple[int, ...], str], ...]
    function: Callable[[Library], Callable[..., Any]]
    floor_us: float
    asked_us: float  # by the issue that this table is for; 0: nothing
    waits: bool = False  # each call is waited for


def _layer_norm(lib: Library, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / lib.np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def _black_scholes(lib: Library) -> Callable[..., Any]:
    def price(s: Any, k: Any, t: Any) -> Any:
        s, k, t = abs(s) + 0.5, abs(k) + 0.5, abs(t) + 0.1
        width = 0.2 * lib.np.sqrt(t)
        d = (lib.np.log(s / k) + 0.05 * t) / width

        def cdf(x: Any) -> Any:
            return 0.5 * (1 + lib.lax.erf(x * math.sqrt(0.5)))

        return s * cdf(d) - k * lib.np.exp(-0.03 * t) * cdf(d - width)

    return price


def _steps(lib: Library) -> Callable[..., Any]:
    return lambda x: lib.lax.fori_loop(0, 100_000, lambda i, x: lib.np.sin(x) * 0.9 + 1e-6 * i, x)


def _rnn(lib: Library) -> Callable[..., Any]:
    def run(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = lib.np.tanh(h @ w * 0.1 + x)
            return h, h

        return lib.lax.scan(step, xs[0], xs)[1]

    return run


def _heat(lib: Library) -> Callable[..., Any]:
    def step(i: Any, u: Any) -> Any:
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.1 * around)

    return lambda u: lib.lax.fori_loop(0, 100, step, u)


def _newton(lib: Library) -> Callable[..., Any]:
    def root(a: Any) -> Any:
        return lib.lax.fori_loop(0, 20, lambda i, x: 0.5 * (x + (abs(a) + 1) / x), a * 0 + 1)

    return lib.own.vmap(root)


def _training(lib: Library) -> Callable[..., Any]:
    def loss(p: Any, x: Any, y: Any) -> Any:
        return ((lib.np.tanh(lib.np.tanh(x @ p[0]) @ p[1]) @ p[2] - y) ** 2).mean()

    def step(a: Any, b: Any, c: Any, x: Any, y: Any) -> Any:
        p = (a, b, c)
        return [w - 0.01 * g for w, g in zip(p, lib.own.grad(loss)(p, x, y), strict=True)]

    return step


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _product(precision: Any, gelu: bool = False) -> Callable[[Library], Callable[..., Any]]:
    def of(lib: Library) -> Callable[..., Any]:
        if lib.name in ("torch", "cupy"):
            if lib.name == "torch":
                lib.own.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            elif precision == "tf32":
                raise NotImplementedError
            product: Callable[..., Any] = _matmul
        else:  # TF32 is JAX's default on GPUs
            asked = {"tf32": "tensorfloat32" if lib.name == "weft" else None}.get(precision, precision)
            product = functools.partial(lib.np.matmul, precision=asked)
        if not gelu:
            return product
        more = {"approximate": "tanh"} if lib.name == "torch" else {}
        return lambda a, b: lib.nn.gelu(product(a, b), **more)

    return of


def _elements(n: int, m: int) -> list[Row]:
    line, rows_, odd = (((n,), "float32"),), (((m, 4096), "float32"),), (((m, 4001), "float32"),)
    once, twice = 4 * n / BYTES_PER_US, 8 * n / BYTES_PER_US
    return [
        Row("x + 1", line, lambda lib: lambda x: x + 1, twice, 186),
        Row("tanh", line, lambda lib: lib.np.tanh, twice, 190),
        Row("erf", line, lambda lib: lib.lax.erf, twice, 186),
        Row("gelu", line, lambda lib: lib.nn.gelu, twice, 190),
        Row("selu", line, lambda lib: lib.nn.selu, twice, 186),
        Row("Black-Scholes", (((n // 4,), "float32"),) * 3, _black_scholes, once, 95),
        Row("sum(x**2 + sin x)", line, lambda lib: lambda x: (x**2 + lib.np.sin(x)).sum(), once, 106),
        Row("softmax", rows_, lambda lib: lambda x: lib.nn.softmax(x, -1), twice, 184),
        Row("softmax, rows of 4001", odd, lambda lib: lambda x: lib.nn.softmax(x, -1), twice, 186),
        Row("layer norm", rows_, lambda lib: lambda x: _layer_norm(lib, x), twice, 184),
        Row("its gradient", rows_, lambda lib: lib.own.grad(lambda x: (_layer_norm(lib, x) ** 3).sum()), twice, 190),
        Row("column sums", rows_, lambda lib: lambda x: x.sum(0), once, 98),
        Row("argmax of rows", rows_, lambda lib: lambda x: x.argmax(1), once, 96),
        Row("transpose", (((m // 2, 8192), "float32"),), lambda lib: lambda x: x.T + 0, twice, 190),
        Row("running sum", line, lambda lib: lambda x: lib.np.cumsum(x, 0), twice, 228),
        Row("running sums of rows", rows_, lambda lib: lambda x: lib.np.cumsum(x, 1), twice, 220),
    ]


def _moves(n: int) -> list[Row]:
    many, few = max(n // 4, 16), max(n // 64, 8)
    values, once = (((many,), "float32"),), 8 * many / BYTES_PER_US
    table = (((few, 128), "float32"), ((few,), f"below {few}"))
    updates = (((few,), "float32"), ((many,), f"below {few}"), ((many,), "float32"))
    key = (((2,), "uint32"),)
    draw = (lambda lib: lambda k: lib.own.random.normal(k, (n,)), 4 * n / BYTES_PER_US, 350)
    return [
        Row("sort of 16M", values, lambda lib: lambda x: lib.np.sort(x), once, 700),
        Row("argsort of 16M", values, lambda lib: lambda x: lib.np.argsort(x), once, 950),
        Row("normal values", key, *draw),
        Row("gather of 1M rows", table, lambda lib: lambda x, i: x[i], 8 * few * 128 / BYTES_PER_US, 376),
        Row("scatter of 16M, in order", updates, lambda lib: lambda x, i, v: x.at[i].add(v), once, 700),
    ]


def _products(side: int, m: int, batch: int) -> list[Row]:
    half = max(side // 2, 8)
    full, large = (((half, half), "float32"),) * 2, (((side, side), "float32"),) * 2
    bf16 = (((side, side), "bfloat16"),) * 2
    many = (((batch, 64, 64), "float32"),) * 2
    cubed = 2 * side**3
    return [
        Row("product 8192^3, bfloat16", bf16, _product(None), cubed / PER_US["bfloat16"], 1515),
        Row("the same with gelu", bf16, _product(None, gelu=True), cubed / PER_US["bfloat16"], 1622),
        Row("product 8192^3, TF32", large, _product("tf32"), cubed / PER_US["tf32"], 2938),
        Row("product 4096^3, float32", full, _product("highest"), 2 * half**3 / PER_US["float32"], 2916),
        Row("4096 products of 64^3", many, _product("highest"), 3 * batch * 64**2 * 4 / BYTES_PER_US, 95),
        Row("matrix by vector", (((m, 4096), "float32"), ((4096,), "float32")), _product("highest"),
            4096 * m * 4 / BYTES_PER_US, 0),
    ]  # fmt: skip


def _loops(n: int, side: int, steps: int) -> list[Row]:
    square, lanes = max(side // 2, 8), max(n // 4, 16)
    weights = tuple([((64, 64), "float32")] * 3 + [((32, 64), "float32")] * 2)
    three = (((3,), "float32"),)
    return [
        Row("x + 1 of 3 numbers", three, lambda lib: lambda x: x + 1, 0, 5),
        Row("the same, waited for", three, lambda lib: lambda x: x + 1, 0, 11, waits=True),
        Row("fori_loop, 100,000 steps", (((), "float32"),), _steps, 0, 600),
        Row("RNN of 64, 10,000 steps", (((64, 64), "float32"), ((steps, 64), "float32")), _rnn, 0, 3000),
        Row("heat 4096^2, 100 steps", (((square, square), "float32"),), _heat, 800 * square**2 / BYTES_PER_US, 5500),
        Row("vmap of Newton, 16M", (((lanes,), "float32"),), _newton, 8 * lanes / BYTES_PER_US, 120),
        Row("training step of an MLP", weights, _training, 0, 30),
    ]


def rows(scale: float) -> list[Row]:
    """The table; ``scale`` makes all arrays smaller."""
    n, m, side = (max(int(scale * whole), 16) for whole in (64 << 20, 16384, 8192))
    found = [*_elements(n, m), *_moves(n), *_products(side, m, max(int(scale * 4096), 2))]
    return [*found, *_loops(n, side, max(int(scale * 10_000), 3))]


def library(name: str) -> Library:
    """weft or a peer."""
    own = importlib.import_module(name)
    if name in ("weft", "jax"):
        parts = (own.numpy, importlib.import_module(f"{name}.lax"), importlib.import_module(f"{name}.nn"))
        device = own.devices("gpu")[0]
        importlib.import_module(f"{name}.random")
        return Library(
            name, own, *parts, own.jit, lambda x, dtype: own.device_put(parts[0].asarray(x, dtype), device),
            lambda y: own.block_until_ready(y),
        )  # fmt: skip
    if name == "torch":
        parts = (own, own.special, own.nn.functional)

        def array(x: np.ndarray, dtype: str) -> Any:
            return own.from_numpy(x).cuda().to(getattr(own, dtype))

        return Library(name, own, *parts, lambda f: f, array, lambda _: own.cuda.synchronize())
    wait = own.cuda.runtime.deviceSynchronize
    return Library(name, own, own, own, own, lambda f: f, lambda x, dtype: own.asarray(x, dtype), lambda _: wait())


def _made(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, str]:
    """Values for an array, and the dtype that it will have."""
    if dtype.startswith("below "):
        return random.integers(0, int(dtype.removeprefix("below ")), shape, np.int32), "int32"
    if dtype == "uint32":
        return random.integers(0, 1 << 31, shape).astype(np.uint32), dtype
    count = math.prod(shape)
    return np.resize(random.standard_normal(min(count, BASE), np.float32), shape), dtype


def measured(row: Row, lib: Library) -> tuple[float, float, float]:
    """Microseconds of a call, milliseconds of the first one and of the first at another size."""
    random = np.random.default_rng(0)
    arrays = [_made(random, *each) for each in row.arrays]
    function = lib.jit(row.function(lib))

    def first(given: Sequence[Any]) -> float:
        start = time.perf_counter()
        lib.wait(function(*given))
        return (time.perf_counter() - start) * 1e3

    args = [lib.array(x, dtype) for x, dtype in arrays]
    lib.wait(args[0])
    compiled, resized = first(args), 0.0
    if len(arrays) == 1 and arrays[0][0].ndim and len(arrays[0][0]) > 128:
        resized = first([lib.array(arrays[0][0][:-64], arrays[0][1])])
    once = max(first(args), 1e-3) * 1e-3
    count = max(int(SECONDS / once), 3)
    start = time.perf_counter()
    for _ in range(count - 1):
        made = function(*args)
        if row.waits:
            lib.wait(made)
    lib.wait(function(*args))
    return (time.perf_counter() - start) / count * 1e6, compiled, resized


def _line(row: Row, cells: Sequence[list[float] | str]) -> str:
    """A row; a peer without numbers has none, and weft says why."""
    text = f"{row.name:28}{row.floor_us:9.0f}{row.asked_us:8.0f}"
    for number, cell in enumerate(cells):
        if isinstance(cell, str):
            text += f"{'-':>10}" + (f"{'-':>10}" * 2 if number == 0 else "")
        else:
            text += f"{cell[0]:10.1f}" + (f"{cell[1]:10.1f}{cell[2]:10.1f}" if number == 0 else "")
    return text + (f"  {cells[0]}" if isinstance(cells[0], str) else "")


def serve_rows(name: str, scale: float) -> None:
    """The process of a library."""
    table, lib = {row.name: row for row in rows(scale)}, library(name)
    serve(lambda row: measured(table[row], lib), lambda: True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="jax,torch,cupy")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--row-seconds", type=float, default=40.0)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        serve_rows(given.child, given.scale)
        return 0
    end = time.monotonic() + given.seconds
    peers = [name for name in given.peers.split(",") if name and importlib.util.find_spec(name) is not None]
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # the processes share one GPU
    children = {
        name: Child([__file__, "--child", name, "--scale", str(given.scale)], variables) for name in ("weft", *peers)
    }
    head = f"{'us a call':28}{'floor':>9}{'asked':>8}{'weft':>10}{'first ms':>10}{'new size':>10}"
    print(head + "".join([f"{p:>10}" for p in peers]), flush=True)
    left, failed = [], 0
    for row in rows(given.scale):
        if given.only not in row.name:
            continue
        if time.monotonic() > end:
            left.append(row.name)
            continue
        cells: list[list[float] | str] = []
        for child in children.values():
            try:
                cells.append(child.ask(row.name, given.row_seconds))
            except RowError as error:
                cells.append(str(error))
        failed += isinstance(cells[0], str)
        print(_line(row, cells), flush=True)
    for child in children.values():
        child.end()
    if left:
        print(f"left out, since {given.seconds:.0f} s were over: {', '.join(left)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
