"""A regression's posterior by NUTS and by variational inference; log densities; a predictive distribution."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, autoguide, log_likelihood
from results import show

x = jnp.linspace(-1.0, 1.0, 20)
y = 1.5 * x - 0.3 + 0.1 * jax.random.normal(jax.random.PRNGKey(0), (20,))


def model(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    offset = numpyro.sample("offset", dist.Normal(0.0, 2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("points", x.shape[0]):
        return numpyro.sample("y", dist.Normal(slope * x + offset, noise), obs=y)


mcmc = MCMC(NUTS(model), num_warmup=150, num_samples=150, progress_bar=False)
mcmc.run(jax.random.PRNGKey(1), x, y)
samples = mcmc.get_samples()

guide = autoguide.AutoNormal(model)
svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
result = svi.run(jax.random.PRNGKey(2), 200, x, y, progress_bar=False)
prediction = Predictive(model, samples)(jax.random.PRNGKey(3), x)["y"]
densities = [
    dist.Gamma(2.0, 3.0).log_prob(0.7),
    dist.Beta(2.0, 3.0).log_prob(0.2),
    dist.StudentT(4.0).log_prob(0.5),
    dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.3], [0.3, 2.0]])).log_prob(jnp.array([0.1, 0.2])),
    dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])).log_prob(jnp.array([0.2, 0.3, 0.5])),
    dist.LKJCholesky(3, 1.5).log_prob(jnp.eye(3)),
]
# Two programs round differently, and chains part: what is compared is the posterior, to its sampling error.
show(
    slope_about=jnp.round(samples["slope"].mean(), 1),
    offset_about=jnp.round(samples["offset"].mean(), 1),
    noise_below=samples["noise"].mean() < 0.2,
    guide_loc_about=jnp.round(result.params["slope_auto_loc"], 1),
    predicted_near=jnp.max(jnp.abs(prediction.mean(0) - y)) < 0.4,
    likelihoods=log_likelihood(model, {"slope": jnp.ones(1), "offset": jnp.zeros(1), "noise": jnp.ones(1)}, x, y)["y"],
    densities=jnp.stack(densities),
)
