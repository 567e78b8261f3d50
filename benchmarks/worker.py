"""One system's process: answers JSON lines on stdin about the workloads of ``workloads.py``.

Started by ``run.py`` as ``python worker.py SYSTEM ISA``; SYSTEM is weft, before (another weft), jax, numpy, torch,
torch.compile or numba.
Requests: prepare (build, first call, stages, check, second shape), sample (time one round), quit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

PROTOCOL = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever a library prints must not disturb the protocol
warnings.filterwarnings("ignore")

import isa
import numpy as np
import workloads

CLOCK = time.perf_counter
ROUND_SECONDS = 0.12


class Missing(Exception):
    """This system has no form of this workload."""


class Tracing:
    """weft and JAX: one source, jitted."""

    def __init__(self, name: str) -> None:
        self.module = importlib.import_module(name)
        for part in ("numpy", "nn", "scipy.special", "random"):
            importlib.import_module(f"{name}.{part}")
        self.version = self.module.__version__
        self.wait(self.module.jit(lambda x: x * 2)(np.ones((2, 2), np.int32)))

    def array(self, value: Any, bfloat16: bool) -> Any:
        if isinstance(value, dict):
            return {k: self.array(v, bfloat16) for k, v in value.items()}
        if not isinstance(value, np.ndarray):
            return value
        return self.module.numpy.asarray(value, dtype=self.module.numpy.bfloat16 if bfloat16 else None)

    def function(self, w: workloads.Workload) -> Callable[..., Any]:
        if w.jx is None and w.xp is None:
            raise Missing
        f = w.jx(self.module) if w.jx else w.xp(self.module.numpy)  # type: ignore[misc] - one of the two is there
        return f if w.own_jit else self.module.jit(f)

    def wait(self, out: Any) -> Any:
        return self.module.block_until_ready(out)

    def stages(self, w: workloads.Workload, args: list[Any]) -> dict[str, float]:
        """Milliseconds of tracing and of compiling a fresh function, apart from running it."""
        if w.own_jit:
            return {}
        f = self.function(w)
        start = CLOCK()
        traced = f.trace(*args)
        middle = CLOCK()
        traced.lower().compile()
        return {"trace_ms": 1e3 * (middle - start), "compile_ms": 1e3 * (CLOCK() - middle)}


class Torch:
    """PyTorch eager, or through torch.compile."""

    def __init__(self, name: str) -> None:
        torch = importlib.import_module("torch")
        self.module, self.compiled = torch, name == "torch.compile"
        self.version = torch.__version__
        torch.set_grad_enabled(False)

    def array(self, value: Any, bfloat16: bool) -> Any:
        if isinstance(value, dict):
            return {k: self.array(v, bfloat16) for k, v in value.items()}
        if not isinstance(value, np.ndarray):
            return value
        tensor = self.module.from_numpy(np.array(value))
        return tensor.to(self.module.bfloat16) if bfloat16 else tensor

    def function(self, w: workloads.Workload) -> Callable[..., Any]:
        if w.torch is None or (self.compiled and w.own_jit):
            raise Missing
        f = w.torch(self.module)
        return self.module.compile(f) if self.compiled else f

    def wait(self, out: Any) -> Any:
        return out

    def stages(self, w: workloads.Workload, args: list[Any]) -> dict[str, float]:
        return {}


class Plain:
    """NumPy and numba: arrays as they are."""

    def __init__(self, name: str) -> None:
        self.name, self.module = name, importlib.import_module(name)
        self.version = self.module.__version__

    def array(self, value: Any, bfloat16: bool) -> Any:
        if bfloat16:
            raise Missing
        return value

    def function(self, w: workloads.Workload) -> Callable[..., Any]:
        build = w.xp if self.name == "numpy" else w.numba
        if build is None:
            raise Missing
        return build(self.module)

    def wait(self, out: Any) -> Any:
        return out

    def stages(self, w: workloads.Workload, args: list[Any]) -> dict[str, float]:
        return {}


def start_system(name: str) -> Any:
    if name in ("weft", "before", "jax"):
        return Tracing("weft" if name == "before" else name)
    return Torch(name) if name.startswith("torch") else Plain(name)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def to_float64(value: Any) -> Any:
    if "bfloat16" in str(getattr(value, "dtype", "")):
        value = value.float() if hasattr(value, "float") else value.astype(np.float32)
    return np.asarray(value).astype(np.float64)


def error_of(w: workloads.Workload, out: Any, inputs: list[Any]) -> float:
    """Largest difference from the float64 reference, relative to |reference| plus its root mean square."""
    wide = [np.asarray(a, np.float64) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in inputs]
    worst = 0.0
    for got, want in zip(leaves(out), leaves(w.reference(*wide)), strict=True):
        got, want = to_float64(got), np.asarray(want, np.float64)
        if got.shape != want.shape:
            return float("inf")
        scale = np.abs(want) + np.sqrt(np.mean(want**2)) if want.size else 1.0
        difference = np.abs(got - want) / np.where(scale == 0, 1.0, scale)
        worst = max(worst, float(np.max(difference, initial=0.0)))
    return worst


class Session:
    def __init__(self, name: str) -> None:
        self.system = start_system(name)
        self.timed: tuple[Callable[..., Any], list[Any], bool] | None = None
        self.workload: workloads.Workload | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "prepare":
            self.timed, self.workload = None, workloads.REGISTRY[request["name"]]
        if self.workload is None:
            return {"status": "error", "reason": "sample before prepare"}
        with self.precision(self.workload):
            return self.prepare(self.workload) if request["do"] == "prepare" else self.sample()

    def precision(self, w: workloads.Workload) -> contextlib.AbstractContextManager[Any]:
        """64 bits where the workload asks for them; systems that do not trace compute in what they are given."""
        tracing = isinstance(self.system, Tracing)
        return self.system.module.enable_x64(True) if w.x64 and tracing else contextlib.nullcontext()

    def inputs(self, w: workloads.Workload, grow: int) -> list[Any]:
        return w.inputs(np.random.default_rng(7), grow)

    def prepare(self, w: workloads.Workload) -> dict[str, Any]:
        system = self.system
        raw = self.inputs(w, 0)
        args = [system.array(a, w.bfloat16) for a in raw]
        f = system.function(w)
        start = CLOCK()
        out = system.wait(f(*args))
        reply: dict[str, Any] = {"first_ms": 1e3 * (CLOCK() - start)}
        reply["error"] = error_of(w, out, raw)
        if reply["error"] > w.tolerance:
            return {"status": "wrong", **reply}
        larger = [system.array(a, w.bfloat16) for a in self.inputs(w, 1)]
        start = CLOCK()
        system.wait(f(*larger))
        reply["new_shape_ms"] = 1e3 * (CLOCK() - start)
        reply.update(system.stages(w, [system.array(a, w.bfloat16) for a in self.inputs(w, 2)]))
        if not w.burst and not w.own_jit and raw and all(isinstance(a, np.ndarray) for a in raw):
            reply["dispatch_us"] = self.dispatch(w)
        self.timed = (f, args, w.burst)
        return {"status": "ok", **reply}

    def dispatch(self, w: workloads.Workload) -> float:
        """Microseconds of one warm call on 2-element extents, where the kernels themselves cost nothing."""
        small = [np.ascontiguousarray(a[tuple(slice(0, 2) for _ in a.shape)]) for a in self.inputs(w, 0)]
        args = [self.system.array(a, w.bfloat16) for a in small]
        f = self.system.function(w)
        self.system.wait(f(*args))
        return 1e6 * self.best(f, args, True, 0.02)

    def best(self, f: Callable[..., Any], args: list[Any], burst: bool, seconds: float) -> float:
        """Minimum seconds per call over samples of at least 20 microseconds."""
        wait = self.system.wait
        start = CLOCK()
        wait(f(*args))
        once = max(CLOCK() - start, 1e-8)
        calls = max(1, int(2e-4 / once)) if burst else max(1, int(2e-5 / once))
        best, stop = float("inf"), CLOCK() + seconds
        while CLOCK() < stop or best == float("inf"):
            start = CLOCK()
            if burst:
                for _ in range(calls):
                    out = f(*args)
                wait(out)
            else:
                for _ in range(calls):
                    wait(f(*args))
            best = min(best, (CLOCK() - start) / calls)
        return best

    def sample(self) -> dict[str, Any]:
        if self.timed is None:
            return {"status": "error", "reason": "sample of what could not be prepared"}
        return {"status": "ok", "seconds": self.best(*self.timed, ROUND_SECONDS)}


def serve(session: Session, facts: dict[str, Any]) -> None:
    """Answer requests until there are no more; the first line tells of the system."""
    print(json.dumps({"status": "ready", "version": session.system.version, **facts}), file=PROTOCOL)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "quit":
                return
            reply = session.answer(request)
        except Missing as e:
            reply = {"status": "missing", "reason": str(e)[:200]}
        except (NotImplementedError, AttributeError) as e:
            reply = {"status": "missing", "reason": f"{type(e).__name__}: {e}"[:200]}
        except Exception as e:  # a peer's failure is a row of the report, not the end of the run
            reply = {"status": "error", "reason": f"{type(e).__name__}: {e}"[:200]}
        print(json.dumps(reply), file=PROTOCOL)


def main() -> None:
    system, held = (*sys.argv[1:], "host")[:2]
    serve(Session(system), {"findings": isa.findings(system, held)})


if __name__ == "__main__":
    main()
