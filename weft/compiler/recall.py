"""Programs that differ from an earlier one in sizes alone: its kernels and their layouts, bound to the new sizes.

What fuse, lower and schedule decide depends on a program's shape-free description (``flat``), so that it is decided
once. A ``Template`` is made of a compiled program; its ``bind`` gives the kernels of another one. It holds where the
sizes have the same pattern, and where some that were told apart are 0 or 1 now: loops of no step or one. With
``WEFT_CHECK=1`` every program that is recalled is compiled as well, and both must agree.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler import flat as flats
from weft.compiler import pad_sums, rolls, verify
from weft.compiler.flat import Flat
from weft.compiler.fuse import Kernels, Step
from weft.compiler.interpret import interpret
from weft.core import kinds
from weft.core.budget import BUDGET
from weft.core.jaxpr import ClosedJaxpr, Jaxpr
from weft.errors import InternalError
from weft.loops import interpret as loops
from weft.loops.index_math import Sizes
from weft.loops.kernel import CONSTANT, Access, Kernel
from weft.loops.lower import Draft
from weft.loops.schedule import ALONG, Layout, Lowered

_BYTES, _EQUATION_BYTES = 1500, 600  # measured: a description with its template, each equation
_known: dict[Any, dict[tuple[int, ...], Description]] = {}  # by what is alike but for sizes, then by their pattern


@dataclass(slots=True)
class _Operand:
    """A buffer of a kernel: which variable, and how it is walked."""

    variable: int
    role: str
    access: Access
    dtype: np.dtype
    region: tuple[int, ...] | None  # of an assembled array: the classes of the sizes where it starts


@dataclass(slots=True)
class _Recipe:
    """One kernel: ``extents`` gives for each axis the class of its extent."""

    kernel: Kernel  # a stand-in with the name alone
    layout: Layout
    operands: list[_Operand]
    extents: dict[int, int]
    scalars: list[tuple[np.dtype, Any, int | None]]  # dtype, value, number of the literal that it is

    def bind(self, flat: Flat, sizes: Sequence[int]) -> Lowered:
        avals = flat.avals
        walked = []
        for operand in self.operands:
            offset, stride, strides = 0, 1, {ALONG: 1}
            shape, access, region = avals[operand.variable].shape, operand.access, operand.region
            for dim in range(len(shape) - 1, -1, -1):
                axis, start, step = access[dim]
                offset += (start if region is None else sizes[region[dim]]) * stride
                if axis != CONSTANT:
                    strides[axis] = strides.get(axis, 0) + stride * step
                stride *= shape[dim]
            walked.append((flat.variable(operand.variable), operand.role, offset, strides, None, operand.dtype))
        literals = flat.literals
        scalars = [(dtype, value if at is None else literals[-at - 1].val) for dtype, value, at in self.scalars]
        return self.layout.bind(walked, scalars, {key: sizes[number] for key, number in self.extents.items()})


@dataclass(slots=True)
class Template:
    """The kernels of a program without its sizes; ``equations`` counts those left after simplify."""

    recipes: list[_Recipe]
    aliases: list[tuple[int, int]]
    outvars: list[int]
    equations: int

    def bind(self, flat: Flat, sizes: Sequence[int]) -> tuple[Kernels, list[Lowered | None]]:
        """The kernels and their calls for a program like the one it was made of, at the sizes of its classes."""
        variable = flat.variable
        inputs = [variable(number) for number in range(flat.constants + flat.invars)]
        outvars = [variable(number) for number in self.outvars]
        jaxpr = Jaxpr(inputs[: flat.constants], inputs[flat.constants :], outvars, ())
        steps = tuple([Step(recipe.kernel, None) for recipe in self.recipes])
        aliases = {variable(name): variable(source) for name, source in self.aliases}
        return Kernels(jaxpr, steps, aliases, Sizes()), [recipe.bind(flat, sizes) for recipe in self.recipes]


class Description:
    """What programs are like, known by identity; ``template`` is there once one of them was compiled.

    ``classes``: the template's sizes among one's own, where it is that of a pattern which tells more sizes apart.
    """

    __slots__ = ("__weakref__", "classes", "template", "uses")

    def __init__(self) -> None:
        self.template: Template | None = None
        self.classes: tuple[int, ...] | None = None
        self.uses = 0

    def bind(self, flat: Flat) -> tuple[Kernels, list[Lowered | None]]:
        """The kernels of a program that is so, and their calls."""
        assert self.template is not None
        sizes = flat.sizes
        return self.template.bind(flat, sizes if self.classes is None else [sizes[n] for n in self.classes])


def description(flat: Flat, token: int) -> Description | None:
    """The description that stands for all programs like ``flat`` under a configuration; None if it cannot be a key."""
    key = (token, flat.key)
    try:
        alike = _known.setdefault(key, {})
    except TypeError:  # an unhashable parameter
        return None
    found = alike.get(flat.pattern)
    if found is None:
        found = Description()
        for pattern, other in list(alike.items()):
            if other.template is not None and other.classes is None:
                found.classes = _instance(pattern, flat)
                if found.classes is not None:
                    found.template = other.template
                    break
        alike[flat.pattern] = found
        place = functools.partial(_drop, key, flat.pattern)
        BUDGET.keep(found, _BYTES + _EQUATION_BYTES * len(flat.rows), place, _uses)
    found.uses += 1
    return found


def _instance(general: tuple[int, ...], flat: Flat) -> tuple[int, ...] | None:
    """The class in ``flat`` of each class of a pattern, if all that sets them apart is that some sizes are 0 or 1."""
    classes = {0: 0, 1: 1}
    for theirs, own in zip(general, flat.pattern, strict=True):
        if classes.setdefault(theirs, own) != own:
            return None
    apart = [own for own in classes.values() if own > 1]
    return tuple([classes[n] for n in range(len(classes))]) if len(set(apart)) == len(apart) else None


def _drop(key: Any, pattern: tuple[int, ...], found: Description) -> None:
    alike = _known.get(key, {})
    if alike.get(pattern) is found:
        del alike[pattern]
        if not alike:
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
    eqns = kernels.jaxpr.eqns
    if not pad_sums.leaves_alone(eqns) or rolls.rolls_of(eqns):  # they look at more of the sizes than their pattern
        return None
    literals = {id(literal): -1 - index for index, literal in enumerate(flat.literals)}
    pieces = {first: flats.pieces(eqn) for first, eqn in rows.items() if isinstance(eqn.primitive.kind, kinds.Assemble)}
    recipes, nests = [], {}  # equal nests are one object, so that they are found without being compared
    for step, draft, low in zip(kernels.steps, drafts, lowered, strict=True):
        if step.kernel is None or step.copies or draft is None or low is None or low.layout is None:
            return None
        layout = dataclasses.replace(low.layout, nest=nests.setdefault(low.layout.nest, low.layout.nest))
        recipe = _recipe(step.kernel, draft, layout, flat.classes, numbers, pieces, literals)
        if recipe is None:
            return None
        recipes.append(recipe)
    aliases = [(numbers[name], numbers[source]) for name, source in kernels.aliases.items()]
    return Template(recipes, aliases, [numbers[v] for v in kernels.jaxpr.outvars], len(kernels.jaxpr.eqns))


def _recipe(
    kernel: Kernel, draft: Draft, layout: Layout, classes: dict[int, int], numbers: dict[Any, int],
    pieces: dict[int, list[kinds.Piece]], literals: dict[int, int],
) -> _Recipe | None:  # fmt: skip
    if any(isinstance(eqn.primitive.kind, kinds.Assemble) for eqn in kernel.equations):
        return None  # what is read past an assembled array is of one piece at these sizes
    extents = {axis.key: axis.extent for axis in kernel.axes}
    operands = []
    for o in draft.operands:
        number, region = numbers[o.variable], None
        if o.starts is not None:
            return None
        if number in pieces:
            begins = tuple([use.start for use in o.access])
            spans = tuple([extents.get(use.axis, 1) for use in o.access])
            if o.role == "in":
                if any(use.axis == CONSTANT for use in o.access):
                    return None  # it may be of one piece at other sizes
            elif any((piece.start, piece.extent) == (begins, spans) for piece in pieces[number]):
                region = tuple([classes[start] for start in begins])
            else:
                return None  # a piece of a piece
        operands.append(_Operand(number, o.role, o.access, o.dtype, region))
    scalars = [
        (dtype, value, literals.get(id(literal)))  # a literal that is not the program's was made of its integers
        for (dtype, value), literal in zip(draft.scalars, draft.sources, strict=True)
    ]
    shell = Kernel(kernel.name, (), (), 0, None, (), {}, {}, ())
    return _Recipe(shell, layout, operands, {key: classes[extent] for key, extent in extents.items()}, scalars)


def agree(recalled: tuple[Kernels, Sequence[Any]], compiled: tuple[Kernels, Sequence[Any]], name: str) -> None:
    """Raise InternalError unless the recalled kernels are those of the compilation."""
    texts = [[_facts(low) for low in lowered] for _, lowered in (recalled, compiled)]
    aliases = [[(a.aval, b.aval) for a, b in kernels.aliases.items()] for kernels, _ in (recalled, compiled)]
    if texts[0] != texts[1] or aliases[0] != aliases[1]:
        pairs = itertools.zip_longest(*texts)
        first = next((pair for pair in pairs if pair[0] != pair[1]), aliases)
        raise InternalError(f"a recalled program differs: {first}", stage="recall", node=name)


def gives_the_bits(recalled: tuple[Kernels, Sequence[Any]], closed: ClosedJaxpr, name: str) -> None:
    """Raise InternalError unless the recalled kernels compute what the program says (while it is small)."""
    if verify.elements(closed) >= verify.FEW_ELEMENTS:
        return
    kernels, lowered = recalled
    args = [*closed.consts, *verify.arguments(closed)]
    buffers = {v: np.ravel(arg) for v, arg in zip((*kernels.jaxpr.constvars, *kernels.jaxpr.invars), args, strict=True)}

    def buffer(variable: Any) -> np.ndarray:
        source = variable
        while source in kernels.aliases:
            source = kernels.aliases[source]
        return buffers.setdefault(source, np.zeros(source.aval.size, source.aval.dtype)).view(variable.aval.dtype)

    for low in lowered:
        loops.interpret(low, [buffer(binding.variable) for binding in low.operands])
    expected = interpret(closed, args[len(closed.consts) :])
    for index, (variable, right) in enumerate(zip(kernels.jaxpr.outvars, expected, strict=True)):
        if not verify.same_bits(buffer(variable).reshape(right.shape), right):
            raise InternalError(f"result {index} of a recalled program differs", stage="recall", node=name)


def _facts(low: Lowered) -> Any:
    operands = [(b.variable.aval, b.role, b.offset, b.strides, b.outer, b.dtype) for b in low.operands]
    return low.nest, low.extents, low.outer, low.params, operands


def clear() -> None:
    """Forget all templates."""
    _known.clear()
