"""Dataclasses that are pytrees, assertions about shapes and trees, variants of one test."""

import chex
import jax
import jax.numpy as jnp
from results import show


@chex.dataclass
class Particle:
    position: chex.Array
    velocity: chex.Array


@jax.jit
def move(p: Particle, dt: float) -> Particle:
    return Particle(position=p.position + dt * p.velocity, velocity=0.9 * p.velocity)


p = Particle(position=jnp.zeros(3), velocity=jnp.array([1.0, 2.0, 3.0]))
for _ in range(5):
    p = move(p, 0.1)
chex.assert_shape(p.position, (3,))
chex.assert_trees_all_close(jax.tree.map(lambda v: v, p), p)
chex.assert_tree_all_finite(p)
chex.assert_type(p.position, float)
chex.assert_rank([p.position, p.velocity], 1)
chex.assert_equal_shape([p.position, p.velocity])
refused = 0
try:
    chex.assert_shape(p.position, (4,))
except AssertionError:
    refused += 1


@chex.assert_max_traces(n=1)
def traced(v):
    return v + 1


counted = jax.jit(traced)
counted(jnp.zeros(2))
counted(jnp.ones(2))
try:
    counted(jnp.zeros(3))
except AssertionError:
    refused += 1


@jax.jit
def checked(v):
    chex.assert_tree_all_finite(v)
    return v


try:
    chex.assert_trees_all_equal({"a": jnp.ones(2)}, {"a": jnp.zeros(2)})
except AssertionError:
    refused += 1
show(
    position=p.position, velocity=p.velocity, refused=refused, gradient=jax.grad(lambda q: q.position.sum())(p).position
)
