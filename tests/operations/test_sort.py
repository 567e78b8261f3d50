"""Rows sorted natively: the order of NumPy's stable sort, every bit of it."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax, runtime
from weft import numpy as wnp

DTYPES = [np.dtype(t) for t in [*np.typecodes["AllInteger"][:8], *"?efd", ml_dtypes.bfloat16]]
SHAPES = [
    (0,),
    (1,),
    (63,),
    (64,),
    (2049,),
    (4095,),
    (4096,),
    (70001,),
    (3, 5000),
    (2, 65536),
    (40, 2),
    (40, 100),
    (9, 1535),
    (9, 1536),
]


def sample(dtype, shape):
    r, count = np.random.default_rng(0), math.prod(shape)
    if dtype.kind in "biu":
        x = r.integers(0, 2**64, count, dtype=np.uint64).astype(dtype)
        x[count // 2 :] = x[: count - count // 2] & 3  # many equal ones
        return x.reshape(shape)
    x = r.standard_normal(count)
    for special in (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-7):
        x[r.integers(0, max(count, 1), count // 20)] = special
    return x.astype(dtype).reshape(shape)


def stable_positions(x):
    keys = x if x.dtype.kind in "biu" else np.where(x == 0, 0.0, x.astype(np.float64))
    return np.argsort(keys, axis=-1, kind="stable")


def bits(x):
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_in_stable_order_bit_for_bit(dtype):
    with weft.enable_x64(True):
        for shape in SHAPES:
            x = sample(dtype, shape)
            expected = np.take_along_axis(x, stable_positions(x), axis=-1)
            np.testing.assert_array_equal(bits(lax.sort(x)), bits(expected), str(shape))
            np.testing.assert_array_equal(bits(lax.sort(x.T.copy(), dimension=0)), bits(expected.T), str(shape))


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("i1", "f2", "i4", "f4", "i8", "u8", "f8")], ids=str)
def test_positions_of_equal_keys_keep_their_order(dtype):
    for shape in [(2047,), (2048,), (4095,), (4096,), (70001,), (3, 5000)]:
        x = sample(dtype, shape)
        with weft.enable_x64(True):
            np.testing.assert_array_equal(wnp.argsort(x), stable_positions(x))


@pytest.mark.parametrize("shape", [(4095,), (4096,), (3, 5000)])
@pytest.mark.parametrize("kinds", ["i1 f4", "f8 i4", "f4 f4 i8", "? u8 f2", "c8", "i4 c16"])
def test_several_keys_count_in_turn(kinds, shape):
    parts, keys = [], []
    for number, kind in enumerate(kinds.split()):
        real = [sample(np.dtype({"c8": "f4", "c16": "f8"}.get(kind, kind)), shape) for _ in range(1 + (kind[0] == "c"))]
        real = [np.roll(x, 7 * number + 3 * i, axis=-1) for i, x in enumerate(real)]
        keys.append(real[0] if len(real) == 1 else (real[0] + 1j * np.nan_to_num(real[1])).astype(kind))
        parts += real[:1] if len(real) == 1 else [keys[-1].real, keys[-1].imag]
    with weft.enable_x64(True):
        *_, found = lax.sort((*keys, np.broadcast_to(np.arange(shape[-1]), shape)), num_keys=len(keys))
    ordered = [x if x.dtype.kind in "biu" else np.where(x == 0, 0.0, x.astype(np.float64)) for x in parts]
    np.testing.assert_array_equal(found, np.lexsort(ordered[::-1], axis=-1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_along_other_axes_are_in_stable_order_bit_for_bit(dtype):
    with weft.enable_x64(True):
        for shape, axis in (((5000, 3), 0), ((70000, 2), 0), ((3, 100, 70), 1), ((40, 5, 9), 0), ((2, 3000, 67), 1)):
            x = np.moveaxis(sample(dtype, (*shape[:axis], *shape[axis + 1 :], shape[axis])), -1, axis)
            expected = np.take_along_axis(x, np.moveaxis(stable_positions(np.moveaxis(x, axis, -1)), -1, axis), axis)
            np.testing.assert_array_equal(bits(lax.sort(x, dimension=axis)), bits(expected), str(shape))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_long_row_is_sorted_alike_by_any_number_of_threads(dtype):
    plain = np.random.default_rng(2).integers(0, 2, 1 << 18).astype(dtype)
    with weft.enable_x64(True):
        for x in (sample(dtype, ((1 << 18) + 5,)), plain, np.sort(plain), np.sort(plain)[::-1].copy()):
            expected = np.take_along_axis(x, stable_positions(x), -1)
            for threads in (1, 2, 5):
                with weft.threads(threads):
                    np.testing.assert_array_equal(bits(lax.sort(x)), bits(expected))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_of_more_than_one_piece_is_numpys(threads):
    x = np.random.default_rng(3).standard_normal((9 << 20) + 7).astype(np.float32)
    with weft.threads(threads):
        np.testing.assert_array_equal(lax.sort(x), np.sort(x))
        np.testing.assert_array_equal(lax.sort(np.stack([x, -x]))[1], np.sort(-x))


def test_the_operand_of_a_sort_stays_as_it_was():
    x = wnp.asarray(sample(np.dtype(np.float32), (5000,)))
    before = bits(x).copy()
    lax.sort(x)
    np.testing.assert_array_equal(bits(x), before)


def test_the_median_of_a_long_row_is_numpys():
    x = np.random.default_rng(1).standard_normal((3, 9001)).astype(np.float32)
    np.testing.assert_array_equal(wnp.median(x, axis=1), np.median(x, axis=1))
    assert np.isnan(wnp.median(np.append(x, np.float32(np.nan))))


def test_sort_words_refuses_what_it_cannot_sort():
    for words in (np.zeros(3), np.zeros(6, np.uint32)[::2], np.array(1, np.uint32), np.frombuffer(b"abcd", np.uint8)):
        with pytest.raises(TypeError, match="writable C-contiguous array of unsigned integers"):
            runtime.sort_words(words, "u")
    with pytest.raises(ValueError, match="no order 'x'"):
        runtime.sort_words(np.zeros(3, np.uint32), "x")


def test_positions_of_bytes_are_those_of_a_stable_sort():
    x = sample(np.dtype(np.uint8), (7, 3000))
    np.testing.assert_array_equal(runtime.order_bytes(x), np.argsort(x, axis=-1, kind="stable"))
    for keys in (x[:, ::2], x.astype(np.int8), np.array(1, np.uint8), 3):
        with pytest.raises(TypeError, match="C-contiguous array of uint8"):
            runtime.order_bytes(keys)


@pytest.mark.parametrize("axis", [0, 1, 2, -3])
def test_along_any_axis_rows_are_moved_there_and_back(axis):
    x = sample(np.dtype(np.int16), (7, 33, 40))
    order = np.argsort(x, axis=axis, kind="stable")
    np.testing.assert_array_equal(lax.sort(x, dimension=axis), np.sort(x, axis=axis))
    keys, positions = lax.sort((x, np.arange(x.size).reshape(x.shape)), dimension=axis)
    np.testing.assert_array_equal(keys, np.sort(x, axis=axis))
    np.testing.assert_array_equal(positions, np.take_along_axis(np.arange(x.size).reshape(x.shape), order, axis))
