"""Powers, at the edge of a support too, and logarithms of small differences and of numbers of choices.

At an edge 0**0 is 1, and derivatives are those of the power, not of its logarithm::

    with_powers(log(c), [(a, x)], [(b, x)])  ->  c * x**a * (1 - x)**b
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special


def is_whole(k: Any) -> Array:
    """Where a number is an integer."""
    return wnp.equal(k, wnp.floor(k)) & wnp.isfinite(k)


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


def log1mexp_of_exp(z: Any) -> Array:
    """``log(1 - exp(-exp(z)))``: about z far below 0, where the exponential of z is small."""
    power = wnp.exp(z)
    low = z < -20
    return wnp.where(low, z - power / 2, nn.log1mexp(wnp.where(low, 1, power)))


def log_choose(n: Any, k: Any) -> Array:
    """Logarithm of the number of ways to choose k of n, accurate for large n."""
    return -special.betaln(1 + n - k, 1 + k) - wnp.log1p(n)
