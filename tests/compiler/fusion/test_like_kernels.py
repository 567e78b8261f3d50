"""Programs of many kernels that are alike: each reads its own buffers and literals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import config


def program(leaves: dict[str, Any]) -> dict[str, Any]:
    return {name: leaf * (2 + number) + 0.5 for number, (name, leaf) in enumerate(leaves.items())}


def leaves(*shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {f"k{n}": np.arange(np.prod(s), dtype=np.float32).reshape(s) + n for n, s in enumerate(shapes)}


def run(jitted: Any, given: dict[str, np.ndarray]) -> None:
    got = jitted(given)
    for name, want in program(given).items():
        np.testing.assert_array_equal(np.asarray(got[name]), want)


@pytest.mark.parametrize("check", [False, True])
def test_equal_kernels_have_their_own_literals(check: bool) -> None:
    weft.clear_caches()
    jitted = weft.jit(program)
    with config.context("check", check):
        run(jitted, leaves((3,), (3,), (3,), (3,)))
        run(jitted, leaves((7,), (7,), (7,), (7,)))
    assert jitted.cache_info().kernels_built <= 1


@pytest.mark.parametrize("check", [False, True])
def test_kernels_of_other_sizes_and_ranks(check: bool) -> None:
    weft.clear_caches()
    jitted = weft.jit(program)
    with config.context("check", check):
        run(jitted, leaves((3,), (4,), (3,), (2, 3)))
        run(jitted, leaves((7,), (9,), (7,), (5, 7)))
        run(jitted, leaves((8,), (9,), (8,), (5, 6)))


def test_operands_that_are_one_array_are_not_like_two() -> None:
    weft.clear_caches()

    def products(x: Any, y: Any, z: Any) -> Any:
        return x * x + 1, y * z + 1, z * y + 1, y * y + 1

    jitted = weft.jit(products)
    for size in (3, 8):
        x, y, z = (np.arange(size, dtype=np.float32) + k for k in range(3))
        for got, want in zip(jitted(x, y, z), products(x, y, z), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)
