"""Distributions and bijectors: densities, samples, a mixture, a flow, a hidden Markov model."""

import distrax
import jax
import jax.numpy as jnp
from results import show

normal = distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.array([1.0, 2.0]))
flow = distrax.Transformed(normal, distrax.Block(distrax.Tanh(), 1))
mixture = distrax.MixtureSameFamily(
    distrax.Categorical(probs=jnp.array([0.3, 0.7])), distrax.Normal(jnp.array([-1.0, 1.0]), jnp.array([0.5, 0.8]))
)
markov = distrax.HMM(
    distrax.Categorical(probs=jnp.array([0.6, 0.4])),
    distrax.Categorical(probs=jnp.array([[0.7, 0.3], [0.2, 0.8]])),
    distrax.Normal(jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0])),
)
sample = jax.jit(lambda key: flow.sample(seed=key, sample_shape=(3,)))(jax.random.PRNGKey(0))
show(
    sample=sample,
    density=flow.log_prob(sample),
    mixture=mixture.log_prob(jnp.array([-1.0, 0.0, 1.0])),
    divergence=normal.kl_divergence(distrax.MultivariateNormalDiag(jnp.ones(2), jnp.ones(2))),
    gamma=distrax.Gamma(2.0, 3.0).log_prob(0.7),
    beta=distrax.Beta(2.0, 3.0).log_prob(0.4),
    greedy=distrax.EpsilonGreedy(jnp.array([0.1, 0.5, 0.2]), 0.1).probs,
    evidence=markov.forward(jnp.array([0.1, 1.9, 2.1]))[1],
    gradient=jax.grad(lambda m: mixture.log_prob(m))(0.3),
)
