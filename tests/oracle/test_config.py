"""Every option of JAX is known here: it works, is accepted without effect, or says that weft lacks what it sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp
import weft.random
from weft import config


def test_every_option_is_known():
    names = {name.removeprefix("jax_") for name in jax.config.values}
    assert names <= {*config.OPTIONS, *config.INERT, *config.ABSENT}


def test_defaults_are_those_of_jax():
    # enum members there, strings here; the tests set JAX_PLATFORMS
    differing = {"default_prng_impl", "explicit_x64_dtypes", "numpy_dtype_promotion", "platforms"}
    for name, value in jax.config.values.items():
        short = name.removeprefix("jax_")
        if short in config.OPTIONS and short not in differing:
            assert config.OPTIONS[short].default == value, name


@pytest.mark.parametrize("name", ["rocm_visible_devices", "jax_cuda_visible_devices"])
def test_options_of_absent_parts(name):
    with pytest.raises(NotImplementedError, match=name):
        config.update(name, 3)


def test_every_context_manager_exists():
    for name in config.CONTEXTS:
        if hasattr(jax, name):
            assert hasattr(weft, name), name


PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda np_, a: a @ a,
    "einsum": lambda np_, a: np_.einsum("ij,jk->ik", a, a),
    "vdot": lambda np_, a: np_.vdot(a, a),
    "tensordot": lambda np_, a: np_.tensordot(a, a),
    "inner": lambda np_, a: np_.inner(a, a),
    "explicit": lambda np_, a: np_.dot(a, a, precision="high"),
    "integers": lambda np_, a: np_.matmul(a.astype(int), a.astype(int)),
}


@pytest.mark.parametrize("word", ["default", "high", "highest", "bfloat16", "float32", "BF16_BF16_F32_X3"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul_precision(name: str, word: str) -> None:
    product = PRODUCTS[name]
    with jax.default_matmul_precision(word):
        expected = str(jax.make_jaxpr(lambda a: product(jnp, a))(jnp.ones((3, 3))))
    with weft.default_matmul_precision(word):
        assert str(weft.make_jaxpr(lambda a: product(wnp, a))(wnp.ones((3, 3)))) == expected


@pytest.mark.parametrize("offset", [5, -3, 2**31 - 1])
@pytest.mark.parametrize("seed", [0, 7, -1, 2**31 - 1, 2**33, np.int64(-1), np.uint32(4)], ids=repr)
def test_seed_offset(seed: Any, offset: int) -> None:
    try:
        jax.config.update("jax_random_seed_offset", offset)
        expected = jax.random.PRNGKey(seed).tolist()
        text = str(jax.make_jaxpr(jax.random.PRNGKey)(3))
    finally:
        jax.config.update("jax_random_seed_offset", 0)
    with config.context("random_seed_offset", offset):
        assert weft.random.PRNGKey(seed).tolist() == expected
        assert str(weft.make_jaxpr(weft.random.PRNGKey)(3)) == text


RANKS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda np_, a, b: np_.add(a, b),
    "operator": lambda np_, a, b: a * b,
    "scalar": lambda np_, a, b: b * 2,
    "rank zero": lambda np_, a, b: b + np_.ones(()),
    "where": lambda np_, a, b: np_.where(b > 0, a, b),
    "broadcast": lambda np_, a, b: np_.broadcast_to(a, (2, 3)),
    "product": lambda np_, a, b: b @ a,
    "stacked product": lambda np_, a, b: np_.matmul(b, np_.ones((4, 3, 2))),
    "power": lambda np_, a, b: np_.power(b, a),
    "clip": lambda np_, a, b: np_.clip(b, a, a),
    "close": lambda np_, a, b: np_.allclose(a, b),
    "var": lambda np_, a, b: np_.var(b, axis=0),
    "masked sum": lambda np_, a, b: np_.sum(b, where=a > 0),
    "linspace": lambda np_, a, b: np_.linspace(a, a + 1, 4),
    "outer": lambda np_, a, b: np_.outer(a, a),
    "select": lambda np_, a, b: np_.select([b > 0], [a], 0.0),
    "cross": lambda np_, a, b: np_.cross(b, a),
    "ldexp": lambda np_, a, b: np_.ldexp(b, np_.ones(3, int)),
}


@pytest.mark.parametrize("name", RANKS)
def test_rank_promotion_is_refused_where_jax_refuses(name: str) -> None:
    def refused(library: Any, np_: Any) -> bool:
        with library.numpy_rank_promotion("raise"):
            try:
                RANKS[name](np_, np_.ones(3), np_.ones((2, 3)))
            except ValueError:
                return True
        return False

    assert refused(weft, wnp) == refused(jax, jnp)
