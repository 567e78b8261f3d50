"""Laws of index maps, each beside NumPy's own indexing, reshapes and strides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core import index_maps
from weft.core.index_maps import CONSTANT, Affine, IndexMap, Piece, Region, StridedView

CASES = settings(max_examples=200, deadline=None, database=None)
EXTENT = st.integers(1, 6)
SHAPE = st.lists(EXTENT, max_size=4).map(tuple)


def array(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


def taken(source: np.ndarray, index_map: IndexMap, shape: tuple[int, ...]) -> np.ndarray:
    """What a map says, by NumPy's indexing with an array of indices for every dimension."""
    grid = np.indices(shape)
    index = tuple(start + (step * grid[axis] if axis != CONSTANT else 0) for axis, start, step in index_map)
    return np.broadcast_to(source[index], shape)


@st.composite
def view_of(draw: Any, shape: tuple[int, ...]) -> tuple[IndexMap, tuple[int, ...]]:
    """An affine map of an array and the shape of its result: axes reordered, reversed, cut, fixed, repeated, shared."""
    result = draw(SHAPE)
    index_map = []
    for extent in shape:
        fitting = [axis for axis, n in enumerate(result) if n <= extent]
        axis = draw(st.sampled_from([CONSTANT, *fitting]))
        if axis == CONSTANT:
            index_map.append(index_maps.constant(draw(st.integers(0, extent - 1))))
            continue
        n = result[axis]
        most = (extent - 1) // (n - 1) if n > 1 else 3
        step = draw(st.integers(1, max(most, 1))) * draw(st.sampled_from([1, -1]))
        reach = abs(step) * (n - 1)
        start = draw(st.integers(0, extent - 1 - reach)) + (reach if step < 0 else 0)
        index_map.append(Affine(axis, start, step))
    return tuple(index_map), result


@st.composite
def region_of(draw: Any, shape: tuple[int, ...], dense: bool = False) -> Region:
    bounds = []
    for extent in shape:
        start = draw(st.integers(0, extent - 1))
        step = 1 if dense else draw(st.integers(1, 3))
        bounds.append((start, step, draw(st.integers(1, (extent - 1 - start) // step + 1))))
    start, step, count = zip(*bounds, strict=True) if bounds else ((), (), ())
    return Region(start, step, count)


@CASES
@given(st.data())
def test_composing_is_indexing_twice(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    outer, middle = data.draw(view_of(shape))
    inner, result = data.draw(view_of(middle))
    twice = taken(taken(array(shape), outer, middle), inner, result)
    composed = index_maps.compose(outer, inner)
    np.testing.assert_array_equal(taken(array(shape), composed, result), twice)
    assert all(index == index_maps.constant(index.start) for index in composed if index.axis == CONSTANT)
    assert index_maps.compose(outer, index_maps.identity(len(middle))) == outer
    assert index_maps.compose(index_maps.identity(len(shape)), outer) == outer


@CASES
@given(st.data())
def test_restricting_is_slicing_the_result(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    index_map, result = data.draw(view_of(shape))
    region = data.draw(region_of(result))
    small = taken(array(shape), index_maps.restrict(index_map, region), region.extent)
    np.testing.assert_array_equal(small, taken(array(shape), index_map, result)[region.slices])


@CASES
@given(st.data())
def test_a_region_within_a_region_is_slicing_twice(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    outer = data.draw(region_of(shape))
    inner = data.draw(region_of(outer.extent))
    np.testing.assert_array_equal(array(shape)[inner.within(outer).slices], array(shape)[outer.slices][inner.slices])


@CASES
@given(st.data())
def test_inverting_undoes(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    index_map, result = data.draw(view_of(shape))
    inverse = index_maps.invert(index_map, shape, dict(enumerate(result)))
    viewed = taken(array(shape), index_map, result)
    steps = all(abs(index.step) == 1 or result[index.axis] == 1 for index in index_map if index.axis != CONSTANT)
    reordered = viewed.size == math.prod(shape) and len(np.unique(viewed)) == viewed.size
    if inverse is None:
        assert not (reordered and steps)
        return
    assert reordered
    back = tuple([inverse[axis] for axis in range(len(result))])
    np.testing.assert_array_equal(taken(viewed, back, shape), array(shape))


@CASES
@given(st.lists(EXTENT, min_size=1, max_size=4).map(tuple))
def test_transposes_and_reversals_have_inverses(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(shape))
    order = rng.permutation(len(shape)).tolist()
    source = tuple([shape[order.index(dim)] for dim in range(len(shape))])
    index_map = tuple([Affine(order.index(dim), n - 1, -1) for dim, n in enumerate(source)])
    inverse = index_maps.invert(index_map, source, dict(enumerate(shape)))
    assert inverse is not None
    back = tuple([inverse[axis] for axis in range(len(shape))])
    np.testing.assert_array_equal(taken(taken(array(source), index_map, shape), back, source), array(source))


@CASES
@given(st.data())
def test_split_and_around_partition(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    cuts = [(d, data.draw(st.integers(0, n))) for d, n in enumerate(shape) if data.draw(st.booleans())]
    body = data.draw(region_of(shape, dense=True))
    for regions in (index_maps.split(shape, cuts), [body, *index_maps.around(body, shape)]):
        times = np.zeros(shape, int)
        for region in regions:
            assert 0 not in region.extent
            times[region.slices] += 1
        assert np.all(times == 1)
    for region in index_maps.split(shape, cuts):
        assert all(not region.start[d] < at < region.stop[d] for d, at in cuts)


@CASES
@given(st.data())
def test_the_piece_of_an_access_holds_what_it_reads(data: st.DataObject) -> None:
    shape = data.draw(st.lists(EXTENT, min_size=1, max_size=3).map(tuple))
    body = data.draw(region_of(shape, dense=True))
    whole = Region.box([0] * len(shape), shape)
    pieces = [
        Piece(0, whole, (), True),
        Piece(1, body, tuple([Affine(d, n - 1, -1) for d, n in enumerate(body.extent)])),
    ]
    operand = 100 + array(body.extent)
    assembled = np.full(shape, 7)
    assembled[body.slices] = np.flip(operand)
    access, result = data.draw(view_of(shape))
    wanted = taken(assembled, access, result)
    found = index_maps.piece_of(pieces, access, dict(enumerate(result)))
    if found is None:
        assert len({value >= 100 for value in taken_bounds(assembled, access, result)}) == 2 or len(shape) > 1
        return
    piece, index_map = found
    read = taken(operand, index_map, result) if piece.operand else np.full(result, 7)
    np.testing.assert_array_equal(read, wanted)


def taken_bounds(source: np.ndarray, access: IndexMap, result: tuple[int, ...]) -> list[int]:
    """All between the least and the largest index that an access to one dimension reads."""
    low, high = index_maps.indices(access[0], dict(enumerate(result)))
    return source[low : high + 1].ravel().tolist()


def elements(view: StridedView, memory: np.ndarray) -> np.ndarray:
    """What a strided view has, by NumPy's stride tricks over its digits."""
    digits = [part for dim in view.dims for part in dim]
    strides = [stride * memory.itemsize for _, stride in digits]
    found = np.lib.stride_tricks.as_strided(memory[view.offset :], [n for n, _ in digits], strides)
    return found.reshape(view.shape)


@CASES
@given(st.data())
def test_chains_of_views_and_reshapes_are_strided_views(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    memory = array(shape).ravel()
    view, expected = index_maps.dense(shape), array(shape)
    for _ in range(data.draw(st.integers(1, 4))):
        before = expected
        if data.draw(st.booleans()):
            new = regrouped(before.shape, data)
            expected, found = before.reshape(new), view.reshape(new)
            if np.shares_memory(expected, memory):  # NumPy reaches it by strides; no step before made a copy
                assert found is not None
        else:
            index_map, new = data.draw(view_of(before.shape))
            axes = [index.axis for index in index_map if index.axis != CONSTANT]
            expected, found = numpy_view(before, index_map, new), view.view(index_map, new)
            if all(len(digits) == 1 for digits in view.dims):
                assert (found is None) == (len(set(axes)) != len(axes))
        if found is None:
            return
        view = found
        assert view.shape == expected.shape
        np.testing.assert_array_equal(elements(view, memory), expected)


def numpy_view(source: np.ndarray, index_map: IndexMap, shape: tuple[int, ...]) -> np.ndarray:
    """A map as a NumPy view, which shares memory."""
    _, strides = index_maps.as_strides(index_map, source.strides, len(shape))
    first = source[tuple([slice(index.start, index.start + 1) for index in index_map])]
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def regrouped(shape: tuple[int, ...], data: st.DataObject) -> tuple[int, ...]:
    """Another shape of as many elements: factors joined anew."""
    factors = _primes(math.prod(shape))
    if data.draw(st.booleans()):
        factors = list(data.draw(st.permutations(factors)))
    new = [1]
    for factor in factors:
        if data.draw(st.booleans()):
            new.append(factor)
        else:
            new[-1] *= factor
    return tuple(new)


def _primes(n: int) -> list[int]:
    least = next((p for p in range(2, n + 1) if n % p == 0), None)
    return [] if least is None else [least, *_primes(n // least)]


@CASES
@given(st.data())
def test_strides_are_those_of_stride_tricks(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    index_map, result = data.draw(view_of(shape))
    offset, strides = index_maps.as_strides(index_map, index_maps.strides_of(shape), len(result))
    memory = array(shape).ravel()
    size = memory.itemsize
    found = np.lib.stride_tricks.as_strided(memory[offset:], result, [size * stride for stride in strides])
    np.testing.assert_array_equal(found, taken(array(shape), index_map, result))
    assert index_maps.strides_of(shape) == tuple(stride // size for stride in array(shape).strides)


@CASES
@given(st.lists(st.tuples(EXTENT, st.integers(0, 40)), min_size=1, max_size=4))
def test_joined_digits_count_as_they_did(digits: list[tuple[int, int]]) -> None:
    def positions(parts: list[tuple[int, int]]) -> np.ndarray:
        found = np.zeros(1, int)
        for extent, stride in parts:
            found = (found[:, None] + stride * np.arange(extent)).ravel()
        return found

    np.testing.assert_array_equal(positions(index_maps.joined(digits)), positions(digits))
    extents = [extent for extent, _ in digits]
    strides = index_maps.strides_in(tuple(digits), extents)
    assert strides is not None
    np.testing.assert_array_equal(positions(list(zip(extents, strides, strict=True))), positions(digits))
