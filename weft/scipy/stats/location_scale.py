"""What distributions share: operands of one float dtype, and places relative to ``loc`` in units of ``scale``.

standardized("expon.pdf", x, loc, scale)  ->  (x - loc) / scale, scale
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.dispatch import jit as jit_module
from weft.numpy import promotion
from weft.scipy import special

inline = functools.partial(jit_module.jit, inline=True)


def standardized(name: str, x: Any, *shapes_loc_scale: Any) -> tuple[Any, ...]:
    """``(x - loc) / scale`` before the parameters, all of one float dtype; the last two are loc and scale."""
    x, *rest = promotion.promote_args_inexact(name, x, *shapes_loc_scale)
    *shapes, loc, scale = rest
    return (x - loc) / scale, *shapes, scale


def counted(name: str, k: Any, *shapes_loc: Any) -> tuple[Any, ...]:
    """``k - loc`` before the parameters without loc, the last of them, all of one float dtype."""
    k, *rest = promotion.promote_args_inexact(name, k, *shapes_loc)
    *shapes, loc = rest
    return k - loc, *shapes


def is_whole(k: Any) -> Array:
    """Where a number is an integer."""
    return wnp.equal(k, wnp.floor(k))


def where_supported(inside: Any, value: Any, outside: Any, x: Any) -> Array:
    """``value`` inside, ``outside`` elsewhere, NaN where ``x`` is."""
    return wnp.where(inside, value, wnp.where(wnp.isnan(x), np.nan, outside))


def log1mexp_of_exp(z: Any) -> Array:
    """``log(1 - exp(-exp(z)))``: about z far below 0, where the exponential of z is small."""
    power = wnp.exp(z)
    low = z < -20
    return wnp.where(low, z - power / 2, nn.log1mexp(wnp.where(low, 1, power)))


def quantile(q: Any, value: Any) -> Array:
    """``value`` where q is a probability, else NaN."""
    return wnp.where((q >= 0) & (q <= 1), value, np.nan)


def log_choose(n: Any, k: Any) -> Array:
    """Logarithm of the number of ways to choose k of n, accurate for large n."""
    return -special.betaln(1 + n - k, 1 + k) - wnp.log1p(n)
