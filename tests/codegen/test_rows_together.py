"""Several rows are reduced at a time: each has the bits of the tree, whatever its length and its neighbours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.codegen.trees import lanes_tree
from tests.compiler import ladder

LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 63, 64, 65, 100, 1024, 1025, 8192, 8193)
COMBINATIONS = {"sum": (np.add, 0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}


def matrix(rows: int, columns: int, dtype: Any) -> np.ndarray:
    x = np.random.default_rng(columns).standard_normal((rows, columns)) * 9
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_rows_are_reduced_in_the_tree(name: str, dtype: Any) -> None:
    combine, identity = COMBINATIONS[name]
    with weft.enable_x64():
        for columns in LENGTHS:
            x = matrix(300 if columns <= 64 else 21, columns, dtype)
            found = weft.jit(lambda x: getattr(x, name)(1))(x)
            np.testing.assert_array_equal(np.asarray(found), lanes_tree(x, combine, dtype(identity)), str(columns))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.float16, ml_dtypes.bfloat16, np.complex64, np.uint16])
def test_other_dtypes_and_several_results_agree_with_the_loops(dtype: Any) -> None:
    def function(x: Any, scale: Any, bias: Any) -> Any:
        total = (x * scale).sum(-1)
        if dtype == np.complex64:  # signs of zeros depend on how often identities are multiplied
            return total * 2 + bias, jnp.any(x.real > 3, -1)
        return total * 2 + bias, jnp.any(x > 3, -1), x.prod(-1)

    for columns in (8, 13, 16, 21, 32, 40, 200):
        x, scale = matrix(290, columns, dtype), matrix(1, columns, dtype)[0]
        closed = weft.make_jaxpr(function)(x, scale, matrix(1, 290, dtype)[0])
        program, given = ladder.compiled(closed), [x, scale, matrix(1, 290, dtype)[0]]
        expected = [out.tobytes() for out in ladder.by_loops(program, given)]
        assert [out.tobytes() for out in ladder.by_machine_code(program, given)] == expected, columns


def test_what_is_not_a_number_stays_in_its_row() -> None:
    for columns in (8, 16, 31, 64):
        x = matrix(400, columns, np.float32)
        x[::7, columns // 2], x[3, 0], x[5, -1] = np.nan, np.inf, -np.inf
        for function in (jnp.sum, jnp.max, jnp.mean, jnp.any):
            found = np.asarray(weft.jit(lambda x, function=function: function(x, axis=1))(x))
            numpys = getattr(np, function.__name__)(x.astype(np.float64), axis=1)
            np.testing.assert_allclose(found, numpys, 1e-4, 1e-4)


def test_rows_lie_apart() -> None:
    """Rows of a larger array, rows backwards, and results in every other element of an array."""
    x = matrix(700, 48, np.float32)

    def function(x: Any) -> Any:
        return x[::2, :16].sum(1), x[::-1, 16:].max(1), jnp.zeros((350, 2)).at[:, 1].set(x[1::2].sum(1))

    closed = weft.make_jaxpr(function)(x)
    program = ladder.compiled(closed)
    expected = [out.tobytes() for out in ladder.by_loops(program, [x])]
    assert [out.tobytes() for out in ladder.by_machine_code(program, [x])] == expected
    np.testing.assert_array_equal(np.asarray(weft.jit(function)(x)[1]), x[::-1, 16:].max(1))


def test_an_operand_is_read_before_and_after_the_reduction() -> None:
    x, b, c = matrix(300, 40, np.float32), matrix(1, 300, np.float32)[0], matrix(300, 5, np.float32)

    def function(x: Any, b: Any, c: Any) -> Any:
        total = (x * b[:, None]).sum(1)
        return total * b, total[::-1] + b, (x * c[:, 2:3]).sum(1) * c[:, 2], (x + c[:, 1:2]).max(1) - c[:, 1] * c[:, 2]

    for columns in (8, 16, 40):
        given = [x[:, :columns].copy(), b, c]
        program = ladder.compiled(weft.make_jaxpr(function)(*given))
        expected = [out.tobytes() for out in ladder.by_loops(program, given)]
        assert [out.tobytes() for out in ladder.by_machine_code(program, given)] == expected, columns
        total = (given[0].astype(np.float64) * b[:, None]).sum(1)
        np.testing.assert_allclose(np.asarray(weft.jit(function)(*given)[0]), total * b, 1e-4, 1e-3)


def test_what_a_row_knows_of_its_index_is_not_shared() -> None:
    ends = np.sort(np.random.default_rng(0).integers(0, 300, 40)).astype(np.int32)

    def function(ends: Any) -> Any:
        rows = jnp.arange(300, dtype=jnp.int32)[:, None]
        return (rows >= ends).sum(1), (rows * 2 - ends).max(1), (jnp.where(rows > 7, ends, -ends)).sum(1)

    for count in (5, 8, 16, 40):
        rows, some = np.arange(300)[:, None], ends[:count]
        found = [np.asarray(x) for x in weft.jit(function)(some)]
        np.testing.assert_array_equal(found[0], (rows >= some).sum(1))
        np.testing.assert_array_equal(found[1], (rows * 2 - some).max(1))
        np.testing.assert_array_equal(found[2], np.where(rows > 7, some, -some).sum(1))
