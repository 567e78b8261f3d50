"""lax.rng_bit_generator: random bits from a state of four words, by Philox 4x32 or Threefry 2x32, as XLA's CPUs give.

The state is a key of two words and a counter of two; each block of bits takes one count::

    philox    key (s0, s1), counter (s2 + i, s3, s0, s1) -> words 4 i .. 4 i + 3
    threefry  key (s0, s1), counter (s2 + i, s3)         -> words 2 i, 2 i + 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core
from weft import operations as lax
from weft.operations.algorithms import RandomAlgorithm
from weft.operations.static import placed
from weft.random import threefry

_WORD = np.dtype(np.uint32)
# J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: multipliers, and steps of the keys.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def _u32(value: int) -> np.ndarray:
    return np.asarray(value, _WORD)


def _philox(key: tuple[Any, Any], counter: tuple[Any, Any, Any, Any]) -> tuple[Any, ...]:
    """The four words of every counter."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for number in range(_ROUNDS):
        if number:
            k0, k1 = lax.add(k0, _u32(_WEYL[0])), lax.add(k1, _u32(_WEYL[1]))
        first, second = lax.full_like(c0, _MULTIPLIERS[0]), lax.full_like(c2, _MULTIPLIERS[1])
        high0, low0 = lax.mulhi(first, c0), lax.mul(first, c0)
        high1, low1 = lax.mulhi(second, c2), lax.mul(second, c2)
        c0, c1, c2, c3 = (
            lax.bitwise_xor(lax.bitwise_xor(high1, c1), k0), low1, lax.bitwise_xor(lax.bitwise_xor(high0, c3), k1), low0
        )  # fmt: skip
    return c0, c1, c2, c3


def _counters(state: Sequence[Any], blocks: int) -> tuple[Any, ...]:
    """The key and the counter of every block, one word each."""
    s0, s1, s2, s3 = (lax.broadcast_in_dim(s, (blocks,), ()) for s in state)
    low = lax.add(s2, lax.iota(_WORD, blocks))
    return s0, s1, low, lax.add(s3, lax.convert_element_type(lax.lt(low, s2), _WORD))


def _philox_words(state: Sequence[Any], shape: tuple[int, ...], per: int) -> tuple[Any, int]:
    """``per`` words for each element, u32[*shape, per], in the order of elements; and the number of blocks."""
    count = math.prod(shape) * per
    blocks = -(-count // 4)
    s0, s1, low, high = _counters(state, blocks)
    columns = _philox((s0, s1), (low, high, s0, s1))
    table = lax.concatenate([lax.expand_dims(column, (1,)) for column in columns], 1)
    words = lax.slice_in_dim(lax.reshape(table, (blocks * 4,)), 0, count)
    return lax.reshape(words, (*shape, per)), blocks


def _threefry_words(state: Sequence[Any], shape: tuple[int, ...], per: int) -> tuple[Any, int]:
    """As above. A block gives one element of two words, or two elements that are neighbours along one dimension.

    That is the first of even extent; if there is none, the longest, with one element more.
    """
    blocks_shape, axis = shape, None
    if per == 1:
        shape = shape or (1,)
        axis = next((d for d, extent in enumerate(shape) if extent % 2 == 0), shape.index(max(shape)))
        blocks_shape = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    blocks = math.prod(blocks_shape)
    operands = _counters(state, blocks)
    pair = [
        lax.reshape(threefry.threefry2x32_p.bind(*operands, output=word), blocks_shape) for word in ("first", "second")
    ]
    joined = len(blocks_shape) if axis is None else axis + 1
    words = lax.concatenate([lax.expand_dims(word, (joined,)) for word in pair], joined)
    if axis is None:
        return words, blocks
    wide = lax.reshape(words, (*shape[:axis], 2 * blocks_shape[axis], *shape[axis + 1 :]))
    return lax.expand_dims(lax.slice_in_dim(wide, 0, shape[axis], axis=axis), (len(shape),)), blocks


def _state_words(key: Any) -> list[Any]:
    """The four words of a state u32[4] or u64[2], low words first."""
    aval = core.get_aval(key)
    if (aval.shape, aval.dtype) == ((4,), _WORD):
        return [lax.squeeze(lax.slice_in_dim(key, n, n + 1), (0,)) for n in range(4)]
    if (aval.shape, aval.dtype) == ((2,), np.dtype(np.uint64)):
        parts = [lax.squeeze(lax.slice_in_dim(key, n, n + 1), (0,)) for n in range(2)]
        words = []
        for part in parts:
            high = lax.shift_right_logical(part, np.asarray(32, np.uint64))
            words += [lax.convert_element_type(part, _WORD), lax.convert_element_type(high, _WORD)]
        return words
    raise TypeError(f"[rng_bit_generator] key must be u32[4] or u64[2], got {aval.dtype}{list(aval.shape)}")


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """The next state and random bits of ``shape`` and an unsigned ``dtype``, of a state ``key`` u32[4] or u64[2].

    ``algorithm`` is Philox 4x32-10 (``RNG_PHILOX``, and ``RNG_DEFAULT``) or Threefry 2x32 (``RNG_THREE_FRY``). Bits
    are those of XLA on CPUs. Narrow dtypes take the low bits of a word each, 64 bits two words, the low one first.
    Under ``vmap`` every state has a stream of its own. TypeError for other keys or dtypes.

    >>> import weft.numpy as jnp
    >>> state, bits = weft.lax.rng_bit_generator(jnp.array([1, 2, 3, 4], "uint32"), (2,))
    >>> state.tolist(), [hex(word) for word in bits.tolist()]
    ([1, 2, 4, 4], ['0x1e8fe864', '0x4d5e0bd7'])
    """
    if out_sharding is not None:
        state, bits = rng_bit_generator(key, shape, dtype, algorithm)
        return state, placed(lambda: bits, out_sharding, "rng_bit_generator")
    wanted = np.dtype(dtype)
    if wanted.kind != "u" or wanted.itemsize > 8:
        raise TypeError(f"[rng_bit_generator] dtype must be an unsigned integer, got {wanted}")
    shape = tuple(int(extent) for extent in shape)
    philox = RandomAlgorithm(algorithm) != RandomAlgorithm.RNG_THREE_FRY
    state = _state_words(key)
    per = 2 if wanted.itemsize == 8 else 1
    words, blocks = (_philox_words if philox else _threefry_words)(state, shape, per)
    parts = lax.convert_element_type(words, wanted)
    low, *high = (lax.slice_in_dim(parts, n, n + 1, axis=parts.ndim - 1) for n in range(per))
    bits = lax.bitwise_or(lax.shift_left(high[0], lax.full_like(high[0], 32)), low) if high else low
    return _advanced(key, state, blocks), lax.reshape(bits, shape)


def _advanced(key: Any, state: list[Any], blocks: int) -> Any:
    """The state behind so many blocks."""
    if core.get_aval(key).dtype == np.dtype(np.uint64):
        first, second = lax.slice_in_dim(key, 0, 1), lax.slice_in_dim(key, 1, 2)
        return lax.concatenate([first, lax.add(second, np.asarray(blocks, np.uint64))], 0)
    low = lax.add(state[2], _u32(blocks % 2**32))
    high = lax.add(state[3], lax.convert_element_type(lax.lt(low, state[2]), _WORD))
    return lax.concatenate([lax.expand_dims(word, (0,)) for word in (state[0], state[1], low, high)], 0)
