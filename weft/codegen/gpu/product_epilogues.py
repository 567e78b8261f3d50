"""Writes what a kernel makes of the elements of a product, in place of their stores (``grid_products.Epilogue``).

    c = dot_general x w; y = tanh (c + b)   ->   one kernel, which stores y alone

Each element is a point of the kernel, whose operand it is; the bits are those of the kernel on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weft._base.target import Target
from weft.codegen import instances
from weft.codegen.emitter import Emitter, Value
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import Lanes
from weft.codegen.memory import Memory
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.grid_products import OPERANDS, Epilogue


class EpilogueWriter(PointWriter):
    """Writes into the function of the product. The product's words come before those of the kernel."""

    def __init__(self, epilogue: Epilogue, target: Target, writer: Writer, n_words: int) -> None:
        super().__init__(epilogue.nest, target, 1)
        self.writer, self.scalar = writer, Lanes(writer, 1)
        self.lanes, memory = self.scalar, Memory(self.scalar, target)
        self.scalars = Instance(Emitter(self.scalar), memory, {})
        self.made, self.n_words = epilogue.operand, n_words
        self.place = self.begin()

    def param(self, slot: int) -> str:
        return super().param(slot + self.n_words)

    def word(self, number: int) -> str:
        return super().word(number + self.n_words)

    def _pointer(self, operand: int) -> str:
        return super()._pointer(operand + OPERANDS)

    def _entry(self) -> Position:
        place = super()._entry()
        self._scalar_slots += self.n_words
        return place

    def elements(self, given: Sequence[tuple[str, Value, str]]) -> None:
        """Some elements of the product: number, value, and whether there is one. Loads come before stores."""
        statements = [s for phase in self.nest.phases for s in (*phase.before, *phase.body)]
        loads = [s for s in statements if isinstance(s, ir.Load) and s.operand != self.made]
        made = [s.out for s in statements if isinstance(s, ir.Load) and s.operand == self.made]
        points = list[tuple[Instance, Position, str]]()
        for number, value, inside in given:
            p = self.writer.choose_index(inside, number, "0")
            one = instances.fresh(self.scalars, self.scalars.values)
            one.scalars = dict(self.scalars.values)
            one.values.update(dict.fromkeys(made, value))
            points.append((one, self.at_point(self.place, self.indices(p)), inside))
        for one, place, _ in points:
            self.run(loads, [one], place)
        for one, place, inside in points:
            threads.when(self.writer, inside, partial(self.run, statements, [one], place))
