"""Gradients where a function has no derivative, or its formula no value, are JAX's: ties, zeros, bounds, infinities.

Each is a function of ``x`` (and ``y``), with the points at which derivatives are taken, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.lax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp

pytestmark = pytest.mark.oracle

INF, NAN = np.inf, np.nan
ZEROS = [0.0, -0.0]
LINE = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN]
PAIRS = [(a, b) for a in (0.0, 1.0, -1.0, 2.0, INF) for b in (0.0, 1.0, -1.0, 2.0, 0.5)]

SCALAR: dict[str, list[float]] = {
    **{f"jnp.{name}(x)": LINE for name in (
        "sqrt", "abs", "sign", "log", "log1p", "exp", "square", "cbrt", "reciprocal", "floor", "ceil", "trunc",
        "rint",
        "sinc", "arcsin", "arccos", "arctan", "arccosh", "arcsinh", "arctanh", "tanh", "exp2", "expm1", "log2",
        "log10",
        "sin", "cos", "tan", "sinh", "cosh", "positive", "negative", "fabs", "nan_to_num", "deg2rad", "signbit", "i0",
    )},
    **{f"nn.{name}(x)": LINE for name in (
        "relu", "relu6", "elu", "selu", "celu", "gelu", "silu", "softplus", "sigmoid", "log_sigmoid", "leaky_relu",
        "hard_tanh", "hard_sigmoid", "soft_sign", "swish",
    )},
    **{f"lax.{name}(x)": LINE for name in (
        "rsqrt", "logistic", "erf", "erfc", "erf_inv", "lgamma", "bessel_i0e",
    )},
    "lax.digamma(x)": [0.0, 1.0, -1.0, NAN], "lax.bessel_i1e(x)": [0.0, 1.0, -1.0, INF, -INF],
    "x ** 0": LINE, "x ** 1": LINE, "x ** 2": LINE, "x ** -1": LINE, "x ** 0.5": LINE, "x ** 3.0": LINE,
    "x ** 0.0": LINE,
    "x ** jnp.int32(0)": LINE, "x ** jnp.int32(2)": LINE, "2.0 ** x": LINE, "0.0 ** x": LINE, "(-1.0) ** x": LINE,
    "jnp.clip(x, 0.0, 1.0)": [*LINE, 0.5, 2.0], "jnp.clip(x, 0.0, 0.0)": LINE, "jnp.clip(x, None, 1.0)": [1.0, 2.0],
    "jnp.maximum(x, 0.0)": LINE, "jnp.minimum(0.0, x)": LINE, "jnp.maximum(x, x)": LINE, "jnp.hypot(x, x)": LINE,
    "jnp.where(x > 0, jnp.sqrt(x), 0.0)": [0.0, -1.0, 1.0], "jnp.where(x > 0, jnp.log(x), x)": [0.0, -1.0, 1.0],
    "jnp.where(x > 0, x, 1 / x)": [0.0, 1.0], "jnp.where(False, NAN * x, x)": [1.0],
    "jnp.where(x == 0, 1.0, jnp.sin(x) / jnp.where(x == 0, 1.0, x))": [0.0, 1.0],
    "jnp.arctan2(x, x)": LINE, "jnp.arctan2(x, 0.0)": LINE, "jnp.arctan2(0.0, x)": LINE,
    "jnp.fmod(x, 1.0)": [0.0, 1.0, 1.5],
    "jnp.remainder(x, 2.0)": [0.0, 2.0, -1.0], "jnp.logaddexp(x, x)": LINE, "jnp.logaddexp(x, -INF)": LINE,
    "jnp.logaddexp2(x, 1.0)": LINE, "jnp.heaviside(x, 0.5)": ZEROS, "jnp.copysign(x, -1.0)": LINE, "x / x": LINE,
    "x % x": LINE,
    "jnp.abs(x + 0j)": LINE, "jnp.angle(x + 0j)": LINE, "jnp.real(jnp.sqrt(x + 0j))": LINE, "jnp.abs(x * 1j)": LINE,
    "jnp.floor_divide(x, 2.0)": [3.0], "jnp.divmod(x, 2.0)[1]": [3.0], "jnp.modf(x)[0]": [1.5],
    "jnp.frexp(x)[0]": [1.5],
    "jnp.ldexp(x, 3)": [0.0, 1.5], "lax.stop_gradient(x) * x": LINE, "jnp.round(x, 1)": [0.25],
    "jnp.astype(x, jnp.int32) * x": [2.0],
    "special.xlogy(x, x)": [0.0, 1.0, INF], "special.xlog1py(x, x)": [0.0, 1.0], "special.entr(x)": [0.0, 1.0, -1.0],
    "special.logit(x)": [0.0, 0.5, 1.0], "special.gammaln(x)": [0.0, 1.0, -1.0],
}  # fmt: skip
TWO: dict[str, list[tuple[float, float]]] = {
    "x ** y": PAIRS, "jnp.arctan2(x, y)": PAIRS, "jnp.hypot(x, y)": PAIRS, "jnp.maximum(x, y)": PAIRS,
    "jnp.minimum(x, y)": PAIRS, "x / y": PAIRS, "jnp.fmax(x, y)": PAIRS, "jnp.logaddexp(x, y)": PAIRS,
    "jnp.remainder(x, y)": PAIRS, "jnp.float_power(x, y)": PAIRS, "special.xlogy(x, y)": PAIRS,
    "lax.rem(x, y)": PAIRS,
    "lax.clamp(x, y, 1.0)": PAIRS, "jnp.abs(lax.complex(x, y))": PAIRS, "jnp.angle(lax.complex(x, y))": PAIRS,
    "jnp.real(jnp.log(lax.complex(x, y)))": PAIRS, "jnp.imag(jnp.sqrt(lax.complex(x, y)))": PAIRS,
    "jnp.real(lax.complex(x, y) ** 2)": PAIRS, "jnp.real(jnp.sign(lax.complex(x, y)))": PAIRS,
}  # fmt: skip
TIES = [[1.0, 3.0, 3.0], [3.0, 3.0, 3.0], [NAN, 1.0, 2.0], [0.0, -0.0, 0.0], [INF, INF, 1.0], [-INF, -INF, -INF]]
FACTORS = [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [INF, 0.0, 1.0]]
VECTOR: dict[str, list[list[float]]] = {
    **{f"jnp.{name}(x)": TIES for name in ("max", "min", "ptp", "median", "nanmax", "nansum", "std", "var")},
    **{f"(jnp.{name}(x) * w).sum()": TIES for name in ("sort", "cumsum")},
    **{f"(lax.{name}(x) * w).sum()": TIES for name in ("cummax", "cummin", "cumlogsumexp")},
    "(lax.cummax(x, reverse=True) * w).sum()": TIES, "jnp.prod(x)": FACTORS, "(jnp.cumprod(x) * w).sum()": FACTORS,
    "(lax.cumprod(x, reverse=True) * w).sum()": FACTORS, "jnp.nanprod(x)": FACTORS, "special.logsumexp(x)": TIES,
    "nn.logsumexp(x, b=w)": TIES, "(nn.softmax(x) * w).sum()": TIES, "(nn.log_softmax(x) * w).sum()": TIES,
    "jnp.sqrt((x * x).sum())": [[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]],
    "jnp.abs(x).max()": [[1.0, -1.0, 1.0], [0.0, 0.0, 0.0]],
    "x[jnp.argmax(x)]": TIES, "x[jnp.argsort(x)[0]]": TIES, "lax.top_k(x, 2)[0].sum()": TIES,
    "(x[jnp.array([0, 0, 5])] * w).sum()": TIES, "x.at[jnp.array([0, 0])].max(3.0).sum()": TIES,
    "x.at[jnp.array([0, 0])].min(w[:2]).sum()": TIES, "x.at[0].set(jnp.nan)[1:].sum()": TIES,
    "jnp.where(x > 1, x, jnp.nan * x)[1]": TIES, "jnp.quantile(x, 0.5)": TIES, "jnp.percentile(x, 30.0)": TIES,
    "jnp.interp(1.5, jnp.array([0.0, 1.0, 2.0]), x)": TIES, "jnp.interp(x[0], jnp.array([0.0, 1.0, 2.0]), w)": TIES,
    "jnp.mean(x, where=x > 1)": TIES, "jnp.max(x, where=x > 1, initial=1.0)": TIES, "jnp.average(x, weights=w)": TIES,
    "(jnp.maximum(x, x[::-1]) * w).sum()": TIES, "jnp.diff(x).max()": TIES, "jnp.unwrap(x).sum()": FACTORS[:4],
    "jnp.nan_to_num(x).sum()": TIES, "(jnp.searchsorted(w, x) * x).sum()": FACTORS[:4],
}  # fmt: skip


def names_of(module: Any) -> dict[str, Any]:
    return {
        "jnp": module.numpy, "lax": module.lax, "nn": module.nn, "special": module.scipy.special, "INF": INF,
        "NAN": NAN,
        "w": module.numpy.asarray(np.float32([0.5, 1.0, 2.0])),
    }  # fmt: skip


def function(module: Any, text: str, arguments: str) -> Callable[..., Any]:
    return eval(f"lambda {arguments}: {text}", names_of(module))


def slopes(module: Any, f: Callable[..., Any], given: list[Any]) -> list[Any]:
    """Gradients, then the derivative along ones; nothing of a result that is no float."""
    out, pull = module.vjp(f, *given)
    if out.dtype != np.float32:
        return []
    ones = [module.numpy.ones_like(x) for x in given]
    return [*pull(module.numpy.ones_like(out)), module.jvp(f, given, ones)[1]]


def columns(points: list[Any], count: int) -> list[np.ndarray]:
    """The points of an elementwise function as one array per argument, of one length for all functions."""
    rows = np.float32(points).reshape(len(points), -1)
    return [np.resize(column, count) for column in rows.T]


CASES = [
    *((text, "x", [columns(points, 9)]) for text, points in SCALAR.items()),
    *((text, "x, y", [columns(points, 25)]) for text, points in TWO.items()),
    *((text, "x", [[np.float32(x)] for x in points]) for text, points in VECTOR.items()),
]


# One operation at a time would compile for 40 s. The passes left out take products with a mask for selections.
PLAIN = {"xla_backend_optimization_level": 0, "xla_disable_hlo_passes": "algsimp,fusion,cpu-instruction-fusion"}


@pytest.fixture(scope="module")
def expected(chosen: Any) -> dict[str, list[np.ndarray]]:
    """JAX's slopes at all points, by one compiled program; the points of one function are its first dimension."""
    cases = [params["case"] for params in chosen(test_gradients_are_jax_s)]

    def run(points: Any) -> Any:
        functions = {text: function(jax, text, names) for text, names, _ in cases}
        return {
            text: jax.lax.map(lambda x, f=f: slopes(jax, f, list(x)), points[text]) for text, f in functions.items()
        }

    points = {text: tuple(np.stack(column) for column in zip(*points, strict=True)) for text, _, points in cases}
    return jax.tree.map(np.asarray, jax.jit(run).lower(points).compile(PLAIN)(points))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_gradients_are_jax_s(case: Any, expected: dict[str, list[np.ndarray]]) -> None:
    text, names, points = case
    f = function(weft, text, names)
    for index, args in enumerate(points):
        found = slopes(weft, f, [jnp.asarray(x) for x in args])
        for a, b in zip(found, expected[text], strict=True):
            np.testing.assert_allclose(np.asarray(a), b[index], rtol=2e-5, atol=1e-6, err_msg=f"{text} at {args}")
