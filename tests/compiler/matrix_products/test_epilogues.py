"""Kernels that ride on matrix products: one instruction, the bits of separate ones, nothing overwritten too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import compiler
from weft.compiler.plans import steps


def relu_layer(x: Any, w: Any, b: Any) -> Any:
    return jnp.maximum(x @ w + b, 0)


def activation(x: Any, w: Any, b: Any) -> Any:
    return jnp.tanh(x @ w)


def sine_and_cosine(x: Any, w: Any, b: Any) -> Any:
    return jnp.sin(x @ w) + jnp.cos(x @ w)


def softmax(x: Any, w: Any, b: Any) -> Any:
    scores = x @ w * 0.125
    e = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def two_outputs(x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    return y, jnp.exp(-y)


def column_scale(x: Any, w: Any, b: Any) -> Any:
    return (x @ w) * jnp.arange(x.shape[0], dtype=x.dtype)[:, None]


def narrow(x: Any, w: Any, b: Any) -> Any:
    return (x @ w + b).astype(jnp.bfloat16)


def row_sums(x: Any, w: Any, b: Any) -> Any:
    return jnp.sum(jnp.square(x @ w), axis=1)


PROGRAMS = [relu_layer, activation, sine_and_cosine, softmax, two_outputs, column_scale, narrow, row_sums]
SIZES = [(40, 50, 60), (128, 300, 520), (300, 40, 200), (260, 700, 64), (64, 1030, 33), (700, 1, 70), (1, 90, 600),
         (700, 300, 33)]  # fmt: skip


def operands(m: int, n: int, k: int, dtype: Any = np.float32) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(m + n + k)
    return tuple(rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n), (n,)))


def program_of(function: Callable[..., Any], *args: Any, donated: tuple[bool, ...] = ()) -> compiler.Program:
    return compiler.compile_jaxpr(weft.make_jaxpr(function)(*args), donated=donated)


def apart(function: Callable[..., Any], args: tuple[Any, ...]) -> list[np.ndarray]:
    """The results when the product is stored by itself first."""
    x, w, b = args
    product = jnp.asarray(np.asarray(jnp.asarray(x) @ jnp.asarray(w)))

    class Given:
        shape, dtype = x.shape, x.dtype

        def __matmul__(self, other: Any) -> Any:
            return product

    return [np.asarray(v) for v in weft.tree.leaves(function(Given(), w, b))]


def has_bits_of_separate_steps(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    expected = apart(function, args)
    for threads in (1, 2):
        with weft.threads(threads):
            found = [np.asarray(v) for v in weft.tree.leaves(weft.jit(function)(*args))]
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("size", SIZES)
def test_bits_are_those_of_separate_steps(function: Callable[..., Any], size: tuple[int, int, int]) -> None:
    has_bits_of_separate_steps(function, operands(*size))


@pytest.mark.parametrize("function", [relu_layer, activation, sine_and_cosine, two_outputs, softmax, column_scale])
def test_a_layer_is_one_instruction_without_temporaries(function: Callable[..., Any]) -> None:
    program = program_of(function, *operands(40, 50, 60))
    rides = [entry for entry in program.plan.instructions if isinstance(entry, steps.FusedEpilogue)]
    assert len(rides) == 1
    assert len(program.plan.products()) == 1
    if function is not column_scale:
        assert len(program.plan.instructions) == 1
    assert program.plan.arena_bytes <= 256  # nothing of the size of the product


def scaled_residual(x: Any, w: Any, b: Any) -> Any:
    return b - (x @ w) * 0.5


def conjugate(x: Any, w: Any, b: Any) -> Any:
    return jnp.conj(x @ w) * b


def magnitude(x: Any, w: Any, b: Any) -> Any:
    return jnp.abs(x @ w + b)


def both_parts(x: Any, w: Any, b: Any) -> Any:
    y = x @ w
    return jnp.real(y), jnp.imag(y)


def power(x: Any, w: Any, b: Any) -> Any:
    return jnp.sum(jnp.square(jnp.abs(x @ w)), axis=1)


@pytest.mark.parametrize("function", [scaled_residual, conjugate, magnitude, both_parts, power])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_products_carry_their_epilogues(
    function: Callable[..., Any], size: tuple[int, int, int], dtype: str
) -> None:
    with weft.enable_x64(dtype == "complex128"):
        parts = zip(
            operands(*size, np.float64), operands(size[0] + 1, size[1] + 1, size[2] + 1, np.float64), strict=True
        )
        args = tuple((x + 1j * y[tuple(slice(n) for n in x.shape)]).astype(dtype) for x, y in parts)
        has_bits_of_separate_steps(function, args)
        assert [type(entry) for entry in program_of(function, *args).plan.instructions] == [steps.FusedEpilogue]


def test_a_product_that_is_read_twice_is_stored() -> None:
    def both(x: Any, w: Any) -> Any:
        y = x @ w
        return y, jnp.exp(y)

    program = program_of(both, *operands(40, 50, 60)[:2])
    assert not any(isinstance(entry, steps.FusedEpilogue) for entry in program.plan.instructions)


def test_layers_in_a_row() -> None:
    def network(x: Any, w1: Any, w2: Any) -> Any:
        return jnp.tanh(jnp.maximum(x @ w1, 0) @ w2)

    x, w1, _ = operands(64, 96, 96)
    program = program_of(network, x, w1, w1)
    assert [type(entry) for entry in program.plan.instructions] == [steps.FusedEpilogue, steps.FusedEpilogue]
    hidden = np.maximum(np.asarray(jnp.asarray(x) @ jnp.asarray(w1)), 0)
    expected = np.asarray(jnp.tanh(jnp.asarray(hidden) @ jnp.asarray(w1)))
    np.testing.assert_array_equal(np.asarray(weft.jit(network)(x, w1, w1)), expected)


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("n", [20, 64, 300])
def test_operands_of_the_product_are_not_overwritten(n: int) -> None:
    x, w, _ = operands(n, n, n)

    def residual(x: Any, w: Any) -> Any:
        return x + jnp.maximum(x @ w, 0)

    def chained(x: Any, w: Any) -> Any:  # the residual is a temporary that dies here
        y = jnp.sin(x)
        return y + jnp.maximum(y @ w, 0)

    y = np.asarray(jnp.sin(x))
    expected = x + np.maximum(np.asarray(jnp.asarray(x) @ jnp.asarray(w)), 0)
    expected_y = y + np.maximum(np.asarray(jnp.asarray(y) @ jnp.asarray(w)), 0)
    for threads in (1, 2):
        with weft.threads(threads):
            for donated in ((), (0,), (1,), (0, 1)):
                one, two = (weft.jit(f, donate_argnums=donated) for f in (residual, chained))
                for _ in range(3):
                    np.testing.assert_array_equal(np.asarray(one(jnp.array(x), jnp.array(w))), expected)
                    np.testing.assert_array_equal(np.asarray(two(jnp.array(x), jnp.array(w))), expected_y)


def test_a_donated_residual_is_read_before_the_product_is_written() -> None:
    x, w, _ = operands(200, 200, 200)
    r = np.random.default_rng(1).standard_normal((200, 200)).astype(np.float32)
    f = weft.jit(lambda x, w, r: r - jnp.abs(x @ w), donate_argnums=2)
    expected = r - np.abs(np.asarray(jnp.asarray(x) @ jnp.asarray(w)))
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(f(x, w, jnp.array(r))), expected)


@pytest.mark.parametrize("batch", [(3,), (2, 5), (40,)])
def test_batches(batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    q, k = (rng.standard_normal((*batch, 30, 16)).astype(np.float32) for _ in range(2))
    bias = rng.standard_normal(30).astype(np.float32)

    def scores(q: Any, k: Any) -> Any:
        return jnp.exp(jnp.einsum("...qd,...kd->...qk", q, k) + bias)

    products = jnp.asarray(np.asarray(jnp.einsum("...qd,...kd->...qk", q, k)))
    for threads in (1, 2):
        with weft.threads(threads):
            found = np.asarray(weft.jit(scores)(q, k))
        np.testing.assert_array_equal(found, np.asarray(jnp.exp(products + bias)))
    assert len(program_of(scores, q, k).plan.instructions) == 1


@pytest.mark.parametrize("shape", [(1, 2, 30, 30, 16), (2, 5, 30, 33, 16), (40, 1, 7, 5, 8), (2, 2, 300, 260, 40)])
def test_masked_scores_are_softmax_on_whole_products(shape: tuple[int, ...]) -> None:
    b, h, s, t, d = shape
    rng = np.random.default_rng(3)
    q, k = (rng.standard_normal((b, n, h, d)).astype(np.float32) for n in (s, t))
    mask = np.tril(np.ones((s, t), bool))

    def weights(q: Any, k: Any) -> Any:
        return weft.nn.softmax(jnp.where(mask, jnp.einsum("bqhd,bkhd->bhqk", q, k), -1e9), axis=-1)

    scores = jnp.asarray(np.asarray(jnp.einsum("bqhd,bkhd->bhqk", q, k)))
    expected = np.asarray(weft.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1))
    for threads in (1, 2):
        with weft.threads(threads):
            np.testing.assert_array_equal(np.asarray(weft.jit(weights)(q, k)), expected)
    (entry,) = program_of(weights, q, k).plan.instructions
    assert (type(entry), entry.form) == (steps.FusedEpilogue, "products" if b * h > 1 else "rows")


def test_attention_s_gradient_has_its_softmax_on_products() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (jnp.asarray(rng.standard_normal((2, 40, 3, 16)), np.float32) for _ in range(3))
    mask = np.tril(np.ones((40, 40), bool))

    def loss(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.where(mask, jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1e9)
        return jnp.mean(jnp.einsum("bhqk,bkhd->bqhd", weft.nn.softmax(scores, axis=-1), v) ** 2)

    gradient = weft.value_and_grad(loss, argnums=(0, 1, 2))
    program = program_of(gradient, q, k, v)
    assert [entry.form for entry in program.plan.instructions if isinstance(entry, steps.FusedEpilogue)] == [
        "products"
    ] * 2
    assert len(program.plan.runs()) == 3  # the third is the loss and its derivative
    for threads in (1, 2):
        with weft.threads(threads):
            value, found = weft.jit(gradient)(q, k, v)
        np.testing.assert_array_equal(value, loss(q, k, v))
        for one, other in zip(found, gradient(q, k, v)[1], strict=True):
            np.testing.assert_array_equal(one, other)


def test_half_precisions_are_rounded_on_the_tile() -> None:
    x, w, b = (jnp.asarray(v).astype(jnp.bfloat16) for v in operands(40, 50, 60))
    program = program_of(lambda x, w: x @ w, x, w)
    assert len(program.plan.instructions) == 1
    wide = jnp.matmul(x, w, preferred_element_type=np.float32)
    np.testing.assert_array_equal(np.asarray(x @ w), np.asarray(wide.astype(jnp.bfloat16)))
    assert b.shape == (50,)


def test_operands_live_until_the_kernel_runs() -> None:
    x, w, _ = operands(40, 40, 40)

    def program(x: Any, w: Any) -> Any:  # y is read by a product that waits for its kernel, and by one that does not
        y = jnp.sin(x)
        first = jnp.sum(jnp.exp(y @ w), axis=1, keepdims=True)
        return jnp.tanh(w @ y) * first + jnp.cumsum(first, 0)

    y = jnp.sin(x)
    first = jnp.sum(jnp.exp(y @ w), axis=1, keepdims=True)
    expected = jnp.tanh(w @ y) * first + jnp.cumsum(first, 0)
    np.testing.assert_array_equal(np.asarray(weft.jit(program)(x, w)), np.asarray(expected))
