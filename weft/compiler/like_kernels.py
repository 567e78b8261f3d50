"""Kernels of a program that differ in nothing but buffers and literals: the later ones are bound as the first was.

A program over fifty leaves of a dict is fifty such kernels. In: the recipes of a template. Out: for each the number of
the first one like it. The calls of a later one take over nest, strides and extents where its arrays are of the shapes
of the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.loops.schedule import Binding, Lowered, scalar_words

if TYPE_CHECKING:
    import numpy as np


def leaders(recipes: Sequence[Any]) -> list[int | None]:
    """For each recipe of a kernel the number of the first one that is like it; None for that one and for others."""
    found: dict[Any, int] = {}
    made: list[int | None] = []
    for number, recipe in enumerate(recipes):
        key = _likeness(recipe)
        first = number if key is None else found.setdefault(key, number)
        made.append(None if first == number else first)
    return made


def _likeness(recipe: Any) -> Any:
    """What equal recipes have in common, axes and variables numbered in order; None for what is not simply walked."""
    layout = getattr(recipe, "layout", None)
    if layout is None or any(o.region is not None or o.moved is not None for o in recipe.operands):
        return None
    if any(type(use.start) is not int for o in recipe.operands for use in o.access):
        return None
    if any(source is None or type(source) is not int for _, _, source in recipe.scalars):
        return None
    axes = {key: number for number, key in enumerate(recipe.extents)}

    def numbered(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        return tuple([tuple([axes.get(key, key) for key in row]) for row in rows])

    variables: dict[int, int] = {}
    walked = []
    for o in recipe.operands:
        access = tuple([(axes.get(use.axis, use.axis), use.start, use.step) for use in o.access])
        walked.append((variables.setdefault(o.variable, len(variables)), o.role, o.dtype, access))
    loops = numbered(layout.loops), numbered(layout.outer), numbered(layout.walks), numbered(layout.around)
    scalars = tuple([dtype for dtype, _, _ in recipe.scalars])
    return id(layout.nest), loops, tuple(walked), tuple(recipe.extents.values()), scalars


def follow(low: Lowered, variables: Sequence[Any], scalars: Sequence[tuple[np.dtype, Any]]) -> Lowered | None:
    """The call of a kernel like that of ``low`` with these buffers and literals; None where they have other shapes."""
    bindings, new = [], tuple.__new__  # its own is Python
    for variable, like in zip(variables, low.operands, strict=True):
        if variable.aval.shape != like[0].aval.shape:
            return None
        bindings.append(new(Binding, (variable, *like[1:])))
    params = low.params
    if scalars:
        words = scalar_words(scalars)
        params = params[: len(params) - len(words)] + words
    return Lowered(low.name, low.nest, tuple(bindings), low.extents, low.outer, params, low.layout)
