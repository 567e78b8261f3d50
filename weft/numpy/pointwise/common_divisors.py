"""gcd and lcm, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.pointwise import selection
from weft.operations.pointwise import special

jit = jit_module.jit


def _integers(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    promotion.check_arraylike(name, x1, x2)
    x1, x2 = promotion.promote_dtypes(x1, x2)
    if not dtypes.issubdtype(promotion.dtype_of(x1), np.integer):
        raise ValueError(f"Arguments to jax.numpy.{name} must be integers, got {promotion.dtype_of(x1)}.")
    return promotion.promote_shapes(x1, x2, name=name)


@jit
def gcd(x1: Any, x2: Any) -> Array:
    """Greatest common divisor, element by element, by Euclid's algorithm; never negative, 0 of two zeros.

    >>> gcd(12, 18).item()
    6
    """
    return special.gcd(*_integers("gcd", x1, x2))


@jit
def lcm(x1: Any, x2: Any) -> Array:
    """Least common multiple, element by element; never negative, 0 where an operand is 0.

    >>> lcm(4, 6).item()
    12
    """
    x1, x2 = _integers("lcm", x1, x2)
    if not dtypes.issubdtype(promotion.dtype_of(x1), np.unsignedinteger):
        x1, x2 = lax.abs(x1), lax.abs(x2)
    divisor = special.gcd(x1, x2)
    zero = promotion.constant_like(0, divisor)
    safe = selection.where(lax.eq(divisor, zero), promotion.constant_like(1, divisor), divisor)
    return lax.mul(x1, lax.div(x2, safe))
