"""Coefficients of vector math are those that docs/coefficients.py computes."""

from __future__ import annotations

import mpmath
import numpy as np

from docs import coefficients
from weft.codegen.vector_math import coefficients as committed


def test_coefficients_are_as_computed() -> None:
    assert {name: count for name, count in coefficients.differing().items() if count} == {}


def test_interpolation_is_exact_for_polynomials_and_close_between_its_nodes() -> None:
    assert coefficients.interpolated((lambda x: 3 * x**2 - x + 0.5, -2, mpmath.mpf(4)), 2) == (3.0, -1.0, 0.5)
    x = np.linspace(1e-3, 0.5, 101)
    asin = x + x**3 * np.polyval(committed.ASIN_F64, x**2)
    np.testing.assert_allclose(asin, np.arcsin(x), rtol=3e-16)
