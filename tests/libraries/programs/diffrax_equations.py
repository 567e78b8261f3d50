"""Ordinary and stochastic differential equations: adaptive steps, events in time, gradients by both adjoints."""

import diffrax
import jax
import jax.numpy as jnp
from results import show


def field(t, y, args):
    return jnp.array([y[1], -args * y[0] - 0.1 * y[1]])


CHECKPOINTED = diffrax.RecursiveCheckpointAdjoint()


def final(stiffness, adjoint=CHECKPOINTED):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 3.0, None, jnp.array([1.0, 0.0]), stiffness,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 3.0, 5)),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7), adjoint=adjoint,
    ).ys  # fmt: skip


stiff = diffrax.diffeqsolve(
    diffrax.ODETerm(lambda t, y, args: -50.0 * (y - jnp.cos(t))), diffrax.Kvaerno3(), 0.0, 1.0, 0.05, jnp.array([0.0]),
    stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
).ys  # fmt: skip
motion = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(2,), key=jax.random.PRNGKey(0))
noisy = diffrax.diffeqsolve(
    diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.1 * jnp.eye(2), motion)
    ),
    diffrax.Heun(), 0.0, 1.0, 0.1, jnp.ones(2),
).ys  # fmt: skip
show(
    solution=final(2.0),
    slope=jax.grad(lambda s: final(s)[-1, 0])(2.0),
    backsolve=jax.grad(lambda s: final(s, diffrax.BacksolveAdjoint())[-1, 0])(2.0),
    stiff=stiff,
    noisy=noisy,
    batched=jax.vmap(final)(jnp.array([1.0, 2.0]))[:, -1],
)
