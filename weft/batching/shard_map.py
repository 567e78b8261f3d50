"""shard_map: a function of the shards of arrays, one for each device of a mesh, made a function of the whole arrays.

The function is traced once, on the types of shards, and recorded as one equation (``batching.shards``). Here the mesh
and the specs are checked; errors name the argument, its spec, the dimension and the sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from weft import runtime, tree_util
from weft.batching import shard_derivatives
from weft.batching.shards import axes_of_dimension, axes_of_spec, bind, inside, parts, shard_type
from weft.batching.vmap import spread
from weft.core import avals
from weft.core.programs.jaxpr import DebugInfo
from weft.core.sharding import varying
from weft.core.sharding.meshes import AbstractMesh, AxisType, Mesh, get_abstract_mesh
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import check_unique
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.dispatch.calls import flat_functions, function_names, signature

_LOADED = shard_derivatives  # imported for the rules that it defines


class _Infer:
    """Given instead of specs, it asks for those of the arguments' own shardings."""

    def __repr__(self) -> str:
        return "weft.sharding.Infer"

    def __reduce__(self) -> str:
        return "INFER"


INFER = _Infer()


class _Settings:
    """The arguments of one ``shard_map``, checked against the mesh of the context."""

    def __init__(
        self, fun: Any, mesh: Any, in_specs: Any, out_specs: Any, axis_names: Any, check_vma: bool, word: str
    ) -> None:
        self.fun, self.in_specs, self.out_specs, self.check_vma = fun, in_specs, out_specs, check_vma
        self.mesh = _chosen_mesh(mesh)
        if not isinstance(axis_names, frozenset | set):
            raise TypeError(f"[{word}] axis_names is a set of names of mesh axes, got {axis_names!r}")
        self.names = frozenset(axis_names) or frozenset(self.mesh.axis_names)
        unknown = [name for name in self.names if name not in self.mesh.axis_names]
        if unknown:
            raise ValueError(
                f"[{word}] axis_names {set(axis_names)} are not all axes of the mesh {self.mesh}: {unknown}"
            )
        if in_specs is INFER and any(self.mesh.type_of(name) is not AxisType.Explicit for name in self.names):
            raise TypeError(
                f"[{word}] without in_specs, all mesh axes must be of type Explicit, so that the types of arguments "
                f"say how they lie; {self.mesh} has others"
            )
        if in_specs is not INFER and in_specs is not None:
            self._check_specs("in_specs", in_specs)
        self._check_specs("out_specs", out_specs)

    @property
    def params(self) -> dict[str, Any]:
        return {
            "mesh": self.mesh,
            "check_vma": bool(self.check_vma),
            "newly_manual_axes": self.names - frozenset(self.mesh.manual_axes),
        }

    def _check_specs(self, word: str, specs: Any) -> None:
        for path, leaf in tree_util.tree_leaves_with_path(specs):
            part = f"{word}{tree_util.keystr(path)}"
            if not isinstance(leaf, PartitionSpec):
                raise TypeError(
                    f"[shard_map] {word} is a tree of PartitionSpec objects; {part} is {leaf!r}, of type "
                    f"{type(leaf).__name__}"
                )
            if leaf.unreduced or leaf.reduced:
                raise NotImplementedError(f"[shard_map] {part} is {leaf}: weft has no types of partial sums")
            for name in axes_of_spec(leaf):
                if name not in self.names:
                    raise ValueError(
                        f"[shard_map] {part} is {leaf}, which names the axis {name!r}; the function is mapped over "
                        f"{sorted(map(str, self.names))} of {self.mesh}"
                    )
            check_unique(leaf, "shard_map", self.mesh)


def _chosen_mesh(mesh: Any) -> Any:
    """The mesh that was given, or that of the context; both must be the same."""
    context = get_abstract_mesh()
    if mesh is None:
        if context.empty:
            raise ValueError(
                "[shard_map] there is no mesh: give the argument `mesh`, or choose one by weft.set_mesh(mesh)"
            )
        return context
    if not isinstance(mesh, AbstractMesh | Mesh):
        raise TypeError(f"[shard_map] mesh is a weft.sharding.Mesh or AbstractMesh, got {mesh!r} of type {type(mesh)}")
    if mesh.empty:
        raise ValueError(f"[shard_map] the mesh has no axes: {mesh}")
    if not context.empty and mesh.abstract_mesh != context:
        raise ValueError(
            f"[shard_map] the mesh {mesh} is not the one of the context, {context}: leave out the argument, or call it "
            "outside of that context"
        )
    return mesh


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = INFER,
    mesh: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Any:
    """``f``, a function of the shards of arrays, as a function of the whole arrays.

    ``in_specs`` is a tree of PartitionSpec objects, a prefix of the tuple of arguments: a dimension whose entry names
    axes of ``mesh`` is cut along them, and along axes that a spec does not name every device gets the same. None in it
    marks arguments that are passed as they are. ``out_specs`` says likewise how results are joined; along axes that it
    does not name, all devices must have the same result. ``mesh`` is by default that of the context (``set_mesh``).
    ``axis_names``: the axes over which ``f`` is mapped, by default all; only these may be named. Without ``f``, gives a
    decorator.

    With ``check_vma``, types inside say along which axes values differ (``f32[4]{V:i}``), and a result that
    ``out_specs`` claims to be the same everywhere is an error unless its type says so. ValueError for sizes that a mesh
    does not divide, specs longer than the rank, and unknown axes; TypeError for what is no spec.

    >>> mesh, P = weft.sharding.AbstractMesh((2,), ("i",)), weft.sharding.PartitionSpec
    >>> f = weft.shard_map(lambda x: weft.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    >>> f(jnp.arange(4.0)).tolist()
    [2.0, 4.0]
    """
    given = {"in_specs": in_specs, "out_specs": out_specs, "mesh": mesh, "axis_names": axis_names}
    if f is None:
        return lambda function: shard_map(function, check_vma=check_vma, **given)
    return mapped_function(f, check_vma=check_vma, word="shard_map", **given)


def mapped_function(
    f: Callable[..., Any], *, in_specs: Any, out_specs: Any, mesh: Any, axis_names: Any, check_vma: bool, word: str
) -> Callable[..., Any]:
    """``shard_map`` in the name of another function, which errors name."""
    if not callable(f):
        raise TypeError(f"[{word}] takes a function, got {f!r} of type {type(f)}")

    @functools.wraps(f)
    @tracebacks.boundary
    def on_whole(*args: Any) -> Any:
        return _call(_Settings(f, mesh, in_specs, out_specs, axis_names, check_vma, word), args)

    return on_whole


def smap(f: Callable[..., Any] | None = None, /, *, in_axes: Any = INFER, out_axes: Any, axis_name: Hashable) -> Any:
    """``shard_map`` over one axis of the mesh of the context, with array axes as in ``vmap`` instead of specs.

    ``in_axes``: an int (the array axis that is cut), None (not cut), or a tuple with one for each argument;
    ``out_axes`` is a tree of them for the result. TypeError for anything else.

    >>> with weft.set_mesh(weft.make_mesh((1,), ("i",), axis_types=(weft.sharding.AxisType.Auto,))):
    ...     weft.smap(lambda x: weft.lax.psum(x, "i"), in_axes=0, out_axes=None, axis_name="i")(jnp.ones(2)).tolist()
    [1.0, 1.0]
    """
    if f is None:
        return lambda function: smap(function, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, list | tuple):
        raise TypeError(f"[smap] axis_name is the name of one mesh axis, got {axis_name!r}")
    if not (in_axes is None or in_axes is INFER or isinstance(in_axes, int | tuple)):
        raise TypeError(
            f"[smap] in_axes is an int, None or a tuple with one of them for each argument, got {in_axes!r}"
        )
    for word, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if axes is not INFER and not all(isinstance(leaf, int) for leaf in tree_util.tree_leaves(axes)):
            raise TypeError(
                f"smap {word} must be an int, None, or (nested) container with those types as leaves, but got {axes!r}."
            )

    def spec(axis: Any) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name)

    def specs(axes: Any) -> Any:
        return tree_util.tree_map(spec, axes, is_leaf=lambda axis: axis is None)

    in_specs = INFER if in_axes is INFER else specs(in_axes)
    return mapped_function(
        f, in_specs=in_specs, out_specs=specs(out_axes), mesh=None, axis_names={axis_name}, check_vma=True, word="smap"
    )


# -- a call -----------------------------------------------------------------------------------------------------------


def _call(settings: _Settings, args: tuple[Any, ...]) -> Any:
    fun, params = settings.fun, settings.params
    leaves, in_tree = runtime.tree_flatten(args)
    specs = _specs_of_arguments(settings, args, leaves)
    cut = [spec is not None for spec in specs]
    operands = [leaf for leaf, has in zip(leaves, cut, strict=True) if has]
    in_specs = tuple([spec for spec in specs if spec is not None])
    in_avals = [flat_functions.check_leaf(leaf) for leaf in operands]
    paths = signature.leaf_paths(fun, signature.Call(args, {}, (), len(args)))
    words = [path for path, has in zip(paths, cut, strict=True) if has]
    _check_operands(settings, in_avals, in_specs, words)
    _check_explicit(settings, operands, in_specs, words)
    out_tree: Any = None
    wanted: list[PartitionSpec] = []

    def flat(*shards: Any) -> list[Any]:
        nonlocal out_tree
        given = iter(shards)
        every = [next(given) if has else leaf for leaf, has in zip(leaves, cut, strict=True)]
        result = fun(*runtime.tree_unflatten(in_tree, every))
        outs, out_tree = runtime.tree_flatten(result)
        wanted[:] = spread(settings.out_specs, result, "shard_map out_specs", none_is_leaf=False)
        _check_rank(settings, result, outs, wanted)
        return [varying.widened(out, axes_of_spec(spec)) for out, spec in zip(outs, wanted, strict=True)]

    local = [shard_type(aval, spec, params) for aval, spec in zip(in_avals, in_specs, strict=True)]
    info = DebugInfo("shard_map", function_names.source_of(fun), words)
    with inside(params):
        closed, out_avals = tracing.trace_to_jaxpr(flat, local, info)
    if settings.check_vma:
        _check_same(settings, out_tree, out_avals, wanted)
    outs = bind(closed, operands, {**params, "in_specs": in_specs, "out_specs": wanted})
    return runtime.tree_unflatten(out_tree, outs)


def _specs_of_arguments(settings: _Settings, args: tuple[Any, ...], leaves: list[Any]) -> list[Any]:
    """The spec of each argument leaf; None for one that is passed as it is."""
    if settings.in_specs is not INFER:
        return spread(settings.in_specs, args, "shard_map in_specs")
    return [_own_spec(leaf, settings) for leaf in leaves]


def _own_spec(leaf: Any, settings: _Settings) -> PartitionSpec:
    """How an argument lies along the axes over which the function is mapped, as its type says it."""
    own = getattr(avals.get_aval(leaf), "explicit_sharding", None)
    if own is None:
        return PartitionSpec()
    entries = [
        tuple([name for name in axes_of_dimension(own.spec, d) if name in settings.names]) or None
        for d in range(len(own.spec))
    ]
    return PartitionSpec(*entries)


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_operands(
    settings: _Settings, in_avals: Sequence[Any], in_specs: Sequence[PartitionSpec], words: Sequence[str]
) -> None:
    name = function_names.function_name(settings.fun)
    mesh = settings.mesh
    for aval, spec, word in zip(in_avals, in_specs, words, strict=True):
        if len(spec) > aval.ndim:
            raise ValueError(
                f"[shard_map] {name}: the argument {word} of type {aval.str_short()} has {aval.ndim} dimensions, and "
                f"its spec in in_specs is {spec}, which has {len(spec)} entries"
                + ("; for a scalar, use P()" if aval.ndim == 0 else "")
            )
        for dimension, extent in enumerate(aval.shape):
            axes = axes_of_dimension(spec, dimension)
            count = parts(mesh, axes)
            if extent % count:
                sizes = ", ".join([f"{axis!r} of size {mesh.shape[axis]}" for axis in axes])
                raise ValueError(
                    f"[shard_map] {name}: dimension {dimension} of the argument {word} of type {aval.str_short()} has "
                    f"size {extent}, which cannot be cut into {count} equal parts; its spec in in_specs is {spec}, "
                    f"with the mesh axes {sizes}. Pad the array, or choose other mesh axes"
                )


def _check_explicit(
    settings: _Settings, operands: Sequence[Any], in_specs: Sequence[PartitionSpec], words: Sequence[str]
) -> None:
    """ValueError for a spec that is not what the type of an argument says, on a mesh all of whose axes are explicit."""
    mesh = settings.mesh
    if settings.names != frozenset(mesh.axis_names) or len(mesh.explicit_axes) < len(mesh.axis_names):
        return
    for leaf, spec, word in zip(operands, in_specs, words, strict=True):
        own = _own_spec(leaf, settings)
        rank = avals.get_aval(leaf).ndim
        if any(axes_of_dimension(own, d) != axes_of_dimension(spec, d) for d in range(rank)):
            raise ValueError(
                f"[shard_map] the argument {word} lies as {own}, as its type says, and its spec in in_specs is {spec}: "
                "leave out in_specs, which are then taken from the types, or move it by weft.reshard"
            )


def _check_rank(settings: _Settings, result: Any, outs: Sequence[Any], wanted: Sequence[PartitionSpec]) -> None:
    paths = [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path(result)]
    for out, spec, path in zip(outs, wanted, paths, strict=True):
        aval = flat_functions.check_leaf(out)
        if len(spec) > aval.ndim:
            raise ValueError(
                f"[shard_map] {function_names.function_name(settings.fun)}: the result{path} of type "
                f"{aval.str_short()} has {aval.ndim} dimensions, and its spec in out_specs is {spec}, which has "
                f"{len(spec)} entries. Give it a dimension along which the shards are joined, or shorten the spec"
            )


def _check_same(settings: _Settings, out_tree: Any, out_avals: Sequence[Any], wanted: Sequence[PartitionSpec]) -> None:
    """ValueError for a result that a spec claims to be the same along an axis, unless its type says so."""
    outer = settings.mesh.manual_axes
    for aval, spec, path in zip(out_avals, wanted, signature.tree_paths(out_tree), strict=True):
        differs = [name for name in aval.varying if name not in axes_of_spec(spec) and name not in outer]
        if differs:
            raise ValueError(
                f"[shard_map] {function_names.function_name(settings.fun)}: the result{path} has the type "
                f"{aval.str_short()}, so that it may differ along the mesh axes {differs}; its spec in out_specs is "
                f"{spec}, which says that it is the same along them. Name these axes in the spec, combine the values "
                "(lax.psum, lax.pmax, lax.all_gather with to='invarying'), or, if they are the same in a way that "
                "types do not show, give shard_map the argument check_vma=False"
            )
