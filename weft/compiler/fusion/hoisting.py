"""Hoisting: a function of a small array that an outer loop would compute on every turn is computed once, by a kernel.

    x:f32[10000,5,4] * exp(s):f32[5,4]      exp 20 times and stored, not 200,000 times

A function that follows from a reduction of the kernel's own points stays: the kernel may reduce and use the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.core import kinds
from weft.core.index_maps import CONSTANT
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.programs.rewrite import Makers
from weft.loops.kernel import Access

if TYPE_CHECKING:
    from weft.compiler.fusion.groups import Group

TIMES = 4  # least times that loops would compute an element
COST = 4096.0  # least instructions of all repetitions: storing and reading values takes a microsecond
VECTOR = 8  # elements of a vector, about
SHORT = 32  # elements of rows that all read one value; for longer rows computing it takes little
LOOK_BACK = 24  # equations searched for reductions
REASON = "outer loops would compute it again and again: computed once it is read in all of them"


def is_repeated(group: Group, accesses: Sequence[Access], equation: JaxprEqn, makers: Makers) -> bool:
    """Whether the loops of a group would compute the elements of an elementwise equation many times."""
    cost = equation.primitive.kind.cost
    if not any(_repetitions(group, access) * cost >= COST for access in accesses):
        return False
    return not _follows_reduction(equation, math.prod([axis.extent for axis in group.axes]), makers)


def _repetitions(group: Group, access: Access) -> float:
    """Vectors that are computed again, by loops around the axes that an access uses, or by lanes of short rows."""
    order = [*group.parallel, *[axis for axis in group.axes if axis.key in group.reduced]]
    used = {use.axis for use in access if use.axis != CONSTANT}
    last = max([position for position, axis in enumerate(order) if axis.key in used], default=-1)
    times = math.prod([axis.extent for axis in order[: last + 1] if axis.key not in used])
    different = math.prod([axis.extent for axis in order if axis.key in used])
    again = times - 1.0 if times >= TIMES else 0.0
    inside = math.prod([axis.extent for axis in order[last + 1 :]])
    if used and group.tree is None and TIMES <= inside <= SHORT:
        again += min(inside, VECTOR) - 1.0
    return again * different / VECTOR


def _follows_reduction(equation: JaxprEqn, points: int, makers: Makers) -> bool:
    """Whether a value depends on a reduction of about as many elements as a kernel has points."""
    stack, seen = [equation], {equation}
    while stack and len(seen) <= LOOK_BACK:
        for atom in stack.pop().invars:
            maker = makers.of(atom)
            if maker is None or maker in seen:
                continue
            kind = maker.primitive.kind
            if isinstance(kind, (kinds.Reduction, kinds.Cumulative)):
                if 2 * maker.invars[0].aval.size > points:
                    return True
            elif isinstance(kind, (kinds.Elementwise, kinds.View, kinds.Reshape, kinds.Identity)):
                seen.add(maker)
                stack.append(maker)
    return False
