"""The pipeline: a jaxpr goes in, a program that the runtime can run comes out.

    jaxpr -> simplify -> fuse -> lower -> schedule -> plan -> codegen -> link -> Executable

Compiled programs are found again by the fingerprint of their jaxpr, kernels by their nest.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import codegen, config, runtime, target
from weft.compiler import cache, fuse, plan, simplify
from weft.compiler.cache import KERNELS
from weft.compiler.stages import Stages
from weft.core.fingerprint import fingerprint
from weft.core.jaxpr import ClosedJaxpr, Jaxpr
from weft.loops import lower, printer, schedule
from weft.loops.schedule import Lowered

_log = logging.getLogger("weft.compiler")
_PROGRAMS_BOUND = 4096
MAX_ELEMENTS = 1 << 56
_programs: OrderedDict[Any, Program] = OrderedDict()
_lock = threading.RLock()
_totals = {"programs_built": 0, "programs_reused": 0}
# a child process must not inherit a lock that another thread held
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Program:
    """A compiled jaxpr. ``executable`` takes ``consts`` and then the arguments."""

    def __init__(self, name: str, source: ClosedJaxpr, stages: Stages) -> None:
        self.name = name
        self.jaxpr: Jaxpr = source.jaxpr  # simplified
        self.kernels: Any = None
        self.lowered: list[Lowered | None] = []
        self.plan: Any = None
        self.compiled: list[cache.Compiled] = []
        self.executable: Any = None
        self.consts: tuple[Any, ...] = ()
        self.in_avals: tuple[Any, ...] = ()
        self.out_avals: tuple[Any, ...] = tuple(v.aval for v in source.jaxpr.outvars)
        self.kernels_built = 0
        self.kernels_loaded = 0
        self.kernels_reused = 0
        self._stages = stages

    def with_consts(self, closed: ClosedJaxpr) -> Program:
        """The same program for the constants of an equal jaxpr."""
        if not closed.consts:
            return self
        program = copy.copy(self)
        program.consts = (*as_arrays(closed.consts, closed.jaxpr.constvars), *self.consts)
        return program

    @property
    def stats(self) -> dict[str, Any]:
        """Milliseconds of each stage, and what the kernel cache answered."""
        return {
            "milliseconds": dict(self._stages.milliseconds),
            "kernels_built": self.kernels_built,
            "kernels_loaded": self.kernels_loaded,
            "kernels_reused": self.kernels_reused,
        }

    def nests(self) -> list[Any]:
        """The distinct nests of the program, in order."""
        return list(dict.fromkeys(low.nest for low in self.lowered if low is not None))

    def text(self, form: str) -> str:
        """The program in one of its forms: jaxpr, kernel, loops, llvm, asm or plan."""
        if form == "jaxpr":
            return str(self.jaxpr)
        if form == "kernel":
            return self.kernels.describe()
        if form == "plan":
            return self.plan.describe()
        if form == "loops":
            return "\n\n".join(printer.text(nest) for nest in self.nests())
        if form == "llvm":
            return "\n\n".join(codegen.text_of(nest, target.host()) for nest in self.nests())
        if form == "asm":
            objects = [codegen.compile_nest(nest, target.host()) for nest in self.nests()]
            return "\n\n".join(codegen.assembly(compiled, target.host()) for compiled in objects)
        raise ValueError(f"[as_text] unknown form {form!r}; known: jaxpr, kernel, loops, llvm, asm, plan.")

    def cost_analysis(self) -> dict[str, float]:
        """Estimates: operations, bytes moved by kernels and products, nanoseconds on one core."""
        moved, flops, nanoseconds = 0.0, 0.0, 0.0
        for instruction in self.plan.instructions:
            if isinstance(instruction, plan.Run):
                low = instruction.lowered
                moved += bytes_moved(low)
                nanoseconds += low.points * codegen.cost(low.nest)
                flops += low.points * operations_per_point(low)
            elif instruction[0] == "gemm":
                m, n, k, batch = *instruction[4:7], instruction[13]
                flops += 2.0 * m * n * k * math.prod([entry[0] for entry in batch])
        return {"flops": flops, "bytes accessed": moved, "optimal_seconds": nanoseconds * 1e-9}

    def memory_analysis(self) -> dict[str, int]:
        """Bytes of arguments, results, temporaries and machine code."""
        outputs = [entry[-1].nbytes for entry in self.plan.outputs if entry[0] != "input"]
        return {
            "argument_size_in_bytes": sum(aval.nbytes for aval in self.in_avals),
            "output_size_in_bytes": sum(outputs),
            "temp_size_in_bytes": self.plan.arena_bytes,
            "alias_size_in_bytes": sum(e[-1].nbytes for e in self.plan.outputs if e[0] in ("input", "donated")),
            "generated_code_size_in_bytes": sum({id(c): c.nbytes for c in self.compiled}.values()),
        }


def bytes_moved(low: Lowered) -> float:
    """Bytes a kernel reads and writes, each operand once."""
    total = 0
    for binding in low.operands:
        count = 1
        for extent, stride in zip((*low.extents, *low.outer), (*binding.strides, *binding.outer), strict=True):
            count *= extent if stride else 1
        total += count * binding.dtype.itemsize
    return float(total)


def operations_per_point(low: Lowered) -> float:
    return float(sum(hasattr(s, "kind") for phase in low.nest.phases for s in (*phase.body, *phase.reductions)))


def compile_jaxpr(closed: ClosedJaxpr, *, name: str = "program", donated: tuple[bool, ...] = ()) -> Program:
    """The compiled form of a program; equal programs are compiled once. Captured arrays are hidden parameters."""
    key = (fingerprint(closed), donated, config.token())
    with _lock:
        found = _programs.get(key)
        if found is not None:
            _programs.move_to_end(key)
            _totals["programs_reused"] += 1
            return found.with_consts(closed)
    program = compile_new(closed, name, donated)
    with _lock:
        _totals["programs_built"] += 1
        _programs[key] = program
        if len(_programs) > _PROGRAMS_BOUND:
            _programs.popitem(last=False)
    return program.with_consts(closed)


def compile_new(closed: ClosedJaxpr, name: str, donated: tuple[bool, ...]) -> Program:
    """Run the pipeline."""
    start = time.perf_counter()
    check_sizes(closed)
    stages = Stages(name)
    program = Program(name, closed, stages)
    lanes = target.host().lanes
    jaxpr = stages.run("simplify", simplify.simplify, closed)
    kernels = stages.run("fuse", fuse.fuse, jaxpr.jaxpr)
    drafts = stages.run("lower", lower_all, kernels)
    lowered = stages.run("schedule", schedule_all, kernels, drafts, lanes)
    planned = stages.run("plan", plan.plan, kernels, lowered, donated, program.out_avals)
    compiled = stages.run("codegen", _codegen, program, planned)
    program.jaxpr, program.kernels, program.lowered, program.plan = jaxpr.jaxpr, kernels, lowered, planned
    program.compiled = compiled
    n_own = len(closed.consts)  # the program is kept for other constants of the same types
    program.consts = tuple(as_arrays(jaxpr.consts[n_own:], jaxpr.jaxpr.constvars[n_own:]))
    program.in_avals = tuple(v.aval for v in (*jaxpr.jaxpr.constvars, *closed.jaxpr.invars))
    program.executable = stages.run("link", _executable, program)
    stages.forms(program.text)
    if config.read("log_compiles"):
        spent = " ".join(f"{stage} {ms:.2f}" for stage, ms in stages.milliseconds.items())
        total = (time.perf_counter() - start) * 1e3
        counts = (program.kernels_built, program.kernels_loaded, program.kernels_reused)
        _log.warning("Finished compilation of %s in %.2f ms (%s); %d kernels built, %d loaded, %d reused",
                     name, total, spent, *counts)  # fmt: skip
    return program


def check_sizes(closed: ClosedJaxpr) -> None:
    """Raise MemoryError for arrays whose elements cannot be counted in 64 bits."""
    for equation in closed.jaxpr.eqns:
        for variable in equation.outvars:
            if variable.aval.size > MAX_ELEMENTS:
                raise MemoryError(
                    f"[{equation.primitive.name}] the result {variable.aval.str_short()} has {variable.aval.size} "
                    f"elements ({variable.aval.nbytes} bytes), more than any machine can address."
                )


def lower_all(kernels: fuse.Kernels) -> list[lower.Draft | None]:
    """Every kernel as statements over its own axes."""
    return [lower.lower(step.kernel, kernels.sizes) if step.kernel else None for step in kernels.steps]


def schedule_all(kernels: fuse.Kernels, drafts: list[lower.Draft | None], lanes: int) -> list[Lowered | None]:
    """The nest of every kernel."""
    return [
        schedule.schedule(step.kernel, draft, lanes) if step.kernel and draft else None
        for step, draft in zip(kernels.steps, drafts, strict=True)
    ]


def _codegen(program: Program, planned: plan.Plan) -> list[cache.Compiled]:
    nests = [entry.lowered.nest for entry in planned.instructions if isinstance(entry, plan.Run)]
    compiled, built, loaded = KERNELS.compile(nests)
    program.kernels_built, program.kernels_loaded = built, loaded
    program.kernels_reused = len(set(map(id, compiled))) - built - loaded
    return compiled


def _executable(program: Program) -> Any:
    planned = program.plan
    compiled = iter(program.compiled)
    instructions = [
        _kernel_instruction(entry, next(compiled)) if isinstance(entry, plan.Run) else entry
        for entry in planned.instructions
    ]
    return runtime.Executable(
        planned.n_inputs, planned.outputs, planned.temps, planned.arena_bytes, instructions, program.name,
        program.in_avals,
    )  # fmt: skip


def _kernel_instruction(entry: plan.Run, compiled: cache.Compiled) -> tuple[Any, ...]:
    low = entry.lowered
    nest, extents = low.nest, low.extents
    split, extent, grain = plan.split_of(low)
    first = extents[0] if extents else 1
    vector = extents[nest.vector] if nest.vector is not None else 1
    blocks = extent if split == "blocks" else 0
    return (
        "kernel", compiled.kernel, entry.operands, low.params, entry.outer, split, extent, grain,
        low.points * compiled.ns_per_point, codegen.scratch_bytes(nest, extents), plan.partial_bytes(nest, blocks),
        (first, vector),
    )  # fmt: skip


def as_arrays(consts: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Captured constants as Arrays."""
    return [
        const if isinstance(const, runtime.Array) else runtime.array_from_numpy(np.asarray(const, v.aval.dtype), v.aval)
        for const, v in zip(consts, variables, strict=True)
    ]


def stats() -> dict[str, Any]:
    """Counters of the process: programs, kernels, milliseconds spent building kernels."""
    return {
        **_totals,
        "programs": len(_programs),
        "kernels": len(KERNELS),
        "kernels_built": KERNELS.built,
        "kernels_loaded": KERNELS.loaded,
        "kernels_reused": KERNELS.reused,
        "kernels_evicted": KERNELS.evicted,
        "kernel_bytes": KERNELS.nbytes,
        "kernel_build_ms": KERNELS.build_ms,
    }


def clear() -> None:
    """Forget compiled programs and kernels."""
    with _lock:
        _programs.clear()
    KERNELS.clear()
