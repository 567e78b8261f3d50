"""Gathers and dynamic slices of computed values: their operands are read instead.

    b = exp a; c = gather b i; d = dynamic_slice b j   ->   c = exp (gather a i); d = exp (dynamic_slice a j)

How operands are found is in ``data_movement``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.compiler import dynamic_slices, gathers
from weft.compiler.data_movement import Program
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr


def moved_reads(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such reads."""
    known = rewrite.index(closed.jaxpr)
    program = Program(known, {kinds.Gather: gathers.Gathered, kinds.DynamicSlice: dynamic_slices.Sliced})
    sliced: Counter[Any] = Counter()  # value -> number of its elements that slices read
    for equation in known.eqns:
        if isinstance(equation.primitive.kind, kinds.DynamicSlice):
            sliced[equation.invars[0]] += equation.outvars[0].aval.size
    program.stored.update([array for array, size in sliced.items() if size > array.aval.size])
    pulled = program.pulled()
    return closed if pulled is known.eqns else rewrite.with_equations(closed, pulled)
