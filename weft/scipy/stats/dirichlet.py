"""weft.scipy.stats.dirichlet: the distribution of shares that add up to 1, with exponents ``alpha``.

logpdf(x, alpha)  ->  sum((alpha - 1) log x) - sum(gammaln(alpha)) + gammaln(sum(alpha))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.distribution import inline
from weft.scipy.stats.powers import log_power, with_powers


def _parts(x: Any, alpha: Any) -> tuple[Any, ...]:
    """The shares, by which exponents they are raised, the logarithm of what is before them, and where which holds."""
    x, alpha = promotion.promote_dtypes_inexact(x, alpha)
    count = promotion.shape_of(alpha)
    shape = promotion.shape_of(x)
    if len(count) != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={count}")
    if not shape or shape[0] not in (count[0], count[0] - 1):
        raise ValueError(
            "`x` must have either the same number of entries as `alpha` or one entry fewer; "
            f"got x.shape={shape}, alpha.shape={count}"
        )
    if shape[0] == count[0] - 1:
        x = wnp.concatenate([x, 1 - wnp.sum(x, axis=0, keepdims=True)], axis=0)
    alpha = wnp.reshape(alpha, (*count, *[1] * (len(shape) - 1)))
    near = abs(wnp.sum(x, axis=0) - 1) < (1e-10 if x.dtype == np.float64 else 1e-5)
    is_known = wnp.all(alpha > 0) & ~wnp.any(wnp.isnan(x), axis=0)
    inside = near & wnp.all(x >= 0, axis=0)
    normalizer = wnp.sum(special.gammaln(alpha)) - special.gammaln(wnp.sum(alpha))
    x = wnp.where(inside, x, 1 / count[0])
    return x, alpha - 1, -normalizer, inside, is_known


@inline
def logpdf(x: Any, alpha: Any) -> Array:
    """Logarithm of the density at shares ``x``, along its first axis; -inf where they do not add up to 1.

    ``alpha`` has one dimension; ``x`` has as many entries, or one fewer, the last being what is left of 1. ValueError
    for other shapes.

    >>> round(logpdf(np.float32([0.25, 0.75]), np.float32([2, 1])).item(), 4)
    -0.6931
    """
    x, exponents, log_factor, inside, is_known = _parts(x, alpha)
    value = wnp.sum(log_power(exponents, x), axis=0) + log_factor
    return wnp.where(is_known, wnp.where(inside, value, -np.inf), np.nan)


@inline
def pdf(x: Any, alpha: Any) -> Array:
    """The density at shares ``x``, along its first axis.

    >>> pdf(np.float32([0.25, 0.75]), np.float32([2, 1])).item()
    0.5
    """
    x, exponents, log_factor, inside, is_known = _parts(x, alpha)
    shares = [(exponents[k], x[k]) for k in range(promotion.shape_of(x)[0])]
    return wnp.where(is_known, wnp.where(inside, with_powers(log_factor, shares), 0), np.nan)
