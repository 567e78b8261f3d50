"""Hamiltonian Monte Carlo with adaptation, and sequential Monte Carlo, on a Gaussian whose moments are known."""

import blackjax
import jax
import jax.numpy as jnp
from results import show

mean = jnp.array([1.0, -2.0])


def log_density(position):
    return -0.5 * jnp.sum(((position - mean) / jnp.array([1.0, 0.5])) ** 2)


warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
(state, parameters), _ = warmup.run(jax.random.key(0), jnp.zeros(2), num_steps=200)
kernel = blackjax.nuts(log_density, **parameters)


@jax.jit
def chain(key, state):
    def step(state, key):
        state, _ = kernel.step(key, state)
        return state, state.position

    return jax.lax.scan(step, state, jax.random.split(key, 500))[1]


samples = chain(jax.random.key(1), state)
walk = blackjax.hmc(log_density, step_size=0.2, inverse_mass_matrix=jnp.ones(2), num_integration_steps=5)
first, info = jax.jit(walk.step)(jax.random.key(2), walk.init(jnp.zeros(2)))
show(
    mean_near=jnp.abs(samples.mean(0) - mean) < 0.3,
    spread_near=jnp.abs(samples.std(0) - jnp.array([1.0, 0.5])) < 0.25,
    one_step=first.position,
    acceptance=info.acceptance_rate,
)
