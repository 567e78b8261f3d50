"""Writes sorted scatters for the threads of a GPU: each has a few updates that follow each other.

updates of targets 3 3 5 5 | 5 7 7 7     thread 0 makes those of 3 and all of 5, thread 1 those of 7

A thread leaves out the target that began before its updates, and goes on to the end of its last one. Single numbers
stay in a register from update to update; what several updates read is loaded at once.
"""

from __future__ import annotations

from weft._base.target_model import GPU_AT_ONCE
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import LOADS, PointWriter
from weft.codegen.memory_access import indexed
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances, runs
from weft.codegen.nests.columns import ColumnWriter
from weft.codegen.nests.instances import Instance, Position
from weft.loops import elements, ir
from weft.loops.gpu import grid
from weft.loops.schedules.cpu_space import IN_REGISTERS

UNBOUNDED = 1 << 40  # updates: more than there can be


class RunWriter(PointWriter):
    """Writes the entry of a nest whose first loop is over the updates of a sorted scatter."""

    def _point(self, p: str, position: Position) -> None:
        writer, (chunk, *others) = self.writer, self.indices(p)
        statements = [s for phase in self.nest.phases for s in (*phase.before, *phase.body)]
        (self.last,) = [s for s in statements if isinstance(s, ir.Update)]
        self.others = [s for s in statements if s is not self.last]
        self.dtype = self.nest.operands[self.last.operand].dtype
        self.register, self.base = elements.of(self.dtype).register, self.copy(self.scalar, {})
        first = writer.index("mul", chunk, str(grid.EACH_RUN))

        def updates() -> None:
            before = self._offset(writer.maximum_index(writer.index("sub", first, "1"), "0"), others, position)
            none = writer.choose_index(writer.compare_index("eq", first, "0"), "-1", before)
            plain = self.dtype.char in IN_REGISTERS and self.last.guard is None
            (self._in_register if plain else self._in_memory)(first, none, others, position)

        threads.when(writer, writer.compare_index("slt", first, self.extents[0]), updates)

    def _goes_on(self, index: str, end: str, state: tuple[str, str], there: str) -> tuple[str, str]:
        """Whether an update is this thread's or comes before one that is, and whether it begins a target.

        ``state``: the target of the update before it, and whether that was this thread's.
        """
        writer, (here, active) = self.writer, state
        exists = writer.compare_index("sle", index, self._last_index)
        is_own = writer.compare_index("slt", index, end)
        begins = writer.op(f"icmp ne i64 {here}, {there}")
        same = writer.op(f"and i1 {active}, {writer.op(f'xor i1 {begins}, true')}")
        return writer.op(f"and i1 {exists}, {writer.op(f'or i1 {is_own}, {same}')}"), begins

    def _in_memory(self, first: str, before: str, others: list[str], position: Position) -> None:
        writer, end = self.writer, self.writer.index("add", first, str(grid.EACH_RUN))

        def one(now: list[str]) -> tuple[list[str], str]:
            index, here, active = now
            there = self._offset(writer.minimum_index(index, self._last_index), others, position)
            goes_on, begins = self._goes_on(index, end, (here, active), there)
            active = writer.op(f"and i1 {goes_on}, {writer.op(f'or i1 {active}, {begins}')}")

            def update() -> None:
                base = instances.fresh(self.scalars, self.scalars.values)
                base.scalars = dict(self.scalars.values)
                ColumnWriter(self).point([base], self.at_point(position, [index, *others]))

            threads.when(writer, active, update)
            return [writer.index("add", index, "1"), there, active], goes_on

        writer.rounds("true", UNBOUNDED, [("i64", first), ("i64", before), ("i1", "false")], one)

    def _in_register(self, first: str, before: str, others: list[str], position: Position) -> None:
        writer, s, register = self.writer, self.last, self.register
        end = writer.index("add", first, str(grid.EACH_RUN))
        target = self.at_point(position, [first, *others]).pointers[s.operand]

        def some(now: list[str]) -> tuple[list[str], str]:
            index, here, text, active, written = now
            at, more = [writer.index("add", index, str(k)) for k in range(GPU_AT_ONCE)], "true"
            for k, point in enumerate(self._points(at, others, position)):
                there = indexed.uniform_offset(self, s.offset, point)
                assert there is not None
                goes_on, begins = self._goes_on(at[k], end, (here, active), there)
                more = writer.op(f"and i1 {more}, {goes_on}")
                begins = writer.op(f"and i1 {more}, {begins}")
                inside = "true" if s.inside is None else point.values[s.inside].part.text
                text, here = self._begun(begins, (text, here, written), (there, inside), target)
                active = writer.op(f"or i1 {active}, {begins}")
                written = writer.op(f"and i1 {written}, {writer.op(f'xor i1 {begins}, true')}")
                valid = writer.op(f"and i1 {writer.op(f'and i1 {more}, {active}')}, {inside}")
                point.values[s.old] = self._value(text)
                for step in s.steps:
                    point.values[step.out] = instances.apply(step, point)
                new = point.emit.settle(point.values[s.new]).part.text
                text = writer.op(f"select i1 {valid}, {register} {new}, {register} {text}")
                written = writer.op(f"or i1 {written}, {valid}")
            return [writer.index("add", index, str(GPU_AT_ONCE)), here, text, active, written], more

        zero = self.base.emit.const(0, self.dtype).part.text
        carried = [("i64", first), ("i64", before), (register, zero), ("i1", "false"), ("i1", "false")]
        _, here, text, _, written = writer.rounds("true", UNBOUNDED, carried, some)
        threads.when(writer, written, lambda: self._finish(text, here, target))

    def _begun(
        self, begins: str, now: tuple[str, str, str], following: tuple[str, str], target: str
    ) -> tuple[str, str]:
        """The element and its target after an update that may begin another one."""
        writer, (text, here, written), (there, inside) = self.writer, now, following

        def load() -> list[str]:
            return [self.base.memory.load_scalar(self.dtype, self._address(there, target)).part.text]

        def begin() -> list[str]:
            threads.when(writer, written, lambda: self._finish(text, here, target))
            if not self.last.steps:
                return [text, there]
            return [*writer.when(inside, load, [self.register], [text], rare=False), there]  # outside is no element

        text, here = writer.when(begins, begin, [self.register, "i64"], [text, here], rare=False)
        return text, here

    def _finish(self, text: str, here: str, target: str) -> None:
        self.base.memory.store_scalar(self._value(text), self._address(here, target))

    def _address(self, at: str, target: str) -> str:
        return self.writer.element(whole(self.dtype), target, at)

    def _value(self, text: str) -> Value:
        return Value(self.dtype, (V(self.scalar, self.register, text),))

    def _points(self, at: list[str], others: list[str], position: Position) -> list[Instance]:
        """All but the update of several points: what they load first."""
        made = []
        for index in at:
            safe = self.writer.minimum_index(index, self._last_index)
            inner = self.at_point(position, [safe, *others])
            made.append((self.copy(self.scalar, dict(self.scalars.values)), inner))
        for is_load in (True, False):
            some = [s for s in self.others if isinstance(s, LOADS) == is_load]
            for point, inner in made:
                self.run(some, [point], inner)
        return [point for point, _ in made]

    @property
    def _last_index(self) -> str:
        return self.writer.index("sub", self.extents[0], "1")

    def _offset(self, index: str, others: list[str], position: Position) -> str:
        """The offset of an update."""
        needed = [s for s in runs.target_statements(self.nest) if not isinstance(s, ir.Update)]
        point = self.copy(self.scalar, dict(self.scalars.values))
        self.run(needed, [point], self.at_point(position, [index, *others]))
        offset = indexed.uniform_offset(self, self.last.offset, point)
        assert offset is not None
        return offset
