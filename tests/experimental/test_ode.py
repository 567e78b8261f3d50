"""weft.experimental.ode.odeint beside SciPy's solver, exact solutions and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import weft
import weft.numpy as jnp
from weft.experimental.ode import odeint
from weft.test_util import check_grads


def pendulum(y: Any, t: Any, damping: Any, force: Any) -> Any:
    return jnp.stack([y[1], -damping * y[1] - force * jnp.sin(y[0]) + 0.1 * jnp.cos(t)])


def test_a_pendulum_swings_as_in_scipy() -> None:
    with weft.enable_x64(True):
        times, y0 = np.linspace(0, 8, 20), np.array([3.0, 0.1])
        ours = odeint(pendulum, y0, times, 0.25, 9.8, rtol=1e-9, atol=1e-9)
    theirs = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], -0.25 * y[1] - 9.8 * np.sin(y[0]) + 0.1 * np.cos(t)], (0, 8), y0, t_eval=times,
        rtol=1e-11, atol=1e-11, method="DOP853",
    )  # fmt: skip
    np.testing.assert_allclose(ours, theirs.y.T, rtol=0, atol=2e-6)


def test_the_order_of_steps_and_of_the_interpolant() -> None:
    """With a tolerance a thousand times smaller the error falls by as much, between steps too."""
    with weft.enable_x64(True):
        times = np.linspace(0, 3, 40)
        errors = [
            np.max(np.abs(np.asarray(odeint(lambda y, t: -y * jnp.sin(t), 1.0, times, rtol=tol, atol=tol))
                          - np.exp(np.cos(times) - 1)))
            for tol in (1e-5, 1e-8)
        ]  # fmt: skip
    assert errors[0] < 1e-4 and errors[1] < errors[0] / 100


def test_trees_closures_and_vmap() -> None:
    times = jnp.array([0.0, 0.5, 1.5])

    def solve(rate: Any) -> Any:
        y0 = {"a": jnp.ones(2), "b": jnp.array(2.0)}
        return odeint(lambda y, t, k: {"a": -rate * y["a"], "b": k * y["b"]}, y0, times, 0.5, rtol=1e-6, atol=1e-6)

    out = weft.vmap(solve)(jnp.array([1.0, 2.0]))
    assert out["a"].shape == (2, 3, 2) and out["b"].shape == (2, 3)
    np.testing.assert_allclose(out["a"][1, :, 0], np.exp(-2 * np.asarray(times)), rtol=1e-4)
    np.testing.assert_allclose(out["b"][0], 2 * np.exp(0.5 * np.asarray(times)), rtol=1e-4)
    slope = weft.grad(lambda rate: solve(rate)["a"][-1, 0])(1.0)
    np.testing.assert_allclose(slope, -1.5 * np.exp(-1.5), rtol=1e-4)


def test_derivatives() -> None:
    with weft.enable_x64(True):
        times, y0 = jnp.array([0.1, 0.4, 1.0]), jnp.array([1.2, -0.1])

        def f(y0: Any, times: Any, damping: Any, force: Any) -> Any:
            return odeint(pendulum, y0, times, damping, force, rtol=1e-10, atol=1e-10)

        check_grads(weft.jit(f), (y0, times, 0.25, 2.0), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)


def test_steps_are_bounded() -> None:
    calls: list[int] = []

    def f(y: Any, t: Any) -> Any:
        weft.debug.callback(lambda: calls.append(1))
        return jnp.cos(t) + 0 * y

    times = jnp.array([0.0, 1.0])
    out = odeint(f, 0.0, times, hmax=0.01)
    weft.effects_barrier()
    assert len(calls) > 6 * 99
    np.testing.assert_allclose(out[1], np.sin(1.0), rtol=1e-5)
    assert np.isfinite(np.asarray(odeint(lambda y, t: y**2, 1.0, jnp.array([0.0, 2.0]), mxstep=20))[0])


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="floats"):
        odeint(lambda y, t: y, 1.0, jnp.arange(3))
    with pytest.raises(TypeError, match=r"odeint \*args must be arrays"):
        odeint(lambda y, t, a: y, 1.0, jnp.arange(3.0), "a")
