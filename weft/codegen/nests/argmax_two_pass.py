"""argmax and argmin of small integers in two passes: one for the extremum of a block, one for its position.

    argmax(v0, index i1)  ->  best = reduce_max(v0) over a block; if best > best so far: the first lane that holds it

The first pass needs no positions, so that its registers hold only small integers. The second pass runs only for blocks
with a new extremum, which are few in a long row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.reduce_tree import Accumulators
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_LANES


def absorbing(reduction: ir.Reduce) -> Any:
    """The value of the first accumulator that no further element can change, if there is one."""
    found = reduction.kind.absorbing
    return None if found is None else found(np.dtype(reduction.accumulators[0][0]))


def is_absorbed(phase: ir.Phase, emit: Emitter, totals: Sequence[Accumulators]) -> str | None:
    """An i1: whether no further element is needed; None if all are, as where each is stored or checked."""
    if any(isinstance(s, ir.Store | ir.Update | ir.Guard) for s in phase.body):
        return None
    ends = [absorbing(reduction) for reduction in phase.reductions]
    if any(end is None for end in ends):
        return None
    flags = [
        emit.compare("eq", accs[0], emit.const(end, accs[0].dtype)) for accs, end in zip(totals, ends, strict=True)
    ]
    return functools.reduce(emit.and_, flags).part.text


def improved(
    reduction: ir.Reduce, emit: Emitter, best: Value, before: list[Value], where: Callable[[], Value]
) -> list[Value]:
    """``before``, or ``best`` at ``where()`` if that is better or ``before`` is still the identity."""
    extremum, writer = reduction.kind.forms.extremum, emit.lanes.writer
    assert extremum is not None
    value, position = before
    (kept,) = extremum.combine(emit, (value,), (best,))
    none = emit.compare("eq", position, emit.const(reduction.accumulators[1][1], position.dtype)).part
    better = emit.compare("ne", kept, value).part | none
    return reduce_tree.when(writer, better.text, lambda: [best, emit.convert(where(), position.dtype)], before)


def first(lanes: Lanes, low: str, high: str, group: int, holds: Callable[[str], V]) -> list[str]:
    """The first index from ``low`` on whose lane ``holds``, and an i1 that tells whether it is below ``high``.

    ``group`` vectors are tested together; it divides the number of vectors, or is 1.
    """
    writer, word, width = lanes.writer, f"i{lanes.width}", lanes.width

    def turn(texts: list[str]) -> tuple[list[str], str]:
        at, words = texts[0], []
        for k in range(group):
            bits = writer.op(
                f"bitcast {lanes.type('i1')} {holds(writer.index('add', at, str(k * width))).text} to {word}"
            )
            words.append(bits if word == "i64" else writer.op(f"zext {word} {bits} to i64"))
        none = writer.compare_index("eq", functools.reduce(lambda a, b: writer.index("or", a, b), words), "0")
        after = writer.index("add", at, str(group * width))
        return [after, *words], writer.op(f"and i1 {none}, {writer.compare_index('slt', after, high)}")

    begun = [("i64", low), *[("i64", "0")] * group]
    after, *words = writer.rounds(writer.compare_index("slt", low, high), BLOCK_LANES // (width * group), begun, turn)
    base = writer.index("sub", after, str(group * width))
    bits, at = "0", base
    for k in reversed(range(group)):
        here = writer.compare_index("ne", words[k], "0")
        bits = writer.choose_index(here, words[k], bits)
        at = writer.choose_index(here, writer.index("add", base, str(k * width)), at)
    lane = writer.call("llvm.cttz.i64", "i64", [("i64", bits), ("i1", "false")])
    return [writer.index("add", at, lane), writer.compare_index("ne", bits, "0")]
