"""Powers of integer arrays are products modulo 2**bits, under ``jit`` as without; so are quotients and remainders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft
import weft.numpy as jnp

TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with weft.enable_x64():
        yield


@pytest.mark.parametrize("name", TYPES)
def test_power_is_the_product_modulo_two_to_the_bits(name: str) -> None:
    dtype, rng = np.dtype(name), np.random.default_rng(0)
    bits, signed = dtype.itemsize * 8, dtype.kind == "i"
    bases = rng.integers(0, 2**bits, 64, dtype=np.uint64)
    bases[:5] = 0, 1, 2, 2**bits - 1, 2 ** (bits - 1)
    exponents = rng.integers(0, 2 ** (bits - signed), 64, dtype=np.uint64)
    exponents[::3] %= 70
    exponents[:5], exponents[5:9] = 2 ** (bits - signed) - 1, (0, 1, 63, 64)
    want = [pow(int(b), int(e), 2**bits) for b, e in zip(bases, exponents, strict=True)]
    x, e = bases.astype(dtype), exponents.astype(dtype)
    for power in (jnp.power, weft.jit(jnp.power)):
        got = np.asarray(power(x, e))
        assert got.dtype == dtype and got.astype(np.uint64).__and__(np.uint64(2**bits - 1)).tolist() == want
    # an exponent that is known is another program: lax.integer_pow
    assert int(jnp.power(x[9], e[9])) == int(got[9]) == int(weft.jit(lambda x: jnp.power(x, int(e[9])))(x[9]))


@pytest.mark.parametrize("name", ["int8", "uint16"])
def test_quotients_and_remainders_are_the_same_under_jit(name: str) -> None:
    limits = np.iinfo(name)
    x, y = (side.ravel() for side in np.meshgrid([limits.min, limits.max, 0, 1, 7, 100], [limits.max, 1, 3, 7]))
    x, y = x.astype(name), y.astype(name)
    for function, oracle in ((jnp.floor_divide, np.floor_divide), (jnp.remainder, np.remainder), (jnp.fmod, np.fmod)):
        assert np.array_equal(function(x, y), oracle(x, y)), function
        assert np.array_equal(weft.jit(function)(x, y), oracle(x, y)), function
