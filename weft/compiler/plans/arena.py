"""Allocates the arena of a plan: each temporary gets the lowest offset that is free during its live range.

In: sizes in the order of first use, with the steps of first and last use. Out: offsets, and the bytes of the arena.
Gaps are kept sorted and merged, so that programs with thousands of live values cost no more per value.

    take(64, first=0, last=1) -> 0      take(64, first=1, last=3) -> 64      take(64, first=2, last=2) -> 0
"""

from __future__ import annotations

import bisect
import heapq


class Arena:
    """First fit over the lifetimes of buffers; ``nbytes`` is the most that was in use."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._top = 0  # everything above is free
        self._gaps: list[tuple[int, int]] = []  # (start, end) below the top, in order, never adjacent
        self._live: list[tuple[int, int, int]] = []  # (last use, start, end), a heap

    def take(self, size: int, first: int, last: int) -> int:
        """The offset of ``size`` bytes for the steps first..last; calls come in order of ``first``."""
        while self._live and self._live[0][0] < first:
            _, start, end = heapq.heappop(self._live)
            self._free(start, end)
        offset = self._fit(size)
        heapq.heappush(self._live, (last, offset, offset + size))
        return offset

    def _fit(self, size: int) -> int:
        for index, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                self._gaps[index : index + 1] = [(start + size, end)] if end - start > size else []
                return start
        start = self._top
        self._top += size
        self.nbytes = max(self.nbytes, self._top)
        return start

    def _free(self, start: int, end: int) -> None:
        index = bisect.bisect(self._gaps, (start, end))
        if index < len(self._gaps) and self._gaps[index][0] == end:
            end = self._gaps.pop(index)[1]
        if index and self._gaps[index - 1][1] == start:
            index -= 1
            start = self._gaps.pop(index)[0]
        if end == self._top:
            self._top = start
        else:
            self._gaps.insert(index, (start, end))
