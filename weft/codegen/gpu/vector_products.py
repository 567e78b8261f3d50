"""Writes products by vectors for the threads of a GPU, in the order of docs/NUMERICS.md.

16 threads (of float32) have an element, each with the sum of every 16th term of a block; shuffles fold these.
"""

from __future__ import annotations

from weft._base.target_model import GPU_THREADS
from weft.codegen.emitter import Value
from weft.codegen.gpu import threads
from weft.codegen.gpu.products import BLOCK, ProductWriter
from weft.codegen.lanes import V
from weft.codegen.writer import Writer
from weft.loops.grid_products import chains


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
        row, column = self._place_of(item, 1)
        a, b = self._offset("rows", row, 0), self._offset("columns", column, 0)
        register = self.element.register

        def term(at: str, now: list[str]) -> list[str]:
            x = self._load(0, writer.index("add", a, self._offset("summed", at, 0)))
            y = self._load(1, writer.index("add", b, self._offset("summed", at, 1)))
            return self._term([part.text for part in x.parts], [part.text for part in y.parts], now)

        def chain(first: str, totals: list[str]) -> list[str]:
            last = writer.minimum_index(writer.index("add", first, str(BLOCK * width)), self.k)
            zeros = [(register, self._zero)] * self.sums
            found = self._folded(self._chain(writer.loop(writer.index("add", first, lane), last, width, zeros, term)))
            is_first = writer.compare_index("eq", first, "0")
            return [
                writer.op(f"select i1 {is_first}, {register} {one}, {register} {self._sum(total, one)}")
                for total, one in zip(totals, found, strict=True)
            ]

        total = writer.loop("0", self.k, BLOCK * width, [(register, self._zero)] * self.parts, chain)
        first = writer.op(f"and i1 {inside}, {writer.compare_index('eq', lane, '0')}")
        threads.when(writer, first, lambda: self._store(row, column, total))
        return writer

    def _folded(self, parts: list[str]) -> list[str]:
        """The sum of a team's elements, of which each half is added to the other."""
        distance = chains(self.product) // 2
        while distance:
            value = Value(self.product.result, tuple([V(self.one, self.element.register, text) for text in parts]))
            others = threads.shuffled(value, "down", str(distance)).parts
            parts = [self._sum(text, other.text) for text, other in zip(parts, others, strict=True)]
            distance //= 2
        return parts
