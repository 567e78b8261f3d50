"""Rows of a few words of four bytes, W rows at a time: four words of a row are one access, the rest shuffles.

    W = 8, four words of rows a to h:   a0-3 e0-3   b0-3 f0-3   c0-3 g0-3   d0-3 h0-3
    transposed within each half:        a0 b0 c0 d0 e0 f0 g0 h0   a1 b1 ...   a2 b2 ...   a3 b3 ...

Nothing outside of a row is read or written, whatever the distance of rows, and nothing is gathered. The last words of a
row have a mask where there are registers for masks; else they are a pair, a word, or both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.target_model import QUARTER
from weft.codegen.emitter import Value
from weft.codegen.lanes import Lanes
from weft.codegen.memory import Memory
from weft.codegen.writer import Writer
from weft.loops import elements

SIDE = QUARTER // 4  # words
WORD = "i32"
FOUR = f"<{SIDE} x {WORD}>"


def load(memory: Memory, dtype: np.dtype, first: str, stride: str, count: int) -> list[Value]:
    """The ``count`` elements of W rows, ``stride`` words apart: for each of them its W lanes."""
    lanes, writer, type_ = memory.lanes, memory.writer, memory.lanes.type(elements.of(dtype).memory)
    places, found = _places(writer, first, stride, lanes.width), []
    for at in range(0, count, SIDE):
        some = min(SIDE, count - at)
        rows = [_loaded(writer, writer.element(WORD, place, str(at)), some) for place in places]
        vectors = [_joined(lanes, rows[k::SIDE]) for k in range(SIDE)]
        found += [_cast(writer, text, lanes.type(WORD), type_) for text in _transposed(lanes, vectors, some)]
    return [memory.join(dtype, text, lanes.width) for text in found]


def store(memory: Memory, values: Sequence[Value], first: str, stride: str) -> None:
    """Store W rows, given by the lanes of each of their elements."""
    lanes, writer, count = memory.lanes, memory.writer, len(values)
    places = _places(writer, first, stride, lanes.width)
    texts = [_cast(writer, text, type_, lanes.type(WORD)) for type_, text in map(memory.pack, values)]
    for at in range(0, count, SIDE):
        some = min(SIDE, count - at)
        vectors = _transposed(lanes, [*texts[at : at + some], *["poison"] * (SIDE - some)], SIDE)
        for row, place in enumerate(places):
            part, vector = divmod(row, SIDE)
            picks = range(SIDE * part, SIDE * part + SIDE)
            text = vectors[vector] if lanes.width == SIDE else _picked(writer, vectors[vector], lanes.width, picks)
            _store(writer, text, writer.element(WORD, place, str(at)), some)


def _places(writer: Writer, first: str, stride: str, count: int) -> list[str]:
    """The addresses of the rows."""
    places = [first]
    while len(places) < count:
        places.append(writer.element(WORD, places[-1], stride))
    return places


def _transposed(lanes: Lanes, vectors: Sequence[str], count: int) -> list[str]:
    """The first ``count`` columns of four vectors, in each quarter."""
    writer, width = lanes.writer, lanes.width
    low = [word for q in range(0, width, SIDE) for word in (q, width + q, q + 1, width + q + 1)]
    halves = [low, [word + 2 for word in low]][: (count + 1) // 2]
    pairs = [
        [
            _cast(writer, lanes.shuffle(vectors[k], vectors[k + 1], WORD, half, width), lanes.type(WORD), _wide(lanes))
            for k in (0, 2)
        ]
        for half in halves
    ]
    words, found = width // 2, []
    for column in range(count):
        left, right = pairs[column // 2]
        picks = [word for q in range(0, words, 2) for word in (q + column % 2, words + q + column % 2)]
        text = lanes.shuffle(left, right, "i64", picks, words)
        found.append(_cast(writer, text, _wide(lanes), lanes.type(WORD)))
    return found


def _wide(lanes: Lanes) -> str:
    return f"<{lanes.width // 2} x i64>"


def _joined(lanes: Lanes, parts: Sequence[str]) -> str:
    """One vector of parts of four words."""
    texts, width = list(parts), SIDE
    while len(texts) > 1:
        pairs = zip(texts[::2], texts[1::2], strict=True)
        texts = [lanes.shuffle(a, b, WORD, range(2 * width), width) for a, b in pairs]
        width *= 2
    return texts[0]


def _picked(writer: Writer, text: str, width: int, picks: Sequence[int]) -> str:
    """Some words of a vector of ``width`` words."""
    mask = ", ".join(f"i32 {pick}" for pick in picks)
    type_ = f"<{width} x {WORD}>"
    return writer.op(f"shufflevector {type_} {text}, {type_} poison, <{len(picks)} x i32> <{mask}>")


def _loaded(writer: Writer, p: str, count: int) -> str:
    """Up to four words, as four."""
    if count == SIDE:
        return writer.op(f"load {FOUR}, ptr {p}, align 4")
    if writer.model.masks:
        given = [("ptr align 4", p), _mask(count), (FOUR, "zeroinitializer")]
        return writer.call("llvm.masked.load.v4i32.p0", FOUR, given)
    found = "poison"
    if count >= 2:
        pair = writer.op(f"load <2 x {WORD}>, ptr {p}, align 4")
        found = writer.op(f"shufflevector <2 x {WORD}> {pair}, <2 x {WORD}> poison, <4 x i32> <{_PAIR}>")
    if count % 2:
        word = writer.op(f"load {WORD}, ptr {writer.element(WORD, p, str(count - 1))}, align 4")
        found = writer.op(f"insertelement {FOUR} {found}, {WORD} {word}, i64 {count - 1}")
    return found


_PAIR = "i32 0, i32 1, i32 poison, i32 poison"


def _store(writer: Writer, text: str, p: str, count: int) -> None:
    """The first words of four."""
    if count == SIDE:
        writer.line(f"store {FOUR} {text}, ptr {p}, align 4")
        return
    if writer.model.masks:
        writer.call("llvm.masked.store.v4i32.p0", "void", [(FOUR, text), ("ptr align 4", p), _mask(count)])
        return
    if count >= 2:
        writer.line(f"store <2 x {WORD}> {_picked(writer, text, SIDE, (0, 1))}, ptr {p}, align 4")
    if count % 2:
        word = writer.op(f"extractelement {FOUR} {text}, i64 {count - 1}")
        writer.line(f"store {WORD} {word}, ptr {writer.element(WORD, p, str(count - 1))}, align 4")


def _mask(count: int) -> tuple[str, str]:
    return f"<{SIDE} x i1>", "<" + ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(SIDE)) + ">"


def _cast(writer: Writer, text: str, before: str, after: str) -> str:
    return text if before == after else writer.op(f"bitcast {before} {text} to {after}")
