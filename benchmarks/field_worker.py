"""One system's process for ``field.py``: ``python field_worker.py SYSTEM FOLDER LEAST ISA``.

It answers the requests of ``worker.py`` about programs by their seeds. What a program gives lies in FOLDER, as
``SYSTEM.npz``, for whoever compares. ``wide`` runs a program in float64, to say who is right where two differ.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import worker  # first: it redirects what libraries print  # isort: skip

import field_draw
import isa
import numpy as np

_TRACING_PARTS = ("lax", "nn", "nn.initializers", "numpy", "numpy.linalg", "ops", "random", "scipy.linalg", "tree")
SAMPLE_SECONDS = 0.05
NUMBA_PARALLEL = 30_000  # elements, from which loops run on all cores


class TorchNames:
    """NumPy's names for PyTorch's functions, where they differ."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, {"rint": "round"}.get(name, name))

    def maximum(self, x: Any, y: Any) -> Any:
        return self.torch.maximum(x, y) if isinstance(y, self.torch.Tensor) else self.torch.clamp(x, min=y)

    def minimum(self, x: Any, y: Any) -> Any:
        return self.torch.minimum(x, y) if isinstance(y, self.torch.Tensor) else self.torch.clamp(x, max=y)

    def log(self, x: Any) -> Any:
        return self.torch.log(x) if isinstance(x, self.torch.Tensor) else float(np.log(x))


class Session(worker.Session):
    """The timing of ``worker.py``, for programs of seeds."""

    def __init__(self, system: str, folder: Path, least: int) -> None:
        super().__init__(system)
        self.name, self.folder, self.least = system, folder, least
        self.program: field_draw.DrawnProgram | None = None
        if isinstance(self.system, worker.Tracing):
            for part in _TRACING_PARTS:
                importlib.import_module(f"{self.system.module.__name__}.{part}")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "sample":
            if self.program is None or self.timed is None:
                return {"status": "error", "reason": "sample before prepare"}
            with self.wide_types(self.program.dtype):
                return {"status": "ok", "seconds": self.best(*self.timed, SAMPLE_SECONDS)}
        program = field_draw.drawn(int(request["name"]), self.least)
        if request["do"] == "wide":
            return self.wide(program)
        if request["do"] == "bytes":
            return {"status": "ok", "bytes": self.result_bytes(program)}
        self.timed, self.program = None, program
        with self.wide_types(self.program.dtype):
            return self.prepare_program(self.program)

    def wide_types(self, dtype: str) -> contextlib.AbstractContextManager[Any]:
        tracing = isinstance(self.system, worker.Tracing)
        return self.system.module.enable_x64(True) if dtype == "float64" and tracing else contextlib.nullcontext()

    def arguments(self, program: field_draw.DrawnProgram, larger: bool = False, dtype: str = "") -> list[Any]:
        found = []
        for told, value in zip(program.inputs, program.arrays(larger)):
            if dtype and told.dtype not in ("int32", "bool"):
                value = value.astype(dtype)
            found.append(self.system.array(value, told.dtype == "bfloat16" and not dtype))
        return found

    def callable(self, program: field_draw.DrawnProgram) -> Callable[..., Any]:
        system = self.system
        if isinstance(system, worker.Tracing):
            f = executed(program.source, {"jax": system.module, "jnp": system.module.numpy, "lax": system.module.lax})
            return system.module.jit(f) if program.row.jit else f
        if self.name == "numba":
            text = field_draw.numba_source(program)
            if not text:
                raise worker.Missing
            f = executed(text, {"np": np, "prange": system.module.prange})
            large = max(math.prod(i.shape) for i in program.inputs) >= NUMBA_PARALLEL
            return system.module.njit(f, parallel=large and "prange" in text)
        if not program.plain or (program.dtype == "bfloat16" and self.name == "numpy"):
            raise worker.Missing
        if self.name == "numpy":
            return executed(program.source, {"jnp": np})
        f = executed(program.source, {"jnp": TorchNames(system.module)})
        if self.name == "torch.compile":
            if not program.row.jit:
                raise worker.Missing
            return system.module.compile(f)
        return f

    def prepare_program(self, program: field_draw.DrawnProgram) -> dict[str, Any]:
        f, arguments = self.callable(program), self.arguments(program)
        start = worker.CLOCK()
        out = self.system.wait(f(*arguments))
        first = worker.CLOCK() - start
        self.save(out, self.name)
        reply = {"status": "ok", "first": first}
        if program.grows:
            larger = self.arguments(program, larger=True)
            start = worker.CLOCK()
            self.system.wait(f(*larger))
            reply["second"] = worker.CLOCK() - start
        self.timed = (f, arguments, False)
        return reply

    def result_bytes(self, program: field_draw.DrawnProgram) -> int:
        """The bytes of all results, by their types alone; only for weft and JAX."""
        module = self.system.module
        with self.wide_types(program.dtype):
            types = [module.ShapeDtypeStruct(i.shape, module.numpy.dtype(i.dtype)) for i in program.inputs]
            found = worker.leaves(module.eval_shape(self.callable(program), *types))
        return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in found)

    def wide(self, program: field_draw.DrawnProgram) -> dict[str, Any]:
        with self.wide_types("float64"):
            self.save(self.system.wait(self.callable(program)(*self.arguments(program, dtype="float64"))), "wide")
        return {"status": "ok"}

    def save(self, out: Any, name: str) -> None:
        parts = [self.plain_array(leaf) for leaf in worker.leaves(out)]
        with (self.folder / f"{name}.npz").open("wb") as file:
            np.savez(file, *parts)

    def plain_array(self, leaf: Any) -> Any:
        found = worker.to_float64(leaf) if "bfloat16" in str(getattr(leaf, "dtype", "")) else np.asarray(leaf)
        if found.dtype.kind not in "biufc":
            raise TypeError(f"a result has dtype {found.dtype}")
        return found


def executed(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(compile(source, "<program>", "exec"), names)
    return names["f"]


def main() -> None:
    system, folder, least, held = sys.argv[1:]
    session = Session(system, Path(folder), int(least))
    worker.serve(session, {"findings": isa.findings(system, held)})


if __name__ == "__main__":
    main()
