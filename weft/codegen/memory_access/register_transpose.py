"""Transposes square blocks of words in registers: rows as vectors in, columns as vectors out.

Shuffles move the largest words possible, up to 8 bytes, because LLVM compiles them faster than shuffles of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target_model import QUARTER
from weft.codegen.arithmetic.lanes import Lanes

WIDEST = 8  # bytes of the largest word that vectors are made of


def row_type(side: int, size: int) -> str:
    """LLVM's type of a row or column of ``side`` words of ``size`` bytes."""
    unit = min(size, WIDEST)
    return f"<{side * size // unit} x i{8 * unit}>"


def columns(lanes: Lanes, rows: Sequence[str], size: int) -> tuple[str, list[str]]:
    """(LLVM type, texts) of the columns of a block of words of ``size`` bytes with as many rows."""
    block = _Shuffles(lanes, len(rows), size)
    if size == 4 and len(rows) in (8, 16):
        return block.of_quarters(quarters(Lanes(lanes.writer, len(rows)), rows))
    return block.interleaved(rows)


def quarters(lanes: Lanes, rows: Sequence[str], count: int = 4) -> list[str]:
    """For each four rows, of W words of 4 bytes: the first ``count`` columns of every quarter, as words of 8 bytes."""
    side, half = lanes.width, lanes.width // 2
    low = [word for k in range(0, side, 4) for word in (k, side + k, k + 1, side + k + 1)]
    halves = [low, [word + 2 for word in low]][: (count + 1) // 2]
    pairs = [lanes.shuffle(rows[k], rows[k + 1], "i32", some, side) for k in range(0, len(rows), 2) for some in halves]
    pairs = [lanes.writer.op(f"bitcast {lanes.type('i32')} {pair} to <{half} x i64>") for pair in pairs]
    picks = [[word for k in range(0, half, 2) for word in (k + part, half + k + part)] for part in (0, 1)]
    number, found = len(halves), []
    for k in range(0, len(pairs), 2 * number):
        for column in range(count):
            left = k + column // 2
            found.append(lanes.shuffle(pairs[left], pairs[left + number], "i64", picks[column % 2], half))
    return found


class _Shuffles:
    """Shuffles of the rows of one block; texts are vectors of words of ``unit`` bytes."""

    def __init__(self, lanes: Lanes, side: int, size: int) -> None:
        self.lanes, self.side, self.size = lanes, side, size
        self.row_bytes = side * size
        self.unit = min(size, WIDEST)

    def _type(self) -> str:
        return f"<{self.row_bytes // self.unit} x i{8 * self.unit}>"

    def _cast(self, rows: Sequence[str], unit: int) -> list[str]:
        """The same bits as vectors of larger words."""
        if unit == self.unit:
            return list(rows)
        before, self.unit = self._type(), unit
        return [self.lanes.writer.op(f"bitcast {before} {row} to {self._type()}") for row in rows]

    def _pick(self, a: str, b: str, words: Sequence[int], size: int) -> str:
        """A vector of numbered words of ``size`` bytes (b's are numbered after a's)."""
        units = size // self.unit
        picks = [word * units + unit for word in words for unit in range(units)]
        return self.lanes.shuffle(a, b, f"i{8 * self.unit}", picks, self.row_bytes // self.unit)

    def interleaved(self, rows: Sequence[str]) -> tuple[str, list[str]]:
        """Interleave neighbouring rows: by words, then by pairs of words in each half of a row, and so on."""
        parts, size = list(rows), self.size  # the rows of a group one after the other, each with its columns
        per_group = 1
        while size < self.row_bytes:
            parts = self._cast(parts, min(size, WIDEST))
            count = self.row_bytes // size
            halves = [[w for k in range(at, at + count // 2) for w in (k, count + k)] for at in (0, count // 2)]
            parts = [
                self._pick(parts[group + c], parts[group + per_group + c], half, size)
                for group in range(0, len(parts), 2 * per_group)
                for c in range(per_group)
                for half in halves
            ]
            size, per_group = 2 * size, 2 * per_group
        return self._type(), parts

    def of_quarters(self, u: Sequence[str]) -> tuple[str, list[str]]:
        """The columns; u[4 k + j] has in quarter q the rows 4 k.. of column 4 q + j."""
        self.unit = WIDEST
        return self._type(), [self._quarter(u, column) for column in range(8)] if self.side == 8 else self._sixteen(u)

    def _quarter(self, u: Sequence[str], column: int) -> str:
        q, j = divmod(column, 4)
        return self._pick(u[j], u[4 + j], [q, 2 + q], QUARTER)

    def _sixteen(self, u: Sequence[str]) -> list[str]:
        """Quarter q of u[4 k + j] becomes quarter k of result 4 q + j."""
        out = [""] * self.side
        for j in range(4):
            for odd in (0, 1):
                picks = range(odd, 8, 2)
                first, second = (self._pick(u[k + j], u[k + 4 + j], picks, QUARTER) for k in (0, 8))
                out[4 * odd + j] = self._pick(first, second, [0, 2, 4, 6], QUARTER)
                out[8 + 4 * odd + j] = self._pick(first, second, [1, 3, 5, 7], QUARTER)
        return out
