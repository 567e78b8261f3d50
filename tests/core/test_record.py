"""NamedTuple and Record: what a class made by a class statement does, beside the same class of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing
import weakref
from typing import Any

import pytest

import weft
from weft._base import record


class Point(record.NamedTuple):
    """A spot."""

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


class Spot(record.Record, labels=("note",)):
    x: int
    y: Any = 5
    note: str = ""
    count: typing.ClassVar[int] = 3

    @property
    def norm(self):
        return abs(self.x) + abs(self.y)


@dataclasses.dataclass(frozen=True, slots=True)
class DataSpot:
    x: int
    y: Any = 5
    note: str = dataclasses.field(default="", compare=False)
    count: typing.ClassVar[int] = 3

    replace = dataclasses.replace


DataSpot.__qualname__ = "Spot"


class Higher(Spot):
    z: int = 7


class Draft(record.Record, frozen=False):
    name: str
    rows: list[int] = record.field(default_factory=list)


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: repr(kind(1)), lambda kind: repr(kind(1, note="n", y=(2,))), lambda kind: kind.__match_args__,
        lambda kind: repr(kind(1).replace(y=7)), lambda kind: kind(1, 2, "a") == kind(1, 2, "b"),
        lambda kind: kind(1, 2) == kind(2, 2), lambda kind: hash(kind(1, 2, "a")) == hash(kind(1, 2, "b")),
        lambda kind: kind(1) == (1, 5, ""), lambda kind: hasattr(kind(1), "__dict__"), lambda kind: kind(1).count,
        lambda kind: copy.deepcopy(kind(1, [2])).y,
    ],
    ids=[
        "repr", "keywords", "match", "replace", "labels", "unequal", "hash", "tuple", "slots", "class variable", "copy",
    ],
)  # fmt: skip
def test_records_are_frozen_dataclasses(use):
    assert use(Spot) == use(DataSpot)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda kind: kind(), TypeError), (lambda kind: kind(1, 2, "", 4), TypeError),
        (lambda kind: kind(1, x=2), TypeError), (lambda kind: kind(1, z=2), TypeError),
        (lambda kind: setattr(kind(1), "x", 2), AttributeError), (lambda kind: iter(kind(1)), TypeError),
        (lambda kind: hash(kind(1, [])), TypeError),
        (lambda kind: kind(1).replace(z=1), TypeError),
    ],
    ids=["missing", "too many", "twice", "unknown", "assignment", "unpacking", "hash", "replace"],
)  # fmt: skip
def test_records_refuse_what_frozen_dataclasses_refuse(use, error):
    for kind in (Spot, DataSpot):
        with pytest.raises(error):
            use(kind)


def test_records_are_values_of_their_class():
    assert Spot(1) != Higher(1)
    assert Higher(1, 2, "n", 3).z == 3
    assert Higher._fields == ("x", "y", "note", "z")
    assert Higher(1).replace(z=9) == Higher(1, z=9)
    point = pickle.loads(pickle.dumps(Higher(2, -3)))
    assert point == Higher(2, -3)
    assert point.norm == 5
    match point:
        case Spot(x, y):
            assert (x, y) == (2, -3)


def test_drafts_change_and_are_equal_to_themselves_alone():
    draft = Draft("a")
    draft.name = "b"
    draft.rows.append(1)
    assert repr(draft) == "Draft(name='b', rows=[1])"
    assert Draft("a").rows == []
    assert draft != Draft("b", [1])
    assert {id(draft): hash(draft)} == {id(draft): object.__hash__(draft)}
    assert weakref.ref(draft)() is draft
