"""Wide products, whose next columns are packed during the tiles of these; products of rows that evict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import dtypes, lax

# (m, k, n): tails of rows, of blocks of 512 terms and of columns; b is too large to be read as it lies
WIDE = [
    (15, 300, 1037), (15, 1100, 300), (29, 512, 640), (29, 784, 1037), (128, 513, 640), (128, 300, 1037),
    (200, 784, 300), (200, 1100, 301), (256, 513, 417),
]  # fmt: skip


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind == "i":
        return rng.integers(-1000, 1001, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def check(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Against NumPy's product in twice the precision (float64: the same), where whole numbers are exact."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    exact = a.astype(wide) @ b.astype(wide)
    eps = 0.0 if a.dtype.kind == "i" else float(dtypes.finfo(out.dtype).eps)
    np.testing.assert_allclose(out.astype(wide), exact, rtol=eps, atol=4 * min(eps, 2.0**-23) * a.shape[1])


def on_threads(function: Callable[..., Any], *args: Any) -> np.ndarray:
    """The result on one thread; two and four have the same bits."""
    results = []
    for threads in (1, 2, 4):
        with weft.threads(threads):
            results.append(np.asarray(function(*args)))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
    return results[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "bfloat16"])
@pytest.mark.parametrize("shape", WIDE)
def test_wide_products(shape: tuple[int, int, int], dtype: str) -> None:
    (m, k, n), kind = shape, np.dtype(dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    rng = np.random.default_rng(m * n + k)
    with weft.enable_x64(True):
        a, b, bias = values(rng, (m, k), kind), values(rng, (k, n), kind), values(rng, (n,), kind)
        out = on_threads(jnp.matmul, jnp.asarray(a), jnp.asarray(b))
        check(out, a, b)

        columns = [jnp.asarray(np.ascontiguousarray(x.T)) for x in (a, b)]
        for x, y in ((columns[0], b), (a, columns[1]), (columns[0], columns[1])):
            axes = ((0 if x is columns[0] else 1,), (1 if y is columns[1] else 0,))
            np.testing.assert_array_equal(np.asarray(lax.dot_general(x, y, (axes, ((), ())))), out)
        np.testing.assert_array_equal(np.asarray(jnp.matmul(np.asfortranarray(a), np.asfortranarray(b))), out)

        def layer(a: Any, b: Any, bias: Any) -> Any:
            sums = a[:, 2:] @ b[2:, 5:] + bias[5:]
            return sums if kind.kind == "c" else jnp.maximum(sums, 0)

        padded = np.pad(a, ((0, 0), (2, 0))), np.pad(b, ((2, 0), (5, 0))), np.pad(bias, (5, 0))
        done = on_threads(weft.jit(layer), *map(jnp.asarray, padded))
        sums = out + bias
        np.testing.assert_array_equal(done, sums if kind.kind == "c" else np.maximum(sums, 0))


def test_a_batch_of_wide_products() -> None:
    rng = np.random.default_rng(5)
    for count in (3, 9):
        a, b = (rng.standard_normal((count, *s)).astype(np.float32) for s in ((29, 513), (513, 417)))
        out = on_threads(jnp.matmul, jnp.asarray(a), jnp.asarray(b))
        for i in range(count):
            np.testing.assert_array_equal(out[i], np.asarray(jnp.matmul(jnp.asarray(a[i]), jnp.asarray(b[i]))))
            check(out[i], a[i], b[i])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(
    "shape",
    [(5, 1024, 6), (14, 512, 10), (14, 1024, 40), (29, 512, 40), (29, 1024, 6), (100, 1024, 10), (300, 1024, 40),
     (14, 65536, 10), (40, 8192, 6), (13, 16384, 3)],
)  # fmt: skip
def test_rows_a_multiple_of_two_kilobytes_apart(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m * n + k)
    with weft.enable_x64(True):
        a, b = (values(rng, s, np.dtype(dtype)) for s in ((m, k), (k, n)))
        out = on_threads(jnp.matmul, jnp.asarray(a), jnp.asarray(b))
        check(out, a, b)
        padded = np.pad(a, ((0, 0), (0, 16 * 3)))  # whose rows are not
        other = on_threads(weft.jit(lambda x, y: x[:, :k] @ y), jnp.asarray(padded), jnp.asarray(b))
        np.testing.assert_array_equal(other, out)
