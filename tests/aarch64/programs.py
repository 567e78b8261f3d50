"""Programs compiled for a processor that is not this one: their kernels, and a file of them that the harness runs.

``Program(function, args, on)`` goes through the compiler as ``jit`` does, but for target ``on`` and without loading the
machine code. ``write`` makes a file of programs, ``results`` reads what ``harness.cpp`` made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from weft import core, runtime
from weft._base.target import Target
from weft.codegen import compile as compiling
from weft.compiler import context, pass_manager, pipeline
from weft.compiler.fusion import chain
from weft.compiler.plans import instructions, link, plan, steps
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.loops.schedules import parallel
from weft.tree_util import tree_leaves

SPLITS = ("none", "first", "vector", "blocks")


class Unsupported(Exception):
    """A program needs more of the runtime than the harness has: products, sorting, LAPACK, callbacks, control flow."""


class Program:
    """A program for one target: the bytes of its slots at the start, and the runtime's instructions with objects."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], on: Target) -> None:
        closed = traced(function, args)
        operands = [np.asarray(x, aval.dtype) for x, aval in zip(args, closed.in_avals, strict=True)]
        self.simplified, self.plan = planned(closed, on)
        nests = [nest for entry in self.plan.instructions if (nest := pipeline.nest_of(entry)) is not None]
        self.steps = link.instructions(self.plan, [_compiled(nest, on) for nest in nests], _no_control)
        made = self.simplified.consts[len(closed.consts) :]  # constants that the compiler made
        self.given = [np.asarray(x) for x in (*made, *closed.consts, *operands)]
        self.operands = operands

    def slots(self) -> list[tuple[bytes, int]]:
        """(bytes at the start, size) of inputs, outputs and the arena of temporaries."""
        given = [x.tobytes() for x in self.given]
        sizes = [output.aval.nbytes for output in self.plan.outputs]
        return [*((data, len(data)) for data in given), *((b"", n) for n in sizes), (b"", self.plan.arena_bytes)]

    def location(self, location: tuple[int, int, int]) -> tuple[int, int, int]:
        """A location whose temporaries lie in the arena, which is the last slot."""
        slot, offset, number = location
        first = self.plan.n_inputs + len(self.plan.outputs)
        return location if slot < first else (first, offset + self.plan.temps[slot - first][0], number)

    def outputs(self, slots: Sequence[bytes]) -> list[np.ndarray]:
        """The results, from the bytes of all slots at the end."""
        found = []
        for position, output in enumerate(self.plan.outputs):
            slot = self.plan.n_inputs + position
            if isinstance(output, instructions.InputOutput):
                slot = output.source
            elif isinstance(output, instructions.SameOutput):
                slot = self.plan.n_inputs + output.source
            found.append(np.frombuffer(slots[slot], output.aval.dtype).reshape(output.aval.shape))
        return found


def traced(function: Callable[..., Any], args: Sequence[Any]) -> ClosedJaxpr:
    closed, _ = core.trace_to_jaxpr(lambda *xs: tree_leaves(function(*xs)), [core.get_aval(x) for x in args])
    return closed


def planned(closed: ClosedJaxpr, on: Target, donated: tuple[bool, ...] = ()) -> tuple[ClosedJaxpr, steps.Plan]:
    """(the simplified program, its plan) for a target."""
    forms = pipeline.make_forms(closed, pass_manager.Stages("program", context.current()._replace(target=on)))
    out_avals = tuple(v.aval for v in closed.jaxpr.outvars)
    made = plan.plan(forms.kernels, forms.lowered, donated, out_avals)
    return forms.simplified, chain.chain(made)


def nests(closed: ClosedJaxpr, on: Target) -> list[Any]:
    """All that needs machine code in a program for a target, control flow included."""
    found = []
    for entry in planned(closed, on)[1].instructions:
        nest = pipeline.nest_of(entry)
        found += [] if nest is None else [nest]
        if isinstance(entry, steps.Control):
            found += [nest for inner, _ in entry.programs() for nest in nests(inner, on)]
    return found


def checked(nest: Any, on: Target) -> compiling.Object:
    """The machine code of a nest, verified by LLVM and self-contained: the loader knows every relocation in it."""
    made = compiling.compile_nest(nest, on)
    runtime.link_kernel(made.bytes, made.symbol)
    return made


def _compiled(nest: Any, on: Target) -> Any:
    return SimpleNamespace(kernel=checked(nest, on), target=on, outline=parallel.outline(nest))


def _no_control(*_: Any) -> Any:
    raise Unsupported("control flow")


# the file of programs


def write(programs: Sequence[Program]) -> bytes:
    """What the harness reads."""
    return _words(len(programs)) + b"".join(map(_program, programs))


def results(programs: Sequence[Program], data: bytes) -> list[list[np.ndarray]]:
    """The results of each program, from what the harness wrote."""
    found, at = [], 0
    for program in programs:
        slots = []
        for _, size in program.slots():
            slots.append(data[at : at + size])
            at += size
        found.append(program.outputs(slots))
    assert at == len(data)
    return found


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _list(values: Sequence[int]) -> bytes:
    return _words(len(values), *values)


def _bytes(data: bytes) -> bytes:
    return _words(len(data)) + data


def _program(program: Program) -> bytes:
    slots = program.slots()
    numbers = [step.number for step in program.steps if isinstance(step, instructions.Offset)]
    parts = [_words(len(slots)), *(_bytes(data) + _words(size) for data, size in slots)]
    parts += [_words(1 + max(numbers, default=-1)), _words(len(program.steps))]
    return b"".join([*parts, *(_step(program, step) for step in program.steps)])


def _step(program: Program, step: Any) -> bytes:
    at = program.location
    if isinstance(step, instructions.Kernel):
        return _words(0) + _called(program, step, step.operands) + _how(step)
    if isinstance(step, instructions.Routine):
        return _words(1) + _called(program, step, [location for location, _ in step.operands])
    if isinstance(step, instructions.Copy):
        return _words(2, *at(step.to), *at(step.source), step.nbytes) + _list([])
    if isinstance(step, instructions.CopyRows):
        walks = [word for pair in step.steps for word in pair]
        return _words(2, *at(step.to), *at(step.source), step.nbytes) + _list(walks)
    if isinstance(step, instructions.Fill):
        return _words(3, *at(step.to), step.nbytes, step.byte)
    if isinstance(step, instructions.Offset):
        return _words(4, step.number, len(step.terms)) + b"".join(_term(program, *term) for term in step.terms)
    raise Unsupported(type(step).__name__)


def _term(program: Program, slot: int, offset: int, char: str, most: int, stride: int) -> bytes:
    dtype = np.dtype(char)
    return _words(*program.location((slot, offset, -1))) + _list([dtype.itemsize, dtype.kind == "i", most, stride])


def _called(program: Program, step: Any, locations: Sequence[tuple[int, int, int]]) -> bytes:
    made = step.kernel
    params = np.frombuffer(step.params, np.int64).tolist()
    given = [word for location in locations for word in program.location(location)]
    return _bytes(made.bytes) + _bytes(made.symbol.encode()) + _list(params) + _words(len(locations), *given)


def _how(step: instructions.Kernel) -> bytes:
    split = SPLITS.index(step.split)
    how = [split, step.extent, step.scratch_bytes, step.partial_bytes, step.first, step.vector]
    strides = [stride for _, strides in step.outer for stride in strides]
    return _list(how) + _list([extent for extent, _ in step.outer]) + _list(strides)
