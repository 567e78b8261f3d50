"""Pytrees: nested containers as values, under JAX's names.

    leaves, treedef = tree_flatten({"a": 1, "b": (2, None)})    [1, 2], PyTreeDef({'a': *, 'b': (*, None)})
    tree_unflatten(treedef, leaves)                             the same tree again

Flattening, unflattening and mapping are native (``weft.runtime``); here are the key paths, the registration of
classes, and the errors that say at which key path two trees differ. Dictionaries are flattened in key order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from weft import runtime
from weft._base import lazy
from weft._base.record import Record
from weft.runtime import PyTreeDef as PyTreeDef

T = TypeVar("T")
KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]
Leaf = Any
IsLeaf = Callable[..., bool] | None
_MISSING = object()


# -- key paths --------------------------------------------------------------------------------------------------------


class SequenceKey(Record):
    """The position of a child in a list or tuple; printed ``[0]``."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class DictKey(Record):
    """The key of a child in a dictionary; printed ``['name']``."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class GetAttrKey(Record):
    """The attribute in which a child is held; printed ``.name``."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


class FlattenedIndexKey(Record):
    """The position of a child whose class names no keys; printed ``[<flat index 0>]``."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


runtime.set_key_types(SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey)


def _simple_key(entry: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """A key path as text: ``['a'][0].x``, or with ``simple`` the bare keys joined by ``separator``."""
    return separator.join([_simple_key(key) if simple else str(key) for key in keys])


# -- flattening -------------------------------------------------------------------------------------------------------


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Leaf], PyTreeDef]:
    """The leaves of a tree in order, and its structure."""
    return runtime.tree_flatten(tree, is_leaf)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Leaf]) -> Any:
    """The tree of a structure with the given leaves."""
    return runtime.tree_unflatten(treedef, leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Leaf]:
    """The leaves of a tree in order."""
    return runtime.tree_leaves(tree, is_leaf)


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of a tree."""
    return runtime.tree_structure(tree, is_leaf)


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Leaf]], PyTreeDef]:
    """The (key path, leaf) pairs of a tree in order, and its structure."""
    return runtime.tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def tree_leaves_with_path(
    tree: Any, is_leaf: IsLeaf = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Leaf]]:
    """The (key path, leaf) pairs of a tree in order."""
    return runtime.tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether no item is a container."""
    return runtime.all_leaves(iterable, is_leaf)


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is a single node: a leaf, or None."""
    return treedef.num_nodes == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the children of a structure's root."""
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees."""
    return runtime.treedef_tuple(list(treedefs))


def is_tree_node(typ: type) -> bool:
    """Whether values of exactly this type are containers."""
    return runtime.is_node(typ)


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """The children of a container and its metadata; ValueError for a leaf."""
    flat = runtime.flatten_one_level(tree)
    if flat is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return flat


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """The (key, child) pairs of a container and its metadata; ValueError for a leaf."""
    flat = runtime.flatten_one_level_with_keys(tree)
    if flat is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return flat


# -- mapping and reducing ---------------------------------------------------------------------------------------------


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree of ``f(leaf, ...)``; further trees may continue below the leaves of the first."""
    return runtime.tree_map(f, tree, *rest, is_leaf=is_leaf)


def tree_map_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None, is_leaf_takes_path: bool = False
) -> Any:
    """The tree of ``f(key path, leaf, ...)``."""
    pairs, treedef = runtime.tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = []
    for other in rest:
        try:
            columns.append(treedef.flatten_up_to(other))
        except ValueError:
            raise_prefix_error(tree, other, "tree_map_with_path tree", None if is_leaf_takes_path else is_leaf)
            raise
    return treedef.unflatten([f(path, leaf, *others) for (path, leaf), *others in zip(pairs, *columns)])


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any) -> Any:
    """A tree of trees turned inside out: ``[{'a': 1}, {'a': 2}]`` becomes ``{'a': [1, 2]}``."""
    parts = outer_treedef.flatten_up_to(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(parts[0] if parts else None)
    n_inner, n_outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    leaves, treedef = tree_flatten(pytree_to_transpose)
    if treedef.num_leaves != n_inner * n_outer:
        expected = outer_treedef.compose(inner_treedef)
        raise TypeError(f"Mismatch\n{treedef}\n != \n{expected}")
    columns = [outer_treedef.unflatten(leaves[index::n_inner]) for index in range(n_inner)]
    return inner_treedef.unflatten(columns)


def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves from the left."""
    leaves = tree_leaves(tree, is_leaf)
    if initializer is _MISSING:
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """Combine the leaves pairwise, so that the longest chain of operations is logarithmic."""
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if identity is _MISSING:
            raise TypeError("Must specify identity for parallel reduction of empty sequence.")
        return identity
    return _reduce_halves(operation, leaves)


def _reduce_halves(operation: Callable[[Any, Any], Any], leaves: list[Any]) -> Any:
    if len(leaves) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    return operation(_reduce_halves(operation, leaves[:middle]), _reduce_halves(operation, leaves[middle:]))


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves are true."""
    return all(tree_leaves(tree, is_leaf))


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """``full_tree``'s structure, each subtree filled with the leaf of the prefix above it."""
    leaves = broadcast_prefix(prefix_tree, full_tree, is_leaf)
    return tree_unflatten(tree_structure(full_tree, is_leaf), leaves)


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Leaf]:
    """For each leaf of the full tree the leaf of the prefix above it; ``is_leaf`` is asked of the prefix only."""
    leaves, treedef = tree_flatten(prefix_tree, is_leaf)
    try:
        subtrees = treedef.flatten_up_to(full_tree)
    except ValueError:
        raise_prefix_error(prefix_tree, full_tree, "broadcast_prefix prefix_tree", is_leaf)
        raise
    filled: list[Leaf] = []
    for leaf, subtree in zip(leaves, subtrees):
        filled.extend([leaf] * tree_structure(subtree).num_leaves)
    return filled


# -- where two trees differ -------------------------------------------------------------------------------------------


def raise_prefix_error(prefix: Any, full: Any, name: str, is_leaf: IsLeaf = None) -> None:
    """Raise ValueError naming the first key path at which ``prefix`` is no prefix of ``full``, if there is one."""
    message = _difference(prefix, full, name, (), is_leaf)
    if message is not None:
        raise ValueError(message)


def _difference(prefix: Any, full: Any, name: str, path: KeyPath, is_leaf: IsLeaf) -> str | None:
    if (is_leaf is not None and is_leaf(prefix)) or not runtime.is_node(type(prefix)):
        return None
    where = f"{name}{keystr(path)}"
    if type(prefix) is not type(full):
        return (
            f"pytree structure error: different types at key path\n    {where}\n"
            f"At that key path, the prefix pytree {name} has a subtree of type\n    {type(prefix)}\n"
            f"but at the same key path the full pytree has a subtree of different type\n    {type(full)}."
        )
    children, metadata = flatten_one_level_with_keys(prefix)
    full_children, full_metadata = flatten_one_level_with_keys(full)
    children, full_children = list(children), list(full_children)
    metadata_differ = metadata != full_metadata
    if len(children) != len(full_children) and isinstance(prefix, (list, tuple)):
        kind = type(prefix).__name__
        return (
            f"pytree structure error: different lengths of {kind} at key path\n    {where}\n"
            f"At that key path, the prefix pytree {name} has a subtree of type {kind} of length {len(children)}, "
            f"but the full pytree has a subtree of the same type but of length {len(full_children)}."
        )
    if metadata_differ:
        return _metadata_difference(where, name, type(prefix), metadata, full_metadata)
    if len(children) != len(full_children):
        return (
            f"pytree structure error: different numbers of pytree children at key path\n    {where}\n"
            f"At that key path, the prefix pytree {name} has a subtree of type\n    {type(prefix)}\n"
            f"with {len(children)} child{'' if len(children) == 1 else 'ren'}, but at the same key path the full "
            f"pytree has a subtree of the same type but with {len(full_children)} children."
        )
    for (key, child), (_, full_child) in zip(children, full_children):
        message = _difference(child, full_child, name, (*path, key), is_leaf)
        if message is not None:
            return message
    return None


def equality_errors(tree1: Any, tree2: Any, is_leaf: IsLeaf = None) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Where the structures of two trees differ: (key path, what the first has, what the second has, why)."""
    yield from _structure_differences((), tree1, tree2, is_leaf)


def _structure_differences(
    path: KeyPath, tree1: Any, tree2: Any, is_leaf: IsLeaf
) -> Iterator[tuple[KeyPath, str, str, str]]:
    if tree_structure(tree1, is_leaf) == tree_structure(tree2, is_leaf):
        return
    kinds = type(tree1), type(tree2)
    leaf1, leaf2 = (tree_structure(t, is_leaf).num_nodes == 1 and not _is_empty(t, is_leaf) for t in (tree1, tree2))
    if leaf1 or leaf2 or kinds[0] is not kinds[1]:
        yield path, str(kinds[0]), str(kinds[1]), "their Python types differ"
        return
    pairs1, metadata1 = flatten_one_level_with_keys(tree1)
    pairs2, metadata2 = flatten_one_level_with_keys(tree2)
    pairs1, pairs2 = list(pairs1), list(pairs2)
    if isinstance(tree1, dict) and [key for key, _ in pairs1] != [key for key, _ in pairs2]:
        keys1, keys2 = (f"{kinds[0].__name__} with keys {list(t)}" for t in (tree1, tree2))
        yield path, keys1, keys2, "their keys differ"
    elif len(pairs1) != len(pairs2):
        sizes = (f"{kinds[0].__name__} of length {len(pairs)}" for pairs in (pairs1, pairs2))
        yield path, *sizes, "the lengths do not match"  # type: ignore[misc]
    elif metadata1 != metadata2:
        yield (
            path,
            f"{kinds[0]} with pytree metadata {metadata1}",
            f"{kinds[1]} with pytree metadata {metadata2}",
            ("the pytree node metadata does not match"),
        )
    else:
        for (key, child1), (_, child2) in zip(pairs1, pairs2):
            yield from _structure_differences((*path, key), child1, child2, is_leaf)


def _is_empty(tree: Any, is_leaf: IsLeaf) -> bool:
    return tree_structure(tree, is_leaf).num_leaves == 0


def _metadata_difference(where: str, name: str, kind: type, metadata: Any, full_metadata: Any) -> str:
    ours, theirs = _as_shown(metadata), _as_shown(full_metadata)
    compared = lazy.difflib.ndiff(ours.splitlines(), theirs.splitlines())
    diff = "\n".join(f"    {line}" for line in compared)
    return (
        f"pytree structure error: different pytree metadata at key path\n    {where}\n"
        f"At that key path, the prefix pytree {name} has a subtree of type\n    {kind}\nwith metadata\n    {ours}\n"
        f"but at the same key path the full pytree has a subtree of the same type but with metadata\n    {theirs}\n"
        f"so the diff in the metadata at these pytree nodes is\n{diff}"
    )


def _as_shown(metadata: Any) -> str:
    return str(tuple(metadata) if isinstance(metadata, list) else metadata)


def _explain_mismatch(tree: Any, other: Any, is_leaf: IsLeaf, position: int) -> None:
    raise_prefix_error(tree, other, "tree_map tree", is_leaf)


runtime.set_mismatch_hook(_explain_mismatch)


# -- registering classes ----------------------------------------------------------------------------------------------


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None,
) -> None:
    """Make a class a container: ``flatten_func(node) -> (children, metadata)`` and back."""
    if not isinstance(nodetype, type):
        raise TypeError(f"[register_pytree_node] expects a class, got {nodetype!r}")
    if not callable(flatten_func) or not callable(unflatten_func):
        raise TypeError(f"[register_pytree_node] flatten_func and unflatten_func of {nodetype} must be callable")
    runtime.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Hashable]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]] | None = None,
) -> None:
    """Make a class a container whose children have keys, shown in key paths."""

    def flatten(node: T) -> tuple[Iterable[Any], Hashable]:
        pairs, metadata = flatten_with_keys(node)
        return tuple([child for _, child in pairs]), metadata

    register_pytree_node(nodetype, flatten_func or flatten, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: type[T]) -> type[T]:
    """Class decorator: a container through methods ``tree_flatten`` and (class method) ``tree_unflatten``."""
    register_pytree_node(cls, lambda node: node.tree_flatten(), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys_class(cls: type[T]) -> type[T]:
    """Class decorator: as register_pytree_node_class, with ``tree_flatten_with_keys``."""
    flatten = (lambda node: node.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(cls, lambda node: node.tree_flatten_with_keys(), cls.tree_unflatten, flatten)  # type: ignore[attr-defined]
    return cls


def register_static(cls: type[T]) -> type[T]:
    """Class decorator: instances are containers without children, compared by their own ``==``."""
    register_pytree_node(cls, lambda node: ((), node), lambda node, _: node)
    return cls


def register_dataclass(
    nodetype: type[T],
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> type[T]:
    """Make a dataclass a container of its data fields; meta fields belong to the structure.

    For a dataclass the fields may be left out: those declared with ``field(metadata=dict(static=True))`` are meta.
    """
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either is specified. "
            f"Got {data_fields=} {meta_fields=}."
        )
    if data_fields is None or meta_fields is None:
        if not lazy.dataclasses.is_dataclass(nodetype):
            raise TypeError(
                "register_dataclass: data_fields and meta_fields are required when nodetype is not a dataclass. "
                f"Got {nodetype=}."
            )
        fields = [f for f in lazy.dataclasses.fields(nodetype) if f.init and f.name not in drop_fields]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    _check_fields(nodetype, set(data_fields), set(meta_fields), set(drop_fields))
    runtime.register_dataclass_node(nodetype, tuple(data_fields), tuple(meta_fields))
    return nodetype


def _check_fields(nodetype: type, data: set[str], meta: set[str], dropped: set[str]) -> None:
    if data & meta:
        raise ValueError(f"data_fields and meta_fields must not overlap. Overlapping fields: {data & meta}.")
    if not lazy.dataclasses.is_dataclass(nodetype):
        return
    init_fields = {field.name for field in lazy.dataclasses.fields(nodetype) if field.init}
    complaint = "data_fields and meta_fields must include all dataclass fields with ``init=True`` and only them."
    if missing := init_fields - data - meta - dropped:
        raise ValueError(f"{complaint} Missing fields: {missing}. Add them to drop_fields to suppress this error.")
    if unexpected := (data | meta) - init_fields:
        raise ValueError(f"{complaint} Unexpected fields: {unexpected}.")


def static(**kwargs: Any) -> Any:
    """A dataclass field that ``register_dataclass`` makes part of the structure; takes ``dataclasses.field``'s."""
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return lazy.dataclasses.field(metadata=metadata, **kwargs)


class Partial(functools.partial):
    """``functools.partial`` as a container: its arguments are children, its function belongs to the structure.

    >>> tree_leaves(Partial(max, 1))
    [1]
    """

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **kw: Any) -> Partial:
        # functools.partial would merge the arguments of a partial it is given; they are no children of this one.
        return super().__new__(cls, _Opaque(func) if isinstance(func, functools.partial) else func, *args, **kw)


class _Opaque:
    """A functools.partial as a plain callable, equal to another one that holds the same object."""

    def __init__(self, function: functools.partial) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and self.function == other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.function)


register_pytree_node(
    Partial,
    lambda partial: ((partial.args, partial.keywords), partial.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)


class PyTreeRegistry:
    """The registry of container classes; there is one."""

    def flatten_one_level(self, tree: Any) -> Any:
        return runtime.flatten_one_level(tree)

    def flatten_one_level_with_keys(self, tree: Any) -> Any:
        return runtime.flatten_one_level_with_keys(tree)

    def flatten(self, tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Leaf], PyTreeDef]:
        return runtime.tree_flatten(tree, is_leaf)


default_registry = PyTreeRegistry()
