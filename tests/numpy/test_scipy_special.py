"""weft.scipy.special against SciPy, its derivatives against differences, its programs against JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import weft
import weft.scipy.special as special
from weft import config
from weft.numpy import asarray

RNG = np.random.default_rng(4)
POSITIVE = RNG.uniform(0.1, 9, 60), RNG.uniform(0.1, 9, 60)
INPUTS: dict[str, tuple[np.ndarray, ...]] = {
    "gammainc": POSITIVE,
    "gammaincc": POSITIVE,
    "betainc": (*POSITIVE, RNG.uniform(0, 1, 60)),
    "i0": (RNG.uniform(-9, 9, 60),),
    "i0e": (RNG.uniform(-90, 90, 60),),
    "i1": (RNG.uniform(-9, 9, 60),),
    "i1e": (RNG.uniform(-90, 90, 60),),
    "zeta": (RNG.uniform(1.1, 9, 60), RNG.uniform(0.1, 9, 60)),
    "polygamma": (RNG.integers(0, 6, 60), RNG.uniform(0.1, 9, 60)),
    "poch": (RNG.uniform(0.5, 5, 60), RNG.uniform(0, 3, 60)),
    "ndtri": (np.concatenate([RNG.uniform(0, 1, 60), 10.0 ** RNG.uniform(-300, 0, 30), [0, 1, 0.5, -1, 2, np.nan]]),),
    "log_ndtr": (np.concatenate([RNG.uniform(-40, 40, 90), [-1e5, 1e5, np.inf, -np.inf, np.nan, -20, -10, 0]]),),
}


def run(name: str, *arrays: Any) -> np.ndarray:
    with config.context("enable_x64", True):
        return np.asarray(getattr(special, name)(*map(asarray, arrays)))


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values(name: str) -> None:
    expected = getattr(scipy.special, name)(*INPUTS[name])
    np.testing.assert_allclose(run(name, *INPUTS[name]), expected, rtol=1e-12, atol=1e-15)
    single = [v.astype(np.int32 if v.dtype.kind == "i" else np.float32) for v in INPUTS[name]]
    wide = getattr(scipy.special, name)(*(v if v.dtype.kind == "i" else v.astype(np.float64) for v in single))
    found = run(name, *single)
    assert found.dtype == np.float32
    kept = np.isfinite(wide.astype(np.float32)) & (np.abs(wide) > 1e-30)
    np.testing.assert_allclose(found[kept], wide[kept], rtol=2e-5, atol=1e-6)


DIFFERENTIABLE = {"gammainc": (0, 1), "gammaincc": (0, 1), "betainc": (2,), "i0": (0,), "i1e": (0,), "poch": (0, 1)}
POINT = {"gammainc": (2.0, 1.5), "gammaincc": (2.0, 1.5), "betainc": (2.0, 3.0, 0.4), "i0": (1.2,), "i1e": (-1.2,)}


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, "ndtri", "log_ndtr"])
def test_derivatives(name: str) -> None:
    point = {**POINT, "poch": (2.0, 1.5), "ndtri": (0.3,), "log_ndtr": (-25.0,)}[name]
    for k in DIFFERENTIABLE.get(name, (0,)):
        with config.context("enable_x64", True):
            slope = float(weft.grad(getattr(special, name), k)(*point))
        ends = [[*point[:k], point[k] + h, *point[k + 1 :]] for h in (1e-6, -1e-6)]
        high, low = (getattr(scipy.special, name)(*e) for e in ends)
        assert slope == pytest.approx((high - low) / 2e-6, rel=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "betainc", "i0", "i0e", "i1", "i1e", "polygamma"])
def test_programs_are_those_of_jax(name: str) -> None:
    count = len(INPUTS[name])
    x = [np.ones(3, np.int32 if name == "polygamma" and k == 0 else np.float32) for k in range(count)]
    ours = weft.make_jaxpr(getattr(special, name))(*x)
    theirs = jax.make_jaxpr(getattr(jax.scipy.special, name))(*map(jnp.asarray, x))
    assert str(ours) == str(theirs)


def test_what_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="zeta"):
        special.zeta(2.0)
    with pytest.raises(TypeError, match="float32 or float64"):
        special.ndtri(asarray(np.float16(0.5)))
    with pytest.raises(ValueError, match="integer"):
        special.polygamma(1.0, 1.0)
    with pytest.raises(ValueError, match="series_order"):
        special.log_ndtr(1.0, 31)
    with pytest.raises(NotImplementedError, match="zeta"):
        weft.grad(weft.lax.zeta)(2.0, 1.0)


def test_i0_of_numpy() -> None:
    x = np.linspace(-5, 5, 31)
    with config.context("enable_x64", True):
        np.testing.assert_allclose(np.asarray(weft.numpy.i0(asarray(x))), np.i0(x), rtol=1e-13)
        np.testing.assert_allclose(float(weft.grad(weft.numpy.i0)(1.5)), scipy.special.i1(1.5), rtol=1e-13)
    with pytest.raises(ValueError, match="complex64"):
        weft.numpy.i0(1j)


@pytest.mark.oracle
def test_the_program_of_i0_is_that_of_jax() -> None:
    x = np.ones(3, np.float32)
    assert str(weft.make_jaxpr(weft.numpy.i0)(x)) == str(jax.make_jaxpr(jnp.i0)(x))


@pytest.mark.parametrize("v", [0, 1, 12, 40])
def test_bessel_functions_of_all_orders(v: int) -> None:
    z = np.concatenate([[0, 1e-8, 24.9, 25, 25.1, 300, -1, -20, -40, np.nan], np.linspace(0, 60, 30)])
    with weft.enable_x64(True):
        expected = np.stack([scipy.special.jv(order, z) for order in range(v + 1)])
        np.testing.assert_allclose(special.bessel_jn(z, v=v), expected, atol=1e-14)
        slopes = weft.grad(lambda z: special.bessel_jn(z, v=v)[v].sum())(z[:9])
        np.testing.assert_allclose(slopes, scipy.special.jvp(v, z[:9]), atol=1e-14)
    found = weft.jit(lambda z: special.bessel_jn(z, v=v))(z.astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=3e-5)  # at 300 the argument itself is rounded
    for bad, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            special.bessel_jn(z, v=bad)
