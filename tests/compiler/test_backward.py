"""Backward passes are fused: kernels and products counted, bits of sums over unit dimensions, transposed products."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import compiler, lax
from weft.nn import log_softmax, relu


def cross_entropy(scores: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.sum(labels * log_softmax(scores), axis=1))


def layernorm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def network_loss(weights: Any, x: Any, labels: Any) -> Any:
    first, second, third = weights
    h = relu(x @ first[0] + first[1])
    h = relu(h @ second[0] + second[1])
    return cross_entropy(h @ third[0] + third[1], labels)


def program_of(function: Callable[..., Any], *args: Any) -> compiler.Program:
    return ladder.compiled(weft.make_jaxpr(function)(*args))


def steps_of(program: compiler.Program) -> Counter[str]:
    return Counter(
        [entry[0] if isinstance(entry, tuple) else type(entry).__name__ for entry in program.plan.instructions]
    )


def test_the_gradient_of_a_cross_entropy_is_one_kernel() -> None:
    x = np.zeros((33, 50), np.float32)
    program = program_of(weft.grad(cross_entropy), x, x)
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    assert program.plan.arena_bytes == 0, program.text("plan")


def test_the_backward_pass_of_a_layernorm_is_a_row_and_a_column_kernel() -> None:
    x, scale = np.zeros((33, 50), np.float32), np.zeros(50, np.float32)
    program = program_of(lambda x, g, b, ct: weft.vjp(layernorm, x, g, b)[1](ct), x, scale, scale, x)
    assert ladder.n_kernels(program) == 2, program.text("kernel")


def test_the_gradient_of_a_network_is_its_products_and_their_epilogues() -> None:
    rng = np.random.default_rng(0)
    sizes = (30, 40, 50, 10)
    weights = [
        (rng.standard_normal(s).astype(np.float32), np.zeros(s[1], np.float32)) for s in itertools.pairwise(sizes)
    ]
    x, labels = rng.standard_normal((20, 30)).astype(np.float32), np.eye(10, dtype=np.float32)[rng.integers(0, 10, 20)]
    program = program_of(weft.grad(network_loss), weights, x, labels)
    steps = steps_of(program)
    # three products forward, of which each is followed by one kernel; five backward: two kernels for the masks with
    # the sums of the first biases, one for the sum of the last
    assert steps["gemm"] + steps["Ridden"] == 8, program.text("plan")
    assert ladder.n_kernels(program) == 6, program.text("kernel")


def test_a_sum_over_unit_dimensions_has_the_bits_of_the_sum() -> None:
    x = np.array([-0.0, 0.0, 1.5, -np.inf, np.nan], np.float32)

    def summed(x: Any) -> Any:
        wide = lax.broadcast_in_dim(x, (5, 1, 1), (0,))
        return lax.reduce_sum(wide, (1, 2)), lax.reduce_max(wide, (1, 2)), lax.reduce_prod(wide, (1,))

    with weft.disable_jit():
        plain = [np.asarray(value) for value in summed(jnp.asarray(x))]
    for jitted, eager in zip(weft.jit(summed)(x), plain, strict=True):
        assert np.asarray(jitted).tobytes() == eager.tobytes()
    integers = weft.jit(lambda x: lax.reduce_sum(lax.broadcast_in_dim(x, (3, 1), (0,)), (1,)))(np.arange(3))
    assert integers.tolist() == [0, 1, 2]


TRANSPOSED: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "matrices": (lambda a, b: (a @ b).T, (5, 7), (7, 3)),
    "a row": (lambda a, b: (a @ b).T, (1, 7), (7, 3)),
    "stacks": (lambda a, b: (a @ b).transpose(0, 2, 1), (2, 5, 7), (2, 7, 3)),
    "stacks, batch moved": (lambda a, b: (a @ b).transpose(2, 0, 1), (2, 5, 7), (2, 7, 3)),
    "two free dimensions": (lambda a, b: jnp.tensordot(a, b, 1).transpose(2, 0, 1), (4, 5, 7), (7, 3)),
    "read twice": (lambda a, b: (a @ b).T + (a @ b).T.sum(), (5, 7), (7, 3)),
    "also a result": (lambda a, b: (lambda c: c.T.reshape(-1) + c.reshape(-1))(a @ b), (5, 7), (7, 3)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_products(name: str) -> None:
    function, left, right = TRANSPOSED[name]
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32)
    found = np.asarray(weft.jit(function)(a, b))
    if "free" in name:
        expected = np.tensordot(a, b, 1).transpose(2, 0, 1)
    else:
        expected = function(a, b)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_a_transposed_product_is_one_product() -> None:
    a, b = np.zeros((5, 7), np.float32), np.zeros((7, 3), np.float32)
    program = program_of(lambda a, b: (a @ b).T, a, b)
    assert steps_of(program) == {"gemm": 1}, program.text("plan")
