"""weft.api_util: functions of trees as functions of leaves, and what is known of their arguments, under JAX's names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft import runtime, tree_util
from weft.core.programs.jaxpr import DebugInfo
from weft.dispatch.calls import function_names, signature
from weft.extend import linear_util as lu
from weft.extend.core import shaped_abstractify

__all__ = [
    "argnums_partial", "debug_info", "donation_vector", "flatten_axes", "flatten_fun", "flatten_fun_nokwargs",
    "fun_signature", "fun_sourceinfo", "is_hashable", "rebase_donate_argnums", "resolve_kwargs", "safe_map",
    "shaped_abstractify",
]  # fmt: skip


# -- functions of leaves ----------------------------------------------------------------------------------------------


@lu.transformation_with_aux2
def flatten_fun(f: Callable[..., Any], store: lu.Store, in_tree: Any, *args_flat: Any) -> list[Any]:
    """A ``WrappedFun`` of (args, kwargs) as one of their leaves; the second value is the structure of the result.

    >>> from weft.extend import linear_util as lu
    >>> leaves, tree = weft.tree.flatten(((1, [2, 3]), {}))
    >>> f, out_tree = weft.api_util.flatten_fun(lu.wrap_init(lambda x, y: {"a": x, "b": y}), tree)
    >>> f.call_wrapped(*leaves), out_tree()
    ([1, 2, 3], PyTreeDef({'a': *, 'b': [*, *]}))
    """
    args, kwargs = runtime.tree_unflatten(in_tree, list(args_flat))
    leaves, out_tree = runtime.tree_flatten(f(*args, **kwargs))
    store.store(out_tree)
    return leaves


@lu.transformation_with_aux2
def flatten_fun_nokwargs(f: Callable[..., Any], store: lu.Store, in_tree: Any, *args_flat: Any) -> list[Any]:
    """As ``flatten_fun``, for a structure of positional arguments alone."""
    leaves, out_tree = runtime.tree_flatten(f(*runtime.tree_unflatten(in_tree, list(args_flat))))
    store.store(out_tree)
    return leaves


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """``list(map(f, *args))`` of sequences of one length; ValueError if the lengths differ."""
    columns = [list(arg) for arg in args]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"safe_map() arguments have different lengths: {[len(column) for column in columns]}")
    return list(map(f, *columns))


# -- positions of arguments -------------------------------------------------------------------------------------------


class _Static:
    """A static argument in a cache key: equal if type and value are."""

    __slots__ = ("val",)

    def __init__(self, val: Any) -> None:
        self.val = val

    def __hash__(self) -> int:
        return hash(self.val)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and type(self.val) is type(other.val) and self.val == other.val


class _Unhashable:
    """A fixed argument that is compared by identity."""

    __slots__ = ("val",)

    def __init__(self, val: Any) -> None:
        self.val = val


def is_hashable(arg: Any) -> bool:
    """Whether a value can be a key."""
    try:
        hash(arg)
    except TypeError:
        return False
    return True


def argnums_partial(
    f: lu.WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[lu.WrappedFun, tuple[Any, ...]]:
    """(``f`` of the arguments at ``dyn_argnums`` alone, those arguments); the others are fixed.

    ValueError for a position that does not exist, and for an unhashable fixed argument unless it may be one.
    """
    numbers = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    count = len(args)
    for number in numbers:
        if not -count <= number < count:
            raise ValueError(
                "Positional argument indices, e.g. for `static_argnums`, must have value greater than or equal to "
                f"-len(args) and less than len(args), but got value {number} for len(args) == {count}."
            )
    indices = tuple([number % count for number in numbers])
    fixed = []
    for index, arg in enumerate(args):
        if index in indices:
            continue
        if require_static_args_hashable and not is_hashable(arg):
            raise ValueError(
                "Non-hashable static arguments are not supported, as this can lead to unexpected cache-misses. Static "
                f"argument (index {index}) of type {type(arg)} for function {f.__name__} is non-hashable."
            )
        fixed.append(_Static(arg) if require_static_args_hashable else _Unhashable(arg))
    return _with_fixed(f, indices, tuple(fixed)), tuple([args[index] for index in indices])


@lu.transformation2
def _with_fixed(
    f: Callable[..., Any], indices: tuple[int, ...], fixed: tuple[Any, ...], *given: Any, **kwargs: Any
) -> Any:
    moving, others = dict(zip(indices, given, strict=True)), iter(fixed)
    count = len(indices) + len(fixed)
    return f(*[moving[index] if index in moving else next(others).val for index in range(count)], **kwargs)


@functools.lru_cache(maxsize=1024)
def donation_vector(
    donate_argnums: tuple[int, ...], donate_argnames: tuple[str, ...], in_tree: Any, kws: bool = True
) -> tuple[bool, ...]:
    """For each leaf of (args, kwargs) whether the argument it belongs to is donated."""
    flags: list[bool] = []
    for index, child in enumerate((in_tree.children()[0] if kws else in_tree).children()):
        flags += [index in donate_argnums] * child.num_leaves
    if kws:
        kwargs_tree = in_tree.children()[1]
        for name, child in zip(kwargs_tree.node_data()[1], kwargs_tree.children(), strict=True):
            flags += [name in donate_argnames] * child.num_leaves
    return tuple(flags)


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]) -> tuple[int, ...]:
    """The positions of donated arguments among those that are not static; ValueError if an argument is both.

    >>> weft.api_util.rebase_donate_argnums((3, 4), (0, 1))
    (1, 2)
    """
    donated, static = sorted(set(donate_argnums)), sorted(set(static_argnums))
    if set(donated) & set(static):
        raise ValueError(f"`static_argnums` {static} and `donate_argnums` {donated} cannot intersect.")
    return tuple([number - sum(other < number for other in static) for number in donated])


def resolve_kwargs(fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, defaults filled in; TypeError for those that can be given by keyword only."""
    found = signature.signature_of(fun)
    if found is None or isinstance(fun, functools.partial):
        if kwargs:
            raise TypeError(f"{fun!r} has no signature by which keyword arguments could be resolved to positions")
        return tuple(args)
    bound = found.bind(*args, **kwargs)
    bound.apply_defaults()
    by_keyword = [name for name in bound.kwargs if name in kwargs]
    if by_keyword:
        raise TypeError(f"The following keyword arguments could not be resolved to positions: {', '.join(by_keyword)}")
    return bound.args


# -- trees of axes ----------------------------------------------------------------------------------------------------


def flatten_axes(name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False) -> list[Any]:
    """The axis of each leaf of a structure: ``axis_tree`` is a tree of ints and Nones that is a prefix of it.

    ValueError, which names the node, if it is no prefix.

    >>> weft.api_util.flatten_axes("in_axes", weft.tree.structure((1, [2, 3])), (0, None))
    [0, None, None]
    """
    whole = runtime.tree_unflatten(treedef, [object() for _ in range(treedef.num_leaves)])
    try:
        return tree_util.broadcast_prefix(axis_tree, whole, is_leaf=lambda x: x is None)
    except ValueError as error:
        hint = ""
        if tupled_args:
            hint = (
                f" Note that {name} that are non-trivial pytrees should always be wrapped in a tuple representing the "
                "argument list."
            )
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value;{hint}\n{error}"
        ) from None


# -- what is known of a function --------------------------------------------------------------------------------------


def fun_signature(fun: Callable[..., Any]) -> Any:
    """The signature, or None for callables that have none (some builtins)."""
    return signature.signature_of(fun)


def fun_sourceinfo(fun: Callable[..., Any]) -> str:
    """``f at file.py:12``."""
    return function_names.source_of(fun)


def debug_info(
    traced_for: str,
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    result_paths_thunk: Any = None,
    sourceinfo: str | None = None,
    signature: Any = None,
) -> DebugInfo:
    """What error texts say of a traced function: where it is defined, and the path of each argument leaf.

    >>> weft.api_util.debug_info("jit", lambda x, y: x, (1, {"k": 2}), {}).arg_names
    ('x', "y['k']")
    """
    known = getattr(fun, "__fun_debug_info__", None)
    if known is not None:
        return known
    names = functools.partial(_argument_names, fun, tuple(args), kwargs, tuple(static_argnums), tuple(static_argnames))
    paths: Any = result_paths_thunk if callable(result_paths_thunk) else None
    return DebugInfo(traced_for, sourceinfo or fun_sourceinfo(fun), names, paths)


def _argument_names(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], static_argnums: tuple[int, ...], static_names: Any
) -> list[str]:
    count = len(args)
    indices = sorted({number % count for number in static_argnums if -count <= number < count})
    statics = [(index, args[index]) for index in indices] + [(n, kwargs[n]) for n in static_names if n in kwargs]
    traced = tuple([arg for index, arg in enumerate(args) if index not in indices])
    named = {name: value for name, value in kwargs.items() if name not in static_names}
    return signature.leaf_paths(fun, signature.Call(traced, named, tuple(statics), count))
