"""Coefficients of vector math are those that docs/coefficients.py computes, others as near as they are said to be."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from docs import coefficient_errors, coefficients
from weft.codegen.vector_math import coefficients as committed


def test_coefficients_are_as_computed() -> None:
    assert {name: count for name, count in coefficients.differing().items() if count} == {}


def test_interpolation_is_exact_for_polynomials_and_close_between_its_nodes() -> None:
    assert coefficients.interpolated((lambda x: 3 * x**2 - x + 0.5, -2, mpmath.mpf(4)), 2) == (3.0, -1.0, 0.5)
    x = np.linspace(1e-3, 0.5, 101)
    asin = x + x**3 * np.polyval(committed.ASIN_F64, x**2)
    np.testing.assert_allclose(asin, np.arcsin(x), rtol=3e-16)


def test_errors_of_what_was_searched_for_are_small() -> None:
    found = coefficient_errors.errors()
    assert len(found) == 28
    assert {name: error for name, (error, most) in found.items() if not most - 1.1 < error < most} == {}


@pytest.mark.parametrize("name", ["ERF_EXPONENT", "POW_LOG_LOW"])
def test_a_changed_number_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *rest = getattr(committed, name)
    monkeypatch.setattr(committed, name, (first, second * (1 + 2**-9), *rest))
    assert any(error > most for error, most in coefficient_errors.errors().values())
