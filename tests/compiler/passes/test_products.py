"""Products that write where a transpose would have copied their result: the plan has no copy, the bits are the same."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.compiler.passes import inline, products

B, H, S, D = 2, 3, 20, 16


def operand(*shape):
    r = np.random.default_rng(sum(shape))
    return jnp.asarray(r.standard_normal(shape).astype(np.float32))


def attention(q, k, v):
    """Operands and result (batch, position, head, feature)."""
    weights = weft.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def attention_by_transposes(q, k, v):
    q, k, v = (jnp.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
    weights = weft.nn.softmax(q @ jnp.swapaxes(k, -1, -2) * 0.25, axis=-1)
    return jnp.transpose(weights @ v, (0, 2, 1, 3))


def attention_of_heads(q, k, v):
    """The same with the heads ahead of the positions."""
    weights = weft.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.25, axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def instructions(function, *args):
    """Lines of the plan that run something."""
    text = weft.jit(function).lower(*args).compile().as_text("plan")
    return [line.split()[0] for line in text.splitlines() if line.startswith(("  gemm", "  kernel", "  copy"))]


@pytest.mark.parametrize("function", [attention, attention_by_transposes, attention_of_heads])
def test_attention_copies_nothing(function):
    shape = (B, H, S, D) if function is attention_of_heads else (B, S, H, D)
    q, k, v = operand(*shape), operand(*shape) + 1, operand(*shape) * 2
    assert instructions(function, q, k, v) == ["gemm", "kernel", "gemm"]  # the kernel is the softmax
    got = np.asarray(weft.jit(function)(q, k, v))
    np.testing.assert_array_equal(got, np.asarray(function(q, k, v)))
    turn = (0, 1, 2, 3) if function is attention_of_heads else (0, 2, 1, 3)
    a, b, c = (np.transpose(np.asarray(x, np.float64), turn) for x in (q, k, v))
    scores = a @ np.swapaxes(b, -1, -2) * 0.25
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.transpose(weights / weights.sum(-1, keepdims=True) @ c, turn)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


EINSUMS = [
    ("ij,jk->ki", (5, 7), (7, 9), 1),
    ("bij,bjk->ibk", (3, 5, 7), (3, 7, 9), 1),
    ("bij,bjk->kbi", (3, 5, 7), (3, 7, 9), 1),
    ("bij,bjk->ikb", (3, 5, 7), (3, 7, 9), 2),  # no dimension of a matrix is contiguous: copied
    ("abij,abjk->baik", (2, 3, 5, 7), (2, 3, 7, 9), 1),
    ("abij,abjk->iabk", (2, 3, 5, 7), (2, 3, 7, 9), 1),
    ("bij,bjk->ibk", (3, 1, 7), (3, 7, 9), 1),
    ("bij,bjk->ibk", (3, 5, 7), (3, 7, 1), 1),
    ("bij,bjk->ibk", (3, 100, 200), (3, 200, 300), 1),
    ("bxij,bjk->xibk", (3, 2, 5, 7), (3, 7, 9), 1),
    ("bxij,bjk->ibxk", (3, 2, 5, 7), (3, 7, 9), 1),
]


@pytest.mark.parametrize(("spec", "left", "right", "steps"), EINSUMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "complex64"])
def test_einsum(spec, left, right, steps, dtype):
    with weft.enable_x64(dtype == "float64"):
        x, y = ((operand(*shape) * 3).astype(dtype) for shape in (left, right))
        got = weft.jit(lambda x, y: jnp.einsum(spec, x, y))(x, y)
        inputs, output = spec.split("->")
        plain = "".join(sorted(output, key=lambda c: (inputs.split(",")[0] + inputs).index(c)))
        order = tuple(plain.index(c) for c in output)
        want = np.transpose(np.asarray(weft.jit(lambda x, y: jnp.einsum(f"{inputs}->{plain}", x, y))(x, y)), order)
        np.testing.assert_array_equal(np.asarray(got), want)
        if dtype == "float32":
            assert len(instructions(lambda x, y: jnp.einsum(spec, x, y), x, y)) == steps


def test_both_read():
    """The product itself is wanted too: the transpose is a copy."""
    x, y = operand(3, 5, 7), operand(3, 7, 9)

    def both(x, y):
        c = x @ y
        return c, jnp.transpose(c, (1, 0, 2))

    got = weft.jit(both)(x, y)
    np.testing.assert_array_equal(np.asarray(got[1]), np.transpose(np.asarray(got[0]), (1, 0, 2)))


def test_nothing_to_sum():
    x, y = operand(3, 5, 0), operand(3, 0, 9)
    got = weft.jit(lambda x, y: jnp.transpose(x @ y, (1, 0, 2)))(x, y)
    np.testing.assert_array_equal(np.asarray(got), np.zeros((5, 3, 9), np.float32))


def test_threads():
    x, y = operand(8, 200, 128), operand(8, 128, 160)
    function = weft.jit(lambda x, y: jnp.transpose(x @ y, (1, 0, 2)))
    with weft.threads(1):
        want = np.asarray(function(x, y))
    with weft.threads(2):
        np.testing.assert_array_equal(np.asarray(function(x, y)), want)
    np.testing.assert_array_equal(want, np.transpose(np.asarray(x @ y), (1, 0, 2)))


REGIONS = {
    "concatenate": lambda c, x: jnp.concatenate([jnp.transpose(c, (0, 2, 1)), x], axis=1),
    "concatenate two": lambda c, x: jnp.concatenate([jnp.transpose(c, (0, 2, 1)), jnp.transpose(2 * c, (0, 2, 1))], 2),
    "pad": lambda c, x: jnp.pad(jnp.transpose(c, (0, 2, 1)), ((1, 0), (0, 2), (0, 0))),
    "update": lambda c, x: jnp.zeros((3, 12, 5)).at[:, 2:11].set(jnp.transpose(c, (0, 2, 1))),
}


@pytest.mark.parametrize("name", REGIONS)
def test_transposed_product_is_a_region_of_another_array(name):
    x, y, z = operand(3, 5, 7), operand(3, 7, 9), operand(3, 4, 5)

    def function(x, y, z):
        return REGIONS[name](x @ y, z)

    with weft.disable_jit():
        want = np.asarray(function(x, y, z))
    np.testing.assert_array_equal(np.asarray(weft.jit(function)(x, y, z)), want)


def test_product_is_a_piece_of_an_array_and_transposed():
    x, y, z = operand(5, 7), operand(7, 4), operand(2, 4)

    def both(x, y, z):
        c = x @ y
        return jnp.concatenate([c, z]), c.T.reshape(-1)

    with weft.disable_jit():
        want = both(x, y, z)
    for got, expected in zip(weft.jit(both)(x, y, z), want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


SUMS = [((0, 1), (0, 1)), ((0, 1), (1, 0)), ((1, 0), (0, 1)), ((2, 0), (1, 2)), ((0, 2), (2, 1)), ((1, 2), (2, 0))]


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_sums_over_two_dimensions_have_one_order(sums, order):
    x, y = operand(8, 8, 8), operand(8, 8, 8)

    def function(x, y):
        def product(a, b):
            return weft.lax.dot_general(a, b, (sums, ((), ())))

        x, y = jnp.transpose(x, order), jnp.tanh(y)
        return product(x, y), product(y, x).T, product(jnp.transpose(y, order), x).T

    with weft.disable_jit():
        want = function(jnp.asarray(x), jnp.asarray(y))
    with weft.config.context("check", False):  # NumPy's products, which are compared there, have other bits exchanged
        compiled = weft.jit(function)(x, y)
    for got, expected in zip(compiled, want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_all_three_axes_of_a_result_in_a_circle():
    """The product writes [n,b,m]; another product reads [b,m,n] in it."""

    def function(x, y, z):
        product = x @ y
        return product @ z, jnp.transpose(product, (2, 0, 1))

    args = operand(3, 40, 20), operand(3, 20, 24), operand(3, 24, 7)
    assert instructions(function, *args) == ["gemm", "gemm"]
    read, written = weft.jit(function)(*args)
    x, y, z = (np.asarray(a, np.float64) for a in args)
    np.testing.assert_allclose(read, x @ y @ z, 1e-4, 1e-4)
    np.testing.assert_allclose(written, np.transpose(x @ y, (2, 0, 1)), 1e-4, 1e-4)


def _products(function, *shapes):
    """The dimension numbers of the products in this form, and the operations."""
    made = products.products(inline.inline(weft.make_jaxpr(function)(*[operand(*shape) for shape in shapes])))
    found = [eqn.params["dimension_numbers"] for eqn in made.jaxpr.eqns if "dimension_numbers" in eqn.params]
    return found, [eqn.primitive.name for eqn in made.jaxpr.eqns]


def test_dimension_numbers():
    def dot(x, y):
        return lax.dot_general(x, y, (((1,), (0,)), ((), ())))

    assert _products(lambda x, y: dot(x.T, y), (5, 7), (5, 3)) == ([(((0,), (0,)), ((), ()))], ["dot_general"])
    computed = _products(lambda x, y: dot(jnp.exp(x.T) * 2, y), (5, 7), (5, 3))
    assert computed == ([(((0,), (0,)), ((), ()))], ["exp", "mul", "dot_general"])
    assert _products(lambda x, y: dot(x, y).T, (5, 7), (7, 3)) == ([(((0,), (1,)), ((), ()))], ["dot_general"])
    both = _products(lambda x, y: dot(x.T, y).T, (7, 5), (7, 3))
    assert both == ([(((0,), (0,)), ((), ()))], ["dot_general"])
    assert "transpose" in _products(lambda x, y: (lambda p: (p, p.T))(dot(x, y)), (5, 7), (7, 3))[1]
