"""Derivatives beside branch points and cuts, and between poles, are those of mpmath."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

SIDE = mpmath.mpf("1e-40")  # how far from a cut a zero with a sign lies

SLOPES = {
    "asin": lambda z: 1 / (mpmath.sqrt(1 - z) * mpmath.sqrt(1 + z)),
    "acos": lambda z: -1 / (mpmath.sqrt(1 - z) * mpmath.sqrt(1 + z)),
    "atan": lambda z: 1 / (1 + z * z),
    "asinh": lambda z: 1 / (mpmath.sqrt(1 - 1j * z) * mpmath.sqrt(1 + 1j * z)),
    "acosh": lambda z: 1 / (mpmath.sqrt(z - 1) * mpmath.sqrt(z + 1)),
    "sinh": mpmath.cosh,
}
PARTS = [-3.0, -1.001, -0.5, -0.0, 0.0, 0.001, 0.5, 1.001, 2.0]


@pytest.mark.parametrize("name", SLOPES)
def test_complex_slopes(name: str) -> None:
    z = np.array([complex(re, im) for re in PARTS for im in PARTS], np.complex64)
    got = np.asarray(weft.vmap(weft.grad(getattr(lax, name), holomorphic=True))(z))
    with mpmath.workdps(60):
        beside = [mpmath.mpc(*[_beside(part) for part in (point.real, point.imag)]) for point in z]
        want = np.array([complex(SLOPES[name](point)) for point in beside])
    near = np.abs(got - want) <= 4e-6 * np.abs(want) + 1e-38
    assert near.all(), list(zip(z[~near], got[~near], want[~near], strict=True))


def _beside(part: np.float32) -> Any:
    return mpmath.mpf(float(part)) if part else SIDE * (-1 if np.signbit(part) else 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_slope_of_digamma_between_its_poles(dtype: str) -> None:
    x = jnp.asarray(np.concatenate([-np.arange(10) - 0.375, -np.arange(10) - 0.5, [0.75, 3.0]]), dtype)
    got = np.asarray(weft.vmap(weft.grad(lax.digamma))(x), np.float64)
    want = np.array([float(mpmath.polygamma(1, float(v))) for v in np.asarray(x, np.float64)])
    np.testing.assert_allclose(got, want, rtol=2 * float(jnp.finfo(dtype).eps))
