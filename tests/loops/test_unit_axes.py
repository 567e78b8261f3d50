"""Last axes of one element are left out where there are many points, at every size of a family, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

PROGRAMS: dict[str, Callable[..., Any]] = {
    "of rows and columns": lambda x, y: x * y[:, None] + 1,
    "sum": lambda x, y: x.sum(1),
    "softmax": lambda x, y: weft.nn.softmax(x, axis=1) - y[:, None],
    "pairs": lambda x, y: x.reshape(x.shape[0], x.shape[1] // 2, 2, *x.shape[2:]).mean(2),
    "with positions": lambda x, y: x + jnp.arange(x.shape[-1]) + jnp.argmax(x, 1)[:, None],
}


@pytest.mark.parametrize("extents", [(1,), (1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_copies_side_by_side(name: str, extents: tuple[int, ...]) -> None:
    """Sizes from few to many points, and beside them the same array with a last axis of three equal elements."""
    function = weft.jit(PROGRAMS[name])
    random = np.random.default_rng(0)
    for rows, columns in ((0, 4), (3, 4), (40, 6), (300, 10), (2000, 2)):
        x = random.standard_normal((rows, columns, *extents)).astype(np.float32)
        y = random.standard_normal((rows, *extents)).astype(np.float32)
        found = np.asarray(function(x, y))
        wide = np.asarray(function(np.repeat(x, 3, -1), np.repeat(y, 3, -1)))[..., :1]
        np.testing.assert_array_equal(found, wide)


def test_lanes_lie_along_the_axis_before() -> None:
    def loops(x: Any) -> str:
        return weft.jit(lambda x: x.reshape(-1, 2, 32, x.shape[2]).mean(2)).lower(x).compile().as_text("loops") or ""

    assert "out1 f32 [1, 0]" in loops(jnp.zeros((300, 64, 1)))
    assert "out1 f32 [*, 1, 0]" in loops(jnp.zeros((300, 64, 2))) and "out1 f32 [*, 1, 0]" in loops(
        jnp.zeros((2, 64, 1))
    )
