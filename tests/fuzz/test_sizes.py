"""Random functions of two-dimensional arrays at a series of sizes: NumPy's results at each, whatever came before."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import config

EXTENTS = (1, 2, 3, 5, 10, 16, 17, 20, 21, 33, 40, 50, 64, 100, 300)
LARGEST = 60_000  # elements of a value

# of arrays with elements: (rank that is asked for or None, function of NumPy or weft.numpy, an array and indices)
STEPS = (
    (None, lambda xp, a, i: xp.tanh(a)),
    (None, lambda xp, a, i: a * 1.5 + 0.25),
    (None, lambda xp, a, i: a.mean()),
    (None, lambda xp, a, i: a / a.size),
    (None, lambda xp, a, i: a.reshape(-1)),
    (1, lambda xp, a, i: a.mean(-1) + a),
    (1, lambda xp, a, i: a[:, None] - a[None, :50]),
    (1, lambda xp, a, i: xp.median(a)),
    (1, lambda xp, a, i: xp.concatenate([a, a * 2])),
    (1, lambda xp, a, i: xp.outer(a, a)[:40]),
    (1, lambda xp, a, i: xp.pad(a, 1)),
    (1, lambda xp, a, i: xp.where(xp.arange(a.shape[0]) < 20, a, -a)),
    (1, lambda xp, a, i: a[1:] - a[:-1] if a.shape[0] > 1 else a),
    (1, lambda xp, a, i: a[a.shape[0] // 2 :]),
    (2, lambda xp, a, i: a - a.mean(0)),
    (2, lambda xp, a, i: a.std(-1)),
    (2, lambda xp, a, i: a[1:] if a.shape[0] > 1 else a),
    (2, lambda xp, a, i: a[:3]),
    (2, lambda xp, a, i: a[::2]),
    (2, lambda xp, a, i: a[..., ::-1]),
    (2, lambda xp, a, i: a[-1]),
    (2, lambda xp, a, i: a.T + 0),
    (2, lambda xp, a, i: a @ a.T * 0.1),
    (2, lambda xp, a, i: a.T @ a * 0.1),
    (2, lambda xp, a, i: xp.sort(a, -1)),
    (2, lambda xp, a, i: xp.cumsum(a, -1) * 0.1),
    (2, lambda xp, a, i: a[xp.minimum(i, min(a.shape[0], 20) - 1)]),
    (2, lambda xp, a, i: a / max(a.shape[0] - 1, 1)),
    (2, lambda xp, a, i: a * xp.minimum(np.float32(1 / a.shape[0]), np.float32(0.05))),
    (2, lambda xp, a, i: xp.roll(a, 2, -1)),
    (2, lambda xp, a, i: xp.tril(a)),
    (2, lambda xp, a, i: a.max(0)),
    (2, lambda xp, a, i: (a**2).sum(-1) ** 0.5),
    (2, lambda xp, a, i: a * a.sum(1, keepdims=True) * 0.1),
    (2, lambda xp, a, i: a.T @ xp.ones(a.shape[0], np.float32) / a.shape[0]),
    (2, lambda xp, a, i: xp.take_along_axis(a, xp.argsort(a, 1), 1)),
    (2, lambda xp, a, i: xp.einsum("ij,ij->i", a, a) * 0.1),
    (2, lambda xp, a, i: xp.clip(a, -0.5, a.shape[0] * 0.01)),
)


def drawn(seed):
    """A function of (module, x f32[n,m], v f32[m], i i32[n]): steps on values so far, the same at all sizes."""

    def function(xp, x, v, i):
        draw, values = np.random.default_rng(seed), [x, v]
        for _ in range(draw.integers(2, 8)):
            rank, step = STEPS[draw.integers(len(STEPS))]
            fitting = [a for a in values if rank in (None, a.ndim)]
            number = draw.integers(1 << 20)
            made = step(xp, fitting[number % len(fitting)], i) if fitting else values[-1]
            values.append(made if made.size <= LARGEST else values[-1])
        return values[-1], values[len(values) // 2]

    return function


@pytest.mark.parametrize("checked", [False, True])
def test_random_functions(checked):
    """Rows alone vary in half of them; under the option ``check`` what is trusted is compared with the compiler."""
    for seed in range(20 if checked else 45):
        draw, function = np.random.default_rng(1000 + seed), drawn(seed)
        jitted = weft.jit(lambda *args, function=function: function(jnp, *args))
        columns = int(draw.choice(EXTENTS))
        for _ in range(6):
            n, m = int(draw.choice(EXTENTS)), columns if seed % 2 else int(draw.choice(EXTENTS))
            args = (
                draw.normal(size=(n, m)).astype(np.float32),
                draw.normal(size=m).astype(np.float32),
                draw.integers(0, 30, n).astype(np.int32),
            )
            with config.context("check", checked):
                found = jitted(*args)
            for ours, expected in zip(found, function(np, *args), strict=True):
                scale = 1 + np.abs(expected).max()
                np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=1e-4 * scale, err_msg=f"{seed} {n} {m}")
