"""What keeps compilation linear in the size of programs, as counts: the arena, and the levels of kernels."""

from __future__ import annotations

import random
from typing import Any

import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.fusion import groups
from weft.compiler.plans.arena import Arena
from weft.loops.routines import register_promotion


def _first_fit(items: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The lowest free offset for each (size, first, last), found by looking at everything alive."""
    alive: list[tuple[int, int, int]] = []
    offsets, most = [], 0
    for size, first, last in items:
        alive = [entry for entry in alive if entry[2] >= first]
        offset = 0
        for start, end, _ in sorted(alive):
            if offset + size <= start:
                break
            offset = max(offset, end)
        alive.append((offset, offset + size, last))
        offsets.append(offset)
        most = max(most, offset + size)
    return offsets, most


def test_the_arena_is_first_fit() -> None:
    rng = random.Random(0)
    for _ in range(500):
        items, first = [], 0
        for _ in range(rng.randint(1, 40)):
            first += rng.randint(0, 2)
            items.append((64 * rng.randint(1, 5), first, first + rng.randint(0, 8)))
        arena = Arena()
        assert ([arena.take(*item) for item in items], arena.nbytes) == _first_fit(items)


def _group(*reads: groups.Group) -> groups.Group:
    """A group that the given groups read."""
    made = groups.Group(0)
    for reader in reads:
        reader.run_after((made,))
    return made


def test_levels_follow_who_reads_whom() -> None:
    last = groups.Group(0)
    middle = _group(last)
    aside = groups.Group(0)
    first = _group(middle, aside)
    assert [g.level for g in (last, middle, first, aside)] == [0, 1, 2, 0]
    assert groups.depends(last, first)
    assert groups.depends(aside, first)
    assert not groups.depends(first, last)
    assert not groups.depends(aside, middle)
    aside.run_after((last,))  # a later edge lifts everything below
    assert [g.level for g in (aside, last, middle, first)] == [0, 1, 2, 3]
    assert groups.depends(aside, middle)


def test_kernels_far_apart_are_not_searched_for_dependence(monkeypatch) -> None:
    """One bias read in every layer makes siblings of all layers; asking whether two depend costs no walk between."""
    visited = 0
    leader = groups.Group.leader

    def counted(group):
        nonlocal visited
        visited += 1
        return leader(group)

    monkeypatch.setattr(groups.Group, "leader", counted)
    counts = []
    for layers in (40, 160):

        def run(x, w, b, layers=layers):
            for _ in range(layers):
                x = wnp.tanh(x @ w + b)
                x = x - x.mean(-1, keepdims=True)
            return x

        visited = 0
        weft.jit(run)(wnp.ones((4, 8)), wnp.ones((8, 8)), wnp.ones(8))
        counts.append(visited)
    assert counts[1] < 6 * counts[0]


def test_loops_within_loops_are_written_once_for_each_loop_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for every way to reach them, which doubles with the depth."""
    lowered = []
    lower_loop = register_promotion.lower_loop
    monkeypatch.setattr(register_promotion, "lower_loop", lambda *args: lowered.append(1) or lower_loop(*args))

    def nested(depth: int, x: Any) -> Any:
        return x + 1 if not depth else lax.fori_loop(0, 2, lambda _, c: nested(depth - 1, c), x)

    assert float(weft.jit(lambda x: nested(10, x))(0.0)) == 1024
    assert len(lowered) <= 4 * 10
