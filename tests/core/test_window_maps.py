"""Maps of windows: every output's taps, as runs say them, against the definition."""

from __future__ import annotations

import random

from weft.core.window_maps import Along, WindowMap


def taps_of(along: Along, extent: int, output: int) -> list[tuple[int, int]]:
    """(tap, element) by the definition."""
    positions = [(w, output * along.stride - along.low + w * along.dilation) for w in range(along.window)]
    found = [(w, position // along.spacing) for w, position in positions if position % along.spacing == 0]
    return [(w, index) for w, index in found if 0 <= index < extent]


def cases(count: int) -> list[tuple[Along, int]]:
    draw = random.Random(0).randint
    return [
        (Along(draw(1, 5), draw(1, 4), draw(-3, 4), draw(-3, 4), draw(1, 4), draw(1, 3)), draw(0, 7))
        for _ in range(count)
    ]


def test_runs_hold_every_output_once_with_its_taps() -> None:
    for along, extent in cases(1500):
        seen = []
        for run in along.runs(extent):
            for j in range(run.extent):
                seen.append(run.start + run.step * j)
                read = [(tap.number, tap.start + tap.step * j) for tap in run.taps]
                assert read == taps_of(along, extent, seen[-1]), (along, extent)
        assert sorted(seen) == list(range(along.outputs(extent))), (along, extent)


def test_transposed_windows_see_the_same_pairs() -> None:
    for along, extent in cases(600):
        outputs = along.outputs(extent)
        if not outputs or not extent:
            continue
        back = along.transposed(extent)
        assert back.outputs(outputs) == extent
        pairs = {(o, i, w) for o in range(outputs) for w, i in taps_of(along, extent, o)}
        others = {(o, i, along.window - 1 - w) for i in range(extent) for w, o in taps_of(back, outputs, i)}
        assert pairs == others, (along, extent)


def test_a_map_of_several_dimensions() -> None:
    windows = WindowMap.of((1, 3, 2), (1, 2, 1), ((0, 0), (0, 1), (0, 0)))
    assert windows.taps == 6 and windows.shape((4, 8, 5)) == (4, 4, 4)
    assert windows.along[0].is_trivial and not windows.along[1].is_trivial
    last = [
        run.taps[-1] for run in (windows.along[0].runs(4)[0], windows.along[1].runs(8)[0], windows.along[2].runs(5)[0])
    ]
    assert windows.number(last) == 5
