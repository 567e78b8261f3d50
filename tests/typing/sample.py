"""A program as users write it, with types: tests/typing/test_sample.py runs it, and checks it with mypy and pyright."""

from __future__ import annotations

from typing import NamedTuple, assert_type

import numpy as np

import weft
import weft.numpy as jnp
import weft.scipy.stats.gamma as gamma
from weft import Array, lax, nn, random
from weft.scipy.stats import norm
from weft.sharding import NamedSharding, PartitionSpec


class Params(NamedTuple):
    w: Array
    b: Array


# -- arrays, updates, conversion -----------------------------------------------------------------------------------


def arrays() -> Array:
    x = jnp.arange(6.0).reshape(2, 3)
    assert_type(x, Array)
    y = 1.0 + x @ x.T - x[0, 0] ** 2
    bounded = jnp.where(y > 3, jnp.sin(y), -y).at[0, 1].set(4.0).at[1].add(1.0)
    assert_type(bounded, Array)
    assert_type(bounded == 4.0, Array)
    total: float = float(bounded.sum(axis=-1).max())
    shape: tuple[int, ...] = bounded.shape
    back = np.asarray(bounded)
    values, vectors = jnp.linalg.eigh(bounded + bounded.T)
    pieces = jnp.split(jnp.concatenate([values, vectors.ravel()]), 2)
    assert total == back.sum(-1).max() and len(shape) == 2
    return jnp.stack([piece.mean() for piece in pieces])


# -- functions of functions ----------------------------------------------------------------------------------------


@weft.jit
def loss(params: Params, x: Array, y: Array) -> Array:
    hidden = nn.relu(x @ params.w + params.b)
    return jnp.mean((jnp.sum(hidden, axis=-1) - y) ** 2)


def descend(parameter: Array, slope: Array) -> Array:
    return parameter - 0.01 * slope


@weft.jit(static_argnames=("steps",), donate_argnums=0)
def fit(params: Params, x: Array, y: Array, steps: int = 10) -> tuple[Params, Array]:
    def step(params: Params, _: Array) -> tuple[Params, Array]:
        value, slope = weft.value_and_grad(loss)(params, x, y)
        assert_type(value, Array)
        return weft.tree.map(descend, params, slope), value

    params, values = lax.scan(step, params, jnp.arange(steps))
    assert_type(params, Params)
    return params, values


def derivatives(x: Array) -> Array:
    def f(x: Array) -> Array:
        return jnp.sum(jnp.tanh(x) ** 3)

    slope: Array = weft.grad(f)(x)
    hessian: Array = weft.hessian(f)(x)
    rows = weft.vmap(weft.checkpoint(jnp.cos))(hessian)
    assert_type(weft.checkpoint(f)(x), Array)
    value, pull = weft.vjp(f, x)
    (again,) = pull(jnp.ones_like(value))
    total: Array = slope + again + rows.sum(0)
    return total


@weft.custom_vjp
def clipped(x: Array, limit: float) -> Array:
    return x * 1.0


def clipped_fwd(x: Array, limit: float) -> tuple[Array, float]:
    return clipped(x, limit), limit


def clipped_bwd(limit: float, ct: Array) -> tuple[Array, None]:
    return jnp.clip(ct, -limit, limit), None


clipped.defvjp(clipped_fwd, clipped_bwd)


@weft.custom_jvp
def log1pexp(x: Array) -> Array:
    return jnp.log1p(jnp.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    return log1pexp(x), nn.sigmoid(x) * t


class Scale:
    """A method that is compiled, and a class that is a pytree."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @weft.jit(static_argnums=0)
    def apply(self, x: Array) -> Array:
        return x * self.factor


# -- control flow, random numbers ----------------------------------------------------------------------------------


def control(x: Array) -> Array:
    def body(i: Array, state: Array) -> Array:
        return state + jnp.cos(state) / (i + 1)

    walked = lax.fori_loop(0, 5, body, x)
    chosen = lax.cond(walked.sum() > 0, jnp.sqrt, jnp.square, walked)
    smaller = lax.while_loop(lambda state: jnp.any(state > 1e-3), lambda state: state / 2, chosen)
    running = lax.associative_scan(jnp.add, smaller)
    assert_type(running, Array)
    return lax.exp(running)


def draws(seed: int) -> Array:
    key = random.key(seed)
    first, second = random.split(key)
    noise = random.normal(first, (4, 2)) + random.uniform(second, (4, 2), minval=-1.0)
    assert_type(norm.logpdf(noise, scale=2.0), Array)
    return nn.softmax(noise) + random.bernoulli(key, 0.5, (4, 1)) * norm.cdf(noise) * gamma.sf(1.0, 2.0, loc=0.5)


# -- pytrees, devices, stages --------------------------------------------------------------------------------------


def trees(params: Params) -> int:
    leaves, treedef = weft.tree.flatten(params)
    same = weft.tree.unflatten(treedef, leaves)
    return len(weft.tree.leaves(same))


def devices(x: Array) -> Array:
    mesh = weft.make_mesh((1,), ("data",))
    moved: Array = weft.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
    assert moved.sharding.is_fully_replicated or moved.devices()
    return moved.block_until_ready()


def stages(x: Array) -> str:
    lowered = weft.jit(jnp.tanh).lower(weft.ShapeDtypeStruct(x.shape, x.dtype))
    compiled = lowered.compile()
    assert loss.cache_info().traces >= 0
    return str(weft.make_jaxpr(jnp.sin)(x)) + str(compiled.as_text("jaxpr"))


def main() -> None:
    x = jnp.linspace(0.1, 1.0, 6).reshape(3, 2)
    params = Params(jnp.ones((2, 4)), jnp.zeros(4))
    assert weft.grad(loss)(params, x, jnp.ones(3)).w.shape == (2, 4)
    params, values = fit(params, x, jnp.ones(3), steps=4)
    assert values[-1] < values[0] and trees(params) == 2
    assert arrays().shape == (2,) and derivatives(x[0]).shape == (2,)
    assert weft.grad(clipped)(x[0, 0], 0.5) == 0.5
    assert bool(jnp.allclose(weft.grad(log1pexp)(jnp.array(0.0)), 0.5))
    assert Scale(2.0).apply(x).shape == (*control(x[:, 0]).shape, 2)
    assert draws(0).shape == (4, 2) and devices(x[:2]).shape == (2, 2)
    assert "tanh" in stages(x)


if __name__ == "__main__":
    main()
