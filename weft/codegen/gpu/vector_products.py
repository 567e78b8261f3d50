"""Writes products by vectors for the threads of a GPU, in the order of docs/NUMERICS.md.

16 threads (of float32) have an element, each with the sum of every 16th term of a block; shuffles fold these.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._base.target_model import GPU_AT_ONCE, GPU_THREADS
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.products import ProductWriter
from weft.codegen.writer import Writer
from weft.loops.gpu.grid_products import CHAIN, chains


class VectorWriter(ProductWriter):
    """Writes the only entry."""

    def write(self) -> Writer:
        writer, width = self.writer, chains(self.product)
        block, thread = self._begin(), threads.number(writer, "tid.x")
        lane = writer.index("and", thread, str(width - 1))
        team = writer.index("lshr", thread, str(width.bit_length() - 1))
        item = writer.index("add", writer.index("mul", block, str(GPU_THREADS // width)), team)
        count = writer.index("mul", writer.index("mul", "%w8", "%w9"), "%w3")
        inside = writer.compare_index("slt", item, count)
        item = writer.choose_index(inside, item, "0")  # all threads of a warp take part in its shuffles
        row, column = self._corner_of(item, 1)
        begins = [self._offset("rows", row, 0), self._offset("columns", column, 0)]
        register, zeros = self.element.register, [(self.element.register, self._zero)] * self.sums

        def terms(count: int) -> Callable[[str, list[str]], list[str]]:
            """So many terms of a chain, whose elements are all loaded before the first is used."""

            def some(at: str, now: list[str]) -> list[str]:
                loaded = [self._elements(begins, at, [k * width for k in range(count)], side) for side in (0, 1)]
                for left, right in zip(*loaded, strict=True):
                    now = self._term(left, right, now)
                return now

            return some

        def chain(first: str, totals: list[str]) -> list[str]:
            last = writer.minimum_index(writer.index("add", first, str(CHAIN * width)), self.k)
            start = writer.index("add", first, lane)
            whole = writer.index("and", writer.index("sub", last, first), str(-GPU_AT_ONCE * width))
            main = writer.index("add", start, whole)
            sums = writer.loop(start, main, GPU_AT_ONCE * width, zeros, terms(GPU_AT_ONCE))
            sums = writer.loop(main, last, width, [(register, text) for text in sums], terms(1))
            found = self._folded(self._chain(sums))
            is_first = writer.compare_index("eq", first, "0")
            return [
                writer.op(f"select i1 {is_first}, {register} {one}, {register} {self._sum(total, one)}")
                for total, one in zip(totals, found, strict=True)
            ]

        total = writer.loop("0", self.k, CHAIN * width, [(register, self._zero)] * self.parts, chain)
        first = writer.op(f"and i1 {inside}, {writer.compare_index('eq', lane, '0')}")
        threads.when(writer, first, lambda: self._store(row, column, total))
        return writer

    def _elements(self, begins: list[str], at: str, further: list[int], side: int) -> list[list[str]]:
        """The parts of elements of an operand, of terms from number ``at`` on."""
        writer, begin = self.writer, begins[side]
        if self.dims["summed"].number != 1:
            offsets = [self._offset("summed", writer.index("add", at, str(k)), side) for k in further]
        else:
            first = self._offset("summed", at, side)
            offsets = [writer.index("add", first, self._offset("summed", str(k), side)) for k in further]
        values = [self._load(side, writer.index("add", begin, offset)) for offset in offsets]
        return [[part.text for part in value.parts] for value in values]

    def _folded(self, parts: list[str]) -> list[str]:
        """The sum of a team's elements: one half is added to the other, until one is left."""
        distance = chains(self.product) // 2
        while distance:
            value = Value(self.product.result, tuple([V(self.one, self.element.register, text) for text in parts]))
            others = threads.shuffled(value, "down", str(distance)).parts
            parts = [self._sum(text, other.text) for text, other in zip(parts, others, strict=True)]
            distance //= 2
        return parts
