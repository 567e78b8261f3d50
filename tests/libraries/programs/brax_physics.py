"""A pendulum on a cart simulated by two of Brax's pipelines, batched and differentiated; an environment's steps."""

import jax
import jax.numpy as jnp
from brax import envs
from brax.generalized import pipeline as generalized
from brax.io import mjcf
from brax.spring import pipeline as spring
from results import show

SYSTEM = """
<mujoco><option timestep="0.01"/><worldbody>
<body name="cart" pos="0 0 0"><joint name="slide" type="slide" axis="1 0 0" range="-1 1"/>
<geom type="capsule" size="0.1" fromto="-0.1 0 0 0.1 0 0" mass="1"/>
<body name="pole" pos="0 0 0"><joint name="hinge" type="hinge" axis="0 1 0" range="-90 90"/>
<geom type="capsule" size="0.05" fromto="0 0 0 0 0 0.6" mass="0.2"/></body></body></worldbody>
<actuator><motor joint="slide" gear="10"/></actuator></mujoco>
"""
system = mjcf.loads(SYSTEM)


def rolled(pipeline, angle):
    state = pipeline.init(system, jnp.array([0.0, angle]), jnp.zeros(2))
    return jax.lax.scan(lambda s, a: (pipeline.step(system, s, a),) * 2, state, 0.1 * jnp.ones((10, 1)))[1].q


environment = envs.get_environment("inverted_pendulum", backend="generalized")
pushed = jax.jit(environment.reset)(jax.random.PRNGKey(0))
push = jax.jit(environment.step)
for _ in range(3):
    pushed = push(pushed, jnp.array([0.3]))

show(
    observed=pushed.obs,
    reward=pushed.reward,
    generalized=jax.jit(lambda a: rolled(generalized, a))(0.2),
    spring=jax.jit(lambda a: rolled(spring, a))(0.2),
    batched=jax.vmap(lambda a: rolled(generalized, a)[-1])(jnp.array([0.1, 0.2])),
    slope=jax.grad(lambda a: rolled(generalized, a)[-1, 1])(0.2),
)
