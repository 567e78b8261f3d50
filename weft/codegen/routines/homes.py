"""Arrays of a routine in memory: those that are sliced, gathered or updated at run-time offsets.

Such an array that a loop carries has a buffer on the stack for all iterations, and is updated there. Its elements are
read when it is defined, for uses of the whole; LLVM drops what has no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import guards
from weft.codegen.routines.pieces import Array
from weft.loops import elements
from weft.loops.routines import routine

if TYPE_CHECKING:
    from weft.codegen.routines.routine_writer import RoutineWriter


class Homes:
    """Which values have their elements on the stack, and where. The writer that has it is given to each method."""

    def __init__(self) -> None:
        self.at: dict[int, str] = {}  # value -> the pointer to its elements now
        self.written: frozenset[str] = frozenset()  # the buffers that belong to the innermost loop

    def slice(self, parent: RoutineWriter, s: routine.Slice) -> Array:
        kind, writer = parent.type(s.out), parent.writer
        base = self.source(parent, s)
        starts: Sequence[tuple[int, Any, Any]] = s.starts
        if s.value is None:
            sizes = parent.extents
            starts = [(start, sizes[most], 1 if stride is None else sizes[stride]) for start, most, stride in s.starts]
        base = writer.element(whole(kind.dtype), base, self.offset(parent, starts, s.guarded))
        return self.loaded(parent, kind, base, s.offsets)

    def source(self, parent: RoutineWriter, s: routine.Slice | routine.Take) -> str:
        """A pointer to the elements of what is sliced."""
        value = s.value
        if value is None:
            assert s.operand is not None
            return parent.pointers[s.operand]
        if value not in self.at:
            self.at[value] = self.spilled(parent, parent.values[value])
        return self.at[value]

    def take(self, parent: RoutineWriter, s: routine.Take) -> Array:
        kind, base, pieces = parent.type(s.out), self.source(parent, s), []
        for width, index in zip(parent.scope.widths(kind.size), parent.values[s.index].pieces, strict=True):
            memory = Memory(parent.scope.emit(width).lanes, parent.target)
            if width == 1:
                at = parent.writer.op(f"getelementptr {whole(kind.dtype)}, ptr {base}, i32 {index.part.text}")
                pieces.append(memory.load_scalar(kind.dtype, at))
            else:
                pieces.append(memory.load_at(kind.dtype, base, index.part))
        return Array(kind.dtype, kind.size, tuple(pieces))

    def loaded(self, parent: RoutineWriter, kind: routine.Type, base: str, offsets: tuple[int, ...]) -> Array:
        """The elements at these offsets."""
        if offsets == tuple(range(kind.size)):
            return parent.scope.load(kind.dtype, kind.size, base)
        pointers = [parent.writer.element(whole(kind.dtype), base, str(offset)) for offset in offsets]
        return parent.scope.pick(kind.dtype, [(parent.scope.load(kind.dtype, 1, pointer), 0) for pointer in pointers])

    def update(self, parent: RoutineWriter, s: routine.Update) -> Array:
        kind, writer, update = parent.type(s.out), parent.writer, parent.values[s.update]
        buffer = self.at.get(s.value)
        if buffer in self.written:
            self.leave(buffer)
            self.at[s.out] = buffer
        else:
            buffer = self.spilled(parent, parent.values[s.value])
        base = writer.element(whole(kind.dtype), buffer, self.offset(parent, s.starts, s.guarded))
        if s.offsets == tuple(range(update.size)):
            parent.scope.store(update, base)
        else:
            for k, offset in enumerate(s.offsets):
                one = parent.scope.pick(kind.dtype, [(update, k)])
                parent.scope.store(one, writer.element(whole(kind.dtype), base, str(offset)))
        return parent.scope.load(kind.dtype, kind.size, buffer)

    def leave(self, buffer: str) -> None:
        """The values in this buffer are no longer there."""
        self.at = {n: home for n, home in self.at.items() if home != buffer}

    def offset(self, parent: RoutineWriter, starts: Sequence[tuple[int, Any, Any]], guarded: bool) -> str:
        """The sum of the clamped starts times their strides (numbers, or names of i64), as i64."""
        writer, total = parent.writer, "0"
        for value, most, stride in starts:
            unsigned = parent.type(value).dtype.kind == "u"
            start = parent.one(value)
            text = start.text
            if start.element != "i64":
                text = writer.op(f"{'zext' if unsigned else 'sext'} {start.element} {text} to i64")
            minimum, maximum = ("umin", "umax") if unsigned else ("smin", "smax")
            given = text
            text = writer.call(f"llvm.{minimum}.i64", "i64", [("i64", text), ("i64", str(most))])
            text = writer.call(f"llvm.{maximum}.i64", "i64", [("i64", text), ("i64", "0")])
            if guarded:
                one = Lanes(writer, 1)
                guards.tell(one, V(one, "i1", writer.op(f"icmp ne i64 {given}, {text}")), parent.pointers[-1])
            total = writer.index("add", total, writer.index("mul", text, str(stride)))
        return total

    def spilled(self, parent: RoutineWriter, array: Array) -> str:
        """A pointer to the array's elements, stored on the stack."""
        element = elements.of(array.dtype)
        room = sum(parent.scope.widths(array.size)) * element.size
        buffer = parent.writer.alloca(f"[{room} x i8]")
        parent.scope.store(array, buffer)
        return buffer

    # control flow

    def settled(self, parent: RoutineWriter, s: routine.Repeat) -> dict[int, str]:
        """Store arrays that the loop slices or updates; the buffers of those of its state, by their number."""
        inner = [*routine.statements(s.body), *(routine.statements(s.cond) if s.cond is not None else ())]
        sources = [one.value for one in inner if isinstance(one, routine.Slice | routine.Take)]
        sliced = {n for n in sources if n is not None}
        for n in (sliced & parent.values.keys()) - self.at.keys():
            self.at[n] = self.spilled(parent, parent.values[n])
        kept = set(s.body.arguments)
        for one in s.body.statements:
            kept |= {one.out} if isinstance(one, routine.Update) else set()
            kept |= set(one.outs) if isinstance(one, routine.Choose) else set()
        moving = sliced | {one.value for one in inner if isinstance(one, routine.Update)}
        tested = s.cond.arguments if s.cond is not None else s.body.arguments
        rows = enumerate(zip(s.body.results, s.body.arguments, tested, strict=True))
        own = [k for k, (result, *row) in rows if result in kept and moving.intersection(row)]
        return {k: self.spilled(parent, parent.values[s.initial[k]]) for k in own if parent.type(s.initial[k]).size > 1}

    def put_back(
        self, parent: RoutineWriter, s: routine.Repeat, homes: dict[int, str], results: Sequence[Array]
    ) -> None:
        """Store what the loop's next iteration finds in the buffers, unless it is there."""
        for k, home in homes.items():
            if self.at.get(s.body.results[k]) != home:
                parent.scope.store(results[k], home)

    def common(self, s: routine.Choose, k: int, homes: Sequence[dict[int, str]]) -> str | None:
        """The buffer of result ``k`` if every block leaves it at the same one."""
        first, *others = [home.get(block.results[k]) for home, block in zip(homes, s.blocks, strict=True)]
        return first if all(other == first for other in others) else None
