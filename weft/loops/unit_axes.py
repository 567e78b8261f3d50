"""Last axes of one element are left out of a nest that has many points, so that lanes lie along the axis before.

    x[n, 16, 2, 1].sum(2)    ->    as x[n, 16, 2].sum(2):  parallel n * 16 x16, rows of 2 side by side

A nest serves every size, and a last axis of one element is no special one to it. But lanes along it are empty but for
one; so where there are many points (``thresholds``), the nest is that of the program without the axis.
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
    return free[len(free) - count :]


def without(draft: Draft, units: Sequence[Axis]) -> Draft:
    """The draft of the program without these axes."""
    symbols = {axis.symbol for axis in units}

    def plain(stride: Stride) -> Stride:
        if stride.product is None or symbols.isdisjoint(stride.product):
            return stride
        return stride._replace(product=tuple([symbol for symbol in stride.product if symbol not in symbols]))

    operands = [
        operand.replace(strides={key: plain(stride) for key, stride in operand.strides.items()})
        for operand in draft.operands
    ]
    return draft.replace(operands=operands)
