"""Run-time starts on a GPU: a kernel clamps them and leaves offsets, by which other kernels find their operands.

    dynamic_slice x[i, 2]   ->   starts: clamp(i) * row bytes -> offset;   kernel of x moved by offset

So nobody waits for a position that a program computes. Records hold no sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.loops.gpu import grid

OFFSET = np.dtype(np.int64)


class Starts(Record, labels=("name",)):
    """For each offset the types of its starts, which it sums, and whether a byte is set if one of them was clamped."""

    offsets: tuple[tuple[tuple[np.dtype, ...], bool], ...]
    name: str = "starts"

    def size(self) -> int:
        """The size of the kernel, in statements of a nest that take about as many instructions."""
        return 8 * sum([len(terms) for terms, _ in self.offsets])

    @property
    def operands(self) -> tuple[str, ...]:
        """For each offset its starts, the offset, and its byte."""
        names = [(*["start"] * len(terms), "offset", *["byte"][: int(flag)]) for terms, flag in self.offsets]
        return tuple([name for some in names for name in some])


class Moved(Record):
    """A kernel with operands that begin at offsets found at run time, which are operands behind its own.

    ``moved``: (the number of the operand, the number of its offset).
    """

    nest: Any
    moved: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        return self.nest.name

    def size(self) -> int:
        return self.nest.size()

    @property
    def operands(self) -> tuple[Any, ...]:
        return (*self.nest.operands, *["offset"] * (1 + max([number for _, number in self.moved])))


def launches(terms: Sequence[tuple[int, int]]) -> tuple[bytes, tuple[grid.Grid, ...]]:
    """The words of a kernel of starts (the greatest value of each start, and its stride), and its launch."""
    words = [word for term in terms for word in term]
    return struct.pack(f"<{len(words)}q", *words), (("starts", "", 1, 1, 1, 0),)


def n_words(starts: Starts) -> int:
    """The words of a kernel."""
    return 2 * sum([len(terms) for terms, _ in starts.offsets])
