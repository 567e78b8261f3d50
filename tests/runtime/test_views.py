"""Small views of arrays outside of programs: the same arrays and errors as by the programs that take the others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import runtime

ITEMS = [0, 2, -1, -9, 9, None, ..., slice(None), slice(1, 3), slice(None, None, -1), slice(3, 0, -2), slice(-2, None),
         slice(5, 2), slice(0, 9, 0), 2**33, True, 1.5, np.int32(1)]  # fmt: skip
DTYPES = ["float32", "bfloat16", "complex128", "bool", "int8", "uint16"]


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


def outcome(function: Any, *args: Any) -> Any:
    """What a call gives: the type and bytes of its result, or its error."""
    try:
        result = function(*args)
    except Exception as error:
        return type(error), str(error)
    return result.aval, np.asarray(result).tobytes()


def by_programs(x: Any, name: str) -> Any:
    """The method of arrays that does not copy directly."""
    x[()]  # the methods are loaded
    return getattr(type(x), name).fallback


def test_indices() -> None:
    pairs = [(item,) for item in ITEMS] + list(itertools.product(ITEMS, repeat=2))
    rng = np.random.default_rng(1)
    pairs += [tuple(ITEMS[k] for k in rng.integers(0, 13, 3)) for _ in range(200)]
    for x in (jnp.asarray(numbers(3, 4)), jnp.asarray(numbers(0, 4))):
        slow = by_programs(x, "__getitem__")
        for index in [*pairs, 1, slice(1, 2), None, ()]:
            assert outcome(lambda x, i: x[i], x, index) == outcome(slow, x, index), index


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    host = numbers(4, 3, 5).astype(jnp.dtype(dtype))
    x = jnp.asarray(host)
    for index in ((1,), (slice(None), 1), (..., slice(None, None, -2)), (None, 2, slice(1, 2))):
        np.testing.assert_array_equal(np.asarray(x[index]), host[index])
    np.testing.assert_array_equal(np.asarray(x.T), host.T)
    np.testing.assert_array_equal(np.asarray(x.reshape(5, -1)), host.reshape(5, -1))


def test_reshapes() -> None:
    for x in (jnp.asarray(numbers(4, 6)), jnp.asarray(numbers(0, 6)), jnp.asarray(3.0)):
        slow = by_programs(x, "reshape")
        for args in [(24,), (-1,), (2, 12), ((3, 8),), ([2, 12],), (2, -1), (-1, -1), (5, -1), (7,), (0, -1), (),
                     ((),), (1,), (np.int64(24),), (2.0, 12), (-2, 3), (10**30,), (2**62, 4)]:  # fmt: skip
            assert outcome(lambda x, *a: x.reshape(*a), x, *args) == outcome(slow, x, *args), args
        assert outcome(x.ravel) == outcome(by_programs(x, "ravel"), x) == outcome(x.flatten)
    assert outcome(lambda: jnp.ones((2, 3)).reshape(6, order="F")) == outcome(lambda: jnp.ones(6))


def test_results_are_new_arrays() -> None:
    x = jnp.asarray(numbers(6))
    for view in (x[:], x.reshape(2, 3), x[...]):
        assert view.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    x.delete()
    for function in (lambda: x[0], lambda: x.reshape(3, 2)):
        with pytest.raises(RuntimeError, match="deleted"):
            function()


def test_weak_types_and_keys() -> None:
    assert jnp.asarray(3.0)[None].weak_type
    keys = weft.random.split(weft.random.key(0), 3)
    assert keys[1].dtype == keys.dtype
    assert (weft.random.key_data(keys[1]) == weft.random.key_data(keys)[1]).all()


def test_a_traced_view_leaves_those_of_arrays_alone() -> None:
    weft.make_jaxpr(lambda x: (x[0], x.reshape(1, -1), x.T, x.ravel()))(np.ones(3, np.float32))
    for name in ("__getitem__", "reshape", "ravel", "flatten"):
        assert type(vars(runtime.Array)[name]) is runtime.ViewOperator
    assert type(vars(runtime.Array)["T"].fget) is runtime.ViewOperator


def test_large_views_and_traces_are_programs() -> None:
    x = jnp.asarray(numbers(300, 400))
    np.testing.assert_array_equal(np.asarray(x[1:, ::2]), numbers(300, 400)[1:, ::2])
    np.testing.assert_array_equal(np.asarray(x.T), numbers(300, 400).T)
    assert "slice" in str(weft.make_jaxpr(lambda x: x[1:3].reshape(-1, 2).T)(x))
    assert weft.vmap(lambda row: row[1])(x).shape == (300,)


def test_checks_of_results_see_views() -> None:
    x = jnp.asarray(np.float32([np.nan, 1.0]))
    assert np.isnan(x[0])
    with weft.debug_nans(True), pytest.raises(FloatingPointError):
        x[0]
    assert np.isnan(x[0])


def test_an_array_that_is_not_ready() -> None:
    x = weft.jit(lambda x: (x @ x) * 0 + 1)(jnp.ones((600, 600)))
    assert float(x[2, 3]) == 1.0


def test_bad_operators() -> None:
    with pytest.raises(ValueError, match="no view is called"):
        runtime.ViewOperator("diagonal", len, bool)
    with pytest.raises(TypeError, match="callable"):
        runtime.ViewOperator("index", 1, bool)  # type: ignore[arg-type]
