"""Copies between the devices of plugins, and memory shared with other libraries by DLPack."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def put(x: Any, device: Any) -> Any:
    return weft.device_put(x, device)


@pytest.fixture(scope="module")
def neighbour(backend: Any) -> Any:
    """Another device of the first plugin's client."""
    if len(backend.devices()) < 2:
        pytest.skip("the plugin has one device")
    return backend.devices()[1]


@pytest.mark.parametrize("value", [X, X[:, :0], np.float32(2), X > 2, X.astype(ml_dtypes.bfloat16), X * 1j])
def test_from_device_to_device(value: Any, device: Any, neighbour: Any, other: Any) -> None:
    for target in (neighbour, other, weft.devices("cpu")[0], device):
        moved = put(put(value, device), target)
        assert moved.devices() == {target} and moved.committed
        np.testing.assert_array_equal(np.asarray(moved), value)


def test_copies_of_results_and_keys(device: Any, neighbour: Any, other: Any) -> None:
    made = weft.jit(lambda x: x @ x.T)(put(np.ones((300, 300), np.float32), device))  # perhaps not computed yet
    assert put(put(made, neighbour), other)[0, 0] == 300
    key = put(put(weft.random.key(3), device), neighbour)
    np.testing.assert_array_equal(weft.random.key_data(key), weft.random.key_data(weft.random.key(3)))
    given = put(X, device)
    weft.device_put(given, neighbour, donate=True)
    assert given.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        put(given, neighbour)


def test_arguments_are_copied_where_they_are_needed(device: Any, neighbour: Any) -> None:
    with weft.default_device(neighbour):
        loose = wnp.asarray(X)
    found = weft.jit(lambda a, b: a + b)(put(X, device), loose)
    assert found.devices() == {device}
    np.testing.assert_array_equal(found, X + X)


def is_shown(device: Any) -> bool:
    """Whether the plugin shows its memory, which the tests' plugins for the CPU do."""
    return device.client.native.platform == "cpu"


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, np.complex64, ml_dtypes.bfloat16])
def test_memory_of_a_device_is_shared(dtype: Any, device: Any) -> None:
    if not is_shown(device):
        pytest.skip("a plugin for the CPU shows its memory as the host's")
    x = weft.jit(lambda x: x + x)(put(X.astype(dtype), device))
    assert x.__dlpack_device__() == (1, 0)
    here = weft.dlpack.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(here), np.asarray(x))
    if dtype is not ml_dtypes.bfloat16:
        first, second = np.from_dlpack(x), np.from_dlpack(x)
        assert first.ctypes.data == second.ctypes.data and not first.flags.writeable
        copied = np.from_dlpack(x, copy=True)
        assert copied.ctypes.data != first.ctypes.data
        np.testing.assert_array_equal(copied, first)
        x.delete()
        del x
        gc.collect()
        np.testing.assert_array_equal(first, (X.astype(dtype) + X.astype(dtype)))  # it outlives the Array


def test_shared_memory_is_not_given_away(device: Any) -> None:
    if not is_shown(device):
        pytest.skip("a plugin for the CPU shows its memory as the host's")
    x = put(np.ones(100_000, np.float32), device)
    seen = np.from_dlpack(x)
    y = weft.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert x.is_deleted() and y[0] == 2 and (seen == 1).all()


def test_memory_of_others_on_a_device(device: Any) -> None:
    if not is_shown(device):
        pytest.skip("a plugin for the CPU takes memory of the host")

    class Owner(np.ndarray):
        """An array that can be watched."""

    space = np.zeros(1024 + 64, np.uint8)
    start = -space.ctypes.data % 64
    given = space[start : start + 24].view(np.float32).reshape(2, 3).view(Owner)
    given[...] = X
    alive = weakref.ref(given)
    x = weft.dlpack.from_dlpack(given, device=device)
    assert x.devices() == {device} and x.committed
    np.testing.assert_array_equal(weft.jit(lambda x: x + 1)(x), X + 1)
    doubled = weft.jit(lambda x: x * 2, donate_argnums=0)(x)
    np.testing.assert_array_equal(doubled, X * 2)
    np.testing.assert_array_equal(given, X)  # donated, and yet not written to
    del x, doubled, given
    gc.collect()
    assert alive() is None
    copied = weft.dlpack.from_dlpack(X, device=device, copy=True)
    assert copied.devices() == {device} and copied.tolist() == X.tolist()
    empty = weft.dlpack.from_dlpack(X[:, :0], device=device)
    assert empty.devices() == {device} and empty.shape == (2, 0)


def test_what_is_not_shared(device: Any) -> None:
    x = put(X, device)
    with pytest.raises(BufferError, match="cannot export to device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no DLPack type"):
        put(weft.random.key(0), device).__dlpack__()
    gone = put(X, device)
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        gone.__dlpack__()
