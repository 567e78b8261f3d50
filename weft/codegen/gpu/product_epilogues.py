"""Writes what a kernel makes of the elements of a product, instead of their stores (``grid_products.Epilogue``).

    c = dot_general x w; y = tanh (c + b)   ->   one kernel, which stores y alone

Each element is a point of the kernel, whose operand it is; the bits are those of the kernel on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weft._base.target import Target
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.memory_access.memory import Memory
from weft.codegen.nests import instances, reduce_tree
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.gpu.grid_products import OPERANDS, Epilogue


class EpilogueWriter(PointWriter):
    """Writes into the function of the product. The product's words come before those of the kernel."""

    def __init__(self, epilogue: Epilogue, target: Target, writer: Writer, n_words: int) -> None:
        super().__init__(epilogue.nest, target, 1)
        self.writer, self.scalar = writer, Lanes(writer, 1)
        self.lanes, memory = self.scalar, Memory(self.scalar, target)
        self.scalars = Instance(Emitter(self.scalar), memory, {})
        self.made, self.n_words = epilogue.operand, n_words
        self.position = self.begin()

    def param(self, slot: int) -> str:
        return super().param(slot + self.n_words)

    def word(self, number: int) -> str:
        return super().word(number + self.n_words)

    def _pointer(self, operand: int) -> str:
        return super()._pointer(operand + OPERANDS)

    def _entry(self) -> Position:
        position = super()._entry()
        self._scalar_slots += self.n_words
        return position

    def elements(self, given: Sequence[tuple[str, Value, str]]) -> None:
        """Some elements of the product: number, value, and whether there is one. Loads come before stores.

        What does not exist is not read: the result may lie in the memory of an operand, where others write.
        """
        statements = [s for phase in self.nest.phases for s in (*phase.before, *phase.body)]
        loads = [s for s in statements if isinstance(s, ir.Load) and s.operand != self.made]
        made = [s.out for s in statements if isinstance(s, ir.Load) and s.operand == self.made]
        points = list[tuple[Instance, Position, str]]()
        for number, value, inside in given:
            p = self.writer.choose_index(inside, number, "0")
            one = instances.fresh(self.scalars, self.scalars.values)
            one.scalars = dict(self.scalars.values)
            one.values.update(dict.fromkeys(made, value))
            points.append((one, self.at_point(self.position, self.indices(p)), inside))
        for one, position, inside in points:
            self._load_inside(loads, one, position, inside)
        for one, position, inside in points:
            threads.when(self.writer, inside, partial(self.run, statements, [one], position))

    def _load_inside(self, loads: Sequence[ir.Load], one: Instance, position: Position, inside: str) -> None:
        nothing = [one.emit.const(0, self.nest.operands[s.operand].dtype) for s in loads]
        types, zeros = zip(*reduce_tree.flatten(nothing), strict=True) if loads else ((), ())

        def read() -> list[str]:
            there = instances.fresh(one, one.values)
            self.run(loads, [there], position)
            return reduce_tree.texts([there.values[s.out] for s in loads])

        found = self.writer.when(inside, read, types, zeros, rare=False) if inside != "true" else read()
        one.values.update(zip([s.out for s in loads], reduce_tree.rebuild(nothing, found), strict=True))
