"""The loops over the lanes of a nest, one after the other: how many vectors each takes, and what it leaves.

    2 vectors, then masked                         y = x + 1
    16 vectors, then 4, then masked                sums of columns
    masked, every vector                           a long body, which would else be compiled twice
    masked, first half | second half               the same after ``modulo_scheduling``
    4 vectors, last on copies, part a | part b     after ``loop_distribution``: each part over a block of elements

The two modules named here rewrite the list, and know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from weft._base.record import Record
from weft._base.target_model import Model
from weft.loops import elements, ir
from weft.loops.schedules import costs

# Largest cost of the statements outside the reduced loops: for wide tiles and passes, and for any tiles.
SMALL_ENDS, LARGE_ENDS = 14.0, 64.0
WAITING_BODY = 15.0  # up to this cost, vectors are done in threes, one of them without the busy execution unit
SHARING = 3  # vectors done together, the second without the execution unit that the others keep busy
WAITING = 4  # vectors in flight where functions wait for each other; half as many of a body that is long to compile
TILE = 4  # least vectors of a reducing tile
WIDE_TILE = 16  # vectors of a reducing tile if there are enough registers: longer runs suit the prefetcher
LONG_TILES = 4  # rows of more tiles are long: a few of them are read side by side, from start to end

# What a loop does where fewer elements are left than it takes at once: it leaves them to the next loop, masks the
# others, takes them one by one, or computes them on padded copies.
Rest = Literal["left", "masked", "apart", "copied"]


class Part(Record):
    """Statements of a body, the values that they take from earlier parts, and those that they keep for later ones."""

    statements: tuple[ir.Statement, ...]
    taken: tuple[ir.Apply, ...]
    kept: tuple[ir.Apply, ...]


class LaneLoop(Record):
    """A loop over the lanes, from where the one before it ended.

    ``tested``: a branch skips the mask of whole vectors. ``parts`` are those of a body that is cut: all vectors of
    ``block`` elements run one part before the next; if it is 0, an iteration runs each part for another vector.
    """

    vectors: int
    rest: Rest
    tested: bool = False
    parts: tuple[Part, ...] = ()
    block: int = 0


Loops = tuple[LaneLoop, ...]


class Passes(Record):
    """Rows longer than ``columns`` are reduced ``rows`` at a time, from one end to the other."""

    columns: int
    rows: int


def plain(vectors: Sequence[int], last: Rest) -> Loops:
    """Loops of whole vectors, and one for what they leave; without any, a loop that takes everything."""
    tested = last == "masked" and not vectors
    return (*[LaneLoop(count, "left") for count in vectors], LaneLoop(1, last, tested))


def kept(loop: LaneLoop) -> tuple[ir.Apply, ...]:
    """The values that go from one part of a body to another."""
    return tuple([s for part in loop.parts for s in part.kept])


def tiles(nest: ir.Nest, model: Model, lanes: int) -> tuple[int, ...]:
    """Vectors of the tiles, larger ones first."""
    statements = _statements(nest)
    if not _reduced(nest):
        if any(operand.strides[nest.vector or 0] == ir.RUNTIME for operand in nest.operands):
            return (1,)
        cost = costs.instructions(statements)
        if model.unrolled < cost <= WAITING_BODY and _waits(statements, model):
            return (SHARING,)
        return (2 if cost <= model.unrolled else 1,)
    largest = max(costs.instructions(phase.body) for phase in nest.phases)
    if largest > model.unrolled:
        return (2 if largest <= model.twice or _shares_constants(nest, model) else 1,)
    if any(isinstance(s, ir.Scan) and s.kind.cost > model.unrolled for s in statements):
        return (TILE,)  # each combination is code for every vector, and waits for the one before
    per_vector = max(_kept(phase, statements) for phase in nest.phases) * lanes * 4
    wide = min(model.run_bytes // _row_bytes(nest, lanes), WIDE_TILE) if nest.split else model.tile
    while wide > TILE and per_vector * wide > model.kept_bytes:
        wide //= 2
    narrow = max(TILE, wide)
    # a nest that is split already has several variants of the loop
    if nest.split or nest.rows or per_vector * WIDE_TILE > model.kept_bytes or _ends(nest) > SMALL_ENDS:
        # without masks, what is left is done one by one: of many small lanes that is long
        return (narrow, 1) if lanes > nest.width and not model.masks else (narrow,)
    return (WIDE_TILE, narrow)


def is_heavy(nest: ir.Nest, model: Model) -> bool:
    """Whether the body is long: a mask in every vector costs less than compiling it twice."""
    total = costs.instructions(_statements(nest))
    if not _reduced(nest):
        return total >= model.twice
    bodies = [phase.body for phase in nest.phases]
    if any(isinstance(s, ir.Apply) and s.kind.cost >= model.function for body in bodies for s in body):
        return total >= model.twice and not _shares_constants(nest, model)
    return max(map(costs.instructions, bodies)) >= model.twice or _ends(nest) >= LARGE_ENDS


def _shares_constants(nest: ir.Nest, model: Model) -> bool:
    """Whether two vectors of a reducing body are in flight since constants of functions are loaded again for each.

    With 32 registers they are kept; a body of two functions has more than a pair of vectors leaves room for.
    """
    return not model.masks and max(costs.instructions(phase.body) for phase in nest.phases) <= model.pipelined


def padded(statements: Sequence[ir.Statement], model: Model, tests: bool) -> int:
    """Vectors in flight of a body whose last elements are computed on padded copies; 0 if the body is short.

    One function fills the processor's window by the chains inside it; several that wait for each other do not, and
    vectors share the ``tests`` of whether a side of a choice is skipped.
    """
    cost = costs.instructions(statements)
    if cost <= model.unrolled:
        return 0
    if not costs.waits(statements, model.rounding) and not tests:
        return 1
    return WAITING if cost <= model.pipelined else WAITING // 2


def passes(nest: ir.Nest, model: Model, lanes: int, loops: Loops) -> Passes | None:
    """How long columns are reduced, part of a block of rows after another; None if one pass takes all rows."""
    if len(loops) == 1 or _ends(nest) > SMALL_ENDS:
        return None
    return Passes(LONG_TILES * loops[0].vectors * lanes, model.streams)


def _statements(nest: ir.Nest) -> list[ir.Statement]:
    return [s for phase in nest.phases for s in (*phase.before, *phase.body)]


def _reduced(nest: ir.Nest) -> bool:
    return any(dim.role == "reduced" for dim in nest.dims)


def _waits(statements: Sequence[ir.Statement], model: Model) -> bool:
    """Whether a function keeps one execution unit busy, so that some vectors are computed without it."""
    if not model.waits:
        return False
    waiting = [elements.of(s.dtype) for s in statements if isinstance(s, ir.Apply) and s.kind.waits]
    return any(element.kind in "fh" and element.register == "float" for element in waiting)


def _row_bytes(nest: ir.Nest, lanes: int) -> int:
    """Bytes of a vector of the widest operand."""
    sizes = [elements.of(operand.dtype).size for operand in nest.operands if operand.role == "in"]
    return lanes * max(sizes, default=4)


def _kept(phase: ir.Phase, statements: Sequence[ir.Statement]) -> float:
    """Words of 4 bytes in each lane that stay in registers from row to row."""
    scans = [s for s in phase.body if isinstance(s, ir.Scan)]
    words = [np.dtype(dtype).itemsize / 4 for s in (*phase.reductions, *scans) for dtype, _ in s.accumulators]
    known = {s.out for s in statements if isinstance(s, ir.Load | ir.Apply | ir.IndexOf)}
    own = {s.out for s in phase.body if isinstance(s, ir.Load | ir.Apply | ir.IndexOf)}
    before = [n for n in ir.used(phase) if n not in own and n in known]
    computed = any(isinstance(s, ir.Apply) for s in phase.body)
    return sum(words) + len(before) + (0.5 if computed else 0.0)


def _ends(nest: ir.Nest) -> float:
    """The cost of the statements that run once for each column."""
    return sum(costs.instructions(phase.before) for phase in nest.phases)
