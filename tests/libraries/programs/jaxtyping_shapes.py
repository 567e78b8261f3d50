"""Shapes and dtypes in annotations, checked at run time, under jit and grad."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, jaxtyped
from results import show

Rows, Weights, Values = Float[Array, "batch dim"], Float[Array, "dim"], Float[Array, "batch"]


def no_checker(function):
    return function


@jaxtyped(typechecker=no_checker)
def weighted(x: Rows, w: Weights) -> Values:
    assert isinstance(x, Rows)
    assert isinstance(w, Weights)
    return x @ w


x, w = jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, -1.0, 2.0])
answers = [
    isinstance(x, Float[Array, "2 3"]),
    isinstance(x, Int[Array, "2 3"]),
    isinstance(x, Float[Array, "3 2"]),
    isinstance({"a": x}, PyTree[Float[Array, "..."]]),
    isinstance(jnp.arange(3), Int[Array, "n"]),
]
show(
    value=jax.jit(weighted)(x, w),
    gradient=jax.grad(lambda w: jnp.sum(weighted(x, w) ** 2))(w),
    answers=jnp.array(answers),
)
