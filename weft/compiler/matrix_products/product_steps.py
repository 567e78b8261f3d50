"""Steps of matrix products: what they read; products that write their result transposed, instead of a copy.

    dot_general n v -> o f32[2,4,64,32];  kernel transpose o -> p f32[2,64,4,32]
    dot_general n v -> p, order (0, 2, 1, 3)       rows of p are 128 elements apart, its second batch dimension 32

The runtime writes rows and batches at any stride, but needs contiguous columns: if the transpose makes the left
operand's dimension contiguous, the operands are exchanged; if neither is contiguous, the copy stays.
"""

from __future__ import annotations

from typing import Any

from weft.compiler.fusion.kernels import Step
from weft.compiler.matrix_products import contraction
from weft.core import kinds
from weft.core.programs.jaxpr import Literal, Var
from weft.loops.kernel import Kernel, reachable


def is_product(step: Step) -> bool:
    """Whether a step is a nonempty product for our own kernels."""
    equation = step.equation
    contractions = kinds.Contraction | kinds.StridedContraction
    if step.kernel is not None or not isinstance(equation.primitive.kind, contractions):
        return False
    if any(type(v) is Literal or not v.aval.size for v in equation.invars):
        return False
    return contraction.kernels_of(equation) is not None


def step_reads(step: Step) -> list[Any]:
    """The variables whose memory a step reads."""
    sources = [source for source, _ in step.copies]
    if step.kernel is None:
        return [*sources, *dict.fromkeys([v for v in step.equation.invars if type(v) is not Literal])]
    return [*sources, *kernel_reads(step.kernel)]


def kernel_reads(kernel: Kernel) -> list[Any]:
    """The variables that a kernel loads."""
    wanted = [output.node for output in kernel.outputs]
    wanted += [node for output in kernel.outputs if output.targets is not None for node in output.targets.components]
    leaves = [node.atom for node in reachable(kernel.nodes, wanted) if node not in kernel.nodes]
    found = [atom for atom in leaves if atom not in kernel.dynamic]
    gathers = [e.invars[:1] for e in kernel.equations if isinstance(e.primitive.kind, kinds.Gather)]
    moved = [e.invars for e in (*kernel.dynamic.values(), *[o.starts for o in kernel.outputs if o.starts is not None])]
    found += [v for operands in (*gathers, *moved) for v in operands]
    return [*dict.fromkeys([v for v in found if isinstance(v, Var)])]


def transposed(step: Step, view: Any) -> Step | None:
    """The product that writes the view's result, None if it cannot."""
    product, order = step.equation, contraction.permutation(view)
    if order is None or not isinstance(product.primitive.kind, kinds.Contraction):
        return None
    out = view.outvars[0]
    straight = step.replace(equation=product.replace(outvars=[out]), order=tuple(order))
    if contraction.loops_of(straight.equation, order=straight.order) is not None:
        return straight
    if not contraction.is_summed_alike(product):
        return None
    equation, order = contraction.exchanged(product, out), contraction.exchanged_order(product, order)
    other = step.replace(equation=equation, order=tuple(order))
    return other if contraction.loops_of(equation, order=other.order) is not None else None
