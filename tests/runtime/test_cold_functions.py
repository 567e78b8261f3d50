"""The cold functions that kernels reach through a table: trigonometric reduction of any argument, gamma functions."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from weft import runtime


def test_helpers_reduce_huge_arguments() -> None:
    index = runtime.helper_names().index("trig_reduce_f32")
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        every = rng.integers(0, 2**32, 3000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**127, 3.4e38, 1e10, 71476.0, 16367173 * 2.0**72]
    x = np.concatenate([every, np.float32(special)])
    r, q = np.empty_like(x), np.empty(len(x), np.int32)
    runtime.call_helper(index, x, r, q, len(x))
    with mpmath.workprec(400):
        for value, rest, quadrant in zip(x.tolist(), r.tolist(), q.tolist(), strict=True):
            if not math.isfinite(value):
                assert math.isnan(rest)
                continue
            k = mpmath.nint(mpmath.mpf(value) * 2 / mpmath.pi)
            exact = mpmath.mpf(value) - k * mpmath.pi / 2
            assert quadrant == int(k) % 4
            assert abs(mpmath.mpf(rest) - exact) <= abs(exact) * 2.0**-23.9 + 1e-45
    index = runtime.helper_names().index("trig_reduce_f64")
    y = np.concatenate(
        [
            rng.integers(0, 2**63, 2000).view(np.float64),
            [0.0, 1.0, 1e300, 6381956970095103 * 2.0**797, -1e22, 5e-324, np.inf],
        ]
    )
    out, quadrants = np.empty(2 * len(y)), np.empty(len(y), np.int64)
    runtime.call_helper(index, y, out, quadrants, len(y))
    with mpmath.workprec(2600):
        for i, value in enumerate(y.tolist()):
            if not math.isfinite(value):
                assert math.isnan(out[i])
                continue
            k = mpmath.nint(mpmath.mpf(value) * 2 / mpmath.pi)
            exact = mpmath.mpf(value) - k * mpmath.pi / 2
            got = mpmath.mpf(float(out[i])) + mpmath.mpf(float(out[len(y) + i]))
            assert quadrants[i] == int(k) % 4
            assert abs(got - exact) <= abs(exact) * 2.0**-70


def test_helpers_of_gamma() -> None:
    names = runtime.helper_names()
    x = np.concatenate([np.linspace(-9.7, 30, 400), [1e-5, 1e5, 1e300]])
    out, unused = np.empty_like(x), np.empty(len(x), np.int64)
    for name, reference in (
        ("digamma_f64", mpmath.digamma),
        ("lgamma_f64", lambda v: mpmath.log(abs(mpmath.gamma(v)))),
    ):
        runtime.call_helper(names.index(name), x, out, unused, len(x))
        for value, got in zip(x.tolist(), out.tolist(), strict=True):
            if abs(value) > 1e6 and name == "lgamma_f64":
                continue
            exact = reference(mpmath.mpf(value))
            assert abs(got - exact) <= 4e-15 * max(1, abs(exact)) * (1 + abs(value)), (name, value)
    with pytest.raises(ValueError, match="helper"):
        runtime.call_helper(99, x, out, unused, 4)
    with pytest.raises(ValueError, match="too small"):
        runtime.call_helper(1, x, out, unused, len(x))
