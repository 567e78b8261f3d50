"""Programs of every kind of kernel, in sizes that fill vectors and leave tails, with inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import weft
import weft.numpy as jnp
from weft import lax

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers, the same in every run."""
    rng = np.random.default_rng([*shape, np.dtype(dtype).itemsize])
    if np.dtype(dtype).kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def whole(low: int, high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    """Integers from ``low`` up to, not including, ``high``."""
    return np.random.default_rng([*shape, high]).integers(low, high, shape, np.int64).astype(dtype)


BF16 = ml_dtypes.bfloat16
X = normal(1003)
WIDE = normal(70, 133)
SHORT = normal(300, 10)  # rows shorter than a few vectors
HALF = normal(1003, dtype=np.float16) * 40
DOUBLE = normal(517, dtype=np.float64)
COMPLEX = normal(517, dtype=np.complex64)
INTEGER = whole(-(2**31), 2**31, 1003)
ANGLES = normal(1003) * 1e5  # the sine's exact range reduction is needed by some
INDICES = whole(0, 70, 90)
BINS = whole(0, 50, 2000)
KEY = np.array([7, 42], np.uint32)
EDGES = np.array([*[np.inf, -np.inf, np.nan, 3e9, -3e9, 1e20], *[2147483520, -129, 255.5, 65504, -0.0]] * 9, np.float32)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + lax.erf(x * 0.7071))


def log_density(x: Any) -> Any:
    return jnp.sum(-0.5 * (x - 1.5) ** 2 / 2.25 - jnp.log(1.5) - jnp.log1p(jnp.exp(-x)))


def layernorm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def heat(x: Any) -> Any:
    middle = x[1:-1, 1:-1]
    return middle + 0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * middle)


def newton(x: Any) -> Any:
    return lax.fori_loop(0, 20, lambda _, y: 0.5 * (y + x / y), x)


def collatz(n: Any) -> Any:
    def step(state: Any) -> Any:
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]


def conversions(x: Any) -> Any:
    names = ("int8", "uint8", "int16", "int32", "uint32", "float16", "bfloat16", "bool")
    return tuple(x.astype(name) for name in names)


def divisions(x: Any, y: Any) -> Any:
    return x // y, x % y, lax.div(x, y), lax.rem(x, y), x // 7, x % 10


def complex_arithmetic(z: Any) -> Any:
    return z * z.conj() + jnp.exp(z), z / (z + 1), jnp.abs(z), jnp.sqrt(z)


CASES: dict[str, Case] = {
    "arithmetic": (lambda x: (x * 3 + 1) / (x * x + 0.5) - abs(x), (X,)),
    "gelu": (gelu, (X,)),
    "exp log": (lambda x: jnp.log(jnp.exp(x) + 1), (X,)),
    "trigonometry": (lambda x: jnp.sin(x) * jnp.cos(x) + jnp.tan(x), (ANGLES,)),
    "hyperbolic": (lambda x: jnp.tanh(x) + jnp.sinh(x) / jnp.cosh(x), (X,)),
    "powers and roots": (lambda x: (abs(x) ** 1.7, jnp.cbrt(x), jnp.sqrt(abs(x)), lax.rsqrt(abs(x))), (X,)),
    "inverse functions": (lambda x: (jnp.arctan2(x, 0.3), jnp.arcsinh(x), lax.erf_inv(x / 5)), (X,)),
    "gamma functions": (lambda x: lax.digamma(abs(x) + 1) + lax.lgamma(abs(x) + 1), (X,)),
    "float64": (lambda x: jnp.exp(x) + jnp.sin(x) * jnp.log1p(x * x), (DOUBLE,)),
    "float16": (lambda x: (x * x + x, jnp.exp(-abs(x)), jnp.floor(x), x.astype(jnp.float32)), (HALF,)),
    "bfloat16": (lambda x: (x * x + x, jnp.exp(-abs(x)), x.astype(jnp.float32) / 3), (X.astype(BF16),)),
    "sum of float16": (lambda x: jnp.sum(x, axis=-1), (normal(40, 90, dtype=np.float16),)),
    "largest bfloat16": (lambda x: (jnp.max(x, axis=-1), jnp.min(x, axis=0)), (WIDE.astype(BF16),)),
    "conversions": (conversions, (EDGES,)),
    "integers to floats": (lambda x: (x.astype(jnp.float32), x.astype(jnp.float16), x.astype(jnp.int8)), (INTEGER,)),
    "complex": (complex_arithmetic, (COMPLEX,)),
    "divisions": (divisions, (INTEGER, whole(-9, 9, 1003))),
    "divisions of int8": (divisions, (whole(-128, 128, 517, dtype=np.int8), whole(-5, 5, 517, dtype=np.int8))),
    "divisions of uint64": (divisions, (whole(0, 2**62, 517, dtype=np.uint64), whole(1, 9999, 517, dtype=np.uint64))),
    "products of int64": (lambda x: (x * x * 12345, lax.mulhi(x, x)), (whole(-(2**62), 2**62, 517, dtype=np.int64),)),
    "bits": (lambda x: (lax.population_count(x), lax.clz(x), x << 3, x >> 5, ~x ^ (x & 1023)), (INTEGER,)),
    "threefry": (lambda key: (weft.random.bits(key, (999,)), weft.random.normal(key, (999,))), (KEY,)),
    "sum of all": (lambda x: jnp.sum(x**2 + jnp.sin(x)), (normal(100_003),)),
    "log density": (log_density, (normal(5003),)),
    "sums of rows": (lambda x: (jnp.sum(x, axis=1), jnp.max(x, axis=1), jnp.prod(x, axis=1)), (WIDE,)),
    "sums of columns": (lambda x: (jnp.sum(x, axis=0), jnp.min(x, axis=0)), (normal(700, 37),)),
    "sums of many rows": (lambda x: jnp.sum(x, axis=0), (normal(9000, 6),)),
    "sums of the middle": (lambda x: jnp.sum(x, axis=1), (normal(9, 50, 21),)),
    "softmax": (lambda x: weft.nn.softmax(x), (WIDE,)),
    "softmax of columns": (lambda x: weft.nn.softmax(x, axis=0), (WIDE,)),
    "softmax of short rows": (lambda x: weft.nn.softmax(x), (SHORT,)),
    "layernorm": (layernorm, (WIDE,)),
    "position of the largest": (lambda x: (jnp.argmax(x, axis=1), jnp.argmin(x, axis=0), jnp.argmax(x)), (WIDE,)),
    "position in short rows": (lambda x: jnp.argmax(x, axis=1), (SHORT,)),
    "running sums of rows": (lambda x: (jnp.cumsum(x, axis=1), jnp.cumsum(x, axis=0)), (WIDE,)),
    "running extrema": (lambda x: (lax.cummax(x, axis=1), lax.cumlogsumexp(x, axis=0)), (WIDE,)),
    "transpose": (lambda x: x.T * 2, (WIDE,)),
    "transpose of bytes": (lambda x: x.T + x.T.dtype.type(1), (whole(0, 255, 70, 133, dtype=np.uint8),)),
    "transpose of three": (lambda x: jnp.transpose(x, (2, 0, 1)) + 1, (normal(9, 20, 35),)),
    "outer sum": (lambda x, y: x[:, None] + y[None, :], (normal(70), normal(133))),
    "reversed and strided": (lambda x: x[::-1] * 2 + x[::1], (X,)),
    "every third": (lambda x: x[1::3] + x[:-1:3][:334], (X,)),
    "padded": (lambda x: jnp.pad(x, ((3, 2), (1, 5))) + 1, (WIDE,)),
    "concatenated": (lambda x: jnp.concatenate([x, x[:, :20] * 2], axis=1), (WIDE,)),
    "gathered rows": (lambda x, i: x[i] + 1, (WIDE, INDICES)),
    "gathered elements": (lambda x, i: x[i] * 2, (X, BINS)),
    "scattered sums": (lambda i: jnp.zeros(50, jnp.float32).at[i].add(0.1), (BINS,)),
    "scattered rows": (lambda x, i: x.at[i].add(x[:40] * 2), (WIDE, whole(0, 70, 40))),
    "dynamic slice": (lambda x, i: lax.dynamic_slice(x, (i, i + 3), (20, 33)) * 2, (WIDE, np.int32(11))),
    "heat": (heat, (WIDE,)),
    "windows": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (3, 3), (2, 2), "SAME"), (WIDE,)),
    "loop in registers": (newton, (np.float32(7),)),
    "loop over lanes": (lambda x: newton(abs(x) + 1), (X,)),
    "lanes that end early": (weft.vmap(collatz), (whole(1, 300, 101),)),
}
