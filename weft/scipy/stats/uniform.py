"""weft.scipy.stats.uniform: density, distribution function and its inverse between ``loc`` and ``loc + scale``.

Operands are promoted to one float dtype and broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import operations as lax
from weft._base.array import Array
from weft.numpy import arithmetic, logic, promotion, selection


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``: -inf outside the interval.

    >>> round(logpdf(0.5, 0.0, 2.0).item(), 4)
    -0.6931
    """
    x, loc, scale = promotion.promote_args_inexact("uniform.logpdf", x, loc, scale)
    x = selection.where(logic.greater(scale, 0), x, np.nan)
    outside = logic.logical_or(logic.greater(x, arithmetic.add(loc, scale)), logic.less(x, loc))
    inside = selection.where(logic.isnan(arithmetic.subtract(x, loc)), np.nan, lax.neg(lax.log(scale)))
    return selection.where(outside, -np.inf, inside)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``: 0 outside the interval.

    >>> pdf(3.0, 0.0, 2.0).item()
    0.0
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> cdf(0.5, 0.0, 2.0).item()
    0.25
    """
    x, loc, scale = promotion.promote_args_inexact("uniform.cdf", x, loc, scale)
    x = selection.where(logic.greater(scale, 0), x, np.nan)
    inside = arithmetic.true_divide(arithmetic.subtract(x, loc), scale)
    above = logic.logical_and(logic.greater_equal(x, arithmetic.add(loc, scale)), logic.greater_equal(x, loc))
    return selection.where(logic.less(x, loc), 0, selection.where(above, 1, inside))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed; NaN for ``q`` outside 0..1.

    >>> ppf(0.25, 0.0, 2.0).item()
    0.5
    """
    q, loc, scale = promotion.promote_args_inexact("uniform.ppf", q, loc, scale)
    undefined = logic.logical_or(logic.logical_not(logic.greater(scale, 0)), logic.isnan(q))
    undefined = logic.logical_or(undefined, logic.logical_or(logic.less(q, 0), logic.greater(q, 1)))
    value = arithmetic.add(arithmetic.multiply(q, scale), loc)
    return selection.where(undefined, np.nan, value)
