"""Modules as transformed functions: a network with state, an LSTM, and losses that fall."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax
from results import show


def forward(x, is_training):
    x = hk.Conv2D(4, 3)(x)
    x = hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)(x, is_training)
    x = hk.Flatten()(jax.nn.relu(x))
    return hk.nets.MLP([8, 3])(hk.dropout(hk.next_rng_key(), 0.1, x) if is_training else x)


network = hk.transform_with_state(forward)
x = jax.random.normal(jax.random.PRNGKey(0), (6, 5, 5, 1))
labels = jnp.arange(6) % 3
params, state = network.init(jax.random.PRNGKey(1), x, True)
optimizer = optax.sgd(0.05, momentum=0.9)
optimizer_state = optimizer.init(params)


@jax.jit
def step(params, state, optimizer_state, key):
    def loss(params):
        logits, changed = network.apply(params, state, key, x, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

    (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    updates, optimizer_state_ = optimizer.update(gradients, optimizer_state)
    return optax.apply_updates(params, updates), state, optimizer_state_, value


losses = []
for number in range(10):
    params, state, optimizer_state, value = step(params, state, optimizer_state, jax.random.PRNGKey(number))
    losses.append(value)


def recurrent(sequence):
    core = hk.LSTM(5)
    return hk.dynamic_unroll(core, sequence, core.initial_state(2))[0]


unrolled = hk.without_apply_rng(hk.transform(recurrent))
sequence = jax.random.normal(jax.random.PRNGKey(2), (4, 2, 3))
weights = unrolled.init(jax.random.PRNGKey(3), sequence)
attention = hk.transform(lambda q: hk.MultiHeadAttention(2, 3, w_init=hk.initializers.VarianceScaling())(q, q, q))
attention_weights = attention.init(jax.random.PRNGKey(4), sequence)


def repeated(v):
    linear = hk.Linear(3)
    linear(v)
    return hk.fori_loop(0, 3, lambda i, c: jnp.tanh(linear(c)), v)


looped = hk.transform(repeated)
looped_weights = looped.init(jax.random.PRNGKey(5), sequence[0])
show(
    losses=jnp.array(losses),
    prediction=network.apply(params, state, None, x, False)[0],
    unrolled=unrolled.apply(weights, sequence)[-1],
    attention=attention.apply(attention_weights, None, sequence)[0],
    looped=looped.apply(looped_weights, None, sequence[0]),
)
