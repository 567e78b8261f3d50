"""Functions of ``numpy.linalg``, ``numpy.fft`` and ``scipy`` beside NumPy's or SciPy's own, and beside JAX's.

    python benchmarks/modules.py                  # all of them, float32: five minutes
    python benchmarks/modules.py special fft      # those whose names contain one of these

Each is timed on 10,000, 100,000 and 1,000,000 elements (factorizations: on matrices of that many), in one process and
in turns; the least time counts. Rows on which weft is slower than a peer come first, then the lowest others.
A peer that has no such function, or fails, is left out of its row.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from listing import Row, print_lowest, watched

import weft

SIZES = (10_000, 100_000, 1_000_000)
MOST_SECONDS = 0.6  # seconds for a row's rounds; the first is run in any case
LEAST_ROWS = 40
RNG = np.random.default_rng(0)

Operands = Callable[[int], tuple[Any, ...]]


def drawn(low: float, high: float, count: int = 1) -> Operands:
    return lambda n: tuple(RNG.uniform(low, high, n).astype(np.float32) for _ in range(count))


def matrices(count: int = 1, width: int | None = None) -> Operands:
    def made(n: int) -> tuple[Any, ...]:
        side = int(n**0.5)
        first = RNG.normal(size=(side, side)).astype(np.float32)
        return (first @ first.T / side + np.eye(side, dtype=np.float32), *[first[:, : width or side]] * (count - 1))

    return made


def rows_of(columns: int) -> Operands:
    return lambda n: (RNG.normal(size=(n // columns, columns)).astype(np.float32),)


UNIT, OPEN, SMALL, ANY = drawn(-1, 1), drawn(0.01, 0.99), drawn(0.1, 5), drawn(-4, 4)
TWO, THREE, ROWS = drawn(0.1, 5, 2), drawn(0.1, 0.9, 3), rows_of(100)
GROUPS: list[tuple[str, Operands, str]] = [
    ("scipy.special", ANY, "erf erfc expit i0 i0e i1 i1e ndtr log_ndtr dawsn erfcx softmax log_softmax logsumexp"),
    ("scipy.special", OPEN, "erfinv logit ndtri entr spence"),
    ("scipy.special", SMALL, "gamma gammaln digamma loggamma expi exp1"),
    ("scipy.special", TWO, "beta betaln gammainc gammaincc xlogy xlog1py rel_entr kl_div poch boxcox boxcox1p comb"),
    ("scipy.special", THREE, "betainc hyp1f1"),
    ("scipy.special", drawn(1.1, 9, 2), "zeta"),
    ("scipy.stats.norm", ANY, "pdf logpdf cdf logcdf sf"),
    ("scipy.stats.norm", OPEN, "ppf"),
    (
        "scipy.stats",
        ANY,
        "laplace.pdf laplace.cdf logistic.pdf logistic.cdf cauchy.pdf cauchy.cdf uniform.pdf",
    ),
    ("scipy.stats", SMALL, "expon.pdf expon.cdf rankdata sem"),
    ("scipy.stats", TWO, "gamma.pdf gamma.cdf chi2.pdf chi2.cdf t.pdf poisson.cdf"),
    ("scipy.stats", THREE, "beta.pdf beta.cdf"),
    ("numpy.fft", UNIT, "fft ifft rfft hfft fftshift"),
    ("numpy.fft", ROWS, "fft2 ifft2 rfft2 fftn rfftn"),
    ("scipy.fft", UNIT, "dct idct"),
    ("scipy.fft", ROWS, "dctn idctn"),
    (
        "numpy.linalg",
        matrices(),
        "cholesky qr inv det slogdet eigh eigvalsh svd svdvals pinv matrix_rank cond norm trace",
    ),
    ("numpy.linalg", matrices(2, 1), "solve lstsq"),
    ("numpy.linalg", matrices(2), "matmul"),
    ("scipy.linalg", matrices(), "lu lu_factor cho_factor expm sqrtm schur hessenberg"),
    ("scipy.signal", UNIT, "detrend welch stft"),
    ("scipy.signal", drawn(-1, 1, 2), "fftconvolve"),
    ("scipy.integrate", UNIT, "trapezoid"),
    ("numpy", UNIT, "sort argsort unique cumsum median quantile histogram diff"),
]
TABLE = [(f"{module}.{name}", operands) for module, operands, names in GROUPS for name in names.split()]


def function_of(root: Any, name: str) -> Any:
    """``scipy.stats.norm.pdf`` of a library; None where it has none."""
    top, *rest = name.split(".")
    names = [root.__name__, *([] if root is np else [top]), *rest] if root is not None else [top, *rest]
    found, path = importlib.import_module(names[0]), names[0]
    for part in names[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(path)
            except ImportError:
                return None
    return found


def calls_of(name: str, given: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """The calls of all systems that can do it; for quantiles the middle one."""
    more = (0.5,) if name.endswith("quantile") else ()
    calls: dict[str, Callable[[], Any]] = {}
    for system, module in (("weft", weft), ("JAX", jax)):
        function = function_of(module, name)
        arrays = [module.numpy.asarray(x) for x in given]
        compiled = function if name.endswith("unique") else module.jit(lambda *a, f=function: f(*a, *more))
        calls[system] = lambda compiled=compiled, arrays=arrays, module=module: module.block_until_ready(
            compiled(*arrays)
        )
    theirs = function_of(None, name)
    if theirs is not None:
        calls["NumPy" if name.startswith("numpy") else "SciPy"] = lambda: theirs(*given, *more)
    working = {}
    for system, call in calls.items():
        try:
            call()
            working[system] = call
        except Exception:
            if system == "weft":
                raise
    return working


def least_seconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    found = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + MOST_SECONDS
    while True:
        for system, call in calls.items():
            begin = time.perf_counter()
            call()
            found[system] = min(found[system], time.perf_counter() - begin)
        if time.perf_counter() > end:
            return found


def main() -> None:
    warnings.simplefilter("ignore")
    wanted = sys.argv[1:]
    chosen = [
        (f"{name} {size:,}", (name, operands, size))
        for name, operands in TABLE
        for size in SIZES
        if not wanted or any(part in name for part in wanted)
    ]
    rows: list[Row] = []
    low = 0
    for label, (name, operands, size) in watched(chosen):
        times = least_seconds(calls_of(name, operands(size)))
        ours = times.pop("weft")
        ratio = min(times.values(), default=ours) / ours
        low += ratio < 1
        others = ", ".join(f"{system} {found * 1e6:,.0f}" for system, found in times.items())
        rows.append((ratio, f"{ratio:7.2f}  {ours * 1e6:11,.0f} us  {others:34} {label}"))
    print(f"{len(rows)} rows, {low} on which a peer is faster")
    print("best peer's time over weft's, weft's, the peers', function and elements")
    print_lowest(rows, low, LEAST_ROWS)


if __name__ == "__main__":
    main()
