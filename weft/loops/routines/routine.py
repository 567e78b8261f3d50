"""Routines: an IR for programs on scalars and small arrays, with loops and branches, as one native function.

A nest iterates over large arrays; a routine holds small ones in registers. Every value is a dense array of known size
in row-major order, and moving its elements costs a shuffle at most. Loops and branches are statements.

    routine    operands (memory), a block
    block      arguments, statements, results
    statement  Param | Apply | Load | Store | Guard of nests (``loops.ir``), element for element;
               Constant | Pick | Spread | Fold | Running | Product | Slice | Take | Update | Repeat | Choose

Values are numbered; ``types`` gives dtype and size of each. A statement's operands are defined before it, in its block
or an enclosing one. ``Apply`` broadcasts arguments of one element; ``Load`` and ``Store`` move a whole operand, or the
one of its rows that belongs to the enclosing loop's iteration. Semantics are those of the primitives: integers wrap,
half precisions are rounded after every statement, reductions use the order of docs/NUMERICS.md. Only products add their
terms in another order than elsewhere. The sizes of values are part of a routine, since they decide how many registers
it uses. Numbers of iterations, sizes of arrays in memory, and scalar literals are parameters.

A routine in lanes is the program of one lane, run for many elements at once. For a value that differs between lanes,
each of its elements is a vector of lanes. Lanes are independent, and adjacent in memory, also within rows.

Parameter block (8-byte slots): the iteration counts, the sizes, then the scalars in the low bytes of a slot each.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from weft._base.record import Record
from weft.loops import ir


class Type(Record):
    """The type of a value: ``size`` elements of a dtype. In a routine in lanes, lanes may have different elements."""

    dtype: np.dtype
    size: int
    lanes: bool = False


class Operand(Record):
    """An array in memory; with a ``size``, it has a row of so many elements for each iteration of a loop."""

    dtype: np.dtype
    role: Literal["in", "out"]
    size: int
    lanes: bool = False  # in a routine in lanes: whether it differs between lanes


class Block(Record):
    arguments: tuple[int, ...]
    statements: tuple[Any, ...]
    results: tuple[int, ...]


class Constant(Record):
    """out = the elements given, as bits."""

    out: int
    bits: bytes


class Pick(Record):
    """Element k of out is element ``sources[k][1]`` of value ``sources[k][0]``."""

    out: int
    sources: tuple[tuple[int, int], ...]


class Spread(Record):
    """out = a value common to all lanes, broadcast to each of them."""

    out: int
    value: int


class Fold(ir.Reduce):
    """outs = the reduction of ``args``, whose elements are in the order (kept, outer, run), or lie at ``positions``."""

    kept: int
    outer: int
    run: int
    positions: tuple[int, ...] | None = None

    def position(self, kept: int, outer: int, at: int) -> int:
        """Which element of an operand is term ``at`` of run ``outer`` of the result's element ``kept``."""
        index = (kept * self.outer + outer) * self.run + at
        return index if self.positions is None else self.positions[index]


class Running(ir.Scan):
    """outs = the running combination of ``args``, whose elements are in the order (run, rest)."""

    run: int


class Product(Record):
    """out[b, m, n] = the sum over k of lhs[b, m, k] * rhs[b, k, n]."""

    out: int
    lhs: int
    rhs: int
    extents: tuple[int, int, int, int]  # batch, m, n, k


class Slice(Record):
    """out[k] = source[offsets[k] + the sum of clamp(start, 0, most) * stride]; the source is a value or an operand.

    If it is an operand, ``most`` and ``stride`` are indices into the sizes among the parameters; no stride means 1.
    """

    out: int
    value: int | None
    operand: int | None
    offsets: tuple[int, ...]
    starts: tuple[tuple[int, int, int | None], ...]  # (value, most, stride)
    guarded: bool = False  # a start that is clamped sets the byte of the last operand


class Take(Record):
    """out[k] = source[index[k]]; the source is a value or an operand, and every index is inside."""

    out: int
    value: int | None
    operand: int | None
    index: int


class Update(Record):
    """out = value with element offsets[k] + the sum of clamp(start, 0, most) * stride replaced by update[k]."""

    out: int
    value: int
    update: int
    offsets: tuple[int, ...]
    starts: tuple[tuple[int, int, int], ...]
    guarded: bool = False


class Repeat(Record):
    """outs = the final state of the body, run as often as parameter ``trips`` says or while the condition holds."""

    outs: tuple[int, ...]
    initial: tuple[int, ...]
    body: Block
    cond: Block | None
    trips: int | None
    reverse: bool  # rows are read and written from the last to the first
    by_element: bool = False  # the condition differs between lanes; the loop continues while any of them holds


class Choose(Record):
    """outs = the results of block number ``index`` (an int32 value, clamped); the other blocks do not run."""

    outs: tuple[int, ...]
    index: int
    blocks: tuple[Block, ...]


class Routine(
    Record,
    labels=(
        "cost",
        "name",
    ),
):
    """One compiled function; its parameters: ``trips`` iteration counts, ``extents`` sizes, scalars of these dtypes."""

    types: tuple[Type, ...]
    operands: tuple[Operand, ...]
    trips: int
    extents: int
    scalars: tuple[np.dtype, ...]
    block: Block
    scalar: bool = False  # each element has its own register, instead of vectors
    lanes: bool = False  # it runs once for each lane; size 0 is their number (see loops.routines.lane_routine)
    guarded: bool = False  # the last operand is the byte of its guards
    cost: float = 0.0  # estimated instructions of one run of the innermost body
    name: str = "routine"

    def size(self) -> int:
        """The number of statements, inner blocks included."""
        return len(statements(self.block))


def outs(statement: Any) -> tuple[int, ...]:
    """The values that a statement of a nest or a routine defines."""
    return getattr(statement, "outs", None) or ((statement.out,) if hasattr(statement, "out") else ())


def statements(block: Block) -> list[Any]:
    """The statements of a block, with those of inner blocks after the one that has them."""
    found: list[Any] = []
    for statement in block.statements:
        found.append(statement)
        inner: tuple[Block | None, ...] = ()
        if isinstance(statement, Repeat):
            inner = (statement.cond, statement.body)
        elif isinstance(statement, Choose):
            inner = statement.blocks
        found += [one for part in inner if part is not None for one in statements(part)]
    return found
