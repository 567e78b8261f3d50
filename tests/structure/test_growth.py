"""Growth stops by rule: no count of ``growth.py`` is more than its table says, and the counts are right."""

from __future__ import annotations

import ast
import typing

import pytest

from tests.structure import growth
from weft.compiler.passes import pass_list
from weft.loops.schedules import decisions


def test_counts_do_not_grow() -> None:
    exceeded = growth.exceeded(growth.counted(), growth.table())
    assert not exceeded, (
        "\n".join(exceeded)
        + "\nReplace something, or raise the number (python -m tests.structure.growth --write --raise NAME) in a "
        "commit whose message says what the new thing replaces."
    )


def test_the_table_has_nothing_that_is_gone() -> None:
    gone = growth.table().keys() - growth.counted().keys()
    assert not gone, f"{gone}: write the table anew (python -m tests.structure.growth --write)"


def test_counts_are_of_what_they_say() -> None:
    found = growth.counted()
    assert found["passes"] == len(pass_list.PASSES)
    assert found["schedule forms"] == len(typing.get_args(decisions.Tile))
    assert found["first jit: files"] > 20 and found["classes with retire()"] > 0
    assert growth.slack("passes") == 0 and growth.exceeded({"passes": 3}, {"passes": 2})
    assert growth.exceeded({"class: weft.new.Class": 301}, {}) and not growth.exceeded({"passes": 2}, {"passes": 2})


def test_the_table_follows_what_falls() -> None:
    found, most = {"passes": 2, "schedule forms": 5}, {"passes": 3, "schedule forms": 4, "gone": 1}
    assert growth.written(found, most, []) == {"passes": 2, "schedule forms": 4}
    assert growth.written(found, most, ["schedule forms"]) == {"passes": 2, "schedule forms": 5}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("MOST = 1 << 20", 1), ("LOW, HIGH = 2, 3.0", 2), ("STEPS = (2, 3, 4)", 1), ("NAME = 'text'", 0),
        ("most = 3", 0), ("MOST = other + 1", 0), ("DEBUG = True", 0),
    ],
)  # fmt: skip
def test_constants_are_found(text: str, count: int) -> None:
    assert growth._named_numbers(ast.parse(text).body[0]) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("constexpr int64_t kA = 1 << 20, kB = 3;  // kC = 4", 2), ("static constexpr int kA = 4;", 1),
        ("  constexpr int kInside = 4;", 0), ("constexpr Named kTypes[] = {", 0), ("constexpr int kSum = kA + 1;", 0),
        ("constexpr size_t kA = size_t{1} << 20;", 1),
    ],
)  # fmt: skip
def test_native_constants_are_found(text: str, count: int) -> None:
    assert growth._native_constants(text) == count


def test_circles_are_found() -> None:
    known = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"a"}}
    assert sorted(map(sorted, growth.circles(known))) == [["a", "b", "c"], ["d"], ["e"], ["f"]]
