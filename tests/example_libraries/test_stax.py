"""weft.example_libraries.stax beside JAX's: the same parameters from the same key, the same outputs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.example_libraries import stax as jax_stax

import weft
import weft.numpy as jnp
from weft.example_libraries import stax

X = np.random.default_rng(0).normal(size=(4, 6, 6, 3)).astype(np.float32)


def network(s: Any) -> Any:
    branches = s.parallel(s.serial(s.Dense(4), s.Tanh), s.serial(s.Dense(4), s.BatchNorm(axis=0), s.Elu), s.Dense(4))
    return s.serial(
        s.Flatten, s.Relu, s.FanOut(3), branches, s.FanInSum, s.FanOut(2), s.parallel(s.Softplus, s.Identity),
        s.FanInConcat(), s.shape_dependent(lambda shape: s.Dense(shape[-1])), s.LogSoftmax,
    )  # fmt: skip


def convolutions(s: Any) -> Any:
    return s.serial(
        s.Conv(4, (3, 3), padding="SAME"), s.BatchNorm(), s.Relu, s.ConvTranspose(2, (3, 3), strides=(2, 2)),
        s.GeneralConv(("NHWC", "OIHW", "NHWC"), 3, (2, 2)), s.Flatten, s.Dense(2),
    )  # fmt: skip


def pools(s: Any) -> Any:
    return s.serial(s.MaxPool((2, 2), strides=(2, 2)), s.AvgPool((3, 3), padding="SAME"), s.SumPool((2, 2)))


def check(make: Any) -> None:
    init, apply = make(stax)
    jax_init, jax_apply = make(jax_stax)
    jax_shape, jax_params = jax.jit(jax_init, static_argnums=1)(jax.random.key(7), X.shape)
    shape, params = init(weft.random.key(7), X.shape)
    assert shape == tuple(int(extent) for extent in jax_shape)
    leaves, wanted = weft.tree.leaves(params), jax.tree.leaves(jax_params)
    assert [x.shape for x in leaves] == [x.shape for x in wanted]
    for ours, theirs in zip(leaves, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    out = weft.jit(apply)(params, X)
    assert out.shape == shape
    np.testing.assert_allclose(out, jax.jit(jax_apply)(jax_params, X), rtol=1e-3, atol=1e-4)


@pytest.mark.oracle
def test_networks_are_those_of_jax() -> None:
    check(network)


@pytest.mark.oracle
def test_convolutions_are_those_of_jax() -> None:
    check(convolutions)


@pytest.mark.oracle
def test_pools_are_those_of_jax() -> None:
    check(pools)


def test_a_network_learns() -> None:
    init, apply = stax.serial(stax.Dense(8), stax.Gelu, stax.Dense(1))
    x = jnp.linspace(-1, 1, 32)[:, None]
    shape, params = init(weft.random.key(0), (-1, 1))
    assert shape == (-1, 1)

    @weft.jit
    def step(params: Any) -> Any:
        loss, grads = weft.value_and_grad(lambda p: jnp.mean((apply(p, x) - 2 * x) ** 2))(params)
        return weft.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    losses = []
    for _ in range(60):
        params, loss = step(params)
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 5


def test_dropout() -> None:
    _, apply = stax.Dropout(0.75)
    out = np.asarray(apply((), jnp.ones(4000), rng=weft.random.key(0)))
    assert abs(np.mean(out == 0) - 0.25) < 0.03 and np.allclose(out[out != 0], 4 / 3)
    assert stax.Dropout(0.75, mode="eval")[1]((), jnp.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="random key"):
        apply((), jnp.ones(3))
