"""Programs written for JAX and weft alike: each takes the library (``jax`` or ``weft``) and its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
I = np.arange(3, dtype=np.int32)  # noqa: E741 - the integers beside X
A = (np.eye(4) * 3 + RNG.random((4, 4))).astype(np.float32)
B = np.ascontiguousarray(X.T)
KEY = np.array([1, 2], np.uint32)
IMAGE = RNG.normal(size=(2, 6, 6, 3)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 3, 3, 4)).astype(np.float32)
LAYERS = [(RNG.normal(size=(4, 8)).astype(np.float32), np.zeros(8, np.float32))]
LAYERS += [(RNG.normal(size=(8, 2)).astype(np.float32), np.zeros(2, np.float32))]
W = RNG.normal(size=(4, 12)).astype(np.float32)
ROLES = ("NHWC", "HWIO", "NHWC")


def perceptron(J: Any, layers: Any, x: Any) -> Any:
    for w, b in layers:
        x = J.numpy.tanh(x @ w + b)
    return J.numpy.sum(x**2)


def transformer(J: Any, w: Any, x: Any) -> Any:
    q, k, v = J.numpy.split(x @ w, 3, -1)
    y = J.nn.softmax(q @ k.T / 2.0) @ v
    return J.numpy.sum(J.nn.gelu(y) * J.nn.standardize(x))


def step(J: Any) -> Callable[..., Any]:
    return lambda c, w: (J.numpy.sin(c * w), c.sum())


def grew(J: Any, x: Any) -> Any:
    return J.lax.while_loop(lambda c: c[0].sum() < 100, lambda c: (c[0] * 2 + 1, c[1] + 1), (x, 0))


def pooled(J: Any, x: Any) -> Any:
    return J.lax.reduce_window(x, -np.inf, J.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()


def convolved(J: Any, x: Any, k: Any) -> Any:
    return J.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=ROLES).sum()


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gradient": (lambda J, p, x: J.grad(lambda p: perceptron(J, p, x))(p), (LAYERS, X)),
    "transformer": (lambda J, w, x: J.grad(lambda w: transformer(J, w, x))(w), (W, X)),
    "hessian": (lambda J, x: J.hessian(lambda r: J.numpy.sum(J.numpy.sin(r) * r**3))(x[0]), (X,)),
    "remat": (lambda J, x: J.grad(J.checkpoint(lambda r: J.numpy.sum(J.numpy.sin(r) * r**3)))(x), (X,)),
    "vmap": (lambda J, x: J.vmap(lambda r: J.numpy.dot(r, r) + J.numpy.sort(r)[0])(x), (X,)),
    "scan": (lambda J, x: J.lax.scan(step(J), x[0], x), (X,)),
    "scan gradient": (lambda J, x: J.grad(lambda x: J.lax.scan(step(J), x[0], x)[1].sum())(x), (X,)),
    "while": (grew, (X,)),
    "fori": (lambda J, x: J.lax.fori_loop(0, 5, lambda i, c: c * 1.5 + i, x), (X,)),
    "cond": (lambda J, x: J.lax.cond(x.sum() > 0, J.numpy.sin, J.numpy.cos, x), (X,)),
    "switch": (lambda J, i, x: J.lax.switch(i[2], [J.numpy.sin, J.numpy.cos, J.numpy.exp], x), (I, X)),
    "sort": (lambda J, x: J.numpy.sort(x, 0), (X,)),
    "argsort": (lambda J, x: J.numpy.argsort(x, 1), (X,)),
    "descending": (lambda J, x: J.numpy.sort(x, descending=True), (X,)),
    "lexsort": (lambda J, x: J.numpy.lexsort((x[0], x[1])), (X,)),
    "top_k": (lambda J, x: J.lax.top_k(x, 2), (X,)),
    "gather": (lambda J, x, i: (x[i], x[i, i], J.numpy.take(x, i, axis=1)), (X, I)),
    "scatter": (lambda J, x, i: (x.at[i].add(1.0), x.at[i, i].set(3.0), x.at[i].max(0.1)), (X, I)),
    "update": (lambda J, x, i: J.lax.dynamic_update_slice(x, x[:1, :1] * 2, (i[1], i[2])), (X, I)),
    "segments": (lambda J, x, i: J.ops.segment_sum(x, i, 3), (X, I)),
    "convolution": (lambda J, x, k: J.lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=ROLES),
                    (IMAGE, KERNEL)),
    "convolution gradient": (lambda J, x, k: J.grad(lambda k: convolved(J, x, k))(k), (IMAGE, KERNEL)),
    "pool gradient": (lambda J, x: J.grad(lambda x: pooled(J, x))(x), (IMAGE,)),
    "mean pool": (lambda J, x: J.lax.reduce_window(x, 0.0, J.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"), (IMAGE,)),
    "cholesky": (lambda J, a: J.numpy.linalg.cholesky(a @ a.T), (A,)),
    "triangular": (lambda J, a, b: J.scipy.linalg.solve_triangular(a, b, lower=True), (A, B)),
    "fourier": (lambda J, x: (J.numpy.fft.fft(x), J.numpy.fft.irfft(x + 0j)), (X,)),
    "running": (lambda J, x: (J.numpy.cumsum(x, 1), J.lax.cummax(x), J.lax.cumlogsumexp(x)), (X,)),
    "prefixes": (lambda J, x: J.lax.associative_scan(J.numpy.multiply, x), (X,)),
    "extremes": (lambda J, x: (J.numpy.argmax(x, 1), J.numpy.argmin(x), J.numpy.max(x, 0)), (X,)),
    "statistics": (lambda J, x: (J.numpy.var(x, 0), J.numpy.median(x), J.numpy.prod(x), J.numpy.all(x > 0)), (X,)),
    "softmax": (lambda J, x: (J.nn.softmax(x), J.nn.logsumexp(x, 1), J.nn.silu(x)), (X,)),
    "special": (lambda J, x: (J.lax.erf(x), J.lax.lgamma(x + 2), J.lax.digamma(x + 2), J.lax.erf_inv(x * 0.9)), (X,)),
    "elementary": (lambda J, x: (J.numpy.arcsinh(x), J.numpy.sinh(x), J.numpy.arctan(x), J.numpy.tan(x)), (X,)),
    "normal": (lambda J, k: J.random.normal(k, (50,)), (KEY,)),
    "uniform": (lambda J, k: (J.random.uniform(k, (5,)), J.random.randint(k, (3,), 0, 9)), (KEY,)),
    "permutation": (lambda J, k: J.random.permutation(k, 7), (KEY,)),
    "halves": (lambda J, x: x.astype(J.numpy.bfloat16) @ x.T.astype(J.numpy.bfloat16), (X,)),
    "integers": (lambda J, i: (i // 2, i % 3, i**2, i << 1, ~i, J.lax.population_count(i), J.lax.clz(i)), (I,)),
    "complex": (lambda J, x: (J.numpy.exp(x * 1j), J.numpy.abs(x + 2j), J.numpy.angle(x + 1j)), (X,)),
    "einsum": (lambda J, x: J.numpy.einsum("ij,kj->ki", x, x), (X,)),
    "rounding": (lambda J, x: (J.numpy.clip(x, -0.5, 0.5), J.numpy.round(x, 1), J.numpy.nextafter(x, 2.0)), (X,)),
}  # fmt: skip


def together(J: Any) -> Callable[..., Any]:
    """A function of the operands of all programs, which gives all results."""
    return lambda *rows: [program(J, *row) for (program, _), row in zip(PROGRAMS.values(), rows, strict=True)]


OPERANDS = tuple([args for _, args in PROGRAMS.values()])
