"""Matrices by vectors that the second cache nearly holds: every other run reads them from their other end."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
import weft.numpy as jnp


def second_cache() -> int:
    """Its bytes as the C library tells them, which Python's sysconf does not know."""
    try:
        told = subprocess.run(["getconf", "LEVEL2_CACHE_SIZE"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        told = ""
    return int(told) if told.strip().isdigit() and int(told) else 1 << 20


SECOND_CACHE = second_cache()
RUNS = 5
PIECES = 8  # each far smaller than the cache: read in one way only


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "int32":
        return rng.integers(-(2**31), 2**31, shape).astype(np.int32)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def shape_of(kind: str, share: float, dtype: str) -> tuple[int, int]:
    """A matrix of about this share of the second cache, whose sizes no vector and no task divides."""
    items = share * SECOND_CACHE / np.dtype(dtype).itemsize
    if kind == "square":
        return int(items**0.5) | 1, int(items**0.5 + 3) | 1
    if kind == "lines":  # rows of whole cache lines
        return int(items**0.5) | 1, int(items**0.5) // 64 * 64
    few = {"flat": 5, "few": 100, "broad": 137, "tall": 517}[kind]
    many = int(items / few) | 1
    return (many, few) if kind == "tall" else (few, many)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32"])
@pytest.mark.parametrize("share", [0.7, 0.9, 1.4, 2.2])
@pytest.mark.parametrize("kind", ["square", "lines", "flat", "few", "broad", "tall"])
def test_every_run_has_the_bits_of_small_pieces(kind: str, share: float, dtype: str, threads: int) -> None:
    rows, columns = shape_of(kind, threads * share, dtype)
    rng = np.random.default_rng(rows)
    with weft.enable_x64(True), weft.threads(threads):
        matrix, left, right = (numbers(rng, s, dtype) for s in ((rows, columns), (rows,), (columns,)))
        by_vector, by_matrix = weft.jit(lambda m, x: m @ x), weft.jit(lambda x, m: x @ m)
        whole, x, y = jnp.array(matrix), jnp.array(right), jnp.array(left)
        by_rows = [np.asarray(jnp.array(piece) @ x) for piece in np.array_split(matrix, PIECES)]
        by_columns = [np.asarray(y @ jnp.array(piece)) for piece in np.array_split(matrix, PIECES, axis=1)]
        for _ in range(RUNS):
            np.testing.assert_array_equal(np.asarray(by_vector(whole, x)), np.concatenate(by_rows))
            np.testing.assert_array_equal(np.asarray(by_matrix(y, whole)), np.concatenate(by_columns))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("kind", ["square", "flat", "few", "broad", "tall"])
def test_every_run_keeps_the_same_one_of_several_nans(kind: str, dtype: str) -> None:
    """Which of two NaN an addition keeps is up to the compiler, but the payload is that of every other run."""
    rows, columns = shape_of(kind, 0.9, dtype)
    rng = np.random.default_rng(rows)
    with weft.enable_x64(True), weft.threads(1):
        matrix, left, right = (numbers(rng, s, dtype) for s in ((rows, columns), (rows,), (columns,)))
        parts = matrix.view(f"u{matrix.real.dtype.itemsize}")  # of complex numbers real and imaginary ones
        quiet = np.array(np.nan, matrix.real.dtype).view(parts.dtype)
        marked = np.argwhere(rng.random(matrix.shape) < 4 / min(rows, columns))
        parts[marked[:, 0], marked[:, 1] * (parts.shape[1] // columns)] = quiet + np.arange(1, len(marked) + 1)
        by_vector, by_matrix = weft.jit(lambda m, x: m @ x), weft.jit(lambda x, m: x @ m)
        whole, x, y = jnp.array(matrix), jnp.array(right), jnp.array(left)
        for multiply, operands in ((by_vector, (whole, x)), (by_matrix, (y, whole))):
            found = [np.array(multiply(*operands)) for _ in range(RUNS)]
            assert np.isnan(found[0]).any()
            assert len({result.tobytes() for result in found}) == 1


def test_runs_of_several_threads_at_once() -> None:
    n = int((1.2 * SECOND_CACHE / 4) ** 0.5)
    rng = np.random.default_rng(3)
    matrix, vector = (jnp.array(numbers(rng, s, "float32")) for s in ((n, n), (n,)))
    multiply = weft.jit(lambda m, x: (m @ x, x @ m))
    expected = [np.asarray(part) for part in multiply(matrix, vector)]

    def run(_: int) -> None:
        for part, same in zip(multiply(matrix, vector), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(part), same)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(200)))
