"""An MLP and a convolution as modules: filtered jit, grad, vmap; state; an error inside jit; a checkpointed loop."""

import equinox as eqx
import jax
import jax.numpy as jnp
from results import show

model = eqx.nn.MLP(in_size=3, out_size=2, width_size=8, depth=2, key=jax.random.PRNGKey(0))
x = jax.random.normal(jax.random.PRNGKey(1), (16, 3))
y = jnp.stack([jnp.sin(x[:, 0]), x[:, 1] * x[:, 2]], axis=1)


@eqx.filter_value_and_grad
def loss(model):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit
def step(model):
    value, gradients = loss(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients)), value


losses = []
for _ in range(20):
    model, value = step(model)
    losses.append(value)

network = eqx.nn.Sequential([
    eqx.nn.Conv2d(1, 4, 3, key=jax.random.PRNGKey(2)),
    eqx.nn.Lambda(jax.nn.relu),
    eqx.nn.MaxPool2d(2, 2),
    eqx.nn.Lambda(jnp.ravel),
    eqx.nn.Linear(36, 5, key=jax.random.PRNGKey(3)),
    eqx.nn.LayerNorm(5),
])  # fmt: skip
images = jax.random.normal(jax.random.PRNGKey(4), (2, 1, 8, 8))

norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, axis_name="batch", mode="batch")
normed, state = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)


@eqx.filter_jit
def checked(v):
    return eqx.error_if(v, v < 0, "negative")


refused = 0
try:
    jax.block_until_ready(checked(jnp.array(-1.0)))
except RuntimeError:
    refused = 1


def looped(v):
    return eqx.internal.while_loop(
        lambda s: s[0] < 5, lambda s: (s[0] + 1, jnp.sin(s[1]) * 1.5), (0, v), max_steps=8, kind="checkpointed"
    )[1]


cell = eqx.nn.GRUCell(3, 4, key=jax.random.PRNGKey(5))
attention = eqx.nn.MultiheadAttention(2, 4, key=jax.random.PRNGKey(6))
hidden = jax.lax.scan(lambda h, v: (cell(v, h),) * 2, jnp.zeros(4), x)[1]
show(
    losses=jnp.array(losses),
    weights=model.layers[0].weight,
    convolved=jax.vmap(network)(images),
    normed=normed,
    refused=refused,
    fine=checked(jnp.array(2.0)),
    looped=looped(jnp.array(0.7)),
    slope=jax.grad(looped)(jnp.array(0.7)),
    hidden=hidden[-1],
    attention=attention(hidden, hidden, hidden)[:2],
)
