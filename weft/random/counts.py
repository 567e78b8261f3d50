"""Random counts: geometric, Poisson, binomial and multinomial values.

Poisson and binomial values with a small mean are counted event by event; with a large one they are drawn from a
transformed uniform value and accepted or drawn again (Hormann 1993), all elements in one loop until none is left::

    poisson(key, lam)  ->  select[lam < 10] (while: log_prod += log(uniform)) (while: propose, accept)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.control import scan, while_loop
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.subscripts import indexing
from weft.random import distributions, keys, sampling

jit = jit_module.jit
_STATIC = ("shape", "dtype")


def _integer_dtype(name: str, dtype: Any) -> Any:
    target = dtypes.canonicalize_dtype(np.int64) if dtype is None else dtypes.check_user_dtype(dtype, name)
    if not dtypes.issubdtype(target, np.integer):
        raise ValueError(f"dtype argument to `{name}` must be an int dtype, got {target}")
    return target


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """How many trials of probability ``p`` it takes to succeed once.

    >>> geometric(keys.key(0), 1.0).item()
    1
    """
    if out_sharding is not None:
        return devices.placed(lambda: geometric(key, p, shape, dtype), out_sharding=out_sharding)
    typed = keys.single("geometric", key)
    target = _integer_dtype("geometric", dtype)
    promotion.check_arraylike("geometric", p)
    return _geometric(typed, p, shape=distributions.joint_shape("geometric", shape, p), dtype=target)


@jit(static_argnames=_STATIC)
def _geometric(key: Any, p: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    (p,) = promotion.promote_dtypes_inexact(p)
    drawn = sampling.uniform(key, shape, promotion.dtype_of(p))
    drawn = wnp.where(drawn == 0, 1, drawn)
    trials = lax.floor(lax.log(drawn) / lax.log1p(lax.neg(p))) + 1
    return promotion.convert(trials, dtype)


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Counts of events where ``lam`` are expected; -1 where ``lam`` is NaN.

    >>> poisson(keys.key(0), 0.0).item()
    0
    """
    if out_sharding is not None:
        return devices.placed(lambda: poisson(key, lam, shape, dtype), out_sharding=out_sharding)
    typed = keys.single("poisson", key)
    target = _integer_dtype("poisson", dtype)
    if keys.key_impl(typed) != "threefry2x32":
        raise NotImplementedError(f"`poisson` is only implemented for the threefry2x32 RNG, not {keys.key_impl(typed)}")
    shape = distributions.joint_shape("poisson", shape, lam)
    lam = promotion.convert(promotion.broadcast_to(promotion.as_array(lam), shape), np.dtype(np.float32))
    return _poisson(typed, lam, shape=shape, dtype=target)


@jit(static_argnames=_STATIC)
def _poisson(key: Any, lam: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    few = wnp.isnan(lam) | (lam < 10)
    limit = dtype.type(dtypes.iinfo(dtype).max)
    counted = _poisson_counted(key, wnp.where(few, lam, 0), shape, dtype, limit)
    accepted = _poisson_accepted(keys.clone(key), wnp.where(few, 1e5, lam), shape, dtype, limit)
    return wnp.where(lam == 0, 0, lax.select(few, counted, accepted))


def _poisson_counted(key: Any, lam: Any, shape: tuple[int, ...], dtype: Any, limit: Any) -> Any:
    """Events until the waiting times are used up (Knuth): ``log_product`` sums the logarithms of uniform values."""

    def proceed(state: tuple[Any, ...]) -> Any:
        return wnp.any(state[3] > -lam) & (state[0] < limit)

    def event(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, k, key, log_product = state
        key, drawn = indexing.rows(keys.split(key))
        k = lax.select(log_product > -lam, k + 1, k)
        return i + 1, k, key, log_product + lax.log(sampling.uniform(drawn, shape, np.float32))

    first = 0, wnp.zeros(shape, dtype), key, wnp.zeros(shape, np.float32)
    return while_loop.while_loop(proceed, event, first)[1] - 1


def _poisson_accepted(key: Any, lam: Any, shape: tuple[int, ...], dtype: Any, limit: Any) -> Any:
    """Transformed rejection (Hormann's PTRS) for means of at least 10."""
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)
    log_lam = lax.log(lam)

    def propose(u_key: Any, v_key: Any) -> tuple[Any, Any]:
        u = sampling.uniform(u_key, shape, np.float32) - 0.5
        v = sampling.uniform(v_key, shape, np.float32)
        us = 0.5 - lax.abs(u)
        k = lax.floor((2 * a / us + b) * u + lam + 0.43)
        s = lax.log(v * inverse_alpha / (a / (us * us) + b))
        t = -lam + k * log_lam - lax.lgamma(k + 1)
        at_once = (us >= 0.07) & (v <= v_r)
        outside = (k < 0) | ((us < 0.013) & (v > us))
        return k, at_once | (~outside & (s <= t))

    return promotion.convert(_first_accepted(key, propose, shape, np.dtype(np.float32), limit), dtype)


def _first_accepted(
    key: Any, propose: Callable[[Any, Any], tuple[Any, Any]], shape: tuple[int, ...], dtype: Any, limit: Any
) -> Any:
    """For every element the last proposal that was accepted before all elements had one."""

    def proceed(state: tuple[Any, ...]) -> Any:
        return wnp.any(~state[2]) & (state[0] < limit)

    def draw(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, chosen, done, key = state
        key, u_key, v_key = indexing.rows(keys.split(key, 3))
        k, accepted = propose(u_key, v_key)
        return i + 1, lax.select(accepted, k, chosen), done | accepted, key

    first = 0, wnp.full(shape, -1, dtype), wnp.zeros(shape, bool), key
    return while_loop.while_loop(proceed, draw, first)[1]


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """How many of ``n`` trials of probability ``p`` succeed, as floats; NaN for negative ``n`` or ``p``.

    >>> binomial(keys.key(0), 10.0, 1.0).item()
    10.0
    """
    typed = keys.single("binomial", key)
    promotion.check_arraylike("binomial", n, p)
    target = sampling.float_dtype("binomial", dtype)
    return _binomial(typed, n, p, shape=distributions.joint_shape("binomial", shape, n, p), dtype=target)


@jit(static_argnames=_STATIC, inline=True)
def _binomial(key: Any, n: Any, p: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    (p,) = promotion.promote_dtypes_inexact(p)
    n = promotion.broadcast_to(promotion.convert(n, promotion.dtype_of(p)), shape)
    p = promotion.broadcast_to(p, shape)
    rare = p < 0.5  # the rarer outcome is counted
    q = lax.select(rare, p, 1.0 - p)
    no_count = wnp.isnan(n) | (n < 0)
    endless, no_chance = wnp.isinf(n), wnp.isnan(q) | (q < 0)
    undefined = no_chance | no_count
    q_is_nan = wnp.isnan(q)
    q = wnp.where(no_chance, 0.01, q)
    few = no_count | (n * q <= 10)
    n = lax.floor(n)
    limit = dtype.type(dtypes.finfo(dtype).max)
    counted = _binomial_counted(key, wnp.where(few, n, 0), q, shape, limit)
    accepted = _binomial_accepted(keys.clone(key), wnp.where(few, 1e4, n), wnp.where(few, 0.5, q), shape, limit)
    result = promotion.convert(lax.select(few, counted, accepted), dtype)
    result = wnp.where(undefined, np.nan, result)
    result = wnp.where(endless & ~undefined, np.inf, result)
    kept = rare | no_count | q_is_nan | endless
    return lax.select(kept, result, promotion.convert(n, dtype) - result)


def _binomial_counted(key: Any, n: Any, q: Any, shape: tuple[int, ...], limit: Any) -> Any:
    """Successes until the trials are used up: geometric values sum the trials that each took."""
    log_failure = lax.log1p(lax.neg(q))

    def proceed(state: tuple[Any, ...]) -> Any:
        return wnp.any(state[2] <= n) & (state[0] < limit)

    def success(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, k, trials, key = state
        drawn, key = indexing.rows(keys.split(key))
        k = lax.select(trials <= n, k + 1, k)
        u = sampling.uniform(drawn, shape, promotion.dtype_of(q))
        return i + 1, k, trials + lax.ceil(lax.log(u) / log_failure), key

    zeros = wnp.zeros(shape, promotion.dtype_of(q))
    return while_loop.while_loop(proceed, success, (0, zeros, zeros, key))[1] - 1


# log(k!) less the leading terms of Stirling's formula, k = 0 .. 9.
_STIRLING_REST = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
                  0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273,
                  0.00833056343336287)  # fmt: skip


def _stirling_rest(k: Any) -> Any:
    """The table and, beyond it, the series at 9: with it JAX draws its values."""
    table = wnp.asarray(_STIRLING_REST, promotion.dtype_of(k))
    small = wnp.clip(k, 0, 9)
    square = (small + 1) * (small + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (small + 1)
    return lax.select(k <= 9, table[promotion.convert(lax.floor(small), np.dtype(np.int32))], series)


def _binomial_accepted(key: Any, n: Any, q: Any, shape: tuple[int, ...], limit: Any) -> Any:
    """Transformed rejection (Hormann's BTRS) for means of at least 10."""
    deviation = lax.sqrt(n * q * (1 - q))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * q
    c = n * q + 0.5
    v_r = 0.92 - 4.2 / b
    r = q / (1 - q)
    alpha = (2.83 + 5.1 / b) * deviation
    m = lax.floor((n + 1) * q)
    dtype = promotion.dtype_of(q)

    def propose(u_key: Any, v_key: Any) -> tuple[Any, Any]:
        u = sampling.uniform(u_key, shape, dtype)
        v = sampling.uniform(v_key, shape, dtype)
        u = u - 0.5
        us = 0.5 - lax.abs(u)
        k = lax.floor((2 * a / us + b) * u + c)
        bound = (m + 0.5) * lax.log((m + 1) / (r * (n - m + 1)))
        bound = bound + (n + 1) * lax.log((n - m + 1) / (n - k + 1))
        bound = bound + (k + 0.5) * lax.log(r * (n - k + 1) / (k + 1))
        bound = bound + _stirling_rest(m) + _stirling_rest(n - m) - _stirling_rest(k) - _stirling_rest(n - k)
        at_once = (us >= 0.07) & (v <= v_r)
        outside = (k < 0) | (k > n)
        return k, at_once | (~outside & (lax.log(v * alpha / (a / (us * us) + b)) <= bound))

    return _first_accepted(key, propose, shape, dtype, limit)


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1
) -> Array:  # fmt: skip
    """How ``n`` trials fall into categories of probabilities ``p``, the last axis; ``shape`` has that axis too.

    >>> multinomial(keys.key(0), 10.0, np.array([0.0, 1.0])).tolist()
    [0.0, 10.0]
    """
    typed = keys.single("multinomial", key)
    promotion.check_arraylike("multinomial", n, p)
    n, p = promotion.promote_dtypes_inexact(n, p)
    shape = distributions.shape_around("multinomial", shape, promotion.shape_of(p))
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, "multinomial")
    n, p = promotion.broadcast_to(n, shape[:-1]), wnp.moveaxis(promotion.broadcast_to(p, shape), -1, 0)
    rest = lax.cumsum(p, axis=0, reverse=True)
    ratios = p / wnp.where(rest == 0, 1, rest)

    def category(left: Any, given: tuple[Any, Any]) -> tuple[Any, Any]:
        ratio, key = given
        count = binomial(key, left, wnp.clip(ratio, 0, 1), dtype=promotion.dtype_of(left))
        return left - count, count

    category_keys = keys.split(typed, promotion.shape_of(ratios)[0])
    _, counts = scan.scan(category, n, (ratios, category_keys), unroll=unroll)
    return promotion.convert(wnp.moveaxis(counts, 0, -1), target)
