"""Compiles a ``loops.routines.routine.Routine`` to one LLVM function with the signature of a kernel.

Loops have their state in phi nodes, branches become a switch. Only operands, and arrays that are sliced or updated at
run-time offsets (``homes``), are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.target import Target
from weft.codegen import module_text
from weft.codegen.arithmetic.lanes import V
from weft.codegen.cpu import families
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import guards
from weft.codegen.routines import small_arrays
from weft.codegen.routines.homes import Homes
from weft.codegen.routines.pieces import Array, Scope
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.routines import routine

PARAMETERS = "ptr readonly %operands, ptr noalias readonly %params, ptr noalias readonly %range, ptr noalias %scratch"
ABORT = "abort"
POLL_MASK = (1 << 15) - 1  # iterations between checks for an interrupt


class RoutineWriter:
    """Writes one function. ``text()`` gives the module."""

    def __init__(self, program: routine.Routine, target: Target) -> None:
        self.program, self.target = program, target
        scalar = program.scalar or all(kind.size == 1 for kind in program.types)
        self.writer = families.writer(target, scalar)
        self.scope = Scope(self.writer, target, 1 if scalar else target.lanes)
        self.values: dict[int, Array] = {}
        self.pointers: list[str] = []
        self.trips: list[str] = []
        self.extents: list[str] = []
        self.row: str | None = None  # the row of the enclosing loop's current iteration
        self.downwards = False  # whether that loop starts at the last row
        self.stops = False  # whether a loop may be left because of an interrupt
        self.steps = "0"  # the number of steps of the last loop written
        self.homes = Homes()

    def text(self, symbol: str) -> str:
        self.load_parameters()
        self.run(self.program.block)
        return self.ended(symbol)

    def load_parameters(self) -> None:
        writer = self.writer
        for k in range(len(self.program.operands)):
            self.pointers.append(writer.op(f"load ptr, ptr {writer.element('ptr', '%operands', str(k))}, align 8"))
        numbers = self.program.trips + self.program.extents
        slots = [writer.element("i64", "%params", str(k)) for k in range(numbers)]
        loaded = [writer.op(f"load i64, ptr {slot}, align 8") for slot in slots]
        self.trips, self.extents = loaded[: self.program.trips], loaded[self.program.trips :]

    def ended(self, symbol: str) -> str:
        """The text of what was written."""
        if self.stops:
            self.writer.branch(ABORT)
            self.writer.label(ABORT)
        return module_text.text(self.writer, symbol, PARAMETERS)

    def run(self, block: routine.Block) -> list[Array]:
        for statement in block.statements:
            self.statement(statement)
        return [self.values[n] for n in block.results]

    def statement(self, s: Any) -> None:
        values, scope = self.values, self.scope
        match s:
            case routine.Constant(out, bits):
                values[out] = scope.constant(np.frombuffer(bits, self.type(out).dtype))
            case ir.Param(out, index, dtype):
                slot = self.writer.element("i64", "%params", str(len(self.trips) + len(self.extents) + index))
                values[out] = scope.load(dtype, 1, slot)
            case routine.Pick(out, sources):
                chosen = [(values[value], element) for value, element in sources]
                values[out] = scope.pick(self.type(out).dtype, chosen)
            case ir.Load():
                self.load(s)
            case ir.Store():
                self.store(s)
            case ir.Apply(out):
                values[out] = small_arrays.applied(scope, s, [values[n] for n in s.args], self.type(out).size)
            case routine.Product(out, lhs, rhs):
                values[out] = small_arrays.product(scope, s, values[lhs], values[rhs])
            case routine.Fold(outs):
                values.update(zip(outs, small_arrays.folded(scope, s, [values[n] for n in s.args]), strict=True))
            case routine.Running(outs):
                values.update(zip(outs, small_arrays.running(scope, s, [values[n] for n in s.args]), strict=True))
            case routine.Slice(out):
                values[out] = self.homes.slice(self, s)
            case routine.Take(out):
                values[out] = self.homes.take(self, s)
            case routine.Update(out):
                values[out] = self.homes.update(self, s)
            case ir.Guard(operand, value):
                for piece in values[value].pieces:
                    guards.tell(piece.part.lanes, piece.part, self.pointers[operand])
            case routine.Repeat():
                self.repeat(s)
            case routine.Choose():
                self.choose(s)

    def type(self, n: int) -> routine.Type:
        return self.program.types[n]

    def one(self, n: int) -> V:
        """The register of a scalar."""
        return self.values[n].pieces[0].part

    def pointer(self, operand: int) -> str:
        base, info = self.pointers[operand], self.program.operands[operand]
        if not info.size:
            return base
        assert self.row is not None
        return self.writer.element(whole(info.dtype), base, self.writer.index("mul", self.row, str(info.size)))

    def load(self, s: ir.Load) -> None:
        kind = self.type(s.out)
        self.values[s.out] = self.scope.load(kind.dtype, kind.size, self.pointer(s.operand))

    def store(self, s: ir.Store) -> None:
        self.scope.store(self.values[s.value], self.pointer(s.operand))

    # control flow

    def repeat(self, s: routine.Repeat) -> None:
        writer, outer_scope, outer_row = self.writer, self.scope, (self.row, self.downwards)
        head, body, done = writer.fresh_label(), writer.fresh_label(), writer.fresh_label()
        homes = self.homes
        buffers, outer_homes, outer_written = homes.settled(self, s), homes.at, homes.written
        before = writer.block
        initial = outer_scope.flatten([self.values[n] for k, n in enumerate(s.initial) if k not in buffers])
        held = [_held(writer, type_) for type_, _ in initial]
        first = _widened(writer, initial, held)
        writer.branch(head)
        writer.label(head)
        at = len(writer.lines)
        count = writer.name()
        names = [writer.name() for _ in initial]
        types = [self.type(n) for n in s.body.arguments]

        def state() -> list[Array]:
            """In a block of its own: a mask that comes from another block would be taken apart, lane by lane."""
            kept = zip(initial, held, names, strict=True)
            texts = [
                name if type_ == to else writer.op(f"icmp ne {to} {name}, zeroinitializer")
                for (type_, _), to, name in kept
            ]
            arrays = iter(outer_scope.rebuild([kind for k, kind in enumerate(types) if k not in buffers], texts))
            near = outer_scope.inner()
            return [
                near.load(kind.dtype, kind.size, buffers[k]) if k in buffers else next(arrays)
                for k, kind in enumerate(types)
            ]

        homes.written = frozenset()
        goes_on = self.test(s, state(), buffers, count)
        writer.branch_if(goes_on, body, done)
        writer.label(body)
        self.scope, self.row, self.downwards = outer_scope.inner(), count, s.reverse
        if s.reverse and s.trips is not None:
            last = writer.index("sub", self.trips[s.trips], "1")
            self.row = writer.index("sub", last, count)
        self.values.update(zip(s.body.arguments, state(), strict=True))
        homes.at.update({s.body.arguments[k]: buffer for k, buffer in buffers.items()})
        homes.written = frozenset(buffers.values())
        results = self.run(s.body)
        homes.put_back(self, s, buffers, results)
        following = [result for k, result in enumerate(results) if k not in buffers]
        following = _widened(writer, self.scope.flatten(following), held)
        counted = writer.op(f"add nsw i64 {count}, 1")
        self.poll(counted)
        latch = writer.block
        writer.branch(head)
        phis = [f"{count} = phi i64 [ 0, %{before} ], [ {counted}, %{latch} ]"]
        for to, name, old, new in zip(held, names, first, following, strict=True):
            phis.append(f"{name} = phi {to} [ {old}, %{before} ], [ {new}, %{latch} ]")
        writer.lines[at:at] = phis
        writer.label(done)
        self.scope = outer_scope.inner()
        self.row, self.downwards = outer_row
        homes.at, homes.written = outer_homes, outer_written
        self.values.update(zip(s.outs, state(), strict=True))
        self.steps = count

    def poll(self, count: str) -> None:
        """Check now and then whether to stop; if so, the results are discarded."""
        low = self.writer.index("and", count, str(POLL_MASK))
        self.look(self.writer.compare_index("eq", low, "0"))

    def look(self, due: str) -> None:
        """Ask the runtime whether to stop, if ``due``."""
        writer = self.writer
        look, stay = writer.fresh_label(), writer.fresh_label()
        writer.branch_if(due, look, stay, cold=True)
        writer.label(look)
        poll = writer.load("ptr", writer.element("i64", "%range", "6"))
        stop = writer.op(f"call i32 {poll}()")
        writer.branch_if(writer.op(f"icmp ne i32 {stop}, 0"), ABORT, stay, cold=True)
        writer.label(stay)
        self.stops = True

    def test(self, s: routine.Repeat, state: list[Array], buffers: dict[int, str], count: str) -> str:
        """Whether the loop continues, as i1."""
        if s.cond is None:
            assert s.trips is not None
            return self.writer.compare_index("slt", count, self.trips[s.trips])
        self.scope = self.scope.inner()
        self.values.update(zip(s.cond.arguments, state, strict=True))
        self.homes.at.update({s.cond.arguments[k]: buffer for k, buffer in buffers.items()})
        (result,) = self.run(s.cond)
        return self.holds(s, result)

    def holds(self, s: routine.Repeat, result: Array) -> str:
        return result.pieces[0].part.text

    def choose(self, s: routine.Choose) -> None:
        writer, outer_scope = self.writer, self.scope
        labels, join = [writer.fresh_label() for _ in s.blocks], writer.fresh_label()
        index = self.one(s.index).text
        index = writer.call("llvm.smax.i32", "i32", [("i32", index), ("i32", "0")])
        cases = " ".join(f"i32 {k}, label %{label}" for k, label in enumerate(labels[:-1]))
        writer.line(f"switch i32 {index}, label %{labels[-1]} [ {cases} ]")
        incoming: list[tuple[str, list[list[tuple[str, str]]]]] = []
        outer_homes, homes = self.homes.at, []
        for label, block in zip(labels, s.blocks, strict=True):
            writer.label(label)
            self.scope, self.homes.at = outer_scope.inner(), dict(outer_homes)
            registers = [self.scope.flatten([array]) for array in self.run(block)]
            incoming.append((writer.block, registers))
            homes.append(self.homes.at)
            writer.branch(join)
        writer.label(join)
        self.homes.at = {n: buffer for n, buffer in outer_homes.items() if all(one.get(n) == buffer for one in homes)}
        buffers = [self.homes.common(s, k, homes) for k in range(len(s.outs))]
        texts: list[list[str]] = [[] for _ in s.outs]
        for k in [k for k, buffer in enumerate(buffers) if buffer is None]:
            for j, (type_, _) in enumerate(incoming[0][1][k]):
                texts[k].append(writer.phi(type_, *((registers[k][j][1], label) for label, registers in incoming)))
        self.scope = outer_scope.inner()
        for n, buffer, given in zip(s.outs, buffers, texts, strict=True):
            kind = self.type(n)
            if buffer is None:
                (self.values[n],) = self.scope.rebuild([kind], given)
            else:
                self.values[n], self.homes.at[n] = self.scope.load(kind.dtype, kind.size, buffer), buffer


def _held(writer: Writer, type_: str) -> str:
    """The type in which a loop holds a value: masks as numbers where there are no registers for masks."""
    return type_.replace("x i1>", "x i32>") if not writer.model.masks else type_


def _widened(writer: Writer, values: Sequence[tuple[str, str]], held: Sequence[str]) -> list[str]:
    """(type, value) as these types."""
    return [
        text if to == type_ else writer.op(f"sext {type_} {text} to {to}")
        for (type_, text), to in zip(values, held, strict=True)
    ]
