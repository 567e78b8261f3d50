"""Column reductions cut into blocks of rows, for several workers, and to read several rows side by side.

Called without a partial buffer, a nest reduces all blocks of its range of columns. With one, a call in mode 0 writes
the accumulators of some blocks of 256 rows to it, for all columns; a call in mode 1 combines them in order and
finishes. The same code does all three, and only reads and writes accumulators in different memory, so that the bits are
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_ROWS
from weft.loops.schedules.lane_loops import Passes

PARTIAL_BYTES = 16  # reserved for an element of the partial buffer
SHIFT = BLOCK_ROWS.bit_length() - 1
ALL_ROWS = 1 << 60  # more than there are


class Blocks:
    """The arguments of one call: ranges of columns and rows, and the partial buffer."""

    def __init__(self, parent: Frame) -> None:
        self.parent = parent
        self.writer = writer = parent.writer
        assert parent.nest.vector is not None
        self.columns, rows = parent.extents[parent.nest.vector], parent.extents[parent.reduced[-1]]
        address = parent.range(5)
        self.partial = writer.op(f"inttoptr i64 {address} to ptr")
        cut, first = writer.compare_index("ne", address, "0"), writer.compare_index("eq", parent.range(4), "0")
        self.leaves = writer.op(f"and i1 {cut}, {first}")
        self.gathers = writer.op(f"xor i1 {cut}, {self.leaves}")
        low, high = (writer.op(f"shl i64 {parent.range(slot)}, {SHIFT}") for slot in (2, 3))
        self.low = writer.choose_index(self.leaves, low, "0")
        self.high = writer.choose_index(self.leaves, writer.minimum_index(high, rows), rows)
        self.rows = (self.low, self.high)  # of one pass over the columns
        count = writer.op(f"lshr i64 {writer.index('add', rows, str(BLOCK_ROWS - 1))}, {SHIFT}")
        self.size = writer.index("mul", writer.index("mul", count, self.columns), str(PARTIAL_BYTES))
        self.range = (
            writer.choose_index(cut, parent.range(0), parent.range(2)),
            writer.choose_index(cut, parent.range(1), parent.range(3)),
        )

    def passes(self, chosen: Passes, write: Callable[[], None]) -> None:
        """Write the passes over all columns. One over a part of a block stores its sums in the partial buffer."""
        writer = self.writer
        is_long = writer.compare_index("sgt", self.columns, str(chosen.columns))
        whole = BLOCK_ROWS * max(self.parent.schedule.beside, 1)
        step = writer.choose_index(is_long, str(chosen.rows), str(whole))
        step = writer.choose_index(self.leaves, step, str(ALL_ROWS))

        def one(low: str, _: list[str]) -> list[str]:
            self.rows = (low, writer.minimum_index(writer.index("add", low, step), self.high))
            write()
            return []

        writer.loop(self.low, writer.choose_index(self.leaves, self.high, "1"), step, [], one)

    def accumulators(
        self,
        tile: Sequence[Instance],
        reductions: Sequence[ir.Reduce],
        start: str,
        seeds: list[Value],
        walk: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:
        """The accumulators of the block at row ``start``: read from the partial buffer, or made by ``walk``.

        ``walk`` starts from the seeds, or from the sums that earlier rows of the block left in the buffer. In mode 0
        the result is written to the buffer.
        """
        writer = self.writer
        load, begin, compute, join = (writer.fresh_label() for _ in range(4))
        addresses = self._addresses(tile, reductions, start)  # once per block: cheaper than compiling them twice
        begun = writer.compare_index("ne", writer.op(f"and i64 {start}, {BLOCK_ROWS - 1}"), "0")
        writer.branch_if(writer.op(f"or i1 {self.gathers}, {begun}"), load, begin)
        writer.label(load)
        read = [copy.memory.load(value.dtype, address, copy.mask) for copy, address, value in addresses]
        loaded = writer.block
        writer.branch_if(self.gathers, join, compute)
        writer.label(begin)
        writer.branch(compute)
        writer.label(compute)
        made = walk(self._either(seeds, begin, read, loaded))
        walked = writer.block
        writer.branch(join)
        writer.label(join)
        values = self._either(made, walked, read, loaded)
        writer.when(self.leaves, lambda: self._store(addresses, values), rare=False)
        return values

    def keep(self, tile: Sequence[Instance], reductions: Sequence[ir.Reduce], start: str, values: list[Value]) -> None:
        """In mode 0 the accumulators of the block at row ``start``, which is complete, are written to the buffer."""
        self.writer.when(self.leaves, lambda: self._store(self._addresses(tile, reductions, start), values), rare=False)

    def _store(self, addresses: Sequence[tuple[Instance, str, Value]], values: list[Value]) -> None:
        for (copy, address, _), value in zip(addresses, values, strict=True):
            copy.memory.store(value, address, copy.mask)

    def _either(self, left: list[Value], left_from: str, right: list[Value], right_from: str) -> list[Value]:
        pairs = zip(reduce_tree.flatten(left), reduce_tree.flatten(right), strict=True)
        ways = [self.writer.phi(type_, (a, left_from), (b, right_from)) for (type_, a), (_, b) in pairs]
        return reduce_tree.rebuild(left, ways)

    def _addresses(
        self, tile: Sequence[Instance], reductions: Sequence[ir.Reduce], start: str
    ) -> list[tuple[Instance, str, Value]]:
        """The addresses of the accumulators of every vector, in the order in which the loops carry them."""
        writer, found = self.writer, []
        row = writer.index("mul", writer.op(f"lshr i64 {start}, {SHIFT}"), self.columns)
        for copy in tile:
            at, number = writer.index("add", row, copy.index or "0"), 0
            for reduction in reductions:
                for identity in reduce_tree.identities(reduction, copy.emit):
                    region = writer.element("i8", self.partial, writer.index("mul", self.size, str(number)))
                    found.append((copy, writer.element(whole(identity.dtype), region, at), identity))
                    number += 1
        return found
