"""Native pytrees: beside jax.tree_util on the same trees, then what only weft promises, leaks and bad input."""

from __future__ import annotations

import collections
import dataclasses
import gc
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax.tree_util as oracle
import pytest

from tests.runtime.held_memory import native_bytes, python_blocks
from weft import runtime


class Point(NamedTuple):
    x: Any
    y: Any


class Other(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Config:
    weight: Any
    bias: Any
    name: str = "layer"


class Pair:
    """A registered class with auxiliary data."""

    def __init__(self, one: Any, two: Any, aux: Any = "aux") -> None:
        self.one, self.two, self.aux = one, two, aux

    def __repr__(self) -> str:
        return f"Pair({self.one}, {self.two}, {self.aux})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]


class Unusual(NamedTuple):
    """A named tuple registered as something else: the registration wins."""

    kept: Any
    constant: Any


_PAIR = (lambda p: ((p.one, p.two), p.aux), lambda aux, children: Pair(*children, aux))
_UNUSUAL = (lambda u: ((u.kept,), u.constant), lambda aux, children: Unusual(*children, aux))
runtime.register_node(Pair, *_PAIR)
runtime.register_node(Unusual, *_UNUSUAL)
runtime.register_dataclass_node(Config, ["weight", "bias"], ["name"])
oracle.register_pytree_node(Pair, *_PAIR)
oracle.register_pytree_node(Unusual, *_UNUSUAL)
oracle.register_dataclass(Config, ["weight", "bias"], ["name"])

TREES: list[Any] = [
    *(
        1,
        None,
        "leaf",
        (),
        [],
        {},
        (1,),
        [1, 2],
        {"b": 1, "a": 2},
        {2: 1, 1: 2},
        {(1, 2): 3, (0, 1): 4},
        {1.5: 1, 2: 3},
    ),
    *(Point(1, (2, 3)), Pair(1, [2]), Pair(1, 2, 5), Config(1, {"z": None}), Unusual((1, 2), "c")),
    *(OrderedDict([("z", 1), ("a", (2, 3))]), OrderedDict(), defaultdict(list, {"z": 1, "a": 2}), defaultdict(None)),
    *((1, [2, {"a": (3, None)}, Point(4, [])], OrderedDict(b=Pair(5, 6))), [[[[1]]]], {"a": {"b": {"c": ()}}}),
    *({"quote'": 1, "unié": 2, "\ud800": 3}, {frozenset({1}): 2}, collections.UserDict(a=1), range(3), {1, 2}),
]


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the class and text of what was raised."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def plain(treedefs: Any) -> Any:
    return [str(t) for t in treedefs] if isinstance(treedefs, list) else treedefs


# ---- beside the oracle ----


@pytest.mark.oracle
@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_same_as_jax(tree: Any) -> None:
    leaves, treedef = runtime.tree_flatten(tree)
    expected_leaves, expected = oracle.tree_flatten(tree)
    assert leaves == expected_leaves == runtime.tree_leaves(tree)
    assert repr(treedef) == str(treedef) == repr(expected)
    assert (treedef.num_leaves, treedef.num_nodes) == (expected.num_leaves, expected.num_nodes)
    assert treedef.node_data() == expected.node_data()
    assert plain(treedef.children()) == plain(expected.children())
    marked = [("leaf", leaf) for leaf in leaves]
    assert repr(treedef.unflatten(marked)) == repr(expected.unflatten(marked))
    assert repr(runtime.tree_map(lambda x: [x], tree)) == repr(oracle.tree_map(lambda x: [x], tree))
    is_leaf = lambda x: isinstance(x, tuple) or x is None
    assert repr(runtime.tree_flatten(tree, is_leaf)) == repr(oracle.tree_flatten(tree, is_leaf))
    assert treedef == runtime.tree_structure(tree, is_leaf=None)
    assert hash(treedef) == hash(runtime.tree_structure(tree))
    folded = treedef.walk(lambda children, data: (children, data), lambda leaf: [leaf], leaves)
    assert folded == expected.walk(lambda children, data: (children, data), lambda leaf: [leaf], leaves)
    assert str(treedef.compose(runtime.tree_structure((1, [2])))) == str(
        expected.compose(oracle.tree_structure((1, [2])))
    )


PREFIXES: list[tuple[Any, Any]] = [
    *(((1, 2), (1, 2, 3)), ((1, 2), [1, 2]), ([1, 2], (1, 2)), ([1, 2], [1]), ({"a": 1}, {"b": 1}), ({"a": 1}, [1])),
    *(({"a": 1, "b": 2}, {"a": 1}), (Point(1, 2), Other(1, 2)), (Point(1, 2), (1, 2)), ((1, 2), Point(1, 2))),
    *((Pair(1, 2), Config(1, 2)), (Pair(1, 2), 3), (Pair(1, 2, 3), Pair(1, 2, 4)), (Config(1, 2), Config(1, 2, "b"))),
    *(
        (Config(1, 2), 5),
        (OrderedDict(a=1), OrderedDict(b=1)),
        (OrderedDict(a=1), {"a": 1}),
        ({"a": 1}, OrderedDict(a=1)),
    ),
    *((defaultdict(list, a=1), defaultdict(int, a=1)), (1, [1, 2]), ((1, (2, 3)), (1, 2)), ([1], None), ((), 5)),
    *(({"b": 1, "a": 2}, {"a": [1], "b": None}), ((1, {"a": [2]}), ((1, 2), {"a": [None]})), (None, None)),
]


@pytest.mark.oracle
@pytest.mark.parametrize(("prefix", "tree"), PREFIXES, ids=repr)
def test_flatten_up_to_same_as_jax(prefix: Any, tree: Any) -> None:
    ours = outcome(lambda: runtime.tree_structure(prefix).flatten_up_to(tree))
    assert ours == outcome(lambda: oracle.tree_structure(prefix).flatten_up_to(tree))


@pytest.mark.oracle
@pytest.mark.parametrize("count", [0, 2, 4])
def test_wrong_number_of_leaves_same_as_jax(count: int) -> None:
    ours, theirs = runtime.tree_structure((1, [2, 3])), oracle.tree_structure((1, [2, 3]))
    assert outcome(lambda: ours.unflatten(range(count))) == outcome(lambda: theirs.unflatten(range(count)))
    walk = (lambda *_: None, lambda _: None, range(count))
    assert outcome(lambda: ours.walk(*walk)) == outcome(lambda: theirs.walk(*walk))


# JAX cuts error texts off at a NUL
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_LEAVES = st.integers() | st.none() | st.text(_CHARACTERS, max_size=3) | st.floats(allow_nan=False)


def _containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(st.text(_CHARACTERS, max_size=3), children, max_size=4),
        st.dictionaries(st.integers(), children, max_size=3).map(OrderedDict),
        st.builds(Point, children, children),
        st.builds(Pair, children, children, st.integers(0, 3)),
        st.builds(Config, children, children, st.text(_CHARACTERS, max_size=2)),
    )


@pytest.mark.oracle
@hypothesis.settings(deadline=None, max_examples=150, database=None)
@hypothesis.given(st.recursive(_LEAVES, _containers, max_leaves=20), st.recursive(_LEAVES, _containers, max_leaves=8))
def test_random_trees_same_as_jax(tree: Any, other: Any) -> None:
    leaves, treedef = runtime.tree_flatten(tree)
    expected_leaves, expected = oracle.tree_flatten(tree)
    assert (leaves, str(treedef)) == (expected_leaves, str(expected))
    assert repr(treedef.unflatten(leaves)) == repr(expected.unflatten(leaves))
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert (treedef == runtime.tree_structure(other)) == (expected == oracle.tree_structure(other))
    assert treedef.flatten_up_to(tree) == leaves
    ours, theirs = (outcome(lambda t=t: t.flatten_up_to(other)) for t in (treedef, expected))
    assert ours == theirs or str(theirs[1]).startswith(str(ours[1])), (ours, theirs)


# ---- treedefs ----


def test_equality_and_hash() -> None:
    structure = runtime.tree_structure
    assert structure((1, 2)) == structure(("a", None.__class__))
    assert structure((1,)) != structure([1])
    assert structure({"b": 1, "a": 2}) == structure({"a": 1, "b": 2})
    assert structure(Pair(1, 2, 3)) != structure(Pair(1, 2, 4))
    assert structure(Config(1, 2, "a")) != structure(Config(1, 2, "b"))
    assert structure(1) != 5
    assert len({structure(Pair(1, 2, [])), structure(Pair(3, 4, []))}) == 1
    with pytest.raises(TypeError):
        _ = structure(1) < structure(2)

    class Ambiguous:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(ValueError, match="equality of metadata fields") as caught:
        _ = structure(Pair(1, 2, Ambiguous())) == structure(Pair(1, 2, Ambiguous()))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("tree", TREES[:22], ids=repr)
def test_pickle_and_rebuild(tree: Any) -> None:
    treedef = runtime.tree_structure(tree)
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    rebuilt = runtime.PyTreeDef.from_node_data_and_children(treedef.node_data(), treedef.children())
    assert rebuilt == treedef
    assert str(rebuilt) == str(treedef)


def test_from_iterable_tree() -> None:
    treedef = runtime.tree_structure((1, [2, {"a": 3}]))
    assert treedef.from_iterable_tree([1, (2, [3])]) == (1, [2, {"a": 3}])
    with pytest.raises(ValueError, match="Arity"):
        treedef.from_iterable_tree([1, (2,)])
    with pytest.raises(TypeError):
        treedef.from_iterable_tree([1, 2])


def test_small_functions() -> None:
    structure = runtime.tree_structure
    assert str(runtime.treedef_tuple([structure(1), structure([1, 2])])) == "PyTreeDef((*, [*, *]))"
    assert runtime.all_leaves([1, "a", object()])
    assert not runtime.all_leaves([1, None])
    assert runtime.all_leaves([1, (2,)], is_leaf=lambda x: isinstance(x, tuple))
    assert [runtime.is_node(t) for t in (list, dict, int, Pair, Point, Config, OrderedDict)] == [1, 1, 0, 1, 1, 1, 1]
    assert runtime.flatten_one_level(5) is None
    assert runtime.flatten_one_level(None) == ((), None)
    assert runtime.flatten_one_level({"b": 1, "a": 2}) == ((2, 1), ("a", "b"))
    assert runtime.flatten_one_level(Pair(1, 2)) == ((1, 2), "aux")
    assert runtime.flatten_one_level(Config(1, 2)) == ((1, 2), ("layer",))
    assert runtime.flatten_one_level(Point(1, 2)) == ((1, 2), Point)


# ---- tree_map ----


def test_tree_map() -> None:
    tree = {"a": 1, "b": (2, None)}
    assert runtime.tree_map(lambda x, y: (x, y), tree, {"a": [1], "b": (None, None)}) == {
        "a": (1, [1]),
        "b": ((2, None), None),
    }
    assert runtime.tree_map(f=lambda x: -x, tree=tree) == {"a": -1, "b": (-2, None)}
    assert runtime.tree_map(lambda x: 0, tree, is_leaf=lambda x: isinstance(x, tuple)) == {"a": 0, "b": 0}
    with pytest.raises(ZeroDivisionError):
        runtime.tree_map(lambda x: 1 / 0, tree)
    for bad in ((), (abs,), (5, tree), (abs, tree, 5)):
        with pytest.raises((TypeError, ValueError)):
            runtime.tree_map(*bad)
    with pytest.raises(TypeError, match="is_leaf"):
        runtime.tree_map(abs, tree, is_leaf=5)
    with pytest.raises(TypeError, match="colour"):
        runtime.tree_map(abs, tree, colour=5)


# ---- bad input ----


def test_unsortable_keys() -> None:
    for tree in ({1: 2, "a": 3}, defaultdict(list, {1: 2, "a": 3})):
        with pytest.raises(
            ValueError, match="Comparator raised exception while sorting pytree dictionary keys"
        ) as caught:
            runtime.tree_flatten(tree)
        assert isinstance(caught.value.__cause__, TypeError)


def test_deep_and_cyclic_trees() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    for tree in (deep, cyclic):
        for function in (runtime.tree_flatten, runtime.tree_leaves, lambda t: runtime.tree_map(abs, t)):
            with pytest.raises(RecursionError, match="PyTree may have cyclical node references"):
                function(tree)
    while deep:
        deep = deep.pop()


def test_bad_predicates() -> None:
    with pytest.raises(ZeroDivisionError):
        runtime.tree_flatten((1, 2), is_leaf=lambda x: 1 / 0)
    with pytest.raises(ValueError, match="non-boolean value 'a'"):
        runtime.tree_flatten((1, 2), is_leaf=lambda x: "a")
    with pytest.raises(TypeError):
        runtime.tree_flatten((1, 2), is_leaf=5)


@pytest.mark.parametrize(
    ("flattened", "error", "text"),
    [
        (5, ValueError, "should return a (children, aux_data) tuple, got 5"),
        (([1], None, 3), ValueError, "should return a (children, aux_data) tuple, got ([1], None, 3)"),
        ((5, None), ValueError, "where 'children' is iterable, got (5, None)"),
    ],
)
def test_bad_flatten_functions(flattened: Any, error: type[Exception], text: str) -> None:
    class Bad:
        pass

    runtime.register_node(Bad, lambda _: flattened, lambda *_: None)
    with pytest.raises(error) as caught:
        runtime.tree_flatten([Bad()])
    assert text in str(caught.value)


def test_bad_registrations() -> None:
    for again in (Pair, list, dict, tuple, type(None), OrderedDict, Config):
        with pytest.raises(ValueError, match=r"Duplicate custom PyTreeDef type registration for <class"):
            runtime.register_node(again, *_PAIR)
    for bad in ((5, *_PAIR), (type("New", (), {}), 1, 2), (type("New", (), {}), None, None), ()):
        with pytest.raises(TypeError):
            runtime.register_node(*bad)
    for fields in (([1], []), (5, []), ([], None)):
        with pytest.raises(TypeError):
            runtime.register_dataclass_node(type("New", (), {}), *fields)


def test_containers_that_change_while_flattened() -> None:
    tree: dict[str, Any] = {"a": [1, 2, 3], "b": 2, "c": [4]}

    def clear_everything(node: Any) -> bool:
        if node == 1:
            tree["a"].clear()
            tree.clear()
        return False

    assert runtime.tree_leaves(tree, is_leaf=clear_everything) == [1, 2, 3, 2, 4]

    class Vengeful(str):
        def __lt__(self, other: Any) -> bool:
            victim.clear()
            return str(self) < str(other)

        __hash__ = str.__hash__

    victim = {Vengeful("b"): 1, Vengeful("a"): 2}
    with pytest.raises(KeyError):
        runtime.tree_flatten(victim)


@pytest.mark.parametrize(
    "parts",
    [
        (5, []),
        ((tuple,), []),
        ((5, None), []),
        ((int, None), []),
        ((tuple, None), [5]),
        ((tuple, None), 5),
        ((dict, ["a"]), []),
        ((dict, None), []),
        (None, [runtime.tree_structure(1)]),
        ((type(None), None), [runtime.tree_structure(1)]),
    ],
    ids=repr,
)
def test_bad_parts(parts: tuple[Any, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        runtime.PyTreeDef.from_node_data_and_children(*parts)


def test_auxiliary_data_that_does_not_fit() -> None:
    leaf = runtime.tree_structure(1)
    for kind, data in (
        (OrderedDict, None),
        (OrderedDict, ("a", "b")),
        (defaultdict, ("a",)),
        (Config, None),
        (Config, ()),
    ):
        treedef = runtime.PyTreeDef.from_node_data_and_children((kind, data), [leaf])
        with pytest.raises(ValueError, match="tree_unflatten"):
            treedef.unflatten([1])
    unhashable = runtime.PyTreeDef.from_node_data_and_children((dict, [[]]), [leaf])
    with pytest.raises(TypeError):
        unhashable.unflatten([1])


@pytest.mark.parametrize(
    "state",
    [
        5,
        [],
        [5],
        [(1, tuple, None)],
        [(0, None, None), (0, None, None)],
        [(2**62, list, None)],
        [(-5, list, 3), (0, 5, 5)],
    ],
    ids=repr,
)
def test_damaged_pickles(state: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        runtime.PyTreeDef._from_state(state)


def test_bad_methods() -> None:
    treedef = runtime.tree_structure((1, 2))
    calls: list[Callable[[], Any]] = [
        runtime.PyTreeDef,
        lambda: object.__new__(runtime.PyTreeDef),
        lambda: treedef.unflatten(5),
        lambda: treedef.compose(5),
        lambda: treedef.walk(1, 2, 3),
        lambda: treedef.walk(1, None, [1, 2]),
        lambda: runtime.tree_unflatten((1, 2), treedef),
        lambda: runtime.tree_flatten(),
        lambda: runtime.treedef_tuple([5]),
        lambda: runtime.is_node(5),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()


# ---- memory ----


def test_cycles_through_auxiliary_data_are_collected() -> None:
    class Holder:
        alive = 0

        def __init__(self) -> None:
            Holder.alive += 1
            self.treedef: Any = None

        def __del__(self) -> None:
            Holder.alive -= 1

    for _ in range(10):
        holder = Holder()
        holder.treedef = runtime.tree_structure(Pair(1, 2, holder))
    del holder
    gc.collect()
    assert Holder.alive == 0


def test_a_hundred_thousand_calls_leak_nothing() -> None:
    tree = {
        "a": [1, (2, None)],
        "b": Point(3, Pair(4, 5)),
        "c": Config(6, OrderedDict(z=7)),
        "d": defaultdict(list, q=1),
    }
    wrong = {"a": 1}

    def once() -> None:
        leaves, treedef = runtime.tree_flatten(tree)
        treedef.unflatten(leaves)
        runtime.tree_map(lambda x, y: x, tree, tree)
        treedef.children()
        treedef.compose(treedef)
        repr(treedef)
        for call in (lambda: treedef.flatten_up_to(wrong), lambda: runtime.tree_map(lambda x: {}[x], tree)):
            with pytest.raises((ValueError, KeyError)):
                call()

    for _ in range(500):
        once()
    gc.collect()
    blocks, native = python_blocks(), native_bytes()
    for _ in range(12_000):  # eight or more native calls each
        once()
    gc.collect()
    assert python_blocks() - blocks < 500
    assert native_bytes() - native < 1 << 19
