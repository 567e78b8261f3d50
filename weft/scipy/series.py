"""Sums that special functions are computed by: Chebyshev series, powers, products with their rounding error.

Operands are float32 or float64; a table is cut where its terms no longer count in the operand's dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion

inline = functools.partial(jit_module.jit, inline=True)


def is_double(x: Any) -> bool:
    """Whether values have the 53 bits of float64."""
    return promotion.dtype_of(x) in (np.float64, np.complex128)


def real_operands(name: str, *args: Any) -> tuple[Any, ...]:
    """Operands in one real float dtype; ValueError for complex ones."""
    args = promotion.promote_args_inexact(name, *args)
    if dtypes.issubdtype(promotion.dtype_of(args[0]), np.complexfloating):
        raise ValueError(f"{name} does not support complex-valued inputs.")
    return args


def at_least_single(*args: Any) -> tuple[Any, ...]:
    """Operands of 16 bits as float32."""
    dtype = promotion.dtype_of(args[0])
    if np.dtype(dtype).itemsize >= 4:
        return args
    return tuple([promotion.convert(x, np.dtype(np.float32)) for x in args])


def real_function(
    name: str, compute: Callable[[Any], Any], slope: Callable[[Any, Any], Any], purpose: str, example: str
) -> Any:
    """A public function of one real operand: ``compute`` in float32 or float64, with derivative ``slope(out, x)``."""

    def alone(x: Any) -> Any:
        return compute(x)

    alone.__name__ = name
    inner = custom.custom_jvp(alone)
    inner.defjvps(lambda t, out, x: t * slope(out, x))

    def function(x: Any) -> Any:
        (x,) = real_operands(name, x)
        dtype = promotion.dtype_of(x)
        return promotion.convert(inner(*at_least_single(x)), dtype, promotion.is_weak(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{purpose}\n\n    {example}\n    "
    return inline(function)


def cut(table: Sequence[float], x: Any) -> tuple[float, ...]:
    """The coefficients that count in the dtype of x."""
    if is_double(x):
        return tuple(table)
    least = 2.0**-27 * max(map(abs, table))
    last = max(i for i, value in enumerate(table) if abs(value) >= least)
    return tuple(table[: last + 1])


def chebyshev(tables: Sequence[tuple[Any, Sequence[float], float, float]], t: Any) -> Array:
    """The series of the first entry whose condition holds (the last where none does), at ``t``.

    Entries are (condition, coefficients, low, high): a series over the interval from low to high. Summed by
    Clenshaw's recurrence.
    """
    rows = [cut(table, t) for _, table, _, _ in tables]
    length = max(map(len, rows))

    def chosen(values: Sequence[float]) -> Any:
        found: Any = values[-1]
        for (condition, *_), value in zip(tables[-2::-1], values[-2::-1], strict=True):
            found = wnp.where(condition, promotion.constant_like(value, t), found)
        return found

    middle = chosen([(low + high) / 2 for _, _, low, high in tables])
    scale = chosen([2 / (high - low) for _, _, low, high in tables])
    u = (t - middle) * scale
    one, two = wnp.zeros_like(t), wnp.zeros_like(t)
    for k in range(length - 1, 0, -1):
        coefficient = chosen([row[k] if k < len(row) else 0.0 for row in rows])
        one, two = 2 * u * one - two + coefficient, one
    return u * one - two + chosen([row[0] for row in rows])


def horner(coefficients: Sequence[float], x: Any) -> Array:
    """The polynomial with these coefficients, lowest power first."""
    total = wnp.full_like(x, coefficients[-1])
    for value in coefficients[-2::-1]:
        total = total * x + value
    return total


def square_with_error(x: Any) -> tuple[Any, Any]:
    """``x * x`` and what rounding took from it, for values whose square does not overflow (T. J. Dekker, 1971)."""
    factor = 134217729.0 if is_double(x) else 4097.0
    wide = factor * x
    high = wide - (wide - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low
