"""A ball that falls on a plane and a double pendulum, stepped by MuJoCo's own port to JAX; a pendulum's gradient."""

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx
from results import show

MODEL = """
<mujoco><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 0.15"><freejoint/><geom size="0.1" mass="1"/></body>
<body pos="1 0 2"><joint axis="0 1 0"/><geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.5"/>
<body pos="0 0 -0.5"><joint axis="0 1 0"/><geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.5"/></body></body>
</worldbody></mujoco>
"""
model = mujoco.MjModel.from_xml_string(MODEL)
mx = mjx.put_model(model)
data = mjx.make_data(mx).replace(qpos=jnp.array([0, 0, 0.15, 1, 0, 0, 0, 0.5, 0.2]))
step = jax.jit(mjx.step)
for _ in range(20):
    data = step(mx, data)

PENDULUM = """
<mujoco><option iterations="4" ls_iterations="4"/><worldbody>
<body pos="0 0 2"><joint axis="0 1 0"/><geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.5"/>
<body pos="0 0 -0.5"><joint axis="0 1 0"/><geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.5"/></body></body>
</worldbody></mujoco>
"""
pendulum = mjx.put_model(mujoco.MjModel.from_xml_string(PENDULUM))
start = mjx.make_data(pendulum).replace(qpos=jnp.array([0.5, 0.2]))


def rolled(velocity):
    first = start.replace(qvel=velocity)
    return jax.lax.scan(lambda d, _: (mjx.step(pendulum, d), None), first, None, length=3)[0].qpos


thrown = jnp.array([0.1, 0.2])
show(
    position=data.qpos,
    velocity=data.qvel,
    gradient=jax.jit(jax.grad(lambda v: rolled(v).sum()))(thrown),
    jacobian=jax.jit(jax.jacfwd(rolled))(thrown),
    batched=jax.jit(jax.vmap(rolled))(jnp.stack([thrown, 2 * thrown])),
)
