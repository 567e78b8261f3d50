"""Vectors of other numbers of lanes: parts of vectors, wider ones, several as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.arithmetic.lanes import Lanes, V


def widened(x: V, wide: Lanes) -> V:
    """The lanes of ``x`` in a wider vector."""
    lanes, type_ = x.lanes, wide.type(x.element)
    if lanes.width == 1:
        return V(wide, x.element, lanes.writer.op(f"insertelement {type_} poison, {x.element} {x.text}, i64 0"))
    order = [min(k, lanes.width) for k in range(wide.width)]
    return V(wide, x.element, lanes.shuffle(x.text, "poison", x.element, order, lanes.width))


def narrowed(text: str, lanes: Lanes, wide: Lanes, element: str) -> V:
    """The first lanes of a wider vector."""
    if lanes.width == 1:
        return V(lanes, element, wide.extract(V(wide, element, text), 0))
    return V(lanes, element, lanes.shuffle(text, "poison", element, range(lanes.width), wide.width))


def part(v: V, narrow: Lanes, start: int) -> V:
    """The lanes of ``v`` from ``start`` on, as many as ``narrow`` has."""
    if v.lanes.width == narrow.width:
        return v
    picks = range(start, start + narrow.width)
    return V(narrow, v.element, v.lanes.shuffle(v.text, "poison", v.element, picks, v.lanes.width))


def joined(texts: list[str], lanes: Lanes, width: int, element: str) -> V:
    """One vector from parts of ``width`` lanes."""
    while len(texts) > 1:
        order = range(2 * width)
        texts = [lanes.shuffle(a, b, element, order, width) for a, b in zip(texts[::2], texts[1::2], strict=True)]
        width *= 2
    return V(lanes, element, texts[0])


def by_parts(vectors: Sequence[V], per: int, function: Callable[..., str], element: str) -> V:
    """``function`` of the parts of ``per`` lanes of these vectors, one after another; shorter vectors are widened."""
    lanes, narrow = vectors[0].lanes, Lanes(vectors[0].lanes.writer, per)
    if lanes.width < per:
        return narrowed(function(*[widened(x, narrow) for x in vectors]), lanes, narrow, element)
    starts = range(0, lanes.width, per)
    return joined([function(*[part(x, narrow, at) for x in vectors]) for at in starts], lanes, per, element)
