"""Threads of a GPU: their numbers, shuffles among the threads of a warp, barriers, and memory that a block shares."""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import BYTES, V
from weft.codegen.writer import Writer

_REGISTERS = "llvm.nvvm.read.ptx.sreg."
SHARED = "@shared"
DECLARATION = f"{SHARED} = external addrspace(3) global [0 x i8], align 16"


def number(writer: Writer, register: str) -> str:
    """A register of the thread, such as tid.x, as an i64 from 0 to 2**31 - 1."""
    return writer.op(f"zext i32 {writer.call(_REGISTERS + register, 'i32', [])} to i64")


def barrier(writer: Writer) -> None:
    """All threads of the block arrive before one goes on, and see what the others have written."""
    writer.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])


def shared(writer: Writer, offset: str) -> str:
    """The (generic) address of a byte of the block's own memory."""
    writer.declarations[SHARED] = DECLARATION
    base = writer.op(f"addrspacecast ptr addrspace(3) {SHARED} to ptr")
    return writer.element("i8", base, offset)


def when(writer: Writer, condition: str, body: Callable[[], object]) -> None:
    """``body()`` in the threads where the condition holds."""
    yes, on = writer.fresh_label(), writer.fresh_label()
    writer.branch_if(condition, yes, on)
    writer.label(yes)
    writer.open_loops.append(None)
    body()
    writer.open_loops.pop()
    writer.branch(on)
    writer.label(on)


def shuffled(value: Value, mode: str, lane: str) -> Value:
    """The value of another thread of the warp: with ``mode`` down ``lane`` threads further on, with idx of ``lane``."""
    return Value(value.dtype, tuple([_shuffled(part, mode, lane) for part in value.parts]))


def _shuffled(x: V, mode: str, lane: str) -> V:
    lanes, writer, bits = x.lanes, x.lanes.writer, 1 if x.element == "i1" else 8 * BYTES[x.element]
    word = x.text if x.element.startswith("i") else writer.op(f"bitcast {x.element} {x.text} to i{bits}")
    if bits < 32:
        word = writer.op(f"zext i{bits} {word} to i32")
    words = [word] if bits <= 32 else [writer.op(f"trunc i64 {word} to i32"), ""]
    if bits > 32:
        words[1] = writer.op(f"trunc i64 {writer.op(f'lshr i64 {word}, 32')} to i32")
    given = [("i32", "-1"), ("i32", ""), ("i32", lane), ("i32", "31")]
    found = []
    for text in words:
        given[1] = ("i32", text)
        found.append(writer.call(f"llvm.nvvm.shfl.sync.{mode}.i32", "i32", given))
    word = found[0]
    if bits > 32:
        low, high = [writer.op(f"zext i32 {part} to i64") for part in found]
        word = writer.op(f"or i64 {low}, {writer.op(f'shl i64 {high}, 32')}")
    elif bits < 32:
        word = writer.op(f"trunc i32 {word} to i{bits}")
    return V(
        lanes, x.element, word if x.element.startswith("i") else writer.op(f"bitcast i{bits} {word} to {x.element}")
    )


def divided(writer: Writer, p: str, numbers: tuple[str, str], divisor: str) -> tuple[str, str]:
    """Quotient and remainder of a number by a divisor, by the numbers of ``grid.quotient``."""
    quotient = writer.index("lshr", writer.index("mul", p, numbers[0]), numbers[1])
    return quotient, writer.index("sub", p, writer.index("mul", quotient, divisor))
