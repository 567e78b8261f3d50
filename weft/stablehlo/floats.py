"""Functions of floats that StableHLO lacks and that a few of its operations give: tan, the next value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft.stablehlo.text import Tensor

WORDS = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}


def nextafter(emit: Any, x: Tensor, y: Tensor) -> Tensor:
    """The neighbour of x towards y: its bits plus or minus one."""
    bits = dtypes.itemsize_bits(x.dtype)
    word = WORDS[bits]
    a, b = emit.bitcast(x, word), emit.bitcast(y, word)
    sign = emit.const(1 << (bits - 1), word)
    one = emit.const(1, word)
    zero, nan = emit.const(0, x.dtype), emit.const(math.nan, x.dtype)
    differ = emit.compare("ne", emit.and_(emit.xor(a, b), sign), emit.const(0, word))
    smaller = emit.compare("lt", emit.abs(y), emit.abs(x))
    stepped = emit.select(emit.or_(smaller, differ), emit.add(a, one), emit.sub(a, one))
    stepped = emit.select(emit.compare("eq", x, zero), stepped, emit.or_(emit.and_(b, sign), one))
    stepped = emit.select(emit.compare("eq", x, y), stepped, b)
    unordered = emit.or_(emit.compare("ne", x, x), emit.compare("ne", y, y))
    return emit.select(unordered, emit.bitcast(stepped, x.dtype), nan)


def tan(emit: Any, x: Tensor) -> Tensor:
    """The quotient of sine and cosine."""
    return emit.div(emit.function("sin", x), emit.function("cos", x))


FUNCTIONS: dict[str, Callable[..., Any]] = {"tan": tan}
