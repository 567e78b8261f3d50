"""The launches of a nest on a GPU: blocks of threads for its sizes, and the numbers that threads find their points by.

    exp over [1000000]         ->  977 blocks of 256 threads, 4 points a thread
    sum of rows, [4096, 1000]  ->  512 blocks of 8 warps, a warp a row
    sum over [64000000]        ->  977 blocks that leave 7813 sums, 1 block that adds them

Index arithmetic of points is in 32 bits: a division by an extent is a product with a number of these here (Granlund,
Montgomery, "Division by invariant integers using multiplication", 1994).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from weft._base.record import NamedTuple, Record
from weft._base.target_model import (
    GPU_FEW,
    GPU_HELD,
    GPU_LANE_THREADS,
    GPU_REGISTERS,
    GPU_ROWS,
    GPU_SERIAL_ROWS,
    GPU_SERIAL_STEPS,
    GPU_SHARED,
    GPU_THREADS,
    GPU_WORDS,
    WARP,
    WARP_ROW,
)  # fmt: skip
from weft.core.symbolic.sizes import whole
from weft.loops import elements, ir, nests
from weft.loops.body import Body
from weft.loops.gpu.grid_space import grid_space
from weft.loops.nests import Binding, Lowered
from weft.loops.reduction_tree import BLOCK_LANES, BLOCK_ROWS, GROUP_BLOCKS, RUN
from weft.loops.routines import routine
from weft.loops.schedules import uniform

PER_THREAD = 4  # points of a thread where nothing is reduced: 16 bytes of float32, which an H100 copies at full rate
ALIGNED = 16  # bytes of the widest access
MOST_POINTS = 1 << 31  # and parts of rows and columns: ``quotient`` divides smaller numbers
SLOT = 16  # bytes of an accumulator in memory that threads share
RESULT = SLOT * (WARP + 1)  # those of all warps of a block, and of what they combine to
SCAN_THREADS = BLOCK_LANES // RUN  # of a block, each with a run of a running combination
# Accumulators of a block of runs: before it in its group, of groups before, before its first run, its own, after it.
SCAN_STATES = 5
# Accumulators in a block's memory: of elements (every 65th slot is empty), runs (three times), blocks, these states.
SCAN_COUNTS = (BLOCK_LANES + SCAN_THREADS, *3 * (SCAN_THREADS,), GROUP_BLOCKS, SCAN_STATES)
ROW_THREADS = BLOCK_LANES // GPU_HELD  # of a block that has a long row
EACH_RUN = 16  # updates of a sorted scatter for each thread: an estimate
# Elements of a side of a tile that a block turns: prototypes took 187 us of an H100 for 8192 x 8192, 195 us by 32.
TILE = 64
WARP_PART = WARP * GPU_HELD  # elements of a row that a warp has at a time
HELD_BESIDE = 32  # registers of a thread beside those that hold elements: an estimate
Grid = tuple[str, str, int, int, int, int]  # the fields of an instruction Launch


class Form(Record):
    """How threads share a nest. ``wide``: four points may be one access; ``aligned``: the operands for which that
    holds.

    ``scans``: threads may share a row of a running combination; ``columns``: a column that is reduced. ``turned``:
    along this dimension neighbours of some operands lie side by side, and no result's; -1: there is none.
    """

    teams: bool
    scans: bool
    per_thread: int
    wide: bool
    aligned: tuple[int, ...]
    turned: int = -1
    columns: bool = False


class Launches(NamedTuple):
    """What a call of a nest launches: ``words`` behind the nest's own parameters, and working memory."""

    words: bytes
    grids: tuple[Grid, ...]
    wide: tuple[int, ...]
    scratch_bytes: int


def form(nest: ir.Nest) -> Form:
    """How threads share a nest, at any size."""
    if _teams(nest):
        return Form(True, False, 1, False, ())
    if any(isinstance(s, ir.Scan) for s in nest.statements()):
        return Form(False, _scans(nest), 1, False, ())
    alone = all(dim.role == "parallel" for dim in nest.dims)
    plain = (ir.Load, ir.Store, ir.Param, ir.Apply, ir.IndexOf, ir.Guard)
    straight = [s for s in nest.statements() if not (isinstance(s, ir.LoadAt) and s.inside is None)]
    wide = alone and nest.vector is not None and all(isinstance(s, plain) for s in straight)
    wide = wide and {s.offset for s in nest.statements() if isinstance(s, ir.LoadAt)} <= uniform.offsets(nest)
    wide = wide and all(operand.strides[-1] in (0, 1) for operand in nest.operands)
    wide = wide and all(elements.of(operand.dtype).parts == 1 for operand in nest.operands)
    found = ir.operands([s for s in nest.statements() if not isinstance(s, ir.LoadAt)])
    aligned = [k for k, operand in enumerate(nest.operands) if wide and operand.strides[-1] == 1 and k in found]
    turned = -1
    if alone and nest.vector is not None and all(isinstance(s, plain) for s in nest.statements()):
        dims = {nest.operands[k].strides.index(1) for k in across(nest)}
        turned = dims.pop() if len(dims) == 1 else -1
    columns = nest.split and any(phase.reductions for phase in nest.phases)
    columns = columns and sum([dim.role == "reduced" for dim in nest.dims]) == 1 and not nest.digits
    runs = bool(nest.dims) and nest.dims[0].runs  # a thread for each update, which does all of its target or none
    return Form(False, False, PER_THREAD if alone and not runs else 1, wide, tuple(aligned), turned, columns)


def across(nest: ir.Nest) -> list[int]:
    """Operands whose neighbours lie along another dimension than the last, where those of the results do."""
    if any(operand.role == "out" and operand.strides[-1] != 1 for operand in nest.operands):
        return []
    return [k for k, o in enumerate(nest.operands) if o.strides[-1] == ir.RUNTIME and 1 in o.strides[:-1]]


def tile_bytes(nest: ir.Nest, operand: int) -> int:
    """Bytes of a tile of an operand in a block's memory."""
    return rounded(TILE * (TILE + 1) * elements.of(nest.operands[operand].dtype).size)


def _scans(nest: ir.Nest) -> bool:
    """Whether the memory of a block holds the elements of a block of runs, and no run waits for another."""
    known = (ir.Load, ir.LoadAt, ir.Store, ir.Param, ir.Apply, ir.IndexOf, ir.Scan)
    plain = all(isinstance(s, known) for s in nest.statements()) and len(nest.phases) == 1
    follows: set[int] = set()  # a running combination
    for s in nest.statements():
        used = not follows.isdisjoint(ir.arguments(s))
        if used and isinstance(s, ir.Scan):
            return False
        follows.update(routine.outs(s) if used or isinstance(s, ir.Scan) else ())
    return plain and sum([dim.role == "reduced" for dim in nest.dims]) == 1 and scan_bytes(nest) <= GPU_SHARED


def rounded(nbytes: int) -> int:
    """To a multiple of the bytes of a slot."""
    return -(-nbytes // SLOT) * SLOT


def scan_bytes(nest: ir.Nest) -> int:
    """Bytes of a block's memory for the running combinations of a nest, and for the number that the block draws."""
    sizes = [elements.of(dtype).size for dtype in _scanned(nest)]
    return sum([rounded(count * size) for size in sizes for count in SCAN_COUNTS]) + SLOT


def scan_words(dtype: np.dtype) -> int:
    """Words that tell an accumulator, of 32 bits and a flag each."""
    return -(-elements.of(dtype).size // 4)


def _scanned(nest: ir.Nest) -> list[np.dtype]:
    """The accumulators of all running combinations."""
    return [dtype for s in nest.statements() if isinstance(s, ir.Scan) for dtype, _ in s.accumulators]


def _teams(nest: ir.Nest) -> bool:
    return any(reduction.tree == "row" for phase in nest.phases for reduction in phase.reductions)


def lowered(body: Body) -> Lowered | None:
    """The nest of a body on a GPU, and the arguments of its call; None if the host should run it."""
    low = nests.lowered(body, PER_THREAD, space=grid_space(body))
    low = low.replace(gpu=True, extents=tuple(map(whole, low.extents)))  # NumPy's integers would wrap in products
    return low if fits(low) else None


def fits(low: Lowered) -> bool:
    """Whether a GPU should run a nest of these sizes: its points are counted in 32 bits, and there are threads for it.

    What is done one by one, as running combinations along rows and updates in order are, needs many rows.
    """
    nest, extents = low.nest, low.extents
    points, steps = points_of(nest, extents), reduced_of(nest, extents)
    n_words = low.params.n_words + len(nest.operands) + 2 * len(nest.dims) + 8
    parts = -(-steps // (BLOCK_LANES if _teams(nest) or form(nest).scans else BLOCK_ROWS))
    if points * max(parts, 1) >= MOST_POINTS or n_words > GPU_WORDS:
        return False
    serial = ir.Update if form(nest).scans else (ir.Update, ir.Scan)
    one_by_one = any(isinstance(s, serial) for s in nest.statements()) and steps > 1
    return not one_by_one or points >= GPU_SERIAL_ROWS or steps <= GPU_SERIAL_STEPS


def launches(low: Lowered) -> Launches:
    """The launches of one call."""
    return (_of_teams if _teams(low.nest) else _of_points)(low)


def runs(program: routine.Routine) -> bool:
    """Whether a GPU should run a routine: a thread for each lane, or one thread where every value is a few numbers."""
    return program.lanes or all(kind.size <= GPU_FEW for kind in program.types)


def launches_of(program: routine.Routine, extents: Sequence[int]) -> tuple[Grid, ...]:
    """The launch of a routine."""
    count = extents[0] if program.lanes else 1
    threads = min(GPU_LANE_THREADS, max(count, 1))
    return (("loop", "", -(-count // threads), 1, threads, 0),)


def quotient(extent: int) -> tuple[int, int]:
    """(m, s) with n // extent == n * m >> s for 0 <= n < 2**31."""
    shift = 31 + max(extent - 1, 0).bit_length()
    return -(-(1 << shift) // max(extent, 1)), shift


def _parallel(nest: ir.Nest, extents: Sequence[int]) -> list[int]:
    return [extent for dim, extent in zip(nest.dims, extents, strict=True) if dim.role == "parallel"]


def points_of(nest: ir.Nest, extents: Sequence[int]) -> int:
    return math.prod(_parallel(nest, extents))


def reduced_of(nest: ir.Nest, extents: Sequence[int]) -> int:
    return math.prod([extent for dim, extent in zip(nest.dims, extents, strict=True) if dim.role == "reduced"])


def row_bytes(dtypes: Sequence[np.dtype], count: int) -> int:
    """Bytes of row buffers of so many elements each."""
    return sum([-(-count * elements.of(dtype).size // 64) * 64 for dtype in dtypes])


def _of_points(low: Lowered) -> Launches:
    nest, extents = low.nest, low.extents
    how, sides, points = form(nest), _parallel(nest, extents), points_of(nest, extents)
    tiles = math.prod(sides[:-1]) * -(-sides[-1] // PER_THREAD) if sides else 1
    words = [points, tiles]
    for extent in sides[1:]:
        words += quotient(extent)
    words += quotient(-(-sides[-1] // PER_THREAD) if sides else 1)
    wide = how.wide and _lies_aligned(low.operands, how.aligned)
    if how.scans:
        n_blocks = -(-reduced_of(nest, extents) // BLOCK_LANES)
        words += [*quotient(n_blocks), n_blocks]
        if reduced_of(nest, extents) > RUN and points < GPU_ROWS * WARP:
            return _of_scans(nest, words, points, n_blocks)
    if how.columns:
        n_blocks = -(-reduced_of(nest, extents) // BLOCK_ROWS)
        words += [n_blocks, *quotient(points)]
        if n_blocks > 1 and points < GPU_ROWS * WARP:
            parts = n_blocks * points
            grids = (
                ("column_parts", "", -(-parts // GPU_THREADS), 1, GPU_THREADS, 0),
                ("column_whole", "", -(-points // GPU_THREADS), 1, GPU_THREADS, 0),
            )
            return Launches(_packed(words), grids, (), parts * part_bytes(nest))
    if how.turned >= 0:
        tiles_of = [-(-side // TILE) if d in (how.turned, len(sides) - 1) else side for d, side in enumerate(sides)]
        words += [*quotient(tiles_of[how.turned]), *quotient(tiles_of[-1])]
        nbytes = sum([tile_bytes(nest, k) for k in across(nest)])
        if min(sides[how.turned], sides[-1]) >= TILE // 8 and nbytes <= GPU_SHARED:
            return Launches(_packed(words), (("tiles", "", math.prod(tiles_of), 1, GPU_THREADS, nbytes),), (), 0)
    count = -(-sides[0] // EACH_RUN) * math.prod(sides[1:]) if nest.dims and nest.dims[0].runs else points
    blocks = -(-count // (GPU_THREADS * how.per_thread))
    blocks = max(blocks, -(-tiles // GPU_THREADS)) if wide and points else blocks
    scratch = row_bytes(nest.rows, points * reduced_of(nest, extents))
    grid = ("points", "wide" if wide else "", blocks, 1, GPU_THREADS, 0)
    return Launches(_packed(words), (grid,), how.aligned if wide else (), scratch)


def _of_scans(nest: ir.Nest, words: Sequence[int], rows: int, n_blocks: int) -> Launches:
    parts, nbytes = rows * n_blocks, scan_bytes(nest)
    grids, scratch = [("scans", "", parts, 1, SCAN_THREADS, nbytes)], 0
    if n_blocks > 1:
        told = parts + rows * -(-n_blocks // GROUP_BLOCKS)
        count = 1 + told * sum([scan_words(dtype) for dtype in _scanned(nest)])
        grids = [("clear", "", -(-count // SCAN_THREADS), 1, SCAN_THREADS, 0), *grids]
        scratch = 8 * count
    return Launches(_packed(words), tuple(grids), (), scratch)


def _lies_aligned(operands: Sequence[Binding], aligned: Sequence[int]) -> bool:
    """Whether rows begin at aligned addresses if the first of them does."""
    return all(
        stride * operands[k].dtype.itemsize % ALIGNED == 0 for k in aligned for stride in operands[k].strides[:-1]
    )


def _of_teams(low: Lowered) -> Launches:
    nest, extents = low.nest, low.extents
    rows, count, long = points_of(nest, extents), reduced_of(nest, extents), _longest(nest, extents)
    n_blocks = -(-long // BLOCK_LANES)
    sides = _parallel(nest, extents)
    bytes_of_row, stage = row_bytes(nest.rows, count), block_bytes(nest, ROW_THREADS)
    words = [rows, n_blocks]
    for extent in sides[1:]:
        words += quotient(extent)
    words += quotient(n_blocks)
    warps = GPU_THREADS // WARP
    if nest.split and n_blocks > 1 and rows < GPU_ROWS and count == long:
        parts = rows * n_blocks
        words += [0, 0, 0]
        grids = (
            ("parts", "", -(-parts // warps), 1, GPU_THREADS, 0),
            ("whole", "", rows, 1, GPU_THREADS, run_offsets(nest)[-1]),
        )
        return Launches(_packed(words), grids, (), parts * part_bytes(nest))
    if 0 < long <= WARP // 2 and may_be_short(nest):
        shift = (long - 1).bit_length()
        words += [shift, 0, 0]
        blocks = -(-(rows << shift) // GPU_THREADS)
        return Launches(_packed(words), (("short", "", blocks, 1, GPU_THREADS, 0),), (), 0)
    threads = -(-long // WARP_PART) * WARP
    if long <= WARP_ROW or stage > GPU_SHARED:
        kept = bytes_of_row * warps <= GPU_SHARED
        words += [int(kept), bytes_of_row, 0]
        grids = (("warps", "", -(-rows // warps), 1, GPU_THREADS, bytes_of_row * warps if kept else 0),)
    elif threads <= held_threads(nest) and block_bytes(nest, threads) <= GPU_SHARED:
        kept = True
        words += [threads // WARP, 0, int(_row_aligned(low))]
        grids = (("held", "", rows, 1, threads, block_bytes(nest, threads)),)
    else:
        kept = bytes_of_row + stage <= GPU_SHARED
        words += [int(kept), bytes_of_row, int(_row_aligned(low))]
        grids = (("blocks", "", rows, 1, ROW_THREADS, stage + (bytes_of_row if kept else 0)),)
    return Launches(_packed(words), grids, (), 0 if kept else -(-rows // warps) * warps * bytes_of_row)


def may_be_short(nest: ir.Nest) -> bool:
    """Whether parts of a warp may share a row: one reduced dimension, and no updates."""
    plain = not any(isinstance(s, ir.Update) for s in nest.statements()) and not nest.digits
    return plain and sum([dim.role == "reduced" for dim in nest.dims]) == 1


def _longest(nest: ir.Nest, extents: Sequence[int]) -> int:
    """The extent of the last reduced dimension."""
    return [extent for dim, extent in zip(nest.dims, extents, strict=True) if dim.role == "reduced"][-1]


def accumulators(nest: ir.Nest) -> int:
    """The most accumulators that the reductions of a phase have."""
    return max([sum([len(r.accumulators) for r in phase.reductions]) for phase in nest.phases], default=0)


def runs_at_once(nest: ir.Nest) -> int:
    """Runs of parts of a row whose accumulators are in a block's memory at once: one for each thread of a warp."""
    size = sum([elements.of(dtype).size for r in nest.phases[0].reductions for dtype, _ in r.accumulators])
    runs = WARP
    while runs > 1 and runs * (GROUP_BLOCKS + 1) * size > GPU_SHARED:
        runs //= 2
    return runs


def run_offsets(nest: ir.Nest) -> list[int]:
    """Where those of each accumulator begin in a block's memory, and where the last ones end."""
    offsets, count = [0], runs_at_once(nest) * (GROUP_BLOCKS + 1)
    for dtype in [dtype for r in nest.phases[0].reductions for dtype, _ in r.accumulators]:
        offsets.append(offsets[-1] + rounded(count * elements.of(dtype).size))
    return offsets


def part_bytes(nest: ir.Nest) -> int:
    """Bytes of the accumulators of a part of a row."""
    return SLOT * accumulators(nest)


def row_lanes(nest: ir.Nest) -> int:
    """Elements that a thread of a block computes at once: four side by side if one access may read them, or one."""
    plain = (ir.Load, ir.Store, ir.RowLoad, ir.RowStore, ir.Param, ir.Apply, ir.IndexOf)
    inner = [s for phase in nest.phases for s in phase.body]
    if nest.digits or not all(isinstance(s, plain) for s in inner):
        return 1
    used = [nest.operands[k] for k in ir.operands(inner)]
    plain_strides = all(operand.strides[-1] in (0, 1) for operand in used)
    real = all(elements.of(dtype).parts == 1 for dtype in [*[operand.dtype for operand in used], *nest.rows])
    return PER_THREAD if plain_strides and real else 1


def row_vectors(nest: ir.Nest) -> list[int]:
    """The operands whose elements lie side by side along rows."""
    return [
        k for k in ir.operands([s for phase in nest.phases for s in phase.body]) if nest.operands[k].strides[-1] == 1
    ]


def _row_aligned(low: Lowered) -> bool:
    """Whether all rows of operands and of buffers begin at aligned addresses if the first ones do."""
    outer = sum([dim.role == "reduced" for dim in low.nest.dims]) > 1
    whole = not (outer and low.nest.rows) or low.extents[-1] % PER_THREAD == 0
    return row_lanes(low.nest) > 1 and whole and _lies_aligned(low.operands, row_vectors(low.nest))


def _held(nest: ir.Nest) -> int:
    """The registers that hold a thread's elements of a row, and those that a phase loads."""
    loads = [{s.operand for s in phase.body if isinstance(s, ir.Load)} for phase in nest.phases]
    kept = {k for some in loads for k in some if sum([k in other for other in loads]) > 1}
    most = max([sum([_registers(nest.operands[k].dtype) for k in kept | some]) for some in loads])
    return most + sum([_registers(dtype) for dtype in nest.rows])


def _registers(dtype: np.dtype) -> int:
    return GPU_HELD * max(elements.of(dtype).size // 4, 1)


def held_threads(nest: ir.Nest) -> int:
    """The most threads of a block that keeps a row in registers: a power of two; 0: none does."""
    if nest.long or sum([dim.role == "reduced" for dim in nest.dims]) > 1:
        return 0
    most = most_threads(nest, "held")
    return 1 << most.bit_length() - 1 if most >= GPU_THREADS else 0


def most_threads(nest: ir.Nest, entry: str) -> int:
    """The threads of a block of an entry for which its registers suffice."""
    if entry == "held":
        return min(GPU_REGISTERS // (_held(nest) + HELD_BESIDE) // 128 * 128, 1024)
    return ROW_THREADS if entry == "blocks" else GPU_THREADS


def result_bytes(nest: ir.Nest) -> int:
    """Bytes of a block's memory for what warps combine: each accumulator has a slot for each warp."""
    return RESULT * sum([len(r.accumulators) for phase in nest.phases for r in phase.reductions])


def block_bytes(nest: ir.Nest, threads: int) -> int:
    """Bytes of the memory of a block of so many threads: of results, and of elements whose order matters."""
    count = threads * GPU_HELD
    ordered = [[r for r in phase.reductions if not is_exact(r)] for phase in nest.phases]
    each = [sum([count * elements.of(d).size for r in some for d, _ in r.accumulators]) for some in ordered]
    return result_bytes(nest) + max(each)


def is_exact(reduction: ir.Reduce) -> bool:
    """Whether every order gives the same bits."""
    return reduction.kind.exact(reduction.accumulators[0][0])


def _packed(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}q", *words)
