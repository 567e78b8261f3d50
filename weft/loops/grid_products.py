"""Matrix products on a GPU: one record for each kernel, and its launches.

    c[512, 1000] = a[512, 768] b[768, 1000]   ->   8 x 16 blocks of threads, a tile of 64 x 64 elements each

Rows, columns and terms are one dimension or several, as in ``compiler.instructions.Gemm``; sums have the order of
docs/NUMERICS.md. Records hold no sizes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft._base.target_model import GPU_THREADS, WARP
from weft.loops import grid

SIDE = 64  # elements of a side of a tile of a result
DEPTH = 16  # terms that a block keeps at once
PITCH = SIDE + 4  # elements of a row of a tile in memory: another row begins in another bank
LINE = 64  # bytes of the sums in which a vector's product is added, side by side


class Product(Record, labels=("name",)):
    """A kernel: dtypes of the operands and of the result, which is that of sums, and how many dimensions of each kind.

    ``a_along``: neighbours of the left operand lie along its terms; ``b_along``: those of the right one along columns.
    ``vector``: one of the operands is a vector, whose product is added in several sums.
    """

    source: np.dtype
    result: np.dtype
    rows: int
    columns: int
    summed: int
    batch: int
    a_along: bool
    b_along: bool
    vector: bool
    name: str = "product"

    def size(self) -> int:
        """As many statements as its multiply-adds and loads are like."""
        return 64

    @property
    def operands(self) -> tuple[str, str, str]:
        return "a", "b", "c"


def product(gemm: Any, source: np.dtype, result: np.dtype) -> Product | None:
    """The kernel of an instruction Gemm; None if the host has to compute it."""
    counts = (len(gemm.rows), len(gemm.columns), len(gemm.summed), len(gemm.batch))
    rows, columns, terms, batch = _sizes(gemm)
    if source.kind == "c" or max(rows * columns * batch, terms) >= grid.MOST_POINTS:
        return None
    plain = counts[:3] == (1, 1, 1)
    vector = gemm.in_chains and (rows == 1 or columns == 1) and result.kind not in "iu" and plain
    a_along = bool(gemm.summed) and gemm.summed[-1][1] == 1
    b_along = bool(gemm.columns) and gemm.columns[-1][1] == 1
    return Product(source, result, *counts, a_along, b_along, vector)


def launches(kernel: Product, gemm: Any) -> tuple[bytes, tuple[grid.Grid, ...]]:
    """The words behind a kernel's operands, and its launch."""
    m, n, k, batch = _sizes(gemm)
    tiles = (-(-m // SIDE), -(-n // SIDE)) if not kernel.vector else (m, n)
    words = [m, n, k, batch, *grid.quotient(tiles[1]), *grid.quotient(tiles[0] * tiles[1]), *tiles]
    for dims in (gemm.rows, gemm.columns, gemm.summed, gemm.batch):
        words += _words(dims)
    count = math.prod(tiles) * batch
    per_block = GPU_THREADS // WARP * (WARP // chains(kernel)) if kernel.vector else 1
    blocks = -(-count // per_block)
    name, nbytes = ("vector", 0) if kernel.vector else ("tiles", 2 * DEPTH * PITCH * kernel.result.itemsize)
    return struct.pack(f"<{len(words)}q", *words), ((name, "", blocks, 1, GPU_THREADS, nbytes),)


def _sizes(gemm: Any) -> list[int]:
    """Rows, columns, terms and products."""
    return [math.prod([dim[0] for dim in dims]) for dims in (gemm.rows, gemm.columns, gemm.summed, gemm.batch)]


def _words(dims: Sequence[tuple[int, ...]]) -> list[int]:
    """For each dimension its extent, the numbers to divide by it, and its strides."""
    return [word for extent, *strides in dims for word in (extent, *grid.quotient(extent), *strides)]


def chains(kernel: Product) -> int:
    """The sums in which a vector's product is added."""
    return LINE // kernel.result.itemsize


def n_words(kernel: Product) -> int:
    """The words of a kernel."""
    return 10 + 5 * kernel.rows + 4 * kernel.columns + 5 * kernel.summed + 6 * kernel.batch
