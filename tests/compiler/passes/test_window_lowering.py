"""Reductions of windows: the operations they become; the values are in ``tests/operations/test_windows.py``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tests.compiler import ladder
from weft import lax

X = np.arange(20, dtype=np.float32)
SUM = functools.partial(lax.reduce_window, init_value=np.float32(0), computation=lax.add)


def operations(function: Any, *args: Any) -> list[str]:
    return ladder.after("window_lowering", function, *args)


def test_windows_are_slices_that_are_combined() -> None:
    made = operations(lambda x: SUM(x, window_dimensions=(3,), window_strides=(2,), padding="VALID"), X)
    assert made.count("add") >= 2 and "slice" in made and "reduce_window_sum" not in made


def test_a_padding_by_the_identity_is_the_windows_own() -> None:
    padded = lambda x: SUM(
        lax.pad(x, np.float32(0), [(2, 1, 0)]), window_dimensions=(3,), window_strides=(1,), padding="VALID"
    )
    own = lambda x: SUM(x, window_dimensions=(3,), window_strides=(1,), padding=[(2, 1)])
    assert operations(padded, X) == operations(own, X)
    other = lambda x: SUM(
        lax.pad(x, np.float32(1), [(2, 1, 0)]), window_dimensions=(3,), window_strides=(1,), padding="VALID"
    )
    assert "pad" in operations(other, X)


def test_what_reads_regions_alone_is_computed_in_them() -> None:
    own = lambda x: SUM(x, window_dimensions=(3,), window_strides=(1,), padding="SAME") / 9
    made = operations(own, X)
    assert made.index("div") < len(made) - 1  # the last puts the regions together
