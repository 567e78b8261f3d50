"""Regression by Adam with a schedule, clipping and decay; L-BFGS; losses; a projection."""

import jax
import jax.numpy as jnp
import optax
from results import show

key = jax.random.key(0)
x = jax.random.normal(key, (32, 4))
y = jnp.sin(x @ jnp.array([1.0, -2.0, 0.5, 0.0])) + 0.1


def loss(params):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - y) ** 2)


params = {
    "w1": 0.3 * jax.random.normal(jax.random.key(1), (4, 8)),
    "b1": jnp.zeros(8),
    "w2": 0.3 * jax.random.normal(jax.random.key(2), (8,)),
}
schedule = optax.warmup_cosine_decay_schedule(0.0, 0.05, 5, 60)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))


@jax.jit
def step(params, state):
    value, gradients = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, value


state = optimizer.init(params)
losses = []
for _ in range(40):
    params, state, value = step(params, state)
    losses.append(value)

solver = optax.lbfgs()
point = jnp.array([-1.0, 1.5, 0.3])


def valley(p):
    return jnp.sum(10.0 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


lbfgs_state = solver.init(point)
value_and_grad = optax.value_and_grad_from_state(valley)
for _ in range(12):
    value, gradient = value_and_grad(point, state=lbfgs_state)
    updates, lbfgs_state = solver.update(gradient, lbfgs_state, point, value=value, grad=gradient, value_fn=valley)
    point = optax.apply_updates(point, updates)

logits = jax.random.normal(jax.random.key(3), (5, 7))
show(
    losses=jnp.array(losses),
    w2=params["w2"],
    lbfgs=valley(point) < 1e-2,
    entropy=optax.softmax_cross_entropy_with_integer_labels(logits, jnp.arange(5)),
    focal=optax.sigmoid_focal_loss(logits, jnp.ones((5, 7))),
    ctc=optax.ctc_loss(logits[None], jnp.zeros((1, 5)), jnp.array([[1, 2]]), jnp.zeros((1, 2))),
    simplex=optax.projections.projection_simplex(jnp.array([0.3, 1.2, -0.5])),
)
