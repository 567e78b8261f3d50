"""The manifest of a checkpoint: the tree as JSON, a description of each leaf, and where two trees differ.

    {"a": x, "b": (y, None)}    {"dict": [["a", 0], ["b", {"tuple": [1, null]}]]}, descriptions of leaves 0 and 1

Dictionaries, lists, tuples and None are made again from the manifest. For other containers (named tuples, registered
classes) it has the name of the class and the keys of the children; a tree of the user's is the template from which
these are made. No class is ever looked up by its name, so that a manifest cannot run code.
"""

from __future__ import annotations

import collections
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft import runtime, tree_util
from weft._base.record import Record
from weft.checkpoints.folders import CheckpointError

FORMAT, VERSION = "weft.checkpoint", 1
Node = Any  # what stands for a container: {"dict": ...}, None, or the number of a leaf

_PLAIN: dict[type, str] = {list: "list", tuple: "tuple"}
_MAPPINGS: dict[type, str] = {dict: "dict", collections.OrderedDict: "OrderedDict"}


def at(path: Sequence[Any]) -> str:
    """A key path as errors name it."""
    return tree_util.keystr(path) or "the tree itself"


class Tree(Record):
    """The form of a tree in JSON, with the key path and the value of each leaf in order."""

    form: Node
    paths: list[tuple[Any, ...]]
    leaves: list[Any]


def taken_apart(tree: Any) -> Tree:
    """The form and the leaves of a tree."""
    found = Tree(None, [], [])
    return Tree(_form(tree, (), found), found.paths, found.leaves)


def _form(tree: Any, path: tuple[Any, ...], found: Tree) -> Node:
    if tree is None:
        return None
    kind = type(tree)
    if not runtime.is_node(kind):
        found.paths.append(path)
        found.leaves.append(tree)
        return len(found.leaves) - 1
    pairs = list(tree_util.flatten_one_level_with_keys(tree)[0])
    children = [_form(child, (*path, key), found) for key, child in pairs]
    if kind in _PLAIN:
        return {_PLAIN[kind]: children}
    if kind in _MAPPINGS:
        return {_MAPPINGS[kind]: [[_key(key.key), child] for (key, _), child in zip(pairs, children, strict=True)]}
    keys = [str(key) for key, _ in pairs]
    return {"node": kind.__qualname__, "children": [list(pair) for pair in zip(keys, children, strict=True)]}


def _key(key: Any) -> Any:
    """A key of a dictionary: JSON's own kinds as they are; another by its text, for comparisons alone."""
    return key if key is None or type(key) in (str, int, bool, float) else {"repr": repr(key)}


def rebuilt(form: Node, leaves: Sequence[Any], path: str = "") -> Any:
    """The tree of a form; ValueError at a container of a class that only the user's program knows."""
    if form is None:
        return None
    if isinstance(form, int):
        return leaves[form]
    ((kind, children), *_) = form.items()
    if kind in ("list", "tuple"):
        values = [rebuilt(child, leaves, f"{path}[{i}]") for i, child in enumerate(children)]
        return values if kind == "list" else tuple(values)
    if kind == "node" or any(isinstance(key, dict) for key, _ in children):
        what = f"a {form['node']}" if kind == "node" else "a dict with keys that are no texts or numbers"
        raise ValueError(
            f"[restore] the checkpoint has {what} at {path or 'the tree itself'}, which cannot be made without a "
            "template: give restore(path, like=...), a tree of the same classes whose leaves are arrays or "
            "ShapeDtypeStructs, such as weft.eval_shape(init, ...) gives"
        )
    made = [(key, rebuilt(child, leaves, f"{path}[{key!r}]")) for key, child in children]
    return dict(made) if kind == "dict" else collections.OrderedDict(made)


# -- where two trees differ -------------------------------------------------------------------------------------------


def matched(saved: Node, like: Node, partial: bool) -> list[int]:
    """For each leaf of ``like`` the number of the saved leaf; ValueError that names where the trees differ."""
    found: list[int] = []
    _match(saved, like, "", partial, found)
    return found


def _match(saved: Node, like: Node, path: str, partial: bool, found: list[int]) -> None:
    if isinstance(saved, int) and isinstance(like, int):
        found.append(saved)
        return
    if saved is None and like is None:
        return
    if _kind(saved) != _kind(like):
        raise _different(path, f"has {_shown(saved)}", f"has {_shown(like)}")
    own, asked = _children(saved), _children(like)
    lacking = [key for key in asked if key not in own]
    beside = [key for key in own if key not in asked]
    if lacking or (beside and not (partial and _kind(saved) in _MAPPINGS.values())):
        advice = ""
        if beside and not lacking and _kind(saved) in _MAPPINGS.values():
            advice = "; with partial=True entries of dictionaries may be left out of like"
        ours = f"has {', '.join(beside)} beside" if beside else "has nothing beside"
        theirs = f"has {', '.join(lacking)} beside" if lacking else "has nothing beside"
        raise _different(path, ours, theirs, advice)
    for key, child in asked.items():
        _match(own[key], child, path + key, partial, found)


def _different(path: str, saved: str, like: str, advice: str = "") -> ValueError:
    return ValueError(
        f"[restore] the trees differ at {path or 'the tree itself'}: the checkpoint {saved}, like {like}{advice}"
    )


def _kind(form: Node) -> str:
    if form is None or isinstance(form, int):
        return "None" if form is None else "leaf"
    return form["node"] if "node" in form else next(iter(form))


def _shown(form: Node) -> str:
    kind = _kind(form)
    return {"None": "None", "leaf": "a leaf"}.get(kind) or f"a {kind} with {len(_children(form))} children"


def _children(form: Node) -> dict[str, Node]:
    """The children of a container by the text of their keys."""
    if "node" in form:
        return dict(form["children"])
    ((kind, children),) = form.items()
    if kind in ("list", "tuple"):
        return {f"[{i}]": child for i, child in enumerate(children)}
    return {f"[{key['repr'] if isinstance(key, dict) else repr(key)}]": child for key, child in children}


# -- text -------------------------------------------------------------------------------------------------------------


def written(content: dict[str, Any]) -> str:
    """A manifest as text: a line of what it is, with a checksum, and the content."""
    body = json.dumps(content, allow_nan=False, separators=(",", ":"))
    head = {"format": FORMAT, "version": VERSION, "crc32": zlib.crc32(body.encode())}
    return f"{json.dumps(head)}\n{body}\n"


def read(text: str, file: Path) -> dict[str, Any]:
    """The content of a manifest; CheckpointError for another file, a newer version or a damaged one."""
    first, _, body = text.partition("\n")
    try:
        head = json.loads(first)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise CheckpointError(f"[restore] {file} is not the manifest of a checkpoint of weft")
    if head.get("version") != VERSION:
        raise CheckpointError(
            f"[restore] {file} has version {head.get('version')} of the format, and this release reads version "
            f"{VERSION}: restore it with the release that saved it, or with a newer one"
        )
    body = body.removesuffix("\n")
    if zlib.crc32(body.encode()) != head.get("crc32"):
        raise CheckpointError(f"[restore] {file} is damaged: its content is not what was written (checksum)")
    return json.loads(body)
