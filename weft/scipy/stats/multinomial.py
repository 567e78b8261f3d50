"""weft.scipy.stats.multinomial: how many of ``n`` things fall into each of several classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.distribution import inline, is_probability
from weft.scipy.stats.powers import log_power


@inline
def logpmf(x: Any, n: Any, p: Any) -> Array:
    """Logarithm of the probability of the counts ``x``, along the last axis; -inf where they do not add up to ``n``.

    ``p`` are the probabilities of the classes, along its last axis.

    >>> round(logpmf(np.int32([1, 2]), 3, np.float32([0.5, 0.5])).item(), 4)
    -0.9808
    """
    (p,) = promotion.promote_args_inexact("multinomial.logpmf", p)
    promotion.check_arraylike("multinomial.logpmf", x, n)
    types = promotion.dtype_of(x), promotion.dtype_of(n)
    if not all(dtypes.issubdtype(dtype, np.integer) for dtype in types):
        raise ValueError(f"[multinomial] x and n must be of integer type, got {types[0]} and {types[1]}")
    x, n = promotion.promote_dtypes_numeric(x, n)
    fits = wnp.equal(wnp.sum(x, axis=-1), n)
    x, n = promotion.convert(x, p.dtype), promotion.convert(n, p.dtype)
    value = special.gammaln(n + 1) + wnp.sum(log_power(x, p) - special.gammaln(x + 1), axis=-1)
    is_known = (n >= 0) & wnp.all(is_probability(p), axis=-1)
    return wnp.where(is_known, wnp.where(fits & wnp.all(x >= 0, axis=-1), value, -np.inf), np.nan)


@inline
def pmf(x: Any, n: Any, p: Any) -> Array:
    """The probability of the counts ``x``.

    >>> round(pmf(np.int32([1, 2]), 3, np.float32([0.5, 0.5])).item(), 4)
    0.375
    """
    return wnp.exp(logpmf(x, n, p))
