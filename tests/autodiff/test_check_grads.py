"""test_util: wrong derivatives are found in every mode, right ones pass; the modes and errors are JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.test_util
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import test_util

pytestmark = pytest.mark.oracle
X = np.float32([0.5, -1.5])


def wrong(m: Any, value: float, slope: float) -> Any:
    """x ** 2 whose rule gives ``value`` more, and ``slope`` times the derivative."""
    f = m.custom_jvp(lambda x: x**2)
    f.defjvp(lambda p, t: (p[0] ** 2 + value, slope * 2 * p[0] * t[0]))
    return f


@pytest.mark.parametrize("modes", ["fwd", "rev", "lin", ("fwd", "rev", "lin")])
def test_right_derivatives_pass(modes: Any) -> None:
    test_util.check_grads(lambda x: jnp.sin(x) * x, (X,), 2, modes=modes)


@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("lin",)])
@pytest.mark.parametrize(("value", "slope"), [(0.0, 3.0), (1.0, 1.0)], ids=["derivative", "value"])
def test_wrong_rules_are_found(modes: Any, value: float, slope: float) -> None:
    for m, check in ((weft, test_util.check_grads), (jax, jax.test_util.check_grads)):
        check(wrong(m, 0.0, 1.0), (X,), 1, modes=modes)
        with pytest.raises(AssertionError):
            check(wrong(m, value, slope), (X,), 1, modes=modes)
