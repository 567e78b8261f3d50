"""Matrix products whose result only a transpose reads: they write where the transpose would have copied it.

    dot_general n v -> o f32[2,4,64,32];  kernel transpose o -> p f32[2,64,4,32]
    dot_general n v -> p, order (0, 2, 1, 3)       rows of p are 128 elements apart, its second batch dimension 32

The runtime writes rows and batches at any distance, but a row's elements side by side: where the transpose makes the
left operand's dimension the contiguous one, the operands are exchanged; where neither is, the copy stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.compiler import contraction
from weft.core import kinds

if TYPE_CHECKING:
    from weft.compiler.fuse import Step


def turn_products(steps: Sequence[Step], aliases: Mapping[Any, Any], outvars: Sequence[Any]) -> tuple[Step, ...]:
    """The steps with such pairs as one."""
    products = {s.equation.outvars[0]: s for s in steps if _is_product(s)}
    if not products:
        return tuple(steps)
    readers = Counter([v for s in steps for v in _reads(s)])
    readers.update([v for v in (*aliases.values(), *outvars) if not hasattr(v, "val")])
    turned: dict[Any, Step] = {}  # result of a product -> the step that makes its transpose
    copies: set[int] = set()
    for number, step in enumerate(steps):
        equation = _lone_view(step)
        product = None if equation is None else products.get(equation.invars[0])
        if equation is None or product is None or readers[equation.invars[0]] != 1:
            continue
        made = _turned(product, equation)
        if made is not None:
            turned[equation.invars[0]] = made
            copies.add(number)
    return tuple(
        turned.get(step.equation.outvars[0], step) if _is_product(step) else step
        for number, step in enumerate(steps)
        if number not in copies
    )


def _is_product(step: Step) -> bool:
    return step.kernel is None and isinstance(step.equation.primitive.kind, kinds.Contraction)


def _reads(step: Step) -> list[Any]:
    equations = step.kernel.equations if step.kernel is not None else (step.equation,)
    read = {v for e in equations for v in e.invars if not hasattr(v, "val")}
    if step.kernel is not None:  # what is stored as it is, such as a piece of an assembled array
        read |= {output.node.atom for output in step.kernel.outputs}
    return [*read, *[source for source, _ in step.copies]]


def _lone_view(step: Step) -> Any:
    """The equation of a kernel that does nothing but one view of one array, whole."""
    if step.kernel is None or step.copies or len(step.kernel.equations) != 1:
        return None
    (equation,) = step.kernel.equations
    if [output.target for output in step.kernel.outputs] != equation.outvars:  # a region of an assembled array
        return None
    return equation if len(equation.invars) == 1 and not hasattr(equation.invars[0], "val") else None


def _turned(step: Step, view: Any) -> Step | None:
    """The product as it writes the view's result, None if it cannot."""
    product, order = step.equation, contraction.permutation(view)
    if order is None or contraction.kernels_of(product) is None:
        return None
    if any(hasattr(v, "val") or not v.aval.size for v in product.invars):
        return None
    out = view.outvars[0]
    straight = replace(step, equation=product.replace(outvars=[out]), order=tuple(order))
    if contraction.result_strides(straight.equation, straight.order) is not None:
        return straight
    if not contraction.is_summed_alike(product):
        return None
    equation, order = contraction.exchanged(product, out), contraction.exchanged_order(product, order)
    other = replace(step, equation=equation, order=tuple(order))
    return other if contraction.result_strides(equation, other.order) is not None else None
