"""Sorts of short rows, which the executor does itself: the order of the arrays' own functions, without Python."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax, runtime
from weft import numpy as wnp

DTYPES = [np.dtype(t) for t in [*np.typecodes["AllInteger"][:8], *"?efdFD", ml_dtypes.bfloat16]]
SHAPES = [(1,), (2,), (30,), (63,), (64,), (1500,), (5, 9), (3, 4, 100), (70, 1024), (9, 3001)]


def sample(dtype: np.dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    r = np.random.default_rng(seed)
    if dtype.kind in "biu":
        return np.where(r.random(shape) < 0.5, r.integers(0, 5, shape), r.integers(0, 1 << 62, shape)).astype(dtype)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return (sample(part, shape, 1) + 1j * np.nan_to_num(sample(part, shape, 2))).astype(dtype)
    x = np.round(r.standard_normal(shape) * 4) / 4
    special = r.choice([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf], shape)
    return np.where(r.random(shape) < 0.3, special, x).astype(dtype)


def bits(x: Any) -> bytes:
    return np.asarray(x).tobytes()


def stable_order(keys: list[np.ndarray]) -> np.ndarray:
    """Positions by NumPy's lexsort of real keys; -0.0 is 0.0, NaN last."""
    parts = [part for x in keys for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]
    wide = [x if x.dtype.kind in "biu" else x.astype(np.float64) + 0.0 for x in parts]
    return np.lexsort(wide[::-1], axis=-1)


def plan_of(function: Any, *args: Any) -> list[str]:
    lines = weft.jit(function).lower(*args).compile().as_text("plan").splitlines()
    return [line.split()[0] for line in lines if line.startswith("  ")]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_short_rows_are_in_stable_order_bit_for_bit(dtype: np.dtype) -> None:
    with weft.enable_x64(True):
        for shape in SHAPES:
            x = sample(dtype, shape)
            order = stable_order([x])
            assert bits(lax.sort(x)) == bits(np.take_along_axis(x, order, -1)), shape
            np.testing.assert_array_equal(wnp.argsort(x), order, str(shape))
            np.testing.assert_array_equal(wnp.argsort(x.T, axis=0), order.T, str(shape))


@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("dtype", ["i1", "i2", "f2", "f4", "u8"])
def test_rows_as_long_as_positions_of_16_bits_and_one_longer(dtype: str, rows: int) -> None:
    with weft.enable_x64(True):
        for n in (1 << 16, (1 << 16) + 1):
            x = sample(np.dtype(dtype), (rows, n))
            order = np.argsort(x, kind="stable")  # NaN and both zeros in their order
            for found in (wnp.argsort(x), wnp.argsort(x.T, axis=0).T):
                np.testing.assert_array_equal(found, order)


def test_rows_of_equal_keys_of_64_bits_keep_their_order() -> None:
    x = np.array([0, 1 << 40, -(1 << 40)])[np.arange(8 * 3000).reshape(8, 3000) % 7 % 3]
    x[5] = 1 << 50
    with weft.enable_x64(True):
        np.testing.assert_array_equal(wnp.argsort(x), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "i2", "f4"])
def test_positions_are_written_and_not_read(dtype: str) -> None:
    """A count along the sorted axis, however it is made, is no operand; any type of position comes out."""
    x = sample(np.dtype("i1"), (4, 30, 6))
    with weft.enable_x64(True):
        order = np.argsort(x, axis=1, kind="stable").astype(dtype)

        def views(x: Any) -> Any:
            column = lax.transpose(lax.broadcasted_iota(np.dtype(dtype), (30, 6), 0), (1, 0))
            counts = lax.broadcast_in_dim(lax.transpose(column, (1, 0)), x.shape, (1, 2))
            return lax.sort((x, counts), dimension=1)[1]

        def others(x: Any) -> Any:  # along other axes, from the end: they are moved
            counts = lax.broadcasted_iota(np.dtype(dtype), x.shape, 2), lax.rev(views_of(x), (1,))
            return lax.sort((x, *counts), dimension=1)[1:]

        def views_of(x: Any) -> Any:
            return lax.broadcasted_iota(np.dtype(dtype), x.shape, 1)

        found = weft.jit(views)(x)
        assert bits(found) == bits(order) and found.dtype == dtype
        beside, reverse = weft.jit(others)(x)
        assert bits(beside) == bits(np.broadcast_to(np.arange(6, dtype=dtype), x.shape))
        assert bits(reverse) == bits((29 - order).astype(dtype))
        if np.dtype(dtype).itemsize >= 4 and dtype != "f4":
            assert "iota" not in weft.jit(views).lower(x).compile().as_text("plan")


def test_what_nobody_reads_is_not_sorted() -> None:
    x, y = sample(np.dtype("f4"), (6, 20)), sample(np.dtype("i4"), (6, 20))

    def values(x: Any, y: Any) -> Any:
        return lax.sort((x, y, y + 1), num_keys=1)[1]

    assert "kernel" not in plan_of(values, x, y)
    assert bits(weft.jit(values)(x, y)) == bits(np.take_along_axis(y, stable_order([x]), -1))


def test_many_rows_are_shared_out_whole_without_python() -> None:
    with weft.enable_x64(True):
        for dtype in ["i1", "f2", "i4", "f8"]:
            names = plan_of(wnp.argsort, np.ones((8, 5000), dtype))
            assert "callback" not in names and "sort" in names
            by_python = "callback" in plan_of(wnp.argsort, np.ones((3, 5000), dtype))
            assert by_python == (dtype in ("i1", "f8"))  # other keys fit into a word with their position


@pytest.mark.parametrize("shape, axis", [((100_000,), 0), ((1, 40_000), 1), ((3, 70_000), 1), ((70_000, 3), 0)])
@pytest.mark.parametrize("dtype", ["f4", "i4", "u4", "f2", "u2"])
def test_a_few_long_rows_are_sorted_on_all_threads(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    """Each row by all threads: the same order, of equal keys too, and the same bits as by one."""
    x = sample(np.dtype(dtype), shape)
    indices = np.arange(x.size, dtype=np.int32).reshape(shape)
    order = stable_order([x.swapaxes(axis, -1)]).swapaxes(axis, -1)
    before = runtime.Pool.get_threads()
    for threads in (1, 2, 4):
        weft.config.update("num_threads", threads)
        try:
            keys, moved = lax.sort_key_val(x, indices, axis)
            assert bits(wnp.argsort(x, axis=axis)) == bits(order.astype(np.int32))
        finally:
            weft.config.update("num_threads", before)
        assert bits(keys) == bits(np.take_along_axis(x, order, axis))
        assert bits(moved) == bits(np.take_along_axis(indices, order, axis))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_moved_may_be_of_any_type(dtype: np.dtype) -> None:
    with weft.enable_x64(True):
        key, x = sample(np.dtype("i1"), (6, 20)), sample(dtype, (6, 20), 3)
        found = lax.sort((key, x, x), num_keys=1)
        expected = np.take_along_axis(x, stable_order([key]), -1)
        assert bits(found[1]) == bits(found[2]) == bits(expected)


@pytest.mark.parametrize("kinds", ["i1 f4", "f8 i4", "f4 f4 i8", "? u8 f2", "F i1", "i4 D"])
def test_several_keys_of_short_rows_count_in_turn(kinds: str) -> None:
    with weft.enable_x64(True):
        for shape in SHAPES:
            keys = [sample(np.dtype(kind), shape, seed) for seed, kind in enumerate(kinds.split())]
            positions = np.broadcast_to(np.arange(shape[-1]), shape)
            *_, found = lax.sort((*keys, positions), num_keys=len(keys))
            np.testing.assert_array_equal(found, stable_order(keys), str(shape))


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t.kind != "c"], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_largest_of_short_rows_lie_along_any_axis(dtype: np.dtype, axis: int) -> None:
    def rank(pair: tuple[int, Any]) -> tuple[Any, ...]:
        at, value = pair
        if value != value:  # as JAX orders them: a NaN with a sign is the least of all
            return (2 if math.copysign(1, value) < 0 else 0, at)
        return (1, -value, math.copysign(1, value) < 0 and value == 0, at)

    x = sample(dtype, (5, 18, 4))
    with weft.enable_x64(True):
        for k in (0, 1, 2, x.shape[axis]):
            found, positions = lax.top_k(x, k, axis=axis)
            rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
            plain = rows if dtype.kind in "biu" else rows.astype(np.float64)
            order = [[at for at, _ in sorted(enumerate(row), key=rank)][:k] for row in plain.tolist()]
            moved = (*np.delete(x.shape, axis), k)
            expected = np.moveaxis(np.asarray(order, np.int32).reshape(moved), -1, axis)
            np.testing.assert_array_equal(positions, expected)
            assert positions.dtype == np.int32 and bits(found) == bits(np.take_along_axis(x, expected, axis))


def test_sorts_of_short_rows_enter_no_python() -> None:
    x, k = np.ones((5, 9), np.float32), np.ones((5, 9), np.int32)
    for function in (wnp.sort, wnp.argsort, lambda x: lax.top_k(x, 3), lambda x: wnp.lexsort((k, x))):
        assert "callback" not in (names := plan_of(function, x)) and "sort" in names
    with weft.enable_x64(True):
        assert "callback" in plan_of(wnp.argsort, np.ones(5000, np.float64))  # by words and positions apart
    for function in (wnp.argsort, wnp.sort):
        assert "callback" not in (names := plan_of(function, np.ones(5000, np.float32))) and "sort" in names


def test_types_of_few_bits_are_sorted_too() -> None:
    for dtype in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = np.array([3, 1, 2, 1, 0], dtype)
        assert np.asarray(wnp.argsort(x)).tolist() == [4, 1, 3, 2, 0]


def test_a_short_sort_of_a_donated_array_reads_it_first() -> None:
    x = sample(np.dtype("f4"), (7, 30))
    found = weft.jit(lambda x: lax.sort((x, x + 1)), donate_argnums=0)(wnp.array(x))
    order = stable_order([x])
    assert bits(found[0]) == bits(np.take_along_axis(x, order, -1))
    assert bits(found[1]) == bits(np.take_along_axis(x + np.float32(1), order, -1))


def test_a_loop_sorts_its_state() -> None:
    x = np.random.default_rng(0).random((40,), np.float32)
    found = weft.jit(lambda x: lax.fori_loop(0, 5, lambda i, x: wnp.sort(-x), x))(x)
    np.testing.assert_array_equal(found, np.sort(-x) if 5 % 2 else np.sort(x))


def test_many_short_rows_are_sorted_alike_by_any_number_of_threads() -> None:
    x = sample(np.dtype("f4"), (3000, 50))
    found = []
    for threads in (1, 2):
        with weft.threads(threads):
            found.append(bits(wnp.argsort(x)))
    assert found[0] == found[1]
