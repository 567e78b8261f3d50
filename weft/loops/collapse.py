"""Loops of axes: neighbouring axes become one loop where every operand allows it, at any size.

    exp over axes (64, 128), operands dense    ->    one loop over 8192 points

Last axes of one element are left out where there are many points, so that lanes lie along the axis before.

    x[n, 16, 2, 1].sum(2)    ->    as x[n, 16, 2].sum(2):  parallel n * 16 x16, rows of 2 side by side

A nest serves every size, and a last axis of one element is no special one to it. But lanes along it are empty but for
one; so where there are many points (``thresholds``), the nest is that of the program without the axis. Not where the
results lie apart in memory, as a column of a matrix does: lanes along it gain nothing, and the kernel of the rows may
store it (``compiler.fusion.boundary_fusion``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from weft._base.record import Record, field
from weft.loops import ir
from weft.loops.body import Body, Operand
from weft.loops.index_math import ZERO, Product, Stride, follows
from weft.loops.kernel import Axis

ONE = Stride(1, 1, ())


class Loop(Record, frozen=False):
    """A loop over one or more axes of a body, outer to inner."""

    role: Literal["parallel", "reduced", "digit"]
    axes: list[Axis] = field(default_factory=list)

    @property
    def extent(self) -> int:
        extent = 1
        for axis in self.axes:
            extent *= axis.extent
        return extent

    @property
    def symbols(self) -> Product:
        """The symbols whose product the extent is."""
        return tuple([axis.symbol for axis in self.axes])

    def stride(self, operand: Operand) -> Stride:
        """The stride of an operand along this loop: that of its innermost axis."""
        if not self.axes:  # a single point counts as contiguous, as stores need it
            return ONE if operand.role == "out" else ZERO
        return operand.strides.get(self.axes[-1].key, ZERO)


def collapse(
    axes: Sequence[Axis], body: Body, role: Literal["parallel", "reduced", "digit"] = "parallel", ones: bool = False
) -> list[Loop]:
    """Collapse adjacent axes where every operand allows it.

    ``ones``: a batch of one joins an axis whose index is read, so that the rows can be cut among threads.
    """
    loops: list[Loop] = []
    for axis in axes:
        if loops and _joins(loops[-1], axis, body, ones):
            loops[-1].axes.append(axis)
        else:
            loops.append(Loop(role, [axis]))
    return loops


def _joins(loop: Loop, inner: Axis, body: Body, ones: bool) -> bool:
    indexed = any(axis.key in body.indexed for axis in loop.axes)
    if ones and not indexed and inner.key in body.indexed and loop.extent == 1:
        return True
    if indexed or inner.key in body.indexed:
        return False
    return all(collapses(operand, loop.axes[-1], inner) for operand in body.operands)


def collapses(operand: Operand, outer: Axis, inner: Axis) -> bool:
    """Whether two axes can be collapsed for an operand."""
    return follows(operand.strides.get(outer.key, ZERO), operand.strides.get(inner.key, ZERO), inner.symbol)


def reduced_loops(body: Body) -> tuple[list[Loop], list[Loop]]:
    """Outer reduced dimensions in order, then the flattened run; and its digits if an operand needs them."""
    by_key = {axis.key: axis for axis in body.axes}
    axes = [by_key[key] for key in body.reduced]
    if not axes:
        return [], []
    outer, run = axes[: len(axes) - body.run], axes[len(axes) - body.run :]
    digits = collapse(run, body, "digit")
    loops = [*[Loop("reduced", [axis]) for axis in outer], Loop("reduced", run)]
    return loops, digits if len(digits) > 1 else []


def split_outer(parallel: list[Loop], body: Body, most: int) -> tuple[list[Loop], list[Loop]]:
    """(outer dimensions for the runtime, at most ``most`` others); a dimension whose index is read is never outer."""
    outer: list[Loop] = []
    inner = list(parallel)
    for loop in parallel[:-1]:
        if len(inner) <= most:
            break
        if not any(axis.key in body.indexed for axis in loop.axes):
            outer.append(loop)
            inner.remove(loop)
    return outer, inner


def stride_class(stride: Stride) -> int:
    return stride.factor if stride.factor in (0, 1, ir.REVERSED) and stride.product == () else ir.RUNTIME


# ---- last axes of one element


def unit_axes(body: Body) -> Sequence[Axis]:
    """The last axes that might be left out: of one element, after another axis, and of no use as an index."""
    free = body.free
    if body.tree not in (None, "column"):
        return ()
    count = 0
    while count < len(free) - 1 and free[-1 - count].extent == 1 and free[-1 - count].key not in body.indexed:
        count += 1
    units = free[len(free) - count :]
    return units if units and _side_by_side(body, units, free[-1 - count]) else ()


def _side_by_side(body: Body, units: Sequence[Axis], before: Axis) -> bool:
    """Whether the elements of all results along an axis are neighbours in memory, at any size."""
    strides = [_plain(operand.strides[before.key], units) for operand in body.operands if operand.role == "out"]
    return all(stride.factor == 1 and stride.product == () for stride in strides)


def _plain(stride: Stride, units: Sequence[Axis]) -> Stride:
    symbols = {axis.symbol for axis in units}
    if stride.product is None or symbols.isdisjoint(stride.product):
        return stride
    return stride._replace(product=tuple([symbol for symbol in stride.product if symbol not in symbols]))


def without_units(body: Body, units: Sequence[Axis]) -> Body:
    """The body of the program without these axes."""
    operands = [
        operand.replace(strides={key: _plain(stride, units) for key, stride in operand.strides.items()})
        for operand in body.operands
    ]
    keys = {axis.key for axis in units}
    return body.replace(operands=operands, axes=tuple([axis for axis in body.axes if axis.key not in keys]))
