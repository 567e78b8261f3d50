"""float0, the type of tangents of integers, under jit, vmap and control flow: it passes, and cannot be used."""

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

SCALAR, ROW = np.zeros((), weft.float0), np.zeros(3, weft.float0)
slope = weft.grad(lambda n: 2.0 * n, allow_int=True)


def checked(value, shape):
    """A value of float0, through NumPy."""
    assert value.dtype == weft.float0
    assert value.shape == np.asarray(value).shape == shape
    assert np.asarray(value).dtype == weft.float0


@pytest.mark.parametrize(
    "wrap", [lambda f: f, weft.jit, lambda f: weft.jit(weft.jit(f))], ids=["eager", "jit", "twice"]
)
def test_gradient_of_integer_has_dtype_float0(wrap):
    checked(wrap(slope)(1), ())
    checked(wrap(weft.vmap(slope))(jnp.arange(3)), (3,))
    checked(weft.vmap(wrap(slope))(jnp.arange(3)), (3,))
    tree = wrap(weft.grad(lambda p: (p["w"] * p["n"]).sum(), allow_int=True))({"w": 1.5, "n": np.arange(3)})
    assert tree["w"] == 3
    checked(tree["n"], (3,))


def test_gradient_of_key_has_dtype_float0_when_integers_are_allowed():
    of_key = weft.grad(weft.random.normal, allow_int=True)
    checked(of_key(weft.random.key(0)), ())
    checked(weft.jit(of_key)(weft.random.key(0)), ())
    with pytest.raises(TypeError, match="grad requires real"):
        weft.grad(weft.random.normal)(weft.random.key(0))


def test_pullback_and_pushforward_pass_through_jit():
    _, pullback = weft.vjp(lambda x, n: x * n, 2.0, 3)
    for _ in range(2):
        x_bar, n_bar = weft.jit(pullback)(1.0)
        assert x_bar == 3
        checked(n_bar, ())
    out, tangent = weft.jit(lambda x: weft.jvp(lambda a: a.astype(int), (x,), (1.0,)))(1.5)
    assert out == 1
    checked(tangent, ())
    checked(weft.jit(lambda n: weft.linearize(lambda a: a * 2, n)[1])(1)(SCALAR), ())


def test_arguments_of_dtype_float0_are_accepted_by_jit_and_vmap():
    first, second = weft.jit(lambda z, x: (z, x + 1))(ROW, 1.0)
    checked(first, (3,))
    assert second == 2
    checked(weft.jit(lambda z: z)(first), (3,))
    _, tangent = weft.jit(lambda n, t: weft.jvp(lambda a: a * 2.0, (n,), (t,)))(1, SCALAR)
    assert tangent == 0
    (ct,) = weft.jit(lambda x, t: weft.vjp(lambda a: a.astype(int), x)[1](t))(1.0, SCALAR)
    assert ct == 0
    _, tangents = weft.vmap(lambda n, t: weft.jvp(lambda a: a * 2.0, (n,), (t,)))(jnp.arange(3), ROW)
    assert tangents.tolist() == [0, 0, 0]
    checked(weft.jit(lambda z, x: (z, x)).lower(ROW, 1.0).compile()(ROW, 1.0)[0], (3,))


def test_moving_elements_keeps_dtype_float0():
    checked(weft.jit(lambda z: jnp.stack([z, z]))(ROW), (2, 3))
    checked(weft.jit(lambda z: z[0])(ROW), ())
    checked(weft.jit(lambda z: z.reshape(3, 1))(ROW), (3, 1))
    checked(weft.vmap(lambda z: z, out_axes=1)(np.zeros((3, 2), weft.float0)), (2, 3))
    checked(jnp.asarray(ROW), (3,))
    checked(jnp.zeros((3,), weft.float0), (3,))


def test_control_flow_carries_float0():
    _, stacked = lax.scan(lambda c, n: (c, slope(n)), 0.0, jnp.arange(3))
    checked(stacked, (3,))
    checked(lax.cond(jnp.array(True), slope, lambda n: SCALAR, 1), ())


def test_jacobian_of_integers_is_zeros_of_their_dtype():
    for function in (jac := weft.jacrev(lambda n: n * 2.0, allow_int=True), weft.jit(jac)):
        found = function(jnp.arange(2))
        assert found.dtype == np.int32
        assert found.tolist() == [[0, 0], [0, 0]]


def test_programs_show_float0():
    assert "float0[]" in str(weft.make_jaxpr(slope)(1))
    assert str(weft.make_jaxpr(lambda z: z)(ROW)) == "{ lambda ; a:float0[3]. let  in (a,) }"


@pytest.mark.parametrize(
    "function",
    [
        lambda z: jnp.add(z, 1), lambda z: lax.add(z, z), jnp.sin, lax.sin, jnp.sum, lambda z: z * jnp.ones(3),
        lambda z: jnp.equal(z, 1),
    ],
    ids=["add", "lax-add", "sin", "lax-sin", "sum", "mul", "eq"],
)  # fmt: skip
def test_arithmetic_on_float0_is_refused(function):
    for run in (function, weft.jit(function)):
        with pytest.raises(TypeError, match="with a float0 array"):
            run(ROW)


def test_conversion_of_float0_gives_zeros():
    for run in (jnp.asarray(ROW).astype, lambda dtype: weft.jit(lambda z: lax.convert_element_type(z, dtype))(ROW)):
        assert run(jnp.float32).tolist() == [0, 0, 0]


def test_cotangents_of_integer_results_may_be_integers() -> None:
    x = np.ones(3, np.float32)
    pullback = weft.vjp(lambda v: (2 * v, v.astype(np.int32)), x)[1]
    for ct in (np.zeros(3, np.int32), np.zeros(3, weft.dtypes.float0)):
        assert pullback((x, ct))[0].tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="unexpected JAX type"):
        pullback((x, np.zeros(2, np.int32)))
