"""``asarray(copy=False)`` lies in its argument's memory, or says why it cannot."""

from __future__ import annotations

import array
from typing import Any

import jax
import jax.numpy
import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp


def aligned(count: int, dtype: Any = np.float32) -> np.ndarray:
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * np.dtype(dtype).itemsize].view(dtype)


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def __jax_array__(self) -> Any:
        return self.held


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_aligned_numpy_memory_is_shared(dtype: Any) -> None:
    host = aligned(16, dtype).reshape(4, 4)
    for shared in (jnp.asarray(host, copy=False), jnp.asarray(Holder(host), copy=False, dtype=dtype)):
        assert (shared.shape, shared.dtype) == (host.shape, host.dtype)
        assert shared.unsafe_buffer_pointer() == host.ctypes.data
    host[1, 2] = 1
    assert np.asarray(jnp.asarray(host, copy=False))[1, 2] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, ml_dtypes.bfloat16])
def test_alignment_to_the_elements_is_enough(dtype: Any) -> None:
    host = aligned(4097, dtype)[1:].reshape(64, 64)
    host[:] = np.arange(4096).reshape(64, 64) % 7
    shared = jnp.asarray(host, copy=False)
    assert shared.unsafe_buffer_pointer() == host.ctypes.data
    for function in (
        lambda x: x + x,
        lambda x: x.T.copy(),
        lambda x: jnp.cumsum(x, 1),
        lambda x: x.sum(0),
        lambda x: x @ x,
    ):
        np.testing.assert_array_equal(np.asarray(weft.jit(function)(shared)), np.asarray(function(jnp.array(host))))


def test_without_copy_false_numpy_memory_is_copied() -> None:
    host = aligned(16)
    copies = [jnp.asarray(host), jnp.asarray(host, copy=True), jnp.array(host), jnp.array(host, copy=False)]
    host[0] = 7
    assert [np.asarray(copied)[0] for copied in copies] == [0, 0, 0, 0]


def test_arrays_tracers_and_their_holders_are_given_back() -> None:
    x, key = jnp.arange(3), weft.random.key(0)
    for held in (x, key):
        assert jnp.asarray(held, copy=False) is held
    assert jnp.asarray(Holder(x), copy=False) is x
    assert jnp.asarray(memoryview(x), copy=False).unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert weft.make_jaxpr(lambda v: jnp.asarray(v, np.int32, copy=False))(x).eqns == []
    assert weft.jit(lambda: jnp.asarray(aligned(16), copy=False) + 1)().tolist() == [1.0] * 16


def test_no_elements_need_no_copy() -> None:
    assert jnp.asarray(aligned(16)[1:1].reshape(0, 3), copy=False).shape == (0, 3)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (jnp.arange(3), np.float32), (aligned(16), np.int32), (aligned(16, np.float64), np.float32),
        (aligned(68, np.uint8)[1:65].view(np.float32), None), (aligned(16)[::2], None),
        (aligned(16).reshape(4, 4).T, None), (aligned(16).view(">f4"), None),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_needs_a_copy_is_refused(value: Any, dtype: Any) -> None:
    with pytest.raises(ValueError, match="copy=False"):
        jnp.asarray(value, dtype, copy=False)


@pytest.mark.oracle
def test_what_has_no_memory_to_share_is_converted_as_in_jax() -> None:
    values = [
        ([1.0, 2.0], None), ((), None), (3, None), (2.5, np.float32), (np.float32(3), None), (np.arange(4), None),
        (array.array("l", [0, 1, 2]), None), (np.linspace(0, 1, 3), None),
    ]  # fmt: skip
    for value, dtype in values:
        mine, theirs = (J.numpy.asarray(value, dtype, copy=False) for J in (weft, jax))
        assert (mine.dtype, mine.weak_type) == (theirs.dtype, theirs.weak_type)
        np.testing.assert_array_equal(mine, theirs)


def test_a_change_of_dtype_of_a_traced_value_is_refused() -> None:
    with pytest.raises(ValueError, match="array of float32 becomes one of int32 only by a copy"):
        weft.make_jaxpr(lambda v: jnp.asarray(v, np.int32, copy=False))(1.0)


def pointers(*arrays: Any) -> set[int]:
    return {array.unsafe_buffer_pointer() for array in arrays}


def test_results_of_jitted_functions_have_memory_of_their_own() -> None:
    x = jnp.arange(1000.0)

    def twice(x: Any) -> Any:
        y = x + 1
        return y, y.reshape(10, 100), y

    functions: list[Any] = [lambda x: x, lambda x: (x, x), twice, lambda x: x.reshape(10, 100), lambda x: x[None]]
    for function in functions:
        found = weft.tree.leaves(weft.jit(function)(x))
        assert len(pointers(x, *found)) == 1 + len(found)
        for a, b in zip(found, weft.tree.leaves(function(np.arange(1000, dtype=np.float32))), strict=True):
            np.testing.assert_array_equal(a, b)
    for copied in (x.astype("float32", copy=True), jnp.astype(x, "float32", copy=True)):
        assert pointers(copied) != pointers(x)
    assert pointers(weft.jit(twice)(x)[0]).isdisjoint(pointers(x))


def test_what_jax_gives_as_a_new_array_outlives_its_argument() -> None:
    for function in (
        lambda x: x.flatten(),
        jnp.ravel,
        lambda x: jnp.meshgrid(x)[0],
        lambda x: jnp.broadcast_arrays(x)[0],
        lambda x: jnp.moveaxis(x, 0, 0),
    ):
        x = jnp.arange(3.0)
        y = function(x)
        weft.jit(lambda x: x + 1, donate_argnums=0)(x)
        np.testing.assert_array_equal(y, [0, 1, 2])
