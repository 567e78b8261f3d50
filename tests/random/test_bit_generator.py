"""lax.rng_bit_generator beside JAX's bits on CPUs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

# bits of JAX 0.10.2 on a CPU for the state [1, 2, 3, 4]
PHILOX = [0x1E8FE864, 0x4D5E0BD7, 0x4B87C9BE, 0x2D689201, 0x5273487B, 0x61C05696, 0xA4486574]
THREEFRY = [0x5DF433EC, 0x8617198E, 0x2C24A8A8, 0x9094FA5E, 0x91386643, 0x59491919, 0x4F97FB5B]
STATE = np.array([1, 2, 3, 4], np.uint32)


def test_words() -> None:
    for algorithm, words, count in ((0, PHILOX, 5), (1, THREEFRY, 7), (2, PHILOX, 5)):
        state, bits = lax.rng_bit_generator(STATE, (7,), algorithm=lax.RandomAlgorithm(algorithm))
        assert state.tolist() == [1, 2, count, 4] and bits.tolist() == words and bits.dtype == np.uint32


def test_other_dtypes_and_shapes() -> None:
    with weft.enable_x64(True):
        for algorithm, words in ((1, THREEFRY), (2, PHILOX)):
            _, wide = lax.rng_bit_generator(STATE, (3,), dtype="uint64", algorithm=lax.RandomAlgorithm(algorithm))
            assert wide.tolist() == [words[2 * k] | words[2 * k + 1] << 32 for k in range(3)]
            _, bytes_ = lax.rng_bit_generator(STATE, (5,), dtype="uint8", algorithm=lax.RandomAlgorithm(algorithm))
            assert bytes_.tolist() == [word & 255 for word in words[:5]]
        two = jnp.array([1 | 2 << 32, 3 | 4 << 32], "uint64")
        state, bits = lax.rng_bit_generator(two, (7,))
        assert bits.tolist() == PHILOX and state.tolist() == [1 | 2 << 32, 5 | 4 << 32]
    _, table = weft.jit(lambda s: lax.rng_bit_generator(s, (2, 3)))(STATE)
    assert table.ravel().tolist() == PHILOX[:6]
    full = np.array([1, 2, 2**32 - 1, 4], np.uint32)
    assert lax.rng_bit_generator(full, (8,))[0].tolist() == [1, 2, 1, 5]  # the counter carries


@pytest.mark.oracle
def test_threefry_of_several_dimensions() -> None:
    shapes = ((3, 4), (3, 5), (4, 3), (5, 3), (3, 3, 1), (3, 6, 2), ())
    algorithms = (lax.RandomAlgorithm.RNG_THREE_FRY, jax.lax.RandomAlgorithm.RNG_THREE_FRY)
    ours = weft.jit(lambda s: [lax.rng_bit_generator(s, shape, algorithm=algorithms[0]) for shape in shapes])(STATE)
    theirs = jax.jit(lambda s: [jax.lax.rng_bit_generator(s, shape, algorithm=algorithms[1]) for shape in shapes])(
        STATE
    )
    for (state, bits), (jax_state, jax_bits) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(state, jax_state)
        np.testing.assert_array_equal(bits, jax_bits)


def test_bad_input() -> None:
    with pytest.raises(TypeError, match=r"u32\[4\]"):
        lax.rng_bit_generator(STATE[:2], (3,))
    with pytest.raises(TypeError, match="unsigned"):
        lax.rng_bit_generator(STATE, (3,), dtype="int32")
