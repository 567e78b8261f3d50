"""Corners of weft.numpy where a small difference from JAX is easy: values, dtypes and classes of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp

pytestmark = pytest.mark.oracle
Call = Callable[[Any], Any]

NARROW = np.array([3, np.nan, -1, 2, np.nan, 0, -5, 7, 1, -9, 4, np.nan, 8, -3], np.float32)
COMPLEX = np.array([1 + 2j, 1 - 1j, np.nan, 3j], np.complex64)

SAME: dict[str, Call] = {
    "bfloat16 unique with NaN": lambda m: m.unique(m.asarray(NARROW).astype("bfloat16"), return_counts=True),
    "bfloat16 union1d with NaN": lambda m: m.union1d(m.asarray(NARROW).astype("bfloat16"), 2),
    "bfloat16 setxor1d with NaN": lambda m: m.setxor1d(m.asarray(NARROW).astype("bfloat16"), m.arange(4)),
    "bfloat16 setdiff1d with NaN": lambda m: m.setdiff1d(m.asarray(NARROW).astype("bfloat16"), m.arange(4)),
    "bfloat16 intersect1d with NaN": lambda m: m.intersect1d(m.asarray(NARROW).astype("bfloat16"), m.arange(4)),
    "sort_complex of a matrix": lambda m: m.sort_complex(m.array([[3, 1, 2], [2, 0, 1]])),
    "fmax of complex": lambda m: m.fmax(COMPLEX, np.float32(1)),
    "fmin of complex": lambda m: m.fmin(COMPLEX, np.float32(1)),
    "cumsum in bool": lambda m: m.cumsum(m.array([0, 2, 0]), dtype=bool),
    "cumprod in bool": lambda m: m.cumprod(m.array([2.5, 1, 0, 1]), dtype=bool),
    "nancumsum in bool": lambda m: m.nancumsum(m.array([np.nan, 0, 1]), dtype=bool),
    "cumulative_sum in bool": lambda m: m.cumulative_sum(m.array([0, 1, 0]), dtype=bool, include_initial=True),
    "cov of one row of columns": lambda m: m.cov(m.array([[1.0, 2.0, 4.0]]), rowvar=False),
    "corrcoef of one row of columns": lambda m: m.corrcoef(m.array([[1.0, 2.0, 4.0]]), rowvar=False),
    "take_along_axis of nothing": lambda m: m.take_along_axis(m.ones((2, 0)), m.zeros((2, 0), int), 1),
    "bincount of negative integers alone": lambda m: m.bincount(m.array([-1, -3])),
    "unwrap of nothing": lambda m: m.unwrap(m.ones((2, 0))).astype("float32"),
    "array_equal of different shapes": lambda m: m.array_equal(m.ones(3), m.ones(4)),
    "array_equiv of different ranks": lambda m: m.array_equiv(m.ones((2, 3)), m.ones(4)),
    "polyadd of columns": lambda m: m.polyadd(m.ones((3, 2)), m.array([[1.0, 2.0], [3.0, 4.0]])),
    "polyadd of columns and one": lambda m: m.polyadd(m.array([1.0, 2.0]), m.ones((3, 2))),
    "polyadd of columns and a number": lambda m: m.polyadd(m.ones((1, 1)), m.ones((2, 2, 2))),
    "polysub of columns": lambda m: m.polysub(m.array([[1.0, 2.0]]), m.ones((3, 2))),
    "iinfo by keyword": lambda m: m.iinfo(int_type="int8").max,
}

RAISES: dict[str, tuple[type[Exception], Call]] = {
    "sum where numbers": (ValueError, lambda m: m.sum(m.ones(3), where=m.arange(3))),
    "max where numbers": (ValueError, lambda m: m.max(m.ones(3), initial=0, where=m.arange(3))),
    "any where numbers": (ValueError, lambda m: m.any(m.ones(3), where=m.arange(3))),
    "mean where numbers": (ValueError, lambda m: m.mean(m.ones(3), where=m.arange(3))),
    "var where numbers": (ValueError, lambda m: m.var(m.ones(3), where=m.arange(3))),
    "nanmean where numbers": (ValueError, lambda m: m.nanmean(m.ones(3), where=m.arange(3))),
    "nanstd where numbers": (ValueError, lambda m: m.nanstd(m.ones(3), where=m.arange(3))),
    "matvec of a scalar": (ValueError, lambda m: m.matvec(m.ones((2, 3)), 1.0)),
    "matvec of other extents": (ValueError, lambda m: m.matvec(m.ones((2, 3)), m.ones(4))),
    "vecmat of a vector": (ValueError, lambda m: m.vecmat(m.ones(2), m.ones(2))),
    "vecmat of other extents": (ValueError, lambda m: m.vecmat(m.ones(2), m.ones((3, 4)))),
    "split in -1 parts": (ValueError, lambda m: m.split(m.ones(3), -1)),
    "unwrap of complex": (ValueError, lambda m: m.unwrap(m.ones(3) * 1j)),
    "full of a list": (TypeError, lambda m: m.full((3,), [1, 2, 3])),
    "tril above a fraction": (TypeError, lambda m: m.tril(m.ones((2, 2)), 1.0)),
    "polyadd of one and as many columns": (ValueError, lambda m: m.polyadd(m.ones(2), m.ones((2, 2)))),
    "polysub of other columns": (ValueError, lambda m: m.polysub(m.ones((2, 2)), m.ones((3, 3)))),
    "polyadd of numbers": (IndexError, lambda m: m.polyadd(1.0, 2.0)),
    "index by a truth value": (TypeError, lambda m: [1, 2][m.bool_(True)]),
    "promote_types of text": (ValueError, lambda m: m.promote_types("float32", "S")),
}


def plain(x: Any) -> np.ndarray:
    """``x`` in a dtype whose NaN NumPy's comparison knows."""
    values = np.asarray(x)
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


@pytest.mark.parametrize("name", SAME)
def test_the_result_is_that_of_jax(name: str) -> None:
    found, expected = weft.tree.leaves(SAME[name](wnp)), jax.tree.leaves(SAME[name](jnp))
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert getattr(ours, "dtype", type(ours)) == getattr(theirs, "dtype", type(theirs))
        np.testing.assert_array_equal(plain(ours), plain(theirs))


@pytest.mark.parametrize("name", RAISES)
def test_the_error_has_the_class_of_that_of_jax(name: str) -> None:
    error, call = RAISES[name]
    with pytest.raises(error):
        call(jnp)
    with pytest.raises(error):
        call(wnp)


def test_shapes_of_lists_are_known_as_in_numpy() -> None:
    with pytest.warns(DeprecationWarning, match="requires ndarray or scalar arguments"):
        assert wnp.shape([[1, 2, 3]]) == (1, 3) and wnp.ndim([[1], [2]]) == 2 and wnp.size([1, 2]) == 2


def test_context_managers_take_their_value_by_name() -> None:
    with weft.enable_x64(new_val=True), weft.disable_jit(disable=True):
        assert wnp.arange(2).dtype == np.int64
    assert wnp.arange(2).dtype == np.int32


SIZED: dict[str, tuple[Call, list[Any]]] = {
    "setxor1d of no size": (lambda m: m.setxor1d(m.arange(3), m.arange(4), size=0), [[]]),
    "setdiff1d of no size": (lambda m: m.setdiff1d(m.arange(3), m.arange(2), size=0), [[]]),
    "intersect1d of no size": (lambda m: m.intersect1d(m.arange(3), m.arange(4), False, True, size=0), [[], [], []]),
    "intersect1d with nothing": (
        lambda m: m.intersect1d(m.arange(3), m.arange(0), False, True, size=2, fill_value=9),
        [[9, 9], [3, 3], [0, 0]],
    ),
    "unique of nothing": (
        lambda m: m.unique(m.arange(0), True, True, True, size=2, fill_value=7), [[7, 7], [0, 0], [], [0, 0]],
    ),
    "unique of columns of nothing": (
        lambda m: m.unique(m.zeros((0, 3)), True, True, True, axis=1, size=1), [[], [0], [0, 0, 0], [3]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_sets_of_nothing_have_the_size_asked_for(name: str) -> None:
    call, expected = SIZED[name]
    assert [part.tolist() for part in weft.tree.leaves(weft.jit(lambda: call(wnp))())] == expected


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variances_take_complex_dtypes_only_for_complex_numbers(name: str) -> None:
    function, values = getattr(wnp, name), np.array([1 + 2j, 3, 5j], np.complex64)
    expected = getattr(np, name)(values)
    assert function(values).dtype == np.float32
    assert function(values, dtype=np.complex64).dtype == function(values.real, dtype=np.complex64).dtype == np.complex64
    np.testing.assert_allclose(function(values, dtype=np.complex64), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"does not yet support real dtype parameters .* float32 for complex64"):
        function(values, dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int8])
def test_lcm_of_every_integer_type(dtype: Any) -> None:
    x, y = np.array([4, 6, 0, 20], dtype), np.array([6, 4, 3, 5], dtype)
    assert wnp.lcm(x, y).tolist() == np.lcm(x, y).tolist() and wnp.lcm(x, y).dtype == dtype


@pytest.mark.parametrize("shape", [(0,), (1, 0), (2, 0)])
def test_covariances_without_observations_are_nan(shape: tuple[int, ...]) -> None:
    got, expected = wnp.cov(np.zeros(shape, np.float32)), jnp.cov(np.zeros(shape, np.float32))
    assert got.shape == expected.shape and np.isnan(got).all()
    with pytest.raises(IndexError, match="has no elements"):
        wnp.trapezoid(np.zeros(shape, np.float32))


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "int32", "bool", "float32", "bfloat16", "complex64"])
def test_membership_in_many_elements_is_that_of_all_compared_with_all(dtype: str, invert: bool) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 0, 1, 5, 127, 255, -128, 2**31 - 1, 2**32 - 1], np.float64)
    values = values.astype(np.complex64) if dtype == "complex64" else values if "float" in dtype else values[3:]
    with np.errstate(invalid="ignore"):
        elements = values.astype(np.int64).astype(dtype) if "int" in dtype else wnp.asarray(values).astype(dtype)
        tests = np.tile(elements[:-1:2], 300)
    compared = wnp.isin(elements, tests, invert=invert, method="compare_all")
    assert wnp.isin(elements, tests, invert=invert).tolist() == compared.tolist()


def test_membership_in_many_elements_does_not_compare_all_with_all() -> None:
    few, many = (weft.make_jaxpr(wnp.isin)(np.arange(1000), np.arange(size)) for size in (200, 2000))
    assert "1000,200]" in str(few) and "1000,2000]" not in str(many) and "sort" in str(many)


@pytest.mark.parametrize("base", [3.0, 3, np.float32(3), np.int32(3), 2j], ids=repr)
@pytest.mark.parametrize("exponent", [2, np.uint8(2), np.array(2), np.array(True), np.bool_(True)], ids=repr)
@pytest.mark.parametrize("put", [False, True])
def test_powers_by_one_known_integer_are_typed_as_in_jax(base: Any, exponent: Any, put: bool) -> None:
    def power(module: Any) -> Any:
        known = module.numpy.asarray(exponent) if put else exponent
        return module.numpy.power(base, known), module.jit(lambda x: module.numpy.power(x, known))(base)

    for got, expected in zip(power(weft), power(jax), strict=True):
        assert (got.dtype, got.weak_type) == (expected.dtype, expected.weak_type)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("dims", [20, 24])  # 12**24 does not even fit 64 bits
def test_a_histogram_of_more_bins_than_int32_numbers_is_refused(dims: int) -> None:
    with pytest.raises(ValueError, match=f"{12**dims} counts"):
        wnp.histogramdd(np.ones((3, dims), np.float32))
