"""Reductions, running reductions, contractions, pads and dynamic slices on shapes that cross every block border."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
from tests.compiler import ladder
from tests.operations import oracle, samples
from tests.operations.test_compiled import array, bits
from weft import config
from weft.core import primitive

SHAPES = [(0,), (1,), (17,), (8193,), (3, 257), (257, 3), (5, 1, 33), (2, 300, 35), (600, 40)]
REDUCTIONS = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"]
DTYPES = [np.dtype(bool), np.dtype(np.int8), np.dtype(np.uint32), *samples.FLOAT, samples.C64]


def operand(shape: tuple[int, ...], dtype: np.dtype, low: float = -2, high: float = 2) -> np.ndarray:
    """Random values; complex ones are turned, so that their modulus stays in the range."""
    rng = np.random.default_rng([*shape, dtype.itemsize])
    if dtype.kind == "c":
        size, angle = rng.uniform(low, high, shape), rng.uniform(0, 6, shape)
        return (size * np.exp(1j * angle)).astype(dtype)
    return samples.random_values(rng, dtype, low, high, math.prod(shape)).reshape(shape)


def accepts(name: str, dtype: np.dtype) -> bool:
    if name in ("reduce_and", "reduce_or", "reduce_xor"):
        return dtype.kind in "biu"
    return dtype.kind != "b" or name in ("reduce_max", "reduce_min")


def error_bound(dtype: np.dtype, count: int) -> float:
    """Of a sum or product of ``count`` terms, relative to the sum of magnitudes."""
    wide = {2: 2.0**-8 if dtype == samples.BF16 else 2.0**-11, 4: 2.0**-24, 8: 2.0**-53}
    itemsize = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return wide[itemsize] + 2.0 ** (-53 if itemsize == 8 else -24) * (math.log2(count + 2) + count / 32 + 300)


def check_close(name: str, x: np.ndarray, found: np.ndarray, expected: np.ndarray, axes: tuple[int, ...]) -> None:
    if x.dtype.kind in "biu" or name in ("reduce_max", "reduce_min"):
        assert np.array_equal(found, expected, equal_nan=x.dtype.kind == "f")
        return
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    exact = (np.prod if name == "reduce_prod" else np.sum)(x.astype(wide), axis=axes)
    scale = np.sum(np.abs(x.astype(wide)), axis=axes) if name == "reduce_sum" else np.abs(exact)
    count = math.prod(x.shape[axis] for axis in axes)
    limit = error_bound(x.dtype, count) * scale + float(np.finfo(np.float32).smallest_normal)
    assert np.all(np.abs(found.astype(wide) - exact) <= limit)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions(name: str, shape: tuple[int, ...]) -> None:
    reduce = getattr(lax, name)
    narrow = 0.02 if name == "reduce_prod" else 2.0
    for dtype in DTYPES:
        if not accepts(name, dtype):
            continue
        low, high = (1 - narrow, 1 + narrow) if name == "reduce_prod" else (-2, 2)
        x = operand(shape, dtype, low, high)
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                with config.context("enable_x64", True):
                    expected = primitive.registry[name].kind.reference(x, axes=axes)
                    found = reduce(array(x), axes)
                    jitted = weft.jit(lambda a, axes=axes: reduce(a, axes))(array(x))
                assert bits(found) == bits(jitted)
                assert np.asarray(found).dtype == dtype
                check_close(name, x, np.asarray(found), expected, axes)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if 0 not in s], ids=str)
def test_positions(name: str, shape: tuple[int, ...]) -> None:
    for dtype in DTYPES:
        x = operand(shape, dtype)
        if dtype.kind == "f":
            x = np.round(x * 4) / 4  # many ties
            x.reshape(-1)[:: max(x.size // 3, 2)] = np.nan
        for axis in range(len(shape)):
            with config.context("enable_x64", True):
                expected = primitive.registry[name].kind.reference(x, axes=(axis,), index_dtype=np.dtype(np.int32))
                found = np.asarray(getattr(lax, name)(array(x), axis, np.int32))
            assert np.array_equal(found, expected), (dtype, axis)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_reductions(name: str) -> None:
    for dtype in [np.dtype(np.int8), np.dtype(np.uint32), *samples.FLOAT, samples.C64]:
        if dtype.kind in "iu" and name == "cumlogsumexp":
            continue
        for shape in [(1,), (17,), (3, 257), (5, 1, 33), (0, 3)]:
            x = operand(shape, dtype, 0.5, 1.5) if name == "cumprod" else operand(shape, dtype)
            for axis, reverse in itertools.product(range(len(shape)), (False, True)):
                with config.context("enable_x64", True):
                    closed = ladder.traced(lambda x, axis=axis, back=reverse: [getattr(lax, name)(x, axis, back)], [x])
                    (expected,) = ladder.by_reference(closed, [x])
                    found = np.asarray(getattr(lax, name)(array(x), axis, reverse))
                if name == "cumlogsumexp" or dtype.kind == "c":
                    np.testing.assert_allclose(
                        found.astype(np.complex128),
                        expected.astype(np.complex128),
                        rtol=2e-2 if dtype.itemsize == 2 else 1e-4,
                    )
                else:
                    assert np.max(oracle.ulps_between(found, expected), initial=0) == 0, (dtype, shape, axis)


def random_contraction(rng: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Shapes and dimension numbers with 0 to 2 batch, contracting and free dimensions in random order."""
    groups = {
        name: [int(rng.integers(0 if rng.random() < 0.05 else 1, 9)) for _ in range(rng.integers(0, 3))]
        for name in "bcmn"
    }
    sides = []
    for free in "mn":
        labels = [(name, i) for name in ("b", "c", free) for i in range(len(groups[name]))]
        sides.append([labels[i] for i in rng.permutation(len(labels))])
    shapes = [tuple(groups[name][i] for name, i in side) for side in sides]
    numbers = tuple(
        tuple(tuple(side.index((name, i)) for i in range(len(groups[name]))) for side in sides) for name in "cb"
    )
    return shapes[0], shapes[1], numbers


@pytest.mark.parametrize("seed", range(40))
def test_contractions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right, numbers = random_contraction(rng)
    pool = [np.dtype(bool), np.dtype(np.int8), np.dtype(np.int32), *samples.FLOAT, *samples.COMPLEX]
    for _ in range(4):
        dtypes = [pool[rng.integers(len(pool))] for _ in range(2)]
        dtypes = [dtypes[0], dtypes[0]] if rng.random() < 0.6 else dtypes
        x, y = operand(left, dtypes[0]), operand(right, dtypes[1])
        with config.context("enable_x64", True):
            found = np.asarray(lax.dot_general(array(x), array(y), numbers))
            expected = primitive.registry["dot_general"].kind.reference(
                x, y, dimension_numbers=numbers, precision=None, preferred_element_type=None
            )
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if found.dtype.kind in "biu":
            assert np.array_equal(found, expected), dtypes
        else:
            narrow = {2: 3e-2, 4: 1e-5, 8: 1e-5 if found.dtype.kind == "c" else 1e-12, 16: 1e-12}[found.dtype.itemsize]
            np.testing.assert_allclose(
                found.astype(np.complex128), expected.astype(np.complex128), rtol=narrow, atol=narrow * 30
            )


@pytest.mark.parametrize("seed", range(60))
def test_views_and_assemblies(seed: int) -> None:
    """Random chains of views, pads, concatenations and dynamic slices, eager and jitted, against NumPy."""
    rng = np.random.default_rng(seed)
    x = operand(tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4))), samples.F32)
    steps = [int(k) for k in rng.integers(0, 2**31, 6)]

    def program(lax: Any, a: Any) -> Any:
        for step in steps:
            a = random_view(lax, a, np.random.default_rng(step))
        return a

    expected = oracle.reference_values(program, (x,))[0]
    eager = program(lax, array(x))
    jitted = weft.jit(lambda a: program(lax, a))(array(x))
    assert np.array_equal(np.asarray(eager), expected)
    assert np.array_equal(np.asarray(jitted), expected)


def random_view(lax: Any, a: Any, rng: Any) -> Any:
    shape, rank = a.shape, len(a.shape)
    choice = int(rng.integers(0, 11))
    axis = int(rng.integers(0, rank)) if rank else 0
    if choice == 0:
        return lax.transpose(a, tuple(int(p) for p in rng.permutation(rank)))
    if choice == 1:
        return lax.rev(a, tuple(d for d in range(rank) if rng.random() < 0.5))
    if choice == 2:
        config = [(int(rng.integers(-2, 3)), int(rng.integers(-2, 3)), int(rng.integers(0, 3))) for _ in shape]
        fits = [lo + hi + max(n + (n - 1) * i, 0) >= 0 for n, (lo, hi, i) in zip(shape, config, strict=True)]
        config = [c if ok else (1, 1, 0) for c, ok in zip(config, fits, strict=True)]
        return lax.pad(a, 7.0, config)
    if choice == 3 and rank:
        return lax.concatenate([a, a, lax.neg(a)], axis)
    if choice == 4:
        starts = [int(rng.integers(0, n + 1)) for n in shape]
        limits = [int(rng.integers(s, n + 1)) for s, n in zip(starts, shape, strict=True)]
        return lax.slice(a, starts, limits, [int(rng.integers(1, 4)) for _ in shape])
    if choice == 5:
        sizes = [int(rng.integers(0, n + 1)) for n in shape]
        return lax.dynamic_slice(a, [int(rng.integers(-9, 9)) for _ in shape], sizes)
    if choice == 6:
        sizes = [int(rng.integers(0, n + 1)) for n in shape]
        update = lax.full(sizes, 3.0)
        return lax.dynamic_update_slice(a, update, [int(rng.integers(-9, 9)) for _ in shape])
    if choice == 7 and rank < 4:
        return lax.broadcast_in_dim(a, (*shape[:axis], 2, *shape[axis:]), [d + (d >= axis) for d in range(rank)])
    if choice == 8:
        return lax.reshape(a, (math.prod(shape),))
    if choice == 9 and rank:
        cut = int(rng.integers(0, shape[axis] + 1))
        return lax.split(a, (cut, shape[axis] - cut), axis)[int(rng.integers(0, 2))]
    if choice == 10:
        return lax.tile(a, [int(rng.integers(1, 3)) for _ in shape])
    return lax.mul(a, 2.0)


def test_broadcast_to_dimensions_in_any_order() -> None:
    """Operand axis i becomes axis dims[i] of the result, also where that transposes the operand."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = np.arange(24, dtype=np.float32).reshape(3, 4, 2)

    def spread(x: Any, shape: Any, dims: Any) -> Any:
        return lax.broadcast_in_dim(x, shape, dims)

    expected = np.broadcast_to(x.T[:, None, :], (3, 4, 2))
    for run in (spread, weft.jit(spread, static_argnums=(1, 2))):
        assert np.array_equal(run(x, (3, 4, 2), (2, 0)), expected)
        assert np.array_equal(run(x[:, :2], (2, 2), (1, 0)), x[:, :2].T)
        assert np.array_equal(run(x[:, :1], (4, 2), (1, 0)), np.broadcast_to(x[:, :1].T, (4, 2)))
    slope = weft.grad(lambda x: (spread(x, (3, 4, 2), (2, 0)) * weights).sum())(x)
    assert np.array_equal(slope, weights.sum(1).T)
    mapped = weft.vmap(lambda x: spread(x, (3, 2), (1, 0)))(np.stack([x, -x]))
    assert np.array_equal(mapped, np.stack([x.T, -x.T]))
    with pytest.raises(TypeError, match="must not contain duplicates"):
        spread(x, (3, 3), (1, 1))
