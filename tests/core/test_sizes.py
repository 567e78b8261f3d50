"""Numbers that follow from sizes: they compute as integers do, and what is noted of them is all that was asked."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import runtime
from weft.core.symbolic import sizes

BINARY = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv)
COMPARED = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


_open: list[sizes.Guards] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


def opened(*numbers: Any) -> tuple[sizes.Guards, list[Any]]:
    """Guards, and a size for each number."""
    _open.append(sizes.Guards(numbers, len(numbers)))
    return _open[-1], list(_open[-1].free)


def _expressions() -> st.SearchStrategy[Any]:
    """Functions of a list of three numbers, as trees."""
    leaves = st.one_of(st.integers(0, 2).map(lambda k: ("size", k)), st.integers(-6, 40).map(lambda n: ("number", n)))
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(BINARY), inner, inner), max_leaves=8)


def _value(tree: Any, numbers: Any) -> Any:
    if tree[0] == "size":
        return numbers[tree[1]]
    if tree[0] == "number":
        return tree[1]
    return tree[0](_value(tree[1], numbers), _value(tree[2], numbers))


EXTENTS = st.lists(st.integers(2, 50), min_size=3, max_size=3)


@given(_expressions(), _expressions(), st.sampled_from(COMPARED), EXTENTS, EXTENTS)
def test_they_compute_and_compare_as_numbers_and_guards_tell_when_answers_differ(one, two, compare, first, second):
    guards, free = opened(*first)
    try:
        expected = compare(_value(one, first), _value(two, first))
        there = compare(_value(one, second), _value(two, second))
    except ZeroDivisionError:
        return
    assert compare(_value(one, free), _value(two, free)) == expected
    left, right = _value(one, free), _value(two, free)
    assert sizes.present(left) == _value(one, first) and sizes.present(right) == _value(two, first)
    guards.close()
    values = guards.at(second)
    assert (values is not None) == (there == expected)
    if values is not None:
        for size, tree in ((left, one), (right, two)):
            if type(size) is sizes.Size:
                assert math.isclose(values[size.slot], _value(tree, second), rel_tol=1e-12)


@pytest.mark.parametrize(
    "ask", [range, lambda n: [0] * n, lambda n: [5, 6, 7, 8][n], int, float, str, hex, lambda n: f"{n}", np.zeros, bin]
)
def test_who_needs_the_number_gets_it_and_that_is_noted(ask):
    guards, (n,) = opened(3)
    ask(n)
    assert guards.describe() == ["s0 == 3"]
    assert guards.at([3]) is not None and guards.at([4]) is None


def test_arrays_take_the_number():
    guards, (n, m) = opened(3, 9)
    assert type(np.int64(4) * n) is sizes.Size and type(n + np.float32(0.5)) is sizes.Size and len(guards) == 0
    for found, expected in (
        (np.arange(3) * n, [0, 3, 6]), (n - np.arange(2), [3, 2]), (np.asarray(n), 3), (np.maximum(n, 4), 4),
        (np.arange(5) < n, [True] * 3 + [False] * 2), (np.asarray(m, np.float32), 9.0),
    ):  # fmt: skip
        assert np.asarray(found).dtype != object
        np.testing.assert_array_equal(found, expected)
    assert sorted(guards.describe()) == ["s0 == 3", "s1 == 9"]


def test_sums_have_one_form():
    guards, (n, m) = opened(7, 9)
    assert ((n - 1) + 1).slot == n.slot and (n - n) == 0 and (n * m - m * n) == 0
    assert (2 * n + m).slot == (m + n + n).slot
    assert type(n - n) is int
    assert n // 1 is n and len(guards) == 0
    product: Any = math.prod((n, m))
    assert product.slot == (m * n).slot


def test_extents_are_two_or_more_which_is_not_noted():
    guards, (n, m) = opened(7, 9)
    assert n != 0 and n != 1 and n > 1 and not n < 2 and n * m > 3 and n * m + 1 >= 5 and n // 2 >= 1
    assert len(guards) == 0
    assert n >= 3 and n - 1 > 1
    assert guards.describe() == ["s0 >= 3", "(-1 + s0) > 1"]


def test_equal_numbers_are_compared_in_sets_and_dictionaries():
    guards, (n, m) = opened(8, 8)
    assert len({n, m, 8}) == 1
    assert guards.at([5, 5]) is None and guards.at([8, 8]) is not None and guards.at([8, 9]) is None


def test_nothing_is_noted_after_the_end():
    before = len(sizes.opened.all)
    guards, (n, m) = opened(8, 9)
    product = n * m
    guards.close()
    assert product == 72 and type(product + 1) is int and range(n) == range(8) and len(guards) == 0
    assert len(sizes.opened.all) == before
    guards.close()
    assert len(sizes.opened.all) == before


def test_types_with_sizes():
    guards, (n, m) = opened(8, 9)
    aval: Any = runtime.ShapedArray((n, 3, m), np.float32)
    assert type(aval) is sizes.SizedAval and aval is runtime.ShapedArray([n, 3, m], np.dtype(np.float32))
    assert aval.size.slot == (3 * n * m).slot and aval.nbytes == 8 * 9 * 3 * 4 and aval.ndim == 3
    assert str(aval.update(dtype=np.dtype(np.int8))) == str(runtime.ShapedArray((8, 3, 9), np.int8))
    assert aval.update(shape=(n,)) is runtime.ShapedArray((n,), np.float32)
    assert aval.update(shape=(2,)) is runtime.ShapedArray((2,), np.float32)
    assert aval.str_short() == "f32[8,3,9]" and aval.strip_weak_type() is aval
    with pytest.raises(ValueError, match="non-negative"):
        runtime.ShapedArray((n - 9,), np.float32)
    guards.close()
    assert runtime.ShapedArray((n, 2), np.float32) is runtime.ShapedArray((8, 2), np.float32)


def test_a_cache_is_not_asked_with_sizes():
    calls = []

    @sizes.cached(8)
    def double(shape: Any) -> Any:
        calls.append(shape)
        return tuple([2 * n for n in shape])

    guards, (n,) = opened(8)
    assert double((8,)) == double((8,)) == (16,) and len(calls) == 1
    assert double((n,))[0].slot == (2 * n).slot and double((n,)) and len(calls) == 3
    assert len(guards) == 0
    guards.close()
