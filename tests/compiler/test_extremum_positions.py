"""argmax and argmin where the shortcut of appending could go wrong: ties, NaN, rows of nothing but the worst value."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp

VALUES = {
    "float32": [-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0],
    "bfloat16": [-np.inf, np.inf, np.nan, 0.0, 2.0],
    "int8": [-128, 127, 0],
    "uint32": [0, 2**32 - 1, 7],
    "bool": [False, True],
    "complex64": [complex(-np.inf, -np.inf), complex(0, np.nan), 1 + 2j, 1 - 2j, complex(np.inf, 0)],
}


def _first(x: np.ndarray, axis: int, larger: bool) -> np.ndarray:
    """By plain comparison in Python: the first NaN, else the first of the best."""

    def of_row(row: np.ndarray) -> int:
        best = 0
        for i in range(1, len(row)):
            a, b = ((v.real, v.imag) if np.iscomplexobj(row) else (float(v),) for v in (row[i], row[best]))
            if any(np.isnan(b)):
                break
            if any(np.isnan(a)) or (a > b if larger else a < b):
                best = i
        return best

    return (
        np.apply_along_axis(of_row, axis, x) if x.dtype != ml_dtypes.bfloat16 else _first(x.astype("f4"), axis, larger)
    )


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("axis", [0, 1])
def test_first_of_equals_and_first_nan(dtype: str, axis: int) -> None:
    random = np.random.default_rng(axis)
    numpy_dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = np.array(VALUES[dtype], numpy_dtype)
    for length in (1, 2, 16, 31, 33, 64, 300):
        for chosen in (values[:1], values[1:2], values[:2], values):
            shape = (length, 19) if axis == 0 else (19, length)
            x = chosen[random.integers(len(chosen), size=shape)]
            for name, larger in (("argmax", True), ("argmin", False)):
                got = np.asarray(weft.jit(lambda x, n=name: getattr(jnp, n)(x, axis))(x))
                np.testing.assert_array_equal(got, _first(x, axis, larger), err_msg=f"{name} {shape} {chosen}")


@pytest.mark.parametrize("length", [8192, 8193, 20_000])
def test_over_several_blocks(length: int) -> None:
    for fill, best in ((-np.inf, -np.inf), (0.0, 1.0), (0.0, np.nan)):
        for place in (0, 8191, 8192 % length, length - 1):
            x = np.full((2, length), fill, np.float32)
            x[:, place] = best
            want = 0 if fill == best else place
            assert np.asarray(jnp.argmax(x, 1)).tolist() == [want, want]
            assert np.asarray(jnp.argmax(x.T.copy(), 0)).tolist() == [want, want]
