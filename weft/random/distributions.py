"""Distributions made from uniform and normal values by a formula: bernoulli, exponential, gumbel and others.

Each is an inner ``jit`` under JAX's name, and gives JAX's values up to the rounding of its formula::

    exponential(key, (3,))  ->  jit[name=_exponential]: jit[name=_uniform], neg, log1p, neg
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import config, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, reductions
from weft.numpy.pointwise import arithmetic, elementary, selection
from weft.numpy.subscripts import indexing
from weft.operations.pointwise import functions
from weft.random import keys, sampling

jit = jit_module.jit
_ONE = np.float32(1)
_STATIC = ("shape", "dtype")
_uniform = sampling._uniform


def const(value: Any, dtype: Any) -> Any:
    return np.asarray(value).astype(dtype)


def sampler(name: str, key: Any, shape: Any, dtype: Any) -> tuple[Any, tuple[int, ...], Any]:
    return keys.single(name, key), axes.canonical_shape(shape), sampling.float_dtype(name, dtype)


def joint_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape asked for, or that of the parameters; ValueError if they do not fit."""
    return shape_around(name, shape, promotion.broadcast_shapes(*(promotion.shape_of(p) for p in parameters)))


def shape_around(name: str, shape: Any, own: tuple[int, ...]) -> tuple[int, ...]:
    """``shape``, by default ``own``; ValueError if ``own`` does not broadcast to it."""
    if shape is None:
        return own
    wanted = axes.canonical_shape(shape)
    if promotion.broadcast_shapes(wanted, own) != wanted:
        raise ValueError(f"{name} requires the shape to be broadcast-compatible with its parameters: {wanted}, {own}")
    return wanted


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None) -> Array:
    """True with probability ``p``; ``mode`` is ``low`` or, with twice the bits, ``high``.

    >>> bernoulli(keys.key(0), 1.0).item()
    True
    """
    if out_sharding is not None:
        return devices.placed(lambda: bernoulli(key, p, shape, mode), out_sharding=out_sharding)
    typed = keys.single("bernoulli", key)
    if mode not in ("high", "low"):
        raise ValueError(f"got {mode=}, expected 'high' or 'low'")
    dtype = promotion.dtype_of(p)
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype}.")
    p = promotion.convert(p, dtype)
    return sampling.in_a_row(_bernoulli, typed, p, shape=joint_shape("bernoulli", shape, p), mode=mode)


@functools.partial(jit_module.jit, static_argnames=("shape", "mode"))
def _bernoulli(key: Any, p: Any, *, shape: tuple[int, ...], mode: str) -> Any:
    if mode == "high":
        dtype = promotion.dtype_of(p)
        high, low = indexing.rows(_uniform(key, 0.0, 1.0, shape=(2, *shape), dtype=dtype))
        low = arithmetic.multiply(low, 2.0 ** -dtypes.finfo(dtype).nmant)
        return lax.lt(low, lax.sub(*promotion.promote_shapes(p, high)))
    drawn = _uniform(key, 0.0, 1.0, shape=shape, dtype=promotion.dtype_of(p))
    return lax.lt(*promotion.promote_shapes(drawn, p))


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the exponential distribution with mean 1.

    >>> exponential(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: exponential(key, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = sampler("exponential", key, shape, dtype)
    return sampling.in_a_row(_exponential, typed, shape=shape, dtype=dtype)


@functools.partial(jit_module.jit, static_argnames=_STATIC)
def _exponential(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    return lax.neg(lax.log1p(lax.neg(_uniform(key, 0.0, 1.0, shape=shape, dtype=dtype))))


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *, out_sharding: Any = None) -> Array:
    """Values of the Gumbel distribution; ``mode`` is ``low`` or, with twice the bits, ``high``.

    >>> gumbel(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: gumbel(key, shape, dtype, mode), out_sharding=out_sharding)
    typed, shape, dtype = sampler("gumbel", key, shape, dtype)
    mode = ("high" if config.read("high_dynamic_range_gumbel") else "low") if mode is None else mode
    if mode not in ("high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    return sampling.in_a_row(_gumbel, typed, shape=shape, dtype=dtype, mode=mode)


@functools.partial(jit_module.jit, static_argnames=(*_STATIC, "mode"))
def _gumbel(key: Any, *, shape: tuple[int, ...], dtype: Any, mode: str) -> Any:
    info = dtypes.finfo(dtype)
    if mode == "low":
        drawn = _uniform(key, minval=const(info.tiny, dtype), maxval=1.0, shape=shape, dtype=dtype)
        return lax.neg(lax.log(lax.neg(lax.log(drawn))))
    high, low = indexing.rows(_uniform(key, minval=0.0, maxval=1.0, shape=(2, *shape), dtype=dtype))
    coarse = lax.ge(high, const(0.5, dtype))
    finer = lax.add(lax.add(high, lax.mul(const(2.0**-info.nmant, dtype), low)), const(info.tiny, dtype))
    drawn = selection.where(coarse, high, finer)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(drawn)))))


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the Laplace distribution.

    >>> laplace(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: laplace(key, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = sampler("laplace", key, shape, dtype)
    return sampling.in_a_row(_laplace, typed, shape=shape, dtype=dtype)


@functools.partial(jit_module.jit, static_argnames=_STATIC)
def _laplace(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    low = const(-1.0 + float(dtypes.finfo(dtype).epsneg), dtype)
    drawn = _uniform(key, low, 1.0, shape=shape, dtype=dtype)
    return lax.mul(lax.sign(drawn), lax.log1p(lax.neg(lax.abs(drawn))))


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the logistic distribution.

    >>> logistic(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: logistic(key, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = sampler("logistic", key, shape, dtype)
    return sampling.in_a_row(_logistic, typed, shape=shape, dtype=dtype)


@functools.partial(jit_module.jit, static_argnames=_STATIC)
def _logistic(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, const(dtypes.finfo(dtype).tiny, dtype), 1.0, shape=shape, dtype=dtype)
    return lax.sub(lax.log(drawn), lax.log1p(lax.neg(drawn)))


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the Cauchy distribution.

    >>> cauchy(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: cauchy(key, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = sampler("cauchy", key, shape, dtype)
    return sampling.in_a_row(_cauchy, typed, shape=shape, dtype=dtype)


@functools.partial(jit_module.jit, static_argnames=_STATIC)
def _cauchy(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, const(dtypes.finfo(dtype).eps, dtype), 1.0, shape=shape, dtype=dtype)
    return lax.tan(lax.mul(const(np.pi, dtype), lax.sub(drawn, const(0.5, dtype))))


def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """-1 or 1, each with probability one half, as the default integer unless ``dtype`` says otherwise.

    >>> abs(rademacher(keys.key(0)).item())
    1
    """
    if out_sharding is not None:
        return devices.placed(lambda: rademacher(key, shape, dtype), out_sharding=out_sharding)
    typed = keys.single("rademacher", key)
    target = dtypes.canonicalize_dtype(np.int64) if dtype is None else dtypes.check_user_dtype(dtype, "rademacher")
    return sampling.in_a_row(_rademacher, typed, shape=axes.canonical_shape(shape), dtype=target)


@functools.partial(jit_module.jit, static_argnames=_STATIC)
def _rademacher(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    heads = bernoulli(key, 0.5, shape)
    if dtype == np.bool_:  # neither -1 nor 1 is False
        return lax.full_like(heads, True)
    return lax.sub(lax.mul(const(2, dtype), promotion.convert(heads, dtype)), const(1, dtype))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Normal values between ``lower`` and ``upper``.

    >>> truncated_normal(keys.key(0), -1.0, 1.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: truncated_normal(key, lower, upper, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = sampler("truncated_normal", key, (), dtype)
    shape = joint_shape("truncated_normal", shape, lower, upper)
    return _truncated_normal(typed, lower, upper, shape=shape, dtype=dtype)


@jit(static_argnames=_STATIC)
def _truncated_normal(key: Any, lower: Any, upper: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    root = const(np.sqrt(2), dtype)
    lower, upper = promotion.convert(lower, dtype), promotion.convert(upper, dtype)
    low = lax.erf(lax.div(lower, root))
    drawn = _uniform(key, low, lax.erf(lax.div(upper, root)), shape=shape, dtype=dtype)
    result = lax.mul(root, functions.erf_inv_drawn(drawn))
    floor = lax.nextafter(lax.stop_gradient(lower), const(np.inf, dtype))
    ceiling = lax.nextafter(lax.stop_gradient(upper), const(-np.inf, dtype))
    return selection.clip(result, floor, ceiling)


def lognormal(key: Any, sigma: Any = _ONE, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Exponentials of normal values with standard deviation ``sigma``.

    >>> lognormal(keys.key(0), shape=(3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: lognormal(key, sigma, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = sampler("lognormal", key, (), dtype)
    drawn = sampling.normal(typed, joint_shape("lognormal", shape, sigma), dtype)
    return elementary.exp(arithmetic.multiply(drawn, promotion.convert(sigma, dtype)))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the Pareto distribution with exponent ``b``.

    >>> pareto(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: pareto(key, b, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = sampler("pareto", key, (), dtype)
    return _pareto(typed, b, shape=joint_shape("pareto", shape, b), dtype=dtype)


@jit(static_argnames=_STATIC)
def _pareto(key: Any, b: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    b = promotion.convert(b, dtype)
    drawn = exponential(key, shape, dtype)
    return lax.exp(lax.div(*promotion.promote_shapes(drawn, b)))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Values of the Weibull distribution.

    >>> weibull_min(keys.key(0), 1.0, 2.0, (3,)).shape
    (3,)
    """
    typed, shape, dtype = sampler("weibull_min", key, shape, dtype)
    return _weibull_min(typed, scale, concentration, shape=shape, dtype=dtype)


@jit(static_argnames=_STATIC)
def _weibull_min(key: Any, scale: Any, concentration: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, 0, 1, shape=shape, dtype=dtype)
    waited = lax.neg(lax.log1p(lax.neg(drawn)))
    power = arithmetic.power(waited, arithmetic.true_divide(1.0, concentration))
    return arithmetic.multiply(power, promotion.convert(scale, dtype))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the Rayleigh distribution.

    >>> rayleigh(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: rayleigh(key, scale, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = sampler("rayleigh", key, (), dtype)
    return _rayleigh(typed, scale, shape=joint_shape("rayleigh", shape, scale), dtype=dtype)


@jit(static_argnames=_STATIC)
def _rayleigh(key: Any, scale: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, 0.0, 1.0, shape=shape, dtype=dtype)
    scale = promotion.broadcast_to(promotion.convert(scale, dtype), shape)
    return lax.mul(scale, lax.sqrt(lax.mul(lax.log(drawn), const(-2, dtype))))


def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Lengths of three-dimensional vectors of standard normal values.

    >>> maxwell(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: maxwell(key, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = sampler("maxwell", key, shape, dtype)
    return _maxwell(typed, shape=shape, dtype=dtype)


@jit(static_argnames=_STATIC)
def _maxwell(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    vectors = sampling.normal(key, (*shape, 3), dtype)
    return lax.sqrt(reductions.sum(lax.mul(vectors, vectors), axis=-1))


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Maxwell values of random sign, times ``scale``, plus ``loc``.

    As in JAX the shape of ``loc`` and ``scale`` follows ``shape`` (twice if ``shape`` is empty).

    >>> double_sided_maxwell(keys.key(0), 0.0, 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: double_sided_maxwell(key, loc, scale, shape, dtype), out_sharding=out_sharding)
    typed, shape, dtype = sampler("double_sided_maxwell", key, shape, dtype)
    return _double_sided_maxwell(typed, loc, scale, shape=shape, dtype=dtype)


@jit(static_argnames=_STATIC)
def _double_sided_maxwell(key: Any, loc: Any, scale: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    own = promotion.broadcast_shapes(promotion.shape_of(loc), promotion.shape_of(scale))
    shape = (shape or own) + own
    size_key, sign_key = indexing.rows(keys.split(key))
    signed = lax.mul(rademacher(sign_key, shape, dtype), _maxwell(size_key, shape=shape, dtype=dtype))
    rank = len(shape)  # loc and scale stand for the last axes
    scale, loc = [promotion.with_rank(x, rank) if promotion.shape_of(x) else x for x in (scale, loc)]
    return arithmetic.add(arithmetic.multiply(signed, scale), loc)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Values whose density rises from ``left`` to ``mode`` and falls to ``right``, both in a straight line.

    >>> triangular(keys.key(0), -1.0, 0.0, 1.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: triangular(key, left, mode, right, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = sampler("triangular", key, (), dtype)
    return _triangular(typed, left, mode, right, shape=joint_shape("triangular", shape, left, mode, right), dtype=dtype)


@jit(static_argnames=_STATIC, inline=True)
def _triangular(key: Any, left: Any, mode: Any, right: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    left, mode, right = (promotion.broadcast_to(promotion.convert(x, dtype), shape) for x in (left, mode, right))
    drawn = _uniform(key, 0.0, 1.0, shape=shape, dtype=dtype)
    width, rise, fall = lax.sub(right, left), lax.sub(mode, left), lax.sub(right, mode)
    below = lax.add(left, lax.sqrt(lax.mul(lax.mul(drawn, width), rise)))
    rest = arithmetic.subtract(1, drawn)
    above = lax.sub(right, lax.sqrt(lax.mul(lax.mul(rest, width), fall)))
    return lax.select(lax.lt(drawn, lax.div(rise, width)), below, above)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the inverse Gaussian distribution with ``mean`` and scale 1 (Michael, Schucany and Haas 1976).

    >>> wald(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: wald(key, mean, shape, dtype), out_sharding=out_sharding)
    typed, _, dtype = sampler("wald", key, (), dtype)
    return _wald(typed, mean, shape=joint_shape("wald", shape, mean), dtype=dtype)


@jit(static_argnames=_STATIC)
def _wald(key: Any, mean: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    normal_key, choice_key = indexing.rows(keys.split(key))
    mean = promotion.broadcast_to(promotion.convert(mean, dtype), shape)
    y = lax.integer_pow(sampling.normal(normal_key, shape, dtype), 2)
    drawn = _uniform(choice_key, 0.0, 1.0, shape=shape, dtype=dtype)
    square = lax.integer_pow(mean, 2)
    under_root = lax.add(lax.mul(arithmetic.multiply(4, mean), y), lax.mul(square, lax.integer_pow(y, 2)))
    spread = lax.mul(arithmetic.true_divide(mean, 2), lax.sqrt(under_root))
    smaller = lax.sub(lax.add(mean, arithmetic.true_divide(lax.mul(square, y), 2)), spread)
    chosen = lax.le(drawn, lax.div(mean, lax.add(mean, smaller)))
    return lax.select(chosen, smaller, lax.div(square, smaller))
