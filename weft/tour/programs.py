"""The programs of the tour and their timing.

In: sizes. Out: plain figures (seconds, texts) that ``run`` prints and ``report`` draws. Every figure of a weft
program stands beside NumPy's for the same program, measured here and now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import runtime
from weft._base.record import Record, field

ONE_MILLION = 1_000_000
MATRIX_SIZES = (64, 256, 1024, 2048)


class Comparison(Record):
    """Seconds of one program: the first call, a warm jitted call, op by op without jit, and NumPy."""

    name: str
    size: int
    cold: float
    warm: float
    eager: float
    numpy: float
    largest_error: float


class Stages(Record):
    """One program on its way to machine code."""

    jaxpr: str
    kernel: str  # on the device of a plugin: the StableHLO that it compiles
    milliseconds: dict[str, float]
    kernels: int
    warm: float
    numpy: float


class Miss(Record, frozen=False):
    """A call, whether it traced again, and what weft says about it."""

    call: str
    traced: bool
    explanation: list[str] = field(default_factory=list)


def machine() -> str:
    """The device, and the processors it is compiled for and how many threads work, or the version of its plugin."""
    device = weft.devices()[0]
    if device.client is not None:
        return f"{device} ({device.device_kind}, {device.client.platform_version})"
    return f"{device} ({device.target.name}, {runtime.Pool.get_threads()} threads)"


def best_of(call: Callable[[], Any], seconds: float = 0.25, at_least: int = 3) -> float:
    """Minimum seconds of repeated calls within a time budget."""
    best, runs, stop = float("inf"), 0, time.perf_counter() + seconds
    while runs < at_least or time.perf_counter() < stop:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def sum_of_squares_and_sines(x: Any) -> Any:
    return wnp.sum(x**2 + wnp.sin(x))


def selu(x: Any, alpha: float = 1.67, lambda_: float = 1.05) -> Any:
    return lambda_ * wnp.where(x > 0, x, alpha * wnp.exp(x) - alpha)


def selu_numpy(x: Any, alpha: float = 1.67, lambda_: float = 1.05) -> Any:
    return lambda_ * np.where(x > 0, x, alpha * np.exp(x) - alpha)


def stages_of_a_program() -> Stages:
    """(a) jaxpr, fused kernel and the time of each stage of ``sum(x**2 + sin(x))`` on a million elements."""
    f = weft.jit(sum_of_squares_and_sines)
    x = wnp.arange(float(ONE_MILLION))
    f(x).block_until_ready()
    info = f.cache_info()
    x_numpy = np.arange(ONE_MILLION, dtype=np.float32)
    return Stages(
        jaxpr=str(weft.make_jaxpr(sum_of_squares_and_sines)(x)),
        kernel=f.lower(x).as_text("kernel" if weft.default_backend() == "cpu" else "stablehlo"),
        milliseconds=dict(info.milliseconds),
        kernels=info.kernels_built + info.kernels_loaded + info.kernels_reused,
        warm=best_of(lambda: f(x).block_until_ready()),
        numpy=best_of(lambda: np.sum(x_numpy**2 + np.sin(x_numpy))),
    )


def compare(name: str, size: int, ours: Callable[..., Any], numpys: Callable[..., Any], *inputs: Any) -> Comparison:
    arrays = [wnp.asarray(a) for a in inputs]
    f = weft.jit(ours)
    start = time.perf_counter()
    out = f(*arrays).block_until_ready()
    cold = time.perf_counter() - start
    expected = numpys(*(a.astype(np.float64) for a in inputs))
    scale = float(np.sqrt(np.mean(expected**2))) or 1.0
    return Comparison(
        name=name,
        size=size,
        cold=cold,
        warm=best_of(lambda: f(*arrays).block_until_ready()),
        eager=best_of(lambda: ours(*arrays).block_until_ready()),
        numpy=best_of(lambda: numpys(*inputs)),
        largest_error=float(np.max(np.abs(np.asarray(out, np.float64) - expected))) / scale,
    )


def matrix_products() -> Iterator[Comparison]:
    """(b) the exercise of the first lesson: cold, warm and eager against NumPy."""
    rng = np.random.default_rng(0)
    for n in MATRIX_SIZES:
        a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        yield compare("matmul", n, lambda x, y: x @ y, lambda x, y: x @ y, a, b)


def selu_on_a_million() -> Comparison:
    x = np.linspace(-5, 5, ONE_MILLION, dtype=np.float32)
    return compare("selu", ONE_MILLION, selu, selu_numpy, x)


@contextmanager
def explanations() -> Iterator[list[str]]:
    """Collect what ``explain_cache_misses`` says while the block runs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("weft")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        with weft.explain_cache_misses(True):
            yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def what_retraces() -> list[Miss]:
    """(c) the counting demo: which calls trace again, and why."""
    traces = 0

    def f(x: Any) -> Any:
        nonlocal traces
        traces += 1
        return x * 2

    counted = weft.jit(f)
    calls = {
        "f(arange(10.))": lambda: counted(wnp.arange(10.0)),
        "f(arange(10.))  again": lambda: counted(wnp.arange(10.0)),
        "f(arange(20.))": lambda: counted(wnp.arange(20.0)),
        "f(arange(20))  int32": lambda: counted(wnp.arange(20)),
        "f({'a': arange(10.)})['a']": lambda: weft.jit(lambda d: f(d["a"]))({"a": wnp.arange(10.0)}),
    }
    misses = []
    with explanations() as lines:
        for text, call in calls.items():
            before = traces
            lines.clear()
            call()
            misses.append(Miss(text, traces > before, list(lines)))
    return misses


def absolute(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def the_error_and_its_cure() -> tuple[str, str]:
    """(d) what a user sees of ``if x > 0`` under jit, and the program that works."""
    try:
        weft.jit(absolute)(3.0)
    except weft.errors.TracerBoolConversionError as error:
        text = str(error)
    else:
        raise AssertionError("a traced condition must raise")
    cured = weft.jit(lambda x: wnp.where(x > 0, x, -x))
    return text, f"weft.jit(lambda x: wnp.where(x > 0, x, -x))(-3.0)  ->  {cured(-3.0)!r}"
