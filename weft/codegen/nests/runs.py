"""Sorted scatters: the updates of one target follow each other, and a thread does all of them.

updates of targets 3 3 5 | 5 5 7     a part given as 3..6 starts with the 7, and the part before it takes all of 5

Where updates are single elements, the element of a run stays in a register: it is read when the run begins and written
when the next one does. The order of operations, and so every bit, is that of updates in memory.
"""

from __future__ import annotations

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import guards, instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Position
from weft.loops import ir


def moved_on(parent: Frame, position: Position, limit: str) -> str:
    """The end of the run that a limit of a range cuts, found by bisection: the target changes there.

    while lo < hi:  if target(middle) == target(limit - 1): lo = middle + 1, otherwise: hi = middle
    """
    writer, extent = parent.writer, parent.extents[0]
    needed = target_statements(parent.nest)
    (update,) = [s for s in needed if isinstance(s, ir.Update)]
    operands = {s.operand for s in needed if isinstance(s, ir.Load | ir.LoadAt)}

    def offset(index: str) -> V:
        point = parent.copy(parent.scalar, dict(parent.scalars.values))
        parent.run([s for s in needed if s is not update], [point], parent.enter(position, 0, index, operands))
        return point.values[update.offset].part

    starts, head, compare, above, below, done = (writer.fresh_label() for _ in range(6))
    low, high = writer.alloca("i64"), writer.alloca("i64")
    writer.line(f"store i64 {limit}, ptr {low}, align 8")
    writer.line(f"store i64 {extent}, ptr {high}, align 8")
    writer.branch_if(writer.compare_index("sgt", limit, "0"), starts, done)
    writer.label(starts)
    before = offset(writer.index("sub", limit, "1"))
    writer.branch(head)
    writer.label(head)
    lo, hi = (writer.op(f"load i64, ptr {slot}, align 8") for slot in (low, high))
    writer.branch_if(writer.compare_index("slt", lo, hi), compare, done)
    writer.label(compare)
    middle = writer.op(f"lshr i64 {writer.index('add', lo, hi)}, 1")
    here = offset(middle)
    writer.branch_if(writer.op(f"icmp eq {here.element} {here.text}, {before.text}"), above, below)
    writer.label(above)
    writer.line(f"store i64 {writer.index('add', middle, '1')}, ptr {low}, align 8")
    writer.branch(head)
    writer.label(below)
    writer.line(f"store i64 {middle}, ptr {high}, align 8")
    writer.branch(head)
    writer.label(done)
    return writer.op(f"load i64, ptr {low}, align 8")


def write(parent: Frame, position: Position) -> None:
    """All updates of the given range; carried are the target of the last one (-1: none) and the element there."""
    writer = parent.writer
    low, high = [moved_on(parent, position, parent.range(slot)) for slot in (0, 1)]
    run = _Run(parent, position)
    zero = run.point.emit.const(0, run.dtype).part.text
    last, text = writer.loop(low, high, 1, [("i64", "-1"), (run.element, zero)], run.update)
    over = writer.fresh_label()
    run.finish(last, text, over)
    writer.label(over)


class _Run:
    """Writes the updates of single elements, one by one."""

    def __init__(self, parent: Frame, position: Position) -> None:
        self.parent, self.writer, self.position = parent, parent.writer, position
        statements = [s for phase in parent.nest.phases for s in (*phase.before, *phase.body)]
        (self.last,) = [s for s in statements if isinstance(s, ir.Update)]
        self.others = [s for s in statements if s is not self.last]
        self.dtype = parent.nest.operands[self.last.operand].dtype
        self.point = parent.copy(parent.scalar, {})
        (self.element,) = [part.element for part in self.point.emit.const(0, self.dtype).parts]

    def update(self, index: str, carried: list[str]) -> list[str]:
        """Apply one update to the element that is kept, or to the one where another run begins."""
        parent, writer, s, (last, text) = self.parent, self.writer, self.last, carried
        point = parent.copy(parent.scalar, dict(parent.scalars.values))
        parent.run(self.others, [point], parent.enter(self.position, 0, index, range(len(parent.nest.operands))))
        inside, another, begins, same, done = (writer.fresh_label() for _ in range(5))
        skipped = writer.block
        if s.inside is None:
            writer.branch(inside)
        else:
            writer.branch_if(point.values[s.inside].part.text, inside, done)
        writer.label(inside)
        part = point.values[s.offset].part
        here = part.text if part.element == "i64" else writer.op(f"sext {part.element} {part.text} to i64")
        before = writer.block
        writer.branch_if(writer.op(f"icmp eq i64 {here}, {last}"), same, another)
        writer.label(another)
        self.finish(last, text, begins)
        writer.label(begins)
        read = self.point.memory.load_scalar(self.dtype, self._address(here)).part.text if s.steps else text
        found = writer.block
        writer.branch(same)
        writer.label(same)
        point.values[s.old] = self._value(writer.phi(self.element, (text, before), (read, found)))
        for step in s.steps:
            point.values[step.out] = instances.apply(step, point)
        if s.guard is not None:
            guards.write(parent, s.guard, [point], self.position.pointers[s.guard.operand], at_once=True)
        new = point.emit.settle(point.values[s.new]).part.text
        ended = writer.block
        writer.branch(done)
        writer.label(done)
        if s.inside is None:
            return [here, new]
        return [
            writer.phi("i64", (last, skipped), (here, ended)),
            writer.phi(self.element, (text, skipped), (new, ended)),
        ]

    def finish(self, last: str, text: str, following: str) -> None:
        """Write the element of the run that ends, if there is one, and go on at a label."""
        writer, ends = self.writer, self.writer.fresh_label()
        writer.branch_if(writer.compare_index("sge", last, "0"), ends, following)
        writer.label(ends)
        self.point.memory.store_scalar(self._value(text), self._address(last))
        writer.branch(following)

    def _address(self, at: str) -> str:
        return self.writer.element(whole(self.dtype), self.position.pointers[self.last.operand], at)

    def _value(self, text: str) -> Value:
        return Value(self.dtype, (V(self.parent.scalar, self.element, text),))


def target_statements(nest: ir.Nest) -> list[ir.Statement]:
    """The update, and the statements that compute its target, in order."""
    found: list[ir.Statement] = []
    wanted: set[int] = set()
    for s in reversed([s for phase in nest.phases for s in (*phase.before, *phase.body)]):
        if isinstance(s, ir.Update):
            found.append(s)
            wanted.add(s.offset)
        elif getattr(s, "out", None) in wanted:
            found.append(s)
            wanted.update(ir.arguments(s))
    return found[::-1]
