"""Compiles a ``loops.ir.Chain`` to one LLVM function that calls its nests on one block of rows after another.

for each block of rows: k0(rows); k1(rows); ...      the next nest finds in the cache what the one before wrote
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target import Target
from weft.codegen import module_text
from weft.codegen.cpu import families
from weft.codegen.nests.frame import STOP
from weft.codegen.nests.nest import PARAMETERS, NestWriter
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.schedules import decisions

LOW, VECTOR_LOW, MODE, PARTIAL, STOP_WORD, RANGE = 0, 2, 4, 5, 6, 7  # slots of a range, and their number


def walked(nest: ir.Nest) -> int | None:
    """The slot of the range that holds the start of the first dimension; None if the nest cannot run on a part."""
    if not nest.dims or nest.dims[0].role != "parallel" or nest.dims[0].runs:
        return None
    return VECTOR_LOW if nest.vector == 0 else LOW


def text_of(chain: ir.Chain, target: Target, symbol: str) -> str:
    """The LLVM text of a chain."""
    schedules = [decisions.of(nest, target).replace(streamed=None) for nest in chain.nests]  # the next nest reads it
    writers = [NestWriter(schedule, target) for schedule in schedules]
    parts = {f"{symbol}{k}": writer.written() for k, writer in enumerate(writers)}
    return module_text.text(_ChainWriter(chain, list(parts), target).written(), symbol, PARAMETERS, parts)


class _ChainWriter:
    """Writes the function that calls the nests' functions."""

    def __init__(self, chain: ir.Chain, names: Sequence[str], target: Target) -> None:
        self.chain, self.names, self.writer = chain, names, families.writer(target)
        self.own = self.writer.alloca(f"[{RANGE} x i64]")  # the range of a call

    def written(self) -> Writer:
        writer = self.writer
        low, high, stop_word = (self._load("%range", slot) for slot in (0, 1, STOP_WORD))
        rows = self._load("%params", 0)

        def block(start: str, _: list[str]) -> list[str]:
            stay = writer.fresh_label()
            told = writer.op(f"load atomic i32, ptr {writer.op(f'inttoptr i64 {stop_word} to ptr')} monotonic, align 4")
            writer.branch_if(writer.op(f"icmp ne i32 {told}, 0"), STOP, stay, cold=True)
            writer.label(stay)
            stop = writer.minimum_index(writer.index("add", start, rows), high)
            operand = 0
            for k, nest in enumerate(self.chain.nests):
                self._call(k, nest, operand, start, stop)
                operand += len(nest.operands)
            return []

        writer.loop(low, high, rows, [], block)
        writer.branch(STOP)
        writer.label(STOP)
        return writer

    def _call(self, k: int, nest: ir.Nest, operand: int, start: str, stop: str) -> None:
        """Write the call of a nest on the rows from ``start`` to ``stop`` of its first dimension."""
        writer, first = self.writer, 1 + k * ir.CHAIN_WORDS
        params, factor, *whole, partial = (self._load("%params", first + slot) for slot in range(ir.CHAIN_WORDS))
        slot = walked(nest)
        if slot is not None:
            whole[slot : slot + 2] = [writer.index("mul", row, factor) for row in (start, stop)]
        buffer = writer.op(f"ptrtoint ptr {writer.element('i8', '%scratch', partial)} to i64")
        values = [*whole, "0", buffer, self._load("%range", STOP_WORD)]
        for at, value in enumerate(values):
            self._store(value, at)
        operands, block = writer.element("ptr", "%operands", str(operand)), writer.element("i64", "%params", params)
        arguments = f"ptr {operands}, ptr {block}, ptr {self.own}, ptr %scratch"
        for mode in ("0", "1") if nest.split else ("0",):
            self._store(mode, MODE)
            writer.line(f"call void @{self.names[k]}({arguments})")

    def _load(self, base: str, slot: int) -> str:
        return self.writer.op(f"load i64, ptr {self.writer.element('i64', base, str(slot))}, align 8")

    def _store(self, value: str, slot: int) -> None:
        self.writer.line(f"store i64 {value}, ptr {self.writer.element('i64', self.own, str(slot))}, align 8")
