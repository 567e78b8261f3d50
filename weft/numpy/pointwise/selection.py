"""Choosing between values: where, select, clip, nan_to_num.

``where`` is an inner ``jit`` named ``_where``, as JAX prints it: its operands enter as they were written and are
promoted and broadcast inside. ``select_n`` takes a scalar condition, or one of the cases' shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion

jit = jit_module.jit


@jit
def _where(condition: Any, x: Any, y: Any) -> Any:
    dtype = promotion.dtype_of(condition)
    if dtype != np.bool_:
        condition = lax.ne(condition, np.asarray(0, dtype))
    x, y = promotion.promote_dtypes(x, y)
    shapes = [promotion.shape_of(v) for v in (condition, x, y)]
    if shapes[0]:
        target = promotion.broadcast_shapes(*shapes)
        condition = promotion.broadcast_to(condition, target)
    else:
        target = promotion.broadcast_shapes(*shapes[1:])
    return lax.select(condition, promotion.broadcast_to(x, target), promotion.broadcast_to(y, target))


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """``x`` where ``condition`` is true (nonzero), otherwise ``y``; all three are broadcast, ``x`` and ``y`` promoted.

    With the condition alone it would be ``nonzero``, which is not built yet. Both sides are computed everywhere.

    >>> where(True, 1, 2).item()
    1
    """
    if x is None and y is None:
        raise NotImplementedError("weft.numpy.where with one argument (nonzero) is not implemented yet")
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where function.")
    promotion.check_arraylike("where", condition, x, y)
    return _where(condition, x, y)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """For each element the choice whose condition is the first true one, otherwise ``default``.

    A number is true where it is not zero. ValueError if the lists differ in length or are empty.

    >>> select([False, True], [1, 2]).item()
    2
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})")
    if len(condlist) == 0:
        raise ValueError("condlist must be non-empty")
    choices = promotion.promote_dtypes(default, *choicelist)
    shape = promotion.broadcast_shapes(*(promotion.shape_of(v) for v in (*condlist, *choices)))
    conditions = [promotion.broadcast_to(c, shape) for c in (np.asarray(False), *condlist)]
    stacked = promotion.convert(lax.stack(promotion.promote_dtypes(*conditions), axis=0), np.dtype(np.bool_))
    first = lax.argmax(stacked, 0, dtypes.canonicalize_dtype(np.int64))
    return lax.select_n(first, *(promotion.broadcast_to(c, shape) for c in choices))


@jit
def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Array:
    """``arr`` limited to ``min..max``; either limit may be None. ``max`` wins if the limits cross.

    ValueError for complex operands.

    >>> clip(5, 0, 3).item()
    3
    """
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    promotion.check_arraylike("clip", arr)
    if any(v is not None and dtypes.issubdtype(promotion.dtype_of(v), np.complexfloating) for v in (arr, min, max)):
        raise ValueError(
            "Clip received a complex value either through the input or the min/max keywords. Complex values have no "
            "ordering and cannot be clipped. Please convert to a real value or array by taking the real or imaginary "
            "components via jax.numpy.real/imag respectively."
        )
    if min is not None:
        arr = lax.max(*promotion.promote_args("clip", min, arr))
    if max is not None:
        arr = lax.min(*promotion.promote_args("clip", max, arr))
    return promotion.as_array(arr)


@jit
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """``x`` with NaN and the infinities replaced, by default by 0 and the largest finite numbers.

    Complex operands are treated by component; integers are handed back.

    >>> nan_to_num(float("nan")).item()
    0.0
    """
    promotion.check_arraylike("nan_to_num", x)
    dtype = promotion.dtype_of(x)
    if not dtypes.issubdtype(dtype, np.inexact):
        return promotion.as_array(x)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return lax.complex(
            nan_to_num(lax.real(x), nan=nan, posinf=posinf, neginf=neginf),
            nan_to_num(lax.imag(x), nan=nan, posinf=posinf, neginf=neginf),
        )
    info = dtypes.finfo(dtype)
    posinf = info.max if posinf is None else posinf
    neginf = info.min if neginf is None else neginf
    infinity = np.asarray(np.inf, dtype)
    x = _where(lax.ne(x, x), promotion.convert(nan, dtype), x)
    x = _where(lax.eq(x, infinity), promotion.convert(posinf, dtype), x)
    return _where(lax.eq(x, np.asarray(-np.inf, dtype)), promotion.convert(neginf, dtype), x)
