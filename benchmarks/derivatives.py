"""Programs of derivatives and loops for ``targets.py``: each takes weft or JAX and gives a function and its arguments.

Written once for both systems. ``MEASURED`` says which are timed warm and what the time is divided by.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], tuple[Any, ...]]
STEPS, LEAVES = 1000, 60


def _normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@contextlib.contextmanager
def wide(J: Any) -> Iterator[None]:
    """64-bit types."""
    with J.enable_x64() if hasattr(J, "enable_x64") else J.experimental.enable_x64():
        yield


def scan_gradient(J: Any) -> Case:
    """The gradient through 1,000 steps of a state of 60 scalars."""

    def loss(state: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return tuple(a * 0.99 + 0.01 * J.numpy.sin(c[(i + 1) % LEAVES]) for i, a in enumerate(c)), None

        return sum(J.lax.scan(step, state, None, length=STEPS)[0])

    return J.jit(J.grad(loss)), (tuple(J.numpy.asarray(x) for x in _normal(LEAVES)),)


def _chain(x: Any) -> Any:
    y = x[0]
    for i in range(1, 30):
        y = y @ x[i]
    return y


def chain_value(J: Any) -> Case:
    return J.jit(_chain), (J.numpy.asarray(_normal(30, 4, 4, dtype=np.float64) / 2),)


def chain_jacobian(J: Any) -> Case:
    return J.jit(J.jacobian(_chain)), (J.numpy.asarray(_normal(30, 4, 4, dtype=np.float64) / 2),)


def training_step(J: Any) -> Case:
    """784-1024-1024-10, batch 128, cross-entropy, SGD with momentum."""
    jnp, sizes = J.numpy, (784, 1024, 1024, 10)

    def loss(p: Any, x: Any, y: Any) -> Any:
        h = J.nn.relu(x @ p[0] + p[1])
        h = J.nn.relu(h @ p[2] + p[3])
        return -jnp.mean(jnp.sum(y * J.nn.log_softmax(h @ p[4] + p[5]), axis=1))

    def step(x: Any, y: Any, *pv: Any) -> Any:
        p, v = list(pv[:6]), list(pv[6:])
        value, g = J.value_and_grad(loss)(p, x, y)
        v = [0.9 * a + b for a, b in zip(v, g, strict=True)]
        return (value, *(a - 0.05 * b for a, b in zip(p, v, strict=True)), *v)

    weights = []
    for rows, columns in itertools.pairwise(sizes):
        weights += [_normal(rows, columns) * np.float32(math.sqrt(2 / rows)), _normal(columns) * np.float32(0.01)]
    labels = np.eye(10, dtype=np.float32)[np.arange(128) % 10]
    given = [_normal(128, 784), labels, *weights, *[np.zeros_like(w) for w in weights]]
    return J.jit(step), tuple(jnp.asarray(a) for a in given)


def hessian(J: Any) -> Case:
    """The Hessian of a logistic loss in 100 parameters over 500 examples."""
    x, y = J.numpy.asarray(_normal(500, 100)), J.numpy.asarray((_normal(500) > 0).astype(np.float32))

    def loss(w: Any) -> Any:
        z = x @ w
        return J.numpy.mean(J.numpy.logaddexp(0.0, z) - y * z)

    return J.jit(J.hessian(loss)), (J.numpy.asarray(_normal(100) / 10),)


def heat(J: Any) -> Case:
    def step(_: Any, u: Any) -> Any:
        lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.2 * lap)

    return J.jit(lambda u: J.lax.fori_loop(0, 100, step, u)), (J.numpy.asarray(_normal(1000, 1000)),)


def _lorenz(u: Any) -> list[Any]:
    x, y, z = u
    return [10.0 * (y - x), x * (28.0 - z) - y, x * y - (8.0 / 3.0) * z]


def lorenz_vector(J: Any) -> Case:
    def slope(u: Any) -> Any:
        return J.numpy.stack(_lorenz((u[0], u[1], u[2])))

    def step(u: Any, _: Any) -> Any:
        h = 0.0005
        a = slope(u)
        b = slope(u + 0.5 * h * a)
        c = slope(u + 0.5 * h * b)
        u = u + h / 6 * (a + 2 * b + 2 * c + slope(u + h * c))
        return u, u

    return J.jit(lambda u: J.lax.scan(step, u, None, length=10000)[1]), (J.numpy.ones(3, J.numpy.float32),)


def lorenz_scalars(J: Any) -> Case:
    def moved(u: Any, k: float, a: Any) -> Any:
        return [p + k * q for p, q in zip(u, a, strict=True)]

    def step(u: Any, _: Any) -> Any:
        h = 0.0005
        a = _lorenz(u)
        b = _lorenz(moved(u, 0.5 * h, a))
        c = _lorenz(moved(u, 0.5 * h, b))
        d = _lorenz(moved(u, h, c))
        u = tuple(p + h / 6 * (q + 2 * r + 2 * s + t) for p, q, r, s, t in zip(u, a, b, c, d, strict=True))
        return u, u

    start = tuple(J.numpy.asarray(np.float32(1)) for _ in range(3))
    return J.jit(lambda u: J.lax.scan(step, u, None, length=10000)[1]), (start,)


def recurrent(J: Any) -> Case:
    """tanh(W @ h) with 64 hidden values, 1,000 steps."""

    def run(w: Any, h: Any) -> Any:
        return J.lax.scan(lambda h, _: (J.numpy.tanh(w @ h), None), h, None, length=STEPS)[0]

    return J.jit(run), (J.numpy.asarray(_normal(64, 64) / 8), J.numpy.asarray(_normal(64)))


def _loop(J: Any, count: int) -> Case:
    def run(x: Any, n: Any) -> Any:
        return J.lax.fori_loop(0, n, lambda i, c: c - 0.1 * (c * c - 2.0), x)

    return J.jit(run), (J.numpy.asarray(np.float32(3)), J.numpy.asarray(np.int32(count)))


def loop_20(J: Any) -> Case:
    return _loop(J, 20)


def loop_100000(J: Any) -> Case:
    return _loop(J, 100_000)


# row -> (program, what its time is divided by, seconds allowed)
MEASURED: dict[str, tuple[str, int, float]] = {
    "gradient of a scan of 60 scalars, a step": ("scan_gradient", STEPS, 2.5e-6),
    "30 products of 4x4": ("chain_value", 1, 12e-6),
    "jacobian of 30 products of 4x4": ("chain_jacobian", 1, 50e-6),
    "MLP training step": ("training_step", 1, 7.4e-3),
    "hessian, 100 parameters": ("hessian", 1, 0.0),
    "heat equation, 100 steps": ("heat", 1, 9e-3),
    "Lorenz RK4, 10,000 steps, vector": ("lorenz_vector", 1, 185e-6),  # 1.2 times the floor, see NOTES.md
    "Lorenz RK4, 10,000 steps, scalars": ("lorenz_scalars", 1, 185e-6),
    "RNN of 64, 1,000 steps": ("recurrent", 1, 0.5e-3),
    "fori_loop of 20": ("loop_20", 1, 0.5e-6),
    "fori_loop of 100,000": ("loop_100000", 1, 390e-6),  # 1.2 times the floor
}


def warm(J: Any, name: str) -> float:
    """Seconds of the best call in a second of calls."""
    program, parts, _ = MEASURED[name]

    def wait(out: Any) -> None:
        out.block_until_ready() if hasattr(out, "block_until_ready") else J.block_until_ready(out)

    with wide(J) if program.startswith("chain") else contextlib.nullcontext():
        f, args = globals()[program](J)
        wait(f(*args))
        start = time.perf_counter()
        wait(f(*args))
        calls = max(1, int(2e-5 / max(time.perf_counter() - start, 1e-8)))
        best, stop = math.inf, time.perf_counter() + 1.0
        while time.perf_counter() < stop:
            start = time.perf_counter()
            for _ in range(calls):
                wait(f(*args))
            best = min(best, (time.perf_counter() - start) / calls)
    return best / parts


def tracing(J: Any, equations: int) -> float:
    """Seconds to trace the gradient of a function of so many equations."""
    lax, x = J.lax, J.numpy.asarray(np.float32(1))

    def gradient(count: int) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            for _ in range(count // 2):
                x = lax.mul(lax.sin(x), x)
            return x

        return J.grad(f)

    J.make_jaxpr(gradient(2))(x)
    times = []
    for _ in range(3):
        f = gradient(equations)
        start = time.perf_counter()
        J.make_jaxpr(f)(x)
        times.append(time.perf_counter() - start)
    return min(times)
