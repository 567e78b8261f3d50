"""Generators that a user defines: the same one defined in JAX gives the same keys and numbers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.extend.random import define_prng_impl

jax = pytest.importorskip("jax")
jax_random = pytest.importorskip("jax.extend.random")


def definition(np_: Any) -> dict[str, Any]:
    """A generator in functions of ``np_``, of two by two words."""

    def words(first: Any, count: int) -> Any:
        return np_.asarray(first).astype("uint32") * np_.arange(1, 1 + count, dtype="uint32")

    return {
        "key_shape": (2, 2),
        "seed": lambda s: words(s, 4).reshape(2, 2),
        "split": lambda key, shape: key + words(7, int(np.prod(shape))).reshape(*shape, 1, 1),
        "random_bits": lambda key, width, shape: (
            words(key.sum(), int(np.prod(shape))).reshape(shape) ^ key[0, 1]
        ).astype(f"uint{width}"),
        "fold_in": lambda key, data: key ^ np_.asarray(data).astype("uint32"),
        "name": "grid",
        "tag": "g",
    }


def uses(m: Any, key: Any) -> list[Any]:
    random, data = m.random, m.random.key_data
    keys = random.split(key, (2, 3))
    return [
        data(keys), data(random.fold_in(key, 9)), random.bits(key, (3,)), random.bits(key, (2, 2), "uint8"),
        random.uniform(key, (4,)), m.vmap(random.bits)(keys[0]), data(m.vmap(random.fold_in)(keys[1], np.arange(3))),
        data(m.vmap(random.fold_in, (None, 0))(key, np.arange(3))), data(keys[1, 2]), data(keys.reshape(6)),
        m.jit(lambda k: random.normal(random.split(k)[1], (2,)))(key), data(m.numpy.stack([key, key])),
        m.lax.scan(lambda k, _: (random.split(k)[0], random.bits(k)), key, length=3)[1],
        data(random.wrap_key_data(data(keys), impl=random.key_impl(key))[0, 1]),
    ]  # fmt: skip


def test_as_in_jax() -> None:
    own = define_prng_impl(**definition(wnp))
    theirs = jax_random.define_prng_impl(**definition(jax.numpy))
    for a, b in zip(uses(weft, weft.random.key(5, impl=own)), uses(jax, jax.random.key(5, impl=theirs)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert a.dtype == b.dtype
    for m, impl in ((weft, own), (jax, theirs)):
        key = m.random.key(5, impl=impl)
        assert (repr(impl), str(impl), str(key.dtype), repr(key)) == (
            "PRNGSpec('grid')", "g", "key<g>", "Array((), dtype=key<g>) overlaying:\n[[ 5 10]\n [15 20]]"
        )  # fmt: skip
        assert m.random.key_impl(key) == impl
    assert "random_bits[bit_width=32 shape=()] a" in str(
        weft.make_jaxpr(weft.random.bits)(weft.random.key(0, impl=own))
    )


def _seed(integer: Any) -> Any:
    return lax.full((1,), 0, np.uint32) + lax.convert_element_type(integer, np.uint32)


def _split(key: Any, shape: tuple[int, ...]) -> Any:
    return wnp.broadcast_to(key, (*shape, 1))


def _bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
    return wnp.full(shape, key[0], f"uint{width}")


def _fold_in(key: Any, data: Any) -> Any:
    return key + data


PARTS: dict[str, Any] = {"key_shape": (1,), "seed": _seed, "split": _split, "random_bits": _bits, "fold_in": _fold_in}


def test_equal_definitions_are_one_generator_and_keys_are_pickled() -> None:
    impl = define_prng_impl(**PARTS)
    assert impl == define_prng_impl(**PARTS) != define_prng_impl(**PARTS, name="another")
    key = weft.random.key(3, impl=impl)
    again = pickle.loads(pickle.dumps(key))
    assert again.dtype == key.dtype
    assert weft.random.bits(again) == weft.random.bits(key)


def test_results_of_wrong_shape_and_type_are_refused() -> None:
    wrong = define_prng_impl(**{**PARTS, "random_bits": lambda key, width, shape: wnp.zeros(shape)})
    with pytest.raises(TypeError, match=r"random_bits of the generator '<unnamed>' must give uint32\[2\]"):
        weft.random.bits(weft.random.key(0, impl=wrong), (2,))
    with pytest.raises(TypeError, match="seed of the generator"):
        weft.random.key(0, impl=define_prng_impl(**{**PARTS, "seed": lambda s: s}))
