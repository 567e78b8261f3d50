"""Roots, fixed points, minima and least squares, and the derivative of a root with respect to its parameter."""

import jax
import jax.numpy as jnp
import optimistix as optx
from results import show


def curve(y, args):
    return jnp.array([y[0] ** 2 + y[1] - args, y[1] - jnp.sin(y[0])])


def root(c):
    return optx.root_find(curve, optx.Newton(rtol=1e-6, atol=1e-6), jnp.array([1.0, 0.5]), c).value


def valley(y, args):
    return (1 - y[0]) ** 2 + 10 * (y[1] - y[0] ** 2) ** 2


times = jnp.linspace(0.0, 2.0, 15)
observed = 2.0 * jnp.exp(-1.3 * times)
fitted = optx.least_squares(
    lambda p, _: p[0] * jnp.exp(-p[1] * times) - observed, optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6), jnp.ones(2)
).value
show(
    root=root(2.0),
    slope=jax.jacobian(root)(2.0),
    fixed=optx.fixed_point(lambda y, _: jnp.cos(y), optx.FixedPointIteration(rtol=1e-6, atol=1e-6), 0.5).value,
    least=jnp.round(optx.minimise(valley, optx.BFGS(rtol=1e-6, atol=1e-6), jnp.zeros(2)).value, 2),
    fitted=fitted,
    bisected=optx.root_find(
        lambda y, _: y**3 - 2.0, optx.Bisection(rtol=1e-5, atol=1e-5), 1.0, options={"lower": 0.0, "upper": 2.0}
    ).value,
)
