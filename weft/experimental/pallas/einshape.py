"""einshape: dimensions split, put into another order and merged, by an equation.

einshape("a(bc)->(ca)b", f32[2,6], c=3)      f32[2,6] -> f32[2,2,3] -> f32[3,2,2] -> f32[6,2]
"""

from __future__ import annotations

import math
import re
from typing import Any

from weft import numpy as jnp


def _groups(side: str) -> list[list[str]]:
    """``a(bc)`` as [[a], [b, c]]."""
    found = re.findall(r"\(([^()]*)\)|([^()])", side)
    if "".join([one or f"({inside})" for inside, one in found]) != side:
        raise ValueError(f"[einshape] the parentheses of {side!r} do not match")
    return [[one] if one else list(inside) for inside, one in found]


def _extents(groups: list[list[str]], shape: tuple[int, ...], known: dict[str, int], equation: str) -> dict[str, int]:
    """The extent of every name on the left: at most one of a group is not given."""
    found: dict[str, int] = {}
    for group, whole in zip(groups, shape, strict=True):
        unknown = [name for name in group if name not in known]
        rest = math.prod([known[name] for name in group if name in known])
        if len(unknown) > 1:
            raise ValueError(
                f"[einshape] {equation!r} splits a dimension of {whole} into {group}: give the sizes of all but one, "
                f"as in {unknown[0]}=2"
            )
        if (not unknown and rest != whole) or (unknown and (rest == 0 or whole % rest)):
            raise ValueError(f"[einshape] {equation!r} splits a dimension of {whole} by the sizes {known}, of {rest}")
        for name in group:
            extent = known[name] if name in known else whole // rest
            if found.setdefault(name, extent) != extent:
                raise ValueError(f"[einshape] {equation!r} names {name!r} twice, with sizes {found[name]} and {extent}")
    return found


def einshape(equation: str, x: Any, assert_is_tile_preserving: bool = False, **sizes: int) -> Any:
    """An array with its dimensions split, in another order, and merged.

    In ``equation`` a letter is a dimension; parentheses on the left split one, on the right they merge. ``sizes`` has
    the extents that do not follow from the shape. ``assert_is_tile_preserving`` is for a TPU and checks nothing.
    ValueError for an equation that does not fit, NotImplementedError for one that leaves out or repeats a dimension.

    >>> pallas.tpu.einshape("a(bc)->(ca)b", jnp.zeros((2, 6)), c=3).shape
    (6, 2)
    """
    del assert_is_tile_preserving
    sides = equation.replace(" ", "").split("->")
    if len(sides) != 2:
        raise ValueError(f"[einshape] an equation has one '->', got {equation!r}")
    x = jnp.asarray(x)
    left, right = map(_groups, sides)
    if len(left) != x.ndim:
        raise ValueError(f"[einshape] {equation!r} has {len(left)} dimensions, the array has {x.ndim}: {x.shape}")
    extents = _extents(left, x.shape, sizes, equation)
    before, after = [name for group in left for name in group], [name for group in right for name in group]
    strange = [name for name in after if name not in extents]
    if strange:
        raise ValueError(f"[einshape] {equation!r} has {strange[0]!r} on the right alone")
    if sorted(before) != sorted(after):
        raise NotImplementedError(f"[einshape] {equation!r} does not have each dimension once on either side")
    apart = jnp.reshape(x, [extents[name] for name in before])
    merged = [math.prod([extents[name] for name in group]) for group in right]
    return jnp.reshape(jnp.transpose(apart, [before.index(name) for name in after]), merged)
