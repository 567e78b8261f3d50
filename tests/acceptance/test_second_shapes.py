"""A second shape of a seen function builds no kernel; nor does a difference of weak type alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import compiler, nn

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: jnp.mean(x, axis=-1),
    "layernorm": lambda x: (x - jnp.mean(x, -1, keepdims=True)) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5),
    "pad": lambda x: jnp.pad(x, ((1, 1), (2, 0)), constant_values=2.0),
    "slice": lambda x: x[:, 1:-1],
    "strided slice": lambda x: x[::2, ::-1] * 2,
    "concatenate rows": lambda x: jnp.concatenate([x, x * 2], 0),
    "concatenate columns": lambda x: jnp.concatenate([x, x + 1], 1),
    "broadcast": lambda x: x + jnp.arange(x.shape[1], dtype=x.dtype),
    "transpose": lambda x: x.T + 1,
    "dot": lambda x: jnp.dot(x, x.T) + 1,
    "mlp": lambda x: jnp.tanh(x @ jnp.ones((x.shape[1], 8))) @ jnp.ones((8, 2)),
    "softmax": lambda x: nn.softmax(x, axis=0),
    "cumsum": lambda x: jnp.cumsum(x, axis=1),
    "argmax": lambda x: jnp.argmax(x, 1),
    "roll": lambda x: jnp.roll(x, 1, axis=1),
    "tile": lambda x: jnp.tile(x, (2, 2)),
    "repeat": lambda x: jnp.repeat(x, 2, axis=0),
    "stack": lambda x: jnp.stack([x, -x]),
    "tril": jnp.tril,
    "diff": lambda x: jnp.diff(x, axis=0),
    "one_hot": lambda x: nn.one_hot(x.astype("int32")[:, 0], 9),
    "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
    "cov": jnp.cov,
    "logsumexp": lambda x: nn.logsumexp(x, axis=1),
}
SHAPES = [
    (64, 33),
    (65, 100),
    (3, 7),
    (100, 5),
    (1, 40),
    (40, 1),
    (0, 16),
    (16, 2),
    (250, 129),
]


def _built() -> int:
    return compiler.stats()["kernels_built"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_kernel_for_a_second_shape(name: str) -> None:
    function = weft.jit(FUNCTIONS[name])
    operands = [np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in SHAPES]
    weft.block_until_ready(function(operands[0]))
    before = _built()
    for operand in operands[1:]:
        weft.block_until_ready(function(operand))
        assert _built() == before, operand.shape


@pytest.mark.parametrize("weak", [1, 1.5, 1j], ids=["int", "float", "complex"])
def test_no_kernel_for_another_weak_type(weak: complex) -> None:
    function = weft.jit(lambda x, y: x * y + jnp.cos(x))
    strong = jnp.asarray(np.asarray(jnp.asarray(weak)))
    assert jnp.asarray(weak).weak_type and not strong.weak_type
    function(strong, strong)
    before = _built()
    for x, y in ((weak, weak), (strong, weak), (weak, strong)):
        assert np.asarray(function(x, y)) == np.asarray(function(strong, strong))
    assert _built() == before
