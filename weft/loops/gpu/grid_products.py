"""Matrix products on a GPU: one record for each kernel, and its launches.

    c[512, 1000] = a[512, 768] b[768, 1000]   ->   8 x 16 blocks of threads, a tile of 64 x 64 elements each

Rows, columns and terms are one dimension or several, as in ``compiler.plans.instructions.Gemm``; sums have the order of
docs/NUMERICS.md. Records hold no sizes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft._base.target_model import GPU_EPILOGUE, GPU_THREADS, GPU_TILES, WARP
from weft.loops import ir
from weft.loops.gpu import grid
from weft.loops.nests import Lowered
from weft.loops.schedules import costs

# Tiles, depth and stages are those of prototypes that no GPU has run: estimates, compared by tests/gpu/prediction.py.
DEPTH = 8  # terms that a block multiplies at once, without tensor cores
PAD = 4  # elements between their rows in memory, so that another row begins in another bank
CHAIN = 512  # terms
LINE = 64  # bytes of the sums in which a vector's product is added, side by side


class Tile(Record):
    """Rows and columns of the result that a block computes, and by tensor cores those of a warp."""

    rows: int
    columns: int
    warp_rows: int = 0
    warp_columns: int = 0


PLAIN_SMALL, PLAIN_LARGE = Tile(64, 64), Tile(128, 128)
SMALL, LARGE = Tile(64, 64, 32, 16), Tile(128, 256, 64, 64)
STEP = 64  # bytes of terms of an operand that a stage holds for each of its rows or columns
STAGES = 4  # in a block's memory at a time: one is multiplied, others are on their way
ALIGNED = grid.ALIGNED
F32 = np.dtype(np.float32)


OPERANDS = 2  # arrays that a product reads


class Epilogue(Record):
    """A kernel for each element of a product, instead of a store: the number of its operand that is the product."""

    nest: ir.Nest
    operand: int


class Product(Record, labels=("name",)):
    """A kernel: dtypes of the operands, of sums and of what is stored, and how many dimensions of each kind.

    ``a_along``: neighbours of the left operand lie along its terms; ``b_along``: those of the right one along columns.
    ``form``: tiles, vector (one of the operands is one, whose product is added in several sums) or tensor.
    """

    source: np.dtype
    result: np.dtype
    rows: int
    columns: int
    summed: int
    batch: int
    a_along: bool
    b_along: bool
    form: str
    stored: np.dtype
    name: str = "product"
    epilogue: Epilogue | None = None

    def size(self) -> int:
        """As many statements as its multiply-adds and loads are like."""
        return 64

    @property
    def operands(self) -> tuple[Any, ...]:
        return "a", "b", *(("c",) if self.epilogue is None else self.epilogue.nest.operands)

    @property
    def made(self) -> int:
        """The operand that is the result."""
        return OPERANDS + (0 if self.epilogue is None else self.epilogue.operand)


def product(gemm: Any, source: np.dtype, result: np.dtype) -> Product | None:
    """The kernel of an instruction Gemm; None if the host has to compute it."""
    counts = (len(gemm.rows), len(gemm.columns), len(gemm.summed), len(gemm.batch))
    rows, columns, terms, batch = _sizes(gemm)
    stored, result = result, F32 if result.itemsize == 2 else result  # half precisions are those that are rounded
    plain = counts[:3] == (1, 1, 1)
    vector = gemm.in_chains and (rows == 1 or columns == 1) and result.kind not in "iu" and plain
    a_along = bool(gemm.summed) and gemm.summed[-1][1] == 1
    b_along = bool(gemm.columns) and gemm.columns[-1][1] == 1
    form = "vector" if vector else "tensor" if _by_tensor_cores(gemm, source, result) else "tiles"
    items = rows * columns if vector else -(-rows // SMALL.rows) * -(-columns // SMALL.columns)
    if max(items * batch, rows, columns, terms) >= grid.MOST_POINTS:
        return None
    return Product(source, result, *counts, a_along, b_along, form, stored)


def _by_tensor_cores(gemm: Any, source: np.dtype, result: np.dtype) -> bool:
    """Half precisions unless float32 is asked for, float32 where TF32 is."""
    if result != F32 or gemm.precision == "float32":
        return False
    return source.itemsize == 2 or gemm.precision == "tf32"


def entries(kernel: Product) -> tuple[str, ...]:
    """The functions of its module."""
    if kernel.form == "vector":
        return ("vector",)
    if kernel.form == "tensor":
        return "mma", "mma_aligned", "mma_large"
    return ("tiles", "tiles_large") if _may_be_large(kernel) else ("tiles",)


def _may_be_large(kernel: Product) -> bool:
    """Whether a thread's registers hold 8 x 8 sums."""
    return kernel.result.itemsize == 4


def launches(kernel: Product, gemm: Any, of_block: bool = False) -> tuple[bytes, tuple[grid.Grid, ...]]:
    """The words behind a kernel's operands, and its launch; ``of_block``: one block makes all of it."""
    m, n, k, batch = _sizes(gemm)
    tiles = (-(-m // SMALL.rows), -(-n // SMALL.columns)) if kernel.form != "vector" else (m, n)
    words = [m, n, k, batch, *grid.quotient(tiles[1]), *grid.quotient(tiles[0] * tiles[1]), *tiles]
    for dims in (gemm.rows, gemm.columns, gemm.summed, gemm.batch):
        words += _words(dims)
    count = math.prod(tiles) * batch
    if kernel.form == "tensor":
        found = _tensor_grid(kernel, gemm, count)
        words.append(found[2])
        return struct.pack(f"<{len(words)}q", *words), (found,)
    packed = struct.pack(f"<{len(words)}q", *words)
    if kernel.form == "vector":
        per_block = GPU_THREADS // WARP * (WARP // chains(kernel))
        return packed, (("vector", "", -(-count // per_block), 1, GPU_THREADS, 0),)
    large = -(-m // PLAIN_LARGE.rows) * -(-n // PLAIN_LARGE.columns) * batch
    is_large = _may_be_large(kernel) and _are_filled(PLAIN_LARGE, large, count, of_block)
    entry, tile, blocks = ("tiles_large", PLAIN_LARGE, large) if is_large else ("tiles", PLAIN_SMALL, count)
    numbers = 2 * stage_words(tile) + (tile.rows * tile.columns if k > CHAIN else 0)
    return packed, ((entry, "", blocks, 1, GPU_THREADS, numbers * kernel.result.itemsize),)


def _are_filled(tile: Tile, large: int, count: int, of_block: bool = False) -> bool:
    """Whether large tiles keep a GPU busy, and ``count`` small ones are 3/4 of their elements: an estimate.

    ``of_block``: others keep it busy.
    """
    busy = of_block or large >= GPU_TILES
    return busy and 4 * count * SMALL.rows * SMALL.columns >= 3 * large * tile.rows * tile.columns


def stage_words(tile: Tile) -> int:
    """Elements of both operands in a stage, without tensor cores."""
    return DEPTH * (tile.rows + tile.columns + 2 * PAD)


def _tensor_grid(kernel: Product, gemm: Any, count: int) -> grid.Grid:
    """Large tiles if they fill a GPU, otherwise ``count`` small ones; by 16 bytes where strides allow."""
    if not _in_chunks(kernel, gemm):
        return "mma", "", count, 1, GPU_THREADS, stage_bytes(SMALL) * 2
    m, n, _, batch = _sizes(gemm)
    large = -(-m // LARGE.rows) * -(-n // LARGE.columns) * batch
    steps = [row[2] for row in gemm.rows] + [dim[3] // kernel.stored.itemsize for dim in gemm.batch]
    # two columns are stored at once
    if _are_filled(LARGE, large, count) and not any(step % 2 for step in (n, *steps)):
        return "mma", "mma_large", large, 1, GPU_THREADS, stage_bytes(LARGE) * STAGES
    return "mma", "mma_aligned", count, 1, GPU_THREADS, stage_bytes(SMALL) * STAGES


def stage_bytes(tile: Tile) -> int:
    """Bytes of a stage of both operands."""
    return (tile.rows + tile.columns) * STEP


def aligned(kernel: Product) -> tuple[int, ...]:
    """The operands whose addresses decide whether the aligned entry is taken."""
    return () if kernel.form != "tensor" else (0, 1, 2) if kernel.epilogue is None else (0, 1)


def _in_chunks(kernel: Product, gemm: Any) -> bool:
    """Whether 16 bytes of an operand that begin at a multiple of them lie side by side, from end to end."""
    per = ALIGNED // kernel.source.itemsize
    along = kernel.a_along, not kernel.b_along
    sides = (gemm.rows, gemm.columns)
    return all(
        _whole(gemm.summed, 1 + k, per, along[k]) and _whole(sides[k], 1, per, not along[k])
        and all(dim[1 + k] % ALIGNED == 0 for dim in gemm.batch)
        for k in (0, 1)
    )  # fmt: skip


def _whole(dims: Sequence[tuple[int, ...]], at: int, per: int, inner: bool) -> bool:
    """Whether steps are chunks of ``per`` elements; the last of ``inner`` dimensions has steps of an element."""
    if not inner:
        return all(dim[at] % per == 0 for dim in dims)
    last = dims[-1]
    return last[at] == 1 and (len(dims) == 1 or last[0] % per == 0) and _whole(dims[:-1], at, per, False)


def _sizes(gemm: Any) -> list[int]:
    """Rows, columns, terms and products."""
    return [math.prod([dim[0] for dim in dims]) for dims in (gemm.rows, gemm.columns, gemm.summed, gemm.batch)]


def _words(dims: Sequence[tuple[int, ...]]) -> list[int]:
    """For each dimension its extent, the numbers to divide by it, and its strides."""
    return [word for extent, *strides in dims for word in (extent, *grid.quotient(extent), *strides)]


def chains(kernel: Product) -> int:
    """The sums in which a vector's product is added."""
    return LINE // kernel.result.itemsize


def operand_of(low: Lowered, made: Sequence[int]) -> int | None:
    """Which operand of a kernel gets the elements of a product where they are computed; None: it stays on its own.

    ``made``: the operands that are the product. Points are its elements in the order in which they lie. A thread has
    several of them, so that the text of a costly kernel would be long.
    """
    nest, how = low.nest, grid.form(low.nest)
    plain = all(dim.role == "parallel" for dim in nest.dims) and not (nest.rows or nest.digits or low.outer)
    statements = list(nest.statements())
    if len(made) != 1 or not plain or how.per_thread == 1 or costs.instructions(statements) > GPU_EPILOGUE:
        return None
    if any(isinstance(s, ir.Update | ir.Guard) for s in statements) or any(b.starts is not None for b in low.operands):
        return None
    (operand,) = made
    if any(isinstance(s, ir.LoadAt) and s.operand == operand for s in statements):
        return None
    step = 1
    for extent, stride in zip(reversed(low.extents), reversed(low.operands[operand].strides), strict=True):
        if extent != 1 and stride != step:
            return None
        step *= extent
    return operand


def n_words(kernel: Product) -> int:
    """The words of a product, those of its epilogue left out."""
    found = 10 + 5 * kernel.rows + 4 * kernel.columns + 5 * kernel.summed + 6 * kernel.batch
    return found + (kernel.form == "tensor")  # the last is the number of blocks
