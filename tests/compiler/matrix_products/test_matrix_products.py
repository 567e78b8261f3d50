"""Matrix products: the sum of docs/NUMERICS.md bit for bit, over shapes, layouts, dtypes, threads and vector widths."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler.matrix_products.exact_products import exact_product
from tests.compiler.matrix_products.test_matrix_unit import in_tiles
from weft import dtypes, lax, runtime

BLOCK, LANE_BYTES = 512, 64

SHAPES = [
    (1, 1, 1), (1, 1, 70000),
    (2, 3, 1), (5, 7, 3), (13, 31, 17), (14, 32, 16), (15, 33, 64), (29, 65, 100), (28, 64, 512),
    (9, 48, 40), (10, 40, 7), (100, 100, 33), (20, 72, 50), (9, 41, 30), (19, 36, 9),
    (3, 2, 513), (97, 101, 103), (64, 64, 64), (1, 5, 3), (5, 1, 3), (1, 40, 600), (37, 1, 600), (1, 130, 9000),
    (1, 1100, 2100), (1, 700, 1500),
    (50, 1, 8193), (200, 10, 1024), (10, 300, 520), (6, 5, 5000), (300, 290, 700), (130, 700, 30), (17, 2000, 40),
]  # fmt: skip


def product(a: np.ndarray, b: np.ndarray, dtype: Any) -> np.ndarray:
    """The program of docs/NUMERICS.md; terms and their sums are exact in float64, so that fma is one rounding."""
    (m, k), n = a.shape, b.shape[1]
    chains = LANE_BYTES // np.dtype(dtype).itemsize if m == 1 or n == 1 else 1
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    total = None
    for start in range(0, k, BLOCK * chains):
        sums = np.zeros((chains, m, n), dtype)
        for i in range(start, min(k, start + BLOCK * chains)):
            lane = i % chains
            sums[lane] = (a64[:, i, None] * b64[None, i, :] + sums[lane].astype(np.float64)).astype(dtype)
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        total = sums[0] if total is None else total + sums[0]
    return np.zeros((m, n), dtype) if total is None else total


def few_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Values of 12 bits, so that a product and its sum with a float32 are exact in float64."""
    return (rng.integers(-2047, 2048, shape) / 1024).astype(np.float32)


def laid_out(x: np.ndarray, how: str) -> tuple[Any, int]:
    """An array whose dimension `axis` is the last of x (the summed one for a left operand)."""
    return (jnp.asarray(x), 1) if how == "rows" else (jnp.asarray(np.ascontiguousarray(x.T)), 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_bits_of_the_stated_sum(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    a, b = few_bits(rng, (m, k)), few_bits(rng, (k, n))
    expected = product(a, b, np.float32)
    for left, right, threads in itertools.product(("rows", "columns"), ("rows", "columns"), (1, 2, 3)):
        (x, x_axis), (y, y_axis) = laid_out(a, left), laid_out(b, right)
        with weft.threads(threads):
            out = np.asarray(lax.dot_general(x, y, (((x_axis,), (1 - y_axis,)), ((), ()))))
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), atol=2e-4 * np.sqrt(k))


def complex_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The complex program of docs/NUMERICS.md, in complex64."""
    (m, k), n = a.shape, b.shape[1]
    chains = LANE_BYTES // a.itemsize if m == 1 or n == 1 else 1
    re, im = np.real, np.imag
    total = None
    for start in range(0, k, BLOCK * chains):
        sums = np.zeros((chains, m, n), np.complex64)
        for chain in range(chains):
            of = slice(start + chain, min(k, start + BLOCK * chains), chains)
            rr, ii, ri, ir = (
                one_chain(left[:, of], right[of])
                for left, right in ((re(a), re(b)), (im(a), im(b)), (re(a), im(b)), (im(a), re(b)))
            )
            sums[chain].real, sums[chain].imag = rr - ii, ri + ir
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        total = sums[0] if total is None else total + sums[0]
    return np.zeros((m, n), np.complex64) if total is None else total


def one_chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product as one chain of fused multiply-adds."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        total = (a[:, i, None].astype(np.float64) * b[None, i] + total).astype(np.float32)
    return total


@pytest.mark.parametrize(
    "shape", [(1, 1, 70), (5, 7, 3), (15, 33, 64), (7, 16, 513), (1, 40, 600), (37, 1, 600), (50, 1, 8193),
              (1, 1100, 1100), (97, 101, 103), (300, 40, 30), (6, 5, 5000), (20, 300, 530)],
)  # fmt: skip
def test_complex_bits_of_the_stated_sum(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    a, b = (few_bits(rng, s) + np.complex64(1j) * few_bits(rng, s) for s in ((m, k), (k, n)))
    expected = complex_product(a, b)
    for left, right, threads in itertools.product(("rows", "columns"), ("rows", "columns"), (1, 2)):
        (x, x_axis), (y, y_axis) = laid_out(a, left), laid_out(b, right)
        with weft.threads(threads):
            out = np.asarray(lax.dot_general(x, y, (((x_axis,), (1 - y_axis,)), ((), ()))))
            turned = np.asarray(lax.dot_general(y, x, (((1 - y_axis,), (x_axis,)), ((), ()))))
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(turned.T, expected)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "int16", "int64", "bfloat16", "float16", "complex64",
                                   "complex128"])  # fmt: skip
@pytest.mark.parametrize("shape", [(1, 9, 20), (9, 1, 20), (20, 35, 40), (15, 300, 530), (300, 15, 33), (2, 2, 9000)])
def test_dtypes(shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    rng = np.random.default_rng(3)
    kind = np.dtype(dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    whole = kind.kind in "iu"
    values = [rng.integers(-100, 100, s) if whole else rng.standard_normal(s) for s in ((m, k), (k, n))]
    if kind.kind == "c":
        values = [value + 1j * rng.standard_normal(value.shape) for value in values]
    with weft.enable_x64(True), np.errstate(over="ignore"):
        a, b = (np.asarray(v).astype(kind) for v in values)
        outs = []
        for threads in (1, 2):
            with weft.threads(threads):
                outs.append(np.asarray(jnp.matmul(jnp.asarray(a), jnp.asarray(b))))
        assert outs[0].dtype == kind
        assert outs[0].tobytes() == outs[1].tobytes()
        if whole:
            np.testing.assert_array_equal(outs[0], (a.astype(np.int64) @ b.astype(np.int64)).astype(kind))
        else:
            wide = np.complex128 if kind.kind == "c" else np.float64
            exact = a.astype(wide) @ b.astype(wide)
            epsilon = float(dtypes.finfo(kind).eps)
            bound = epsilon * np.abs(exact) + (np.abs(a.astype(wide)) @ np.abs(b.astype(wide))) * max(
                1e-15, 2e-6 if epsilon > 1e-8 else 0
            )
            assert (np.abs(outs[0].astype(wide) - exact) <= bound).all()


def test_preferred_types_and_mixed_operands() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-9, 9, (5, 70)), rng.integers(-9, 9, (70, 40))
    exact = a @ b
    for left, right, preferred in [
        ("int8", "int8", "int32"), ("int8", "int8", "int16"), ("bfloat16", "bfloat16", "float32"),
        ("float16", "float32", None), ("int32", "int32", "float32"), ("int8", "float32", None),
        ("bool", "bool", "int32"), ("uint8", "int32", None), ("float32", "float32", "bfloat16"),
        ("float32", "complex64", None),
    ]:  # fmt: skip
        kinds = [np.dtype(dtypes.bfloat16 if name == "bfloat16" else name) for name in (left, right)]
        x, y = jnp.asarray(a.astype(kinds[0])), jnp.asarray(b.astype(kinds[1]))
        out = lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=preferred)
        expected = np.asarray(x).astype(np.float64) @ np.asarray(y).astype(np.complex128) if left != "bool" else (
            (a != 0).astype(int) @ (b != 0).astype(int)
        )  # fmt: skip
        assert exact.shape == out.shape
        np.testing.assert_allclose(np.asarray(out).astype(np.complex128), expected, rtol=5e-3)


@pytest.mark.parametrize("batch", [(1,), (7,), (3, 5), (0,)])
def test_batches(batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    for m, n, k in [(4, 4, 4), (16, 16, 16), (1, 20, 30), (33, 17, 70), (3, 2, 0)]:
        a, b = few_bits(rng, (*batch, m, k)), few_bits(rng, (*batch, k, n))
        results = []
        for threads in (1, 2):
            with weft.threads(threads):
                results.append(np.asarray(jnp.matmul(jnp.asarray(a), jnp.asarray(b))))
        assert results[0].shape == (*batch, m, n)
        for index in np.ndindex(*batch):
            np.testing.assert_array_equal(results[0][index], np.asarray(jnp.matmul(a[index], b[index])))
        np.testing.assert_array_equal(results[0], results[1])


def test_batches_of_narrow_operands() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(-9, 9, (3, 5, 20)), rng.integers(-9, 9, (3, 20, 6))
    for dtype in ("int8", "float16", "bfloat16"):
        kind = np.dtype(dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for preferred in (np.int32, np.float32):
            if np.dtype(preferred).kind == kind.kind or preferred is np.float32:
                out = jnp.matmul(a.astype(kind), b.astype(kind), preferred_element_type=preferred)
                np.testing.assert_array_equal(np.asarray(out), a @ b)


def test_views_of_operands_have_the_same_bits() -> None:
    rng = np.random.default_rng(6)
    base = jnp.asarray(few_bits(rng, (80, 120)))
    other = few_bits(rng, (40, 50))
    for view in (
        lambda x: x[:60, 7:47], lambda x: x[::2, :40], lambda x: x.T[:60, :40], lambda x: x[::-1, 40:80],
        lambda x: jnp.broadcast_to(x[3, :40], (9, 40)),
    ):  # fmt: skip
        out = np.asarray(weft.jit(lambda x, y, view=view: view(x) @ y)(base, other))
        np.testing.assert_array_equal(out, product(np.asarray(view(base)), other, np.float32))


@pytest.mark.parametrize("few", [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33])
def test_vectors_by_matrices_of_few_rows_or_columns(few: int) -> None:
    rng = np.random.default_rng(few)
    for many in (1, 3, 16, 17, 63, 64, 130, 700):
        wide = few_bits(rng, (many, few + 3))
        imaginary = few_bits(rng, (many, few + 3))
        x, y = few_bits(rng, (1, many)), few_bits(rng, (few, 1))
        for matrix in (wide, wide + np.complex64(1j) * imaginary):
            by, kind = (product, np.float32) if matrix is wide else (complex_product, None)
            u, v = (x, y) if matrix is wide else (x - np.complex64(2j) * x, y + np.complex64(3j) * y)
            narrow = np.ascontiguousarray(matrix[:, :few])
            columns, rows = (by(u, narrow, kind), by(narrow, v, kind)) if kind else (by(u, narrow), by(narrow, v))
            np.testing.assert_array_equal(np.asarray(jnp.matmul(u, narrow)), columns)
            np.testing.assert_array_equal(np.asarray(jnp.matmul(narrow, v)), rows)
            if many in (17, 130):  # rows that do not follow each other
                np.testing.assert_array_equal(np.asarray(weft.jit(lambda u, m: u @ m[:, :few])(u, matrix)), columns)
                np.testing.assert_array_equal(np.asarray(weft.jit(lambda m, v: m[:, :few] @ v)(matrix, v)), rows)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32"])
@pytest.mark.parametrize("shape", [(129, 250), (250, 129), (600, 65), (300, 40), (1000, 33), (4100, 9), (257, 700)])
def test_columns_that_cross_cache_lines_have_the_bits_of_rows(shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(shape[1])
    many, columns = shape
    with weft.enable_x64(True):
        for offset in (0, 1, 5):
            parts = [rng.integers(-99, 99, many * columns + offset + many) / 7 for _ in range(2)]
            flat = (parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]).astype(dtype)
            matrix, x = flat[offset : offset + many * columns].reshape(shape), flat[-many:]
            turned = np.ascontiguousarray(matrix.T)
            for threads in (1, 2):
                with weft.threads(threads):
                    by_columns, by_rows = jnp.matmul(x, matrix), jnp.matmul(turned, x)
                np.testing.assert_array_equal(np.asarray(by_columns), np.asarray(by_rows))
            exact = x.astype(np.complex128 if dtype.startswith("complex") else np.float64) @ matrix
            scale = np.abs(x).astype(np.float64) @ np.abs(matrix).astype(np.float64)
            bound = 0 if dtype == "int32" else 20 * np.finfo(dtype).eps
            assert np.all(np.abs(np.asarray(by_columns) - exact) <= bound * scale + 1e-12 * scale)


@pytest.mark.parametrize("few", [1, 2, 3, 4, 6, 8, 20])
def test_zeros_that_negative_products_leave(few: int) -> None:
    tiny, long = np.full((40, few), -1e-30, np.float32), np.full((300, few), -1e-30, np.float32)
    for a, b in (
        (tiny, np.full((few, 1), 1e-30, np.float32)), (np.full((1, 40), 1e-30, np.float32), tiny),
        (np.full((1, 300), 1e-30, np.float32), long), (np.full((1, 300), 1e-30, np.float32), np.tile(long, 13)),
    ):  # fmt: skip
        out = np.asarray(jnp.matmul(a, b))
        np.testing.assert_array_equal(np.signbit(out), np.signbit(product(a, b, np.float32)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize("batch", [(1201,), (7, 190), (2, 3, 100)])
def test_large_batches_of_small_products(batch: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(9)
    with weft.enable_x64(True):
        for m, n, k in [(4, 4, 4), (8, 8, 8), (1, 8, 8), (8, 1, 8), (20, 33, 17), (40, 40, 30)]:
            if m * n > 1000 and batch != (1201,):
                continue
            a, b = (rng.integers(-9, 9, (*batch, *s)).astype(dtype) for s in ((m, k), (k, n)))
            wide = np.complex128 if dtype == "complex64" else np.float64
            for x, y in ((a, b), (a, b[0]), (a[0], b)):
                exact = np.matmul(x.astype(wide), y.astype(wide))
                for threads in (1, 2):
                    with weft.threads(threads):
                        np.testing.assert_array_equal(np.asarray(jnp.matmul(x, y)), exact.astype(dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint16", "int32", "bool", "int64"])
def test_batches_of_small_packed_products_are_those_of_large_ones(dtype: str) -> None:
    rng, kind = np.random.default_rng(10), dtypes.as_dtype(dtype)
    # the axes of an operand as it lies, outermost first: rows, columns or the batch lie innermost
    orders = [((0, 1, 2), (0, 1, 2)), ((0, 2, 1), (0, 1, 2)), ((0, 1, 2), (0, 2, 1)), ((1, 2, 0), (2, 1, 0))]
    with weft.enable_x64(True):
        for m, n, k in [(2, 3, 1), (4, 4, 4), (8, 8, 8), (7, 9, 5), (15, 33, 17), (29, 70, 40), (5, 17, 65)]:
            count = int(rng.integers(2, 40))
            a, b = (np.asarray(rng.standard_normal((count, *s)) * 50).astype(kind) for s in ((m, k), (k, n)))
            wide = np.zeros((k, 4200), kind)  # packed as large products are
            half = {"float16": "e", "bfloat16": "E"}.get(dtype, "f")
            ways = [runtime.how_added(half, "f", m, columns, k) for columns in (n, 4200)]
            expected = []
            for x, y in zip(a, b, strict=True):
                wide[:, :n] = y
                large = np.asarray(jnp.matmul(x, wide))[:, :n]
                if half != "f" and ways[0] == "chains":
                    with np.errstate(over="ignore"):
                        stated = exact_product(x, y).astype(kind)
                    assert ways[1] != "chains" or np.array_equal(large, stated)
                    large = stated  # the matrix unit multiplies large ones alone
                expected.append(large)
            for (order_a, order_b), threads in itertools.product(orders, (1, 2)):
                x, y = (
                    np.ascontiguousarray(v.transpose(order)).transpose(np.argsort(order))
                    for v, order in ((a, order_a), (b, order_b))
                )
                with weft.threads(threads):
                    multiply = weft.jit(
                        lambda v, w, p=order_a, q=order_b: jnp.matmul(
                            v.transpose(np.argsort(p)), w.transpose(np.argsort(q))
                        )
                    )
                    found = np.asarray(multiply(x.transpose(order_a), y.transpose(order_b)))
                np.testing.assert_array_equal(found.astype(np.float64), np.asarray(expected).astype(np.float64))


SCRIPT = """
import sys, numpy as np, weft, weft.numpy as jnp
weft.config.update("enable_x64", True)
rng = np.random.default_rng(7)
few = [shape for n in (1, 2, 3, 4, 5, 8, 12, 17) for shape in ((1, n, 150), (1, n, 307), (150, 1, n), (35, n, n))]
some = [*few, (29, 640, 513), (15, 1037, 300), (40, 6, 1024)]
for m, n, k in [(29, 65, 700), (1, 50, 900), (70, 1, 9000), (130, 200, 300), (1, 700, 1500), (1, 250, 300), *some]:
    for dtype in ("float32", "float64", "int32", "int64", "float16", "complex64", "complex128"):
        parts = ((rng.standard_normal(s) * 9, rng.standard_normal(s)) for s in ((m, k), (k, n)))
        a, b = ((x + 1j * y if dtype.startswith("complex") else x).astype(dtype) for x, y in parts)
        sys.stdout.buffer.write(np.asarray(jnp.matmul(a, b)).tobytes())
for rows, columns in ((2100, 49), (2600, 17)):  # blocks of terms; rows by the same rows
    a, b = jnp.array(rng.standard_normal((rows, columns))), jnp.array(rng.standard_normal((rows, 40)))
    for out in (a.T @ a, a.T @ b, b.T @ a):
        sys.stdout.buffer.write(np.asarray(out).tobytes())
"""


def test_every_vector_width_has_the_same_bits() -> None:
    results = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            check=True,
            env={**os.environ, "WEFT_TARGET": name, "WEFT_MATRIX_UNIT": "0"},  # the unit has a rule of its own
        ).stdout
        for name in ("x86-64-v3", weft._base.target.host().name)
        if weft._base.target.host().name.startswith("x86")
    ]
    assert len(set(results)) <= 1


def in_pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Blocks of twice the length, in which the odd index of each pair is added first."""
    (m, k), n = a.shape, b.shape[1]
    total = np.zeros((m, n), np.float32)
    for start in range(0, k, 2 * BLOCK):
        stop = min(k, start + 2 * BLOCK)
        block = np.zeros((m, n), np.float32)
        for i in [i for even in range(start, stop, 2) for i in (even + 1, even) if i < stop]:
            block = (a[:, i, None] * b[None, i] + block.astype(np.float64)).astype(np.float32)
        total = block if start == 0 else total + block
    return total


def test_bfloat16_products() -> None:
    rng = np.random.default_rng(9)
    for m, n, k in [
        (5, 3, 1),
        (14, 32, 2),
        (17, 33, 51),
        (1, 40, 77),
        (300, 40, 30),
        (20, 700, 515),
        (90, 3, 1030),
        (37, 1, 600),
    ]:
        a, b = (rng.standard_normal(s).astype(dtypes.bfloat16) for s in ((m, k), (k, n)))
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        expected = {
            "tiles": lambda a, b: in_tiles(a, b),
            "pairs": lambda a, b: in_pairs(a.astype(np.float64), b.astype(np.float64)),
            "chains": lambda a, b: product(a, b, np.float32),
        }[runtime.how_added("E", "f", m, n, k)](a, b)
        for left, right, threads in itertools.product(("rows", "columns"), ("rows", "columns"), (1, 2)):
            x, y = (v if how == "rows" else v.T.copy() for v, how in ((a, left), (b, right)))
            numbers = (((1 if left == "rows" else 0,), (0 if right == "rows" else 1,)), ((), ()))
            with weft.threads(threads):
                out = np.asarray(lax.dot_general(x, y, numbers, preferred_element_type=np.float32))
            np.testing.assert_allclose(out, wide_a @ wide_b, atol=1e-4 * np.sqrt(k))
            np.testing.assert_array_equal(out, expected)


CHOICE = """
import weft, weft.numpy as jnp
from weft import runtime
import tests.compiler.matrix_products.test_matrix_products as products
products.test_bfloat16_products()
a = jnp.ones((64, 64), jnp.bfloat16)
plan = weft.jit(lambda a, b: a @ b).lower(a, a).as_text("plan")
print(runtime.bfloat16_products(), f"added in {runtime.bfloat16_products()}" in plan)
"""
ASKED_FOR = {"tiles": "AMX_BF16", "pairs": "AVX512_BF16"}


def _with_choice(choice: str, program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "WEFT_BFLOAT16_PRODUCTS": choice}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)


def _has(instructions: str) -> bool:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        return instructions in lines.read() and weft._base.target.host().name == "x86-64-v4"


@pytest.mark.parametrize("choice", ["tiles", "pairs", "float32"])
def test_how_the_terms_of_bfloat16_products_are_added_can_be_chosen(choice: str) -> None:
    done = _with_choice(choice, CHOICE)
    if choice == "float32" or _has(ASKED_FOR[choice].lower()):
        assert done.stdout.split() == [choice, "True"], done.stderr
    else:
        expected = f"ValueError: WEFT_BFLOAT16_PRODUCTS={choice} asks for instructions ({ASKED_FOR[choice]})"
        assert expected in done.stderr


def test_the_processor_alone_chooses_how_the_terms_of_bfloat16_products_are_added() -> None:
    program = "from weft import runtime; print(runtime.bfloat16_products())"
    expected = "tiles" if _has("amx_bf16") else "pairs" if _has("avx512_bf16") and _has("AuthenticAMD") else "float32"
    assert {_with_choice("", program).stdout.strip() for _ in range(3)} == {expected}
    wrong = _with_choice("fast", program)
    assert "ValueError: WEFT_BFLOAT16_PRODUCTS is tiles, pairs or float32, got 'fast'" in wrong.stderr


def test_products_of_columns_that_later_steps_read_as_vectors() -> None:
    """Squeezes before and after a product are no reorderings of its operands' axes."""

    def orthonormal(a: Any) -> Any:
        columns: list[Any] = []
        for j in range(a.shape[1]):
            column = a[:, j]
            for earlier in columns:
                column = column - (earlier @ a[:, j]) * earlier
            columns.append(column / jnp.linalg.norm(column))
        return jnp.stack(columns, 1)

    a = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    q, r = np.linalg.qr(a)
    assert np.allclose(weft.jit(orthonormal)(a), q * np.sign(np.diagonal(r)), atol=1e-5)
    assert np.allclose(weft.jit(lambda a, b: jnp.stack([b @ a[:, 1], 2 * a[:, 1]])[0])(a, a @ a.T), a @ a.T @ a[:, 1])
