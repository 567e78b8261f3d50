"""What a block of threads keeps of running combinations: elements of runs, what runs and blocks combine to."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target import Target
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.reduce_tree import Accumulators
from weft.loops import elements, ir
from weft.loops.gpu import grid
from weft.loops.reduction_tree import RUN

RUNS = grid.SCAN_THREADS  # of a block: each thread has one
SHIFT = RUN.bit_length() - 1


class ScanMemory(PointWriter):
    """The memory of a block, and combinations of accumulators in it."""

    def __init__(self, nest: ir.Nest, target: Target, entry: str) -> None:
        super().__init__(nest, target, 1)
        self.entry = entry
        (self.dim,) = self.reduced
        (self.phase,) = nest.phases
        self.scans = [s for s in self.phase.body if isinstance(s, ir.Scan)]
        self.accumulators = [identity for s in self.scans for identity in s.accumulators]
        self.memory = Memory(self.scalar, target)
        parallel = sum([dim.role == "parallel" for dim in nest.dims])
        self.cuts = 2 + 2 * max(parallel - 1, 0) + 2  # of the number of blocks of a row, behind the words of points

    # memory of the block: elements of runs, 65 slots apart, so that threads use all banks; ends, prefixes and bases

    def _lay_out(self) -> None:
        self.local, self.ends, self.prefixes, self.before, self.totals, self.states = [list[str]() for _ in range(6)]
        arrays, offset = (self.local, self.ends, self.prefixes, self.before, self.totals, self.states), 0
        for dtype, _ in self.accumulators:
            for found, count in zip(arrays, grid.SCAN_COUNTS, strict=True):
                found.append(threads.shared(self.writer, str(offset)))
                offset += grid.rounded(count * elements.of(dtype).size)
        self.ticket = threads.shared(self.writer, str(offset))

    def addresses(self, bases: Sequence[str], index: str) -> list[str]:
        pairs = zip(self.accumulators, bases, strict=True)
        return [self.writer.element(whole(dtype), base, index) for (dtype, _), base in pairs]

    def states_at(self, addresses: Sequence[str]) -> list[Accumulators]:
        """The accumulators of every running combination."""
        pairs = zip(self.accumulators, addresses, strict=True)
        return self.grouped([self.memory.load_scalar(dtype, address) for (dtype, _), address in pairs])

    def keep(self, states: Sequence[Accumulators], addresses: Sequence[str]) -> None:
        for value, address in zip(reduce_tree.flat_accs(states), addresses, strict=True):
            self.memory.store_scalar(value, address)

    def grouped(self, values: Sequence[Value]) -> list[Accumulators]:
        rest = iter(values)
        return [tuple([next(rest) for _ in s.accumulators]) for s in self.scans]

    def _slots(self, first: str, count: int) -> list[tuple[str, str]]:
        """The runs of elements that are ``RUNS`` apart, and their slots in the block's memory."""
        run = self.writer.index("lshr", first, str(SHIFT))
        slot, apart = self.writer.index("add", first, run), RUNS // RUN
        add = self.writer.index
        return [(add("add", run, str(k * apart)), add("add", slot, str(k * (RUNS + apart)))) for k in range(count)]

    # combinations

    def none(self) -> list[Accumulators]:
        return [reduce_tree.identities(s, Emitter(self.scalar)) for s in self.scans]

    def combined(self, left: Sequence[Accumulators], right: Sequence[Accumulators]) -> list[Accumulators]:
        emit = Emitter(self.scalar)
        return [reduce_tree.combine(s, emit, a, b) for s, a, b in zip(self.scans, left, right, strict=True)]
