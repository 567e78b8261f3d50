"""Complex functions over all magnitudes against NumPy's in extended precision, within docs/NUMERICS.md's bounds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft.lax as lax
from tests.operations import oracle, samples
from tests.operations.test_compiled import array
from tests.operations.test_references import reference
from weft import config

FUNCTIONS = [op for op in samples.ELEMENTWISE if op.operands == 1 and samples.C64 in op.dtypes]
GROWING = {"exp", "exp2", "expm1", "sin", "cos", "sinh", "cosh", "tan", "tanh", "logistic"}
COUNT = 3000


def magnitudes(dtype: np.dtype, low: float, high: float) -> np.ndarray:
    """Complex numbers whose parts have independent magnitudes 10**low .. 10**high and signs."""
    rng = np.random.default_rng(11)
    part = np.dtype(f"f{dtype.itemsize // 2}")
    sizes = 10.0 ** rng.uniform(low, high, (2, COUNT)) * rng.choice([-1, 1], (2, COUNT))
    out = np.empty(COUNT, dtype)
    out.real, out.imag = sizes.astype(part)
    return out


@pytest.mark.parametrize("dtype", samples.COMPLEX, ids=str)
@pytest.mark.parametrize("operation", FUNCTIONS, ids=lambda op: op.name)
def test_complex_function_over_all_magnitudes(operation: samples.Operation, dtype: np.dtype) -> None:
    tiny = -30 if dtype == samples.C64 else -200
    for low, high in ((-3, 1), (tiny, 1.6 if operation.name in GROWING else -tiny)):
        x = magnitudes(dtype, low, high)
        with config.context("enable_x64", True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = reference(operation, x)
            found = np.asarray(getattr(lax, operation.name)(array(x)))
        distance = np.where(np.isfinite(expected), oracle.ulps_between(found, expected), 0)
        worst = int(np.argmax(distance))
        assert distance[worst] <= operation.complex_ulps, (distance[worst], x[worst], found[worst], expected[worst])
