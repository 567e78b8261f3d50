"""Descent with implicit derivatives: ridge regression differentiated through its solver, and constrained problems."""

import jax
import jax.numpy as jnp
import jaxopt
from results import show

x = jax.random.normal(jax.random.PRNGKey(0), (20, 3))
y = x @ jnp.array([1.0, -1.0, 2.0])


def ridge(w, strength):
    return jnp.mean((x @ w - y) ** 2) + strength * jnp.sum(w**2)


def solved(strength):
    return jaxopt.LBFGS(fun=ridge, maxiter=50, implicit_diff=True).run(jnp.zeros(3), strength).params


def exact(strength):
    return jnp.linalg.solve(x.T @ x / 20 + strength * jnp.eye(3), x.T @ y / 20)


projected = jaxopt.ProjectedGradient(fun=ridge, projection=jaxopt.projection.projection_simplex, maxiter=200)
lasso = jaxopt.ProximalGradient(
    fun=lambda w, _=None: jnp.mean((x @ w - y) ** 2), prox=jaxopt.prox.prox_lasso, maxiter=200
)
root = jaxopt.Bisection(optimality_fun=lambda v, c: v**3 - c, lower=0.0, upper=3.0, tol=1e-6)
newton = jaxopt.GaussNewton(residual_fun=lambda w: x @ w - y + 0.1 * w[0] ** 2)
show(
    ridge=solved(0.1),
    as_exact=jnp.max(jnp.abs(solved(0.1) - exact(0.1))) < 1e-3,
    slope=jax.jacobian(solved)(0.1),
    slope_as_exact=jnp.max(jnp.abs(jax.jacobian(solved)(0.1) - jax.jacobian(exact)(0.1))) < 1e-2,
    simplex=projected.run(jnp.ones(3) / 3, hyperparams_proj=1.0, strength=0.0).params,
    lasso=lasso.run(jnp.zeros(3), hyperparams_prox=0.1).params,
    root=root.run(None, 2.0).params,
    root_slope=jax.grad(lambda c: root.run(None, c).params)(2.0),
    newton=newton.run(jnp.zeros(3)).params,
)
