"""The cells of a grid as loops: ``grid_loop`` written in other operations.

grid (2, 3): for cell in 0..6: i, j = cell // 3, cell % 3; read blocks, run the body, write blocks
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft._base.record import Record
from weft.control import grid_apart, grid_blocks, grid_order, grid_points
from weft.control.grid_blocks import Blocking
from weft.control.while_loop import fori_loop
from weft.core.programs.eval import jaxpr_as_fun
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.symbolic import open_sizes


class Parts(Record):
    """The operands of a grid_loop (or their types) by what they are, and its parameters."""

    grid: tuple[int, ...]
    body: ClosedJaxpr
    maps: tuple[ClosedJaxpr, ...]
    blocks: tuple[Blocking, ...]
    counts: tuple[int, int, int]
    captured: tuple[Any, ...]
    prefetched: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    scratch: tuple[Any, ...]
    semantics: tuple[str, ...]
    name: str
    in_order: bool

    @staticmethod
    def of(operands: Sequence[Any], params: dict[str, Any]) -> Parts:
        own, ahead, n_in = params["counts"]
        ends = (0, own, own + ahead, own + ahead + n_in, len(operands))
        groups = [tuple(operands[low:high]) for low, high in itertools.pairwise(ends)]
        return Parts(captured=groups[0], prefetched=groups[1], inputs=groups[2], outputs=groups[3], **params)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All that lies in blocks."""
        return (*self.inputs, *self.outputs)

    @property
    def number(self) -> Any:
        """The type of the number of a cell along an axis."""
        return runtime.ShapedArray((), np.dtype(np.int32))

    @property
    def numbers(self) -> list[Any]:
        return [self.number] * len(self.grid)

    def words(self, which: int) -> str:
        """What array ``which`` is called in errors."""
        n = len(self.inputs)
        return f"input {which}" if which < n else f"output {which - n}"

    def block_types(self) -> list[Any]:
        return [runtime.ShapedArray(block.seen, x.dtype) for x, block in zip(self.arrays, self.blocks, strict=True)]

    def body_types(self) -> list[Any]:
        """The types of all that the body takes."""
        return [*self.captured, *self.numbers, *self.prefetched, *self.block_types(), *self.scratch]

    def result_types(self) -> list[Any]:
        return [*self.block_types()[len(self.inputs) :], *self.scratch]

    def start_of(self, which: int, numbers: Sequence[Any]) -> list[Any]:
        """The first element of the block of array ``which`` in a cell."""
        indices = jaxpr_as_fun(self.maps[which])(*numbers, *self.prefetched)
        return grid_blocks.starts(self.blocks[which], [lax.convert_element_type(i, np.int32) for i in indices])

    def run(
        self, numbers: Sequence[Any], blocks: Sequence[Any], scratch: Sequence[Any], body: ClosedJaxpr | None = None
    ) -> tuple[list[Any], list[Any]]:
        """(output blocks, scratch arrays) after the body, or after another program instead."""
        outs = jaxpr_as_fun(body or self.body)(*self.captured, *numbers, *self.prefetched, *blocks, *scratch)
        return outs[: len(self.outputs)], outs[len(self.outputs) :]


def expanded(*operands: Any, **params: Any) -> list[Any]:
    """The outputs of a grid_loop by other operations: cells that do not depend on each other run apart."""
    parts = Parts.of(operands, params)
    order = None if parts.in_order else grid_order.order(parts)
    if order is None:
        return in_order(*operands, **params)
    found = grid_points.on_whole_arrays(parts, order)
    return grid_apart.Apart(parts, order)() if found is None else found


def in_order(*operands: Any, **params: Any) -> list[Any]:
    """All cells one after the other, in row-major order.

    While a function is traced for unknown sizes the operations are the same for all extents, but for integers.
    """
    parts, always = Parts.of(operands, params), open_sizes.thread.session is not None
    n_in, n_out = len(parts.inputs), len(parts.outputs)
    shapes = [tuple(x.shape) for x in parts.outputs]
    whole = [grid_blocks.pad(x, block, always) for x, block in zip(parts.arrays, parts.blocks, strict=True)]
    inputs, outputs = whole[:n_in], whole[n_in:]
    scratch = [lax.full(aval.shape, grid_blocks.unset(aval.dtype), aval.dtype) for aval in parts.scratch]

    def cell(index: Any, state: Any) -> Any:
        outputs, scratch = state
        numbers = numbers_of(index, parts.grid, always)
        arrays = [*inputs, *outputs]
        firsts = [parts.start_of(which, numbers) for which in range(len(arrays))]
        blocks = [
            grid_blocks.read(x, b, first, always=always)
            for x, b, first in zip(arrays, parts.blocks, firsts, strict=True)
        ]
        made, scratch = parts.run(numbers, blocks, scratch)
        written = zip(outputs, made, parts.blocks[n_in:], firsts[n_in:], strict=True)
        return [grid_blocks.write(*args, always) for args in written], scratch

    outputs, _ = fori_loop(0, math.prod(parts.grid), cell, (outputs, scratch))
    assert len(outputs) == n_out
    return [
        grid_blocks.cut(x, b, shape, always) for x, b, shape in zip(outputs, parts.blocks[n_in:], shapes, strict=True)
    ]


def numbers_of(index: Any, grid: Sequence[int], always: bool = False) -> list[Any]:
    """The numbers along the axes of the cell that is ``index`` in row-major order."""
    index = lax.convert_element_type(index, np.int32)
    found = []
    for axis, extent in enumerate(grid):
        stride, is_last = math.prod(grid[axis + 1 :]), axis == len(grid) - 1
        number = index if is_last or (stride == 1 and not always) else lax.div(index, np.int32(stride))
        found.append(number if axis == 0 else lax.rem(number, np.int32(extent)))
    return found
