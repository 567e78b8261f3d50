"""The rungs of the oracle ladder for a program: reference interpreter, loops interpreted, machine code, eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from tests.loops import loop_interpreter, routine_interpreter
from weft import compiler, core, dtypes, runtime
from weft.compiler import context
from weft.compiler.checks import reference_interpreter, verify
from weft.compiler.passes import pass_list
from weft.compiler.plans import instructions, steps
from weft.core.programs.eval import eval_jaxpr


def traced(function: Callable[..., Sequence[Any]], args: Sequence[Any]) -> core.ClosedJaxpr:
    """The program of a function that takes and gives flat lists."""
    closed, _ = core.trace_to_jaxpr(lambda *xs: list(function(*xs)), [core.get_aval(x) for x in args])
    return closed


def after(name: str, function: Callable[..., Any], *args: Any) -> list[str]:
    """The operations of a program after one pass and the first three, which all rely on; what it gives is verified."""
    within, made = context.current(), weft.make_jaxpr(function)(*args)
    index = [one.name for one in pass_list.PASSES].index(name)
    for one in pass_list.PASSES[: min(index, 3)]:
        made = one.run(made, within)
    before, made = made, pass_list.PASSES[index].run(made, within)
    verify.verify(name, before, made)
    return [eqn.primitive.name for eqn in made.jaxpr.eqns]


def compiled(closed: core.ClosedJaxpr, donated: tuple[bool, ...] = ()) -> compiler.Program:
    return compiler.compile_jaxpr(closed, name="test", donated=donated)


def arrays(args: Sequence[Any]) -> list[Any]:
    found = []
    for arg in args:
        aval = core.get_aval(arg)
        found.append(runtime.array_from_numpy(np.array(arg, aval.dtype, order="C"), aval))
    return found


def by_machine_code(program: compiler.Program, args: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(out) for out in program.executable.run([*program.consts, *arrays(args)])]


def by_reference(closed: core.ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    return reference_interpreter.interpret(closed, args)


def by_eager(closed: core.ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(out) for out in eval_jaxpr(closed.jaxpr, closed.consts, *arrays(args))]


def by_loops(program: compiler.Program, args: Sequence[Any]) -> list[np.ndarray]:
    """The plan carried out in NumPy, its nests and routines by their interpreters."""
    return _Machine(program, args).run()


def interpreted(closed: core.ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    """``by_loops`` of a program that is compiled for it."""
    return by_loops(compiled(closed), args)


def n_kernels(program: compiler.Program) -> int:
    kernels = (steps.Run, steps.Chain, steps.FusedEpilogue)
    return sum(isinstance(entry, kernels) for entry in program.plan.instructions)


class _Machine:
    """Slots as byte arrays."""

    def __init__(self, program: compiler.Program, args: Sequence[Any]) -> None:
        self.plan = program.plan
        given = [*(np.asarray(const) for const in program.consts), *args]
        self.slots = [
            np.frombuffer(bytearray(np.ascontiguousarray(np.asarray(x, v.dtype)).tobytes()), np.uint8)
            for x, v in zip(given, program.in_avals, strict=True)
        ]
        self.slots += [np.zeros(output.aval.nbytes, np.uint8) for output in self.plan.outputs]
        arena = np.zeros(self.plan.arena_bytes, np.uint8)
        self.slots += [arena[offset : offset + n] for offset, n in self.plan.temps]
        self.dynamic: dict[int, int] = {}

    def run(self) -> list[np.ndarray]:
        for entry in self.plan.instructions:
            if isinstance(entry, steps.Chain):
                for run in entry.runs:
                    self._kernel(run)
                continue
            if isinstance(entry, steps.FusedEpilogue):
                self._instruction(entry.product)
                entry = entry.run
            if isinstance(entry, steps.Run):
                self._kernel(entry)
            elif isinstance(entry, steps.Native):
                self._native(entry)
            else:
                self._instruction(entry)
        return [self._output(position, spec) for position, spec in enumerate(self.plan.outputs)]

    def _instruction(self, entry: instructions.Instruction) -> None:
        getattr(self, f"_{type(entry).__name__.lower()}")(*entry)

    def _output(self, position: int, spec: instructions.Output) -> np.ndarray:
        slot = self.plan.n_inputs + position
        if isinstance(spec, instructions.InputOutput):
            slot = spec.source
        elif isinstance(spec, instructions.SameOutput):
            slot = self.plan.n_inputs + spec.source
        aval = spec.aval
        return self.slots[slot][: aval.nbytes].view(aval.dtype).reshape(aval.shape)

    def _at(self, location: tuple[int, int, int]) -> tuple[np.ndarray, int]:
        slot, offset, dyn = location
        return self.slots[slot], offset + self.dynamic.get(dyn, 0)

    def _kernel(self, entry: steps.Run) -> None:
        buffers, offsets = [], []
        for binding, location in zip(entry.lowered.operands, entry.operands, strict=True):
            data, offset = self._at(location)
            size = binding.dtype.itemsize
            buffers.append(data[: len(data) // size * size].view(binding.dtype))
            offsets.append(offset // size)
        loop_interpreter.interpret(entry.lowered, buffers, offsets)

    def _native(self, entry: steps.Native) -> None:
        buffers = []
        for operand, (location, nbytes) in zip(entry.lowered.routine.operands, entry.locations, strict=True):
            data, offset = self._at(location)
            buffers.append(data[offset : offset + nbytes].view(operand.dtype))
        routine_interpreter.interpret(entry.lowered, buffers)

    def _offset(
        self, dyn: int, entries: Sequence[tuple[int, int, str, int, int]], word: tuple[int, int, int] | None
    ) -> None:
        total = 0
        for slot, offset, char, most, stride in entries:
            value = int(self.slots[slot][offset : offset + np.dtype(char).itemsize].view(char)[0])
            if word is not None and not 0 <= value <= most:
                data, at = self._at(word)
                data[at] = 1
            total += min(max(value, 0), most) * stride
        self.dynamic[dyn] = total

    def _copy(self, target: tuple[int, int, int], source: tuple[int, int, int], nbytes: int) -> None:
        (data, at), (old, start) = self._at(target), self._at(source)
        data[at : at + nbytes] = old[start : start + nbytes]

    def _fill(self, target: tuple[int, int, int], nbytes: int, byte: int) -> None:
        data, at = self._at(target)
        data[at : at + nbytes] = byte

    def _gemm(
        self,
        source: str,
        result: str,
        a: Any,
        b: Any,
        c: Any,
        rows: Any,
        columns: Any,
        summed: Any,
        batch: Any,
        *_: Any,
    ) -> None:
        char = np.dtype(dtypes.bfloat16 if source == "E" else source)
        (m, n, k), width = ([extent for extent, *_ in dims] for dims in (rows, columns, summed)), 1
        across = []  # columns of the result are contiguous
        for extent in reversed(n):
            across, width = [width, *across], width * extent
        for index in np.ndindex(*[entry[0] for entry in batch]):
            moves = [sum(i * entry[side] for i, entry in zip(index, batch, strict=True)) for side in (1, 2, 3)]
            left = self._array(char, a, moves[0], [*m, *k], [s for _, s, _ in rows] + [s for _, s, _ in summed])
            right = self._array(char, b, moves[1], [*k, *n], [s for _, _, s in summed] + [s for _, s in columns])
            product = np.tensordot(left.astype(result), right.astype(result), len(k))
            self._array(result, c, moves[2], [*m, *n], [s for _, _, s in rows] + across)[...] = product

    def _array(self, char: Any, location: Any, move: int, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
        data, at = self._at(location)
        size = np.dtype(char).itemsize
        flat = data[at + move :][: _whole(data, at + move, size)].view(char)
        return np.lib.stride_tricks.as_strided(flat, shape, [stride * size for stride in strides])


def _whole(data: np.ndarray, start: int, size: int) -> int:
    return (len(data) - start) // size * size
