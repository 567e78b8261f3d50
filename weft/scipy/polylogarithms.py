"""The dilogarithm of SciPy's ``spence``, and Bernoulli numbers, by which its series goes.

spence(x)  ->  u - u**2 / 4 + sum of B[2k] u**(2k+1) / (2k+1)!, u = -log(x), for x from 1/2 to 3/2
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.numpy import promotion
from weft.scipy import series


def _bernoulli_numbers(n: int) -> list[Fraction]:
    """B[0] to B[n], exactly; B[1] is -1/2 (Akiyama and Tanigawa's triangle)."""
    numbers, row = [], []
    for m in range(n + 1):
        row.append(Fraction(1, m + 1))
        for j in range(m, 0, -1):
            row[j - 1] = j * (row[j - 1] - row[j])
        numbers.append(-row[0] if m == 1 else row[0])
    return numbers


_TERMS = [float(value / math.factorial(2 * k + 1)) for k, value in enumerate(_bernoulli_numbers(20)[::2]) if k]


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers from B[0] to B[n], in the default float dtype; ``n`` is a static integer not below 0.

    ValueError for a negative ``n``.

    >>> [round(value, 4) for value in bernoulli(4).tolist()]
    [1.0, -0.5, 0.1667, 0.0, -0.0333]
    """
    count = operator.index(n)
    if count < 0:
        raise ValueError(f"n must be a non-negative integer. [bernoulli] got {count}")
    numbers = np.array([_as_float(value) for value in _bernoulli_numbers(count)])
    with np.errstate(over="ignore"):
        return wnp.asarray(numbers.astype(dtypes.canonicalize_dtype(np.float64)))


def _near_one(x: Any) -> Any:
    u = -wnp.log(x)
    square = u * u
    return u - square / 4 + u * square * series.horner(_TERMS, square)


@custom.custom_jvp
def _spence(x: Any) -> Any:
    large, small = x > 1.5, x < 0.5
    inverse = wnp.where(large, 1 / wnp.where(x == 0, 1, x), x)
    low = inverse < 0.5  # small arguments, and the inverses of large ones
    center = wnp.where(low, 1 - inverse, inverse)
    value = _near_one(wnp.where(center > 0, center, 1))
    logarithm = wnp.log(wnp.where(inverse > 0, inverse, 1))
    reflected = math.pi**2 / 6 - logarithm * wnp.log1p(-wnp.where(low, inverse, 0.25)) - value
    value = wnp.where(low, reflected, value)
    value = wnp.where(large, -0.5 * logarithm * logarithm - value, value)
    value = wnp.where(small & (x == 0), math.pi**2 / 6, value)
    value = wnp.where(x == np.inf, -np.inf, value)
    return wnp.where(x >= 0, value, np.nan)


@_spence.defjvp
def _spence_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    rest = 1 - x
    near = wnp.abs(rest) < 1e-3
    safe = wnp.where(near, 0.5, rest)
    few = -(1 + rest / 2 + rest * rest / 3 + rest**3 / 4 + rest**4 / 5)  # of log(1 - rest) / rest
    slope = wnp.where(near, few, wnp.log(wnp.where(near, 1, x)) / safe)
    return _spence(x), t * slope


@series.inline
def spence(x: Any) -> Array:
    """Spence's function, the integral of ``log(t) / (1 - t)`` from 1 to ``x``: the dilogarithm of ``1 - x``.

    ``x`` is float32 or float64, of any shape; NaN below 0. TypeError for other dtypes.

    >>> round(spence(0.0).item(), 5)
    1.64493
    """
    promotion.check_arraylike("spence", x)
    x = promotion.as_array(x)
    dtype = promotion.dtype_of(x)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"x.dtype={dtype} is not supported, see docstring for supported types.")
    return _spence(x)
