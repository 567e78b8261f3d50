"""Random argument trees through JitFunction: every leaf comes back at its position, however dicts were filled."""

from __future__ import annotations

import collections
import random
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime import machine_code
from weft import runtime
from weft.compiler.plans.instructions import InputOutput


class Pair(NamedTuple):
    left: Any
    right: Any


class Wrapper:
    def __init__(self, children: list[Any], label: int) -> None:
        self.children, self.label = children, label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wrapper) and (self.children, self.label) == (other.children, other.label)


runtime.register_node(
    Wrapper, lambda w: (tuple(w.children), w.label), lambda label, children: Wrapper(list(children), label)
)

KEYS = st.one_of(st.text(max_size=3), st.just("x" * 5000))
LEAVES = st.sampled_from(["array", "float", "numpy", "generic"])


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(KEYS, children, max_size=4),
        st.dictionaries(st.integers(-3, 10**20), children, max_size=3),
        st.dictionaries(st.tuples(st.integers(0, 2), st.text(max_size=1)), children, max_size=3),
        st.dictionaries(KEYS, children, max_size=3).map(collections.OrderedDict),
        st.tuples(children, children).map(lambda pair: Pair(*pair)),
        st.builds(Wrapper, st.lists(children, max_size=3), st.integers(0, 2)),
        st.none(),
    )


TREES = st.recursive(LEAVES, containers, max_leaves=20)


def fill(tree: Any, counter: list[int], shuffle: random.Random | None) -> Any:
    """The tree with numbered leaves; ``shuffle`` fills dicts in another order, but leaves keep their numbers."""
    if isinstance(tree, str):
        counter[0] += 1
        value = np.float32(counter[0])
        return {"array": lambda: machine_code.array(value), "float": lambda: float(value),
                "numpy": lambda: np.full((), value, np.float32), "generic": lambda: value}[tree]()  # fmt: skip
    if isinstance(tree, dict):
        items = [(key, fill(tree[key], counter, shuffle)) for key in tree]
        if shuffle is not None and not isinstance(tree, collections.OrderedDict):
            shuffle.shuffle(items)
        return type(tree)(items)
    if isinstance(tree, Pair):
        return Pair(*(fill(child, counter, shuffle) for child in tree))
    if isinstance(tree, list | tuple):
        return type(tree)([fill(child, counter, shuffle) for child in tree])
    if isinstance(tree, Wrapper):
        return Wrapper([fill(child, counter, shuffle) for child in tree.children], tree.label)
    return tree


def values(tree: Any) -> Any:
    return runtime.tree_map(lambda leaf: float(np.asarray(leaf)), tree)


def identity() -> tuple[runtime.JitFunction, list[Any]]:
    calls: list[Any] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> tuple[Any, runtime.CacheEntry]:
        calls.append(args)
        leaves, tree = runtime.tree_flatten((args, kwargs))
        kind = machine_code.aval(())
        kinds = (kind,) * len(leaves)
        outputs = [InputOutput(i, kind) for i in range(len(leaves))]
        executable = runtime.Executable(len(leaves), outputs, [], 0, [], "identity", kinds)
        entry = runtime.CacheEntry(executable, tuple(range(len(leaves))), (), tree, kinds, ())
        return (args, kwargs), entry

    return runtime.JitFunction(slow, (), ()), calls


@settings(max_examples=300, deadline=None)
@given(
    st.lists(TREES, max_size=3),
    st.dictionaries(st.sampled_from("abcd"), TREES, max_size=3),
    st.randoms(use_true_random=False),
)
def test_every_leaf_comes_back_at_its_position(args: list[Any], kwargs: dict[str, Any], shuffle: random.Random) -> None:
    function, calls = identity()
    expected = values((tuple(fill(args, [0], None)), fill(kwargs, [0], None)))
    for order in (None, shuffle, None, shuffle):
        given_args = fill(args, [0], order)
        given_kwargs = fill(kwargs, [0], order)
        assert values(function(*given_args, **given_kwargs)) == expected
    assert len(calls) <= 3
    assert values(function(*fill(args, [0], None), **fill(kwargs, [0], None))) == expected
    assert len(calls) <= 3
