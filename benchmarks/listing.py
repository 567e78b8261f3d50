"""What benchmarks of many points have in common: they say which one is timed now, and list the lowest ratios."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

Point = TypeVar("Point")
Row = tuple[float, str]  # a peer's time over weft's, and the line that tells of it


def watched(points: Sequence[tuple[str, Point]]) -> Iterator[tuple[str, Point]]:
    """The named points, each said on a terminal while it is timed."""
    shown = sys.stderr.isatty()
    for i, (name, point) in enumerate(points):
        if shown:
            print(f"\r\x1b[K{i + 1} of {len(points)}: {name}", end="", file=sys.stderr, flush=True)
        yield name, point
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)


def print_lowest(rows: list[Row], low: int, least: int) -> None:
    """The ``low`` rows that are below what is asked, and others until there are ``least``."""
    for _, row in sorted(rows)[: max(low, least)]:
        print(row)
