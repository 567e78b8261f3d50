"""Sorts on the PTX machine: every order, dtype and length gives the bits of the CPU, in launches alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build, ptxas
from tests.gpu.beside_the_cpu import exactly, launches
from weft import lax
from weft._base import target
from weft.codegen import llvm
from weft.codegen.gpu import kernel
from weft.loops.gpu import grid_sorts

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
TILE, TINY = grid_sorts.TILE, grid_sorts.TINY


def floats(*shape: int) -> np.ndarray:
    """Many equal ones, both zeros and NaNs of both signs, infinities."""
    x = np.round(RNG.standard_normal(shape) * 3, 1).astype(np.float32)
    specials = np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf], np.float32)
    return np.where(RNG.random(shape) < 0.3, RNG.choice(specials, shape), x)


def of_dtype(dtype: Any, n: int) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        x = RNG.integers(limits.min, limits.max, n, kind, endpoint=True)
        x[: n // 3] = RNG.choice(np.array([limits.min, limits.max, 0, 1], kind), n // 3)
        return x
    if kind.kind == "c":
        return floats(2 * n).view(kind)
    return floats(n).astype(kind)


check = partial(launches, equal=exactly)  # elements are moved, NaN too


def orders(x: Any) -> Any:
    return jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True), lax.top_k(x, min(x.size, 7))


@pytest.mark.parametrize("n", [1, 2, 31, TINY, TINY + 1, 1000, TILE, TILE + 1, 2 * TILE + 100])
def test_lengths(device: Any, n: int) -> None:
    plan = check(device, orders, floats(n))
    assert ("ranks" if n <= TINY else "row_sort" if n <= TILE else "move") in plan


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("n", [100, 700, TILE + 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(device: Any, dtype: str, n: int) -> None:
    with weft.enable_x64(True):
        check(device, lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 3)), of_dtype(jnp.dtype(dtype), n))


@pytest.mark.parametrize("n", [60, 300, TILE + 1])
def test_complex_numbers_are_ordered_by_two_words(device: Any, n: int) -> None:
    x = of_dtype(np.complex64, n)
    check(device, lambda x: (jnp.sort(x), jnp.argsort(x)), x)


@pytest.mark.parametrize("n", [200, 3000, TILE + 77])
def test_several_keys(device: Any, n: int) -> None:
    a, b, c = RNG.integers(-2, 2, n).astype(np.int8), floats(n), RNG.integers(0, 3, n).astype(np.uint16)
    check(device, lambda *x: lax.sort(x, num_keys=3), a, b, c, np.arange(n), np.arange(n) * 1j)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 40, 7), (40, 3, 300), (300, 2, 3), (2, TILE + 3, 2), (3, 2, TILE + 3)])
def test_axes(device: Any, shape: tuple[int, ...], axis: int) -> None:
    check(device, lambda x: (jnp.sort(x, axis), jnp.argsort(x, axis)), floats(*shape))


@pytest.mark.parametrize("n", [50, 2000, TILE + 900])
@pytest.mark.parametrize("value", [0.0, np.nan, -np.inf])
def test_equal_keys_keep_their_order(device: Any, value: float, n: int) -> None:
    x = np.full(n, value, np.float32)
    check(device, lambda x: (jnp.argsort(x), jnp.argsort(x, descending=True), lax.top_k(x, 5)[1]), x)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_nothing_to_sort(device: Any, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    with weft.default_device(device):
        assert weft.jit(jnp.sort)(x).shape == shape and weft.jit(jnp.argsort)(x).shape == shape
        assert [y.shape for y in weft.jit(lambda x: lax.top_k(x, 0))(floats(5))] == [(0,), (0,)]


def test_a_new_size_compiles_nothing(device: Any) -> None:
    with weft.default_device(device):
        for n in (40, 500, TILE + 10, TILE * 2 + 3):
            before = weft.compiler.pipeline.stats()["kernels_built"]
            x = floats(3, n)
            found = weft.jit(lambda x: jnp.argsort(x, 1))(x)
            assert n == 40 or weft.compiler.pipeline.stats()["kernels_built"] == before
            assert np.array_equal(np.asarray(found), np.argsort(x, 1, kind="stable"))


def test_what_follows_from_sorts(device: Any) -> None:
    x = RNG.integers(0, 50, 1000).astype(np.int32)
    check(device, lambda x: jnp.unique(x, size=40, return_index=True, return_inverse=True, return_counts=True), x)
    check(device, lambda x: (jnp.median(x), jnp.percentile(x, 30)), RNG.standard_normal(500).astype(np.float32))
    check(device, lambda a, b: jnp.searchsorted(a, b, method="sort"), np.sort(x), x[:300])


@pytest.mark.parametrize("way", ["values", "positions", "both", "several"])
def test_kernels_assemble_without_spills(way: str) -> None:
    ptxas.needed()
    key = ("f", 4, 4, 0x7F800000)
    sorting = {
        "values": grid_sorts.Sorting((key,), (4,), 0, False, True, 0),
        "positions": grid_sorts.Sorting((key,), (), 4, False, True),
        "both": grid_sorts.Sorting((key,), (4, 8), 0, False, True, 0, 1),
        "several": grid_sorts.Sorting((key, key), (4, 8), 4, False, False),
    }[way]
    gpu = target.gpu(90)
    assert gpu is not None
    report = ptxas.assemble(llvm.emit_assembly(kernel.text_of(sorting, gpu), gpu), "sm_90")
    assert set(report) == set(grid_sorts.entries(sorting))
    assert all(one.spill_stores == 0 and one.registers <= 128 for one in report.values())
