"""How a nest is run: one record of decisions, made from the nest and the cost model of the target.

    exp over [1000000]    ->    schedule: lanes i0 x16, every vector with a mask, streamed if > 64 MB: out1

Code generation follows the schedule; it decides nothing that a processor's speed depends on. A schedule is a
function of nest and target, so that the kernels' keys need no part of it. Where sizes matter, the code chooses at run
time among the ways that are named here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.record import Record
from weft._base.target import Target
from weft._base.target_model import LINE, Model
from weft.loops import elements, ir
from weft.loops.reduction_tree import LANES
from weft.loops.schedules import (
    blocks,
    costs,
    lane_loops,
    lane_width,
    loop_distribution,
    modulo_scheduling,
    peeled_regions,
    uniform,
    words,
)
from weft.loops.schedules.lane_loops import LaneLoop, Loops, Passes

Line = tuple[int, int]  # an operand, and how many rows below its own

SEARCHED = 4  # vectors that are tested together in a search
SMALL_STRIDES = (2, 3, 4)  # strides along the lanes that take whole vectors and shuffles instead of gathers
TRANSPOSED_LANES = 32  # rows of a transposed operand that are read side by side, each from start to end
SHARED_ROWS = 32  # short rows that share loaded lanes; with more, lines would be evicted before they are fully written
LONG_ROWS = 100.0  # instructions of an unrolled short row from which it becomes a loop
ORDERED_BLOCK = 256  # updates that are computed before they are applied, whose values stay in the first cache
PAIR = 2  # rows of a neighbourhood at a time; more would fall into one set of the first cache if rows are long
LOADS = 4.0  # instructions for each load of a neighbourhood up to which loads take most of the time
STENCIL_BYTES = 128  # bytes of a row in a tile of a neighbourhood
TABLED = 4  # vectors in flight of short bodies with values from tables
CHEAP = 4.0  # instructions of a body that takes less time than an addition waits for the one before
MOST_TOGETHER = 8  # rows that are reduced at a time: each has a pointer
LEAST_STREAMED = 16  # bytes of a vector: narrower ones have no such store


class RowPhase(Record):
    """A phase whose lanes are reduced: its body is run by ``loops`` along the lanes.

    ``fetched``: operands whose next row is fetched meanwhile. ``first``: the pass that finds an extremum, if
    its position is looked for only where it changes; with ``flags`` the pass ends at the first value that is best.
    """

    phase: ir.Phase
    loops: Loops
    fetched: tuple[int, ...] = ()
    first: RowPhase | None = None
    flags: bool = False
    ordered: bool = False


class ShortRows(Record):
    """Rows of a few elements, with lanes across rows. ``looped``: the phases whose elements are not unrolled.

    ``shared``: loads that are the same for all ``rows`` rows of a block. ``blocks``: operands whose rows are transposed
    in registers, in whole vectors, once for all phases. Phases ``looped_blocks`` are loops nevertheless.
    """

    looped: tuple[bool, ...]
    looped_blocks: tuple[bool, ...]
    blocks: tuple[int, ...]
    shared: tuple[ir.Load, ...]
    rows: int


class Stencil(Record):
    """A neighbourhood: ``rows`` at a time; a ``last`` one has short code.

    ``lines``: rows of buffers that several operands read, and the distances in elements at which they read them.
    ``shuffled`` lines are loaded as whole vectors, and the others are made from these.
    """

    rows: int
    last: Loops
    lines: tuple[tuple[Line, tuple[int, ...]], ...]
    shuffled: tuple[Line, ...]
    fetched: bool


class Transposed(Record):
    """Tiles of ``operands`` are transposed in registers: ``block`` lanes at a time, by steps of dimension ``dim``.

    ``lead``: the most lanes by which a row may begin earlier, at a cache line. ``twice``: rows of whole blocks have
    code of their own. ``near``: small strides have no tiles.
    """

    dim: int
    operands: tuple[int, ...]
    lanes: int
    block: int
    lead: int
    masked: bool
    twice: bool
    near: bool


Tile = ShortRows | blocks.RowBlock | Stencil | Transposed


class Streamed(Record):
    """Stores past the caches: for which operands, from how many bytes of all arrays on, and by how many lanes."""

    operands: tuple[int, ...]
    bytes: int
    lanes: int
    aligned: bool  # rows are divided where a cache line begins


class Schedule(Record):
    """The decisions for one nest; ``nest`` is the nest as it is run (see ``words``).

    ``loops`` are those over the lanes, and ``tile`` how the vectors of a tile reach memory together, if lanes are
    parallel; ``phases``, if they are reduced.
    ``together``: the rows that are reduced at a time.
    ``peeled``: statements that are skipped where no lane takes them.
    ``beside``: so many rows or runs of a running combination without lanes, or blocks of rows of a vector of columns,
    are computed side by side, if not 0.
    """

    nest: ir.Nest
    lanes: int
    loops: Loops = ()
    tile: Tile | None = None
    near: tuple[int, ...] = ()
    phases: tuple[RowPhase, ...] = ()
    accumulators: int = 0
    together: int = 1
    passes: Passes | None = None
    streamed: Streamed | None = None
    beside: int = 0
    peeled: tuple[peeled_regions.PeeledRegion, ...] = ()


def of(nest: ir.Nest, target: Target) -> Schedule:
    """The schedule of a nest on a target."""
    schedule = _Decider(words.by_words(nest), target).schedule()
    last = schedule.tile.last if isinstance(schedule.tile, Stencil) else ()
    parts = [part.statements for loop in (*schedule.loops, *last) for part in loop.parts]
    return schedule.replace(peeled=peeled_regions.of(schedule.nest, target.model.test, parts))


def line_of(nest: ir.Nest, operand: int, row: int) -> tuple[Line, int]:
    """The line that an operand reads in a row of a neighbourhood, and its offset in elements."""
    first, below, shift = nest.operands[operand].near or (operand, 0, 0)
    return (first, below + row if nest.operands[first].strides[-2] else 0), shift


def is_collapsed(nest: ir.Nest) -> bool:
    """Whether the lanes lie along several dimensions that are one."""
    return bool(nest.digits) and nest.row is None and all(dim.role != "reduced" for dim in nest.dims)


class _Decider:
    """Makes the decisions for one nest."""

    def __init__(self, nest: ir.Nest, target: Target) -> None:
        self.nest, self.target = nest, target
        self.model = target.model
        self.lanes = lane_width.lanes(nest, target)
        if nest.short is not None and nest.vector is not None and nest.dims[nest.vector].role == "reduced":
            self.lanes = min(self.lanes, 1 << (nest.short - 1).bit_length())
        self.reduced = any(dim.role == "reduced" for dim in nest.dims)
        self.statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]

    def schedule(self) -> Schedule:
        nest = self.nest
        if nest.vector is not None and nest.dims[nest.vector].role == "reduced":
            return self.rows()
        if nest.vector is None:
            return Schedule(nest, self.lanes, beside=self.model.beside if self.scans_apart() else 0)
        tile = self.tile()
        loops, strided = self.loops(tile), not isinstance(tile, ShortRows | blocks.RowBlock)
        passes = lane_loops.passes(nest, self.model, self.lanes, loops) if nest.split else None
        streamed = self.streamed(loops, tile) if strided else None
        beside = self.model.beside if self.waits() else 0
        return Schedule(nest, self.lanes, loops, tile, self.near(), passes=passes, streamed=streamed, beside=beside)

    def waits(self) -> bool:
        """Whether the sums of columns are so cheap that a single vector of them waits for its last addition."""
        nest = self.nest
        reducing = [phase for phase in nest.phases if phase.reductions]
        plain = nest.split and not nest.digits and nest.short is None
        return plain and all(costs.instructions(phase.body) <= CHEAP for phase in reducing)

    def tile(self) -> Tile | None:
        """How the vectors of a tile reach memory together; None: each by itself."""
        nest = self.nest
        if nest.short is not None:
            return self.short_rows()
        if nest.row is not None:
            return blocks.block(nest, self.lanes)
        if is_collapsed(nest):
            return None
        return self.transposed() or (self.stencil() if self.maskable() else None)

    def loops(self, tile: Tile | None) -> Loops:
        """The loops over the lanes: tiles and a loop for the rest, or one loop of a long body, which may be cut."""
        nest, masked = self.nest, self.maskable()
        if isinstance(tile, Stencil):
            return lane_loops.plain([self.stencil_vectors(tile)], "masked")
        if isinstance(tile, blocks.RowBlock | ShortRows):
            vectors = tile.rows // self.lanes if isinstance(tile, blocks.RowBlock) else 1
            return lane_loops.plain([vectors], "masked" if masked else "apart")
        if is_collapsed(nest):
            return lane_loops.plain(sorted({self.tabled(), 1}, reverse=True), "masked")
        if tile is None and (vectors := self.padded()):
            loops = (LaneLoop(vectors, "copied"),)
        elif masked and lane_loops.is_heavy(nest, self.model):
            loops = lane_loops.plain((), "masked")
        else:
            found = lane_loops.tiles(nest, self.model, self.lanes)
            return lane_loops.plain(found, "masked" if masked else "apart")
        if tile is None and self.contiguous():
            loops = loop_distribution.distributed(loops, nest, self.model)
        if loops[0].parts and not self.tests():  # the vectors of a part do not wait for each other
            loops = (loops[0].replace(vectors=1),)
        return modulo_scheduling.pipelined(loops, nest, self.model, self.lanes)

    def scans_apart(self) -> bool:
        """Whether running combinations are cheap, of real numbers that need no rounding, and read none of another."""
        scans = [s for s in self.statements if isinstance(s, ir.Scan)]
        differ = uniform.differing(self.statements, lambda s: False)
        return bool(scans) and not any(
            s.kind.cost > 1
            or not differ.isdisjoint(s.args)
            or any(d.kind not in "fiu" or d.itemsize < 4 for d in s.dtypes)
            for s in scans
        )

    def tabled(self) -> int:
        """Vectors in flight where values of digits are looked up: finding the next position takes as long as a few."""
        nest = self.nest
        read = [s for s in self.statements if isinstance(s, ir.Load | ir.IndexOf) and nest.reads_digits(s)]
        whole = all(operand.strides[nest.vector or 0] in (0, 1) for operand in nest.operands)
        light = costs.instructions(self.statements) <= self.model.unrolled
        return TABLED if light and whole and all(map(nest.repeats, read)) else 1

    def maskable(self, transposed: Sequence[int] = (), among: Sequence[int] | None = None) -> bool:
        """Whether all operands that move along the lanes, except transposed ones, have masked access."""
        nest, target = self.nest, self.target
        for k in range(len(nest.operands)) if among is None else among:
            stride = nest.operands[k].strides[nest.vector or 0]
            if not stride or k in transposed:
                continue
            size = min(elements.of(nest.operands[k].dtype).size, 8)
            if size not in (target.gather_bytes if stride == ir.RUNTIME else target.masked_bytes):
                return False
        return True

    def padded(self) -> int:
        """Vectors in flight of a long body over one contiguous dimension, if the target has no registers for masks."""
        if len(self.nest.dims) != 1 or not self.contiguous():
            return 0
        return lane_loops.padded(self.statements, self.model, self.tests())

    def contiguous(self) -> bool:
        """Whether operands are contiguous along the last dimension, on a target without mask registers."""
        nest, last = self.nest, len(self.nest.dims) - 1
        if self.model.masks or self.reduced or nest.vector != last or nest.dims[0].runs or self.lanes == 1:
            return False
        simple = all(isinstance(s, ir.Load | ir.Store | ir.Param | ir.Apply | ir.IndexOf) for s in self.statements)
        return simple and all(operand.strides[last] in (0, 1) and not operand.near for operand in nest.operands)

    def tests(self) -> bool:
        """Whether regions that only one case of a choice needs are skipped."""
        return bool(peeled_regions.of(self.nest, self.model.test))

    def near(self) -> tuple[int, ...]:
        """The strides along the lanes that have code of their own; others are gathered."""
        nest = self.nest
        spread = [o for o in nest.operands if o.strides[nest.vector or 0] == ir.RUNTIME]
        if nest.step is not None:
            return (nest.step,)
        likely = SMALL_STRIDES if nest.short is None else (nest.short,)
        most = self.model.shuffled_strides
        return next((some for some in (likely, (2, 3), (3,)) if len(some) * len(spread) <= most), ())

    # lanes along a reduced dimension

    def rows(self) -> Schedule:
        nest = self.nest
        # if registers have more lanes than the nest, elements are integers, which may be combined in any order
        accumulators = LANES if self.lanes <= nest.width else 2 * self.lanes
        phases = tuple([self.row_phase(phase, accumulators // self.lanes) for phase in nest.phases])
        streamed = None if nest.split else self.streamed((), None)
        together = _together(nest, self.model, self.lanes, phases, accumulators)
        return Schedule(
            nest, self.lanes, near=self.near(), phases=phases, accumulators=accumulators, streamed=streamed,
            together=together,
        )  # fmt: skip

    def row_phase(self, phase: ir.Phase, most: int) -> RowPhase:
        model, cost = self.model, costs.instructions(phase.body)
        masked = self.maskable(among=ir.operands(phase.body))
        first = lane_width.without_position(phase) if masked else None
        vectors = most if phase.reductions and cost <= model.unrolled else 1
        return RowPhase(
            phase,
            lane_loops.plain([vectors] if cost < model.twice or not masked else [], "masked"),
            fetched=self.fetched(phase) if phase.reductions and cost > model.unrolled else (),
            first=self.row_phase(first, most) if first is not None else None,
            flags=first is not None and lane_width.is_flag(first, self.nest),
            ordered=any(isinstance(s, ir.Update) for s in phase.body),
        )

    def fetched(self, phase: ir.Phase) -> tuple[int, ...]:
        """Operands whose next row is fetched while a phase takes long; prefetchers start again in each row."""
        nest, vector = self.nest, self.nest.vector
        assert vector is not None
        if phase is nest.phases[0] or vector == 0 or nest.dims[vector - 1].role != "parallel":
            return ()
        read = [(k, nest.operands[k]) for k in ir.operands(nest.phases[0].body)]
        return tuple([k for k, o in read if o.role == "in" and o.strides[vector - 1 :] == (ir.RUNTIME, 1)])

    # lanes along a parallel dimension

    def short_rows(self) -> ShortRows:
        nest, vector, extent = self.nest, self.nest.vector, self.nest.short
        assert vector is not None and extent is not None

        def strided(s: ir.Statement) -> bool:
            return isinstance(s, ir.Load | ir.Store) and nest.operands[s.operand].strides[vector] == ir.RUNTIME

        def is_shared(s: ir.Statement) -> bool:
            if not isinstance(s, ir.Load) or not vector:
                return False
            return strided(s) and not nest.operands[s.operand].strides[vector - 1]

        dim = next(d for d, one in enumerate(nest.dims) if one.role == "reduced")
        blocks = [
            k
            for k, o in enumerate(nest.operands)
            if (o.strides[vector], o.strides[dim]) == (ir.RUNTIME, 1) and self.in_blocks(o.dtype, extent)
        ]

        def is_long(phase: ir.Phase, among: Sequence[int] = ()) -> bool:
            accesses = [s for s in phase.body if isinstance(s, ir.Load | ir.Store) and s.operand not in among]
            apart = sum(strided(s) and not is_shared(s) for s in accesses)
            each = costs.instructions(phase.body) + self.model.access_apart * extent * apart
            return extent * each > LONG_ROWS

        looped = tuple([is_long(phase) for phase in nest.phases])
        unrolled = [
            s for phase, is_looped in zip(nest.phases, looped, strict=True) if not is_looped for s in phase.body
        ]
        shared = tuple([s for s in unrolled if isinstance(s, ir.Load) and is_shared(s)])
        of_blocks = tuple([self.calls(phase) or is_long(phase, blocks) for phase in nest.phases])
        return ShortRows(looped, of_blocks, tuple(blocks), shared, SHARED_ROWS)

    def calls(self, phase: ir.Phase) -> bool:
        """Whether there are functions, which take most of the time to compile."""
        return any(isinstance(s, ir.Apply) and s.kind.cost >= self.model.function for s in phase.body)

    def in_blocks(self, dtype: np.dtype, extent: int) -> bool:
        """Whether rows are read along and transposed: elements of 4 bytes, or of 8 if the block fits registers."""
        element, model = elements.of(dtype), self.model
        if extent <= SMALL_STRIDES[-1] or element.kind not in "fiu" or self.lanes < 4:
            return False  # in rows of few elements, each element is shuffled by itself
        held = extent * self.lanes * element.size <= model.registers * model.register_bytes
        return element.size == 4 or (element.size == 8 and held)

    def stencil(self) -> Stencil | None:
        """Rows that share loads, if loads are a large part of the work."""
        nest, statements = self.nest, self.nest.phases[0].body
        loads = [s for s in statements if isinstance(s, ir.Load)]
        if not any(nest.operands[s.operand].near for s in loads):
            return None
        if costs.instructions(s for s in statements if isinstance(s, ir.Apply)) > LOADS * len(loads):
            return None
        rows = 1 if self.target.row_by_row else PAIR
        lines: dict[Line, set[int]] = {}
        for s in self.statements:
            if isinstance(s, ir.Load) and nest.operands[s.operand].strides[-1]:
                for row in range(rows):
                    line, shift = line_of(nest, s.operand, row)
                    lines.setdefault(line, set()).add(shift)
        shuffled = [line for line, shifts in lines.items() if len(shifts) > 1 and self.shuffles(line[0])]
        listed = tuple([(line, tuple(shifts)) for line, shifts in lines.items()])
        last = modulo_scheduling.pipelined(lane_loops.plain((), "masked"), nest, self.model, self.lanes)
        return Stencil(rows, last, listed, tuple(shuffled), self.target.row_by_row)

    def stencil_vectors(self, stencil: Stencil) -> int:
        """Vectors of a tile of a neighbourhood: more would need more lines than the first cache holds."""
        sizes = [self.lanes * self.nest.operands[first].dtype.itemsize for (first, _), _ in stencil.lines]
        vectors = max(STENCIL_BYTES // max(sizes), 1)
        while vectors > 1 and sum(sizes) * (vectors + 1) > self.model.line_bytes:
            vectors //= 2
        return vectors

    def shuffles(self, operand: int) -> bool:
        element = elements.of(self.nest.operands[operand].dtype)
        return self.model.masks and element.kind in "fiu" and element.bytes >= 4

    def transposed(self) -> Transposed | None:
        """The dimension along which operands are contiguous if their lanes lie apart; None: nothing is transposed."""
        nest = self.nest
        assert nest.vector is not None
        if nest.dims[0].runs or self.lanes == 1 or self.reduced:
            return None
        indexed = any(isinstance(s, ir.LoadAt | ir.Update) for s in nest.statements())
        if indexed or nest.vector + 1 < len(nest.dims):  # there are narrow dimensions inside the vector dimension
            return None
        strided = [k for k, o in enumerate(nest.operands) if o.role == "in" and o.strides[nest.vector] == ir.RUNTIME]
        results = [o for o in nest.operands if o.role == "out"]
        for dim in reversed(range(len(nest.dims))):
            found = [k for k in strided if nest.operands[k].strides[dim] == 1 and self.size(k) <= 16]
            if found and all(o.strides[nest.vector] == 1 for o in results):
                break
        else:
            return None
        lanes = lane_width.lanes(nest, self.target, found)
        masked = self.maskable(found)
        lead = max(lanes, LINE // min(elements.of(o.dtype).size for o in results))
        twice = costs.instructions(self.statements) <= self.model.unrolled or not masked
        block = max(TRANSPOSED_LANES, lead)
        return Transposed(dim, tuple(found), lanes, block, lead, masked, twice, near=len(found) == 1)

    def size(self, operand: int) -> int:
        """Bytes of an operand's element."""
        return elements.of(self.nest.operands[operand].dtype).size

    def streamed(self, loops: Loops, tile: Tile | None) -> Streamed | None:
        """The operands that may be streamed: contiguous along the lanes, and written only by plain stores."""
        nest, transposed = self.nest, tile if isinstance(tile, Transposed) else None
        lanes = transposed.lanes if transposed else self.lanes
        assert nest.vector is not None
        if lanes == 1 or nest.digits or not self.model.past_caches:
            return None
        if self.reduced and nest.dims[nest.vector].role == "parallel":
            return None
        updated = {s.operand for s in nest.statements() if isinstance(s, ir.Update)}
        stored = {s.operand for phase in nest.phases for s in phase.body if isinstance(s, ir.Store)}
        found = [k for k in sorted(stored - updated) if nest.operands[k].strides[nest.vector] == 1]
        found = [k for k in found if self.size(k) * lanes >= LEAST_STREAMED]
        if not found:
            return None
        least = self.model.streamed_lines if transposed else self.model.streamed_bytes
        # only transposed tiles use the stores of other lanes
        aligned = len(loops) > 1 and len(nest.dims) > 1 and loops[-1].rest == "masked" and lanes == self.lanes
        return Streamed(tuple(found), least, lanes, aligned)


def _together(nest: ir.Nest, model: Model, lanes: int, phases: Sequence[RowPhase], accumulators: int) -> int:
    """How many rows are reduced at a time: as many as there are registers for, if nothing follows but a store."""
    first, *others = phases
    plain = not (nest.split or nest.long or nest.rows or nest.digits)
    ends = not any(run.phase.body or run.phase.reductions for run in others)
    if not plain or not ends or not nest.vector or [dim.role for dim in nest.dims].count("reduced") != 1:
        return 1
    if not first.phase.reductions or first.first is not None or first.ordered:
        return 1
    if any(isinstance(s, ir.Store | ir.Update | ir.Guard | ir.LoadAt) for s in first.phase.body):
        return 1
    if costs.instructions(first.phase.body) > model.unrolled:
        return 1
    sizes = [elements.of(np.dtype(dtype)).size for r in first.phase.reductions for dtype, _ in r.accumulators]
    rows = model.kept_bytes // (sum(sizes) * (accumulators if nest.short is None else lanes))
    most = MOST_TOGETHER if nest.short is None else lanes
    return min(1 << max(rows.bit_length() - 1, 0), lanes, most)
