"""Every kernel of the table gives the same bits compiled and interpreted, what NumPy gives, and what JAX gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.pallas import kernels_blocks, kernels_inside, table

assert kernels_blocks and kernels_inside  # they fill the table
MODULES = table.of_weft()
by_name = pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.name)


def wide(array: Any) -> np.ndarray:
    """bfloat16 as float32, which NumPy compares."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def test_the_table_is_large() -> None:
    assert len(table.CASES) >= 60
    assert len({case.name for case in table.CASES}) == len(table.CASES)


@by_name
def test_compiled_and_interpreted(case: table.Case) -> None:
    compiled, interpreted = [table.run(MODULES, case, interpret) for interpret in (False, True)]
    expected = [wide(x) for x in weft.tree.leaves(case.expect(*case.args))]
    assert len(compiled) == len(interpreted) == len(expected)
    for one, other, wanted in zip(compiled, interpreted, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(wide(one), wide(other))
        assert one.shape == wanted.shape
        np.testing.assert_allclose(wide(one), wanted, rtol=case.close, atol=case.close)


@pytest.mark.oracle
@by_name
def test_beside_jax(case: table.Case) -> None:
    if not case.in_jax:
        pytest.skip("JAX's interpreter has no such kernel")
    ours = table.run(MODULES, case, False)
    theirs = table.run(table.of_jax(), case, True)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(wide(one), wide(other), rtol=max(case.close, 1e-6), atol=case.close)
