"""Writes the entry ``bases`` of running combinations: what is before each block of runs, as docs/NUMERICS.md has it.

A block of threads has a row. What its blocks of runs combine to comes to the memory of the block of threads, those of
up to 32 groups at once; a thread combines the 256 of a group, one warp the groups, and all threads write the results.
"""

from __future__ import annotations

from weft._base.target import Target
from weft._base.target_model import WARP
from weft.codegen import reduce_tree
from weft.codegen.emitter import Value
from weft.codegen.gpu import threads
from weft.codegen.gpu.scans import ScanWriter, flag
from weft.codegen.reduce_tree import Accumulators
from weft.loops import elements, grid, ir
from weft.loops.reduction_tree import GROUP_BLOCKS

PER = GROUP_BLOCKS  # blocks of a group
SHIFT = PER.bit_length() - 1


class BaseWriter(ScanWriter):
    """Writes this entry."""

    def __init__(self, nest: ir.Nest, target: Target) -> None:
        super().__init__(nest, target, "bases")
        self.n_groups = grid.groups_at_once(nest)

    def before_blocks(self, row: str) -> None:
        writer = self.writer
        offset, self.totals, self.groups = 0, list[str](), list[str]()
        for dtype, _ in self.accumulators:
            size = elements.of(dtype).size
            for found, count in ((self.totals, self.n_groups * (PER + 1)), (self.groups, WARP)):
                found.append(threads.shared(writer, str(offset)))
                offset += grid.rounded(count * size)
        first = writer.index("mul", row, self.n_blocks)
        self.carry(("0", self.n_blocks, self.n_groups * PER), self.none(), lambda at, now: self._some(first, at, now))

    def _some(self, first: str, begin: str, now: list[Accumulators]) -> list[Accumulators]:
        """Several groups; ``now``: what is before them."""
        writer = self.writer
        count = writer.minimum_index(writer.index("sub", self.n_blocks, begin), str(self.n_groups * PER))
        parts = writer.index("add", first, begin)

        def bring(number: str, _: list[str]) -> list[str]:
            part = writer.index("add", parts, number)
            self.keep(self.states_at(self.kept("totals", part)), self.addresses(self.totals, self._apart(number)))
            return []

        writer.loop(self.thread, count, grid.SCAN_THREADS, [], bring)
        threads.barrier(writer)
        is_first = writer.compare_index("slt", self.thread, str(WARP))
        found = reduce_tree.when(writer, is_first, lambda: self._groups(count, now), reduce_tree.flat_accs(now))
        threads.barrier(writer)
        writer.loop(self.thread, count, grid.SCAN_THREADS, [], lambda number, _: self._spread(parts, number))
        threads.barrier(writer)
        return self.grouped(found)

    def _apart(self, number: str) -> str:
        """The place of a block's total: of each group one is left out, so that groups begin in different banks."""
        return self.writer.index("add", number, self.writer.index("lshr", number, str(SHIFT)))

    def _groups(self, count: str, now: list[Accumulators]) -> list[Value]:
        """The first warp: a group by each thread, and then all of them in order; gives what all combine to."""
        writer = self.writer
        begin = writer.index("mul", self.thread, str(PER))
        end = writer.minimum_index(writer.index("add", begin, str(PER)), count)

        def block(number: str, before: list[Accumulators]) -> list[Accumulators]:
            places = self.addresses(self.totals, self._apart(number))
            total = self.states_at(places)
            self.keep(before, places)
            return self.combined(before, total)

        mine = self.carry((begin, end, 1), self.none(), block)
        for group in range(self.n_groups):
            own = writer.compare_index("eq", self.thread, str(group))
            threads.when(writer, own, lambda now=now: self.keep(now, self.addresses(self.groups, self.thread)))
            other = [tuple([threads.shuffled(v, "idx", str(group)) for v in one]) for one in mine]
            there = flag(self, writer.compare_index("slt", str(group * PER), count))
            both = self.combined(now, other)
            now = [reduce_tree.where(there, new, old) for new, old in zip(both, now, strict=True)]
        return reduce_tree.flat_accs(now)

    def _spread(self, parts: str, number: str) -> list[str]:
        """What is before a block in its group, before its group, and before its first run."""
        writer = self.writer
        part = writer.index("add", parts, number)
        blocks = self.states_at(self.addresses(self.totals, self._apart(number)))
        groups = self.states_at(self.addresses(self.groups, writer.index("lshr", number, str(SHIFT))))
        begins = flag(self, writer.compare_index("eq", writer.index("and", number, str(PER - 1)), "0"))
        joined = self.combined(groups, blocks)
        firsts = [reduce_tree.where(begins, alone, both) for alone, both in zip(groups, joined, strict=True)]
        for name, states in (("blocks", blocks), ("groups", groups), ("firsts", firsts)):
            self.keep(states, self.kept(name, part))
        return []
