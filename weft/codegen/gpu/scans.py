"""Writes running combinations for the threads of a GPU, in the order of docs/NUMERICS.md.

scans    a block of threads for a block of 128 runs: all compute elements, each combines those of its run, one
         thread combines runs; then all compute what follows, from what was before each run
clear    sets the words by which blocks of threads tell each other to zero, where rows have several blocks of runs

Elements are read once. A block tells the others what its runs combine to, and waits for the blocks before it in its
group of 256; the last one of a group tells what all groups so far combine to. Blocks draw their numbers, so that those
before them run already. A word holds 32 bits and a flag, so that none is seen without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import LOADS
from weft.codegen.gpu.scan_memory import RUNS, SHIFT, ScanMemory
from weft.codegen.nests import instances, reduce_tree, scans
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import elements, ir
from weft.loops.gpu import grid
from weft.loops.reduction_tree import BLOCK_LANES, GROUP_BLOCKS, RUN
from weft.loops.routines import routine

GROUP_SHIFT = GROUP_BLOCKS.bit_length() - 1
BLOCKS, GROUPS, FIRSTS, OWN, NEXT = map(str, range(grid.SCAN_STATES))  # what is before a block, its own, and after it


class ScanWriter(ScanMemory):
    """Writes one entry of a nest with running combinations."""

    def write(self) -> Writer:
        writer = self.writer
        position = self.begin()
        self.thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.n_blocks = self.word(self.cuts + 2)
        if self.entry == "clear":
            self._clear(block)
            return writer
        self._lay_out()
        self.several = writer.compare_index("sgt", self.n_blocks, "1")
        (self.part,) = writer.either(self.several, self._drawn, lambda: [("i64", block)])
        self.row, self.block = self.divided(self.part, self.cuts, self.n_blocks)
        point = instances.fresh(self.scalars, self.scalars.values)
        point.scalars = dict(self.scalars.values)
        position = self.at_point(position, self.indices(self.row))
        for s in self.phase.before:
            self.run([s], [point], position)
        self.start = writer.index("mul", self.block, str(BLOCK_LANES))
        stop = writer.minimum_index(writer.index("add", self.start, str(BLOCK_LANES)), self.extents[self.dim])
        self.count = writer.index("sub", stop, self.start)
        self._arguments(point, position)
        threads.barrier(writer)
        self._runs()
        threads.barrier(writer)
        threads.when(writer, writer.compare_index("eq", self.thread, "0"), self._fold_runs)
        threads.barrier(writer)
        threads.when(writer, self.several, self._before_block)
        has_run = writer.compare_index("slt", writer.index("mul", self.thread, str(RUN)), self.count)
        threads.when(writer, has_run, self._before_runs)
        threads.barrier(writer)
        self._results(point, position)
        return writer

    # the steps of a block of runs

    def _elements(
        self, groups: Sequence[Sequence[ir.Statement]], point: Instance, position: Position,
        use: Callable[[str, str, Instance], None],
    ) -> None:  # fmt: skip
        """Groups of statements at the elements of this thread, with ``use(run, slot, values)`` before the last group.

        Neighbouring threads have neighbouring elements.
        """
        everything = [s for group in groups for s in group]

        def some(indices: Sequence[str], now: list[Value]) -> list[Value]:
            made = []
            for index, (run, spot) in zip(indices, self._slots(indices[0], len(indices)), strict=True):
                at = self.writer.index("add", self.start, index)
                inner = self.enter(position, self.dim, at, ir.operands(everything))
                made += [(run, spot, vector, inner) for vector in self.entered(everything, [point], inner)]
            for group in groups:
                for run, spot, vector, inner in made:
                    if group is groups[-1]:
                        use(run, spot, vector)
                    self.run(group, [vector], inner)
            return now

        self.at_once((self.thread, self.count, RUNS), [], some)

    def _arguments(self, point: Instance, position: Position) -> None:
        wanted = {n for s in self.scans for n in s.args}
        for s in reversed(self.phase.body):
            wanted.update(() if wanted.isdisjoint(routine.outs(s)) else ir.arguments(s))
        statements = [s for s in self.phase.body if not wanted.isdisjoint(routine.outs(s)) and s not in self.scans]
        self._elements([*_loads_first(statements), []], point, position, self._keep_arguments)

    def _keep_arguments(self, run: str, spot: str, vector: Instance) -> None:
        states = []
        for s in self.scans:
            given = zip([vector.values[n] for n in s.args], s.accumulators, strict=True)
            states.append(tuple([vector.emit.settle(vector.emit.convert(x, dtype)) for x, (dtype, _) in given]))
        self.keep(states, self.addresses(self.local, spot))

    def _runs(self) -> None:
        """Each thread: one run, from its first element to its last."""
        writer = self.writer
        first = writer.index("mul", self.thread, str(RUN))
        last = writer.minimum_index(writer.index("add", first, str(RUN)), self.count)

        def some(indices: Sequence[str], now: list[Value]) -> list[Value]:
            addresses = [self.addresses(self.local, writer.index("add", index, self.thread)) for index in indices]
            loaded, states = [self.states_at(each) for each in addresses], [self.grouped(now)]
            for element in loaded:
                states.append(self.combined(states[-1], element))
            for state, at in zip(states[1:], addresses, strict=True):
                self.keep(state, at)
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
            for state, run in zip(states, indices, strict=False):  # the last state is that of all runs
                self.keep(state, self.addresses(self.prefixes, run))
            return reduce_tree.flat_accs(states[-1])

        total = self.grouped(self.at_once(("0", n_runs, 1), reduce_tree.flat_accs(self.none()), some))
        self.keep(total, self.addresses(self.states, OWN))
        threads.when(writer, self.several, lambda: self._tell(OWN, self.part))

    def _before_runs(self) -> None:
        """Each thread: what is before its run."""
        writer = self.writer

        def bases(blocks: list[Accumulators], groups: list[Accumulators]) -> list[Accumulators]:
            return self.combined(
                groups, self.combined(blocks, self.states_at(self.addresses(self.prefixes, self.thread)))
            )

        def far() -> list[Value]:
            blocks, groups, firsts = [
                self.states_at(self.addresses(self.states, name)) for name in (BLOCKS, GROUPS, FIRSTS)
            ]
            first = flag(self, writer.compare_index("eq", self.thread, "0"))
            own = bases(blocks, groups)
            return reduce_tree.flat_accs([reduce_tree.where(first, a, b) for a, b in zip(firsts, own, strict=True)])

        near = reduce_tree.flat_accs(bases(self.none(), self.none()))
        self.keep(
            self.grouped(reduce_tree.when(writer, self.several, far, near)), self.addresses(self.before, self.thread)
        )

    def _results(self, point: Instance, position: Position) -> None:
        """All threads: the results of the running combinations at their elements, and the statements that use them."""
        writer = self.writer

        def given(run: str, spot: str, vector: Instance) -> None:
            local = self.states_at(self.addresses(self.local, spot))
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
        self._elements([*_loads_first(own), after], point, position, given)

    # rows of several blocks

    def _drawn(self) -> list[tuple[str, str]]:
        """The number of this block of threads: the next one."""
        writer = self.writer

        def draw() -> None:
            number = writer.op(f'atomicrmw add ptr {self._word("0")}, i32 1 syncscope("device") monotonic')
            writer.line(f"store i32 {number}, ptr {self.ticket}, align 4")

        threads.when(writer, writer.compare_index("eq", self.thread, "0"), draw)
        threads.barrier(writer)
        return [("i64", writer.op(f"zext i32 {writer.load('i32', self.ticket, 4)} to i64"))]

    def _clear(self, block: str) -> None:
        writer = self.writer
        number = writer.index("add", writer.index("mul", block, str(RUNS)), self.thread)
        count = writer.index("add", writer.index("mul", self._group("0", self.word(0)), str(self._words())), "1")
        inside = writer.compare_index("slt", number, count)
        threads.when(writer, inside, lambda: writer.line(f"store i64 0, ptr {self._word(number)}, align 8"))

    def _words(self) -> int:
        """The words of what a block tells."""
        return sum([grid.scan_words(dtype) for dtype, _ in self.accumulators])

    def _word(self, number: str) -> str:
        """A word of working memory; the first one counts blocks of threads."""
        memory = self.writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        return self.writer.element("i64", memory, number)

    def _group(self, number: str, row: str) -> str:
        """Where a group of a row tells: behind all blocks."""
        writer = self.writer
        per_row = writer.index("lshr", writer.index("add", self.n_blocks, str(GROUP_BLOCKS - 1)), str(GROUP_SHIFT))
        before = writer.index(
            "add", writer.index("mul", self.word(0), self.n_blocks), writer.index("mul", row, per_row)
        )
        return writer.index("add", before, number)

    def _told(self, number: str, addresses: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Type and address of each part of accumulators in the block's memory, and the word that tells it."""
        first, k = self.writer.index("add", self.writer.index("mul", number, str(self._words())), "1"), 0
        for (dtype, _), address in zip(self.accumulators, addresses, strict=True):
            for part in range(grid.scan_words(dtype)):
                type_ = f"i{8 * min(elements.of(dtype).size, 4)}"
                yield (
                    type_,
                    self.writer.element("i32", address, str(part)),
                    self._word(self.writer.index("add", first, str(k))),
                )
                k += 1

    def _tell(self, state: str, number: str) -> None:
        writer = self.writer
        for type_, address, word in self._told(number, self.addresses(self.states, state)):
            part = writer.op(f"load {type_}, ptr {address}")
            wide = writer.op(f"zext {type_} {part} to i64")
            value = writer.index("or", wide, str(1 << 32))
            writer.line(f'store atomic i64 {value}, ptr {word} syncscope("device") monotonic, align 8')

    def _hear(self, number: str, addresses: Sequence[str]) -> None:
        """Waits for what was told."""
        writer = self.writer
        for type_, address, word in self._told(number, addresses):
            found: list[str] = []

            def look(_: str, __: list[str], word: str = word, found: list[str] = found) -> list[str]:
                found.append(writer.op(f'load atomic i64, ptr {word} syncscope("device") monotonic, align 8'))
                return [writer.index("lshr", found[0], "32")]

            writer.repeat("1", [("i64", "0")], look)
            writer.line(f"store {type_} {writer.op(f'trunc i64 {found[0]} to {type_}')}, ptr {address}")

    def _before_block(self) -> None:
        """What is before this block: the blocks of its group before it, in order, and the groups before."""
        writer = self.writer
        within = writer.index("and", self.block, str(GROUP_BLOCKS - 1))
        group, first = writer.index("lshr", self.block, str(GROUP_SHIFT)), writer.index("sub", self.part, within)

        def bring(number: str, _: list[str]) -> list[str]:
            self._hear(writer.index("add", first, number), self.addresses(self.totals, number))
            return []

        def groups() -> None:
            before = self.addresses(self.states, GROUPS)
            writer.either(
                writer.compare_index("eq", group, "0"),
                lambda: self.keep(self.none(), before),
                lambda: self._hear(self._group(writer.index("sub", group, "1"), self.row), before),
            )

        writer.loop(self.thread, within, RUNS, [], bring)
        is_first = writer.compare_index("eq", self.thread, "0")
        threads.when(writer, is_first, groups)
        threads.barrier(writer)
        threads.when(writer, is_first, lambda: self._fold_blocks(within, group))
        threads.barrier(writer)

    def _fold_blocks(self, within: str, group: str) -> None:
        writer = self.writer

        def some(indices: Sequence[str], now: list[Value]) -> list[Value]:
            loaded, state = [self.states_at(self.addresses(self.totals, index)) for index in indices], self.grouped(now)
            for total in loaded:
                state = self.combined(state, total)
            return reduce_tree.flat_accs(state)

        blocks = self.grouped(self.at_once(("0", within, 1), reduce_tree.flat_accs(self.none()), some))
        groups = self.states_at(self.addresses(self.states, GROUPS))
        begins, joined = flag(self, writer.compare_index("eq", within, "0")), self.combined(groups, blocks)
        firsts = [reduce_tree.where(begins, alone, both) for alone, both in zip(groups, joined, strict=True)]
        self.keep(blocks, self.addresses(self.states, BLOCKS))
        self.keep(firsts, self.addresses(self.states, FIRSTS))

        def ends() -> None:
            inside = self.combined(blocks, self.states_at(self.addresses(self.states, OWN)))
            self.keep(self.combined(groups, inside), self.addresses(self.states, NEXT))
            self._tell(NEXT, self._group(group, self.row))

        threads.when(writer, writer.compare_index("eq", within, str(GROUP_BLOCKS - 1)), ends)


def _loads_first(statements: Sequence[ir.Statement]) -> list[list[ir.Statement]]:
    """Those that need no value, and the others."""
    return [[s for s in statements if isinstance(s, LOADS) == first] for first in (True, False)]


def flag(of: ScanWriter, text: str) -> V:
    return V(of.scalar, "i1", text)
