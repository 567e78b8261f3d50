"""The generators rbg and unsafe_rbg beside JAX: keys, bits, distributions, jit, vmap, raw keys."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft import numpy as wnp
from weft import random

from .test_bits import same

IMPLS = ("rbg", "unsafe_rbg")
MODULES = (weft, jax)


def both(draw: Callable[[Any, Any], Any], impl: str) -> None:
    """``draw`` gives the same arrays from a key of weft as from one of JAX; each in one program."""
    found, expected = (m.jit(lambda key, m=m: draw(m.random, key))(m.random.key(7, impl=impl)) for m in MODULES)
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        same(ours, theirs)


def derived(r: Any, key: Any) -> list[Any]:
    some = [r.split(key), r.split(key, (2, 3)), r.split(key, ()), r.fold_in(key, 9), r.clone(key)]
    return [r.key_data(each) for each in some]


def drawn(r: Any, key: Any) -> list[Any]:
    return [
        *(r.bits(key, (3, 5), dtype) for dtype in ("uint8", "uint16", "uint32")),
        *(r.bits(key, shape) for shape in ((), (2, 0))),
        r.uniform(key, (101,)), r.normal(key, (101,)), r.normal(key, (5,), "complex64"), r.randint(key, (9,), -5, 1000),
        r.permutation(key, 20), r.categorical(key, np.ones(5, np.float32), shape=(20,)),
    ]  # fmt: skip


@pytest.mark.parametrize("impl", IMPLS)
def test_keys_and_values_are_those_of_jax(impl: str) -> None:
    both(derived, impl)
    both(drawn if impl == "rbg" else lambda r, key: (r.bits(key, (3, 5)), r.randint(key, (9,), -5, 1000)), impl)
    for seed in (0, -3, 2**31 - 1):
        same(random.PRNGKey(seed, impl=impl), jax.random.PRNGKey(seed, impl=impl))
    key = random.key(7, impl=impl)
    for eager, compiled in zip(derived(random, key), weft.jit(lambda k: derived(random, k))(key), strict=True):
        same(eager, compiled)
    same(random.normal(key, (6,)), jax.random.normal(jax.random.key(7, impl=impl), (6,)))


@pytest.mark.parametrize("impl", IMPLS)
def test_sixty_four_bits(impl: str) -> None:
    with weft.enable_x64(True), jax.enable_x64(True):
        both(lambda r, key: (r.bits(key, (5,), "uint64"), r.uniform(key, (5,))), impl)
        same(random.PRNGKey(2**40 + 3, impl=impl), jax.random.PRNGKey(2**40 + 3, impl=impl))


def test_gamma_draws_from_the_stream_of_each_key() -> None:
    def values(m: Any) -> Any:
        keys = m.random.split(m.random.key(7, impl="rbg"), 3)
        return m.vmap(lambda key: m.random.gamma(key, 2.0, (4,)))(keys)

    ours, theirs = (m.jit(values, static_argnums=0)(m) for m in MODULES)  # to the rounding of log and exp
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-5)


@pytest.mark.parametrize("impl", ("threefry2x32", *IMPLS))
def test_mapped_over_keys_and_data(impl: str) -> None:
    def mapped(m: Any) -> list[Any]:
        r, numbers = m.random, np.arange(4, dtype=np.uint32)
        table = r.split(r.key(1, impl=impl), (2, 3))
        row = table[0]

        def fold(keys: Any, data: Any) -> Any:
            return r.key_data(r.fold_in(keys, data))

        return [
            m.vmap(lambda key: r.bits(key, (4,)))(row), m.vmap(m.vmap(lambda key: r.uniform(key, (3,))), 1)(table),
            m.vmap(lambda key: r.key_data(r.split(key)))(row),
            m.vmap(lambda words: r.bits(r.wrap_key_data(words, impl=impl), (2,)), 1)(r.key_data(row).T),
            m.vmap(fold)(row, numbers[:3]), m.vmap(fold, (0, None))(row, 2), m.vmap(fold, (None, 0))(row[0], numbers),
            m.vmap(lambda key: m.vmap(lambda n: fold(key, n))(numbers))(row),
            m.vmap(lambda n: m.vmap(lambda key: fold(key, n))(row))(numbers),
        ]  # fmt: skip

    for ours, theirs in zip(*(m.jit(mapped, static_argnums=0)(m) for m in MODULES), strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("impl", ("threefry2x32", *IMPLS))
def test_programs_print_as_those_of_jax(impl: str) -> None:
    def texts(m: Any) -> list[str]:
        r = m.random
        table = r.split(r.key(1, impl=impl), (2, 3))
        words = r.PRNGKey(0, impl=impl)

        def use(key: Any) -> Any:
            return r.split(key, 3), r.fold_in(key, 1), r.bits(key, (2,)), r.key_data(key)

        programs = (
            m.make_jaxpr(use)(table[0, 0]), m.make_jaxpr(m.vmap(m.vmap(r.split), 1))(table),
            m.make_jaxpr(lambda w: r.wrap_key_data(w, impl=impl))(words),
            m.make_jaxpr(lambda seed: r.key(seed, impl=impl))(3),
        )  # fmt: skip
        return [repr(table), *map(str, programs)]

    assert texts(weft) == texts(jax)


def test_names_dtypes_and_words() -> None:
    for impl in IMPLS:
        keys = random.split(random.key(3, impl=impl), 2)
        assert random.key_impl(keys) == impl and keys.dtype is random.key_dtype(impl)
        assert random.key_impl(random.key(0, impl=keys.dtype)) == impl
        words = random.key_data(keys)
        assert words.shape == (2, 4)
        again = random.wrap_key_data(words, impl=impl)
        assert again.dtype is keys.dtype
        same(random.key_data(again), words)
    for keys in (random.key(3, impl="rbg"), random.key(0)):
        copied = pickle.loads(pickle.dumps(keys))
        assert copied.dtype is keys.dtype
        same(random.key_data(copied), random.key_data(keys))


@pytest.mark.parametrize("impl", IMPLS)
def test_as_the_default_generator(impl: str) -> None:
    def draw(m: Any) -> list[Any]:
        raw = m.random.PRNGKey(3)
        return [raw, m.random.split(raw), m.random.uniform(raw, (3,)), m.random.key_data(m.random.key(4))]

    with weft.default_prng_impl(impl), jax.default_prng_impl(impl):
        assert random.key_impl(random.key(0)) == random.key_impl(random.PRNGKey(0)) == impl
        for ours, theirs in zip(draw(weft), draw(jax), strict=True):
            same(ours, theirs)
    assert random.key_impl(random.key(0)) == "threefry2x32"


def test_errors() -> None:
    words = random.PRNGKey(0, impl="rbg")
    with pytest.raises(TypeError, match=r"end with \(2,\); got shape=\(4,\) for impl=threefry2x32"):
        random.bits(words)
    with pytest.raises(TypeError, match=r"end with \(4,\); got shape=\(2,\) for impl=rbg"):
        random.wrap_key_data(words[:2], impl="rbg")
    with pytest.raises(NotImplementedError, match="poisson"):
        random.poisson(random.key(0, impl="rbg"), 3.0)
    with pytest.raises(NotImplementedError, match=r"'philox2x32' is not implemented yet; use one of .*'rbg'"):
        random.key(0, impl="philox2x32")
    with pytest.raises(TypeError, match="key<rbg>"):
        wnp.where(True, random.key(0, impl="rbg"), random.key(0))
