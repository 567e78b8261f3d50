"""The frame of a nest's function: its parameters, its loops, and the positions in them.

What writes a form of loops, or one kind of statement, knows this frame; ``nest`` writes the whole function in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from weft._base.target import Target
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.cpu import families
from weft.codegen.memory_access.accesses import Step
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests.instances import Instance, Position, fresh
from weft.codegen.writer import Carried
from weft.loops import ir
from weft.loops.schedules import uniform
from weft.loops.schedules.decisions import Schedule

if TYPE_CHECKING:
    from weft.codegen.memory_access.mixed_radix import Digits
    from weft.codegen.memory_access.nontemporal_stores import Streams

STRETCH = 1 << 14  # iterations between checks for an interrupt, in a loop without blocks
STOP = "stop"


def distance(of: Frame | Digits, operand: int, dim: int, index: str) -> str:
    """The distance, in elements, from an operand's first element to the one at ``index`` along a dimension."""
    stride = of.nest.operands[operand].strides[dim]
    if stride == ir.RUNTIME:
        return of.writer.index("mul", index, of.strides[operand, dim])
    return index if stride == 1 else of.writer.index("sub", "0", index)


class Frame(ABC):
    """One function that is being written."""

    def __init__(self, schedule: Schedule, target: Target) -> None:
        self.schedule, self.nest = schedule, schedule.nest
        nest = self.nest
        self.target, self.model = target, target.model
        self.writer = families.writer(target)
        self.width = schedule.lanes
        self.scalar = Lanes(self.writer, 1)
        self.lanes = Lanes(self.writer, self.width)
        self.extents: list[str] = []
        self.strides: dict[tuple[int, int], str] = {}
        self.offsets: dict[tuple[int, int], V] = {}
        self.row_bases: list[str] = []
        self.stop_word = ""  # the address of the stop word, if the code polls it
        self.reduced = [d for d, dim in enumerate(nest.dims) if dim.role == "reduced"]
        self.digits: Digits | None = None
        self.streams: Streams | None = None
        self.scalars = Instance(Emitter(self.scalar), Memory(self.scalar, target), {})  # with the values of the setup
        self.inner = [
            d
            for d, dim in enumerate(nest.dims)
            if dim.role == "parallel" and nest.vector is not None and d > nest.vector
        ]
        self.moving = uniform.moving(nest)
        self.uniform_offsets = uniform.offsets(nest, self.inner)

    @abstractmethod
    def run(self, statements: Sequence[ir.Statement], copies: list[Instance], position: Position) -> None:
        """Emit the statements for every copy, statement by statement, so that the copies interleave."""

    @abstractmethod
    def load(self, s: ir.Load, copies: list[Instance], position: Position) -> None:
        """Emit a load for every copy."""

    @abstractmethod
    def store(self, s: ir.Store, copies: list[Instance], position: Position) -> None:
        """Emit a store for every copy."""

    @abstractmethod
    def stream(self, position: Position) -> None:
        """From here on, use non-temporal stores where that pays."""

    @abstractmethod
    def limits(self, position: Position, dim: int) -> tuple[str, str]:
        """The range of the serial loop over a parallel dimension."""

    # parameters

    def param(self, slot: int) -> str:
        return self.writer.op(f"load i64, ptr {self.writer.element('i64', '%params', str(slot))}, align 8")

    def range(self, slot: int) -> str:
        return self.writer.op(f"load i64, ptr {self.writer.element('i64', '%range', str(slot))}, align 8")

    @property
    def columns(self) -> bool:
        """Whether the vector dimension is parallel (or absent)."""
        return self.nest.vector is None or self.nest.dims[self.nest.vector].role == "parallel"

    # interrupts: the results of a kernel that was told to stop are discarded

    def poll(self) -> None:
        """Return from the kernel if the runtime asks for it: one load and a branch every few thousand elements."""
        writer, stay = self.writer, self.writer.fresh_label()
        if not self.stop_word:
            word = writer.once("getelementptr i64, ptr %range, i64 6")
            self.stop_word = writer.once(f"load ptr, ptr {word}, align 8")
        told = writer.op(f"load atomic i32, ptr {self.stop_word} monotonic, align 4")
        writer.branch_if(writer.op(f"icmp ne i32 {told}, 0"), STOP, stay, cold=True)
        writer.label(stay)

    def stretches(
        self, low: str, high: str, step: int, carried: Carried, body: Callable[[str, list[str]], Sequence[str]]
    ) -> list[str]:
        """``writer.loop`` with a check for an interrupt every ``STRETCH`` iterations, between whole steps.

        A nest of one parallel dimension needs no checks: the runtime calls it for one stretch at a time.
        """
        writer, length = self.writer, STRETCH - STRETCH % step
        if [dim.role for dim in self.nest.dims] == ["parallel"]:
            return writer.loop(low, high, step, carried, body)

        def stretch(start: str, values: list[str]) -> list[str]:
            self.poll()
            stop = writer.minimum_index(writer.index("add", start, str(length)), high)
            begun = [(type_, value) for (type_, _), value in zip(carried, values, strict=True)]
            return writer.loop(start, stop, step, begun, body)

        return writer.loop(low, high, length, carried, stretch)

    # positions

    def copy(self, lanes: Lanes, values: dict[int, Value]) -> Instance:
        return Instance(Emitter(lanes), Memory(lanes, self.target), values)

    def enter(self, position: Position, dim: int, index: str, operands: Iterable[int]) -> Position:
        """The position inside the loop over ``dim``."""
        pointers = dict(position.pointers)
        for k in operands:
            stride = self.nest.operands[k].strides[dim]
            if stride:
                pointers[k] = self.writer.element(
                    whole(self.nest.operands[k].dtype), pointers[k], self.distance(k, dim, index)
                )
        indices = {**position.indices, dim: index}
        if self.digits is not None and self.columns and dim in self.reduced[-1:]:
            at = self.digits.at(index)
            pointers = self.digits.moved(pointers, at, operands)
            indices.update(zip(self.nest.digits, at, strict=True))
        row = position.row
        if self.nest.rows and self.nest.dims[dim].role == "reduced":
            row = self.writer.index("add", self.writer.index("mul", row, self.extents[dim]), index)
        return Position(pointers, indices, row)

    def enter_run(self, begin: Position, dim: int, index: str, operands: Iterable[int]) -> Position:
        """The position ``index`` behind ``begin``, where only the last digit of the flattened ``dim`` moves."""
        last, pointers = self.nest.digits[-1], dict(begin.pointers)
        for k in operands:
            for moved in (dim, last):
                if self.nest.operands[k].strides[moved]:
                    element = whole(self.nest.operands[k].dtype)
                    pointers[k] = self.writer.element(element, pointers[k], self.distance(k, moved, index))
        indices = {**begin.indices, dim: self.writer.index("add", begin.indices[dim], index), last: index}
        row = self.writer.index("add", begin.row, index) if self.nest.rows else begin.row
        return Position(pointers, indices, row)

    def distance(self, operand: int, dim: int, index: str) -> str:
        """The distance, in elements, from an operand's first element to the one at ``index`` along a dimension."""
        return distance(self, operand, dim, index)

    def parallel(self, position: Position, dims: Sequence[int], inner: Callable[[Position], None]) -> None:
        """Serial loops over ``dims``, the first dimension of the nest within the given range."""
        if not dims:
            inner(position)
            return
        dim, operands = dims[0], range(len(self.nest.operands))
        low, high = self.limits(position, dim)

        def body(index: str, _: list[str]) -> list[str]:
            self.parallel(self.enter(position, dim, index, operands), dims[1:], inner)
            return []

        self.writer.loop(low, high, 1, [], body)

    # values

    def entered(
        self, statements: Sequence[ir.Statement], tile: Sequence[Instance], position: Position
    ) -> list[Instance]:
        """Copies of a tile for the body of a loop inside of it, with the scalars that are known at this position."""
        uniform, vectors = self.uniform(statements, tile[0].scalars, position), []
        for copy in tile:
            vectors.append(fresh(copy, copy.values, copy.index, copy.mask, copy.slot))
            vectors[-1].scalars = {**copy.scalars, **uniform}
            vectors[-1].values.update({n: copy.memory.splat(v) for n, v in uniform.items()})
        return vectors

    def stride(self, operand: int, copy: Instance) -> int:
        """Stride class of an operand along the copy's lanes."""
        if copy.index is None or self.nest.vector is None:
            return 0
        return self.nest.operands[operand].strides[self.nest.vector]

    def step(self, operand: int, copy: Instance) -> Step:
        """How far apart the lanes of a copy are in an operand."""
        kind = self.stride(operand, copy)
        if kind != ir.RUNTIME or self.nest.vector is None:
            return Step(kind)
        key = operand, self.nest.vector
        offsets = self.offsets[key] if key in self.offsets else copy.memory.lanes.iota("i64")
        return Step(kind, self.strides[key], offsets, self.schedule.near)

    def hoist(self, statements: Sequence[ir.Statement], copy: Instance, position: Position) -> dict[int, Value]:
        """Scalars computed before the vector loop: loads that do not depend on it, and addresses computed from them."""
        assert self.nest.vector is not None
        hoisted = {}
        for s in statements:
            if not isinstance(s, ir.Load) or self.nest.uses_digits(s.operand):
                continue
            if any(self.nest.operands[s.operand].strides[d] for d in self.inner):
                continue
            if not self.nest.operands[s.operand].strides[self.nest.vector]:
                hoisted[s.out] = copy.memory.load_scalar(
                    self.nest.operands[s.operand].dtype, position.pointers[s.operand]
                )
        known = {**(copy.values if copy.memory.lanes.width == 1 else copy.scalars), **hoisted}
        return {**hoisted, **self.uniform(statements, known, position)}

    def uniform(
        self, statements: Sequence[ir.Statement], known: dict[int, Value], position: Position
    ) -> dict[int, Value]:
        """Scalar values of statements from which addresses are computed, if their operands are known here."""
        if not self.uniform_offsets:
            return {}
        point = self.copy(self.scalar, dict(known))
        for s in statements:
            out = getattr(s, "out", None)  # some statements have none
            if (
                out in self.uniform_offsets
                and out not in point.values
                and all(n in point.values for n in ir.arguments(s))
            ):
                self.run([s], [point], position)
        return {n: value for n, value in point.values.items() if n not in known}
