"""Lanes at the offsets of a table, as those of a collapsed dimension are: picked from two vectors where they are close.

    rows of 3 of an array of rows of 5:   a0 a1 a2 b0 b1 b2 c0 c1   at  0 1 2 5 6 7 10 11  of 16 elements from a0 on

Where the 16 elements would end behind the operand they are read from further ahead, and the distances are larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from weft._base.record import Record
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests.frame import Frame
from weft.loops import elements

if TYPE_CHECKING:
    from weft.codegen.memory_access.memory import Mask, Memory
    from weft.codegen.memory_access.mixed_radix import Digits


class Window(Record):
    """What is known of an operand: its offsets as i32, whether windows are read at all, and where the last one is."""

    offsets: str
    fits: str
    last: str


class Offsets(Record):
    """The offsets of an operand's elements in one block, as i64 in memory."""

    table: str
    window: Window | None


def offsets(parent: Frame, digits: Digits, operand: int, table: str, entries: str, most: int) -> Offsets:
    """What is known of the offsets of a table: ``entries`` of them, at most ``most``."""
    if not _possible(parent, parent.nest.operands[operand].dtype):
        return Offsets(table, None)
    return Offsets(table, _window(parent, digits, operand, table, entries, most))


def load(
    memory: Memory, known: Offsets, dtype: np.dtype, pointer: str, at: tuple[str, str], mask: Mask | None
) -> Value:
    """Lanes from position ``at[1]`` of a block on, whose first element is ``at[0]`` elements from the pointer."""
    writer, lanes, (begin, within) = memory.writer, memory.lanes, at
    stored, first = writer.element("i64", known.table, within), writer.element(whole(dtype), pointer, begin)
    if mask is not None:  # past the end the block's first element is read
        found = memory.load(elements.INT64, stored).part
        return memory.load_at(dtype, first, lanes.select(mask.lanes, found, 0))
    if known.window is None:
        return memory.load_by_offsets(dtype, first, "i64", stored)
    offset = writer.op(f"load i64, ptr {stored}, align 8")

    def far() -> Value:
        return memory.load_by_offsets(dtype, first, "i64", stored)

    return _read(memory, known.window, dtype, pointer, (begin, within, offset), far)


def _possible(parent: Frame, dtype: np.dtype) -> bool:
    """Whether the target permutes words of this type by a vector of numbers."""
    one = elements.of(dtype)
    whole_registers = parent.width == parent.writer.native.permuted
    return whole_registers and one.parts == 1 and one.bytes == 4 and one.memory in ("float", "i32")


def _window(parent: Frame, digits: Digits, operand: int, table: str, entries: str, most: int) -> Window:
    """Look at the ``entries`` offsets of a table: windows, if they ascend and any W of them fit in two vectors."""
    writer, width = parent.writer, parent.width
    short = writer.alloca(f"[{most} x i32]")

    def offset(position: str) -> str:
        return writer.op(f"load i64, ptr {writer.element('i64', table, position)}, align 8")

    def entry(position: str, values: list[str]) -> list[str]:
        here = offset(position)
        word = writer.op(f"trunc i64 {here} to i32")
        writer.line(f"store i32 {word}, ptr {writer.element('i32', short, position)}, align 4")
        back = writer.index("sub", position, str(width - 1))
        first = offset(writer.choose_index(writer.compare_index("slt", back, "0"), "0", back))
        close = writer.compare_index("slt", writer.index("sub", here, first), str(2 * width))
        up = writer.compare_index("sge", here, values[1])
        return [writer.op(f"and i1 {values[0]}, {writer.op(f'and i1 {close}, {up}')}"), here]

    fits = writer.loop("0", entries, 1, [("i1", "true"), ("i64", "0")], entry)[0]
    last = writer.index("sub", "1", str(2 * width))
    for dim in digits.dims:
        if parent.nest.operands[operand].strides[dim]:
            end = writer.index("sub", parent.extents[dim], "1")
            last = writer.index("add", last, parent.distance(operand, dim, end))
            fits = writer.op(f"and i1 {fits}, {writer.compare_index('sge', parent.distance(operand, dim, '1'), '0')}")
    fits = writer.op(f"and i1 {fits}, {writer.compare_index('sge', last, '0')}")
    return Window(short, fits, last)


def _read(
    memory: Memory, window: Window, dtype: np.dtype, pointer: str, at: tuple[str, str, str], far: Callable[[], Value]
) -> Value:
    """The lanes from position ``at[1]`` of a block on that begins at ``at[0]``, whose first offset is ``at[2]``."""
    writer, lanes, kind = memory.writer, memory.lanes, elements.of(dtype).memory

    def near() -> list[tuple[str, str]]:
        start = writer.minimum_index(writer.index("add", at[0], at[2]), window.last)
        moved = writer.op(f"trunc i64 {writer.index('sub', at[0], start)} to i32")
        offsets = writer.op(f"load {lanes.type('i32')}, ptr {writer.element('i32', window.offsets, at[1])}, align 4")
        picks = V(lanes, "i32", offsets) + lanes.splat(moved, "i32")
        first = writer.element("i32", pointer, start)
        low, high = (
            V(lanes, "float", writer.op(f"load {lanes.type('float')}, ptr {p}, align 4"))
            for p in (first, writer.element("i32", first, str(lanes.width)))
        )
        return [(lanes.type("float"), lanes.native.picked(low, high, picks).text)]

    def other() -> list[tuple[str, str]]:
        packed = memory.pack(far())[1]
        if kind != "float":
            packed = writer.op(f"bitcast {lanes.type(kind)} {packed} to {lanes.type('float')}")
        return [(lanes.type("float"), packed)]

    (text,) = writer.either(window.fits, near, other)
    if kind != "float":
        text = writer.op(f"bitcast {lanes.type('float')} {text} to {lanes.type(kind)}")
    return memory.join(dtype, text, lanes.width)
