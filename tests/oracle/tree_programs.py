"""Uses of pytrees that run alike on ``jax`` and ``weft``: each gives a value, or the text of an error."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pickle
from collections.abc import Callable
from typing import Any

Point = collections.namedtuple("Point", "x y")


class Containers:
    """Classes registered with one library's registry."""

    def __init__(self, tu: Any) -> None:
        class Plain:
            def __init__(self, a: Any, b: Any) -> None:
                self.a, self.b = a, b

            def __repr__(self) -> str:
                return f"Plain({self.a},{self.b})"

        class Keyed(Plain):
            pass

        class Methods:
            def __init__(self, a: Any) -> None:
                self.a = a

            def tree_flatten(self) -> tuple:
                return (self.a,), None

            @classmethod
            def tree_unflatten(cls, metadata: Any, children: Any) -> Any:
                return cls(*children)

            def __repr__(self) -> str:
                return f"Methods({self.a})"

        @dataclasses.dataclass
        class Data:
            x: Any
            m: int = 3

        @dataclasses.dataclass
        class Declared:
            x: Any
            y: Any = 2
            m: int = dataclasses.field(default=4, metadata={"static": True})

        class Constant:
            def __eq__(self, other: object) -> bool:
                return type(self) is type(other)

            def __hash__(self) -> int:
                return 1

            def __repr__(self) -> str:
                return "Constant()"

        tu.register_pytree_node(Plain, lambda c: ((c.a,), c.b), lambda b, children: Plain(*children, b))
        tu.register_pytree_with_keys(
            Keyed, lambda c: (((tu.GetAttrKey("a"), c.a),), c.b), lambda b, children: Keyed(*children, b)
        )
        tu.register_pytree_node_class(Methods)
        tu.register_dataclass(Data, data_fields=["x"], meta_fields=["m"])
        tu.register_dataclass(Declared)
        tu.register_static(Constant)
        self.all = (Plain, Keyed, Methods, Data, Declared, Constant)
        plain, keyed, methods, data, declared, constant = self.all
        self.everything = {
            "a": Point(1, plain(2, 3)),
            "b": [keyed(4, 5), methods(6), data(7), declared(8, 9), constant(), None],
            "c": (collections.OrderedDict(z=1, y=2), collections.defaultdict(list, q=1), (), [], {}),
        }


def structures(tu: Any, tree: Any, containers: Containers) -> list[Callable[[], Any]]:
    """Flattening, structures, paths."""
    everything = containers.everything
    nested = tu.tree_structure({"a": (1, 2)})
    return [
        lambda: tu.tree_structure(everything),
        lambda: tu.tree_leaves(everything),
        lambda: tree.flatten([1, [2, 3]], is_leaf=lambda x: x == [2, 3]),
        lambda: tu.tree_flatten({1: 2, "a": 3}),
        lambda: tu.tree_leaves_with_path(everything),
        lambda: [tu.keystr(path) for path, _ in tu.tree_leaves_with_path(everything)],
        lambda: [tu.keystr(path, simple=True, separator="/") for path, _ in tree.leaves_with_path(everything)],
        lambda: tree.leaves_with_path([1, (2, 3)], is_leaf=lambda p, x: len(p) == 1, is_leaf_takes_path=True),
        lambda: tu.tree_flatten_with_path(None),
        lambda: tu.tree_unflatten(tu.tree_structure((1, 2)), [1]),
        lambda: tu.tree_unflatten(tu.tree_structure((1, 2)), [1, 2, 3]),
        lambda: tu.tree_structure((1, 2)).flatten_up_to((1,)),
        lambda: tu.tree_structure((1, 2)).flatten_up_to([1, 2]),
        lambda: tu.tree_structure({"a": 1}).flatten_up_to({"b": 1}),
        lambda: [tu.all_leaves(items) for items in ([1, 2], [1, (2,)], [None], [])],
        lambda: tu.treedef_is_leaf(tu.tree_structure(1)),
        lambda: tu.treedef_is_leaf(tu.tree_structure(None)),
        lambda: tu.treedef_children(tu.tree_structure((1, [2]))),
        lambda: tu.treedef_tuple([tu.tree_structure(1), tu.tree_structure([1])]),
        lambda: list(tu.flatten_one_level({"b": 1, "a": 2})[0]),
        lambda: tu.flatten_one_level(1),
        lambda: tu.flatten_one_level(None),
        lambda: list(tu.flatten_one_level_with_keys((1, 2))[0]),
        lambda: [tu.is_tree_node(kind) for kind in (dict, int, Point, list, type(None))],
        lambda: pickle.loads(pickle.dumps(nested)) == nested,
        lambda: nested.compose(tu.tree_structure([1])),
        lambda: (nested.num_nodes, nested.num_leaves, nested.node_data(), nested.children()),
        lambda: nested.unflatten([1, 2]),
        lambda: hash(nested) == hash(tu.tree_structure({"a": (3, 4)})),
        lambda: nested != tu.tree_structure({"a": [3, 4]}),
    ]


def maps(tu: Any, tree: Any, containers: Containers) -> list[Callable[[], Any]]:
    """Mapping, reducing, transposing, and where trees differ."""
    everything = containers.everything

    def first(x: Any, y: Any) -> Any:
        return x

    mismatches = [
        ((1, 2), (1, 2, 3)), ({"a": 1}, {"b": 1}), ((1, (2, 3)), (1, 2)), ([1, 2], (1, 2)),
        ({"a": (1, 2)}, {"a": (1, 2, 3)}), ({"a": [1, {"c": 2}]}, {"a": [1, {"d": 2}]}), ({"a": None}, {"a": 1}),
        ({"a": 1}, {"a": None}), ({"a": [1]}, 3), (Point(1, 2), (1, 2)),
    ]  # fmt: skip

    def transpose(outer: Any, inner: Any) -> Any:
        structure = None if inner is None else tu.tree_structure(inner)
        return tu.tree_transpose(tu.tree_structure(outer), structure, [{"a": 1}, {"a": 2}])

    return [
        lambda: tu.tree_map(lambda x: x * 2, everything),
        lambda: tree.map(lambda x: x, [1, None], is_leaf=lambda x: x is None),
        lambda: tu.tree_map_with_path(lambda p, x: (tu.keystr(p), x), everything),
        lambda: tree.map_with_path(lambda p, x, y: (p, x, y), [1, 2], [3, (4, 5)]),
        lambda: tree.map_with_path(lambda p, x, y: (p, x, y), [1, 2], [3, 4, 5]),
        *[functools.partial(tu.tree_map, first, one, other) for one, other in mismatches],
        lambda: transpose([0, 0], {"a": 0}),
        lambda: transpose([0, 0], None),
        lambda: transpose([0, 0], {"b": 0}),
        lambda: transpose([0, 0, 0], None),
        lambda: tu.tree_reduce(lambda a, b: a + b, [1, 2, (3,)]),
        lambda: tu.tree_reduce(lambda a, b: a + b, []),
        lambda: tu.tree_reduce(lambda a, b: a + b, [1, 2], 10),
        lambda: tree.reduce_associative(lambda a, b: f"({a}{b})", [1, 2, 3, 4, 5]),
        lambda: tree.reduce_associative(lambda a, b: a + b, []),
        lambda: tree.reduce_associative(lambda a, b: a + b, [], identity=0),
        lambda: (tu.tree_all([1, [True, 0]]), tree.all([])),
        lambda: tree.broadcast((1, 2), ({"a": 3, "b": 4}, 5)),
        lambda: tree.broadcast((1, 2), ({"a": 3, "b": 4}, 5, 6)),
    ]


def registrations(tu: Any, tree: Any, containers: Containers) -> list[Callable[[], Any]]:
    """Keys, dataclasses, Partial."""

    @dataclasses.dataclass
    class Pair:
        x: int
        y: int

    partial = tu.Partial(containers.all[0], 1, b=5)
    keys = [tu.SequenceKey(1), tu.DictKey("a"), tu.GetAttrKey("n"), tu.FlattenedIndexKey(3)]
    return [
        lambda: [(repr(key), str(key), hash(key) == hash(key), key == keys[1]) for key in keys],
        lambda: (keys[0].idx, keys[1].key, keys[2].name, keys[3].key),
        lambda: tu.register_dataclass(Pair, data_fields=["x"], meta_fields=[]),
        lambda: tu.register_dataclass(Pair, data_fields=["x"], meta_fields=["z", "y"]),
        lambda: tu.register_dataclass(Pair, data_fields=["x"]),
        lambda: tu.register_dataclass(int),
        lambda: tu.register_dataclass(Pair, ["x", "y"], ["x"]),
        lambda: tu.tree_leaves(partial),
        lambda: tu.tree_map(lambda x: x + 1, partial)(),
        lambda: tu.Partial(partial, 3).args,
        lambda: tu.tree_leaves(tu.Partial(functools.partial(max, 1), 2)),
        lambda: repr(tu.Partial(max, 1, k=2)),
        lambda: tu.tree_structure(partial) == tu.tree_structure(tu.Partial(partial.func, 2, b=1)),
        lambda: tu.tree_leaves_with_path(tu.Partial(max, 1, k=2)),
        lambda: tree.static(default=3).metadata["static"],
    ]
