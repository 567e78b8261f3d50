"""The reductions of StableHLO that weft has by name: by their combiners, initial values and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.core import avals

NAMES = {
    "stablehlo.add": ("reduce_sum", 0), "stablehlo.multiply": ("reduce_prod", 1),
    "stablehlo.and": ("reduce_and", -1), "stablehlo.or": ("reduce_or", 0), "stablehlo.xor": ("reduce_xor", 0),
    "stablehlo.maximum": ("reduce_max", -np.inf), "stablehlo.minimum": ("reduce_min", np.inf),
}  # fmt: skip


def is_identity(start: Any, value: float) -> bool:
    """Whether an initial value is a known constant that changes nothing."""
    if not isinstance(start, np.ndarray):
        return False
    dtype = start.dtype
    if dtype.kind == "b":
        return bool(start) == (value in (1, -1, np.inf))
    if value in (np.inf, -np.inf) and dtype.kind in "iu":
        return int(start) == (np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)
    if value == -1 and dtype.kind == "u":
        return int(start) == np.iinfo(dtype).max
    return bool(start == np.asarray(value).astype(dtype))


RUNNING = {"reduce_sum": lax.cumsum, "reduce_prod": lax.cumprod, "reduce_max": lax.cummax, "reduce_min": lax.cummin}


def running(x: Any, start: Any, single: str, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Any:
    """The running sum, product, largest or smallest element that a window is which grows to a whole dimension."""
    name, identity = NAMES.get(single, ("", 0))
    long = [dim for dim, size in enumerate(sizes) if size != 1]
    if name not in RUNNING or len(long) != 1 or avals.get_aval(x).dtype.kind == "b" or not is_identity(start, identity):
        return None
    (axis,) = long
    more, own = sizes[axis] - 1, tuple(pairs[axis])
    if more + 1 != avals.get_aval(x).shape[axis] or own not in ((more, 0), (0, more)) or np.sum(pairs) != more:
        return None
    return RUNNING[name](x, axis=axis, reverse=own == (0, more))
