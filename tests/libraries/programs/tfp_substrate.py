"""TensorFlow Probability's JAX substrate: distributions, bijectors, a Markov chain, special functions."""

import jax
import jax.numpy as jnp
from results import show
from tensorflow_probability.substrates import jax as tfp

tfd, tfb = tfp.distributions, tfp.bijectors

joint = tfd.JointDistributionSequential([
    tfd.Normal(0.0, 1.0),
    lambda loc: tfd.Gamma(2.0, jax.nn.softplus(loc)),
])  # fmt: skip
values = joint.sample(seed=jax.random.PRNGKey(0))
kernel = tfp.mcmc.HamiltonianMonteCarlo(lambda v: -0.5 * jnp.sum(v**2), step_size=0.3, num_leapfrog_steps=3)


@jax.jit
def chain(key):
    return tfp.mcmc.sample_chain(200, jnp.ones(2), kernel=kernel, num_burnin_steps=50, trace_fn=None, seed=key)


samples = chain(jax.random.PRNGKey(1))
flow = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Chain([tfb.Exp(), tfb.Scale(2.0)]))
process = tfd.GaussianProcess(
    tfp.math.psd_kernels.ExponentiatedQuadratic(), jnp.linspace(0.0, 1.0, 4)[:, None], observation_noise_variance=0.1
)
show(
    joint=joint.log_prob(values),
    chain_mean_near=jnp.abs(samples.mean(0)) < 0.5,
    flow=flow.log_prob(jnp.array([0.5, 1.5])),
    process=process.log_prob(jnp.array([0.1, 0.2, 0.3, 0.2])),
    gradient=jax.grad(lambda a: tfd.Beta(a, 2.0).log_prob(0.3))(1.5),
    mixture=tfd.MixtureSameFamily(
        tfd.Categorical(logits=jnp.zeros(2)), tfd.Normal(jnp.array([-1.0, 1.0]), 1.0)
    ).log_prob(0.2),
    bessel=tfp.math.log_bessel_kve(1.5, 2.0),
    wishart=tfd.WishartTriL(4.0, jnp.eye(2)).log_prob(jnp.eye(2)),
    minimum=tfp.optimizer.bfgs_minimize(
        lambda v: tfp.math.value_and_gradient(lambda u: jnp.sum((u - 1.0) ** 2), v), jnp.zeros(2)
    ).position,
)
