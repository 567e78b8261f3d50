"""Random orders and choices: permutation, choice and categorical, with and without replacement.

A permutation sorts by fresh random keys, as often as keeps the chance of equal keys small; a choice without
replacement is the head of a permutation or, with probabilities, the largest of Gumbel-perturbed logits::

    permutation(key, 10)  ->  iota, (split, random_bits, sort) once
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, bins, promotion, rearrange, reductions
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic, elementary
from weft.numpy.subscripts import indexing, taking
from weft.random import distributions, keys, sampling

jit = jit_module.jit


def _rounds(shape: tuple[int, ...]) -> int:
    """How often elements are sorted by random bits: three times the bits that tell them apart."""
    return math.ceil(3 * math.log(max(1, math.prod(shape))) / math.log(2**32 - 1))


@functools.partial(jit_module.jit, static_argnames=("axis", "rounds"))
def _shuffle(key: Any, x: Any, *, axis: int, rounds: int) -> Any:
    shape = promotion.shape_of(x)
    for _ in range(rounds):
        key, drawn = indexing.rows(keys.split(key))
        _, x = lax.sort_key_val(sampling.raw_bits(drawn, 32, shape), x, axis)
    return x


@functools.partial(jit_module.jit, static_argnames=("size", "rounds"))
def _shuffled_range(key: Any, *, size: int, rounds: int) -> Any:
    """``_shuffle`` of the range, as one program: its first round then sorts positions alone."""
    return _shuffle(key, creation.arange(size), axis=0, rounds=rounds)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None) -> Array:
    """``x`` in random order along ``axis`` (``independent``: each line in its own), or a random order of ``range(x)``.

    >>> sorted(permutation(keys.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    if out_sharding is not None:
        return devices.placed(lambda: permutation(key, x, axis, independent), out_sharding=out_sharding)
    typed = keys.single("permutation", key)
    promotion.check_arraylike("permutation", x)
    rank = len(promotion.shape_of(x))
    axis = axes.canonical_axis(axis, rank or 1)
    if not rank:
        if not dtypes.issubdtype(promotion.dtype_of(x), np.integer):
            raise TypeError("x must be an integer or at least 1-dimensional")
        size = axes.concrete_int(x, "argument x of jax.random.permutation()")
        if isinstance(typed, runtime.Array):
            return _shuffled_range(typed, size=max(size, 0), rounds=_rounds((size,)))
        return _shuffle(typed, creation.arange(size), axis=axis, rounds=_rounds((size,)))
    x = promotion.as_array(x)
    if independent or rank == 1:
        return _shuffle(typed, x, axis=axis, rounds=_rounds(promotion.shape_of(x)))
    size = promotion.shape_of(x)[axis]
    order = _shuffle(typed, creation.arange(size), axis=0, rounds=_rounds((size,)))
    return taking.take(x, order, axis, unique_indices=True)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0, mode: str | None = None
) -> Array:
    """Elements of ``a`` along ``axis`` (or of ``range(a)``) drawn evenly or with probabilities ``p``.

    ``mode`` is that of ``gumbel``, which draws without replacement when ``p`` is given. ValueError for more draws
    without replacement than there are elements, and for probabilities of another length.

    >>> choice(keys.key(0), 4, (2,)).shape
    (2,)
    """
    typed = keys.single("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of jax.random.choice must be a sequence, got {shape}")
    promotion.check_arraylike("choice", a)
    a_shape = promotion.shape_of(a)
    axis = axes.canonical_axis(axis, len(a_shape) or 1)
    if a_shape:
        a = promotion.as_array(a)
        count = a_shape[axis]
    else:
        count = axes.concrete_int(a, "The error occurred in jax.random.choice()")
    wanted = axes.canonical_shape(shape)
    draws = math.prod(wanted)
    if draws == 0:
        return creation.zeros(wanted, promotion.dtype_of(a))
    if count <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and draws > count:
        raise ValueError(
            f"Cannot take a larger sample (size {draws}) than population (size {count}) when 'replace=False'"
        )
    if p is None and not replace:
        shuffled = permutation(typed, a if a_shape else count, axis)
        drawn = lax.slice_in_dim(shuffled, 0, draws, axis=axis)
    else:
        chosen = sampling.randint(typed, wanted, 0, count) if p is None else _by_probability(
            typed, p, count, wanted, replace, mode
        )  # fmt: skip
        drawn = taking.take(a, chosen, axis) if a_shape else chosen
    return sampling.as_shape(drawn, (*a_shape[:axis], *wanted, *a_shape[axis + 1 :]) if a_shape else wanted)


def _by_probability(key: Any, p: Any, count: int, shape: tuple[int, ...], replace: bool, mode: str | None) -> Any:
    """Indices drawn with probabilities ``p``: by the running sum, or as the largest of perturbed logarithms."""
    promotion.check_arraylike("choice", p)
    (p,) = promotion.promote_dtypes_inexact(p)
    if promotion.shape_of(p) != (count,):
        raise ValueError(
            "p must be None or a 1D vector with the same size as a.shape[axis]. "
            f"p has shape {promotion.shape_of(p)} and a.shape[axis] is {count}."
        )
    dtype = promotion.dtype_of(p)
    if replace:
        so_far = reductions.cumsum(p)
        drawn = arithmetic.subtract(1, sampling.uniform(key, shape, dtype))
        chosen = bins.searchsorted(so_far, arithmetic.multiply(indexing.index(so_far, -1), drawn))
    else:
        perturbed = arithmetic.add(distributions.gumbel(key, (count,), dtype, mode), elementary.log(p))
        chosen = lax.top_k(perturbed, k=math.prod(shape))[1]
    return promotion.convert(chosen, dtypes.canonicalize_dtype(np.int64))


def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True, mode: str | None = None, *,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Indices drawn with the probabilities that ``logits`` give along ``axis``.

    The logits without ``axis`` broadcast to the trailing part of ``shape``; without replacement the draws along the
    leading part differ from one another. ValueError for more of them than there are categories.

    >>> categorical(keys.key(0), np.zeros(3, np.float32)).shape
    ()
    """
    if out_sharding is not None:
        return devices.placed(lambda: categorical(key, logits, axis, shape, replace, mode), out_sharding=out_sharding)
    typed = keys.single("categorical", key)
    promotion.check_arraylike("categorical", logits)
    if promotion.dtype_of(logits) == np.bool_:
        raise ValueError("[categorical] logits must be numbers, got bool")
    extents = promotion.shape_of(logits)
    position = axes.canonical_axis(axis, len(extents))
    batch = extents[:position] + extents[position + 1 :]
    wanted = distributions.shape_around("categorical", shape, batch)
    prefix, spread = wanted[: len(wanted) - len(batch)], wanted[len(wanted) - len(batch) :]
    each = (
        *spread[:position],
        extents[position],
        *spread[position:],
    )  # the logits' shape, broadcast to the one asked for
    drawn_shape = (*prefix, *each) if replace else each
    noise = distributions.gumbel(typed, drawn_shape, promotion.inexact_dtype(promotion.dtype_of(logits)), mode)
    if replace:
        logits = lax.expand_dims(logits, tuple(range(len(prefix)))) if prefix else promotion.as_array(logits)
        return reductions.argmax(arithmetic.add(noise, logits), axis=position - len(extents))
    draws = math.prod(prefix)
    if draws > extents[position]:
        raise ValueError(
            f"Number of samples without replacement ({draws}) cannot exceed number of categories ({extents[position]})."
        )
    perturbed = rearrange.moveaxis(arithmetic.add(logits, noise), position, -1)
    indices = lax.top_k(perturbed, k=draws)[1]
    return lax.reshape(rearrange.moveaxis(indices, -1, 0), wanted)
