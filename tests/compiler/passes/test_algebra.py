"""Exact algebra: which operations stay. What divisions become is in ``test_divisors``."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.compiler import ladder
from weft import lax

X = np.array([1.5, -0.0, 0.0, np.inf, -np.inf, np.nan], np.float32)
F = np.float32

KEPT: list[tuple[Any, list[str]]] = [
    (lambda x: lax.sub(x, F(0)), []), (lambda x: lax.sub(x, F(-0.0)), ["sub"]), (lambda x: lax.add(x, F(0)), ["add"]),
    (lambda x: lax.add(x, F(-0.0)), ["add"]), (lambda x: lax.sub(F(0), x), ["sub"]), (lambda x: lax.mul(F(1), x), []),
    (lambda x: lax.pow(x, F(1)), []), (lambda x: lax.pow(x, F(2)), ["mul"]),
    (lambda x: lax.pow(x, np.int32(2)), ["mul"]),
    (lambda x: lax.pow(x, F(3)), ["pow"]), (lambda x: lax.pow(F(2), x), ["pow"]), (lambda x: lax.pow(F(1), x), ["pow"]),
    (lambda x: lax.pow(x, F(0.5)), ["add", "sqrt", "eq", "broadcast_in_dim", "select_n"]),
    (lambda x: lax.pow(F(2), lax.convert_element_type(lax.convert_element_type(x, np.int32), F)),
     ["convert_element_type"] * 2 + ["exp2"]),
    (lambda x: lax.integer_pow(x, 1), []), (lambda x: lax.div(x, F(1)), ["div"]), (lambda x: lax.neg(lax.neg(x)), []),
    (lambda x: lax.max(x, x), []), (lambda x: lax.transpose(lax.transpose(lax.reshape(x, (2, 3)), (1, 0)), (1, 0)),
     ["reshape"]), (lambda x: lax.reshape(lax.reshape(x, (3, 2)), (6,)), []),
    (lambda x: lax.select_n(lax.lt(x, F(0)), x, x), []), (lambda x: lax.ne(lax.lt(x, F(1)), False), ["lt"]),
    (lambda x: lax.add(lax.sin(x), lax.sin(x)), ["sin", "add"]), (lambda x: (lax.exp(x), lax.neg(x))[1], ["neg"]),
    (lambda x: lax.convert_element_type(lax.convert_element_type(x, np.float16), np.float16), ["convert_element_type"]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(KEPT)))
def test_operations_that_stay(number: int) -> None:
    function, wanted = KEPT[number]
    assert sorted(ladder.after("algebra", function, X)) == sorted(wanted)


def test_complex_numbers_and_floats_of_a_byte_keep_more() -> None:
    z = X.astype(np.complex64)
    assert ladder.after("algebra", lambda z: lax.sub(z, np.complex64(0)), z) == ["sub"]
    assert ladder.after("algebra", lambda z: lax.pow(z, np.complex64(1)), z) == ["pow"]
    small = np.ones(4, ml_dtypes.float8_e4m3fn)
    assert "pow" in ladder.after("algebra", lambda x: lax.pow(x, x.dtype.type(0.5)), small)


def test_known_integers_are_folded() -> None:
    row = lambda x: lax.dynamic_index_in_dim(x, lax.convert_element_type(lax.floor(F(2.5)), np.int32), keepdims=False)
    assert "floor" not in ladder.after("algebra", row, X)


@pytest.mark.parametrize("number", range(len(KEPT)))
def test_bits_are_those_of_eager_operations(number: int) -> None:
    function = KEPT[number][0]
    got, want = np.asarray(weft.jit(function)(X)), np.asarray(function(X))
    assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=got.dtype.kind == "f")
    assert got.dtype.kind != "f" or (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()
