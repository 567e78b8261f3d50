"""Checks of a loop's state: the body must return the structure, shapes and dtypes that it was given.

``settled`` traces a body repeatedly until the types of its state no longer change. A weakly typed initial value (a
Python scalar) takes the dtype that the body returns; any other change of a type is an error that names the leaf and
both types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft._base.record import Record
from weft.control.bodies import Body, same_type, varying_axes
from weft.core import avals as avals_module
from weft.core.sharding import varying
from weft.dispatch.calls import signature
from weft.operations.pointwise import convert

_CATEGORIES = "biufVc"  # dtype kinds in the order in which weak types promote; V: bfloat16 and other small floats
STRUCTURE_CURE = "Revise the function so that the carry output has the same pytree structure as the carry input."
TYPE_CURE = "Revise the function so that all output types match the corresponding input types."


def settled(
    trace: Callable[[list[Any]], tuple[Body, Any, list[Any]]],
    values: list[Any],
    avals: list[Any],
    tree: Any,
    what: str,
    names: Callable[[], list[str]],
    own: bool = False,
) -> tuple[Body, list[Any]]:
    """(the body traced on the final types, the initial values converted to them).

    ``trace(avals)`` gives the body, the structure and the types of the state it returns. In loops of weft's ``own``
    functions, whose initial values are often constants, these vary along the mesh axes along which the state does.
    """
    body, out_tree, out_avals = trace(avals)
    check_structure(tree, out_tree, what, names)
    promoted = [_promoted(before, after) for before, after in zip(avals, out_avals, strict=True)]
    if any(not same_type(new, old) for new, old in zip(promoted, avals, strict=True)):
        values = [
            value if same_type(new, old) else convert.convert(value, new.dtype, new.weak_type)
            for value, new, old in zip(values, promoted, avals, strict=True)
        ]
        avals = promoted
        body, out_tree, out_avals = trace(avals)
        check_structure(tree, out_tree, what, names)
    while own and any(map(_more_axes, avals, out_avals)):  # ends: there are only so many axes
        values = [varying.widened(value, varying_axes(after)) for value, after in zip(values, out_avals, strict=True)]
        avals = [avals_module.get_aval(value) for value in values]
        body, out_tree, out_avals = trace(avals)
    check_types(avals, out_avals, what, names)
    return body, values


def _more_axes(before: Any, after: Any) -> bool:
    return not set(varying_axes(after)) <= set(varying_axes(before))


def _promoted(before: Any, after: Any) -> Any:
    """The type of a weakly typed initial value for which the body returned another dtype."""
    if same_type(before, after) or not before.weak_type or before.shape != after.shape or before.dtype == after.dtype:
        return before
    if _CATEGORIES.index(before.dtype.kind) > _CATEGORIES.index(after.dtype.kind):
        return before
    return before.update(dtype=after.dtype, weak_type=False)


def check_structure(before: Any, after: Any, what: str, names: Callable[[], list[str]]) -> None:
    """Raise TypeError if the structure of the state changed."""
    if before == after:
        return
    name = _common_name(names())
    lines = []
    for found in differences(before, after):
        at = f"component {name}{found.path}" if found.path else name
        lines.append(
            f"The input carry {at} is a {found.before} but the corresponding component of the carry output is a "
            f"{found.after}, so {found.why}."
        )
    raise TypeError(
        f"{what} carry input and carry output must have the same pytree structure, but they differ:\n\n"
        f"{listed(lines)}\n\n{STRUCTURE_CURE}"
    )


class Difference(Record):
    """A position at which two structures differ."""

    path: str
    before: str
    after: str
    why: str


def differences(before: Any, after: Any, path: str = "") -> list[Difference]:
    """The outermost positions at which two structures differ."""
    if before == after:
        return []
    kind, data = _node(before)
    new_kind, new_data = _node(after)
    if kind is not new_kind:
        return [Difference(path, _kind_text(kind), _kind_text(new_kind), "their Python types differ")]
    children, new_children = before.children(), after.children()
    if len(children) != len(new_children):
        why = "the numbers of children do not match"
        if kind is dict:
            why += f", with the symmetric difference of key sets: {set(data) ^ set(new_data)}"
        return [Difference(path, _counted(kind, children), _counted(kind, new_children), why)]
    if data != new_data:
        old, new = [f"{kind} with pytree metadata {_metadata(d)}" for d in (data, new_data)]
        return [Difference(path, old, new, "the pytree node metadata does not match")]
    found = []
    for index, pair in enumerate(zip(children, new_children, strict=True)):
        found += differences(*pair, f"{path}[{(data[index] if kind is dict else index)!r}]")
    return found


def _node(treedef: Any) -> tuple[Any, Any]:
    """(type, metadata) of the root of a structure; (None, None) for a leaf."""
    return treedef.node_data() or (None, None)


def _kind_text(kind: type | None) -> str:
    return "pytree leaf" if kind is None else str(kind)


def _counted(kind: type, children: Sequence[Any]) -> str:
    return f"{kind} with {len(children)} {'child' if len(children) == 1 else 'children'}"


def _metadata(data: Any) -> Any:
    return tuple(data) if isinstance(data, list) else data


def listed(lines: Sequence[str]) -> str:
    """A single line unchanged, several lines as a list."""
    return lines[0] if len(lines) == 1 else "\n".join(f"  * {line}" for line in lines)


def _common_name(names: Sequence[str]) -> str:
    """The argument's own name, from the paths of its leaves."""
    return names[0].split("[")[0].split(".")[0] if names else "carry"


def check_types(before: Sequence[Any], after: Sequence[Any], what: str, names: Callable[[], list[str]]) -> None:
    """Raise TypeError that names each leaf whose shape or dtype changed."""
    changed = [
        (index, old, new) for index, (old, new) in enumerate(zip(before, after, strict=True)) if not same_type(old, new)
    ]
    if not changed:
        return
    paths = names()
    lines = []
    for index, old, new in changed:
        path = paths[index] if index < len(paths) else f"carry[{index}]"
        named = f"component {path}" if len(before) > 1 else path
        lines.append(
            f"The input carry {named} has type {_long(old)} but the corresponding output carry component has type "
            f"{_long(new)}, so {difference(old, new)}."
        )
    cure = TYPE_CURE
    for _, old, new in changed:
        missing = tuple([name for name in varying_axes(new) if name not in varying_axes(old)])
        if missing:
            cure = f"Apply lax.pcast(..., {missing}, to='varying') to the initial value of that part of the carry."
    raise TypeError(
        f"{what} carry input and carry output must have equal types, but they differ:\n\n{listed(lines)}\n\n{cure}"
    )


def difference(old: Any, new: Any) -> str:
    """What makes two types differ: ``the shapes do not match``."""
    parts = []
    if old.dtype != new.dtype:
        parts.append("the dtypes do not match")
    if old.shape != new.shape:
        parts.append("the shapes do not match")
    if varying_axes(old) != varying_axes(new):
        parts.append("the mesh axes along which they vary do not match")
    return " and ".join(parts)


def _long(aval: Any) -> str:
    return avals_module.long_text(aval.strip_weak_type())


def argument_paths(function: Callable[..., Any], trees: tuple[Any, ...], first: int) -> Callable[[], list[str]]:
    """The paths of the leaves of argument ``first`` of a function, computed when an error needs them."""

    def names() -> list[str]:
        args = [runtime.tree_unflatten(tree, list(range(tree.num_leaves))) for tree in trees]
        paths = signature.leaf_paths(function, signature.Call(tuple(args), {}, (), len(args)))
        skipped = sum(tree.num_leaves for tree in trees[:first])
        return paths[skipped : skipped + trees[first].num_leaves]

    return names
