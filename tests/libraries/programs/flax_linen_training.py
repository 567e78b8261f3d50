"""A small convolutional network with batch normalisation and dropout, trained; an LSTM; attention."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state
from results import show


class Network(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Conv(4, (3, 3), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.avg_pool(nn.relu(x), (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.Dropout(0.2, deterministic=not train)(x)
        return nn.Dense(3)(x)


class State(train_state.TrainState):
    batch_stats: dict


x = jax.random.normal(jax.random.key(0), (8, 8, 8, 1))
labels = jnp.arange(8) % 3
network = Network()
variables = network.init(jax.random.key(1), x, train=False)
state = State.create(
    apply_fn=network.apply, params=variables["params"], tx=optax.adam(1e-2), batch_stats=variables["batch_stats"]
)


@jax.jit
def step(state, key):
    def loss(params):
        logits, changed = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            x, train=True, rngs={"dropout": key}, mutable=["batch_stats"],
        )  # fmt: skip
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

    (value, changed), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradients, batch_stats=changed["batch_stats"]), value


losses = []
for number in range(10):
    state, value = step(state, jax.random.key(number))
    losses.append(value)

sequence = jax.random.normal(jax.random.key(2), (2, 5, 4))
recurrent = nn.RNN(nn.LSTMCell(features=6))
recurrent_variables = recurrent.init(jax.random.key(3), sequence)
attention = nn.MultiHeadDotProductAttention(num_heads=2)
attention_variables = attention.init(jax.random.key(4), sequence, sequence)
scanned = nn.scan(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=0, out_axes=0, length=2)


class Stack(nn.Module):
    @nn.compact
    def __call__(self, x):
        def body(module, carry, _):
            return nn.tanh(module(carry)), None

        layers = nn.scan(body, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return layers(nn.Dense(4), x, None)[0]


stack = Stack()
stack_variables = stack.init(jax.random.key(5), sequence[0])
show(
    losses=jnp.array(losses),
    mean=state.batch_stats["BatchNorm_0"]["mean"],
    recurrent=recurrent.apply(recurrent_variables, sequence)[:, -1],
    attention=attention.apply(attention_variables, sequence, sequence)[0],
    stack=stack.apply(stack_variables, sequence[0]),
    rematerialised=nn.remat(nn.Dense)(3).init_with_output(jax.random.key(6), sequence[0])[0],
)
