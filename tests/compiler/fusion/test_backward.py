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
    return Counter([type(entry).__name__ for entry in program.plan.instructions])


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
    assert steps["Gemm"] + steps["FusedEpilogue"] == 8, program.text("plan")
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
    assert steps_of(program) == {"Gemm": 1}, program.text("plan")


PRODUCTS = [
    ("abc,bd->acd", (6, 4, 5), (4, 3)),
    ("abc,cd->abd", (6, 4, 5), (5, 3)),
    ("ab,cbd->acd", (6, 4), (5, 4, 3)),
    ("zabc,zbd->zacd", (2, 6, 4, 5), (2, 4, 3)),
    ("zabc,zebd->zaced", (2, 6, 4, 5), (2, 7, 4, 3)),
    ("qabc,bd->qacd", (3, 6, 4, 5), (4, 3)),
    ("abc,ebd->aced", (1, 4, 5), (7, 4, 1)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int32])
@pytest.mark.parametrize(("spec", "left", "right"), PRODUCTS)
def test_free_dimensions_are_walked_product_by_product(spec: str, left: Any, right: Any, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, left).astype(dtype), rng.integers(-4, 5, right).astype(dtype)

    def function(a: Any, b: Any) -> Any:
        return jnp.einsum(spec, a, b) * 2 + 1

    program = program_of(function, a, b)
    assert ladder.n_kernels(program) == 1, program.text("plan")
    assert np.asarray(weft.jit(function)(a, b)).tolist() == (np.einsum(spec, a, b) * 2 + 1).tolist()


def test_the_jacobian_of_a_chain_of_slices_is_put_together_once() -> None:
    x = np.random.default_rng(4).standard_normal((5, 3, 3))

    def chain(x: Any) -> Any:
        y = x[0]
        for i in range(1, 5):
            y = y @ x[i]
        return y

    with weft.enable_x64():
        program = program_of(weft.jacobian(chain), x)
        added = [line for line in program.text("kernel").splitlines() if "= add_any" in line]
        assert all(line.endswith(" 0.0:f64[]") for line in added), added  # no sum of all that x is
        found = np.asarray(weft.jit(weft.jacobian(chain))(x))
        for index in ((0, 1, 2), (3, 0, 0), (4, 2, 1)):
            step = np.zeros_like(x)
            step[index] = 1e-6
            slope = (np.asarray(chain(x + step)) - np.asarray(chain(x - step))) / 2e-6
            np.testing.assert_allclose(found[:, :, *index], slope, rtol=1e-6, atol=1e-8)


def rows(x: Any, low: int, high: int, value: float = 0, between: int = 0, left: int = 0) -> Any:
    return lax.pad(x, np.float32(value), ((low, high, between), (left, 0, 0)))


PADDED: dict[str, Callable[..., Any]] = {
    "tiled": lambda a, b: rows(a, 0, 3) + rows(b, 2, 0),
    "a gap": lambda a, b: rows(b, 5, 1) + rows(a, 1, 6),
    "they meet": lambda a, b: rows(a, 0, 2) + rows(b, 1, 0),
    "another padding": lambda a, b: rows(a, 0, 3) + rows(b, 2, 0, 1.0),
    "negative zero": lambda a, b: rows(a, 0, 3, -0.0) + rows(b, 2, 0),
    "cut": lambda a, b: rows(a, -1, 4) + rows(b, 2, 0),
    "spread": lambda a, b: rows(a, 0, 2, between=1) + rows(b, 2, 0),
    "twice": lambda a, b: (lambda p: p + p)(rows(a, 0, 3)) + rows(b, 2, 0),
    "kept": lambda a, b: (lambda p: (p + rows(b, 2, 0)) * p)(rows(a, 0, 3)),
    "another axis": lambda a, b: rows(a, 0, 3) + rows(b[:, :1], 2, 0, left=3),
}


@pytest.mark.parametrize("name", PADDED)
def test_sums_of_padded_arrays_keep_their_bits(name: str) -> None:
    function = PADDED[name]
    a = np.array([[-0.0, 1, 2, np.inf], [0.0, -0.0, np.nan, 3]], np.float32)
    b = np.arange(12, dtype=np.float32).reshape(3, 4) * np.float32(-1)
    with weft.disable_jit():
        expected = np.asarray(function(jnp.asarray(a), jnp.asarray(b)))
    found = np.asarray(weft.jit(function)(a, b))
    assert found.tobytes() == expected.tobytes()


def residuals_of(function: Callable[..., Any], *args: Any) -> list[str]:
    lines = program_of(function, *args).text("plan").splitlines()
    start = [k for k, line in enumerate(lines) if line.strip().startswith("residuals:")]
    return [line.strip() for line in lines[start[0] :]] if start else []


def test_plans_say_what_the_backward_pass_keeps() -> None:
    x, w = np.zeros((20, 30), np.float32), np.zeros((30, 40), np.float32)
    assert residuals_of(lambda x: x * 2, x) == []
    lines = residuals_of(weft.grad(lambda x: jnp.sum(jnp.sin(jnp.exp(x)))), x)
    assert lines[0] == "residuals: 0 values, 0 bytes; not kept: 2 values, 4800 bytes"
    assert [line.split()[-1] for line in lines[1:]] == ["(exp)", "(cos)"]

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(relu(x @ w) @ w.T)

    lines = residuals_of(weft.grad(loss), w, x)
    kept = [line for line in lines if line.startswith("kept")]
    assert lines[0].startswith(f"residuals: {len(kept)} values, {len(kept) * 20 * 40 * 4} bytes")
    assert any("bool[20,40]" in line and line.startswith("not kept") for line in lines)


def test_captured_values_are_not_stacked_by_the_gradient_of_a_scan() -> None:
    def loss(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            h = jnp.tanh(jnp.exp(w) @ h + jnp.sin(w[0]) * x)
            return h, jnp.sum(h * jnp.cos(w))

        h, ys = lax.scan(step, jnp.ones(4), xs)
        return jnp.sum(h) + jnp.sum(ys)

    w, xs = np.full((4, 4), 0.25, np.float32), np.ones((7, 4), np.float32)
    closed = weft.make_jaxpr(weft.grad(loss))(w, xs)
    forward, backward = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert all(v.aval.shape != (7, 4, 4) for v in forward.outvars)
    assert backward.params["num_consts"] == 4
    gradient = np.asarray(weft.jit(weft.grad(loss))(w, xs))
    unrolled = np.asarray(weft.grad(_unrolled)(jnp.asarray(w), jnp.asarray(xs)))
    np.testing.assert_allclose(gradient, unrolled, rtol=2e-5, atol=2e-6)


def _unrolled(w: Any, xs: Any) -> Any:
    h, total = jnp.ones(4), 0.0
    for k in range(7):
        h = jnp.tanh(jnp.exp(w) @ h + jnp.sin(w[0]) * xs[k])
        total = total + jnp.sum(h * jnp.cos(w))
    return jnp.sum(h) + total
