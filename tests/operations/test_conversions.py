"""convert_element_type between all pairs of dtypes, on random and special values: weft, its oracle, and JAX."""

from __future__ import annotations

import warnings

import jax
import ml_dtypes
import numpy as np
import pytest

import weft.lax as lax
from tests.operations import oracle, samples
from tests.operations.test_compiled import array, bits
from weft import config
from weft.operations import references

pytestmark = pytest.mark.oracle

PAIRS = [(source, target) for source in samples.ANY for target in samples.ANY]


def inputs(dtype: np.dtype) -> np.ndarray:
    wide = samples.Operation("convert", 1, samples.ANY, -300, 300)
    found = [samples.values(wide, dtype, 0, 60)]
    if dtype.kind in "fV":
        line = [2.0**k * s for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]
        edges = [127.5, 128.5, -128.5, 255.5, -0.5, -1.5, 0.99, 3e9, -3e9, 65504, 65520, 1e-7, 6e-8, 1e-45, 3.4e38]
        with np.errstate(over="ignore"):
            found.append(np.array([*line, *edges], np.float64).astype(dtype))
    return np.concatenate(found)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_conversion(source: np.dtype, target: np.dtype) -> None:
    x = inputs(source)
    with config.context("enable_x64", True), jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = references.convert(x, target)
        found = np.asarray(lax.convert_element_type(array(x), target))
        theirs = np.asarray(jax.jit(lambda x: jax.lax.convert_element_type(x, target))(x))
    assert found.dtype == expected.dtype == theirs.dtype
    assert np.max(oracle.ulps_between(found, expected), initial=0) == 0
    subnormal = (oracle.ulps_between(theirs, expected) > 0) & (np.abs(x) < 1e-37)
    assert np.max(oracle.ulps_between(np.where(subnormal, expected, theirs), expected), initial=0) == 0
    if source == target:
        assert bits(found) == bits(x)


SMALL_FLOATS = [samples.BF16, samples.F16, np.dtype(ml_dtypes.float8_e5m2), np.dtype(ml_dtypes.float8_e4m3fn)]


@pytest.mark.parametrize("target", SMALL_FLOATS, ids=str)
@pytest.mark.parametrize("source", SMALL_FLOATS, ids=str)
def test_a_nan_of_any_bits_stays_one(source: np.dtype, target: np.dtype) -> None:
    every = np.arange(1 << 8 * source.itemsize).astype(f"u{source.itemsize}").view(source)
    nans = every[np.isnan(every.astype(np.float32))]
    assert np.isnan(np.asarray(lax.convert_element_type(array(nans), target)).astype(np.float32)).all()
