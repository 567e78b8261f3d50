"""Transposes square blocks of words in registers: rows as vectors in, columns as vectors out.

Shuffles move the largest words possible, up to 8 bytes, because LLVM compiles them faster than shuffles of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target_model import QUARTER
from weft.codegen.lanes import Lanes

WIDEST = 8  # bytes of the largest word that vectors are made of


def row_type(side: int, size: int) -> str:
    """LLVM's type of a row or column of ``side`` words of ``size`` bytes."""
    unit = min(size, WIDEST)
    return f"<{side * size // unit} x i{8 * unit}>"


def columns(lanes: Lanes, rows: Sequence[str], size: int) -> tuple[str, list[str]]:
    """(LLVM type, texts) of the columns of a block of words of ``size`` bytes with as many rows."""
    block = _Block(lanes, len(rows), size)
    if size == 4 and len(rows) in (8, 16):
        return block.quarters(rows)
    return block.interleaved(rows)


class _Block:
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

    def quarters(self, rows: Sequence[str]) -> tuple[str, list[str]]:
        """Transpose words of 4 bytes: first blocks of 4 x 4 inside quarters of a row, then the quarters."""
        side = self.side
        quarters = range(side // 4)
        low = [word for q in quarters for word in (4 * q, side + 4 * q, 4 * q + 1, side + 4 * q + 1)]
        picks = low, [word + 2 for word in low]
        pairs = [self._pick(rows[k], rows[k + 1], pick, 4) for k in range(0, side, 2) for pick in picks]
        pairs = self._cast(pairs, 8)
        half, u = side // 2, []  # u[4 k + j]: in quarter q rows 4 k.. of column 4 q + j
        for k in range(0, side, 4):
            for h in (0, 1):
                for part in (0, 1):
                    chunks = [word for q in quarters for word in (2 * q + part, half + 2 * q + part)]
                    u.append(self._pick(pairs[k + h], pairs[k + 2 + h], chunks, 8))
        return self._type(), [self._quarter(u, column) for column in range(side)] if side == 8 else self._sixteen(u)

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
