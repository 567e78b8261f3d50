"""Gathers and dynamic slices of computed values: their operands are read instead.

    b = exp a; c = gather b i; d = dynamic_slice b j   ->   c = exp (gather a i); d = exp (dynamic_slice a j)

So ``b`` need not be stored, and only the elements that are read are computed. A value stays as it is if it is stored in
any case, or if slices read more elements than it has. The bits are the same: starts are clamped alike. How operands are
found is in ``data_movement``, when a gather pays in ``gathers``.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from weft import operations as lax
from weft import runtime
from weft.compiler.passes import gathers
from weft.compiler.passes.data_movement import Along, DefUse, Pull, Reading, Unfit
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal


def moved_reads(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such reads."""
    known = rewrite.index(closed.jaxpr)
    program = DefUse(known, {kinds.Gather: gathers.Gathered, kinds.DynamicSlice: _Sliced})
    sliced: Counter[Any] = Counter()  # value -> number of its elements that slices read
    for equation in known.eqns:
        if isinstance(equation.primitive.kind, kinds.DynamicSlice):
            sliced[equation.invars[0]] += equation.outvars[0].aval.size
    program.stored.update([array for array, size in sliced.items() if size > array.aval.size])
    pulled = program.pulled()
    return closed if pulled is known.eqns else rewrite.with_equations(closed, pulled)


class _Sliced(Pull):
    """One slice; the ``column`` of a reading is the number of a start, which may be a literal."""

    def __init__(self, program: DefUse, equation: Any) -> None:
        super().__init__(program, equation)
        self.starts, self.scope = equation.invars[1:], equation
        extents = enumerate(zip(self.array.aval.shape, self.out.shape, strict=True))
        self.reading = tuple([Along(None if size == extent else dim, dim, size) for dim, (extent, size) in extents])

    def made(self) -> list[JaxprEqn] | None:
        if self.through(self.array, self.reading) is None:
            return None
        try:
            value = self.at(self.array, self.reading, True)
        except Unfit:
            return None
        return self.result(value) if sum(map(math.prod, self.saved)) < self.array.aval.size else None

    def leaf(self, atom: Any, reading: Reading) -> Any:
        """An array, sliced at run time along dimensions that have a start."""
        starts = [None if along.column is None else self.starts[along.column] for along in reading]
        moving = [start for start in starts if start is not None]
        if moving:
            dtype = moving[0].aval.dtype
            zero = Literal(dtype.type(0), runtime.ShapedArray((), dtype))
            sizes = tuple([along.size for along in reading])
            starts = [zero if start is None else start for start in starts]
            atom = self.bind(lax.dynamic_slice_p, atom, *starts, slice_sizes=sizes)
        return self.arranged(atom, [along.walk for along in reading])
