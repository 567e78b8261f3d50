"""Sorts on a GPU: one record for the kernels of a sort, and its launches.

    ranks     rows of at most 256    a thread for an element, which counts the elements before its own
    row_sort  rows of at most 4096   a block for a row: positions are sorted in its memory, 8 bits of a key at a time
    else      tiles of 4096          for every 8 bits three launches: tiles count, sums over tiles, tiles move

All are stable, so that the order is that of ``operations.sort`` in every bit. Records hold no sizes.
"""

from __future__ import annotations

import struct
from typing import Any

from weft._base.record import Record
from weft._base.target_model import GPU_SHARED, GPU_THREADS, WARP
from weft.loops.gpu import grid

TINY = GPU_THREADS  # elements of a row that is ranked by comparisons: an estimate
ITEMS = 16  # elements of a tile for each thread, in registers: an estimate
TILE = GPU_THREADS * ITEMS
DIGITS = 256  # values of 8 bits
WARPS = GPU_THREADS // WARP
COUNTERS = 64  # bytes of a block's memory before its counters: the sums of its warps
NEAR = COUNTERS + 4 * WARPS * DIGITS  # before the elements
LINE = 64  # arrays in working memory begin at multiples of so many bytes


class Sorting(Record, labels=("name",)):
    """The kernels of a sort.

    ``keys``: the order (u, i or f) of each, its bytes, the bytes to the next one, and the bits of infinity.
    ``values``: bytes of what is moved. ``direct``: long rows have one key, whose elements are moved themselves with one
    companion; the last pass writes the results. ``own``: the value that is the key, ``carried``: the companion, or -1;
    positions are the companion if they are stored.
    """

    keys: tuple[tuple[str, int, int, int], ...]
    values: tuple[int, ...]
    position_bytes: int
    largest: bool
    direct: bool
    own: int = -1
    carried: int = -1
    name: str = "sorting"

    def size(self) -> int:
        """As many statements as its instructions are like."""
        return 64

    @property
    def operands(self) -> tuple[str, ...]:
        """Keys, where each value comes from and goes to, and where positions go."""
        moved = [name for k in range(len(self.values)) for name in (f"from{k}", f"to{k}")]
        return (*[f"key{k}" for k in range(len(self.keys))], *moved, *["positions"][: bool(self.position_bytes)])

    @property
    def word_bytes(self) -> int:
        """The bytes of an element in working memory: a key itself, or a word that is ordered as the keys are."""
        most = max([nbytes for _, nbytes, _, _ in self.keys])
        return most if self.direct else max(most, 4)

    @property
    def carried_bytes(self) -> int:
        """The bytes of what travels with an element of a key."""
        if self.carried >= 0:
            return self.values[self.carried]
        return 0 if self.direct and not self.position_bytes else 4


def sorting(sort: Any) -> Sorting | None:
    """The kernels of an instruction Sort; None if the host has to do it."""
    keys = tuple([(order, nbytes, distance, infinity) for _, order, nbytes, distance, infinity in sort.keys])
    most_bytes = (sort.n if sort.n <= TINY else 1) * 8 * len(keys)
    if max(sort.rows * -(-sort.n // TILE) * DIGITS, sort.n) >= grid.MOST_POINTS or most_bytes > GPU_SHARED:
        return None
    moved = [(source, nbytes) for source, _, nbytes in sort.values]
    own = [k for k, value in enumerate(moved) if value == (sort.keys[0][0], keys[0][1])]
    others = [k for k in range(len(moved)) if k not in own]
    plain = len(keys) == 1 and not sort.largest and sort.kept == sort.n and sort.inner == 1
    few = len(own) <= 1 and len(others) + bool(sort.position_bytes) <= 1 and sort.position_bytes in (0, 4)
    direct = plain and few and all(moved[k][1] in (4, 8) for k in others)
    found = Sorting(keys, tuple([nbytes for _, nbytes in moved]), sort.position_bytes, sort.largest, direct)
    return found.replace(own=(*own, -1)[0], carried=(*others, -1)[0]) if direct else found


def locations(sort: Any) -> tuple[Any, ...]:
    """The locations of a kernel's operands."""
    moved = [location for source, to, _ in sort.values for location in (source, to)]
    return (*[key[0] for key in sort.keys], *moved, *([sort.positions] if sort.position_bytes else []))


def passes(kernel: Sorting, key: int) -> int:
    """How often the elements are moved by a key: an even number, after which they are where they were."""
    return max(2, kernel.keys[key][1])


def _passes_of(kernel: Sorting, key: int, bits: int) -> int:
    """The same, but fewer of long rows that are sorted directly where keys have few bits."""
    return max(2, -(-bits // 8)) if kernel.direct and bits else passes(kernel, key)


def entries(kernel: Sorting) -> tuple[str, ...]:
    """The functions of a sort."""
    first = ("begin",) if kernel.direct else tuple([f"words{k}" for k in range(len(kernel.keys))])
    return ("ranks", "row_sort", *first, "count", "offsets", "move", *([] if kernel.direct else ["values"]))


N_WORDS = 21


def launches(kernel: Sorting, sort: Any) -> tuple[bytes, tuple[grid.Grid, ...], int]:
    """The words behind a kernel's operands, its launches, and the bytes of working memory."""
    rows, n, kept = sort.rows, sort.n, sort.kept
    together = max(1, TINY // n)  # rows of a block
    tiles, kept_tiles = -(-n // TILE), -(-kept // TILE)
    words = [rows, n, sort.inner, kept, *grid.quotient(sort.inner), tiles, *grid.quotient(tiles)]
    words += [kept_tiles, *grid.quotient(kept_tiles), together, *grid.quotient(n if sort.inner == 1 else together)]
    sizes = [LINE, 4 * rows * DIGITS * tiles, 4 * rows * DIGITS]
    sizes += [rows * n * kernel.word_bytes] * 2 + [rows * n * kernel.carried_bytes] * 2
    at = [0]
    for size in sizes:
        at.append(at[-1] + -(-size // LINE) * LINE)
    words += [at[2], at[3], at[4] - at[3], at[5], at[6] - at[5], _passes_of(kernel, 0, sort.bits)]
    grids, scratch = _grids(kernel, rows, n, -(-rows // together), tiles, kept_tiles, sort.bits), 0
    if not kept:
        grids = []
    elif n > TILE:
        scratch = at[-1]
    return struct.pack(f"<{N_WORDS}q", *words), tuple(grids), scratch


def _grids(kernel: Sorting, rows: int, n: int, blocks: int, tiles: int, kept_tiles: int, bits: int) -> list[grid.Grid]:
    def of(name: str, count: int, nbytes: int) -> grid.Grid:
        return name, "", count, 1, GPU_THREADS, nbytes

    if n <= TINY:
        return [of("ranks", blocks, GPU_THREADS * sum([max(nbytes, 4) for _, nbytes, _, _ in kernel.keys]))]
    if n <= TILE:
        most = max([max(nbytes, 4) for _, nbytes, _, _ in kernel.keys])
        return [of("row_sort", rows, NEAR + (-(-n // 8) * 8) * (most + 6))]
    staged = TILE * (kernel.word_bytes + kernel.carried_bytes) + 4 * DIGITS
    made = [of("begin", 1, 0)] if kernel.direct else []
    for key in reversed(range(len(kernel.keys))):
        made += [] if kernel.direct else [of(f"words{key}", rows * tiles, 0)]
        once = [("count", rows * tiles, COUNTERS + 4 * DIGITS), ("offsets", rows * DIGITS, COUNTERS)]
        made += [of(*one) for one in (*once, ("move", rows * tiles, NEAR + staged))] * _passes_of(kernel, key, bits)
    return made if kernel.direct else [*made, of("values", rows * kept_tiles, 0)]
