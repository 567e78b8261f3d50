"""Bessel functions of the first kind of all orders 0, 1, ..., v.

Up to an argument of 25, or of v, ratios of neighbours come from a continued fraction, run backwards, and J0 from
J0 + 2 (J2 + J4 + ...) = 1. Beyond, J0 and J1 are Hankel's asymptotic series, from which recurrence upwards is stable::

    bessel_jn(f32[5], v=3)  ->  f32[4,5]
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base.array import Array
from weft.autodiff import custom_jvp
from weft.control import scan, while_loop
from weft.numpy import promotion

_LEAST_FAR = 25.0  # where the smallest term of Hankel's series is below 1e-20
_TERMS = 24


def _near(z: Any, v: int, most: float) -> Any:
    """Orders 0 to v for z from 0 to ``most``."""
    start = int(most + 15 * most ** (1 / 3) + 20)

    def step(state: tuple[Any, Any], k: Any) -> tuple[tuple[Any, Any], Any]:
        ratio, rest = state  # J[k+1] / J[k], and 2 (J[m] + J[m+2] + ...) / J[k] for the even m above k
        k = wnp.asarray(k, z.dtype)
        ratio = z / (2 * k - z * ratio)
        rest = ratio * (wnp.where(k % 2 == 0, 2, 0) + rest)
        return (ratio, rest), ratio

    zero = wnp.zeros_like(z)
    state = while_loop.fori_loop(0, start - v, lambda i, state: step(state, start - i)[0], (zero, zero))
    (_, rest), ratios = scan.scan(step, state, wnp.arange(v, 0, -1))
    first = 1 / (1 + rest)
    return wnp.concatenate([first[None], first * wnp.cumprod(ratios[::-1], axis=0)])


def _polynomial(coefficients: np.ndarray, x: Any) -> Any:
    """Horner's scheme, the constant first."""
    return functools.reduce(lambda found, c: found * x + float(c), coefficients[::-1], wnp.zeros_like(x))


def _far(z: Any, v: int) -> Any:
    """Orders 0 to v for z above v and 25: Hankel's series, then J[k+1] = 2 k / z J[k] - J[k-1]."""
    sine, cosine, square = wnp.sin(z), wnp.cos(z), 1 / wnp.square(z)
    found = []
    for order in (0, 1):
        a = np.cumprod([1.0, *[(4 * order**2 - (2 * j - 1) ** 2) / (8 * j) for j in range(1, _TERMS)]])
        terms = a * np.where(np.arange(_TERMS) // 2 % 2 == 0, 1, -1)
        even, odd = _polynomial(terms[::2], square), _polynomial(terms[1::2], square) / z
        # cos and sin of z - (2 order + 1) pi / 4, times the square root of 2
        turned = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -cosine - sine)
        found.append((even * turned[0] - odd * turned[1]) / wnp.sqrt(np.pi * z))

    def step(state: tuple[Any, Any], k: Any) -> tuple[tuple[Any, Any], Any]:
        below, here = state
        above = 2 * wnp.asarray(k, z.dtype) / z * here - below
        return (here, above), above

    _, rest = scan.scan(step, tuple(found), wnp.arange(1, max(v, 1)))
    return wnp.concatenate([wnp.stack(found), rest])[: v + 1]


@functools.partial(custom_jvp.custom_jvp, nondiff_argnums=(1,))
def _orders(z: Any, v: int) -> Any:
    most = max(_LEAST_FAR, float(v))
    size = wnp.abs(z)
    is_far = size > most
    found = wnp.where(is_far, _far(wnp.where(is_far, size, most), v), _near(wnp.where(is_far, 1, size), v, most))
    odd = (np.arange(v + 1) % 2 == 1).reshape(-1, *[1] * z.ndim)
    return wnp.where((z < 0) & odd, -found, found)


@_orders.defjvp
def _orders_jvp(v: int, primals: Any, tangents: Any) -> Any:
    """J0' = -J1, and Jn' = (J[n-1] - J[n+1]) / 2."""
    found = _orders(primals[0], v + 1)
    slopes = wnp.concatenate([-found[1:2], (found[:-2] - found[2:]) / 2])
    return found[:-1], slopes * tangents[0]


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to ``v`` at real ``z``, along a new first axis.

    Accurate for every z, so that ``n_iter``, a number of iterations in JAX, changes nothing. ValueError for a negative
    order, TypeError for an order that is no integer and for complex ``z``.

    >>> bessel_jn(np.float32([1.0]), v=1).round(4).ravel().tolist()
    [0.7652000188827515, 0.4401000142097473]
    """
    promotion.check_arraylike("bessel_jn", z)
    (z,) = promotion.promote_dtypes_inexact(wnp.asarray(z))
    dtype = promotion.dtype_of(z)
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(f"[bessel_jn] takes real numbers, got {dtype}")
    order = operator.index(v)
    if order < 0:
        raise ValueError(f"[bessel_jn] the order v must not be negative, got {order}")
    wide = z.astype(np.float32) if dtypes.finfo(dtype).bits < 32 else z
    return _orders(wide, order).astype(dtype)
