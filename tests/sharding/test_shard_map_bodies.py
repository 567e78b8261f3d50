"""shard_map of many programs equals a loop over the shards, and so do gradients: operands agree in every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.sharding import PartitionSpec as P

MESH = weft.sharding.AbstractMesh((4, 2), ("i", "j"))
X = jnp.sin(jnp.arange(64.0)).reshape(8, 8)
W = jnp.cos(jnp.arange(64.0)).reshape(8, 8)
KEY = weft.random.key(0)

double = weft.custom_vjp(lambda x: jnp.sin(x) * 2)
double.defvjp(lambda x: (double(x), x), lambda x, ct: (ct * jnp.cos(x) * 2,))

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: weft.nn.softmax(x, axis=1),
    "sort": lambda x: jnp.sort(x, axis=1),
    "cumsum": lambda x: jnp.cumsum(x, axis=1),
    "gather": lambda x: x[:, jnp.array([1, 3, 0])],
    "set": lambda x: x.at[0].set(3.0),
    "add at": lambda x: x.at[:, jnp.array([1, 1])].add(W[:2, :2]),
    "dynamic slice": lambda x: lax.dynamic_slice(x, (jnp.argmax(x[:, 0]), 2), (1, 3)),
    "dynamic update": lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 2)), (0, 1)),
    "where": lambda x: jnp.where(x > 0, x, W[:2]),
    "power": lambda x: jnp.abs(x) ** 2.5 + x**3,
    "product": lambda x: W[:3] @ x.T @ x,
    "einsum": lambda x: jnp.einsum("ab,bc,cd->ad", x, W, W),
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 2)), constant_values=2.0),
    "concatenate": lambda x: jnp.concatenate([x, W[:2]], 1),
    "fft": lambda x: jnp.fft.rfft(x).real,
    "solve": lambda x: jnp.linalg.solve(x[:, :2] + 3 * jnp.eye(2), W[:2]),
    "random": lambda x: weft.random.normal(weft.random.fold_in(KEY, 1), x.shape) + x,
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c * 2), jnp.zeros_like(x[0]), x)[1],
    "map": lambda x: lax.map(lambda row: jnp.sin(row) * 2, x),
    "for": lambda x: lax.fori_loop(0, 3, lambda i, c: c * 1.5 + x, x),
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda a: a * 2, lambda a: -a, x),
    "vmap": lambda x: weft.vmap(lambda row: row @ W)(x),
    "jit": lambda x: weft.jit(lambda a: jnp.tanh(a) + 1)(x),
    "normalised": lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5),
    "bfloat16": lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32),
    "complex": lambda x: jnp.abs(x + 1j * x**2),
    "checkpoint": lambda x: weft.checkpoint(lambda a: jnp.sin(a @ W), policy=weft.checkpoint_policies.dots_saveable)(x),
    "custom_jvp": lambda x: weft.nn.silu(x) + weft.nn.gelu(x),
    "custom_vjp": double,
    "interp": lambda x: jnp.interp(x, jnp.arange(8.0), W[0]),
    "window": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"),
    "grad": lambda x: weft.grad(lambda a: jnp.sum(jnp.sin(a) * a))(x),
    "jvp": lambda x: weft.jvp(lambda a: jnp.sin(a) @ W, (x,), (W[:2],))[1],
    "switch": lambda x: lax.switch(jnp.argmax(x[0]) % 3, [jnp.sin, jnp.cos, jnp.tanh], x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_a_loop_over_shards(name: str) -> None:
    f = PROGRAMS[name]

    def by_hand(x: Any) -> Any:
        return jnp.concatenate([f(x[2 * k : 2 * k + 2]) for k in range(4)])

    cut = weft.shard_map(f, mesh=MESH, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_allclose(weft.jit(cut)(X), by_hand(X), rtol=1e-5, atol=1e-5)
    mine, wanted = [weft.jit(weft.grad(lambda x, g=g: jnp.sum(jnp.sin(g(x)))))(X) for g in (cut, by_hand)]
    np.testing.assert_allclose(mine, wanted, rtol=2e-4, atol=2e-5)


def test_callbacks_run_for_each_shard() -> None:
    def f(x: Any) -> Any:
        return weft.pure_callback(lambda v: np.sin(np.asarray(v)), weft.ShapeDtypeStruct(x.shape, x.dtype), x)

    cut = weft.shard_map(f, mesh=MESH, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_allclose(cut(X), np.sin(X), rtol=1e-6)


def test_ragged_exchange_is_what_sending_slices_gives() -> None:
    """Against a loop over senders in NumPy; two slices to each of four devices."""
    random = np.random.default_rng(0)
    n, each, most = 4, 2, 40
    sizes = random.integers(0, 4, (n, n, each))  # sender, receiver, slice
    starts = np.cumsum(sizes.reshape(n, -1), axis=1) - sizes.reshape(n, -1)
    received = sizes.transpose(1, 0, 2).reshape(n, -1)
    at = (np.cumsum(received, axis=1) - received).reshape(n, n, each).transpose(1, 0, 2).reshape(n, -1)
    x = random.normal(size=(n, most, 3)).astype(np.float32)
    wanted = np.zeros((n, most, 3), np.float32)
    for sender in range(n):
        for k in range(n * each):
            count, target = sizes.reshape(n, -1)[sender, k], at[sender, k]
            wanted[k // each, target : target + count] = x[sender, starts[sender, k] : starts[sender, k] + count]

    def f(x: Any, *regions: Any) -> Any:
        return lax.ragged_all_to_all(x, jnp.zeros_like(x), *regions, axis_name="i")

    cut = weft.shard_map(f, mesh=MESH, in_specs=P("i"), out_specs=P("i"))
    regions = [jnp.asarray(p.reshape(-1), jnp.int32) for p in (starts, sizes, at, received)]
    flat = jnp.asarray(x.reshape(-1, 3))
    assert np.array_equal(cut(flat, *regions), wanted.reshape(-1, 3))
    gradient = weft.grad(lambda x: jnp.sum(cut(x, *regions) ** 2))(flat)
    sent = np.zeros((n, most), bool)
    for sender in range(n):
        sent[sender, : sizes[sender].sum()] = True
    np.testing.assert_allclose(gradient, np.where(sent.reshape(-1, 1), 2 * x.reshape(-1, 3), 0), rtol=1e-6)
    with pytest.raises(ValueError, match="send_sizes has the length of the others"):
        cut(flat, regions[0], regions[1][:16], *regions[2:])
