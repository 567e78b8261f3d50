"""Floored division of integers by a divisor of at least 2: the compiler uses it for ``//`` and ``%``.

It is not a function of lax; ``compiler.passes.divisors`` uses it where the divisor is a literal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.operations.pointwise.elementwise import SIGNED, elementwise

__all__ = ["floor_div_p"]


def _scalar(emit: Any, x: Any, y: Any) -> Any:
    """For x below zero -1 - (-1 - x) // y: the dividend is not negative, and nothing overflows."""
    sign = emit.shift_right_arithmetic(x, emit.const(8 * x.dtype.itemsize - 1, x.dtype))
    return emit.xor(emit.natural_quotient(emit.xor(x, sign), y), sign)


floor_div_p = elementwise(
    "floor_div", SIGNED, SIGNED, scalar=_scalar, partials=(None, None), reference=np.floor_divide, cost=8.0
)
