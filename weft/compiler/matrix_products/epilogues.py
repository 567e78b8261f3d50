"""Fused epilogues: kernels that run on the parts of a matrix product as soon as these are computed, while in cache.

    dot_general x w -> c;  kernel c b -> y        one instruction: every task of the product runs the kernel on its part

A kernel becomes an epilogue if it is the only reader of the product and reads it in memory's order. Its bits are those
it has on its own. Forms: ``flat`` (one loop over all elements), ``grid`` (rows by columns), ``rows`` (whole rows),
``products`` (whole products of a batch: a mask of the scores of all heads); on a GPU
``points`` (what becomes of each element, instead of a store).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft._base import lazy
from weft.compiler.matrix_products import contraction
from weft.compiler.matrix_products.product_steps import is_product
from weft.core.programs.jaxpr import Literal
from weft.loops import ir
from weft.loops.nests import Lowered


def epilogues(
    steps: Sequence[Any], lowered: Sequence[Lowered | None], results: Sequence[Any], base: Callable[[Any], Any]
) -> dict[int, tuple[int, str]]:
    """"""
    products = {base(s.equation.outvars[0]): i for i, s in enumerate(steps) if is_product(s)}
    for variable in results:
        products.pop(base(variable) if type(variable) is not Literal else variable, None)
    if not products:
        return {}
    readers: dict[Any, list[int]] = {variable: [] for variable in products}
    for number, (step, low) in enumerate(zip(steps, lowered, strict=True)):
        read = step.equation.invars if low is None else [b.variable for b in low.operands if b.role == "in"]
        for variable in (*read, *(source for source, _ in step.copies)):
            if type(variable) is not Literal and base(variable) in readers:
                readers[base(variable)].append(number)
    found: dict[int, tuple[int, str]] = {}
    taken: set[int] = set()
    for variable, numbers in reversed(readers.items()):
        low = lowered[numbers[0]] if len(numbers) == 1 else None
        if low is None or numbers[0] in taken or steps[numbers[0]].copies:
            continue
        way = form(low, variable, steps[products[variable]], base)
        if way is not None:
            found[products[variable]] = (numbers[0], way)
            taken.add(numbers[0])
    return found


def form(low: Lowered, variable: Any, step: Any, base: Callable[[Any], Any]) -> str | None:
    """The form (see above) in which a kernel reads the result of a product, or None if it cannot be its epilogue."""
    bindings = [b for b in low.operands if b.role == "in" and base(b.variable) is variable]
    if low.gpu:
        return _on_gpu(low, variable, step, base)
    if len(bindings) != 1 or low.outer or low.nest.split:
        return None
    if bindings[0].starts is not None or bindings[0].offset:
        return None
    if any(isinstance(s, ir.Update) for s in low.nest.statements()):  # the array may be written after the product
        return None
    loops = contraction.loops_of(step.equation, step.views, step.order)
    assert loops is not None, "a product that cannot be walked"
    if not loops.is_dense:
        return None
    columns = math.prod([loop.extent for loop in loops.columns])
    rows = variable.aval.size // columns
    dims, strides, extents = low.nest.dims, bindings[0].strides, low.extents
    if not dims or len(strides) != len(dims) or any(dim.role != "parallel" for dim in dims[:1]):
        return None
    parallel = all(dim.role == "parallel" for dim in dims)
    if len(dims) - len(low.nest.digits) == 1:
        dense = strides[0] == 1 and not any(strides[1:])
        return "flat" if low.nest.vector == 0 and dense and extents[0] == rows * columns else None
    if low.nest.vector == 0:
        return None
    if extents[0] != rows or strides[0] != columns:
        one = math.prod([loop.extent for loop in loops.rows]) * columns
        reach = sum((extent - 1) * abs(stride) for extent, stride in zip(extents[1:], strides[1:], strict=True))
        return "products" if extents[0] * one == variable.aval.size and strides[0] == one and reach < one else None
    whole = len(dims) == 2 and parallel and low.nest.vector == 1 and strides[1] == 1 and extents[1] == columns
    return "grid" if whole else "rows"


def _on_gpu(low: Lowered, variable: Any, step: Any, base: Callable[[Any], Any]) -> str | None:
    """The form ``points``: the kernel has the product's elements one by one."""
    made = [k for k, b in enumerate(low.operands) if b.role == "in" and base(b.variable) is variable]
    loops = contraction.loops_of(step.equation, step.views, step.order)
    dense = loops is not None and loops.is_dense and low.points == variable.aval.size
    if not dense or any(low.operands[k].offset for k in made):
        return None
    return None if lazy.submodule("weft.loops.gpu.grid_products").operand_of(low, made) is None else "points"
