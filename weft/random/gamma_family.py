"""Gamma values by Marsaglia and Tsang's rejection method, and the distributions that are ratios of them.

Every element has a key of its own and runs its own loop until a value is accepted, so that a value depends on its key
and parameter alone. The derivative by the shape parameter is that of the inverse distribution function::

    gamma(key, a)  ->  split[a.size], map(while: normal, uniform -> accept), custom_jvp: t * random_gamma_grad(a, out)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.batching import custom_vmap, vmap
from weft.batching import map as map_module
from weft.control import while_loop
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, reductions
from weft.numpy.pointwise import arithmetic
from weft.numpy.subscripts import indexing
from weft.random import distributions, keys, sampling

jit = jit_module.jit
_STATIC = ("shape", "dtype")
const = distributions.const
_FEW = 1000  # values that are faster made one by one (25 us beside 450 us for 5; 340 ms beside 175 ms for 100,000)


def _proposal(key: Any, slope: Any, dtype: Any) -> tuple[Any, Any]:
    """A normal value ``x`` for which ``1 + slope * x`` is positive, and that sum."""
    one = const(1, dtype)

    def draw(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        key, drawn = indexing.rows(keys.split(state[0]))
        x = sampling.normal(drawn, (), dtype)
        return key, x, lax.add(one, lax.mul(x, slope))

    first = key, const(0, dtype), const(-1, dtype)
    _, x, v = while_loop.while_loop(lambda state: lax.le(state[2], const(0, dtype)), draw, first)
    return x, v


def _one(key: Any, a: Any, log_space: bool) -> Any:
    """One value (or its logarithm) for one key and one parameter (Marsaglia and Tsang 2000)."""
    dtype = promotion.dtype_of(a)
    one, third = const(1, dtype), const(1 / 3, dtype)
    at_least_one = lax.ge(a, one)
    d = lax.sub(lax.select(at_least_one, a, lax.add(a, one)), third)  # below 1: a value for a + 1, made smaller
    slope = lax.div(third, lax.sqrt(d))

    def rejected(state: tuple[Any, ...]) -> Any:
        _, square, v, u = state
        beyond_squeeze = lax.ge(u, lax.sub(one, lax.mul(const(0.0331, dtype), lax.mul(square, square))))
        excess = lax.mul(d, lax.add(lax.sub(one, v), lax.log(v)))
        beyond = lax.ge(lax.log(u), lax.add(lax.mul(square, const(0.5, dtype)), excess))
        return lax.bitwise_and(beyond_squeeze, beyond)

    def draw(state: tuple[Any, ...]) -> tuple[Any, ...]:
        key, x_key, u_key = indexing.rows(keys.split(state[0], 3))
        x, v = _proposal(x_key, slope, dtype)
        return key, lax.mul(x, x), lax.mul(lax.mul(v, v), v), sampling.uniform(u_key, (), dtype)

    key, boost_key = indexing.rows(keys.split(key))
    first = key, const(0, dtype), one, const(2, dtype)  # is rejected
    v = while_loop.while_loop(rejected, draw, first)[2]
    if log_space:
        waited = lax.neg(distributions.exponential(boost_key, (), dtype))
        no_boost = lax.bitwise_or(at_least_one, lax.eq(waited, const(0, dtype)))
        boost = lax.select(no_boost, const(0, dtype), lax.mul(waited, lax.div(one, a)))
        return lax.add(lax.add(lax.log(d), lax.log(v)), boost)
    drawn = lax.sub(one, sampling.uniform(boost_key, (), dtype))
    return lax.mul(lax.mul(d, v), lax.select(at_least_one, one, lax.pow(drawn, lax.div(one, a))))


def _one_by_one(one: Callable[..., Any], *elements: Any) -> Any:
    return map_module.map(lambda element: one(*element), elements)


@functools.partial(custom.custom_jvp, nondiff_argnums=(2,))
def _drawn(key: Any, a: Any, log_space: bool) -> Any:
    shape = promotion.shape_of(a)
    size = math.prod(shape)
    elements = keys.split(key, size), lax.reshape(a, (size,))
    one = functools.partial(_one, log_space=log_space)
    if keys.key_impl(key) != "threefry2x32":  # several keys of the others would draw from one stream
        return lax.reshape(custom_vmap.sequential_vmap(functools.partial(_one_by_one, one))(*elements), shape)
    if size < _FEW:
        return lax.reshape(_one_by_one(one, *elements), shape)
    return lax.reshape(vmap.vmap(one)(*elements), shape)


@_drawn.defjvp
def _drawn_jvp(log_space: bool, primals: Any, tangents: Any) -> Any:
    key, a = primals
    out = _drawn(key, a, log_space)
    if not log_space:
        return out, lax.mul(tangents[1], lax.random_gamma_grad(a, out))
    dtype = promotion.dtype_of(a)
    value = lax.exp(out)
    value = lax.select(lax.eq(out, lax.full_like(out, 0)), lax.full_like(out, np.finfo(dtype).tiny), value)
    return out, lax.mul(tangents[1], lax.div(lax.random_gamma_grad(a, value), value))


@jit(static_argnames=(*_STATIC, "log_space"))
def _gamma(key: Any, a: Any, *, shape: tuple[int, ...], dtype: Any, log_space: bool = False) -> Any:
    return _drawn(key, promotion.broadcast_to(promotion.convert(a, dtype), shape), log_space)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the gamma distribution with shape parameter ``a`` and scale 1; differentiable by ``a``.

    >>> gamma(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: gamma(key, a, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("gamma", key, (), dtype)
    return _gamma(typed, a, shape=distributions.joint_shape("gamma", shape, a), dtype=dtype)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Logarithms of gamma values, finite also for small ``a``, where the values themselves are rounded to 0.

    >>> loggamma(keys.key(0), 1e-3, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: loggamma(key, a, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("loggamma", key, (), dtype)
    return _gamma(typed, a, shape=distributions.joint_shape("loggamma", shape, a), dtype=dtype, log_space=True)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the beta distribution with parameters ``a`` and ``b``.

    >>> beta(keys.key(0), 2.0, 3.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: beta(key, a, b, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("beta", key, (), dtype)
    return _beta(typed, a, b, shape=distributions.joint_shape("beta", shape, a, b), dtype=dtype)


@jit(static_argnames=_STATIC)
def _beta(key: Any, a: Any, b: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    key_a, key_b = indexing.rows(keys.split(key))
    log_a = _gamma(key_a, a, shape=shape, dtype=dtype, log_space=True)
    log_b = _gamma(key_b, b, shape=shape, dtype=dtype, log_space=True)
    largest = lax.max(log_a, log_b)
    a, b = lax.exp(lax.sub(log_a, largest)), lax.exp(lax.sub(log_b, largest))
    return lax.div(a, lax.add(a, b))


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Probability vectors along the last axis, with concentrations ``alpha``; ``shape`` is that of the batch.

    >>> dirichlet(keys.key(0), np.ones(3), (2,)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return devices.placed(lambda: dirichlet(key, alpha, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("dirichlet", key, (), dtype)
    extents = promotion.shape_of(alpha)
    if not extents:
        raise ValueError("dirichlet requires alpha.ndim >= 1, got alpha.ndim == 0")
    batch = distributions.shape_around("dirichlet", shape, extents[:-1])
    return _dirichlet(typed, alpha, shape=(*batch, extents[-1]), dtype=dtype)


@jit(static_argnames=_STATIC)
def _dirichlet(key: Any, alpha: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    logs = _gamma(key, alpha, shape=shape, dtype=dtype, log_space=True)
    largest = lax.stop_gradient(reductions.max(logs, axis=-1, keepdims=True, initial=-np.inf))
    weights = lax.exp(arithmetic.subtract(logs, largest))
    return arithmetic.true_divide(weights, reductions.sum(weights, axis=-1, keepdims=True))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the chi-square distribution with ``df`` degrees of freedom.

    >>> chisquare(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: chisquare(key, df, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("chisquare", key, (), dtype)
    return _chisquare(typed, df, shape=distributions.joint_shape("chisquare", shape, df), dtype=dtype)


@jit(static_argnames=_STATIC)
def _chisquare(key: Any, df: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    half = lax.div(promotion.convert(df, dtype), const(2, dtype))
    return lax.mul(lax.exp(_gamma(key, half, shape=shape, dtype=dtype, log_space=True)), const(2, dtype))


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the F distribution with ``dfnum`` and ``dfden`` degrees of freedom.

    >>> f(keys.key(0), 2.0, 3.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: f(key, dfnum, dfden, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("f", key, (), dtype)
    return _f(typed, dfnum, dfden, shape=distributions.joint_shape("f", shape, dfnum, dfden), dtype=dtype)


@jit(static_argnames=_STATIC)
def _f(key: Any, dfnum: Any, dfden: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    key_den, key_num = indexing.rows(keys.split(key))
    parts = []
    for part_key, df in ((key_num, dfnum), (key_den, dfden)):
        df = promotion.convert(df, dtype)
        parts.append(arithmetic.true_divide(_chisquare(part_key, df, shape=shape, dtype=dtype), df))
    return lax.div(*parts)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of Student's t distribution with ``df`` degrees of freedom.

    >>> t(keys.key(0), 3.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: t(key, df, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = distributions.sampler("t", key, (), dtype)
    return _t(typed, df, shape=distributions.joint_shape("t", shape, df), dtype=dtype)


@jit(static_argnames=_STATIC)
def _t(key: Any, df: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    key_normal, key_gamma = indexing.rows(keys.split(key))
    drawn = sampling.normal(key_normal, shape, dtype)
    half = lax.div(promotion.convert(df, dtype), const(2, dtype))
    divisor = _gamma(key_gamma, half, shape=shape, dtype=dtype)
    return lax.mul(drawn, lax.sqrt(arithmetic.true_divide(half, divisor)))


def generalized_normal(
    key: Any, p: float, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:  # fmt: skip
    """Values with density proportional to ``exp(-abs(x)**p)``.

    >>> generalized_normal(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: generalized_normal(key, p, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = distributions.sampler("generalized_normal", key, shape, dtype)
    return _generalized_normal(typed, p, shape=shape, dtype=dtype)


@jit(static_argnames=_STATIC)
def _generalized_normal(key: Any, p: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    key_gamma, key_sign = indexing.rows(keys.split(key))
    power = arithmetic.true_divide(1, p)
    sizes = arithmetic.power(_gamma(key_gamma, power, shape=shape, dtype=dtype), power)
    return arithmetic.multiply(distributions.rademacher(key_sign, shape, dtype), sizes)


def ball(
    key: Any, d: int, p: float = 2, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:  # fmt: skip
    """Points drawn evenly from the unit ball of the ``p``-norm in ``d`` dimensions, along a new last axis.

    >>> ball(keys.key(0), 3).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: ball(key, d, p, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = distributions.sampler("ball", key, shape, dtype)
    size = axes.concrete_int(d, "The error occurred in jax.random.ball()")
    return _ball(typed, p, shape=(*shape, size), dtype=dtype)


@jit(static_argnames=_STATIC)
def _ball(key: Any, p: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    key_point, key_radius = indexing.rows(keys.split(key))
    points = _generalized_normal(key_point, p, shape=shape, dtype=dtype)
    waited = distributions.exponential(key_radius, shape[:-1], dtype)
    total = arithmetic.add(reductions.sum(arithmetic.power(lax.abs(points), p), axis=-1), waited)
    norm = arithmetic.power(total, arithmetic.true_divide(1, p))
    return arithmetic.true_divide(points, lax.expand_dims(norm, (len(shape) - 1,)))
