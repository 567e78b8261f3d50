"""Writes running combinations for the threads of a GPU, in the order of docs/NUMERICS.md.

scans    a block of threads for a block of 128 runs: all compute elements, each combines those of its run, one
         thread combines runs; then all compute what follows, from what was before each run
ends     the same for what a block of runs combines to, where rows have several
bases    from these, what is before each block of runs: a thread for a group of blocks, then one for all groups
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.target import Target
from weft.codegen import instances, reduce_tree, scans
from weft.codegen.emitter import Emitter, Value
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import LOADS, PointWriter
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import V
from weft.codegen.memory import Memory
from weft.codegen.memory_words import whole
from weft.codegen.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import elements, grid, ir, routine
from weft.loops.reduction_tree import BLOCK_LANES, RUN

RUNS = grid.SCAN_THREADS  # of a block: each thread has one
SHIFT = RUN.bit_length() - 1
ARRAYS = ("totals", "blocks", "groups", "firsts")  # in working memory, an accumulator for each block of runs


class ScanWriter(PointWriter):
    """Writes one entry of a nest with running combinations."""

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

    def write(self) -> Writer:
        writer = self.writer
        place = self.begin()
        self.thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.n_blocks = self.word(self.cuts + 2)
        if self.entry == "bases":
            self.before_blocks(block)
            return writer
        self.part = block
        row, self.block = self.divided(block, self.cuts, self.n_blocks)
        point = instances.fresh(self.scalars, self.scalars.values)
        point.scalars = dict(self.scalars.values)
        place = self.at_point(place, self.indices(row))
        for s in self.phase.before:
            self.run([s], [point], place)
        self.start = writer.index("mul", self.block, str(BLOCK_LANES))
        stop = writer.minimum_index(writer.index("add", self.start, str(BLOCK_LANES)), self.extents[self.dim])
        self.count = writer.index("sub", stop, self.start)
        self._lay_out()
        self._arguments(point, place)
        threads.barrier(writer)
        self._runs()
        threads.barrier(writer)
        threads.when(writer, writer.compare_index("eq", self.thread, "0"), self._fold_runs)
        if self.entry == "scans":
            threads.barrier(writer)
            has_run = writer.compare_index("slt", writer.index("mul", self.thread, str(RUN)), self.count)
            threads.when(writer, has_run, self._before_runs)
            threads.barrier(writer)
            self._results(point, place)
        return writer

    # memory of the block: elements of runs, 65 places apart, so that threads use all banks; ends, prefixes and bases

    def _lay_out(self) -> None:
        offset, self.local, self.ends, self.prefixes, self.before = 0, [], [], [], []
        for dtype, _ in self.accumulators:
            size = elements.of(dtype).size
            for found, count in (
                (self.local, grid.scan_places(BLOCK_LANES)),
                (self.ends, RUNS),
                (self.prefixes, RUNS),
                (self.before, RUNS),
            ):
                found.append(threads.shared(self.writer, str(offset)))
                offset += grid.rounded(count * size)

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

    def _padded(self, index: str) -> str:
        """The place of an element in the block's memory."""
        return self.writer.index("add", index, self.writer.index("lshr", index, str(SHIFT)))

    # combinations

    def none(self) -> list[Accumulators]:
        return [reduce_tree.identities(s, Emitter(self.scalar)) for s in self.scans]

    def combined(self, left: Sequence[Accumulators], right: Sequence[Accumulators]) -> list[Accumulators]:
        emit = Emitter(self.scalar)
        return [reduce_tree.combine(s, emit, a, b) for s, a, b in zip(self.scans, left, right, strict=True)]

    def carry(
        self,
        bounds: tuple[str, str, int],
        states: list[Accumulators],
        body: Callable[[str, list[Accumulators]], list[Accumulators]],
    ) -> list[Accumulators]:
        def inner(index: str, values: list[Value]) -> list[Value]:
            return reduce_tree.flat_accs(body(index, self.grouped(values)))

        return self.grouped(reduce_tree.carry(self.writer.loop, bounds, reduce_tree.flat_accs(states), inner))

    # the steps of a block of runs

    def _elements(
        self, groups: Sequence[Sequence[ir.Statement]], point: Instance, place: Position,
        use: Callable[[str, Instance], None],
    ) -> None:  # fmt: skip
        """Groups of statements at the elements of this thread; before the last ``use(number in the block, values)``.

        Neighbours belong to neighbours.
        """
        everything = [s for group in groups for s in group]

        def some(indices: Sequence[str], now: list[Value]) -> list[Value]:
            made = []
            for index in indices:
                at = self.writer.index("add", self.start, index)
                inner = self.enter(place, self.dim, at, ir.operands(everything))
                made += [(index, vector, inner) for vector in self.entered(everything, [point], inner)]
            for group in groups:
                for index, vector, inner in made:
                    if group is groups[-1]:
                        use(index, vector)
                    self.run(group, [vector], inner)
            return now

        self.at_once((self.thread, self.count, RUNS), [], some)

    def _arguments(self, point: Instance, place: Position) -> None:
        wanted = {n for s in self.scans for n in s.args}
        for s in reversed(self.phase.body):
            wanted.update(() if wanted.isdisjoint(routine.outs(s)) else ir.arguments(s))
        statements = [s for s in self.phase.body if not wanted.isdisjoint(routine.outs(s)) and s not in self.scans]
        self._elements([*_loads_first(statements), []], point, place, self._keep_arguments)

    def _keep_arguments(self, index: str, vector: Instance) -> None:
        states = []
        for s in self.scans:
            given = zip([vector.values[n] for n in s.args], s.accumulators, strict=True)
            states.append(tuple([vector.emit.settle(vector.emit.convert(x, dtype)) for x, (dtype, _) in given]))
        self.keep(states, self.addresses(self.local, self._padded(index)))

    def _runs(self) -> None:
        """Each thread: one run, from its first element to its last."""
        writer = self.writer
        first = writer.index("mul", self.thread, str(RUN))
        last = writer.minimum_index(writer.index("add", first, str(RUN)), self.count)

        def some(indices: Sequence[str], now: list[Value]) -> list[Value]:
            places = [self.addresses(self.local, self._padded(index)) for index in indices]
            loaded, states = [self.states_at(place) for place in places], [self.grouped(now)]
            for element in loaded:
                states.append(self.combined(states[-1], element))
            for state, place in zip(states[1:], places, strict=True):
                self.keep(state, place)
            return reduce_tree.flat_accs(states[-1])

        end = self.grouped(self.at_once((first, last, 1), reduce_tree.flat_accs(self.none()), some))
        self.keep(end, self.addresses(self.ends, self.thread))

    def _fold_runs(self) -> None:
        """One thread: what the runs before each run combine to, and all of them."""
        writer = self.writer
        n_runs = writer.index("lshr", writer.index("add", self.count, str(RUN - 1)), str(SHIFT))

        def some(indices: Sequence[str], now: list[Value]) -> list[Value]:
            loaded, states = [self.states_at(self.addresses(self.ends, run)) for run in indices], [self.grouped(now)]
            for end in loaded:
                states.append(self.combined(states[-1], end))
            for state, run in zip(states, indices, strict=False):  # the last one is of all of them
                self.keep(state, self.addresses(self.prefixes, run))
            return reduce_tree.flat_accs(states[-1])

        total = self.grouped(self.at_once(("0", n_runs, 1), reduce_tree.flat_accs(self.none()), some))
        if self.entry == "ends":
            self.keep(total, self.kept("totals", self.part))

    def _before_runs(self) -> None:
        """Each thread: what is before its run."""
        writer = self.writer
        several = writer.compare_index("sgt", self.n_blocks, "1")

        def bases(blocks: list[Accumulators], groups: list[Accumulators]) -> list[Accumulators]:
            return self.combined(
                groups, self.combined(blocks, self.states_at(self.addresses(self.prefixes, self.thread)))
            )

        def far() -> list[Value]:
            blocks, groups, firsts = [self.states_at(self.kept(name, self.part)) for name in ARRAYS[1:]]
            first = flag(self, writer.compare_index("eq", self.thread, "0"))
            own = bases(blocks, groups)
            return reduce_tree.flat_accs([reduce_tree.where(first, a, b) for a, b in zip(firsts, own, strict=True)])

        near = reduce_tree.flat_accs(bases(self.none(), self.none()))
        self.keep(self.grouped(reduce_tree.when(writer, several, far, near)), self.addresses(self.before, self.thread))

    def _results(self, point: Instance, place: Position) -> None:
        """All threads: what an element is combined to, and what follows."""
        writer = self.writer

        def given(index: str, vector: Instance) -> None:
            run = writer.index("lshr", index, str(SHIFT))
            local = self.states_at(self.addresses(self.local, self._padded(index)))
            joined = self.combined(self.states_at(self.addresses(self.before, run)), local)
            first = writer.index("or", self.block, run)
            alone = flag(self, writer.compare_index("eq", first, "0"))
            for s, own, both in zip(self.scans, local, joined, strict=True):
                state = reduce_tree.where(alone, own, both)
                vector.values.update(zip(s.outs, scans.results(s, vector.emit, state), strict=True))

        follows = {out for s in self.scans for out in s.outs}
        for s in self.phase.body:
            follows.update(() if follows.isdisjoint(ir.arguments(s)) else routine.outs(s))
        rest = [s for s in self.phase.body if s not in self.scans]
        own = [s for s in rest if follows.isdisjoint(ir.arguments(s))]
        after = [s for s in rest if not follows.isdisjoint(ir.arguments(s))]
        self._elements([*_loads_first(own), after], point, place, given)

    # rows of several blocks

    def before_blocks(self, row: str) -> None:
        """The entry ``bases``."""
        raise NotImplementedError

    def kept(self, name: str, part: str) -> list[str]:
        """Where the accumulators of a block of runs are."""
        writer, parts = self.writer, self.writer.index("mul", self.word(0), self.n_blocks)
        memory = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        at = writer.index("add", writer.index("mul", parts, str(ARRAYS.index(name))), part)
        first = writer.element("i8", memory, writer.index("mul", at, str(grid.SLOT * len(self.accumulators))))
        return [writer.element("i8", first, str(grid.SLOT * k)) for k in range(len(self.accumulators))]


def _loads_first(statements: Sequence[ir.Statement]) -> list[list[ir.Statement]]:
    """Those that need no value, and the others."""
    return [[s for s in statements if isinstance(s, LOADS) == first] for first in (True, False)]


def flag(of: ScanWriter, text: str) -> V:
    return V(of.scalar, "i1", text)
