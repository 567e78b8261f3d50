"""Extrema of half precisions on their bits: the nest loads 16-bit integers instead of floats.

    x = load bf16; reduce_max(x)   ->  x = load u16; reduce_max of what orders the bits

This is done only if the loaded values have no other use, so that none of them has to become a float32.
"""

from __future__ import annotations

import numpy as np

from weft.core import kinds
from weft.loops import ir

WORD = np.dtype(np.uint16)


def by_words(nest: ir.Nest) -> ir.Nest:
    """The nest, with reductions of words where an operand is used for nothing else."""
    loads = {s.out: s.operand for s in nest.statements() if isinstance(s, ir.Load)}
    reductions = [r for phase in nest.phases for r in phase.reductions]
    found = {r.outs: kind for r in reductions if (kind := _kind(r, nest, loads))}
    if not found:
        return nest
    used = {n for s in nest.statements() for n in ir.arguments(s)}
    used |= {n for r in reductions if r.outs not in found for n in r.args}
    transposed = {r.args[0] for r in reductions if r.outs in found} - used
    kept = {operand for out, operand in loads.items() if out not in transposed}

    def reduction(r: ir.Reduce) -> ir.Reduce:
        if r.outs not in found or loads[r.args[0]] in kept:
            return r
        return r.replace(kind=found[r.outs], accumulators=((WORD, 0), *r.accumulators[1:]))

    read = set(loads.values()) - kept
    return nest.replace(
        operands=tuple([o.replace(dtype=WORD) if k in read else o for k, o in enumerate(nest.operands)]),
        phases=tuple([phase.replace(reductions=tuple(map(reduction, phase.reductions))) for phase in nest.phases]),
    )


def _kind(reduction: ir.Reduce, nest: ir.Nest, loads: dict[int, int]) -> kinds.Reduction | None:
    of_words, read = reduction.kind.forms.of_words, loads.get(reduction.args[0])
    return None if of_words is None or read is None else of_words(nest.operands[read].dtype)
