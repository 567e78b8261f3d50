"""Last axes of one element are left out of a nest that has many points, so that lanes lie along the axis before.

    x[n, 16, 2, 1].sum(2)    ->    as x[n, 16, 2].sum(2):  parallel n * 16 x16, rows of 2 side by side

A nest serves every size, and a last axis of one element is no special one to it. But lanes along it are empty but for
one; so where there are many points (``thresholds``), the nest is that of the program without the axis. Not where the
results lie apart in memory, as a column of a matrix does: lanes along it gain nothing, and the kernel of the rows may
store it (``compiler.boundary_fusion``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.loops.index_math import Stride
    from weft.loops.kernel import Axis, Kernel
    from weft.loops.lower import Draft


def last(source: Kernel, draft: Draft, free: Sequence[Axis]) -> Sequence[Axis]:
    """The last axes that might be left out: of one element, after another axis, and of no use as an index."""
    if source.tree not in (None, "rows"):
        return ()
    count = 0
    while count < len(free) - 1 and free[-1 - count].extent == 1 and free[-1 - count].key not in draft.indexed:
        count += 1
    units = free[len(free) - count :]
    return units if units and _side_by_side(draft, units, free[-1 - count]) else ()


def _side_by_side(draft: Draft, units: Sequence[Axis], before: Axis) -> bool:
    """Whether the elements of all results along an axis are neighbours in memory, at any size."""
    strides = [_plain(operand.strides[before.key], units) for operand in draft.operands if operand.role == "out"]
    return all(stride.factor == 1 and stride.product == () for stride in strides)


def _plain(stride: Stride, units: Sequence[Axis]) -> Stride:
    symbols = {axis.symbol for axis in units}
    if stride.product is None or symbols.isdisjoint(stride.product):
        return stride
    return stride._replace(product=tuple([symbol for symbol in stride.product if symbol not in symbols]))


def without(draft: Draft, units: Sequence[Axis]) -> Draft:
    """The draft of the program without these axes."""
    operands = [
        operand.replace(strides={key: _plain(stride, units) for key, stride in operand.strides.items()})
        for operand in draft.operands
    ]
    return draft.replace(operands=operands)
