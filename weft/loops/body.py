"""The body of a kernel: statements over its own axes, the output of ``lower``.

A body knows neither lanes nor widths nor which processor will run it: ``cpu_space`` makes loops of its axes. Its
strides are symbolic, so that what is decided about it holds at every size.

    softmax [b, n(lanes)]  ->  phase 0: max;  phase 1: exp kept in a row, sum;  phase 2: divide, store
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from weft._base.record import Record
from weft.loops import ir, printer
from weft.loops.index_math import Stride
from weft.loops.kernel import Access, Axis, Tree

Phase = tuple[list[ir.Statement], list[ir.Statement], list[ir.Reduce]]  # before the loop, in it, after it
PLAIN = (ir.Load, ir.Store, ir.Param, ir.Apply, ir.IndexOf, ir.Guard)


class Operand(Record, frozen=False):
    """A buffer the kernel reads or writes, with one symbolic stride per axis."""

    variable: Any
    role: str
    offset: int  # elements
    fixed: bool  # whether the offset is the same at all sizes
    strides: dict[int, Stride]  # by axis key
    starts: Any  # the equation whose run-time starts shift the base, or None
    dtype: np.dtype
    access: Access


class Scatter(Record):
    """How a result is updated: the axes along which the targets differ, and whether the targets are sorted."""

    axes: frozenset[int]
    is_sorted: bool


class Body(Record, frozen=False):
    """Statements over axes, in logical order; ``IndexOf.dim`` holds the key of an axis.

    ``reduced``, ``run`` and ``tree`` are those of the kernel. ``results`` says of each result whether it is a scatter.
    """

    name: str
    axes: tuple[Axis, ...]
    reduced: tuple[int, ...]
    run: int
    tree: Tree | None
    results: tuple[Scatter | None, ...]
    operands: list[Operand]
    scalars: list[tuple[np.dtype, Any]]
    rows: list[np.dtype]
    setup: list[ir.Statement]
    phases: list[Phase]
    indexed: set[int]  # axes that an IndexOf reads: they must not be collapsed

    @property
    def free(self) -> list[Axis]:
        """The axes that are not reduced."""
        return [axis for axis in self.axes if axis.key not in self.reduced]

    @property
    def statements(self) -> list[ir.Statement]:
        """The statements of all phases."""
        return [s for before, inside, _ in self.phases for s in (*before, *inside)]

    @property
    def is_plain(self) -> bool:
        """Whether it only loads, computes and stores, at offsets that are known or are tested."""
        return all(isinstance(s, PLAIN) or reads_inside(s) for s in self.statements)

    @property
    def along_rows(self) -> bool:
        """Whether it reduces or scans along rows, which is the last axis."""
        return self.tree == "row" or (self.tree == "scan" and self.axes[-1].key in self.reduced)

    def describe(self) -> str:
        return printer.body_text(self)


def reads_inside(s: ir.Statement) -> TypeGuard[ir.LoadAt]:
    """Whether a load reads only the lanes that are inside its array."""
    return isinstance(s, ir.LoadAt) and s.inside is not None
