"""Generates the reduction order of docs/NUMERICS.md: accumulators, their combination, the fold of 32 lanes.

The bits do not depend on the vector width: for the tree "row", 32 lane accumulators are kept in 32 / W vectors and
folded by halves, as if they were one vector of 32. A lane outside the operand never changes an accumulator.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.memory_access.memory import Mask
from weft.codegen.nests import instances
from weft.codegen.writer import Writer
from weft.loops import elements, ir
from weft.loops.reduction_tree import LANES

NARROWEST = 4  # least lanes of a fold: 4 fill a register with 32-bit elements; LLVM would widen fewer

Accumulators = tuple[Value, ...]  # of one reduction
Step = Callable[[str, list[Value]], list[Value]]  # the values after an iteration
Bounds = tuple[str, str, int]  # of a loop


def identities(reduction: ir.Reduce | ir.Scan, emit: Emitter) -> Accumulators:
    return tuple([emit.const(identity, np.dtype(dtype)) for dtype, identity in reduction.accumulators])


def seeds(reduction: ir.Reduce, emit: Emitter, start: str, offset: int = 0) -> Accumulators:
    """Accumulators before the element at start + offset: the identities, or ``forms.seed`` if ``append`` is used."""
    accs = identities(reduction, emit)
    if reduction.kind.forms.seed is None:
        return accs
    index = emit.lanes.writer.index("add", start, str(offset))
    position = instances.index_value(emit, index, elements.INT64)
    return tuple(emit.settle(v) for v in reduction.kind.forms.seed(emit, accs, position, **dict(reduction.params)))


def combine(reduction: ir.Reduce | ir.Scan, emit: Emitter, left: Accumulators, right: Accumulators) -> Accumulators:
    results = reduction.kind.combine(emit, left, right, **dict(reduction.params))
    return tuple(map(emit.settle, results))


def only(reduction: ir.Reduce, emit: Emitter, values: dict[int, Value]) -> Accumulators:
    """Accumulators after a single element."""
    return combine(reduction, emit, identities(reduction, emit), prepared(reduction, emit, values))


def contribution(reduction: ir.Reduce, emit: Emitter, values: dict[int, Value]) -> Accumulators:
    """What one of a few elements gives to ``collected``."""
    return (only if reduction.kind.forms.append is None else prepared)(reduction, emit, values)


def collected(
    reduction: ir.Reduce,
    emit: Emitter,
    so_far: list[Accumulators],
    one: Accumulators,
    begin: Callable[[], Accumulators],
) -> list[Accumulators]:
    """The operands of ``fold_few`` after one more element: all of them, or a single one that ``append`` adds to."""
    if reduction.kind.forms.append is None:
        return [*so_far, one]
    return [appended(reduction, emit, so_far[0] if so_far else begin(), one)]


def appended(reduction: ir.Reduce, emit: Emitter, accs: Accumulators, one: Accumulators) -> Accumulators:
    """Accumulators, which began as ``seeds``, after the element of ``prepared``."""
    if reduction.kind.forms.append is None:
        return combine(reduction, emit, accs, one)
    results = reduction.kind.forms.append(emit, accs, one, **dict(reduction.params))
    return tuple(map(emit.settle, results))


def prepared(reduction: ir.Reduce, emit: Emitter, values: dict[int, Value]) -> Accumulators:
    """The value that one element contributes to each accumulator."""
    args = tuple([values[n] for n in reduction.args])
    return prepared_of(reduction, emit, args, None if reduction.index is None else values[reduction.index])


def prepared_of(reduction: ir.Reduce, emit: Emitter, args: Accumulators, index: Value | None) -> Accumulators:
    """``prepared`` of these arguments, at this position if the reduction needs it."""
    return tuple(map(emit.settle, reduction.kind.prepare(emit, args, index, **dict(reduction.params))))


def step(
    reduction: ir.Reduce, emit: Emitter, values: dict[int, Value], accs: Accumulators, mask: Mask | None
) -> Accumulators:
    """Accumulators after one more element in each lane; they began as ``seeds``."""
    new = appended(reduction, emit, accs, prepared(reduction, emit, values))
    if mask is None:
        return new
    return where(mask.lanes, new, accs)


def where(mask: V, new: Accumulators, old: Accumulators) -> Accumulators:
    """``new`` in the lanes of a mask."""
    pairs, select = zip(new, old, strict=True), functools.partial(mask.lanes.select, mask)
    return tuple([Value(n.dtype, tuple(map(select, n.parts, o.parts))) for n, o in pairs])


def finish(reduction: ir.Reduce, emit: Emitter, accs: Accumulators) -> tuple[Value, ...]:
    results = reduction.kind.finish(emit, accs, **dict(reduction.params))
    pairs = zip(results, reduction.dtypes, strict=True)
    return tuple([emit.settle(v if v.dtype == d else emit.convert(v, d)) for v, d in pairs])


def fold(reduction: ir.Reduce, emit: Emitter, vectors: list[Accumulators]) -> Accumulators:
    """32 lane accumulators, in 32 / W vectors, to one scalar each: l with l + 16, then l + 8, ..."""
    accs, lanes = halved(reduction, emit, vectors, len(vectors)), emit.lanes
    lost = _nan_found(reduction, accs)
    distance = lanes.width // 2
    while distance:
        narrow = lanes if lanes.width <= NARROWEST else Lanes(lanes.writer, distance)
        left = accs if narrow is lanes else tuple([_rotated(v, narrow, 0) for v in accs])
        right = tuple([_rotated(v, narrow, distance) for v in accs])
        inner = Emitter(narrow)
        inner.numbers = lost is not None
        accs = combine(reduction, inner, left, right)
        lanes, distance = narrow, distance // 2
    one = Lanes(lanes.writer, 1)
    folded = tuple([Value(v.dtype, tuple([V(one, p.element, lanes.extract(p, 0)) for p in v.parts])) for v in accs])
    if lost is None:
        return folded
    return tuple(Value(v.dtype, (one.select(lost, v.part.like(math.nan), v.part),)) for v in folded)


def halved(reduction: ir.Reduce, emit: Emitter, vectors: list[Accumulators], count: int) -> Accumulators:
    """One of ``count`` vectors: as long as there are two, each of the first half takes one of the second half.

    Vectors that are left out at the end hold identities, which change no accumulator of an element.
    """
    while count > 1:
        count //= 2
        vectors = [
            combine(reduction, emit, accs, vectors[k + count]) if k + count < len(vectors) else accs
            for k, accs in enumerate(vectors[:count])
        ]
    return vectors[0]


def fold_rows(reduction: ir.Reduce, emit: Emitter, rows: list[list[Accumulators]]) -> Accumulators:
    """``fold`` of several rows, whose number is a power of two: a row is a lane of the result.

    Halves of two vectors are combined as one, which then has parts of twice as many rows.
    """
    if len(rows) == 1:
        return fold(reduction, emit, rows[0])
    vectors, lanes = [halved(reduction, emit, accs, len(accs)) for accs in rows], emit.lanes
    span = lanes.width  # lanes of a row in a vector
    while span > 1:
        span //= 2
        low = [lane for lane in range(lanes.width) if lane % (2 * span) < span]
        if len(vectors) > 1:
            pairs, picks = list(zip(vectors[::2], vectors[1::2], strict=True)), [*low, *[lanes.width + k for k in low]]
        else:
            pairs, picks = [(vectors[0], vectors[0])], low
        halves = [[_picked(lanes, a, b, [k + far for k in picks]) for far in (0, span)] for a, b in pairs]
        lanes = Lanes(lanes.writer, len(picks))
        vectors = [combine(reduction, Emitter(lanes), left, right) for left, right in halves]
    return vectors[0]


def _picked(lanes: Lanes, left: Accumulators, right: Accumulators, picks: Sequence[int]) -> Accumulators:
    """Lanes of two vectors, those of the second numbered after those of the first."""
    narrow, made = Lanes(lanes.writer, len(picks)), []
    for a, b in zip(left, right, strict=True):
        pairs = zip(a.parts, b.parts, strict=True)
        texts = [(p.element, lanes.shuffle(p.text, q.text, p.element, picks, lanes.width)) for p, q in pairs]
        made.append(Value(a.dtype, tuple([V(narrow, element, text) for element, text in texts])))
    return tuple(made)


def _nan_found(reduction: ir.Reduce, accs: Accumulators) -> V | None:
    """Whether a lane is NaN, if one test before a fold pays; a test in every step would cost compile time."""
    part, is_float = accs[0].part, elements.of(accs[0].dtype).kind in "fh"
    lanes = part.lanes
    if not (reduction.kind.nan_wins and is_float and part.lanes.native.whole_registers(part)):
        return None
    word = lanes.writer.op(f"bitcast {lanes.type('i1')} {part.isnan().text} to i{lanes.width}")
    return V(Lanes(lanes.writer, 1), "i1", lanes.writer.op(f"icmp ne i{lanes.width} {word}, 0"))


def fold_few(reduction: ir.Reduce, emit: Emitter, elements: list[Accumulators]) -> Accumulators:
    """``fold`` for at most 32 elements, each in its own lane accumulator, without identities. See ``collected``."""
    half = LANES // 2
    while half:
        elements = [
            combine(reduction, emit, acc, elements[lane + half]) if lane + half < len(elements) else acc
            for lane, acc in enumerate(elements[:half])
        ]
        half //= 2
    return elements[0]


def _rotated(value: Value, narrow: Lanes, start: int) -> Value:
    """The lanes from ``start`` on, followed by the first ones."""
    parts = []
    for p in value.parts:
        width = p.lanes.width
        picks = [(start + k) % width for k in range(narrow.width)]
        parts.append(V(narrow, p.element, p.lanes.shuffle(p.text, "poison", p.element, picks, width)))
    return Value(value.dtype, tuple(parts))


# carrying values through loops


def flatten(values: Sequence[Value]) -> list[tuple[str, str]]:
    """(LLVM type, text) of every register."""
    return [(p.lanes.type(p.element), p.text) for v in values for p in v.parts]


def rebuild(values: Sequence[Value], texts: Sequence[str]) -> list[Value]:
    """The same values with other texts."""
    rest = iter(texts)
    return [Value(v.dtype, tuple([V(p.lanes, p.element, next(rest)) for p in v.parts])) for v in values]


def texts(values: Sequence[Value]) -> list[str]:
    return [text for _, text in flatten(values)]


def carry(loop: Callable[..., list[str]], bounds: Bounds, values: list[Value], body: Step) -> list[Value]:
    """``loop``, as ``Writer.loop`` and ``Frame.stretches`` are, that carries values."""

    def inner(index: str, carried: list[str]) -> list[str]:
        return texts(body(index, rebuild(values, carried)))

    return rebuild(values, loop(*bounds, flatten(values), inner))


def when(writer: Writer, condition: str, found: Callable[[], list[Value]], otherwise: list[Value]) -> list[Value]:
    """``found()`` where the condition holds."""
    types = [type_ for type_, _ in flatten(otherwise)]
    return rebuild(otherwise, writer.when(condition, lambda: texts(found()), types, texts(otherwise), rare=False))


def flat_accs(accs: Sequence[Accumulators]) -> list[Value]:
    return list(itertools.chain.from_iterable(accs))


def group_accs(reductions: Sequence[ir.Reduce], values: Sequence[Value]) -> list[Accumulators]:
    """The inverse of ``flat_accs`` for one set of accumulators per reduction."""
    groups, at = [], 0
    for r in reductions:
        groups.append(tuple(values[at : at + len(r.accumulators)]))
        at += len(r.accumulators)
    return groups
