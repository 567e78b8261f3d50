"""Writes a product with a vector for the one block of a loop, where each thread keeps its part of the matrix.

    h w, 64 by 64   ->   4 threads for each element, 16 terms of each; the matrix is read once, before the loop

A thread has every fourth of the sums in which such a product is added (docs/NUMERICS.md): two folds are its own, two
are shuffles.
"""

from __future__ import annotations

from weft._base.target import Target
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.products import ProductWriter
from weft.codegen.writer import Writer
from weft.loops.gpu.grid_products import Product, chains
from weft.loops.gpu.resident import HELD_THREADS, Held


class HeldProductWriter(ProductWriter):
    """What stands before the loop is in ``entry`` of its writer."""

    def __init__(self, product: Product, target: Target, held: Held) -> None:
        super().__init__(product, target)
        self.held = held

    def write(self) -> Writer:
        writer, (matrix, vector) = self.writer, (self.held.operand, 1 - self.held.operand)
        self.base = [writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr") for k in range(3)]
        self.k = "%w2"
        thread = threads.number(writer, "tid.x")
        lane = writer.index("and", thread, str(HELD_THREADS - 1))
        item = writer.index("lshr", thread, str(HELD_THREADS.bit_length() - 1))
        inside = writer.compare_index("slt", item, "%w8" if matrix == 0 else "%w9")
        item = writer.choose_index(inside, item, "0")  # all threads of a warp take part in its shuffles
        row, column = (item, "0") if matrix == 0 else ("0", item)
        begins = [self._offset("rows", row, 0), self._offset("columns", column, 0)]
        within: list[str] = []
        offsets: list[str] = []
        weights: list[str] = []
        for j in range(self.held.terms):
            term = writer.index("add", lane, str(HELD_THREADS * j))
            if not self.held.all:
                within.append(writer.compare_index("slt", term, self.k))
                term = writer.choose_index(within[-1], term, "0")
            at = writer.index("add", begins[matrix], self._offset("summed", term, matrix))
            weights.append(self._load(matrix, at).part.text)
            offsets.append(writer.index("add", begins[vector], self._offset("summed", term, vector)))
        first = writer.op(f"and i1 {inside}, {writer.compare_index('eq', lane, '0')}")
        writer.entry, writer.lines = [*writer.entry, *writer.lines], []
        self.base = [writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr") for k in range(3)]
        total = self._total([self._load(vector, at).part.text for at in offsets], weights, within)
        threads.when(writer, first, lambda: self._store(row, column, [total]))
        return writer

    def _total(self, terms: list[str], weights: list[str], within: list[str]) -> str:
        """The sum of a thread's chains, then of all threads of an element."""
        writer, register = self.writer, self.element.register
        count = chains(self.product) // HELD_THREADS
        sums = [self._zero] * count
        for j, (term, weight) in enumerate(zip(terms, weights, strict=True)):
            added = self._added(term, weight, sums[j % count])
            if within:
                added = writer.op(f"select i1 {within[j]}, {register} {added}, {register} {sums[j % count]}")
            sums[j % count] = added
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [self._sum(sums[k], sums[k + half]) for k in range(half)]
        (text,) = sums
        distance = HELD_THREADS // 2
        while distance:
            value = Value(self.product.result, (V(self.one, register, text),))
            text = self._sum(text, threads.shuffled(value, "down", str(distance)).part.text)
            distance //= 2
        return text
