"""platform_dependent beside JAX's: programs, values, derivatives, vmap and errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

CHOICES = {
    "named": "lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)",
    "default": "lambda x: lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.sin, default=jnp.cos)",
    "alone": "lambda x: lax.platform_dependent(x, cpu=jnp.sin)",
    "several": "lambda x: lax.platform_dependent(x, cuda=jnp.exp, cpu=jnp.sin, rocm=jnp.exp)",
    "in a loop": "lambda x: lax.fori_loop(0, 3, lambda i, s: lax.platform_dependent(s, cpu=jnp.sin, tpu=jnp.cos), x)",
}
USES = {
    "eager": "lambda f: f(m.numpy.float32(0.5))",
    "jit": "lambda f: m.jit(f)(0.5)",
    "grad": "lambda f: m.grad(f)(0.5)",
    "jit of grad": "lambda f: m.jit(m.grad(f))(0.5)",
    "jvp": "lambda f: m.jvp(f, (0.5,), (2.0,))",
    "vmap": "lambda f: m.vmap(f)(m.numpy.arange(3.0))",
    "jit of vmap of grad": "lambda f: m.jit(m.vmap(m.grad(f)))(m.numpy.arange(3.0))",
}


def made(text: str, m: Any) -> Any:
    return eval(text, {"lax": lax if m is weft else jax.lax, "jnp": jnp if m is weft else jax.numpy, "m": m})


@pytest.mark.oracle
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("choice", CHOICES)
def test_values_are_jax_s(choice: str, use: str) -> None:
    ours, theirs = (jax.tree.map(np.asarray, made(USES[use], m)(made(CHOICES[choice], m))) for m in (weft, jax))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours, theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("choice", CHOICES)
def test_programs_print_as_jax_s(choice: str) -> None:
    ours, theirs = (made(CHOICES[choice], m) for m in (weft, jax))
    assert str(weft.make_jaxpr(ours)(1.0)) == str(jax.make_jaxpr(theirs)(1.0))
    mapped = weft.make_jaxpr(weft.vmap(ours))(jnp.ones(2))
    assert str(mapped) == str(jax.make_jaxpr(jax.vmap(theirs))(jax.numpy.ones(2)))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("lax.platform_dependent(1.0, cuda=jnp.sin)", NotImplementedError),
        ("m.jit(lambda x: lax.platform_dependent(x, cuda=jnp.sin))(1.0)", NotImplementedError),
        ("m.jit(lambda x: lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.cos))(1.0)", NotImplementedError),
        ("lax.platform_dependent(1.0, gpu=jnp.sin)", ValueError),
        ("lax.platform_dependent(1.0, cpu=3)", TypeError),
        ("lax.platform_dependent(1.0, cpu=jnp.sin, default=3)", TypeError),
        ("m.jit(lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=lambda x: (x, x)))(1.0)", TypeError),
    ],
)
def test_wrong_use(text: str, error: type[Exception]) -> None:
    for m in (weft, jax):
        with pytest.raises(error):
            made(text, m)


def test_only_the_chosen_program_is_compiled() -> None:
    f = weft.jit(lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x @ x))
    x = jnp.ones((4, 4))
    assert f(x).tolist() == (np.ones((4, 4)) + 1).tolist()
    assert "gemm" not in f.lower(x).compile().as_text("plan")
    known = weft.jit(lambda x: lax.cond(True, lambda x: x + 1, lambda x: x @ x, x))
    assert "gemm" not in known.lower(x).compile().as_text("plan")
