"""The table of samples: for every primitive of lax, programs that use it and inputs that test it.

``ELEMENTWISE`` gives operand dtypes, domain and allowed error per operation; ``PROGRAMS`` are calls written once for
weft.lax and jax.lax alike (the first argument is the module); ``ERRORS`` are calls that must raise. Tests compare
typing, printing, NumPy oracles and, through the compiler, values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.operations import convolution_samples, indexing_samples, window_samples

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
BOOL = [np.dtype(np.bool_)]
SIGNED = [np.dtype(f"i{n}") for n in (1, 2, 4, 8)]
UNSIGNED = [np.dtype(f"u{n}") for n in (1, 2, 4, 8)]
INTEGER = SIGNED + UNSIGNED
FLOAT = [BF16, F16, F32, F64]
COMPLEX = [C64, C128]
NUMBER = INTEGER + FLOAT + COMPLEX
ANY = BOOL + NUMBER


@dataclass(frozen=True)
class Operation:
    """One elementwise operation: its public name, operand count, dtypes, interesting range and allowed error.

    ``ulps`` and ``complex_ulps`` bound weft's distance to the oracle, ``jax_ulps`` JAX's own on this machine;
    ``absolute`` adds that many eps near zeros of the function. Complex results are compared by their modulus.
    """

    name: str
    operands: int
    dtypes: list[np.dtype]
    low: float = -4.0
    high: float = 4.0
    ulps: float = 1.5
    complex_ulps: float = 4.0
    jax_ulps: float = 16.0
    absolute: float = 0.0
    primitive: str | None = None

    @property
    def primitive_name(self) -> str:
        return self.primitive or self.name


ELEMENTWISE = [
    Operation("neg", 1, NUMBER, ulps=0, complex_ulps=0),
    Operation("sign", 1, NUMBER, ulps=0, complex_ulps=2),
    Operation("floor", 1, FLOAT, ulps=0),
    Operation("ceil", 1, FLOAT, ulps=0),
    Operation("round", 1, FLOAT, ulps=0),
    Operation("is_finite", 1, FLOAT),
    Operation("exp", 1, FLOAT + COMPLEX, -90, 90),
    Operation("exp2", 1, FLOAT + COMPLEX, -125, 125, jax_ulps=128),
    Operation("expm1", 1, FLOAT + COMPLEX),
    Operation("log", 1, FLOAT + COMPLEX, 0, 100),
    Operation("log1p", 1, FLOAT + COMPLEX, -1, 10, jax_ulps=128),
    Operation("logistic", 1, FLOAT + COMPLEX, -20, 20, ulps=2.5, complex_ulps=64),
    Operation("sin", 1, FLOAT + COMPLEX, -80, 80),
    Operation("cos", 1, FLOAT + COMPLEX, -80, 80),
    Operation("tan", 1, FLOAT + COMPLEX),
    Operation("asin", 1, FLOAT + COMPLEX, -1, 1),
    Operation("acos", 1, FLOAT + COMPLEX, -1, 1),
    Operation("atan", 1, FLOAT + COMPLEX, -10, 10),
    Operation("sinh", 1, FLOAT + COMPLEX, -10, 10, jax_ulps=64),
    Operation("cosh", 1, FLOAT + COMPLEX, -10, 10, jax_ulps=64),
    Operation("tanh", 1, FLOAT + COMPLEX, ulps=3),  # 2.6 without AVX-512
    Operation("asinh", 1, FLOAT + COMPLEX, -10, 10),
    Operation("acosh", 1, FLOAT + COMPLEX, 1, 10),
    Operation("atanh", 1, FLOAT + COMPLEX, -1, 1, jax_ulps=512),
    Operation("sqrt", 1, FLOAT + COMPLEX, 0, 100, ulps=0.5),
    Operation("rsqrt", 1, FLOAT + COMPLEX, 0, 100, complex_ulps=8),
    Operation("cbrt", 1, FLOAT, -100, 100),
    Operation("square", 1, NUMBER, ulps=0.5, complex_ulps=4),
    Operation("erf", 1, FLOAT),
    Operation("erfc", 1, FLOAT),
    Operation("erf_inv", 1, FLOAT, -1, 1, jax_ulps=64),
    Operation("lgamma", 1, FLOAT, 0, 20, ulps=4, absolute=16),
    Operation("digamma", 1, FLOAT, 0, 20, ulps=8, absolute=8),
    Operation("bessel_i0e", 1, FLOAT, -20, 20, ulps=4),
    Operation("bessel_i1e", 1, FLOAT, -20, 20, ulps=8, jax_ulps=64),
    Operation("abs", 1, SIGNED + FLOAT + COMPLEX, ulps=0, complex_ulps=2),
    Operation("real", 1, COMPLEX),
    Operation("imag", 1, COMPLEX),
    Operation("conj", 1, [F32, F64, *COMPLEX], ulps=0, complex_ulps=0),
    Operation("bitwise_not", 1, BOOL + INTEGER, primitive="not"),
    Operation("population_count", 1, INTEGER),
    Operation("clz", 1, INTEGER),
    Operation("add", 2, NUMBER, ulps=0.5, complex_ulps=1),
    Operation("sub", 2, NUMBER, ulps=0.5, complex_ulps=1),
    Operation("mul", 2, NUMBER, ulps=0.5, complex_ulps=4),
    Operation("div", 2, NUMBER, ulps=0.5, complex_ulps=8),
    Operation("rem", 2, INTEGER + FLOAT, ulps=0),
    Operation("max", 2, ANY, ulps=0, complex_ulps=0),
    Operation("min", 2, ANY, ulps=0, complex_ulps=0),
    Operation("pow", 2, FLOAT + COMPLEX, 0, 5, complex_ulps=64, jax_ulps=256),
    Operation("atan2", 2, FLOAT + COMPLEX, complex_ulps=64, absolute=4),
    Operation("nextafter", 2, FLOAT, ulps=0),
    Operation("complex", 2, [F32, F64], complex_ulps=0),
    Operation("mulhi", 2, INTEGER),
    Operation("eq", 2, ANY),
    Operation("ne", 2, ANY),
    Operation("lt", 2, BOOL + INTEGER + FLOAT),
    Operation("le", 2, BOOL + INTEGER + FLOAT),
    Operation("gt", 2, BOOL + INTEGER + FLOAT),
    Operation("ge", 2, BOOL + INTEGER + FLOAT),
    Operation("bitwise_and", 2, BOOL + INTEGER, primitive="and"),
    Operation("bitwise_or", 2, BOOL + INTEGER, primitive="or"),
    Operation("bitwise_xor", 2, BOOL + INTEGER, primitive="xor"),
    Operation("shift_left", 2, INTEGER),
    Operation("shift_right_logical", 2, INTEGER),
    Operation("shift_right_arithmetic", 2, INTEGER),
    Operation("clamp", 3, ANY, ulps=0, complex_ulps=0),
]


# ---- inputs


def values(operation: Operation, dtype: np.dtype, index: int, count: int = 200) -> np.ndarray:
    """Operand ``index``: random values of the operation's range, then special ones in a pattern of all pairs."""
    rng = np.random.default_rng([index, count, *map(ord, operation.name)])
    special = specials(dtype)
    repeats = max(len(special), 1)
    paired = np.tile(special, repeats) if index % 2 else np.repeat(special, repeats)
    if operation.operands == 1:
        paired = special
    return np.concatenate([random_values(rng, dtype, operation.low, operation.high, count), paired.astype(dtype)])


def random_values(rng: Any, dtype: np.dtype, low: float, high: float, count: int) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, count // 2, dtype=dtype, endpoint=True)
        small = rng.integers(0 if dtype.kind == "u" else -8, 40, count - count // 2).astype(dtype)
        return np.concatenate([wide, small])
    if dtype.kind == "c":
        return (rng.uniform(low, high, count) + 1j * rng.uniform(low, high, count)).astype(dtype)
    return rng.uniform(low, high, count).astype(dtype)


def specials(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, 7, info.max, info.min, info.max - 1, info.min + 1], dtype)
    if dtype.kind == "c":
        part = specials(np.dtype(f"f{dtype.itemsize // 2}"))[:6]
        return np.array([complex(a, b) for a in part for b in part], dtype)
    info = ml_dtypes.finfo(dtype)
    tiny = np.array(info.smallest_normal).astype(dtype)
    line = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 60.0, -60.0]
    return np.concatenate([np.array(line).astype(dtype), np.array([tiny, info.max, info.min]).astype(dtype)])


# ---- programs written for weft.lax and jax.lax alike


Program = Callable[..., Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5
I = np.arange(6, dtype=np.int32).reshape(2, 3) - 2  # noqa: E741 - the integer operand beside X
B = np.array([[True, False, True], [False, False, True]])
C = (X + 1j * X[::-1]).astype(np.complex64)
U = np.array([[1, 2, 255], [0, 128, 7]], np.uint8)
H = X.astype(BF16)
M = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 11
S32 = np.int32(1)

PROGRAMS: dict[str, list[tuple[Program, tuple[Any, ...]]]] = {
    "add": [
        (lambda lax, x: lax.add(x, 1.0), (X,)),
        (lambda lax, x: lax.add(1.0, x), (X,)),
        (lambda lax, x: lax.add(x, np.float32(1)), (X,)),
        (lambda lax, x, y: lax.add(x, y), (X, 1.0)),
        (lambda lax, x, y: lax.add(x, y), (X, np.ones((1, 3), np.float32))),
        (lambda lax, x, y: lax.add(x, y), (np.ones((2, 1), np.float32), np.ones((1, 3), np.float32))),
        (lambda lax, x: lax.add(x, np.ones((2, 3), np.float32)), (X,)),
        (lambda lax, x: lax.add(x, 2), (3,)),
        (lambda lax, x: lax.add(x, x), (H,)),
    ],
    "mul": [
        (lambda lax, x: lax.mul(x, x, out_dtype=np.float32), (U,)),
        (lambda lax, x: lax.mul(x, x, out_dtype=np.int32), (U,)),
        (lambda lax, x: lax.mul(x, x), (C,)),
    ],
    "exp": [(lambda lax, x: lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST), (X,))],
    "round": [(lambda lax, x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), (X,))],
    "integer_pow": [
        (lambda lax, x: lax.integer_pow(x, 3), (X,)),
        (lambda lax, x: lax.integer_pow(x, -2), (X,)),
        (lambda lax, x: lax.integer_pow(x, 0), (X,)),
        (lambda lax, x: lax.integer_pow(x, 5), (I,)),
        (lambda lax, x: lax.integer_pow(x, 3), (C,)),
        (lambda lax, x: lax.integer_pow(x, 13), (H,)),
        (lambda lax, x: lax.reciprocal(x), (X,)),
    ],
    "pow": [
        (lambda lax, x: lax.pow(x, 2), (X,)),
        (lambda lax, x: lax.pow(x, 2.5), (X,)),
        (lambda lax, x, y: lax.pow(x, y), (X, I)),
        (lambda lax, x, y: lax.pow(x, y), (C, I)),
    ],
    "igamma": [
        (lambda lax, a, x: lax.igamma(a, x), (abs(X), abs(X[::-1]))),
        (lambda lax, a, x: lax.igamma(a, x), (2.0, abs(X))),
    ],
    "igammac": [(lambda lax, a, x: lax.igammac(a, x), (abs(X), abs(X[::-1])))],
    "igamma_grad_a": [(lambda lax, a, x: lax.igamma_grad_a(a, x), (abs(X), abs(X[::-1])))],
    "zeta": [(lambda lax, s, q: lax.zeta(s, q), (abs(X) + 1, abs(X[::-1])))],
    "polygamma": [(lambda lax, m, x: lax.polygamma(m, x), (np.abs(I).astype(np.float32), abs(X) + 0.1))],
    "regularized_incomplete_beta": [
        (lambda lax, a, b, x: lax.betainc(a, b, x), (abs(X), abs(X[::-1]), X / 6 + 0.5)),
        (lambda lax, a, x: lax.betainc(a, 2.0, x), (abs(X), X / 6 + 0.5)),
    ],
    "conj": [(lambda lax, x: lax.conj(x), (X,)), (lambda lax, x: lax.conj(x), (C,))],
    "complex": [(lambda lax, x: lax.complex(x, 1.0), (X,))],
    "nextafter": [(lambda lax, x: lax.nextafter(x, 1.0), (X,))],
    "select_n": [
        (lambda lax, p, x: lax.select(p, x, x), (B, X)),
        (lambda lax, p, x, y: lax.select_n(p, x, y), (B, X, X + 1)),
        (lambda lax, p, x, y: lax.select_n(p, x, y), (True, X, X + 1)),
        (lambda lax, p, x, y: lax.select_n(p, x, y, x), (I, X, X + 1)),
        (lambda lax, p, x, y: lax.select_n(p, x, y), (B, C, C + 1)),
        (lambda lax, p, x, y: lax.select_n(p, x, y), (B, B, ~B)),
        (lambda lax, p, x: lax.select_n(p, x), (B, X)),
    ],
    "clamp": [
        (lambda lax, x: lax.clamp(0.0, x, 1.0), (X,)),
        (lambda lax, x: lax.clamp(x, x, x), (X,)),
        (lambda lax, x, hi: lax.clamp(np.float32(-1), x, hi), (X, X)),
    ],
    "convert_element_type": [
        (lambda lax, x: lax.convert_element_type(x, np.int32), (X,)),
        (lambda lax, x: lax.convert_element_type(x, np.float32), (X,)),
        (lambda lax, x: lax.convert_element_type(x, float), (I,)),
        (lambda lax, x: lax.convert_element_type(x, int), (X,)),
        (lambda lax, x: lax.convert_element_type(x, "bfloat16"), (X,)),
        (lambda lax, x: lax.convert_element_type(x, np.float32), (1.0,)),
        (lambda lax, x: lax.add(lax.convert_element_type(1, np.float32), x), (X,)),
        (lambda lax, x: lax.add(lax.convert_element_type(np.float32(1.5), np.int32), x), (I,)),
        (lambda lax, x: lax.convert_element_type(x, np.uint8), (X,)),
        (lambda lax, x: lax.convert_element_type(x, bool), (X,)),
        (lambda lax, x: lax.convert_element_type(x, np.complex64), (X,)),
        (lambda lax, x: lax.convert_element_type(x, np.float16), (B,)),
        (lambda lax, x: lax.convert_element_type(np.arange(3), np.float32), (X,)),
    ],
    "bitcast_convert_type": [
        (lambda lax, x: lax.bitcast_convert_type(x, np.int32), (X,)),
        (lambda lax, x: lax.bitcast_convert_type(x, np.float32), (X,)),
        (lambda lax, x: lax.bitcast_convert_type(x, np.int8), (X,)),
        (lambda lax, x: lax.bitcast_convert_type(x, np.int32), (np.arange(8, dtype=np.int8).reshape(2, 4),)),
        (lambda lax, x: lax.bitcast_convert_type(x, np.uint16), (H,)),
    ],
    "reduce_precision": [
        (lambda lax, x: lax.reduce_precision(x, 5, 3), (X,)),
        (lambda lax, x: lax.reduce_precision(x, 8, 7), (X,)),
        (lambda lax, x: lax.reduce_precision(x, 3, 0), (X,)),
    ],
    "eq_to": [(lambda lax, x: lax.eq_to_p.bind(x, x), (X,))],
    "lt_to": [(lambda lax, x: lax.lt_to_p.bind(x, x), (X,))],
    "le_to": [(lambda lax, x: lax.le_to_p.bind(x, x), (X,))],
    "broadcast_in_dim": [
        (lambda lax, x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)), (X,)),
        (lambda lax, x: lax.broadcast_in_dim(x, (2, 3), (0, 1)), (X,)),
        (lambda lax, x: lax.broadcast_in_dim(x, (2, 3), (0, 1)), (X[:1],)),
        (lambda lax, x: lax.broadcast_in_dim(x, (3, 5), (0,)), (X[0],)),
        (lambda lax, x: lax.broadcast_in_dim(x, (0, 3), (1,)), (X[0],)),
        (lambda lax, x: lax.broadcast(x, (4,)), (X,)),
        (lambda lax, x: lax.broadcast(x, ()), (X,)),
        (lambda lax, x: lax.broadcast_to_rank(x, 4), (X,)),
        (lambda lax, x: lax.broadcast_to_rank(x, 1), (X,)),
        (lambda lax, x: lax.broadcast_like(x, np.ones((4, 2, 3))), (X,)),
        (lambda lax, x: lax.expand_dims(x, (0, -1)), (X,)),
        (lambda lax, x: lax.expand_dims(x, ()), (X,)),
        (lambda lax, x: lax.full((3,), 1.0), (X,)),
        (lambda lax, x: lax.full((3,), x), (1.0,)),
        (lambda lax, x: lax.full(3, x), (1.0,)),
        (lambda lax, x: lax.full((), x), (1.0,)),
        (lambda lax, x: lax.full((3,), 1, np.float32), (X,)),
        (lambda lax, x: lax.full((3,), x, np.int32), (1.0,)),
        (lambda lax, x: lax.full_like(x, 1), (X,)),
        (lambda lax, x: lax.full_like(x, 1, shape=(3,), dtype=np.int8), (X,)),
        (lambda lax, x: lax.full_like(x, 2), (1.0,)),
        (lambda lax, x: lax.full_like(x, True), (B,)),
    ],
    "reshape": [
        (lambda lax, x: lax.reshape(x, (3, 2)), (X,)),
        (lambda lax, x: lax.reshape(x, (2, 3)), (X,)),
        (lambda lax, x: lax.reshape(1.0, (1,)), (X,)),
        (lambda lax, x: lax.reshape(x, (1, 6, 1)), (X,)),
        (lambda lax, x: lax.reshape(x, (0, 7)), (X[:0],)),
        (lambda lax, x: lax.reshape(x, (6,), (1, 0)), (X,)),
        (lambda lax, x: lax.reshape(x, (6, 4), (2, 0, 1)), (M,)),
        (lambda lax, x: lax.reshape(lax.sin(x), (2, 3, 4), (2, 1, 0)), (M,)),
        (lambda lax, x: lax.collapse(x, 0, 2), (X,)),
        (lambda lax, x: lax.collapse(x, 1), (M,)),
        (lambda lax, x: lax.collapse(x, 1, 1), (M,)),
        (lambda lax, x: lax.collapse(x, -2, -1), (X,)),
        (lambda lax, x: lax.collapse(x, 0, 5), (X,)),
    ],
    "transpose": [
        (lambda lax, x: lax.transpose(x, (1, 0)), (X,)),
        (lambda lax, x: lax.transpose(x, (0, 1)), (X,)),
        (lambda lax, x: lax.transpose(x, (2, 0, 1)), (M,)),
    ],
    "squeeze": [
        (lambda lax, x: lax.squeeze(x, (0,)), (X[:1],)),
        (lambda lax, x: lax.squeeze(x, ()), (X[:1],)),
        (lambda lax, x: lax.squeeze(x, (-1, 0)), (X[:1, :1],)),
    ],
    "slice": [
        (lambda lax, x: lax.slice(x, (0, 1), (2, 3)), (X,)),
        (lambda lax, x: lax.slice(x, (0, 0), (2, 3)), (X,)),
        (lambda lax, x: lax.slice(x, (0, 0), (2, 3), (1, 2)), (X,)),
        (lambda lax, x: lax.slice(x, (1, 1), (1, 3)), (X,)),
        (lambda lax, x: lax.slice_in_dim(x, 0, 2, axis=1), (X,)),
        (lambda lax, x: lax.slice_in_dim(x, None, -1, axis=-1), (X,)),
        (lambda lax, x: lax.slice_in_dim(x, -2, None, 2, 1), (X,)),
        (lambda lax, x: lax.index_in_dim(x, 1), (X,)),
        (lambda lax, x: lax.index_in_dim(x, -1, 1, keepdims=False), (X,)),
    ],
    "rev": [(lambda lax, x: lax.rev(x, (0,)), (X,)), (lambda lax, x: lax.rev(x, ()), (X,))],
    "pad": [
        (lambda lax, x: lax.pad(x, 0.0, ((1, 2, 0), (-1, 2, 3))), (X,)),
        (lambda lax, x: lax.pad(x, np.float32(7.0), ((0, -1, 2), (-2, -3, 3))), (X,)),
        (lambda lax, x: lax.pad(x, 7, ((-1, -1, 0), (1, 0, 1))), (I,)),
        (lambda lax, x: lax.pad(x, 0.0, ((0, 0, 0), (0, 0, 0))), (X,)),
        (lambda lax, x: lax.pad(x, 5.0, ((2, 0, 1), (0, 0, 0))), (X[:0],)),
        (lambda lax, x: lax.pad(x, 5.0, ((-5, 9, 1), (0, 1, 0))), (X,)),
        (lambda lax, x, v: lax.pad(x, v, ((3, -4, 2), (1, 1, 1))), (X, np.float32(9))),
    ],
    "concatenate": [
        (lambda lax, x: lax.concatenate([x, x], 0), (X,)),
        (lambda lax, x: lax.concatenate([x], 0), (X,)),
        (lambda lax, x, y: lax.concatenate([x, y, x], 1), (X, X[:, :0])),
    ],
    "iota": [
        (lambda lax, x: lax.iota(np.float32, 4), (X,)),
        (lambda lax, x: lax.broadcasted_iota(np.int32, (3, 4), 1), (X,)),
        (lambda lax, x: lax.broadcasted_iota(np.uint8, (3, 4, 2), 0), (X,)),
        (lambda lax, x: lax.iota(int, 4), (X,)),
        (lambda lax, x: lax.iota("complex64", 4), (X,)),
        (lambda lax, x: lax.iota("bfloat16", 4), (X,)),
    ],
    "split": [
        (lambda lax, x: lax.split(x, (1, 2), 1), (X,)),
        (lambda lax, x: lax.split(x, (0, 2), -2), (X,)),
    ],
    "tile": [
        (lambda lax, x: lax.tile(x, (2, 2)), (X,)),
        (lambda lax, x: lax.tile(x, (1, 0)), (X,)),
    ],
    "stack": [
        (lambda lax, x: lax.stack([x, x]), (X,)),
        (lambda lax, x: lax.stack([x, x], -1), (X,)),
    ],
    "unstack": [
        (lambda lax, x: lax.unstack(x), (X,)),
        (lambda lax, x: lax.unstack(x, -1), (X,)),
    ],
    "empty": [(lambda lax, x: lax.empty((3,), np.float32), (X,))],
    "stop_gradient": [(lambda lax, x: lax.stop_gradient(x), (X,)), (lambda lax, x: lax.stop_gradient(x), (I,))],
    "optimization_barrier": [
        (lambda lax, x: lax.optimization_barrier((x, x)), (X,)),
        (lambda lax, x: lax.optimization_barrier(x), (X,)),
    ],
    "copy": [(lambda lax, x: lax.copy_p.bind(x), (X,))],
    "dynamic_slice": [
        (lambda lax, x: lax.dynamic_slice(x, (0, 1), (1, 1)), (X,)),
        (lambda lax, x: lax.dynamic_slice(x, (0, -1), (1, 1)), (X,)),
        (lambda lax, x, j: lax.dynamic_slice(x, (0, j), (1, 2)), (X, 7)),
        (lambda lax, x, j: lax.dynamic_slice(x, (0, j), (1, 1)), (X, -1)),
        (lambda lax, x, j: lax.dynamic_slice(x, (j, j), (1, 1)), (X, np.uint8(1))),
        (lambda lax, x, j: lax.dynamic_slice(x, (j, j), (1, 1)), (X, np.int8(-1))),
        (lambda lax, x, j: lax.dynamic_slice(x, (0, j), (1, 1), allow_negative_indices=False), (X, -1)),
        (lambda lax, x, j: lax.dynamic_slice(x, (0, j), (1, 1), allow_negative_indices=(True, False)), (X, 1)),
        (lambda lax, x, j: lax.dynamic_slice(x, (np.int8(1), j), (1, 1)), (X, np.int8(1))),
        (lambda lax, x, j: lax.dynamic_slice(x, j, (1, 1)), (X, np.array([1, 2], np.int32))),
        (lambda lax, x: lax.dynamic_slice(x, (), ()), (1.0,)),
        (lambda lax, x, j: lax.dynamic_slice_in_dim(x, j, 2, axis=1), (X, 1)),
        (lambda lax, x, j: lax.dynamic_slice_in_dim(x, j, 2, axis=-1), (X, np.uint8(1))),
        (lambda lax, x: lax.dynamic_slice_in_dim(x, -1, 2, axis=-1), (X,)),
    ],
    **indexing_samples.PROGRAMS,
    "jit": [
        (lambda lax, x, j: lax.dynamic_index_in_dim(x, j, axis=1), (X, 1)),
        (lambda lax, x, j: lax.dynamic_index_in_dim(x, j, 1, False), (X, np.int8(-1))),
        (lambda lax, x: lax.dynamic_index_in_dim(x, -1, 1, False), (X,)),
        (lambda lax, x: lax.dynamic_index_in_dim(x, 1), (X,)),
        (lambda lax, x, j: lax.dynamic_index_in_dim(x, j, axis=1, allow_negative_indices=False), (X, 1)),
        (lambda lax, x, u, j: lax.dynamic_update_index_in_dim(x, u, j, axis=0), (X, X[0], 1)),
        (lambda lax, x, u, j: lax.dynamic_update_index_in_dim(x, u, j, axis=0), (X, X[:1], 5)),
        (lambda lax, x, j: lax.dynamic_update_index_in_dim(x, 1.0, j, axis=0), (X[0], 1)),
        (lambda lax, x, u: lax.dynamic_update_index_in_dim(x, u, 0, 0), (X, X[0])),
    ],
    "dynamic_update_slice": [
        (
            lambda lax, x, j: lax.dynamic_update_slice(x, x[:1] if False else lax.slice(x, (0, 0), (1, 3)), (j, 0)),
            (X, 1),
        ),
        (lambda lax, x, u, j: lax.dynamic_update_slice(x, u, (j, 0), allow_negative_indices=False), (X, X[:1], -1)),
        (lambda lax, x, u: lax.dynamic_update_slice(x, u, (-1, -1)), (X, X[:1, :2])),
        (lambda lax, x, u: lax.dynamic_update_slice(x, u, np.array([1, 0])), (X, X[:1])),
        (lambda lax, x, u, j: lax.dynamic_update_slice_in_dim(x, u, j, axis=0), (X, X[:1], 9)),
        (lambda lax, x, u: lax.dynamic_update_slice_in_dim(x, u, -1, 0), (X, X[:1])),
    ],
    **{
        f"reduce_{name}": [
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0,)), (X,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (1, 0)), (X,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, ()), (X,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (1,)), (I,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (1,)), (H,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0, 2)), (M,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0,)), (U,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0,)), (X[:0],)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0,)), (C,)),
        ]
        for name in ("sum", "prod", "max", "min")
    },
    **{
        f"reduce_{name}": [
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0,)), (I,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (1,)), (B,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0, 1)), (U,)),
            (lambda lax, x, name=name: getattr(lax, f"reduce_{name}")(x, (0,)), (I[:0],)),
        ]
        for name in ("and", "or", "xor")
    },
    "argmax": [
        (lambda lax, x: lax.argmax(x, 0, np.int32), (X,)),
        (lambda lax, x: lax.argmax(x, 1, np.int32), (np.array([[1, np.nan, np.nan], [2, 2, 1]], np.float32),)),
        (lambda lax, x: lax.argmax(x, 1, np.uint8), (I,)),
        (lambda lax, x: lax.argmax(x, 1, np.int32), (B,)),
        (lambda lax, x: lax.argmax(x, 1, np.int32), (H,)),
        (lambda lax, x: lax.argmax(x, 0, np.int32), (C,)),
        (lambda lax, x: lax.argmax(x, 1, np.int32), (np.full((2, 3), -np.inf, np.float32),)),
    ],
    "argmin": [
        (lambda lax, x: lax.argmin(x, 1, np.int32), (X,)),
        (lambda lax, x: lax.argmin(x, 1, np.int32), (np.array([[1, np.nan, np.nan], [2, 1, 1]], np.float32),)),
        (lambda lax, x: lax.argmin(x, 0, np.int32), (U,)),
        (lambda lax, x: lax.argmin(x, 1, np.int32), (B,)),
    ],
    **{
        name: [
            (lambda lax, x, name=name: getattr(lax, name)(x), (X,)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=1, reverse=True), (X,)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=2), (M / 8,)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=1), (H,)),
            (lambda lax, x, name=name: getattr(lax, name)(x, axis=0), (X[:0],)),
        ]
        + ([] if name == "cumlogsumexp" else [(lambda lax, x, name=name: getattr(lax, name)(x, axis=1), (I,))])
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    },
    "sort": [
        (lambda lax, x: lax.sort(x), (X,)),
        (lambda lax, x: lax.sort(x, dimension=1), (M,)),
        (lambda lax, x: lax.sort(x), (B,)),
        (lambda lax, x: lax.sort(x), (I,)),
        (lambda lax, x: lax.sort(x, dimension=0), (H,)),
        (lambda lax, x: lax.sort(x, dimension=0), (X[:0],)),
        (lambda lax, x, y: lax.sort((x, y), dimension=0, num_keys=2), (X, X)),
        (lambda lax, x, y: lax.sort_key_val(x, y, is_stable=False), (X, X)),
    ],
    "fft": [
        (lambda lax, x: lax.fft(x, "fft", x.shape[-1:]), (C,)),
        (lambda lax, x: lax.fft(x, "ifft", x.shape), (C,)),
        (lambda lax, x: lax.fft(x, "rfft", x.shape[-1:]), (X,)),
        (lambda lax, x: lax.fft(x, "rfft", x.shape[-2:]), (M,)),
        (lambda lax, x: lax.fft(x, "irfft", (2 * x.shape[-1] - 1,)), (C,)),
        (lambda lax, x: lax.fft(x, "fft", x.shape[-1:]), (I,)),
        (lambda lax, x: lax.fft(x, "fft", x.shape[-1:]), (C[:0],)),
    ],
    "top_k": [
        (lambda lax, x: lax.top_k(x, 1), (X,)),
        (lambda lax, x: lax.top_k(x, 1, axis=0), (M,)),
        (lambda lax, x: lax.top_k(x, 1), (I,)),
        (lambda lax, x: lax.top_k(x, 0), (X,)),
    ],
    "reduce": [
        (lambda lax, x: lax.reduce(x, 0.0, lax.add, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, 1.0, lax.add, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, np.float32(0), lax.add, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, 0.0, lax.max, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, -np.inf, lax.max, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, np.inf, lax.min, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, 1.0, lax.mul, (0,)), (X,)),
        (lambda lax, x: lax.reduce(x, False, lax.bitwise_or, (0,)), (B,)),
        (lambda lax, x: lax.reduce(x, True, lax.bitwise_and, (0,)), (B,)),
        (lambda lax, x: lax.reduce(x, 0, lax.bitwise_xor, (0,)), (I,)),
        (lambda lax, x: lax.reduce(x, -1, lax.bitwise_and, (0,)), (I,)),
        (lambda lax, x: lax.reduce(x, False, lax.max, (0,)), (B,)),
        (lambda lax, x, y: lax.reduce(x, y, lax.add, (0,)), (X, 0.0)),
        (
            lambda lax, x, i: lax.reduce(
                (x, i), (0.0, 0), lambda a, b: (lax.max(a[0], b[0]), lax.add(a[1], b[1])), (0,)
            ),
            (X, I),
        ),
    ],
    "dot_general": [
        (lambda lax, x: lax.dot(x, lax.transpose(x, (1, 0))), (X,)),
        (lambda lax, x: lax.dot(x, x), (X[0],)),
        (lambda lax, x, y: lax.dot(x, y), (X, X[0])),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))), (X,)),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((0,), (0,))), precision="highest"), (X,)),
        (
            lambda lax, x: lax.dot_general(
                x, x, (((1,), (1,)), ((0,), (0,))), precision=(lax.Precision.HIGH, lax.Precision.DEFAULT)
            ),
            (X,),
        ),
        (
            lambda lax, x: lax.dot_general(
                x, x, (((1,), (1,)), ((0,), (0,))), precision=lax.DotAlgorithmPreset.F32_F32_F32
            ),
            (X,),
        ),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.float32), (H,)),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.int32), (U,)),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.float32), (X,)),
        (lambda lax, x, y: lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,)))), (X, I)),
        (lambda lax, x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ()))), (X, C)),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))), (H,)),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))), (U,)),
        (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))), (B,)),
        (lambda lax, x: lax.dot_general(x, x, (((0, 2), (0, 2)), ((1,), (1,)))), (M,)),
        (lambda lax, x: lax.dot_general(x, 1.0, (((), ()), ((), ()))), (X,)),
        (lambda lax, x: lax.batch_matmul(x, x), (np.ones((2, 3, 3), np.float32),)),
        (lambda lax, x: lax.dot(x, x, dimension_numbers=(((0, 1), (0, 1)), ((), ()))), (X,)),
        (lambda lax, x: lax.dot_general(x, x, (((0,), (0,)), ((), ()))), (X[:0],)),
    ],
    **convolution_samples.PROGRAMS,
    **window_samples.PROGRAMS,
}


# ---- calls that must raise, with the same class of error


ERRORS: list[tuple[Program, tuple[Any, ...]]] = [
    (lambda lax, x: lax.add(x, 1), (X,)),
    (lambda lax, x: lax.add(x, 1.0), (I,)),
    (lambda lax, x: lax.add(x, 1), (U,)),
    (lambda lax, x: lax.add(x, 1.0), (H,)),
    (lambda lax, x, y: lax.add(x, y), (X, I)),
    (lambda lax, x, y: lax.add(x, y), (X, X[0])),
    (lambda lax, x, y: lax.add(x, y), (X, np.ones((4, 3), np.float32))),
    (lambda lax, x: lax.add(x, True), (B,)),
    (lambda lax, x: lax.sin(x), (I,)),
    (lambda lax, x: lax.sin("a"), (X,)),
    (lambda lax, x: lax.sin([x, x]), (X,)),
    (lambda lax, x: lax.sin(None), (X,)),
    (lambda lax, x: lax.neg(x), (B,)),
    (lambda lax, x: lax.abs(x), (U,)),
    (lambda lax, x: lax.bitwise_and(x, x), (X,)),
    (lambda lax, x: lax.integer_pow(x, -1), (I,)),
    (lambda lax, x: lax.clamp(x, x, x[0] if False else lax.index_in_dim(x, 0)), (X,)),
    (lambda lax, x: lax.clamp(0, x, 1), (X,)),
    (lambda lax, p, x: lax.select(p, x, 1.0), (B, X)),
    (lambda lax, p, x: lax.select(p, lax.index_in_dim(x, 0), lax.index_in_dim(x, 0)), (B, X)),
    (lambda lax, p: lax.select(p, p, p), (X,)),
    (lambda lax, p, x: lax.select_n(p, x, x, x), (B, X)),
    (lambda lax, x: lax.select_n(x), (B,)),
    (lambda lax, x: lax.convert_element_type(x, "foo"), (X,)),
    (lambda lax, x: lax.convert_element_type(x, None), (X,)),
    (lambda lax, x: lax.convert_element_type([1.0], np.float32), (X,)),
    (lambda lax, x: lax.bitcast_convert_type(x, np.int16), (B,)),
    (lambda lax, x: lax.bitcast_convert_type(x, np.int32), (np.ones((2, 3), np.int8),)),
    (lambda lax, x: lax.reduce_precision(x, 0, 3), (X,)),
    (lambda lax, x: lax.reduce_precision(x, 5, -3), (X,)),
    (lambda lax, x: lax.full((3,), x, np.int32), (X,)),
    (lambda lax, x: lax.full((-3,), x, np.int32), (1.0,)),
    (lambda lax, x: lax.full((3.0,), x), (1.0,)),
    (lambda lax, x: lax.iota(bool, 4), (X,)),
    (lambda lax, x: lax.iota(int, -4), (X,)),
    (lambda lax, x: lax.broadcasted_iota(int, (2, 3), 2), (X,)),
    (lambda lax, x: lax.broadcasted_iota(int, (2, 3), -1), (X,)),
    (lambda lax, x: lax.broadcast_in_dim(x, (2,), (0,)), (X,)),
    (lambda lax, x: lax.broadcast_in_dim(x, (2, 3), (1, 0)), (X,)),
    (lambda lax, x: lax.broadcast_in_dim(x, (2, 4), (0, 1)), (X,)),
    (lambda lax, x: lax.broadcast_in_dim(x, (2, 4), (0, 5)), (X,)),
    (lambda lax, x: lax.broadcast(x, (-2,)), (X,)),
    (lambda lax, x: lax.broadcast_shapes((2, 3), (2,)), (X,)),
    (lambda lax, x: lax.reshape(x, (3, -1)), (X,)),
    (lambda lax, x: lax.reshape(x, (2, 3), (0,)), (X,)),
    (lambda lax, x: lax.transpose(x, (0, 0)), (X,)),
    (lambda lax, x: lax.transpose(x, (0,)), (X,)),
    (lambda lax, x: lax.squeeze(x, (0,)), (X,)),
    (lambda lax, x: lax.squeeze(x, (5,)), (X,)),
    (lambda lax, x: lax.squeeze(x, (0, 0)), (X,)),
    (lambda lax, x: lax.expand_dims(x, (0, 0)), (X,)),
    (lambda lax, x: lax.expand_dims(x, (7,)), (X,)),
    (lambda lax, x: lax.slice(x, (0,), (1,)), (X,)),
    (lambda lax, x: lax.slice(x, (0, 2), (1, 1)), (X,)),
    (lambda lax, x: lax.slice(x, (0, -1), (1, 1)), (X,)),
    (lambda lax, x: lax.slice(x, (0, 0), (1, 8)), (X,)),
    (lambda lax, x: lax.slice(x, (0, 0), (1, 2), (1,)), (X,)),
    (lambda lax, x: lax.slice(x, (0, 0), (1,)), (X,)),
    (lambda lax, x: lax.slice_in_dim(x, 0, 7), (X,)),
    (lambda lax, x: lax.slice_in_dim(x, -5, 7), (X,)),
    (lambda lax, x: lax.index_in_dim(x, 5), (X,)),
    (lambda lax, x: lax.rev(x, (2,)), (X,)),
    (lambda lax, x: lax.rev(x, (0, 0)), (X,)),
    (lambda lax, x: lax.rev(x, (-1,)), (X,)),
    (lambda lax, x: lax.pad(x, x, ((0, 0, 0), (0, 0, 0))), (X,)),
    (lambda lax, x: lax.pad(x, 0, ((0, 0, 0), (0, 0, 0))), (X,)),
    (lambda lax, x: lax.pad(x, 0.0, ((0, 0, 0),)), (X,)),
    (lambda lax, x: lax.pad(x, 0.0, ((0, 0, 0), (0, 0, -1))), (X,)),
    (lambda lax, x: lax.pad(x, 0.0, ((-3, -2, 0), (0, 0, 0))), (X,)),
    (lambda lax, x: lax.pad(x, 0.0, ((0, 0), (0, 0))), (X,)),
    (lambda lax, x: lax.concatenate([x, x], 2), (X,)),
    (lambda lax, x: lax.concatenate([x, x], -1), (X,)),
    (lambda lax, x, y: lax.concatenate([x, y], 0), (X, X[0])),
    (lambda lax, x, y: lax.concatenate([x, y], 0), (X, X[:, :2])),
    (lambda lax, x, y: lax.concatenate([x, y], 0), (X, I)),
    (lambda lax, x: lax.concatenate([], 0), (X,)),
    (lambda lax, x: lax.split(x, (1, 1), 1), (X,)),
    (lambda lax, x: lax.split(x, (1, 2), 2), (X,)),
    (lambda lax, x: lax.split(x, (-1, 4), 1), (X,)),
    (lambda lax, x: lax.tile(x, (1,)), (X,)),
    (lambda lax, x, y: lax.stack([x, y], 0), (X, X[0])),
    (lambda lax, x: lax.stack([x, x], 3), (X,)),
    (lambda lax, x: lax.unstack(x, 2), (X,)),
    (lambda lax, x, j: lax.dynamic_slice(x, (0, j), (1, 1)), (X, np.uint8(1))),
    (lambda lax, x, j: lax.dynamic_slice(x, (j, 0), (1, 1)), (X, 1.0)),
    (lambda lax, x, j: lax.dynamic_slice(x, (j, j), (1, 1)), (X, 1.0)),
    (lambda lax, x, j: lax.dynamic_slice(x, (j,), (1, 1)), (X, 1)),
    (lambda lax, x, j: lax.dynamic_slice(x, (j, j), (1,)), (X, 1)),
    (lambda lax, x, j: lax.dynamic_slice(x, (j, j), (3, 1)), (X, 1)),
    (lambda lax, x, j: lax.dynamic_slice(x, (j, j), (-1, 1)), (X, 1)),
    (lambda lax, x, j: lax.dynamic_slice(x, (j, x), (1, 1)), (X, 1)),
    (lambda lax, x, j: lax.dynamic_slice(x, j, (1, 1)), (X, np.ones((3,), np.int32))),
    (lambda lax, x, j: lax.dynamic_slice(x, j, (1, 1)), (X, np.ones((2, 2), np.int32))),
    (lambda lax, x, j: lax.dynamic_slice(x, [True, j], (1, 1)), (X, 1)),
    (lambda lax, x, y: lax.dynamic_update_slice(x, y, (0, 0)), (X, I)),
    (lambda lax, x, y: lax.dynamic_update_slice(x, y, (0, 0)), (X, X[0])),
    (lambda lax, x, y: lax.dynamic_update_slice(x, y, (0, 0)), (X, np.ones((3, 3), np.float32))),
    (lambda lax, x, y: lax.dynamic_update_slice(x, y, (0,)), (X, X)),
    (lambda lax, x, j: lax.dynamic_update_slice(x, x, (j, 0)), (X, np.int8(1))),
    *indexing_samples.ERRORS,
    *window_samples.ERRORS,
    (lambda lax, x: lax.reduce_sum(x, (2,)), (X,)),
    (lambda lax, x: lax.reduce_sum(x, (-1,)), (X,)),
    (lambda lax, x: lax.reduce_sum(x, (0, 0)), (X,)),
    (lambda lax, x: lax.reduce_sum(x, 0), (X,)),
    (lambda lax, x: lax.reduce_sum(x, (0,)), (B,)),
    (lambda lax, x: lax.reduce_and(x, (0,)), (X,)),
    (lambda lax, x: lax.argmax(x, 2, np.int32), (X,)),
    (lambda lax, x: lax.argmax(x, -1, np.int32), (X,)),
    (lambda lax, x: lax.argmax(x, 0, np.float32), (X,)),
    (lambda lax, x: lax.argmax(x, 0, np.int32), (X[:0],)),
    (lambda lax, x: lax.cumsum(x, 2), (X,)),
    (lambda lax, x: lax.cumsum(x, -1), (X,)),
    (lambda lax, x: lax.cumsum(x), (B,)),
    (lambda lax, x: lax.reduce(x, np.ones(2, np.float32), lax.add, (0,)), (X,)),
    (lambda lax, x: lax.reduce(x, 1, lax.add, (0,)), (X,)),
    (lambda lax, x: lax.reduce(x, 1.0, lambda a, b: (a, b), (0,)), (X,)),
    (lambda lax, x: lax.reduce(x, 0.0, lax.add, (-1,)), (X,)),
    (lambda lax, x: lax.reduce((x, x), (0.0,), lax.add, (0,)), (X,)),
    (lambda lax, x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ()))), (X, np.ones((2, 4), np.float32))),
    (lambda lax, x: lax.dot_general(x, x, (((1,), ()), ((), ()))), (X,)),
    (lambda lax, x: lax.dot_general(x, x, (((5,), (1,)), ((), ()))), (X,)),
    (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((1,), (1,)))), (X,)),
    (lambda lax, x: lax.dot_general(x, x, (((1, 1), (1, 1)), ((0,), (0,)))), (X,)),
    (lambda lax, x: lax.dot_general(x, x, (((-1,), (-1,)), ((0,), (0,)))), (X,)),
    (lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), precision="foo"), (X,)),
    (lambda lax, x: lax.dot(x, x), (X,)),
    (lambda lax, x: lax.dot(1.0, x), (X,)),
    (lambda lax, x, y: lax.batch_matmul(x, y), (M, X)),
    *convolution_samples.ERRORS,
    (lambda lax, x: lax.padtype_to_pads((7, 8), (3, 2), (2, 3), "foo"), (X,)),
    (lambda lax, x: lax.padtype_to_pads((7, 8), (3, 2), (2, 3), [(1, 2), (2, 3)]), (X,)),
]
