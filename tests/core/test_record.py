"""NamedTuple: what a class made by a class statement does, beside the same class of the standard library."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

import weft
from weft._base import record


class Point(record.NamedTuple):
    """A place."""

    x: int
    y: Any = 5
    name: str = "p"

    @property
    def norm(self):
        return abs(self.x) + abs(self.y)


Standard: Any = typing.NamedTuple("Point", [("x", int), ("y", Any), ("name", str)])
Standard.__new__.__defaults__ = (5, "p")
Standard._field_defaults = {"y": 5, "name": "p"}


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: repr(kind(1)), lambda kind: kind(1, 2, "q"), lambda kind: kind(x=1, name="n"),
        lambda kind: kind._fields, lambda kind: kind._field_defaults, lambda kind: kind.__match_args__,
        lambda kind: kind(1)._replace(y=7), lambda kind: kind(1)._asdict(), lambda kind: kind._make([3, 4, "r"]),
        lambda kind: hash(kind(1, 2)), lambda kind: kind(1, 2) < kind(1, 3), lambda kind: kind(1, 2)[1:],
        lambda kind: kind(1) == (1, 5, "p"), lambda kind: hasattr(kind(1), "__dict__"),
        lambda kind: copy.deepcopy(kind(1, [2])).y,
    ],
    ids=[
        "repr", "positions", "keywords", "fields", "defaults", "match", "replace", "asdict", "make", "hash", "order",
        "slice", "equal", "slots", "copy",
    ],
)  # fmt: skip
def test_named_tuples_are_those_of_the_standard_library(use):
    assert use(Point) == use(Standard)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda kind: kind(), TypeError), (lambda kind: kind(1, 2, 3, 4), TypeError),
        (lambda kind: kind(1, x=2), TypeError), (lambda kind: kind(1, z=2), TypeError),
        (lambda kind: setattr(kind(1), "x", 2), AttributeError), (lambda kind: kind._make([]), TypeError),
    ],
    ids=["missing", "too many", "twice", "unknown", "assignment", "make"],
)  # fmt: skip
def test_named_tuples_refuse_what_those_of_the_standard_library_refuse(use, error):
    for kind in (Point, Standard):
        with pytest.raises(error):
            use(kind)


def test_named_tuples_are_pickled_matched_and_have_methods():
    point = pickle.loads(pickle.dumps(Point(2, -3)))
    assert type(point) is Point
    assert point.norm == 5
    match point:
        case Point(x, y):
            assert (x, y) == (2, -3)


def test_named_tuples_are_nodes_of_pytrees():
    doubled = weft.tree.map(lambda leaf: leaf * 2, Point(1, {"a": 3}, 4))
    assert doubled == Point(2, {"a": 6}, 8)
    assert type(doubled) is Point
