"""What distributions share: operands of one float dtype, and places relative to ``loc`` in units of ``scale``.

standardized("expon.pdf", x, loc, scale)  ->  (x - loc) / scale, scale
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.scipy import special

inline = functools.partial(jit_module.jit, inline=True)


def promoted(name: str, *operands: Any) -> list[Any]:
    """Operands of one float dtype; arrays where NumPy does not compute in it, so that no step leaves it."""
    found = promotion.promote_args_inexact(name, *operands)
    return [promotion.as_array(x) for x in found] if promotion.dtype_of(found[0]).isbuiltin != 1 else list(found)


def positive(*shapes: Any) -> Any:
    """Where all parameters of shape are above 0."""
    return functools.reduce(lambda left, right: left & right, [shape > 0 for shape in shapes], True)


def standardized(name: str, x: Any, *shapes_loc_scale: Any, valid: Callable[..., Any] = positive) -> tuple[Any, ...]:
    """``(x - loc) / scale`` before the parameters, all of one float dtype; the last two are loc and scale.

    NaN in place of x where a scale is not above 0 or ``valid(*shapes)`` is false: every function hands it on.
    """
    x, *rest = promoted(name, x, *shapes_loc_scale)
    *shapes, loc, scale = rest
    return wnp.where(valid(*shapes) & (scale > 0), (x - loc) / scale, np.nan), *shapes, scale


def leveled(name: str, q: Any, *shapes_loc_scale: Any) -> tuple[Any, ...]:
    """``q`` before the parameters, all of one float dtype; NaN where q is no probability or a parameter not valid."""
    q, *rest = promoted(name, q, *shapes_loc_scale)
    *shapes, _, scale = rest
    return quantile(q, wnp.where(positive(*shapes, scale), q, np.nan)), *rest


def counted(name: str, k: Any, *shapes_loc: Any, valid: Callable[..., Any]) -> tuple[Any, ...]:
    """``k - loc``, NaN where not ``valid(*shapes)``, before the parameters but loc, the last; of one float dtype."""
    k, *rest = promoted(name, k, *shapes_loc)
    *shapes, loc = rest
    return wnp.where(valid(*shapes), k - loc, np.nan), *shapes


def is_share(p: Any) -> Any:
    """Where a number is a probability."""
    return (p >= 0) & (p <= 1)


def is_whole(k: Any) -> Array:
    """Where a number is an integer."""
    return wnp.equal(k, wnp.floor(k)) & wnp.isfinite(k)


# -- powers at the edge of a support: 0**0 is 1, and derivatives there are those of the power, not of its logarithm


def log_power(exponent: Any, x: Any) -> Any:
    """The logarithm of ``x ** exponent``, without a slope where both are 0."""
    return special.xlogy(exponent, wnp.where((exponent == 0) & (x == 0), 1, x))


def log_rest_power(exponent: Any, x: Any) -> Any:
    """The logarithm of ``(1 - x) ** exponent``, accurate for small x."""
    return special.xlog1py(exponent, -wnp.where((exponent == 0) & (x == 1), 0, x))


def with_powers(log_factor: Any, powers: Sequence[tuple[Any, Any]], rests: Sequence[tuple[Any, Any]] = ()) -> Any:
    """``exp(log_factor)`` times each ``x ** exponent`` and ``(1 - x) ** exponent``: by logarithms but where x is 0."""
    edges: Any = 1
    for exponent, x in powers:
        is_edge = x == 0
        log_factor = log_factor + special.xlogy(exponent, wnp.where(is_edge, 1, x))
        edges = edges * wnp.power(wnp.where(is_edge & (exponent != 0), x, 1), exponent)
    for exponent, x in rests:
        rest = 1 - x
        is_edge = rest == 0
        log_factor = log_factor + special.xlog1py(exponent, -wnp.where(is_edge, 0, x))
        edges = edges * wnp.power(wnp.where(is_edge & (exponent != 0), rest, 1), exponent)
    return wnp.exp(log_factor) * edges


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
