"""Strided access along the lanes: whole vectors and shuffles instead of a gather or a scatter, for small strides.

Strides are known only at run time. There is a variant of the code for each likely stride (2, 3 and 4; the extent of
short, contiguous rows), and a general one. Memory outside the elements of the W lanes is not accessed: the last vector
loaded ends with them, and stores are masked.

    stride 2, W = 4:  load a0 . a1 .  and  a2 . a3;  shuffle to a0 a1 a2 a3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.codegen.emitter import Value
from weft.codegen.lanes import V
from weft.loops import elements

if TYPE_CHECKING:
    from weft.codegen.memory import Mask, Memory


def load(
    memory: Memory,
    dtype: np.dtype,
    pointer: str,
    stride: str,
    offsets: V,
    likely: Sequence[int],
    mask: Mask | None = None,
) -> Value:
    """Load W lanes ``stride`` elements apart; with a mask that is not whole, by the general code."""
    writer = memory.writer
    ends: list[tuple[str, str]] = []

    def near(step: int) -> None:
        ends.append((_load_near(memory, dtype, pointer, step), writer.block))

    def far() -> None:
        value = memory.load_far(dtype, pointer, stride, offsets, mask)
        ends.append((memory.pack(value)[1], writer.block))

    _by_stride(memory, stride, likely, mask, near, far)
    return memory.join(dtype, writer.phi(memory.lanes.type(_word(dtype)), *ends), memory.lanes.width)


def store(
    memory: Memory,
    value: Value,
    pointer: str,
    stride: str,
    offsets: V,
    likely: Sequence[int],
    mask: Mask | None = None,
) -> None:
    """Store W lanes to elements ``stride`` apart; with a mask that is not whole, by the general code."""
    _by_stride(
        memory,
        stride,
        likely,
        mask,
        lambda step: _store_near(memory, value, pointer, step),
        lambda: memory.store_far(value, pointer, stride, offsets, mask),
    )


def _word(dtype: np.dtype) -> str:
    """LLVM type of one element in memory: complex64 as one integer."""
    element = elements.of(dtype)
    return element.memory if element.parts == 1 else "i64"


def _by_stride(
    memory: Memory,
    stride: str,
    likely: Sequence[int],
    mask: Mask | None,
    near: Callable[[int], None],
    far: Callable[[], None],
) -> None:
    writer, done = memory.writer, memory.writer.fresh_label()
    if mask is not None:  # a partial vector uses the general code
        whole = writer.compare_index("eq", mask.count, str(memory.lanes.width))
        stride = writer.choose_index(whole, stride, "0")
    for step in likely:
        chosen, other = writer.fresh_label(), writer.fresh_label()
        writer.branch_if(writer.compare_index("eq", stride, str(step)), chosen, other)
        writer.label(chosen)
        near(step)
        writer.branch(done)
        writer.label(other)
    far()
    writer.branch(done)
    writer.label(done)


def _load_near(memory: Memory, dtype: np.dtype, pointer: str, step: int) -> str:
    """The words at 0, step, 2 step, ...; vector k of those loaded begins at k W, or ends with the last of the words."""
    lanes, writer, element, word = memory.lanes, memory.writer, elements.of(dtype), _word(dtype)
    width, type_ = lanes.width, lanes.type(word)
    found = "poison"
    for k in range(step):
        start = min(k * width, (width - 1) * (step - 1))
        part = writer.op(f"load {type_}, ptr {writer.element(word, pointer, str(start))}, align {element.bytes}")
        picks = [lane if lane * step < k * width else 0 for lane in range(width)]
        picks = [
            width + lane * step - start if 0 <= lane * step - k * width < width else pick
            for lane, pick in enumerate(picks)
        ]
        found = lanes.shuffle(found, part, word, picks, width)
    return found


def _store_near(memory: Memory, value: Value, pointer: str, step: int) -> None:
    lanes, writer, element, word = memory.lanes, memory.writer, elements.of(value.dtype), _word(value.dtype)
    width = lanes.width
    type_, text = memory.pack(value)
    for k in range(step):
        places = range(k * width, (k + 1) * width)
        spread = lanes.shuffle(text, "poison", word, [place // step for place in places], width)
        mask = "<" + ", ".join(f"i1 {'true' if place % step == 0 else 'false'}" for place in places) + ">"
        p = writer.element(word, pointer, str(k * width))
        arguments = [(type_, spread), (f"ptr align {element.bytes}", p), (lanes.type("i1"), mask)]
        writer.call(f"llvm.masked.store.{lanes.suffix(word)}.p0", "void", arguments)
