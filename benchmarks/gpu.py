"""weft on a GPU: microseconds of a call, beside the floor of an H100, JAX, PyTorch and CuPy where they are installed.

    python benchmarks/gpu.py [--only WORD] [--peers jax,torch,cupy] [--scale 1]

Calls follow each other and the last is waited for. The floor is bytes over 2.97 TB/s, the copy that was measured on an
H100, or flops over 51 TFLOP/s (float32). ``first ms`` are those of the first call, ``new size`` those at another size.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

BYTES_PER_US, FLOPS_PER_US = 2.97e6, 51e6
SECONDS = 0.4  # seconds of timed calls for a row


class Row(NamedTuple):
    """A workload: ``function(np, lax, nn)`` gives, from a library's modules, the function of arrays of these shapes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    function: Callable[[Any, Any, Any], Callable[..., Any]]
    floor_us: float
    asked_us: float  # by the issue that this table is for; 0: nothing
    dtype: str = "float32"


def _bytes(count: float, *, times: float) -> float:
    return 4 * count * times / BYTES_PER_US


def _layer_norm(np_: Any, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np_.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def rows(scale: float) -> list[Row]:
    """The table; ``scale`` makes all arrays smaller."""
    n, m = int(scale * (64 << 20)), int(scale * 16384)
    line, rows_, odd, turned = ((n,),), ((m, 4096),), ((m, 4001),), ((m // 2, 8192),)
    once, twice = _bytes(n, times=1), _bytes(n, times=2)
    return [
        Row("x + 1", line, lambda np_, lax, nn: lambda x: x + 1, twice, 186),
        Row("tanh", line, lambda np_, lax, nn: np_.tanh, twice, 190),
        Row("erf", line, lambda np_, lax, nn: lax.erf, twice, 186),
        Row("gelu", line, lambda np_, lax, nn: nn.gelu, twice, 190),
        Row("selu", line, lambda np_, lax, nn: nn.selu, twice, 186),
        Row("sum(x**2 + sin x)", line, lambda np_, lax, nn: lambda x: (x**2 + np_.sin(x)).sum(), once, 106),
        Row("softmax", rows_, lambda np_, lax, nn: lambda x: nn.softmax(x, -1), twice, 184),
        Row("softmax, rows of 4001", odd, lambda np_, lax, nn: lambda x: nn.softmax(x, -1), twice, 186),
        Row("layer norm", rows_, lambda np_, lax, nn: lambda x: _layer_norm(np_, x), twice, 184),
        Row("column sums", rows_, lambda np_, lax, nn: lambda x: x.sum(0), once, 98),
        Row("argmax of rows", rows_, lambda np_, lax, nn: lambda x: x.argmax(1), once, 96),
        Row("transpose", turned, lambda np_, lax, nn: lambda x: x.T + 0, twice, 190),
        Row("running sum", line, lambda np_, lax, nn: np_.cumsum, twice, 228),
        Row("running sums of rows", rows_, lambda np_, lax, nn: lambda x: np_.cumsum(x, 1), twice, 220),
        Row("product 4096^3", ((4096, 4096), (4096, 4096)), _product, 2 * 4096**3 / FLOPS_PER_US, 0),
        Row("matrix by vector", ((m, 4096), (4096,)), _product, once, 0),
        Row("x + 1 of 3 numbers", ((3,),), lambda np_, lax, nn: lambda x: x + 1, 0, 5),
        Row("fori_loop, 100,000 steps", ((),), _steps, 0, 600),
    ]


def _product(np_: Any, lax: Any, nn: Any) -> Callable[..., Any]:
    return lambda a, b: a @ b


def _steps(np_: Any, lax: Any, nn: Any) -> Callable[..., Any]:
    return lambda x: lax.fori_loop(0, 100_000, lambda i, x: np_.sin(x) * 0.9 + 1e-6 * i, x)


class Library(NamedTuple):
    """How a library is called: its modules, a jit, arrays on the GPU, and a wait."""

    modules: tuple[Any, Any, Any]
    jit: Callable[[Any], Any]
    array: Callable[[np.ndarray], Any]
    wait: Callable[[Any], Any]


def library(name: str) -> Library:
    """weft or a peer."""
    if name in ("weft", "jax"):
        module = importlib.import_module(name)
        modules = (module.numpy, module.lax, importlib.import_module(f"{name}.nn"))
        device = module.devices("gpu")[0]
        return Library(modules, module.jit, lambda x: module.device_put(x, device), lambda y: y.block_until_ready())
    if name == "torch":
        torch = importlib.import_module("torch")
        modules = (torch, torch.special, torch.nn.functional)
        return Library(modules, lambda f: f, lambda x: torch.from_numpy(x).cuda(), lambda _: torch.cuda.synchronize())
    cupy = importlib.import_module("cupy")
    return Library((cupy, cupy, cupy), lambda f: f, cupy.asarray, lambda _: cupy.cuda.runtime.deviceSynchronize())


def measured(row: Row, name: str) -> tuple[float, float, float]:
    """Microseconds of a call, milliseconds of the first one and of the first at another size."""
    lib = library(name)
    random = np.random.default_rng(0)
    arrays = [np.asarray(random.standard_normal(shape), row.dtype) for shape in row.shapes]
    function = lib.jit(row.function(*lib.modules))

    def first(given: Sequence[Any]) -> float:
        start = time.perf_counter()
        lib.wait(function(*given))
        return (time.perf_counter() - start) * 1e3

    args = [lib.array(x) for x in arrays]
    lib.wait(args[0])
    compiled = first(args)
    resized = (
        first([lib.array(x[: max(len(x) - 64, 1)]) for x in arrays[:1]]) if len(arrays) == 1 and arrays[0].ndim else 0.0
    )
    once = max(first(args), 1e-3) * 1e-3
    count = max(int(SECONDS / once), 3)
    start = time.perf_counter()
    for _ in range(count - 1):
        function(*args)
    lib.wait(function(*args))
    return (time.perf_counter() - start) / count * 1e6, compiled, resized


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="jax,torch,cupy")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    peers = [name for name in given.peers.split(",") if name and importlib.util.find_spec(name) is not None]
    print(
        f"{'us a call':28}{'floor':>9}{'asked':>8}{'weft':>10}{'first ms':>10}{'new size':>10}"
        + "".join([f"{p:>10}" for p in peers])
    )
    for row in rows(given.scale):
        if given.only not in row.name:
            continue
        cells = []
        for name in ("weft", *peers):
            try:
                cells.append(measured(row, name))
            except Exception as error:  # a row that a library has not is said so, and the others go on
                cells.append(error)
        text = f"{row.name:28}{row.floor_us:9.0f}{row.asked_us:8.0f}"
        for number, cell in enumerate(cells):
            if isinstance(cell, Exception):
                text += f"  {type(cell).__name__}: {str(cell)[:60]}" if number == 0 else f"{'-':>10}"
            else:
                text += f"{cell[0]:10.1f}" + (f"{cell[1]:10.1f}{cell[2]:10.1f}" if number == 0 else "")
        print(text, flush=True)


if __name__ == "__main__":
    main()
