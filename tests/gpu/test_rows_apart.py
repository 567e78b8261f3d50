"""Rows of benchmarks in a process of their own: one that fails, hangs or ends it is a line, and the next one runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rows_apart import Child, RowError

CHILD = """
import os, sys, time
sys.path.append({folder!r})
from rows_apart import serve

def run(row):
    if row == "raises": raise ValueError("two\\nlines")
    if row == "hangs": time.sleep(100)
    if row == "ends": sys.stderr.write("its last words\\n"); sys.stderr.flush(); os._exit(3)
    print("what a library prints")
    return [1.5, os.getpid()]

serve(run, lambda: os.environ.get("STOPS") == "1")
"""


def child(**variables: str) -> Child:
    folder = str(Path(__file__).parents[2] / "benchmarks")
    return Child(["-c", CHILD.format(folder=folder)], variables)


def test_rows_that_fail_hang_or_end_their_process() -> None:
    rows = child()
    number, first = rows.ask("fine", 20)
    assert number == 1.5
    with pytest.raises(RowError, match=r"^ValueError: two lines$"):
        rows.ask("raises", 20)
    assert rows.ask("fine", 20)[1] == first  # the process goes on
    with pytest.raises(RowError, match=r"its process ended: its last words \(3\)"):
        rows.ask("ends", 20)
    second = rows.ask("fine", 20)[1]
    with pytest.raises(RowError, match=r"took more than 0 s"):
        rows.ask("hangs", 0.2)
    assert len({first, second, rows.ask("fine", 20)[1]}) == 3
    rows.end()
    rows = child(STOPS="1")
    first = rows.ask("fine", 20)[1]
    with pytest.raises(RowError, match="ValueError"):
        rows.ask("raises", 20)
    assert rows.ask("fine", 20)[1] != first
    rows.end()


def test_a_process_that_does_not_start() -> None:
    rows = Child(["-c", "raise SystemExit('there is no GPU')"], {})
    for _ in range(2):
        with pytest.raises(RowError, match=r"its process ended: there is no GPU \(1\)"):
            rows.ask("fine", 20)
