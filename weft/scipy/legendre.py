"""Associated Legendre functions and spherical harmonics, by the recurrence over the degree at a fixed order.

Functions are computed normalised, so that they neither overflow nor underflow::

    P(l, m) = a(l, m) (x P(l-1, m) - P(l-2, m) / a(l-1, m)),  a(l, m) = sqrt((4 l**2 - 1) / (l**2 - m**2))
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from weft import core, dtypes, errors
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.control import scan as scan_module
from weft.numpy import promotion


def _diagonal(most: int) -> np.ndarray:
    """The factors of ``sin(theta)**m`` in P(m, m) for m up to ``most``: with the sign of Condon and Shortley."""
    m = np.arange(1, most + 1)
    product = np.concatenate([[1.0], np.cumprod((2 * m - 1) / (2 * m))])
    degrees = np.arange(most + 1)
    return (-1.0) ** degrees * np.sqrt((2 * degrees + 1) / (4 * math.pi) * product)


def _steps(most: int) -> np.ndarray:
    """a(l, m) of degree l and order m, 0 where m is not below l."""
    degree, m = np.meshgrid(np.arange(most + 1.0), np.arange(most + 1.0), indexing="ij")
    below = m < degree
    return np.where(below, np.sqrt(np.abs(4 * degree**2 - 1) / np.where(below, degree**2 - m**2, 1)), 0)


def _table(most: int, z: Any) -> Any:
    """P(m, l) at every z, normalised: shape ``[most + 1, most + 1, *z.shape]``."""
    dtype = promotion.dtype_of(z)
    rows = _steps(most)
    before = np.concatenate([np.zeros((1, most + 1)), rows[:-1]])
    ratio = np.where(before > 0, rows / np.where(before > 0, before, 1), 0)
    root = wnp.sqrt((1 - z) * (1 + z))
    start = wnp.ones((most + 1, 1), dtype) * root[None, :] ** np.arange(most + 1)[:, None].astype(dtype)
    start = start * _diagonal(most)[:, None].astype(dtype)
    seeds = np.eye(most + 1, dtype=bool)

    def step(state: Any, given: Any) -> Any:
        two, one = state
        factor, back, seed = given
        new = factor[:, None] * z[None, :] * one - back[:, None] * two
        new = wnp.where(seed[:, None], start, new)
        return (one, new), new

    zero = wnp.zeros_like(start)
    _, found = scan_module.scan(step, (zero, zero), (rows.astype(dtype), ratio.astype(dtype), seeds))
    return wnp.swapaxes(found, 0, 1)


def _scales(most: int) -> np.ndarray:
    """The factors of normalised functions, by order and degree."""
    found = np.zeros((most + 1, most + 1))
    for degree in range(most + 1):
        for m in range(degree + 1):
            logarithm = math.lgamma(degree + m + 1) - math.lgamma(degree - m + 1)
            found[m, degree] = math.sqrt(4 * math.pi / (2 * degree + 1)) * math.exp(logarithm / 2)
    return found


def _checked(name: str, m: Any, n: Any, z: Any) -> tuple[int, Any]:
    order, degree = operator.index(m), operator.index(n)
    if order != degree:
        raise NotImplementedError(f"Computations for m!=n are not yet supported. [{name}] got m={order}, n={degree}")
    if degree < 0:
        raise ValueError(f"[{name}] the degree must not be negative, got n={degree}")
    (z,) = promotion.promote_args_inexact(name, z)
    if len(promotion.shape_of(z)) != 1:
        raise ValueError(f"[{name}] z must be a 1D array, got shape {promotion.shape_of(z)}")
    if dtypes.issubdtype(promotion.dtype_of(z), np.complexfloating):
        raise ValueError(f"[{name}] z must be real, got {promotion.dtype_of(z)}")
    return degree, z


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Any:
    """Associated Legendre functions of all orders up to ``m`` and degrees up to ``n``, static and equal.

    ``z`` is a vector of values in -1..1; the result has shape ``[m + 1, n + 1, len(z)]``, 0 where the order is above
    the degree. With ``is_normalized`` they are those of spherical harmonics. NotImplementedError for ``m != n``.

    >>> lpmn_values(1, 1, np.float32([0.5]), False)[:, :, 0].shape
    (2, 2)
    """
    degree, z = _checked("lpmn_values", m, n, z)
    found = _table(degree, z)
    return found if is_normalized else found * _scales(degree)[:, :, None].astype(promotion.dtype_of(z))


def lpmn(m: int, n: int, z: Any) -> tuple[Any, Any]:
    """Associated Legendre functions, as ``lpmn_values``, and their derivatives in ``z`` (NaN or infinite at 1 and -1).

    >>> [value[1, 1, 0].item() for value in lpmn(1, 1, np.float32([0.0]))]
    [-1.0, 0.0]
    """
    degree, z = _checked("lpmn", m, n, z)
    dtype = promotion.dtype_of(z)
    values = _table(degree, z) * _scales(degree)[:, :, None].astype(dtype)
    below = wnp.concatenate([wnp.zeros_like(values[:, :1]), values[:, :-1]], axis=1)
    orders, degrees = np.meshgrid(np.arange(degree + 1), np.arange(degree + 1), indexing="ij")
    total = (orders + degrees).astype(dtype)[:, :, None]
    z = z[None, None, :]
    slopes = (total * below - degrees.astype(dtype)[:, :, None] * z * values) / ((1 - z) * (1 + z))
    return values, wnp.where((orders <= degrees)[:, :, None], slopes, 0)


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: Any = None, n_max: int | None = None) -> Array:
    """Spherical harmonics of degree ``n`` and order ``m`` at polar angle ``theta`` and azimuth ``phi``; complex.

    Operands are broadcast. ``n_max``, static, is the largest degree: taken from ``n`` unless given, and then ``n`` must
    not be traced (ConcretizationTypeError). Degrees above it give 0, and so do orders above the degree.
    NotImplementedError for ``diff_n``.

    >>> round(abs(sph_harm_y(np.int32(1), np.int32(0), 0.0, 0.0).item()), 4)
    0.4886
    """
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to jax.scipy.special.sph_harm_y is not supported.")
    promotion.check_arraylike("sph_harm_y", n, m, theta, phi)
    if n_max is None:
        if isinstance(n, core.Tracer):
            raise errors.ConcretizationTypeError(
                n, "The `n_max` argument of `sph_harm_y` must be statically specified to use it within transformations."
            )
        n_max = int(np.max(np.asarray(n), initial=0))
    theta, phi = promotion.promote_args_inexact("sph_harm_y", theta, phi)
    n, m, theta, phi = wnp.broadcast_arrays(n, m, theta, phi)
    return _harmonics(n, m, theta, phi, operator.index(n_max))


def _harmonics(n: Any, m: Any, theta: Any, phi: Any, most: int) -> Any:
    dtype = promotion.dtype_of(theta)
    order = wnp.abs(m)
    x, real_order = wnp.cos(theta), promotion.convert(order, dtype)
    factor = wnp.take(_diagonal(most).astype(dtype), order, mode="clip")
    start = factor * wnp.abs(wnp.sin(theta)) ** real_order

    def ratio(degree: Any) -> Any:
        degree = promotion.convert(degree, dtype)
        above = degree > real_order
        distance = wnp.where(above, (degree - real_order) * (degree + real_order), 1)
        return wnp.where(above, wnp.sqrt((4 * degree**2 - 1) / distance), 0)

    def step(state: Any, degree: Any) -> Any:
        two, one, found = state
        now, before = ratio(degree), ratio(degree - 1)
        new = now * x * one - wnp.where(before > 0, now / wnp.where(before > 0, before, 1), 0) * two
        new = wnp.where(degree == order, start, new)
        return (one, new, wnp.where(degree == n, new, found)), None

    zero = wnp.zeros_like(start)
    (_, _, found), _ = scan_module.scan(step, (zero, zero, zero), np.arange(most + 1, dtype=np.int32))
    angle = real_order * phi
    value = lax.complex(found * wnp.cos(angle), found * wnp.sin(angle))
    odd = wnp.where(wnp.mod(order, 2) == 1, -1, 1)
    return wnp.where(m < 0, odd * wnp.conj(value), value)
