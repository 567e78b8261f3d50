"""The object-based interface of flax: a model with state trained by its own optimizer, split, merged and vmapped."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from results import show


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(3, 8, use_bias=False, rngs=rngs)  # before a norm, its gradient is rounding error
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.second(self.drop(nnx.relu(self.norm(self.first(x)))))


model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
x = jax.random.normal(jax.random.key(1), (16, 3))
y = jnp.stack([x[:, 0] * x[:, 1], x[:, 2]], axis=1)


@nnx.jit
def step(model, optimizer):
    def loss(model):
        return jnp.mean((model(x) - y) ** 2)

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


losses = [step(model, optimizer) for _ in range(10)]
model.eval()
graph, state = nnx.split(model)
again = nnx.merge(graph, state)


@nnx.vmap(in_axes=0, out_axes=0)
def several(key):
    return nnx.Linear(3, 2, rngs=nnx.Rngs(key))


@nnx.vmap(in_axes=(0, None), out_axes=0)
def applied(model, x):
    return model(x)


@nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
def through(layer, x):
    return nnx.tanh(layer(x))


@nnx.vmap(in_axes=0, out_axes=0)
def squares(key):
    return nnx.Linear(3, 3, rngs=nnx.Rngs(key))


keys = jax.random.split(jax.random.key(2), 3)
show(
    losses=jnp.array(losses),
    merged=again(x)[:3],
    mean=model.norm.mean[...],
    several=applied(several(keys), x[:2]),
    through=through(squares(keys), x[:2]),
)
