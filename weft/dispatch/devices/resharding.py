"""Moving values between explicit shardings: ``reshard``, and functions whose axes the compiler or the types decide.

``reshard`` is an equation whose result has another sharding in its type. ``auto_axes(f)`` runs f with explicit axes
made Auto, so that the types inside do not speak of them; ``explicit_axes(f)`` does the opposite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from weft import config, runtime
from weft.core import avals, kinds
from weft.core.primitive import ALL, Primitive
from weft.core.sharding import explicit
from weft.core.sharding.meshes import AbstractMesh, AxisType, Mesh, get_abstract_mesh, use_abstract_mesh
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of
from weft.core.sharding.shardings import NamedSharding
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices
from weft.dispatch.devices import placement, shardings


def _moved_type(x: Any, *, dst_sharding: NamedSharding, **_: Any) -> Any:
    return explicit.sharded(x, dst_sharding)


def _eager(params: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda x: placement.device_put(x, on_mesh(params))


def _asked(params: dict[str, Any]) -> Any:
    return shardings.axes_asked(params["dst_sharding"])


def _hidden(params: dict[str, Any]) -> dict[str, Any]:
    """Nothing is printed: the type of the result says it all."""
    return {}


reshard_p = Primitive("reshard", kind=kinds.Identity(eager=_eager, constraint=_asked), print_params=_hidden)
reshard_p.def_abstract_eval(_moved_type)
reshard_p.types_shardings = True
reshard_p.linear = ALL


def _transposed(ct: Any, x: Any, **params: Any) -> tuple[Any]:
    """The cotangent lies as the operand did."""
    aval = avals.get_aval(x.aval if hasattr(x, "aval") else x)
    own = aval.explicit_sharding
    target = NamedSharding(params["dst_sharding"].mesh, PartitionSpec(*[None] * aval.ndim)) if own is None else own
    return (reshard_p.bind(ct, dst_sharding=target, concrete_mesh=params["concrete_mesh"]),)


reshard_p.transpose = _transposed


def _batch(size: int, args: Any, dims: Any, *, dst_sharding: Any, concrete_mesh: Any) -> tuple[Any, Any]:
    """The mapped dimension lies as before."""
    (x,), (dim,) = args, dims
    own = avals.get_aval(x).explicit_sharding
    entries = list(dst_sharding.spec.padded(dim).partitions)
    entries.insert(dim, None if own is None else own.spec.partitions[dim])
    target = dst_sharding.update(spec=dst_sharding.spec.update(entries))
    return reshard_p.bind(x, dst_sharding=target, concrete_mesh=concrete_mesh), dim


reshard_p.batch = _batch


def on_mesh(params: dict[str, Any]) -> NamedSharding:
    """The sharding that an equation ``reshard`` gives, on the devices of its mesh."""
    return _on_mesh(params["dst_sharding"], params["concrete_mesh"])


def _on_mesh(sharding: NamedSharding, mesh: Any) -> NamedSharding:
    """A sharding of an abstract mesh on the devices of ``mesh``, or of the chosen mesh."""
    state = config.mesh_state()
    found = state.concrete if mesh is None else mesh
    if found is None or found.axis_names != sharding.mesh.axis_names or found.axis_sizes != sharding.mesh.axis_sizes:
        found = devices.mesh_like(sharding.mesh)
    if found is None:
        raise ValueError(
            f"[reshard] {sharding} has no devices: choose a mesh with weft.set_mesh, or give a NamedSharding of a Mesh"
        )
    return NamedSharding(found, sharding.spec)


def reshard(xs: Any, out_shardings: Any) -> Any:
    """``xs`` (a tree of arrays) moved to other shardings: along explicit axes of a mesh.

    ``out_shardings`` is a NamedSharding, or a PartitionSpec of the chosen mesh, or a tree of these. ValueError for axes
    that are not Explicit (``weft.device_put`` takes those too).

    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> weft.sharding.reshard(jnp.arange(3), weft.NamedSharding(mesh, weft.P("data")))
    Array([0, 1, 2], dtype=int32)
    """
    leaves, treedef = runtime.tree_flatten(xs)
    targets = shardings.spread(out_shardings, treedef, "reshard", "out_shardings", "the corresponding value")
    return runtime.tree_unflatten(treedef, [moved(leaf, to) for leaf, to in zip(leaves, targets, strict=True)])


def moved(leaf: Any, target: Any, name: str = "reshard") -> Any:
    """One array with another sharding."""
    sharding = abstract(target, name)
    if sharding is None:
        raise ValueError(
            "Reshard should only be used with out_shardings which are non-None and have a non-empty mesh. Got sharding "
            f"{target}."
        )
    if sharding.spec.is_partial:
        raise NotImplementedError(f"[{name}] arrays that are sums over a mesh axis (unreduced, reduced): {target}")
    placement.check_fits(f"{name} arguments", sharding, np.shape(leaf))
    entries = [None if entry is UNCONSTRAINED else entry for entry in sharding.spec.padded(np.ndim(leaf)).partitions]
    sharding = NamedSharding(sharding.mesh, PartitionSpec(*entries))
    mesh = target.mesh if isinstance(target, NamedSharding) and isinstance(target.mesh, Mesh) else None
    if isinstance(leaf, Tracer) or tracing.is_tracing():
        return reshard_p.bind(leaf, dst_sharding=sharding, concrete_mesh=mesh)
    return placement.device_put(leaf, _on_mesh(sharding, mesh))


def abstract(value: Any, name: str, what: str = "out_sharding") -> NamedSharding | None:
    """The sharding that a user gave, without devices, once its axes have been checked; None where it says nothing."""
    if value is None or (isinstance(value, NamedSharding) and value.mesh.empty):
        return None
    if not isinstance(value, NamedSharding | PartitionSpec):
        raise TypeError(
            f"`{what}` argument of {name} only supports instances of `NamedSharding` or `PartitionSpec`. Got {value!r} "
            f"of type: {type(value)}"
        )
    mesh = get_abstract_mesh()
    if isinstance(value, PartitionSpec):
        if mesh.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Please pass a NamedSharding "
                f"instance or enter into a mesh context via `weft.set_mesh`. Got {value}"
            )
        value = NamedSharding(mesh, value)
    if name != "reshard":
        _check_mesh(value, mesh, name)
    _check_axes(value, name)
    return NamedSharding(value.mesh.abstract_mesh, value.spec)


def _check_mesh(value: NamedSharding, mesh: Any, name: str) -> None:
    own = value.mesh.abstract_mesh
    if mesh.empty or own == mesh or (own.are_all_axes_auto and mesh.are_all_axes_auto):
        return
    raise ValueError(f"Context mesh {mesh} should match the mesh of sharding {own} passed to {name}.")


def _check_axes(value: NamedSharding, name: str) -> None:
    for axis in (*value.spec.axes(), *value.spec.unreduced, *value.spec.reduced):
        kind = value.mesh.type_of(axis)
        if kind is not AxisType.Explicit:
            raise ValueError(
                f"PartitionSpec passed to {name} cannot contain axis names that are of type Auto or Manual. Got "
                f"PartitionSpec: {value.spec} with axis name: {axis} of type: {kind}. Make the mesh with axis_types="
                "(AxisType.Explicit,), or use weft.lax.with_sharding_constraint"
            )


# -- modes of axes ----------------------------------------------------------------------------------------------------


def _changed(name: str, axes: Any, kind: AxisType) -> tuple[AbstractMesh, tuple[Any, ...]]:
    """The context's mesh with some axes (all without ``axes``) of another type, and which these are."""
    mesh = get_abstract_mesh()
    chosen = mesh.axis_names if axes is None else axes if isinstance(axes, tuple) else (axes,)
    for axis in chosen:
        if axis not in mesh.axis_names:
            raise ValueError(f"[{name}] axes names {axis!r}, which is no axis of the context's mesh {mesh}")
        if mesh.type_of(axis) is AxisType.Manual:
            raise NotImplementedError(f"[{name}] the axis {axis!r} is Manual here, inside of shard_map")
    return mesh.update_axis_types(dict.fromkeys(chosen, kind)), tuple(chosen)


def _recast(tree: Any, mesh: AbstractMesh) -> Any:
    """A tree of arrays whose types speak of those axes alone that are explicit in ``mesh``."""

    def recast(leaf: Any) -> Any:
        own = avals.get_aval(leaf).explicit_sharding
        entries = [] if own is None else own.spec.partitions
        kept = [
            tuple([axis for axis in names_of(entry) if mesh.type_of(axis) is AxisType.Explicit]) for entry in entries
        ]
        target = NamedSharding(mesh, PartitionSpec(*kept))
        return leaf if own is None else reshard_p.bind(leaf, dst_sharding=target, concrete_mesh=None)

    return runtime.tree_map(recast, tree)


def auto_axes(f: Any = None, /, *, axes: Any = None, out_sharding: Any = None) -> Any:
    """``f`` with explicit axes (all, or those in ``axes``) left to the compiler; its result lies as ``out_sharding``.

    ``out_sharding`` may be given when the result is called. Without ``f``, gives a decorator.

    >>> with weft.set_mesh(weft.make_mesh((1,), ("x",))):
    ...     weft.sharding.auto_axes(lambda x: x * 2, out_sharding=weft.P("x"))(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)

    @functools.wraps(f)
    def automatic(*args: Any, **kwargs: Any) -> Any:
        target = kwargs.pop("out_sharding", None) if out_sharding is None else out_sharding
        if target is None:
            raise TypeError("Missing required keyword argument: 'out_sharding'")
        if get_abstract_mesh().empty and isinstance(target, NamedSharding):
            with shardings.set_mesh(cast("Mesh", target.mesh)):
                return _automatic(f, axes, args, kwargs, target)
        return _automatic(f, axes, args, kwargs, target)

    return automatic


def _automatic(f: Any, axes: Any, args: Any, kwargs: Any, target: Any) -> Any:
    if get_abstract_mesh().empty:
        raise ValueError("Context mesh cannot be empty. Please use `weft.set_mesh` to enter into a mesh context")
    mesh, _ = _changed("auto_axes", axes, AxisType.Auto)
    return _inside(f, mesh, lambda: _recast(args, mesh), kwargs, target)


def _inside(f: Any, mesh: AbstractMesh, prepare: Callable[[], Any], kwargs: Any, target: Any) -> Any:
    """The result of a function traced with another mesh in context; moved to ``target``."""
    with use_abstract_mesh(mesh):
        out = f(*prepare(), **kwargs)
    return reshard(out, target)


def explicit_axes(f: Any = None, /, *, axes: Any = None, in_sharding: Any = None) -> Any:
    """``f`` with axes (all, or those in ``axes``) decided by the types; its arguments are moved to ``in_sharding``.

    ``in_sharding`` may be given when the result is called. Without ``f``, gives a decorator.
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @functools.wraps(f)
    def typed(*args: Any, **kwargs: Any) -> Any:
        target = kwargs.pop("in_sharding", None) if in_sharding is None else in_sharding
        if target is None:
            raise TypeError("Missing required keyword argument: 'in_sharding'")
        if get_abstract_mesh().empty:
            raise ValueError(
                "Context mesh cannot be empty. Please use `weft.set_mesh` API to enter into a mesh context when using "
                "`explicit_axes` API."
            )
        outer = get_abstract_mesh()
        mesh, _ = _changed("explicit_axes", axes, AxisType.Explicit)
        with use_abstract_mesh(mesh):
            out = f(*reshard(args, target), **kwargs)
        return _recast(out, outer)

    return typed
