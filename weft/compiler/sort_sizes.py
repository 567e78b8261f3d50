"""Programs that are one sort, at other sizes: the instruction from the new shapes, without the passes.

sort f32[300], compiled    ->    sort of 1 row of 301 elements, for f32[301]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.compiler import sort_lowering
from weft.compiler.instructions import NewOutput, Sort
from weft.compiler.product_sizes import Shape, at, places_of
from weft.core import kinds
from weft.core.jaxpr import JaxprEqn, Literal

if TYPE_CHECKING:
    from weft.compiler.pipeline import Program


class ResizableSort:
    """One compiled sort, and what makes its instruction for other sizes of the same class."""

    def __init__(self, program: Program, equation: JaxprEqn, sort: Sort, operand: Shape) -> None:
        self.name, self.sort, self.operand = program.name, sort, operand
        self.equation, kind = equation, equation.primitive.kind
        assert isinstance(kind, kinds.External) and kind.ordering is not None
        self.axis = kind.ordering(equation.params).axis
        self.alone = sort_lowering.is_alone(equation)

    def shape(self, output: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of a result: all have that of the operands."""
        del output
        return at(self.operand, sizes)

    def instructions(self, sizes: Sequence[int]) -> list[Sort] | None:
        """The sort at these sizes; None if it is done in another way."""
        shape = at(self.operand, sizes)
        n, size = shape[self.axis], math.prod(shape)
        if size >= sort_lowering.SMALL and sort_lowering.may_be_unrolled(self.equation, shape):
            return None
        if self.axis != len(shape) - 1:  # longer rows are transposed first
            return None
        if not sort_lowering.is_native(self.sort.keys, self.alone, size, n):
            return None
        return [self.sort._replace(rows=size // n, n=n, inner=math.prod(shape[self.axis + 1 :]), kept=n)]


def resizable(program: Program, sizes: Sequence[int]) -> ResizableSort | None:
    """What gives a program at other sizes; None if it is not one sort of its operands, into new arrays."""
    planned, equations = program.plan, program.jaxpr.eqns
    if [type(entry) for entry in planned.instructions] != [Sort] or planned.temps:
        return None
    (sort,) = planned.instructions
    sorting = [eqn for eqn in equations if isinstance(eqn.primitive.kind, kinds.External)]
    others = [eqn for eqn in equations if not isinstance(eqn.primitive.kind, (kinds.External, kinds.Generate))]
    if len(sorting) != 1 or others or sort.largest or not all(type(out) is NewOutput for out in planned.outputs):
        return None
    (equation,) = sorting
    shapes = {atom.aval.shape for atom in (*equation.invars, *equation.outvars)}
    if len(shapes) != 1 or any(type(atom) is Literal or atom not in program.jaxpr.invars for atom in equation.invars):
        return None
    if list(program.jaxpr.outvars) != list(equation.outvars):
        return None
    shape = places_of(shapes.pop(), sizes)
    made = None if shape is None else ResizableSort(program, equation, sort, shape)
    return made if made is not None and made.instructions(sizes) == [sort] else None
