"""Functions of small arrays, in loops that would compute them again: kernels of their own, with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp


def sample(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def scaled(m: Any, x: Any, s: Any) -> Any:
    return x * m.exp(s)


def sums(m: Any, x: Any, s: Any) -> Any:
    return (x[:, None] * m.exp(s)).sum(-1)


def short_rows(m: Any, x: Any, s: Any) -> Any:
    return m.cos(x)[:, None] * s


def softmax(m: Any, x: Any, s: Any) -> Any:
    e = m.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) + s


@pytest.mark.parametrize(
    ("program", "x", "s", "kernels"),
    [
        (scaled, sample(3001, 33), sample(33), 2),
        (scaled, sample(20, 33), sample(33), 1),  # too few to gain
        (sums, sample(2003, 4), sample(5, 4), 2),
        (short_rows, sample(4001), sample(5), 2),
        (softmax, sample(3001, 33), sample(33), 1),  # follows from the kernel's own reductions
    ],
)
def test_kernels(program, x, s, kernels):
    f = weft.jit(lambda x, s: program(jnp, x, s))
    lines = f.lower(x, s).compile().as_text("plan").splitlines()
    assert sum(line.strip().startswith("kernel") for line in lines) == kernels
    np.testing.assert_allclose(f(x, s), program(np, x, s), rtol=2e-5, atol=1e-6)
