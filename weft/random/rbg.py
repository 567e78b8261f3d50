"""The generators ``rbg`` and ``unsafe_rbg``: random bits from ``lax.rng_bit_generator``, by Philox, from keys u32[4].

They are cheaper than threefry for many bits. ``rbg`` splits and folds each half of a key by threefry, ``unsafe_rbg``
takes the words of new keys from the stream of the old one. The bits are those of JAX on CPUs::

    key(7, impl="rbg")                 ->   0 7 0 7
    random_bits[shape=s] key<rbg>[n]   ->   rng_bit_generator of the first key, for u32[n, *s]

Several keys at once (``vmap``) draw from the stream of the first, as in JAX: so bits under ``vmap`` are not those of
each key alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import operations as lax
from weft.random import bit_generator, prng

KEY_WORDS = 4
_ROWS = 10  # rows of four words that unsafe_rbg draws for one new key


def _seed(seeds: Any) -> Any:
    """The key of threefry, twice."""
    return _twice(prng.THREEFRY.seed(seeds))


def _twice(half: Any) -> Any:
    return lax.concatenate([half, half], len(half.shape) - 1)


def _halves(words: Any) -> list[Any]:
    axis = len(words.shape) - 1
    return [lax.slice_in_dim(words, first, first + prng.WORDS, axis=axis) for first in (0, prng.WORDS)]


def _joined(halves: list[Any]) -> Any:
    return lax.concatenate(halves, len(halves[0].shape) - 1)


def _split(words: Any, *, shape: tuple[int, ...]) -> Any:
    return _joined([prng.THREEFRY.split(half, shape=shape) for half in _halves(words)])


def _fold_in(words: Any, data: Any) -> Any:
    return _joined([prng.THREEFRY.fold_in(half, data) for half in _halves(words)])


def _bits(words: Any, *, bit_width: int, shape: tuple[int, ...]) -> Any:
    leading, dtype = words.shape[:-1], np.dtype(f"uint{bit_width}")
    target = (*leading, *shape)
    if 0 in target:
        return lax.full(target, 0, dtype)
    rows = lax.reshape(words, (math.prod(leading), KEY_WORDS))
    first = lax.squeeze(lax.slice_in_dim(rows, 0, 1), (0,))
    return bit_generator.rng_bit_generator(first, target, dtype)[1]


def _unsafe_split(words: Any, *, shape: tuple[int, ...]) -> Any:
    """The first of every ten rows of the stream."""
    rows = _bits(words, bit_width=32, shape=(_ROWS * math.prod(shape), KEY_WORDS))
    axis = len(rows.shape) - 2
    return lax.reshape(lax.slice_in_dim(rows, 0, None, _ROWS, axis), (*words.shape[:-1], *shape, KEY_WORDS))


def _unsafe_fold_in(words: Any, data: Any) -> Any:
    """The key, changed by the tenth row of the stream of the key of ``data``."""
    rows = _bits(_seed(data), bit_width=32, shape=(_ROWS, KEY_WORDS))
    axis = len(rows.shape) - 2
    change = lax.squeeze(lax.slice_in_dim(rows, _ROWS - 1, _ROWS, axis=axis), (axis,))
    target = np.broadcast_shapes(words.shape, change.shape)
    return lax.bitwise_xor(*(_to(x, target) for x in (words, change)))


def _to(x: Any, shape: tuple[int, ...]) -> Any:
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - len(x.shape), len(shape))))


RBG = prng.PRNGImpl("rbg", "rbg", KEY_WORDS, seed=_seed, split=_split, fold_in=_fold_in, bits=_bits)
UNSAFE_RBG = prng.PRNGImpl(
    "unsafe_rbg", "urbg", KEY_WORDS, seed=_seed, split=_unsafe_split, fold_in=_unsafe_fold_in, bits=_bits
)
