"""Compiles a routine in lanes (``loops.routines.lane_routine``) to one LLVM function: a few vectors of lanes at a time.

The program of a lane is written like other routines, but each of its elements is a vector of lanes. It is written for
tiles of several vectors, to hide latencies, and once more for the last lanes, as one vector. Lanes past the end repeat
the first lane of their tile, so that no operation sees a value that the program does not compute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.target import Target
from weft._base.target_model import LINE
from weft.codegen.arithmetic import shuffles
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.cpu import families
from weft.codegen.memory_access import accesses
from weft.codegen.memory_access.accesses import Step
from weft.codegen.memory_access.memory import Mask, Memory, first_lanes
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.routines.pieces import Array, Scope
from weft.codegen.routines.routine_writer import POLL_MASK, RoutineWriter
from weft.codegen.writer import Writer
from weft.loops import elements, ir
from weft.loops.routines import lane_tiles, routine
from weft.loops.routines.lane_tiles import AHEAD, FAR_BYTES


class LaneScope(Scope):
    """A basic block whose elements are vectors of ``width`` lanes; ``single`` writes uniform values."""

    def __init__(self, writer: Writer, target: Target, width: int) -> None:
        super().__init__(writer, target, 1)
        self.width = width
        self.single = Scope(writer, target, 1)
        self.narrow = Emitter(Lanes(writer, target.lanes))
        self.apart = False

    def emit(self, width: int) -> Emitter:
        found = self._emitters.get(1)
        if found is None:
            found = self._emitters[1] = Emitter(Lanes(self.writer, self.width))
        return found

    def inner(self) -> LaneScope:
        return LaneScope(self.writer, self.target, self.width)

    def gathered(self, dtype: np.dtype, chosen: Sequence[tuple[Value, int]], width: int) -> Value:
        return chosen[0][0]

    def splat(self, array: Array, width: int) -> Value:
        return array.pieces[0]

    def mapped(self, function: Callable[..., Value], args: Sequence[Array], size: int) -> list[Value]:
        if not self.apart or self.width <= self.target.lanes:
            return super().mapped(function, args, size)
        pieces = []
        for k in range(size):
            values = [arg.pieces[k if arg.size == size else 0] for arg in args]
            firsts = range(0, self.width, self.target.lanes)
            pieces.append(
                self.joined([function(self.narrow, *[self.part(value, first) for value in values]) for first in firsts])
            )
        return pieces

    def part(self, value: Value, first: int) -> Value:
        """The lanes that form one vector."""
        return Value(value.dtype, tuple([shuffles.part(v, self.narrow.lanes, first) for v in value.parts]))

    def joined(self, pieces: Sequence[Value]) -> Value:
        """One value from consecutive vectors."""
        lanes, width, parts = self.emit(1).lanes, self.target.lanes, []
        for number, part in enumerate(pieces[0].parts):
            texts = [piece.parts[number].text for piece in pieces]
            parts.append(shuffles.joined(texts, lanes, width, part.element))
        return Value(pieces[0].dtype, tuple(parts))

    def rebuild(self, like: Sequence[Any], texts: Sequence[str]) -> list[Array]:
        rest, arrays = iter(texts), []
        for kind in like:
            count = kind.size * elements.of(kind.dtype).parts
            given = [next(rest) for _ in range(count)]
            arrays += super().rebuild([kind], given) if kind.lanes else self.single.rebuild([kind], given)
        return arrays


class LaneWriter(RoutineWriter):
    """Writes one function. ``text()`` gives the module."""

    def __init__(self, program: routine.Routine, target: Target) -> None:
        super().__init__(program, target)
        self.writer = families.writer(target)
        self.first = ""  # lane of the tile
        self.mask: Mask | None = None  # of the tile; none for a whole one

    def text(self, symbol: str) -> str:
        writer = self.writer
        self.load_parameters()
        first, spent = "0", "0"
        widths = lane_tiles.widths(self.program, self.target)
        # the next width processes the lanes that are left
        whole_first = len(widths) > 2 and lane_tiles.whole_first(self.program, self.target)
        for k, (width, least) in enumerate(zip(widths, [*widths[1:], 0], strict=True)):
            is_whole = whole_first and k == 0
            high = writer.index("sub", self.extents[0], str(width - 1 if is_whole else least))
            carried = [("i64", first), ("i64", spent)]
            tile = functools.partial(self.tile, width, is_whole)
            first, spent = writer.loop(first, high, width, carried, tile)
        return self.ended(symbol)

    def tile(self, width: int, is_whole: bool, first: str, carried: Sequence[str]) -> tuple[str, str]:
        """Write the lanes from ``first``; gives the next lane, and the steps since the last check for an interrupt."""
        writer = self.writer
        self.scope = LaneScope(writer, self.target, width)
        self.first = first
        remaining = writer.index("sub", self.extents[0], first)
        self.mask = None if is_whole else first_lanes(self.scope.emit(1).lanes, remaining)
        self.run(self.program.block)
        spent = writer.index("add", writer.index("add", carried[1], self.steps), "1")
        many = writer.compare_index("sgt", spent, str(POLL_MASK))
        self.look(many)
        return writer.op(f"add nsw i64 {first}, {width}"), writer.choose_index(many, "0", spent)

    def statement(self, s: Any) -> None:
        """Write a statement; uniform values are computed once."""
        scope = self.scope
        assert isinstance(scope, LaneScope)
        if isinstance(s, routine.Spread):
            self.spread(s)
        elif self.in_lanes(s):
            scope.apart = isinstance(s, ir.Apply) and s.kind.cost > lane_tiles.LONG
            super().statement(s)
        else:
            self.scope = scope.single
            super().statement(s)
            self.scope = scope

    def in_lanes(self, s: Any) -> bool:
        """Whether what a statement works on differs between lanes."""
        if isinstance(s, ir.Load | ir.Store):
            return self.program.operands[s.operand].lanes
        if isinstance(s, ir.Guard):
            return self.type(s.value).lanes
        return isinstance(s, routine.Repeat | routine.Choose) or self.type(routine.outs(s)[0]).lanes

    def spread(self, s: routine.Spread) -> None:
        value = self.values[s.value]
        memory = Memory(self.scope.emit(1).lanes, self.target)
        self.values[s.out] = Array(value.dtype, value.size, tuple([memory.splat(piece) for piece in value.pieces]))

    # memory

    def lane_base(self, operand: int, size: int) -> str:
        """A pointer to the first element of the tile's first lane."""
        writer, lane = self.writer, self.first
        if self.program.operands[operand].size:
            assert self.row is not None
            lane = writer.index("add", writer.index("mul", self.row, self.extents[0]), lane)
        type_ = whole(self.program.operands[operand].dtype)
        return writer.element(type_, self.pointers[operand], writer.index("mul", lane, str(size)))

    def load(self, s: ir.Load) -> None:
        kind = self.type(s.out)
        if not self.program.operands[s.operand].lanes:
            super().load(s)
            return
        lanes = self.scope.emit(1).lanes
        memory, base = Memory(lanes, self.target), self.lane_base(s.operand, kind.size)
        self.fetch(s, base, kind)
        pieces = []
        for k in range(kind.size):
            pointer = self.writer.element(whole(kind.dtype), base, str(k))
            loaded = accesses.load_along(memory, kind.dtype, pointer, _step(lanes, kind.size), self.mask)
            if self.mask is not None:
                first = memory.splat(memory.load_scalar(kind.dtype, pointer))
                pairs = zip(loaded.parts, first.parts, strict=True)
                parts = tuple(lanes.select(self.mask.lanes, own, other) for own, other in pairs)
                loaded = Value(kind.dtype, parts)
            pieces.append(loaded)
        self.values[s.out] = Array(kind.dtype, kind.size, tuple(pieces))

    def store(self, s: ir.Store) -> None:
        value = self.values[s.value]
        if not self.program.operands[s.operand].lanes:
            super().store(s)
            return
        lanes = self.scope.emit(1).lanes
        memory, base = Memory(lanes, self.target), self.lane_base(s.operand, value.size)
        self.fetch(s, base, self.type(s.value))
        in_parts = value.size == 1 and self.program.operands[s.operand].size > 0 and not self.target.model.masks
        for k, piece in enumerate(value.pieces):
            pointer = self.writer.element(whole(value.dtype), base, str(k))
            if in_parts and self.mask is not None:
                memory.put_parts(piece, pointer, self.mask)
            else:
                accesses.store_along(memory, piece, pointer, _step(lanes, value.size), self.mask)

    def fetch(self, s: ir.Load | ir.Store, base: str, kind: routine.Type) -> None:
        """Prefetch the tile's cache lines of a later row: rows are too far apart for the hardware prefetcher."""
        if not self.program.operands[s.operand].size:
            return
        writer, word = self.writer, whole(kind.dtype)
        element = elements.of(kind.dtype)
        item = element.size
        tile = self.scope.emit(1).lanes.width * kind.size
        apart = writer.index("mul", self.extents[0], str(kind.size))

        def lines() -> None:
            ahead = writer.element(word, base, writer.index("mul", apart, str(-AHEAD if self.downwards else AHEAD)))
            for k in range(0, tile, LINE // item):
                writer.prefetch(writer.element(word, ahead, str(k)))

        writer.when(writer.compare_index("sge", apart, str(FAR_BYTES // item)), lines, rare=False)

    # control flow

    def holds(self, s: routine.Repeat, result: Array) -> str:
        part = result.pieces[0].part
        if not s.by_element:
            return part.text
        # lanes past the end go on as long as the tile's first lane, which they repeat
        lanes, narrow, writer = part.lanes, self.target.lanes, self.writer
        if writer.model.masks or lanes.width <= narrow:
            return lanes.any(part)
        # without registers for masks, whole vectors are joined first: LLVM would pack all lanes to bytes
        wide = part.cast("sext", "i32")
        width = lanes.width
        while width > narrow:
            half = Lanes(writer, width // 2)
            wide, width = shuffles.part(wide, half, 0) | shuffles.part(wide, half, width // 2), width // 2
        return wide.lanes.any(wide.ne(0))


def _step(lanes: Lanes, size: int) -> Step:
    """The distance of the arrays of neighbouring lanes."""
    return Step(1) if size == 1 else Step(ir.RUNTIME, str(size), lanes.iota("i32") * size)
