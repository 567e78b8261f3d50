"""How many lanes a vector of a nest has: narrow elements fill whole registers.

argmax and argmin of small integers go in two passes, one for the extremum of a block, one for its position: the first
needs no positions, so that its registers hold only small integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.target import Target
from weft._base.target_model import PAIRED
from weft.loops import elements, ir

FLAGS = 16  # columns of bools side by side where there are no masks: as bytes; the last ones, fewer, go one by one


def lanes(nest: ir.Nest, target: Target, transposed: Sequence[int] = ()) -> int:
    """Lanes of a vector: more than the nest's if the operands along the lanes are only bytes, 16-bit words or bfloat16.

    ``transposed``: operands that are not contiguous along the lanes, and are transposed first.
    """
    if nest.vector is None:
        return 1
    if any(dim.role == "reduced" for dim in nest.dims):
        return _reducing(nest, target)
    if nest.digits:
        return nest.width
    statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]
    simple = all(isinstance(s, ir.Load | ir.Store | ir.Param | ir.Apply | ir.Guard) for s in statements)
    side_by_side = all(o.strides[nest.vector] != ir.RUNTIME for k, o in enumerate(nest.operands) if k not in transposed)
    if not (1 in target.masked_bytes and simple and side_by_side):
        return nest.width
    dtypes = [s.dtype for s in statements if isinstance(s, ir.Param | ir.Apply)]
    dtypes += [operand.dtype for operand in nest.operands]
    if _is_paired(nest, dtypes):
        return PAIRED
    return nest.width * 32 // max(elements.of(dtype).register_bits for dtype in dtypes)


def _is_paired(nest: ir.Nest, dtypes: Sequence[np.dtype]) -> bool:
    """Whether all operands along the lanes are bfloat16, so that the order of lanes in a vector does not matter."""
    moving = {operand.dtype for operand in nest.operands if operand.strides[nest.vector or 0]}
    small = all(elements.of(dtype).size <= 4 for dtype in dtypes)
    near = any(operand.near for operand in nest.operands)
    return 2 * nest.width == PAIRED and small and moving == {elements.BFLOAT16} and not near


def _reducing(nest: ir.Nest, target: Target) -> int:
    """Lanes of a nest that reduces integers: as many as a register holds, since their order is free."""
    assert nest.vector is not None
    along = nest.dims[nest.vector].role == "reduced"
    phases = [(without_position(phase) if along else None) or phase for phase in nest.phases]
    body = [s for phase in phases for s in (*(() if along else phase.before), *phase.body)]
    reductions = [r for phase in phases for r in phase.reductions]
    kept = [np.dtype(dtype) for r in reductions for dtype, _ in r.accumulators]
    if not kept or any(d.kind not in "iu" for d in kept) or any(r.index is not None for r in reductions):
        return nest.width
    loads = [nest.operands[s.operand] for s in body if isinstance(s, ir.Load)]
    computed = any(isinstance(s, ir.Apply) for s in body) or any(o.dtype == elements.BOOL for o in loads)
    if not (along or computed):  # tiles of columns already have a suitable width
        return nest.width
    simple = all(isinstance(s, ir.Load | ir.Store | ir.Param | ir.Apply | ir.Guard) for s in body)
    computed_in = [*[o.dtype for o in loads], *[s.dtype for s in body if isinstance(s, ir.Param | ir.Apply)]]
    packed = 1 in target.masked_bytes
    flags = not (packed or along) and all(_reduces_flags(phase, nest) for phase in phases if phase.reductions)
    if not ((packed or flags) and simple) or nest.rows or nest.digits or nest.short is not None:
        return nest.width
    if any(operand.strides[nest.vector] == ir.RUNTIME for operand in loads):
        return nest.width
    if flags:
        return max(nest.width, FLAGS)
    return nest.width * 32 // max(elements.of(dtype).register_bits for dtype in [*kept, *computed_in])


def _reduces_flags(phase: ir.Phase, nest: ir.Nest) -> bool:
    """Whether all that a phase computes of each reduced element, and keeps of it, are bools or bytes of them."""
    dtypes = [nest.operands[s.operand].dtype for s in phase.body if isinstance(s, ir.Load)]
    dtypes += [s.dtype for s in phase.body if isinstance(s, ir.Param | ir.Apply)]
    kept = [np.dtype(dtype) for r in phase.reductions for dtype, _ in r.accumulators]
    return all(dtype == elements.BOOL for dtype in dtypes) and all(dtype.itemsize == 1 for dtype in kept)


def without_position(phase: ir.Phase) -> ir.Phase | None:
    """The phase that finds the extremum without its position, for one argmax or argmin of bools or small integers."""
    if len(phase.reductions) != 1:
        return None
    (reduction,) = phase.reductions
    extremum = reduction.kind.forms.extremum
    value = np.dtype(reduction.accumulators[0][0])
    if extremum is None or value.kind not in "iu" or value.itemsize > 2:  # wider values are as wide as their positions
        return None
    body = tuple([s for s in phase.body if not (isinstance(s, ir.IndexOf) and s.out == reduction.index)])
    if not all(isinstance(s, ir.Load | ir.Apply | ir.Param) and reduction.index not in ir.arguments(s) for s in body):
        return None
    found = reduction.replace(kind=extremum, index=None, accumulators=reduction.accumulators[:1])
    return phase.replace(body=body, reductions=(found,))


def is_flag(phase: ir.Phase, nest: ir.Nest) -> bool:
    """Whether the phase reduces bools."""
    dtypes = {s.out: nest.operands[s.operand].dtype for s in phase.body if isinstance(s, ir.Load)}
    dtypes.update({s.out: s.dtype for s in phase.body if isinstance(s, ir.Apply)})
    return dtypes.get(phase.reductions[0].args[0]) == elements.BOOL
