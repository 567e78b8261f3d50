"""``x[idx]`` and ``x.at[idx]`` against NumPy: random index tuples, masks, bounds, duplicates; jit gives the same."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as wnp
from weft.numpy.subscripts import basic_indexing

_RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@given(*[st.one_of(st.none(), st.integers(-9, 9))] * 2, st.integers(-4, 4).filter(bool), st.integers(0, 6))
@_RELAXED
def test_slices_are_resolved_as_by_python(start: int | None, stop: int | None, step: int, extent: int) -> None:
    found = basic_indexing.cut_of(slice(start, stop, step), extent, 0)
    assert found == slice(start, stop, step).indices(extent) and found.size == len(range(extent)[start:stop:step])


@st.composite
def _cases(draw: Any, unique: bool = False) -> tuple[np.ndarray, tuple[Any, ...]]:
    """An array and an index tuple within its bounds; with ``unique`` no element is met twice."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    block = draw(st.lists(st.integers(1, 3), max_size=2))
    items: list[Any] = []
    axis, arrays = 0, 0
    count = draw(st.integers(0, len(shape)))
    while axis < count:
        kind = draw(st.sampled_from(["slice", "int", "array", "mask", "none", "slice"]))
        extent = shape[axis]
        if kind == "none":
            items.append(None)
            if len(items) > 8:
                break
            continue
        if kind == "mask" and not arrays and not unique:
            items.append(np.array(draw(st.lists(st.booleans(), min_size=extent, max_size=extent)), bool))
            arrays = 2  # its length fits no other array
        elif kind == "array" and extent and arrays < 2 and not (unique and arrays):
            chosen = draw(st.lists(st.integers(-extent, extent - 1), min_size=0, max_size=0)) or [
                draw(st.integers(-extent, extent - 1)) for _ in range(int(np.prod(block)))
            ]
            found = np.array(chosen, draw(st.sampled_from([np.int32, np.int64, np.int8]))).reshape(block)
            if unique:
                found = np.unique(found % extent)
            items.append(found if draw(st.booleans()) else wnp.asarray(found))
            arrays = 1
        elif kind == "int" and extent:
            items.append(draw(st.integers(-extent, extent - 1)))
        else:
            ends = st.one_of(st.none(), st.integers(-5, 5))
            step = draw(st.one_of(st.none(), st.sampled_from([1, 2, -1, -2, 3])))
            items.append(slice(draw(ends), draw(ends), step))
        axis += 1
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))) if axis == len(shape) else len(items), Ellipsis)
    return x, tuple(items)


def _plain(idx: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.asarray(item) if isinstance(item, weft.Array) else item for item in idx)


@_RELAXED
@given(_cases())
def test_reads_as_numpy(case: tuple[np.ndarray, tuple[Any, ...]]) -> None:
    x, idx = case
    expected = x[_plain(idx)]
    found = wnp.asarray(x)[idx]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(found), expected)
    jitted = weft.jit(lambda x: x[_plain(idx)])(x)
    np.testing.assert_array_equal(np.asarray(jitted), expected)


@_RELAXED
@given(_cases(unique=True))
def test_sets_as_numpy(case: tuple[np.ndarray, tuple[Any, ...]]) -> None:
    x, idx = case
    expected = x.copy()
    values = -1 - np.arange(expected[_plain(idx)].size, dtype=np.float32).reshape(expected[_plain(idx)].shape)
    expected[_plain(idx)] = values
    np.testing.assert_array_equal(np.asarray(wnp.asarray(x).at[idx].set(values)), expected)
    jitted = weft.jit(lambda x, v: x.at[_plain(idx)].set(v))(x, values)
    np.testing.assert_array_equal(np.asarray(jitted), expected)


@_RELAXED
@given(_cases(), st.sampled_from([np.float32, np.int32]))
def test_adds_as_numpy(case: tuple[np.ndarray, tuple[Any, ...]], dtype: Any) -> None:
    x, idx = case[0].astype(dtype), case[1]
    values = (1 + np.arange(x[_plain(idx)].size)).reshape(x[_plain(idx)].shape).astype(dtype)
    expected = x.copy()
    np.add.at(expected, _plain(idx), values)
    np.testing.assert_array_equal(np.asarray(wnp.asarray(x).at[idx].add(values)), expected)
    jitted = weft.jit(lambda x, v: x.at[_plain(idx)].add(v))(x, values)
    np.testing.assert_array_equal(np.asarray(jitted), expected)


X = np.arange(20, dtype=np.float32).reshape(5, 4)


@pytest.mark.parametrize(
    ("method", "ufunc"),
    [
        ("add", np.add),
        ("subtract", np.subtract),
        ("multiply", np.multiply),
        ("mul", np.multiply),
        ("min", np.minimum),
        ("max", np.maximum),
        ("divide", np.divide),
        ("power", np.power),
    ],
)
def test_updates_with_duplicates_in_order(method: str, ufunc: Any) -> None:
    idx = np.array([3, 1, 3, 3, 0])
    values = np.array([[2.0], [3.0], [0.5], [2.0], [1.0]], np.float32)
    expected = X.copy()
    if method in ("divide", "power"):  # one operation with the product
        factors = np.ones_like(X)
        np.multiply.at(factors, idx, values)
        expected = ufunc(X, factors)
    else:
        ufunc.at(expected, idx, values)
    found = getattr(wnp.asarray(X).at[idx], method)(values)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
    jitted = weft.jit(lambda x, i, v: getattr(x.at[i], method)(v))(X, idx, values)
    np.testing.assert_array_equal(np.asarray(jitted), np.asarray(found))


def test_apply_is_done_as_often_as_an_element_is_met() -> None:
    found = wnp.asarray(X).at[np.array([1, 1, 4])].apply(lambda v: 2 * v + 1)
    expected = X.copy()
    expected[1] = 2 * (2 * X[1] + 1) + 1
    expected[4] = 2 * X[4] + 1
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("index", [7, -7, 4, -5])
def test_bounds(index: int) -> None:
    """Reading clamps, writing leaves out, and modes choose."""
    x, indices = wnp.asarray(X), np.array([index, 2])
    clamped = min(max(index + 5 if index < 0 else index, 0), 4)
    inside = -5 <= index < 5
    for x_i in (x[index], x[indices][0], weft.jit(lambda x, i: x[i])(x, index), x.at[index].get(mode="clip")):
        np.testing.assert_array_equal(np.asarray(x_i), X[clamped])
    filled = x.at[indices].get(mode="fill", fill_value=-1)
    np.testing.assert_array_equal(np.asarray(filled), [X[index] if inside else np.full(4, -1), X[2]])
    assert np.isnan(np.asarray(x.at[index].get(mode="fill"))).all() == (not inside)
    expected = X.copy()
    if inside:
        expected[index] = -1
    np.testing.assert_array_equal(np.asarray(x.at[index].set(-1)), expected)
    clipped = X.copy()
    clipped[clamped] = -1
    np.testing.assert_array_equal(np.asarray(x.at[index].set(-1, mode="clip")), clipped)


def test_negative_indices_that_do_not_wrap() -> None:
    x = wnp.asarray(X)
    np.testing.assert_array_equal(np.asarray(x.at[-1].get(wrap_negative_indices=False)), X[0])
    assert np.isnan(np.asarray(x.at[np.array([-1])].get(mode="fill", wrap_negative_indices=False))).all()
    np.testing.assert_array_equal(np.asarray(x.at[-1].set(0, wrap_negative_indices=False)), X)


@pytest.mark.parametrize("value", [0, 2.5, np.arange(4, dtype=np.float32), np.arange(3, dtype=np.int32)[:, None]])
def test_masks(value: Any) -> None:
    x, mask = wnp.asarray(X), np.array([True, False, True, False, True])
    expected = X.copy()
    expected[mask] = value
    for m in (mask, wnp.asarray(mask)):
        np.testing.assert_array_equal(np.asarray(x[m]), X[mask])
        np.testing.assert_array_equal(np.asarray(x.at[m].set(value)), expected)
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda x: x.at[mask].set(value))(x)), expected)
    full = X > 7
    np.testing.assert_array_equal(np.asarray(x[full]), X[full])
    np.testing.assert_array_equal(np.asarray(x.at[full].add(1)), np.where(full, X + 1, X))


def test_many_values_of_an_index_are_one_program(caplog: pytest.LogCaptureFixture) -> None:
    x = wnp.asarray(X)
    reads = [lambda k: x[k], lambda k: x[k, k - 1], lambda k: x[k : k + 2], lambda k: x[np.array([k, 0])]]
    reads += [lambda k: x.at[k].set(k), lambda k: x.at[np.array([k, 1])].add(k), lambda k: x[:, np.array([k])]]
    for read in reads:
        read(0)
    with weft.log_compiles(True), caplog.at_level(logging.WARNING, "weft"):
        weft.jit(lambda x: x + 41.0)(x)
        assert len(caplog.records) >= 2  # what is traced and compiled is logged
        caplog.clear()
        for read in reads:
            for k in range(1, 4):
                read(k)
    assert not caplog.records


def test_refusals() -> None:
    x = wnp.asarray(X)
    with pytest.raises(IndexError, match=r"index 0: got \(4,\), expected \[5\]"):
        x[np.ones(4, bool)]
    with pytest.raises(IndexError, match=r"index 1: got \(4, 1\), expected \[4, 3\]"):
        wnp.ones((5, 4, 3))[:, np.ones((4, 1), bool)]
    with pytest.raises(IndexError, match="Too many indices: array is 2-dimensional, but 3 were indexed"):
        x[np.ones((5, 4), bool), 0]
    with pytest.raises(IndexError, match="only integers, slices"):
        x[object()]
    with pytest.raises(TypeError, match=r"arr\[tuple\(seq\)\]"):
        x[[None, 1]]
    with pytest.raises(TypeError, match=r"arr\[array\(seq\)\]"):
        x.at[[0, 1]].set(1)
    with pytest.raises(ValueError, match=r"Incompatible shapes for broadcasting: shapes=\[\(3,\), \(2,\)\]"):
        x[np.arange(3), np.arange(2)]
    with pytest.raises(ValueError, match=r"input type=float32\[3\] and requested type=float32\[2,4\]"):
        x.at[np.arange(2)].set(np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"Cannot broadcast to shape with fewer dimensions: arr_shape=\(1, 4\) shape"):
        x.at[0].set(np.ones((1, 4), np.float32))
    with pytest.raises(ValueError, match=r'Unknown gather mode "wrap"'):
        x.at[0].get(mode="wrap")
    with pytest.raises(weft.errors.NonConcreteBooleanIndexError, match=r"must be concrete; got bool\[5\]"):
        weft.jit(lambda x, m: x[m])(x, np.ones(5, bool))
    with pytest.raises(TypeError, match=r"Instead of x\[idx\] = y, use x = x.at\[idx\].set\(y\)"):
        x[0] = 1
    with pytest.raises(AttributeError, match="object has no attribute 'foo'"):
        x.at[0].foo(1)
    with pytest.raises(OverflowError):
        x[2**33]


def test_values_of_other_types() -> None:
    x = wnp.arange(5)
    with pytest.warns(FutureWarning, match="cannot safely cast value from dtype=float32 to dtype=int32"):
        found = x.at[np.array([1, 2])].set(2.5)
    assert found.dtype == np.int32 and found.tolist() == [0, 2, 2, 3, 4]
    with pytest.warns(FutureWarning, match="from dtype=float32 to dtype=float16"):
        assert wnp.ones(3, np.float16).at[0].add(np.float32(1)).dtype == np.float16
    assert wnp.ones(3).at[0].set(3).dtype == np.float32
    with pytest.raises(TypeError, match="bool"):
        wnp.ones(3, bool).at[0].add(True)


def test_text() -> None:
    x = wnp.ones(2)
    assert repr(x.at) == "_IndexUpdateHelper(Array([1., 1.], dtype=float32))"
    assert repr(x.at[0, :]) == "_IndexUpdateRef(Array([1., 1.], dtype=float32), (0, slice(None, None, None)))"


LONG_AXIS = 2**31 + 7


def test_positions_that_int32_does_not_hold_are_static_or_unsigned() -> None:
    n = LONG_AXIS
    x = weft.ShapeDtypeStruct((n,), np.uint8)
    static = weft.make_jaxpr(lambda x: (x[-1], x[n - 3 :], x[np.int64(2**31 + 3)]))(x)
    starts = [eqn.params["start_indices"] for eqn in static.eqns if eqn.primitive.name == "slice"]
    assert starts == [(n - 1,), (n - 3,), (2**31 + 3,)]
    for f in (lambda x, i: x[i], lambda x, i: x.at[i].set(0), lambda x, _: x.at[-1].set(0)):
        moved = [eqn for eqn in weft.make_jaxpr(f)(x, 1).eqns if eqn.primitive.name in ("gather", "scatter")]
        assert [eqn.invars[1].aval.dtype for eqn in moved] == [np.dtype(np.uint32)]
    for name in ("argmax", "argmin"):
        with pytest.raises(OverflowError, match=rf"\[{name}\] int32 .* u8\[{n}\]"):
            weft.make_jaxpr(getattr(wnp, name))(x)
    with pytest.raises(OverflowError, match="need 64 bits"):
        weft.make_jaxpr(lambda x, i: x[i])(weft.ShapeDtypeStruct((2**33,), np.uint8), 1)
    with weft.enable_x64(True):
        assert weft.eval_shape(wnp.argmax, x).dtype == np.int64


@pytest.mark.skipif(os.environ.get("WEFT_STRESS") != "1", reason="4 GB")
def test_elements_of_an_array_of_more_than_two_to_the_31() -> None:
    x = weft.jit(lambda: weft.lax.broadcasted_iota(np.uint8, (LONG_AXIS,), 0))()
    n = np.asarray(x)
    indices: list[Any] = [-1, np.int64(2**31 + 3), slice(-3, None), slice(-1, -4, -1), wnp.array([-1, 5, -3])]
    for index in (*indices, np.array([-1, 2**31 + 2]), (None, -1), wnp.int8(-1), wnp.uint8(200)):
        np.testing.assert_array_equal(x[index], n[np.asarray(index) if isinstance(index, weft.Array) else index])
    assert int(weft.jit(lambda x, i: x[i])(x, -2)) == n[-2]
    assert weft.jit(lambda x: x.at[-1].set(77)[-2:])(x).tolist() == [n[-2], 77]


@pytest.mark.parametrize("index", [0, (slice(None), -1), (None, 0), np.array(0)], ids=str)
def test_an_integer_into_an_empty_axis_is_out_of_bounds(index: Any) -> None:
    x = wnp.zeros((0, 0))
    for call in (lambda v: v[index], lambda v: v.at[index].get(), lambda v: v.at[index].add(1)):
        with pytest.raises(IndexError, match=r"out of bounds for axis . with size 0"):
            call(x)
        with pytest.raises(IndexError, match=r"out of bounds for axis . with size 0"):
            weft.jit(call)(x)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("extent", [128, 300, 40000])
@pytest.mark.parametrize("wrapper", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_indices_of_few_bits_into_more_elements(dtype: str, extent: int, wrapper: Any) -> None:
    n, i = np.arange(extent, dtype=np.int32), np.array([-1, 5, -100, 127, -3]).astype(dtype)
    where = i.astype(int)
    x = wnp.asarray(n)
    for index in (i, wnp.asarray(i)):
        expected = np.where((where >= -extent) & (where < extent), n[np.clip(where, -extent, extent - 1)], -7)
        for call in (lambda v, k: v.at[k].get(mode="fill", fill_value=-7), lambda v, k: wnp.take(v, k, fill_value=-7)):
            np.testing.assert_array_equal(wrapper(call)(x, index), expected)
        np.testing.assert_array_equal(wrapper(lambda v, k: wnp.take(v, k, mode="wrap"))(x, index), n[where % extent])
        counts = np.bincount(where[(where >= -extent) & (where < extent)] % extent, minlength=extent)
        np.testing.assert_array_equal(wrapper(lambda v, k: (v * 0).at[k].add(1, mode="drop"))(x, index), counts)
