"""A ball that falls on a plane and a double pendulum, stepped by MuJoCo's own port to JAX."""

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
show(position=data.qpos, velocity=data.qvel)
