"""Products have the bits of docs/NUMERICS.md in every layout: machine code and reference, against exact fused sums."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler.matrix_products.exact_products import exact_product, fma
from weft import config, dtypes, lax, runtime
from weft.core import primitive

KINDS = ["float32", "float64", "complex64", "complex128", "bfloat16", "float16", "int32", "int64"]
Laid = tuple[np.ndarray, Callable[[Any], Any]]  # an array, and the view of it that is the operand


def drawn(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Numbers of several magnitudes, so that sums round often and another order shows."""
    if kind.startswith("int"):
        return rng.integers(-1000, 1000, shape).astype(kind)
    x = rng.standard_normal(shape) * 4.0 ** rng.integers(-2, 3, shape)
    if kind.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtypes.bfloat16 if kind == "bfloat16" else kind)


def laid_out(rng: np.random.Generator, x: np.ndarray) -> Laid:
    """The same operand by rows, by columns, by every other row or column, within a larger array, or reversed."""
    (m, n), before = x.shape, int(rng.integers(1, 20))
    alone = np.zeros((2 * m, n), x.dtype), np.zeros((m, 2 * n + 1), x.dtype)
    alone[0][::2], alone[1][:, 1::2] = x, x
    within = np.zeros((m + 3, n + before + 5), x.dtype), np.zeros((n + 3, m + before + 5), x.dtype)
    within[0][2 : 2 + m, before : before + n], within[1][2 : 2 + n, before : before + m] = x, x.T
    choices: list[Laid] = [
        (x, lambda v: v),
        (np.ascontiguousarray(x.T), lambda v: v.T),
        (alone[0], lambda v: v[::2]),
        (alone[1], lambda v: v[:, 1::2]),
        (within[0], lambda v: v[2 : 2 + m, before : before + n]),
        (within[1], lambda v: v[2 : 2 + n, before : before + m].T),
        (np.ascontiguousarray(x[::-1]), lambda v: v[::-1]),
    ]
    return choices[rng.integers(len(choices))]


def sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Rows, columns and terms: mostly 1 to 70, some more, every other product one of a vector (not of two)."""
    m, n, k = (int(size) for size in rng.integers(2, 71, 3))
    vector = int(rng.integers(4))
    m, n = (1 if vector == 0 else m), (1 if vector == 1 else n)
    if rng.random() < 0.2:
        k = int(rng.integers(70, 9000 if vector < 2 else 1500))
    if rng.random() < 0.1:
        m, n = (size if size == 1 else int(rng.integers(70, 300)) for size in (m, n))
    return (m, n, k) if m * n * k < 1 << 20 else (m, n, 40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_every_layout_has_the_bits_of_the_stated_sum(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    wide = np.float32 if kind in ("bfloat16", "float16") else None
    with weft.enable_x64(True), config.context("check", False):
        for _ in range(12):
            m, n, k = sizes(rng)
            if (
                kind in ("float16", "bfloat16")
                and runtime.how_added("eE"[kind == "bfloat16"], "f", m, n, k) != "chains"
            ):
                continue  # test_matrix_unit and test_products have their rules
            a, b = drawn(rng, (m, k), kind), drawn(rng, (k, n), kind)
            expected = exact_product(a, b)
            (x, left), (y, right) = laid_out(rng, a), laid_out(rng, b)

            def product(x: Any, y: Any, left: Any = left, right: Any = right) -> Any:
                return lax.dot_general(left(x), right(y), (((1,), (0,)), ((), ())), preferred_element_type=wide)

            def exchanged(x: Any, y: Any, left: Any = left, right: Any = right) -> Any:
                return lax.dot_general(right(y), left(x), (((0,), (1,)), ((), ())), preferred_element_type=wide).T

            with weft.threads(int(rng.integers(1, 3))):
                for function in (product, exchanged, weft.jit(product), weft.jit(exchanged)):
                    found = np.asarray(function(jnp.asarray(x), jnp.asarray(y)))
                    np.testing.assert_array_equal(found, expected, err_msg=f"{(m, n, k)} of {kind}")


@pytest.mark.parametrize("kind", ["float32", "complex64"])
@pytest.mark.parametrize("shape", [(5, 7, 3), (30, 20, 70), (1, 9, 600), (9, 1, 600), (6, 5, 1300), (1, 3, 9000)])
def test_the_reference_has_the_bits_of_machine_code_whatever_the_layout(shape: tuple[int, int, int], kind: str) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    a, b = drawn(rng, (m, k), kind), drawn(rng, (k, n), kind)
    reference = primitive.registry["dot_general"].kind.reference
    with config.context("check", False):
        expected = np.asarray(jnp.matmul(a, b))
    for x, x_axis in ((a, 1), (np.ascontiguousarray(a.T), 0)):
        for y, y_axis in ((b, 0), (np.ascontiguousarray(b.T), 1)):
            numbers = (((x_axis,), (y_axis,)), ((), ()))
            found = reference(x, y, dimension_numbers=numbers, precision=None, preferred_element_type=None)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(
    "operands", ["nij,nkj->nik", "nij,kj->nik", "ij,nkj->nik", "nhij,nkj->nhik", "nji,hkj->nhik", "nijl,nlkj->nik"]
)
def test_batches_of_small_products_whose_right_columns_are_apart(operands: str, kind: str) -> None:
    rng = np.random.default_rng(len(operands))
    with weft.enable_x64(True), config.context("check", False):
        for i, k, j in ((1, 2, 3), (8, 8, 8), (5, 33, 7), (14, 17, 20), (40, 40, 40), (3, 130, 31)):
            sizes = {"n": int(rng.integers(1, 40)), "h": 3, "l": 4, "i": i, "j": j, "k": k}
            left, right = (
                rng.standard_normal([sizes[letter] for letter in term]) for term in operands.split("->")[0].split(",")
            )
            if kind == "complex64":
                left, right = left + 1j * left[::-1], right - 1j * right[::-1]
            left, right = left.astype(kind), right.astype(kind)
            expected = np.einsum(operands, left.astype(np.complex128), right.astype(np.complex128))
            alike = jnp.einsum(operands, left, jnp.asarray(np.moveaxis(right, -1, -2).copy()).swapaxes(-1, -2) + 0)
            for threads in (1, 2):
                with weft.threads(threads):
                    found = np.asarray(jnp.einsum(operands, left, right))
                    followed = np.asarray(weft.jit(lambda a, b: jnp.einsum(operands, a, b) * 2 + 1)(left, right))
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 if kind != "float64" else 1e-13)
                np.testing.assert_array_equal(found, np.asarray(alike))
                np.testing.assert_array_equal(followed, found * found.dtype.type(2) + found.dtype.type(1))


@pytest.mark.parametrize("shape", [(5, 3), (6, 18), (8, 21), (13, 7), (30, 20), (41, 33), (9, 70)])
def test_transposes_that_products_take_in_change_no_bit(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    gradient = weft.grad(lambda x: jnp.tanh(x @ jnp.tanh(x.T @ x)).sum())
    with config.context("check", True):  # every stage against the one before
        compiled = weft.jit(lambda x: gradient(x))(x)
    np.testing.assert_array_equal(np.asarray(compiled), np.asarray(gradient(jnp.asarray(x))))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_fused_sum_of_these_tests_is_rounded_once(kind: Any) -> None:
    rng, bits = np.random.default_rng(1), np.finfo(kind).nmant + 1
    a, b, c = (rng.integers(1 << (bits - 1), 1 << bits, 2000) * rng.choice([-1, 1], 2000) for _ in range(3))
    scale = rng.integers(-30, 60, 2000)
    found = fma(a.astype(kind), b.astype(kind), np.ldexp(c.astype(kind), scale))
    for x, y, z, shift, total in zip(a.tolist(), b.tolist(), c.tolist(), scale.tolist(), found.tolist(), strict=True):
        exact = x * y * 2**30 + z * 2 ** (shift + 30)  # a whole number
        half = Fraction(2) ** (abs(exact).bit_length() - bits - 1)
        assert abs(Fraction(total) * 2**30 - exact) <= half
