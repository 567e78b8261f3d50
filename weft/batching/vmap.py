"""vmap: makes a function of arrays from a function of their elements, without a loop.

vmap(lambda a, b: a @ b, in_axes=(0, None))(f32[8,3], f32[3,2])    one product f32[8,3] @ f32[3,2]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from weft import config, errors, runtime, tree_util
from weft._base import lazy
from weft.batching import batched_programs
from weft.batching.batch_trace import map_flat
from weft.core import avals
from weft.core.axis_names import Axis
from weft.core.ref_types import is_ref
from weft.core.symbolic.sizes import Size, whole
from weft.core.tracing import tracebacks
from weft.dispatch.calls import flat_functions, signature
from weft.dispatch.calls import jit as jit_module
from weft.operations import reductions
from weft.operations.mapped import Dim, at, repeated
from weft.operations.pointwise import convert

F = TypeVar("F", bound=Callable[..., Any])
refused: dict[type, Any] = {}  # types of values that libraries take apart by their own rules
_LOADED = batched_programs  # imported for the batching rules that it defines


def vmap(
    fun: F,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> F:
    """``fun`` applied to every slice of its arguments along the axes ``in_axes``, results stacked along ``out_axes``.

    ``in_axes``: an int, None (not mapped), or a tuple with one entry for each positional argument, an entry being a
    tree that is a prefix of the argument's. Keyword arguments are mapped along axis 0. ``out_axes`` likewise for the
    result. ``axis_size`` is needed only if nothing is mapped. ``axis_name`` is the name by which collectives in ``fun``
    (such as ``lax.psum``) refer to the mapped axis; ``spmd_axis_name`` names a mesh axis, along which the mapped axis
    lies in a ``shard_map`` inside. A result whose ``out_axes`` is None must be the same for all elements, or with
    ``sum_match`` is summed over them. ValueError for axes that do not exist or sizes that disagree, TypeError for axes
    that are not ints.

    >>> weft.vmap(jnp.dot, in_axes=(0, None))(jnp.arange(6.0).reshape(3, 2), jnp.ones(2)).tolist()
    [1.0, 5.0, 9.0]
    """
    jit_module.check_callable(fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, out_axes)

    @functools.wraps(fun)
    @tracebacks.boundary
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments "
                f"passed to the function, but got len(in_axes)={len(in_axes)}, len(args)={len(args)}"
            )
        leaves, in_tree = runtime.tree_flatten((args, kwargs))
        if refused:
            _check_refused((args, kwargs))
        dims = _in_dims(in_axes, args, kwargs)
        size = mapped_size(fun, args, kwargs, leaves, dims, axis_size)
        dims = [
            None if dim is None else dim % avals.get_aval(leaf).ndim for dim, leaf in zip(dims, leaves, strict=True)
        ]
        function = flat_functions.FlatFunction(lambda positional, named: fun(*positional, **named), in_tree)
        spmd = spmd_axis_name if spmd_axis_name is None or isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
        axis = Axis(size, axis_name, spmd)
        if any(map(is_ref, leaves)):
            outs, out_dims = lazy.discharge.map_with_refs(map_flat, function, axis, leaves, dims)
        else:
            outs, out_dims = map_flat(function, axis, leaves, dims)
        if config.read("check_tracer_leaks"):
            lazy.leaks.check()
        rows = enumerate(zip(outs, out_dims, _out_dims(out_axes, function.out_tree), strict=True))
        moved = [
            _result(size, *row, sum_match, lambda index=index: signature.tree_paths(function.out_tree)[index])
            for index, row in rows
        ]
        return runtime.tree_unflatten(function.out_tree, moved)

    return mapped  # type: ignore[return-value]


def _check_axes(in_axes: Any, out_axes: Any) -> None:
    """TypeError where the leaves are no ints, or ``in_axes`` could not stand for the positional arguments."""
    if not (in_axes is None or type(in_axes) in (int, tuple)):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed "
            f"to the function, but got {in_axes}."
        )
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        for leaf in tree_util.tree_leaves(axes):
            if type(leaf) is not int:
                raise TypeError(
                    f"vmap {name} must be an int, None, or (nested) container with those types as leaves, "
                    f"but got {axes}."
                )


def _is_none(value: Any) -> bool:
    return value is None


def spread(prefix: Any, tree: Any, name: str, none_is_leaf: bool = True) -> list[Any]:
    """For each leaf of a tree its entry in a prefix tree, in which None is a leaf (such as: not mapped)."""
    leaves, treedef = tree_util.tree_flatten(prefix, _is_none if none_is_leaf else None)
    try:
        subtrees = treedef.flatten_up_to(tree)
    except ValueError as error:
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value; it is {prefix}, and the value has "
            f"the structure {tree_util.tree_structure(tree)}.\n{_difference(prefix, tree, name) or error}"
        ) from None
    found: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        found += [leaf] * tree_util.tree_structure(subtree).num_leaves
    return found


def _difference(prefix: Any, tree: Any, name: str) -> str:
    """Where a prefix and a tree differ."""
    try:
        tree_util.raise_prefix_error(prefix, tree, name, is_leaf=_is_none)
    except ValueError as error:
        return str(error)
    return ""


def _check_refused(tree: Any) -> None:
    for value in runtime.tree_flatten(tree, lambda value: type(value) in refused)[0]:
        if type(value) in refused:
            raise NotImplementedError(
                f"[vmap] {type(value).__name__} is registered to be taken apart by rules of its own, which "
                "weft does not have: it maps over arrays and pytrees of arrays"
            )


def _in_dims(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Dim]:
    """The mapped axis of every leaf of (args, kwargs)."""
    prefix = in_axes if isinstance(in_axes, tuple) else tuple([in_axes] * len(args))
    return [*spread(prefix, args, "vmap in_axes"), *[0] * len(tree_util.tree_leaves(kwargs))]


def mapped_size(
    fun: Any, args: Any, kwargs: Any, leaves: list[Any], dims: list[Dim], axis_size: int | None, word: str = "vmap"
) -> int:
    """The common extent of the mapped axes; ValueError that names the arguments if there is none."""
    paths = signature.leaf_paths(fun, signature.Call(args, kwargs, (), len(args)))
    sizes: dict[int, list[str]] = {}
    for leaf, dim, path in zip(leaves, dims, paths, strict=True):
        if dim is None:  # it need not be an array
            continue
        aval = flat_functions.check_leaf(leaf, refs=True)
        if not -aval.ndim <= dim < aval.ndim:
            least = dim + 1 if dim >= 0 else -dim
            raise ValueError(
                f"{word} was requested to map its argument along axis {dim}, which implies that its rank should be at "
                f"least {least}, but is only {aval.ndim} (its shape is {aval.shape}): argument {path}"
            )
        text = f"axis {dim} of argument {path} of type {avals.long_text(aval.strip_weak_type())}"
        sizes.setdefault(aval.shape[dim], []).append(text)
    if axis_size is not None:
        if isinstance(axis_size, bool) or not isinstance(axis_size, (int, np.integer, Size)) or axis_size < 0:
            raise TypeError(f"{word} axis_size must be a nonnegative int, got {axis_size!r}")
        sizes.setdefault(whole(axis_size), [])
    if not sizes:
        if not leaves:
            raise ValueError(
                f"{word} wrapped function must be passed at least one argument containing an array or axis_size must "
                f"be specified, got {'empty ' if not args and not kwargs else ''}*args={args} and **kwargs={kwargs}"
            )
        raise ValueError(f"{word} must have at least one non-None value in in_axes or axis_size must be specified")
    if len(sizes) > 1:
        lines = [] if axis_size is None else [f"  * the `axis_size` argument was {axis_size}"]
        rows = sorted([row for row in sizes.items() if row[1]], key=lambda row: -len(row[1]))
        for size, where in rows:
            often = "most" if size == rows[0][0] else "some"
            many = f"{often} axes ({len(where)} of them)" if len(where) > 1 else "one axis"
            lines.append(f"  * {many} had size {size}, e.g. {where[0]}" if len(where) > 1 else
                         f"  * {many} had size {size}: {where[0]}")  # fmt: skip
        raise ValueError(f"{word} got inconsistent sizes for array axes to be mapped:\n" + ";\n".join(lines))
    return next(iter(sizes))


def _out_dims(out_axes: Any, out_tree: Any) -> list[Dim]:
    """The wanted axis of every leaf of the result."""
    return spread(out_axes, runtime.tree_unflatten(out_tree, [0] * out_tree.num_leaves), "vmap out_axes")


def _result(size: int, value: Any, dim: Dim, wanted: Dim, sum_match: bool, path: Callable[[], str]) -> Any:
    """A result, at ``path`` in the tree of results, with its mapped dimension moved to ``wanted``."""
    try:
        aval = avals.get_aval(value)
    except TypeError as error:
        text = f"Output from batched function {value!r} with type {type(value)} is not a valid JAX type"
        raise TypeError(text) from error
    if wanted is None:
        if dim is None:
            return value
        if not sum_match:
            raise ValueError(f"at vmap out_axes{path()}, got axis spec None but output was batched on axis {dim}")
        if aval.dtype == np.bool_:
            value = convert.convert(value, np.dtype(np.int32), False)
        return reductions.reduce_sum(value, (dim,))
    rank = aval.ndim + (dim is None)
    if not -rank <= wanted < rank:
        raise errors.AxisError(f"axis {wanted} is out of bounds for array of dimension {rank}: vmap out_axes{path()}")
    target = wanted % rank
    return repeated(size, value, target) if dim is None else at(value, dim, target)
