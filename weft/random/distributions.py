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
from weft.higher import devices
from weft.higher import jit as jit_module
from weft.numpy import arithmetic, axes, elementary, indexing, promotion, reductions, selection
from weft.operations import functions
from weft.random import keys, sampling

jit = jit_module.jit
_ONE = np.float32(1)
_STATIC = ("shape", "dtype")
_uniform = sampling._uniform


def _const(value: Any, dtype: Any) -> Any:
    return np.asarray(value).astype(dtype)


def _sampler(name: str, key: Any, shape: Any, dtype: Any) -> tuple[Any, tuple[int, ...], Any]:
    return keys.single(name, key), axes.canonical_shape(shape), sampling.float_dtype(name, dtype)


def _joint_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape asked for, or that of the parameters; ValueError if they do not fit."""
    own = promotion.broadcast_shapes(*(promotion.shape_of(p) for p in parameters))
    if shape is None:
        return own
    wanted = axes.canonical_shape(shape)
    if promotion.broadcast_shapes(wanted, own) != wanted:
        raise ValueError(f"{name} requires the shape to be broadcast-compatible with its parameters: {wanted}, {own}")
    return wanted


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None) -> Any:
    """True with probability ``p``.

    >>> bernoulli(keys.key(0), 1.0).item()
    True
    """
    devices.check_placement(out_sharding=out_sharding)
    typed = keys.single("bernoulli", key)
    if mode != "low":
        raise NotImplementedError(f"weft.random.bernoulli with mode={mode!r} is not implemented yet")
    dtype = dtypes.canonicalize_dtype(promotion.dtype_of(p))
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype}.")
    p = promotion.convert(p, dtype)
    return _bernoulli(typed, p, shape=_joint_shape("bernoulli", shape, p))


@functools.partial(jit, static_argnames=("shape",))
def _bernoulli(key: Any, p: Any, *, shape: tuple[int, ...]) -> Any:
    drawn = _uniform(key, 0.0, 1.0, shape=shape, dtype=promotion.dtype_of(p))
    return lax.lt(*promotion.promote_shapes(drawn, p, name="less"))


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Values of the exponential distribution with mean 1.

    >>> exponential(keys.key(0), (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, shape, dtype = _sampler("exponential", key, shape, dtype)
    return _exponential(typed, shape=shape, dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _exponential(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    return lax.neg(lax.log1p(lax.neg(_uniform(key, 0.0, 1.0, shape=shape, dtype=dtype))))


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *, out_sharding: Any = None) -> Any:
    """Values of the Gumbel distribution; ``mode`` is ``low`` or, with twice the bits, ``high``.

    >>> gumbel(keys.key(0), (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, shape, dtype = _sampler("gumbel", key, shape, dtype)
    mode = ("high" if config.read("high_dynamic_range_gumbel") else "low") if mode is None else mode
    if mode not in ("high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    return _gumbel(typed, shape=shape, dtype=dtype, mode=mode)


@functools.partial(jit, static_argnames=(*_STATIC, "mode"))
def _gumbel(key: Any, *, shape: tuple[int, ...], dtype: Any, mode: str) -> Any:
    info = dtypes.finfo(dtype)
    if mode == "low":
        drawn = _uniform(key, minval=_const(info.tiny, dtype), maxval=1.0, shape=shape, dtype=dtype)
        return lax.neg(lax.log(lax.neg(lax.log(drawn))))
    high, low = indexing.rows(_uniform(key, minval=0.0, maxval=1.0, shape=(2, *shape), dtype=dtype))
    coarse = lax.ge(high, _const(0.5, dtype))
    finer = lax.add(lax.add(high, lax.mul(_const(2.0**-info.nmant, dtype), low)), _const(info.tiny, dtype))
    drawn = selection.where(coarse, high, finer)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(drawn)))))


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Values of the Laplace distribution.

    >>> laplace(keys.key(0), (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, shape, dtype = _sampler("laplace", key, shape, dtype)
    return _laplace(typed, shape=shape, dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _laplace(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    low = _const(-1.0 + float(dtypes.finfo(dtype).epsneg), dtype)
    drawn = _uniform(key, low, 1.0, shape=shape, dtype=dtype)
    return lax.mul(lax.sign(drawn), lax.log1p(lax.neg(lax.abs(drawn))))


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Values of the logistic distribution.

    >>> logistic(keys.key(0), (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, shape, dtype = _sampler("logistic", key, shape, dtype)
    return _logistic(typed, shape=shape, dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _logistic(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, _const(dtypes.finfo(dtype).tiny, dtype), 1.0, shape=shape, dtype=dtype)
    return lax.sub(lax.log(drawn), lax.log1p(lax.neg(drawn)))


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Values of the Cauchy distribution.

    >>> cauchy(keys.key(0), (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, shape, dtype = _sampler("cauchy", key, shape, dtype)
    return _cauchy(typed, shape=shape, dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _cauchy(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, _const(dtypes.finfo(dtype).eps, dtype), 1.0, shape=shape, dtype=dtype)
    return lax.tan(lax.mul(_const(np.pi, dtype), lax.sub(drawn, _const(0.5, dtype))))


def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """-1 or 1, each with probability one half, as the default integer unless ``dtype`` says otherwise.

    >>> abs(rademacher(keys.key(0)).item())
    1
    """
    devices.check_placement(out_sharding=out_sharding)
    typed = keys.single("rademacher", key)
    target = dtypes.canonicalize_dtype(np.int64) if dtype is None else dtypes.check_user_dtype(dtype, "rademacher")
    return _rademacher(typed, shape=axes.canonical_shape(shape), dtype=target)


@functools.partial(jit, static_argnames=_STATIC)
def _rademacher(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    heads = promotion.convert(bernoulli(key, 0.5, shape), dtype)
    return lax.sub(lax.mul(_const(2, dtype), heads), _const(1, dtype))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Normal values between ``lower`` and ``upper``.

    >>> truncated_normal(keys.key(0), -1.0, 1.0, (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, _, dtype = _sampler("truncated_normal", key, (), dtype)
    shape = _joint_shape("truncated_normal", shape, lower, upper)
    return _truncated_normal(typed, lower, upper, shape=shape, dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _truncated_normal(key: Any, lower: Any, upper: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    root = _const(np.sqrt(2), dtype)
    lower, upper = promotion.convert(lower, dtype), promotion.convert(upper, dtype)
    low = lax.erf(lax.div(lower, root))
    drawn = _uniform(key, low, lax.erf(lax.div(upper, root)), shape=shape, dtype=dtype)
    result = lax.mul(root, functions.erf_inv_drawn(drawn))
    floor = lax.nextafter(lax.stop_gradient(lower), _const(np.inf, dtype))
    ceiling = lax.nextafter(lax.stop_gradient(upper), _const(-np.inf, dtype))
    return selection.clip(result, floor, ceiling)


def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True, mode: str | None = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Indices drawn with the probabilities that ``logits`` give along ``axis``; only with replacement.

    >>> categorical(keys.key(0), np.zeros(3, np.float32)).shape
    ()
    """
    devices.check_placement(out_sharding=out_sharding)
    typed = keys.single("categorical", key)
    if not replace:
        raise NotImplementedError("weft.random.categorical without replacement is not implemented yet")
    promotion.check_arraylike("categorical", logits)
    extents = promotion.shape_of(logits)
    place = axes.canonical_axis(axis, len(extents))
    batch = extents[:place] + extents[place + 1 :]
    wanted = batch if shape is None else axes.canonical_shape(shape)
    prefix = wanted[: len(wanted) - len(batch)]
    if promotion.broadcast_shapes(wanted, batch) != wanted:
        raise ValueError(f"categorical requires shape to be compatible with the batch shape: {wanted}, {batch}")
    drawn_shape = (*prefix, *extents)
    noise = gumbel(typed, drawn_shape, promotion.inexact_dtype(promotion.dtype_of(logits)), mode)
    logits = lax.expand_dims(logits, tuple(range(len(prefix)))) if prefix else promotion.as_array(logits)
    return reductions.argmax(arithmetic.add(noise, logits), axis=place - len(extents))


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0, mode: str | None = None
) -> Any:
    """Elements of ``range(a)`` drawn evenly with replacement; arrays and probabilities are not built yet.

    >>> choice(keys.key(0), 4, (2,)).shape
    (2,)
    """
    typed = keys.single("choice", key)
    if promotion.shape_of(a) or not replace or p is not None:
        raise NotImplementedError(
            "weft.random.choice from arrays, without replacement or with p is not implemented yet"
        )
    axes.canonical_axis(axis, 1)
    if mode is not None:
        raise NotImplementedError(f"weft.random.choice with mode={mode!r} is not implemented yet")
    wanted = axes.canonical_shape(shape)
    count = axes.concrete_int(a, "The error occurred in jax.random.choice()")
    if count <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    return sampling.as_shape(sampling.randint(typed, wanted, 0, count), wanted)


def lognormal(key: Any, sigma: Any = _ONE, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Exponentials of normal values with standard deviation ``sigma``.

    >>> lognormal(keys.key(0), shape=(3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, _, dtype = _sampler("lognormal", key, (), dtype)
    drawn = sampling.normal(typed, _joint_shape("lognormal", shape, sigma), dtype)
    return elementary.exp(arithmetic.multiply(drawn, promotion.convert(sigma, dtype)))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Values of the Pareto distribution with exponent ``b``.

    >>> pareto(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, _, dtype = _sampler("pareto", key, (), dtype)
    return _pareto(typed, b, shape=_joint_shape("pareto", shape, b), dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _pareto(key: Any, b: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    b = promotion.convert(b, dtype)
    drawn = exponential(key, shape, dtype)
    return lax.exp(lax.div(*promotion.promote_shapes(drawn, b)))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Values of the Weibull distribution.

    >>> weibull_min(keys.key(0), 1.0, 2.0, (3,)).shape
    (3,)
    """
    typed, shape, dtype = _sampler("weibull_min", key, shape, dtype)
    return _weibull_min(typed, scale, concentration, shape=shape, dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _weibull_min(key: Any, scale: Any, concentration: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, 0, 1, shape=shape, dtype=dtype)
    waited = lax.neg(lax.log1p(lax.neg(drawn)))
    power = arithmetic.power(waited, arithmetic.true_divide(1.0, concentration))
    return arithmetic.multiply(power, promotion.convert(scale, dtype))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Values of the Rayleigh distribution.

    >>> rayleigh(keys.key(0), 2.0, (3,)).shape
    (3,)
    """
    devices.check_placement(out_sharding=out_sharding)
    typed, _, dtype = _sampler("rayleigh", key, (), dtype)
    return _rayleigh(typed, scale, shape=_joint_shape("rayleigh", shape, scale), dtype=dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _rayleigh(key: Any, scale: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = _uniform(key, 0.0, 1.0, shape=shape, dtype=dtype)
    scale = promotion.broadcast_to(promotion.convert(scale, dtype), shape)
    return lax.mul(scale, lax.sqrt(lax.mul(lax.log(drawn), _const(-2, dtype))))
