"""Promotion, categories and limits of dtypes, against JAX."""

from __future__ import annotations

import contextlib
import itertools
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from weft import config, dtypes

TYPES = [*dtypes.ALL, bool, int, float, complex]
CATEGORIES = [
    np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating,
    np.complexfloating, np.bool_, np.float32, np.int32, "float32", "bool",
]  # fmt: skip


def outcome(function, *args):
    """The text of a result, or the name of the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(function(*args))
        except (TypeError, ValueError) as error:
            return type(error).__name__


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_promotion_lattice(x64, mode):
    differing = []
    theirs = contextlib.ExitStack()
    theirs.enter_context(jax.enable_x64(x64))
    theirs.enter_context(jax.numpy_dtype_promotion(mode))
    with theirs, config.context("enable_x64", x64), config.context("numpy_dtype_promotion", mode):
        for a, b in itertools.product(TYPES, TYPES):
            expected = outcome(lambda *t: jax.dtypes.result_type(*t, return_weak_type_flag=True), a, b)
            found = outcome(lambda *t: dtypes.result_type(*t, return_weak_type_flag=True), a, b)
            if expected != found:
                differing.append((a, b, expected, found))
            expected, found = outcome(jnp.promote_types, a, b), outcome(dtypes.promote_types, a, b)
            if expected != found:
                differing.append(("promote_types", a, b, expected, found))
    assert not differing


@pytest.mark.parametrize("values", list(itertools.product([1, 2.5, 1j, True, np.float16(1), np.int8(1)], repeat=3)))
def test_values(values):
    expected = jax.dtypes.result_type(*values, return_weak_type_flag=True)
    assert dtypes.result_type(*values, return_weak_type_flag=True) == expected


def test_categories():
    types = [*TYPES, np.floating, np.integer, dtypes.float0]
    for a, b in itertools.product(types, CATEGORIES):
        assert dtypes.issubdtype(a, b) == jax.dtypes.issubdtype(a, b), (a, b)


def test_limits():
    for dtype in dtypes.ALL:
        if jax.dtypes.issubdtype(dtype, np.floating):
            assert repr(dtypes.finfo(dtype)) == repr(jnp.finfo(dtype))
        elif jax.dtypes.issubdtype(dtype, np.integer):
            assert repr(dtypes.iinfo(dtype)) == repr(jnp.iinfo(dtype))
        assert dtypes.itemsize_bits(dtype) == jax.dtypes.itemsize_bits(dtype)
    for info, dtype in ((dtypes.finfo, "int32"), (dtypes.iinfo, "float32")):
        with pytest.raises(ValueError):
            info(dtype)


def test_casts():
    for a, b in itertools.product(dtypes.ALL, dtypes.ALL):
        assert dtypes.can_cast(a, b) == jnp.can_cast(a, b), (a, b)


def test_errors_read_as_in_jax():
    for a, b in (("float8_e4m3fn", "float32"), ("int4", "int8"), ("float4_e2m1fn", "float16")):
        with pytest.raises(ValueError) as expected:
            jax.dtypes.result_type(np.dtype(getattr(ml_dtypes, a)), b)
        with pytest.raises(dtypes.TypePromotionError) as found:
            dtypes.result_type(np.dtype(getattr(ml_dtypes, a)), b)
        assert str(found.value).split("promotion path", 1)[1] == str(expected.value).split("promotion path", 1)[1]
    for function in (jax.dtypes.result_type, dtypes.result_type):
        with pytest.raises(ValueError, match="at least one array or dtype is required"):
            function()
        with pytest.raises(TypeError, match="Cannot determine dtype of"):
            function(object())


def test_truncation_warns_as_jax_does():
    with pytest.warns(UserWarning) as expected:
        jnp.zeros(3, "float64")
    with pytest.warns(UserWarning) as found:
        assert dtypes.check_user_dtype("float64", "zeros") == np.dtype("float32")
    first = str(expected[0].message).split(". To enable")[0]
    assert str(found[0].message).split(". To enable")[0] == first
    with config.context("enable_x64", True):
        assert dtypes.check_user_dtype("float64", "zeros") == np.dtype("float64")
    with pytest.raises(TypeError, match="got dtype S3 in zeros"):
        dtypes.check_user_dtype("S3", "zeros")


def test_scalar_types():
    for value in (True, 1, 1.5, 1j, np.int8(1), np.float16(2), np.ones(3)):
        assert dtypes.scalar_type_of(value) is jax.dtypes.scalar_type_of(value)
