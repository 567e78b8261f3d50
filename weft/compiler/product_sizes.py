"""Programs that are one matrix product, at other sizes: the instruction from the new shapes, without the passes.

A product with at most one dimension of rows, of columns, of terms and of a batch is the same loops at all sizes of a
class. Extents decide only whether few terms are added as a reduction instead (``contraction.is_reduced``).

    dot_general f32[40,43] f32[43,8], compiled    ->    gemm ((41, 44, 8),) ((8, 1),) ((44, 1, 8),) for f32[41,44] ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.compiler import contraction, plan
from weft.compiler.instructions import Gemm, NewOutput
from weft.compiler.product_loops import Loop, Loops
from weft.core import kinds
from weft.core.index_maps import strides_of
from weft.core.jaxpr import JaxprEqn, Literal

if TYPE_CHECKING:
    from weft.compiler.pipeline import Program

_ONE = Loop(1, 0, 0, 0)

Shape = tuple[int | None, ...]  # of each dimension the number of its extent among the sizes; None: 1


class ResizableProduct:
    """One compiled matrix product, and what makes its instruction for other sizes of the same class."""

    def __init__(self, program: Program, equation: JaxprEqn, gemm: Gemm, inputs: Sequence[Shape], result: Shape):
        self.name, self.gemm, self.dims = program.name, gemm, _single_dims(equation)
        (self.left, self.right), self.result = inputs, result
        sums, batches = equation.params["dimension_numbers"]
        free = [contraction.free_dims(v.aval.ndim, sums[n], batches[n]) for n, v in enumerate(equation.invars)]
        self.by_vector = not all(free)
        self.sizes = [atom.aval.dtype.itemsize for atom in (*equation.invars, *equation.outvars)]

    def shape(self, output: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result, which is number 0."""
        assert output == 0
        return at(self.result, sizes)

    def instructions(self, sizes: Sequence[int]) -> list[Gemm] | None:
        """The product at these sizes; None if it is computed in another way."""
        left, right = at(self.left, sizes), at(self.right, sizes)
        (left_sum, left_free, left_batch), (right_sum, right_free, right_batch) = self.dims
        terms, rows, columns = left[left_sum], _extent(left, left_free), _extent(right, right_free)
        batch = _extent(left, left_batch)
        if self.by_vector and contraction.is_reduced(batch * rows * columns, terms, left_batch is not None):
            return None
        steps = strides_of(left), strides_of(right)
        row = Loop(rows, steps[0][left_free], 0, columns) if rows != 1 else _ONE
        column = Loop(columns, 0, steps[1][right_free], 1) if columns != 1 else _ONE
        summed = Loop(terms, steps[0][left_sum], steps[1][right_sum], 0) if terms != 1 else _ONE
        around: tuple[tuple[int, int, int, int], ...] = ()
        if batch != 1:
            strides = (steps[0][left_batch], steps[1][right_batch], rows * columns)
            around = ((batch, *[stride * size for stride, size in zip(strides, self.sizes, strict=True)]),)
        dims, gemm = plan.dims(Loops((row,), (column,), (summed,), ())), self.gemm
        whole = (rows, columns, gemm.whole[2])
        fields = (*gemm[:5], *dims, around, gemm.in_chains, whole, *gemm[11:])
        return [tuple.__new__(Gemm, fields)]


def _single_dims(equation: JaxprEqn) -> tuple[Any, Any]:
    """The dimensions (contracting, free, batch) of both operands if there is at most one of each; a free one or a batch
    that is missing is None. () in place of the dimensions of a product with more."""
    sums, batches = equation.params["dimension_numbers"]
    found = []
    for side, atom in enumerate(equation.invars):
        free = contraction.free_dims(atom.aval.ndim, sums[side], batches[side])
        if len(sums[side]) != 1 or len(free) > 1 or len(batches[side]) > 1:
            return (), ()
        found.append((sums[side][0], *[dims[0] if dims else None for dims in (free, batches[side])]))
    return found[0], found[1]


def _extent(shape: Sequence[int], dim: int | None) -> int:
    return 1 if dim is None else shape[dim]


def at(shape: Shape, sizes: Sequence[int]) -> tuple[int, ...]:
    """A shape at these sizes."""
    return tuple([1 if place is None else sizes[place] for place in shape])


def resizable(program: Program, sizes: Sequence[int]) -> ResizableProduct | None:
    """What gives a program at other sizes; None if it is not one product of its operands, in a new array."""
    planned, equations = program.plan, program.jaxpr.eqns
    if [type(entry) for entry in planned.instructions] != [Gemm] or planned.temps or len(equations) != 1:
        return None
    (gemm,), (equation,) = planned.instructions, equations
    inputs, operands = program.jaxpr.invars, equation.invars
    plain = isinstance(equation.primitive.kind, kinds.Contraction) and gemm.epilogue is None
    plain = plain and not any(type(atom) is Literal or atom not in inputs for atom in operands)
    plain = plain and [type(output) for output in planned.outputs] == [NewOutput]
    if not plain or program.jaxpr.outvars != equation.outvars or planned.outputs[0].aval.shape != _shape(equation):
        return None
    if any(place[1:] != (0, -1) for place in (gemm.a, gemm.b, gemm.c)):
        return None
    shapes = [places_of(atom.aval.shape, sizes) for atom in (*operands, *equation.outvars)]
    found = [shape for shape in shapes if shape is not None]
    if len(found) != len(shapes):
        return None
    made = ResizableProduct(program, equation, gemm, found[:-1], found[-1])
    return made if made.dims[0] and made.instructions(sizes) == [gemm] else None


def _shape(equation: JaxprEqn) -> tuple[int, ...]:
    return equation.outvars[0].aval.shape


def places_of(shape: Sequence[int], sizes: Sequence[int]) -> Shape | None:
    """Which of the distinct sizes each extent is; None if one is no size of the operands."""
    numbers: dict[int, int | None] = {1: None} | {size: number for number, size in enumerate(sizes)}
    return tuple([numbers[extent] for extent in shape]) if all(extent in numbers for extent in shape) else None
