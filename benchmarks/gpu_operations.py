"""weft on this machine's GPU beside its CPU: every operation, every form of a kernel, memory, errors; one line a row.

    python benchmarks/gpu_operations.py [--only WORD] [--seconds 120] [--workers 4]

It needs NVIDIA's driver, weft and NumPy, and a checkout for the samples (tests/); no network, no pytest. Rows run in
processes of their own (``rows_apart``), each with a limit; those that are not reached in time are said to be left out.
The results have the CPU's bits, or the row says FAIL and why. The exit status is 1 if one did.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows_apart import Child, RowError, serve

ROW_S = 40.0  # seconds of a row
Rows = dict[str, Callable[[], None]]


def rows() -> Rows:
    """Every row by its name."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind the weft that is installed
    weft: Any = importlib.import_module("weft")
    samples = importlib.import_module("tests.aarch64.samples_of_operations")
    forms = importlib.import_module("tests.gpu.forms").FORMS
    check = importlib.import_module("tests.gpu.beside_the_cpu").check
    cpu, gpu = weft.devices("cpu")[0], weft.devices("gpu")[0]

    def compared(function: Callable[..., Any], args: tuple[Any, ...], x64: bool, way: str = "") -> None:
        with weft.enable_x64(x64), weft.default_device(cpu):
            text = check(gpu, function, args).as_text("plan")
        assert way in text, f"its plan has no {way!r}"

    found: Rows = {}
    for label, function, args, x64 in (*samples.elementwise(), *samples.others()):
        found[label] = lambda f=function, a=args, x=x64: compared(f, a, x)
    for label, (way, function, args) in forms.items():
        found[label] = lambda f=function, a=args, w=way: compared(f, a, False, w)
    return found | dict(_of_the_client(weft, cpu, gpu))


def _of_the_client(weft: Any, cpu: Any, gpu: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    jnp = weft.numpy

    def copies() -> None:
        x = np.arange(11_000_001, dtype=np.float32)
        there = weft.device_put(x, gpu)
        there.copy_to_host_async()
        assert np.array_equal(np.asarray(there), x) and np.array_equal(np.asarray(weft.device_put(there, cpu)), x)

    def memory() -> None:
        before = gpu.memory_stats()["bytes_in_use"]
        x = weft.device_put(np.ones(1 << 20, np.float32), gpu)
        assert gpu.memory_stats()["bytes_in_use"] >= before + (4 << 20)
        del x
        assert gpu.memory_stats()["bytes_in_use"] <= before + (1 << 20)

    def out_of_memory() -> None:
        with weft.default_device(gpu):
            try:
                jnp.zeros((1 << 45,), jnp.uint8).block_until_ready()
            except Exception as error:
                assert "GiB" in str(error) or "TiB" in str(error), error
            else:
                raise AssertionError("32 TiB were given")
            assert float((jnp.ones(3) + 1).sum()) == 6.0

    def donation() -> None:
        x = weft.device_put(np.ones(1 << 18, np.float32), gpu)
        y = weft.jit(lambda x: x * 2 + 1, donate_argnums=0)(x)
        assert x.is_deleted() and float(y.sum()) == 3 * 2**18

    def threads() -> None:
        f, got = weft.jit(lambda x: jnp.sin(x).sum()), list[float]()
        x = weft.device_put(np.ones(1000, np.float32), gpu)
        each = [threading.Thread(target=lambda: got.append(float(f(x)))) for _ in range(8)]
        for one in each:
            one.start()
        for one in each:
            one.join()
        assert len(got) == 8 and len(set(got)) == 1

    def graphs() -> None:
        f = weft.jit(lambda x: jnp.sort(jnp.cumsum(jnp.sin(x) @ x, 0) @ x) + x[0])
        x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
        wanted, there = np.asarray(f(weft.device_put(x, cpu))), weft.device_put(x, gpu)
        for _ in range(20):
            assert np.array_equal(np.asarray(f(there)), wanted)

    def interface() -> None:
        x = weft.device_put(np.arange(100, dtype=np.float32), gpu)
        assert np.array_equal(np.asarray(jnp.from_dlpack(x)), np.arange(100)) and x.__cuda_array_interface__["data"][0]

    def library() -> None:
        a, b = (np.random.default_rng(k).standard_normal((300, 300)).astype(np.float32) for k in range(2))
        with weft.config.context("product_library", "on"), weft.default_device(gpu):
            f = weft.jit(lambda a, b, c: weft.nn.gelu(weft.lax.dot(a, b, precision="highest") + c))
            plan = f.lower(a, b, b[0]).compile().as_text("plan")
            got = np.asarray(f(a, b, b[0]))
        y = a.astype(np.float64) @ b + b[0]
        wanted = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
        assert "library" in plan and np.allclose(got, wanted, atol=1e-3)

    rows_ = (copies, memory, out_of_memory, donation, threads, graphs, interface, library)
    for row in rows_:
        if row is not library or gpu.product_library("auto") is not None:
            yield f"client: {row.__name__}", row


class _Taken:
    """Rows that are not taken yet, by whoever comes next until the time is up."""

    def __init__(self, names: list[str], seconds: float) -> None:
        self._names, self._lock = iter(names), threading.Lock()
        self._end, self.count, self.failed = time.monotonic() + seconds, 0, 0

    def next(self) -> tuple[str, float] | None:
        left = self._end - time.monotonic()
        with self._lock:
            name = next(self._names, None) if left > 0 else None
            self.count += name is not None
        return None if name is None else (name, min(ROW_S, left + 5))

    def tell(self, name: str, why: str, milliseconds: float) -> None:
        with self._lock:
            self.failed += bool(why)
            print(f"{'FAIL' if why else 'ok  '} {milliseconds:8.0f} ms  {name}{': ' if why else ''}{why}", flush=True)


def _run(taken: _Taken) -> None:
    child = Child([__file__, "--child"], {"WEFT_TARGET": "x86-64-v3", "WEFT_PLATFORMS": "cuda,cpu"})
    while (found := taken.next()) is not None:
        name, seconds = found
        why, start = "", time.monotonic()
        try:
            child.ask(name, seconds)
        except RowError as error:
            why = str(error)
        taken.tell(name, why, (time.monotonic() - start) * 1e3)
    child.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        table = rows()

        def run(name: str) -> list[float]:
            table[name]()
            return []

        serve(run, _has_stopped)
        return 0
    os.environ["WEFT_TARGET"] = "x86-64-v3"
    names = [name for name in rows() if given.only in name]
    taken = _Taken(names, given.seconds)
    threads = [threading.Thread(target=_run, args=(taken,)) for _ in range(max(given.workers, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = len(names) - taken.count
    print(f"{taken.count} rows, {taken.failed} failed{f', {left} left out: the time was up' if left else ''}")
    return int(taken.failed > 0)


def _has_stopped() -> bool:
    """Whether the GPU does nothing more in this process."""
    weft: Any = importlib.import_module("weft")
    try:
        return float(weft.numpy.ones(2).sum()) != 2.0
    except Exception:
        return True


if __name__ == "__main__":
    sys.exit(main())
