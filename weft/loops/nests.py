"""A nest is a body in a space: statements over axes become statements over loops, with the arguments of one call.

The arguments: buffers, strides, extents, and the block of parameters.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple, Record
from weft.core.symbolic import sizes
from weft.loops import ir, printer
from weft.loops.body import Body, Operand
from weft.loops.collapse import Loop, collapses, stride_class
from weft.loops.index_math import ZERO, Stride
from weft.loops.schedules import neighbours
from weft.loops.schedules.cpu_space import Space, cpu_space

Scalars = Sequence[tuple[np.dtype, Any]]


class Binding(NamedTuple):
    """An operand of a nest at the present sizes: a buffer, an offset, and strides in elements."""

    variable: Any
    role: str
    offset: int
    strides: tuple[int, ...]
    outer: tuple[int, ...]  # strides, in elements, of the dimensions around the nest
    starts: Any
    dtype: np.dtype


class Params(Record):
    """The parameters of a call: extents and strides, a word each, and scalars behind them."""

    words: tuple[Any, ...]
    scalars: tuple[tuple[np.dtype, Any], ...]

    @property
    def n_words(self) -> int:
        """Words of the block."""
        return len(self.words) + sum([-(-dtype.itemsize // 8) for dtype, _ in self.scalars])

    def block(self) -> bytes:
        """The block of parameters that machine code reads."""
        return struct.pack(f"<{len(self.words)}q", *self.words) + scalar_words(self.scalars)


class Lowered(Record, labels=("lines",)):
    """A nest and the arguments of one call of it."""

    name: str
    nest: ir.Nest
    operands: tuple[Binding, ...]
    extents: tuple[int, ...]
    outer: tuple[int, ...]  # extents
    params: Params
    gpu: bool = False  # whether threads of a GPU run it
    lines: tuple[Any, ...] = ()  # then: where in the user's program its operations come from

    def describe(self) -> str:
        sizes = "x".join(str(extent) for extent in (*self.outer, *self.extents))
        return f"{printer.text(self.nest)}\n  at {sizes or 'one point'}"

    @property
    def points(self) -> int:
        """The number of points of the kernel's whole space."""
        return math.prod(self.space)

    @property
    def space(self) -> tuple[int, ...]:
        """Extents of all loops, around the nest and inside it."""
        return (*self.outer, *self.extents[: len(self.extents) - len(self.nest.digits)])


def scalar_words(scalars: Scalars) -> bytes:
    """The scalars at the end of a parameter block."""
    words = b""
    for dtype, value in scalars:
        data = np.asarray(value, dtype).tobytes()
        words += data + bytes(-len(data) % 8)
    return words


def lowered(body: Body, lanes: int, space: Space | None = None) -> Lowered:
    """The nest of a body, and the arguments of its call, on a CPU or in another space."""
    if space is None:
        body, space = cpu_space(body, lanes)
    strides = [_strides(operand, space) for operand in body.operands]
    dims = [
        ir.Dim(loop.role, sizes.number(extent), space.runs and d == 0)
        for d, (loop, extent) in enumerate(zip(space.loops, space.extents, strict=True))
    ]
    operands = [
        ir.Operand(operand.dtype, "out" if operand.role == "out" else "in", tuple(map(stride_class, row)), None, apart)
        for operand, row, apart in zip(body.operands, strides, space.apart, strict=True)
    ]
    nest = ir.Nest(
        dims=tuple(dims),
        operands=tuple(operands),
        scalars=tuple([dtype for dtype, _ in body.scalars]),
        rows=tuple(body.rows),
        vector=space.vector,
        width=lanes,
        split=space.split,
        setup=tuple(body.setup),
        phases=_phases(body, space.loops),
        name=body.name,
        step=sizes.number(space.step),
        long=space.long,
    )
    return _call(nest, body, space, strides)


def _call(nest: ir.Nest, body: Body, space: Space, strides: Sequence[tuple[Stride, ...]]) -> Lowered:
    """The call of a nest at the present sizes: its buffers, and the block of its parameters."""
    loops, outer = space.loops, space.outer
    extents = tuple([loop.extent for loop in loops])
    words = list(extents)
    bindings = []
    for operand, kind, row in zip(body.operands, nest.operands, strides, strict=True):
        elements = tuple([stride.elems for stride in row])
        words += [step for step, known in zip(elements, kind.strides, strict=True) if known == ir.RUNTIME]
        around = tuple([loop.stride(operand).elems for loop in outer])
        bindings.append(
            Binding(operand.variable, operand.role, operand.offset, elements, around, operand.starts, operand.dtype)
        )
    params = Params(tuple(words), tuple(body.scalars))
    nest = neighbours.marked(nest, bindings)
    return Lowered(nest.name, nest, tuple(bindings), extents, tuple([loop.extent for loop in outer]), params)


def _strides(operand: Operand, space: Space) -> tuple[Stride, ...]:
    """Strides along the loops and digits: the last loop's stands for all digits, or each digit has its own."""
    loops, digits = [*space.parallel, *space.reduced], space.digits
    if not digits:
        return tuple([loop.stride(operand) for loop in loops])
    if all(collapses(operand, left, right) for left, right in itertools.pairwise(loops[-1].axes)):
        return (*[loop.stride(operand) for loop in loops], *[ZERO for _ in digits])
    return (*[loop.stride(operand) for loop in loops[:-1]], ZERO, *[loop.stride(operand) for loop in digits])


def _phases(body: Body, loops: Sequence[Loop]) -> tuple[ir.Phase, ...]:
    dims = {axis.key: dim for dim, loop in enumerate(loops) for axis in loop.axes} if body.indexed else {}

    def numbered(statements: list[ir.Statement]) -> tuple[ir.Statement, ...]:
        if not dims:
            return tuple(statements)
        return tuple([ir.IndexOf(s.out, dims[s.dim], s.dtype) if isinstance(s, ir.IndexOf) else s for s in statements])

    return tuple([ir.Phase(numbered(before), numbered(body), tuple(ends)) for before, body, ends in body.phases])
