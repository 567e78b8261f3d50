"""Pytrees behave as JAX's do: values, structures, key paths and error texts."""

from __future__ import annotations

from collections.abc import Callable

import jax.tree
import jax.tree_util
import pytest

import weft.tree
import weft.tree_util
from tests.oracle import tree_programs


def outcome(use: Callable[[], object]) -> str:
    try:
        return str(use())
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("group", [tree_programs.structures, tree_programs.maps, tree_programs.registrations])
def test_same_outcome(group):
    ours = tree_programs.Containers(weft.tree_util)
    theirs = tree_programs.Containers(jax.tree_util)
    found = [outcome(use) for use in group(weft.tree_util, weft.tree, ours)]
    expected = [outcome(use) for use in group(jax.tree_util, jax.tree, theirs)]
    assert found == expected


def test_every_public_name_exists():
    for theirs, ours in ((jax.tree, weft.tree), (jax.tree_util, weft.tree_util)):
        assert [name for name in dir(theirs) if not name.startswith("_") and not hasattr(ours, name)] == []


def test_registering_twice():
    containers = tree_programs.Containers(weft.tree_util)
    for kind in containers.all:
        with pytest.raises(ValueError, match="Duplicate"):
            weft.tree_util.register_pytree_node(kind, lambda c: ((), None), lambda a, c: None)
    with pytest.raises(TypeError):
        weft.tree_util.register_pytree_node(3, None, None)


def test_equality_errors():
    errors = list(weft.tree_util.equality_errors({"a": [1, 2], "b": 1}, {"a": [1], "b": (2,)}))
    paths = [weft.tree_util.keystr(path) for path, *_ in errors]
    assert paths == ["['a']", "['b']"]
    assert list(weft.tree_util.equality_errors({"a": 1}, {"a": 2})) == []
