"""Programs that differ from an earlier one in sizes alone: its kernels and their layouts, bound to the new sizes.

What fuse, lower and schedule decide depends on a program's shape-free description (``flat``), so that it is decided
once. A ``Template`` is made of a compiled program; its ``bind`` gives the kernels of another one. With ``WEFT_CHECK=1``
every program that is recalled is compiled as well, and both must agree.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler.flat import Flat
from weft.compiler.fuse import Kernels, Step
from weft.core.budget import BUDGET
from weft.core.jaxpr import Jaxpr
from weft.errors import InternalError
from weft.loops.index_math import Sizes
from weft.loops.kernel import CONSTANT, Access, Kernel
from weft.loops.lower import Draft
from weft.loops.schedule import ALONG, Layout, Lowered

_BYTES, _EQUATION_BYTES = 1500, 600  # measured: a description with its template, each equation
_known: dict[Any, Description] = {}


@dataclass(slots=True)
class _Operand:
    """A buffer of a kernel: which variable, and how it is walked."""

    variable: int
    role: str
    access: Access
    dtype: np.dtype


@dataclass(slots=True)
class _Recipe:
    """One kernel: ``sizes`` says for each axis which variable's dimension has its extent (None: it is 1)."""

    kernel: Kernel  # a stand-in with the name alone
    layout: Layout
    operands: list[_Operand]
    sizes: dict[int, tuple[int, int] | None]
    scalars: list[tuple[np.dtype, Any, int | None]]  # dtype, value, number of the literal that it is

    def bind(self, flat: Flat) -> Lowered:
        avals = flat.avals
        sizes = {key: 1 if at is None else avals[at[0]].shape[at[1]] for key, at in self.sizes.items()}
        walked = []
        for operand in self.operands:
            offset, stride, strides = 0, 1, {ALONG: 1}
            shape = avals[operand.variable].shape
            for (axis, start, step), extent in zip(reversed(operand.access), reversed(shape), strict=True):
                offset += start * stride
                if axis != CONSTANT:
                    strides[axis] = strides.get(axis, 0) + stride * step
                stride *= extent
            walked.append((flat.variable(operand.variable), operand.role, offset, strides, None, operand.dtype))
        literals = flat.literals
        scalars = [(dtype, value if at is None else literals[-at - 1].val) for dtype, value, at in self.scalars]
        return self.layout.bind(walked, scalars, sizes)


@dataclass(slots=True)
class Template:
    """The kernels of a program without its sizes; ``equations`` counts those left after simplify."""

    recipes: list[_Recipe]
    aliases: list[tuple[int, int]]
    outvars: list[int]
    equations: int

    def bind(self, flat: Flat) -> tuple[Kernels, list[Lowered | None]]:
        """The kernels and their calls at the sizes of a program of the same description."""
        variable = flat.variable
        inputs = [variable(number) for number in range(flat.constants + flat.invars)]
        outvars = [variable(number) for number in self.outvars]
        jaxpr = Jaxpr(inputs[: flat.constants], inputs[flat.constants :], outvars, ())
        steps = tuple([Step(recipe.kernel, None) for recipe in self.recipes])
        aliases = {variable(name): variable(source) for name, source in self.aliases}
        return Kernels(jaxpr, steps, aliases, Sizes()), [recipe.bind(flat) for recipe in self.recipes]


class Description:
    """What programs are like, known by identity; ``template`` is there once one of them was compiled."""

    __slots__ = ("__weakref__", "template", "uses")

    def __init__(self) -> None:
        self.template: Template | None = None
        self.uses = 0


def description(flat: Flat, token: int) -> Description | None:
    """The description that stands for all programs like ``flat`` under a configuration; None if it cannot be a key."""
    key = (token, flat.key)
    try:
        found = _known.get(key)
    except TypeError:  # an unhashable parameter
        return None
    if found is None:
        found = _known[key] = Description()
        BUDGET.keep(found, _BYTES + _EQUATION_BYTES * len(flat.rows), functools.partial(_drop, key), _uses)
    found.uses += 1
    return found


def _drop(key: Any, found: Description) -> None:
    if _known.get(key) is found:
        del _known[key]


def _uses(found: Description) -> int:
    return found.uses


def template(
    flat: Flat, kernels: Kernels, drafts: Sequence[Draft | None], lowered: Sequence[Lowered | None]
) -> Template | None:
    """What was decided for ``flat``, whose ``jaxpr`` was compiled; None if more than sizes may change it."""
    numbers = {variable: number for number, variable in flat.variables.items()}
    rows = {first: eqn for eqn, _, first in flat.rows}
    for eqn in kernels.jaxpr.eqns:  # rewritten equations are not described by ``flat``
        source = rows.get(numbers.get(eqn.outvars[0], -1))
        if source is None or source.primitive is not eqn.primitive or source.params is not eqn.params:
            return None
    if any(variable not in numbers for variable in kernels.jaxpr.outvars):
        return None
    places: dict[int, tuple[int, int]] = {}
    for variable, number in numbers.items():
        if kernels.sizes.known(variable):
            places.update((symbol, (number, dim)) for dim, symbol in enumerate(kernels.sizes.symbols(variable)))
    literals = {id(literal): -1 - index for index, literal in enumerate(flat.literals)}
    recipes = []
    for step, draft, low in zip(kernels.steps, drafts, lowered, strict=True):
        if step.kernel is None or step.copies or draft is None or low is None or low.layout is None:
            return None
        recipe = _recipe(step.kernel, draft, low.layout, numbers, places, literals)
        if recipe is None:
            return None
        recipes.append(recipe)
    aliases = [(numbers[name], numbers[source]) for name, source in kernels.aliases.items()]
    return Template(recipes, aliases, [numbers[v] for v in kernels.jaxpr.outvars], len(kernels.jaxpr.eqns))


def _recipe(
    kernel: Kernel, draft: Draft, layout: Layout, numbers: dict[Any, int], places: dict[int, Any],
    literals: dict[int, int],
) -> _Recipe | None:  # fmt: skip
    sizes: dict[int, tuple[int, int] | None] = {}
    for axis in kernel.axes:
        sizes[axis.key] = places.get(axis.symbol)
        if sizes[axis.key] is None and axis.extent != 1:
            return None
    if any(operand.starts is not None for operand in draft.operands):
        return None
    operands = [_Operand(numbers[o.variable], o.role, o.access, o.dtype) for o in draft.operands]
    scalars = [
        (dtype, value, None if literal is None else literals[id(literal)])
        for (dtype, value), literal in zip(draft.scalars, draft.sources, strict=True)
    ]
    shell = Kernel(kernel.name, (), (), 0, None, (), {}, {}, ())
    return _Recipe(shell, layout, operands, sizes, scalars)


def agree(recalled: tuple[Kernels, Sequence[Any]], compiled: tuple[Kernels, Sequence[Any]], name: str) -> None:
    """Raise InternalError unless the recalled kernels are those of the compilation."""
    texts = [[_facts(low) for low in lowered] for _, lowered in (recalled, compiled)]
    aliases = [[(a.aval, b.aval) for a, b in kernels.aliases.items()] for kernels, _ in (recalled, compiled)]
    if texts[0] != texts[1] or aliases[0] != aliases[1]:
        pairs = itertools.zip_longest(*texts)
        first = next((pair for pair in pairs if pair[0] != pair[1]), aliases)
        raise InternalError(f"a recalled program differs: {first}", stage="recall", node=name)


def _facts(low: Lowered) -> Any:
    operands = [(b.variable.aval, b.role, b.offset, b.strides, b.outer, b.dtype) for b in low.operands]
    return low.nest, low.extents, low.outer, low.params, operands


def clear() -> None:
    """Forget all templates."""
    _known.clear()
