"""Rows of a few words of four bytes, W rows at a time: four words of a row are one access, the rest shuffles.

    W = 8, four words of rows a to h:   a0-3 e0-3   b0-3 f0-3   c0-3 g0-3   d0-3 h0-3
    transposed within each half:        a0 b0 c0 d0 e0 f0 g0 h0   a1 b1 ...   a2 b2 ...   a3 b3 ...

Nothing outside of a row is read or written, whatever the distance of rows, and nothing is gathered. The last words of a
row have a mask where there are registers for masks; otherwise they are a pair, a word, or both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.target_model import QUARTER
from weft.codegen.arithmetic import shuffles
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.memory_access import register_transpose
from weft.codegen.memory_access.memory import Memory
from weft.codegen.writer import Writer
from weft.loops import elements

SIDE = QUARTER // 4  # words
WORD = "i32"
FOUR = f"<{SIDE} x {WORD}>"


def possible(dtype: np.dtype, rows: int) -> bool:
    """Whether rows of these elements are words that are transposed."""
    element = elements.of(dtype)
    return element.kind in "fiu" and element.size == 4 and rows >= SIDE


def load(memory: Memory, dtype: np.dtype, pointers: Sequence[str], count: int) -> list[Value]:
    """The first ``count`` elements of W rows at these addresses: for each of them its W lanes."""
    lanes, writer, type_ = memory.lanes, memory.writer, memory.lanes.type(elements.of(dtype).memory)
    found: list[str] = []
    for at in range(0, count, SIDE):
        some = min(SIDE, count - at)
        rows = [_loaded(writer, writer.element(WORD, pointer, str(at)), some) for pointer in pointers]
        vectors = [shuffles.joined(rows[k::SIDE], lanes, SIDE, WORD).text for k in range(SIDE)]
        found += register_transpose.quarters(lanes, vectors, some)
    texts = [writer.op(f"bitcast <{lanes.width // 2} x i64> {text} to {type_}") for text in found]
    return [memory.join(dtype, text, lanes.width) for text in texts]


def store(memory: Memory, values: Sequence[Value], pointers: Sequence[str]) -> None:
    """Store W rows at these addresses, given by the lanes of each of their elements."""
    lanes, writer, words = memory.lanes, memory.writer, memory.lanes.type(WORD)
    texts: list[str] = []
    for type_, text in map(memory.pack, values):
        texts.append(text if type_ == words else writer.op(f"bitcast {type_} {text} to {words}"))
    for at in range(0, len(values), SIDE):
        some = min(SIDE, len(values) - at)
        vectors = register_transpose.quarters(lanes, [*texts[at : at + some], *["poison"] * (SIDE - some)])
        vectors = [writer.op(f"bitcast <{lanes.width // 2} x i64> {text} to {words}") for text in vectors]
        for row, pointer in enumerate(pointers):
            part, vector = divmod(row, SIDE)
            picks = range(SIDE * part, SIDE * part + SIDE)
            text = vectors[vector]
            if lanes.width > SIDE:
                text = lanes.shuffle(text, "poison", WORD, picks, lanes.width)
            _store(writer, text, writer.element(WORD, pointer, str(at)), some)


def _loaded(writer: Writer, p: str, count: int) -> str:
    """A vector of four words, loaded from the first ``count`` of them."""
    if count == SIDE:
        return writer.op(f"load {FOUR}, ptr {p}, align 4")
    if writer.model.masks:
        given = [("ptr align 4", p), (f"<{SIDE} x i1>", _first(writer, count)), (FOUR, "zeroinitializer")]
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
    """Store the first ``count`` words of a vector of four."""
    if count == SIDE:
        writer.line(f"store {FOUR} {text}, ptr {p}, align 4")
        return
    if writer.model.masks:
        given = [(FOUR, text), ("ptr align 4", p), (f"<{SIDE} x i1>", _first(writer, count))]
        writer.call("llvm.masked.store.v4i32.p0", "void", given)
        return
    if count >= 2:
        pair = Lanes(writer, SIDE).shuffle(text, "poison", WORD, (0, 1), SIDE)
        writer.line(f"store <2 x {WORD}> {pair}, ptr {p}, align 4")
    if count % 2:
        word = writer.op(f"extractelement {FOUR} {text}, i64 {count - 1}")
        writer.line(f"store {WORD} {word}, ptr {writer.element(WORD, p, str(count - 1))}, align 4")


def _first(writer: Writer, count: int) -> str:
    """A mask for the first ``count`` of four words."""
    return Lanes(writer, SIDE).flags([k < count for k in range(SIDE)]).text
