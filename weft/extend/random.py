"""weft.extend.random: the generators of random bits, and the hash beneath threefry, under JAX's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import operations as lax
from weft._base import unbuilt
from weft.random import prng, rbg
from weft.random.custom_prng import define_prng_impl
from weft.random.keys import key
from weft.random.threefry import threefry2x32_p

__all__ = [
    "define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry2x32_p", "threefry_2x32",
    "threefry_prng_impl", "unsafe_rbg_prng_impl",
]  # fmt: skip

threefry_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl = prng.THREEFRY, rbg.RBG, rbg.UNSAFE_RBG


def random_seed(seeds: Any, impl: prng.PRNGImpl) -> Any:
    """A key of a generator from each integer."""
    return key(seeds, impl=impl) if np.ndim(seeds) == 0 else prng.random_seed_p.bind(seeds, impl=impl)


def seed_with_impl(impl: prng.PRNGImpl, seed: Any) -> Any:
    """A key of a generator from an integer."""
    return random_seed(seed, impl)


def threefry_2x32(keypair: Any, count: Any) -> Any:
    """Threefry's hash of an array of u32 by a key u32[2]: the first half of the elements with the second half.

    >>> import weft.numpy as jnp
    >>> weft.extend.random.threefry_2x32(jnp.array([1, 2], "uint32"), jnp.arange(2, dtype="uint32")).shape
    (2,)
    """
    if np.dtype(keypair.dtype) != np.uint32 or np.dtype(count.dtype) != np.uint32 or keypair.shape != (2,):
        raise TypeError(f"threefry_2x32 takes a key u32[2] and counts of uint32, got {keypair.dtype}, {count.dtype}")
    first, second = (lax.squeeze(lax.slice_in_dim(keypair, i, i + 1), (0,)) for i in (0, 1))
    flat = lax.reshape(count, (count.size,))
    even = lax.concatenate([flat, lax.full((1,), 0, np.uint32)], 0) if count.size % 2 else flat
    half = even.shape[0] // 2
    low, high = lax.slice_in_dim(even, 0, half), lax.slice_in_dim(even, half, 2 * half)
    keys = [lax.broadcast_in_dim(word, (half,), ()) for word in (first, second)]
    words = [threefry2x32_p.bind(*keys, low, high, output=output) for output in ("first", "second")]
    return lax.reshape(lax.slice_in_dim(lax.concatenate(words, 0), 0, count.size), count.shape)


def __getattr__(name: str) -> Any:
    return unbuilt.missing("weft.extend.random", name)
