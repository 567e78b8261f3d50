"""Vectors whose lanes are picked from others, at places known when the code is written; parts of vectors, wider ones.

picked([x, y], [(0, 3), (1, 0), ...])   ->   shufflevector x, y, <3, 8, ...>
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.lanes import Lanes, V, Value


def picks(starts: Sequence[int], offsets: Sequence[int]) -> list[tuple[int, int]]:
    """For each offset in memory the number of a vector that holds it, of those begun at ``starts``, and its lane."""
    owners = [max(k for k, start in enumerate(starts) if start <= offset) for offset in offsets]
    return [(owner, offset - starts[owner]) for owner, offset in zip(owners, offsets, strict=True)]


def picked_value(sources: Sequence[Value], lanes_of: Sequence[tuple[int, int]], lanes: Lanes) -> Value:
    """``picked`` for every part of the values ``sources``."""
    count = len(sources[0].parts)
    parts = [picked([value.parts[part] for value in sources], lanes_of, lanes) for part in range(count)]
    return sources[0].replace(parts=tuple(parts))


def picked(sources: Sequence[V], picks: Sequence[tuple[int, int]], lanes: Lanes) -> V:
    """The vector of the lanes ``picks`` (number of a source, its lane), by shuffles of two sources at a time."""
    width, element = sources[0].lanes.width, sources[0].element
    if width == 1:
        return _of_scalars([sources[number] for number, _ in picks], lanes)
    texts = [sources[number].text for number, _ in picks]
    distinct = list(dict.fromkeys(texts))
    if len(picks) != width:  # of another number of lanes: the first shuffle makes vectors of that number
        made = [
            _one_or_two(sources[0].lanes, distinct[k : k + 2], texts, picks, element)
            for k in range(0, len(distinct), 2)
        ]
        pairs = [k // 2 for k in range(len(distinct))]
        owner = [pairs[distinct.index(text)] for text in texts]
        places = [(number, lane) for lane, number in enumerate(owner)]
        return picked([V(lanes, element, text) for text in made], places, lanes)
    found = distinct[0]
    held = [lane if text == found else 0 for text, (_, lane) in zip(texts, picks, strict=True)]
    if len(distinct) == 1 and held == list(range(width)):
        return V(lanes, element, found)
    other = "poison"
    for text in distinct[1:] or [other]:
        places = [width + pick[1] if mine == text else old for mine, pick, old in zip(texts, picks, held, strict=True)]
        found = lanes.shuffle(found, text, element, places, width)
        held = list(range(width))
    return V(lanes, element, found)


def _one_or_two(
    lanes: Lanes, pair: Sequence[str], texts: Sequence[str], picks: Sequence[tuple[int, int]], element: str
) -> str:
    """The lanes that come from the vectors of a pair; the others do not matter."""
    places = [
        pair.index(text) * lanes.width + lane if text in pair else 0
        for text, (_, lane) in zip(texts, picks, strict=True)
    ]
    return lanes.shuffle(pair[0], pair[1] if len(pair) > 1 else "poison", element, places, lanes.width)


def _of_scalars(values: Sequence[V], lanes: Lanes) -> V:
    """A vector of values of one lane."""
    element = values[0].element
    if lanes.width == 1:
        return values[0]
    if len({value.text for value in values}) == 1:
        return lanes.splat(values[0].text, element)
    text = "poison"
    for lane, value in enumerate(values):
        text = lanes.writer.op(f"insertelement {lanes.type(element)} {text}, {element} {value.text}, i64 {lane}")
    return V(lanes, element, text)


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
