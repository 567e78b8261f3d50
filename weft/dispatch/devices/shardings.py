"""Choosing meshes, and saying how values lie on their devices: ``with_sharding_constraint``, ``reshard``.

A constraint on a traced value is an equation ``sharding_constraint``, which compiles to nothing: in one process one
buffer has the whole array, and what a constraint changes is the sharding that results answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import config, runtime
from weft.core import avals, kinds
from weft.core.primitive import ALL, Primitive
from weft.core.sharding import explicit
from weft.core.sharding.meshes import (
    EMPTY_MESH,
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    chosen_mesh,
    context_mesh,
    get_abstract_mesh,
    use_abstract_mesh,
)
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of
from weft.core.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding, check_unique
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices
from weft.dispatch.devices import placement
from weft.dispatch.devices.shards import (
    make_array_from_callback,
    make_array_from_process_local_data,
    make_array_from_single_device_arrays,
)

__all__ = [
    "EMPTY_MESH", "AbstractDevice", "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "PartitionSpec",
    "SingleDeviceSharding", "get_abstract_mesh", "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "use_abstract_mesh",
]  # fmt: skip


def make_single_device_sharding(device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """The sharding that has all of an array on one device.

    >>> weft.sharding.make_single_device_sharding(weft.devices()[0]).num_devices
    1
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def get_mesh() -> Mesh:
    """The mesh that ``set_mesh`` chose; an empty one if none was chosen.

    >>> weft.sharding.get_mesh().empty
    True
    """
    if tracing.is_tracing():
        raise ValueError("`get_mesh` can only be used outside of `weft.jit`: use weft.sharding.get_abstract_mesh()")
    return chosen_mesh()


class set_mesh:
    """Choose the mesh of this thread, for good or as ``with set_mesh(mesh):``; None chooses none.

    With a mesh chosen, functions that take a sharding take a PartitionSpec alone.

    >>> with weft.set_mesh(weft.make_mesh((1,), ("x",))):
    ...     weft.sharding.get_abstract_mesh().axis_names
    ('x',)
    """

    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(f"Expected mesh of type `weft.sharding.Mesh`. Got {type(mesh)}")
        if tracing.is_tracing():
            raise ValueError("`set_mesh` can only be used outside of `weft.jit`.")
        if mesh is not None and mesh.manual_axes:
            raise ValueError(
                f"mesh {mesh} contains manual axes which is not allowed when using `weft.set_mesh`. Please use "
                "`weft.shard_map` to enter into `Manual` mode instead."
            )
        self._before = config.mesh_state()
        chosen = None if mesh is None or mesh.empty else mesh
        abstract = None if chosen is None else chosen.abstract_mesh
        config.choose_mesh(self._before.replace(abstract=abstract, concrete=chosen))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        now = config.mesh_state()
        config.choose_mesh(now.replace(abstract=self._before.abstract, concrete=self._before.concrete))


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Any, axis_types: Any = None, *, devices: Sequence[Any] | None = None
) -> Mesh:
    """A mesh of the given shape over ``devices`` (by default all); all axes are Explicit without ``axis_types``.

    ValueError for more devices than there are.

    >>> weft.make_mesh((1, 1), ("data", "model")).axis_names
    ('data', 'model')
    """
    array = _device_array("make_mesh", axis_shapes, devices)
    types = (AxisType.Explicit,) * array.ndim if axis_types is None else axis_types
    return Mesh(array, axis_names, types)


def _device_array(name: str, shape: Sequence[int], given: Sequence[Any] | None) -> np.ndarray:
    sizes = tuple(shape)
    if not all(isinstance(size, int | np.integer) for size in sizes):
        raise ValueError(f"`axis_shapes` passed to `{name}` should be a sequence of ints. Got {shape}")
    chosen = devices.devices() if given is None else list(given)
    wanted = math.prod(sizes)
    if wanted > len(chosen):
        raise ValueError(f"Number of devices {len(chosen)} must be >= the product of mesh_shape {sizes}")
    array = np.empty(wanted, object)
    array[:] = chosen[:wanted]
    return array.reshape(sizes)


# -- constraints ------------------------------------------------------------------------------------------------------


def _same_type(x: Any, **params: Any) -> Any:
    return x


def _eager(params: dict[str, Any]) -> Any:
    sharding = params["sharding"]
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        return lambda x: x  # of a program that was read: it names no devices
    return lambda x: _constrain(x, sharding)


def axes_asked(sharding: Any) -> Any:
    """For each dimension that a sharding names the axes along which it is cut; None for one that is left open."""
    if not isinstance(sharding, NamedSharding) or sharding.mesh.empty:
        return None
    return tuple([None if entry is UNCONSTRAINED else names_of(entry) for entry in sharding.spec.partitions])


def _asked(params: dict[str, Any]) -> Any:
    return axes_asked(params["sharding"])


sharding_constraint_p = Primitive("sharding_constraint", kind=kinds.Identity(eager=_eager, constraint=_asked))
sharding_constraint_p.def_abstract_eval(_same_type)
sharding_constraint_p.types_shardings = True
sharding_constraint_p.linear = ALL
sharding_constraint_p.transpose = lambda ct, x, **params: (sharding_constraint_p.bind(ct, **params),)


def _batch(size: int, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The mapped dimension may lie anyhow."""
    (x,), (dim,) = args, dims
    sharding = params["sharding"]
    if isinstance(sharding, NamedSharding):
        entries = list(sharding.spec.padded(dim).partitions)
        entries.insert(dim, UNCONSTRAINED if sharding.mesh.auto_axes else None)
        sharding = sharding.update(spec=sharding.spec.update(entries))
    free = frozenset(at + (at >= dim) for at in params["unconstrained_dims"]) | {dim}
    return sharding_constraint_p.bind(x, **{**params, "sharding": sharding, "unconstrained_dims": free}), dim


sharding_constraint_p.batch = _batch


def _constrain(x: Any, sharding: Sharding) -> Any:
    """An array that has a value, lying as a constraint says; ValueError if it is committed to other devices."""
    array = placement.device_put(x)
    if not isinstance(array, runtime.Array):
        return sharding_constraint_p.bind(array, **_params(sharding))
    own = devices.sharding_at(array.place).device_list
    if array.place & 1 and own != sharding.device_list:
        raise ValueError(
            "Received incompatible devices for jitted computation. Got argument x of _identity_fn with shape "
            f"{array.aval.str_short(short_dtypes=False)} and with {devices.on_devices(own)} and explicit output "
            f"sharding with {devices.on_devices(sharding.device_list)}"
        )
    return placement.device_put(array, _without_open(sharding))


def _without_open(sharding: Sharding) -> Sharding:
    """Dimensions that may lie anyhow lie whole."""
    if isinstance(sharding, NamedSharding) and UNCONSTRAINED in sharding.spec.partitions:
        return sharding.update(spec=[None if entry is UNCONSTRAINED else entry for entry in sharding.spec.partitions])
    return sharding


def _params(sharding: Any) -> dict[str, Any]:
    partitions = sharding.spec.partitions if isinstance(sharding, NamedSharding) else ()
    free = frozenset(at for at, entry in enumerate(partitions) if entry is UNCONSTRAINED)
    return {
        "sharding": sharding, "layout": None, "context_mesh": config.mesh_state().concrete or EMPTY_MESH,
        "unconstrained_dims": free,
    }  # fmt: skip


def concrete(value: Any, name: str, argument: str = "shardings", mesh: Any = None) -> Any:
    """A Sharding for what a user gave as one (None stays None); a spec alone belongs to the context's mesh."""
    if value is None or isinstance(value, Sharding):
        if isinstance(value, NamedSharding) and value.mesh.empty:
            raise ValueError(
                f"One of {argument} leaf specifications got an empty NamedSharding: {value} which is not allowed."
            )
        if isinstance(value, NamedSharding) and isinstance(value.mesh, AbstractMesh):
            return _on_devices(value)
        return value
    if not isinstance(value, PartitionSpec):
        raise TypeError(
            f"{argument} leaf specifications are expected to be PartitionSpec instances or None, but got {value}"
        )
    check_unique(value, argument)
    found = context_mesh() if mesh is None else mesh
    if found.empty:
        raise RuntimeError(
            f"{name} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {argument}. You can "
            "define a context mesh via `weft.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
            f"{argument} and then the mesh context manager is not required."
        )
    return NamedSharding(found, value)


def _on_devices(sharding: NamedSharding) -> NamedSharding:
    """A sharding of an abstract mesh, on the devices of the chosen mesh if that has these axes."""
    mesh = config.mesh_state().concrete
    if mesh is not None and mesh.axis_names == sharding.mesh.axis_names and mesh.axis_sizes == sharding.mesh.axis_sizes:
        return sharding.update(mesh=mesh.update(axis_types=sharding.mesh.axis_types), memory_kind=None)
    return sharding


def is_spec(value: Any) -> bool:
    """Whether it stands for one array in a tree of shardings: None does."""
    return value is None


def spread(prefix: Any, tree: Any, name: str, argument: str, what: str) -> list[Any]:
    """For each leaf of ``tree`` what a prefix of it says."""
    try:
        return list(placement.spread(prefix, tree, argument))
    except ValueError as error:
        raise ValueError(f"{name} {argument} specification must be a tree prefix of {what}; {error}") from None


@tracebacks.boundary
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """``x`` (a tree of arrays) lying as ``shardings`` says: a Sharding or PartitionSpec, or a tree of these.

    Under ``jit`` it is a statement for the compiler, which then works out how other values lie.

    >>> mesh = weft.make_mesh((1,), ("data",), (weft.sharding.AxisType.Auto,))
    >>> spec = weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("data"))
    >>> weft.lax.with_sharding_constraint(jnp.arange(3), spec)
    Array([0, 1, 2], dtype=int32)
    """
    leaves, treedef = runtime.tree_flatten(x)
    targets = spread(shardings, treedef, "with_sharding_constraint", "shardings", "the corresponding value")
    return runtime.tree_unflatten(
        treedef, [_constrained(leaf, target) for leaf, target in zip(leaves, targets, strict=True)]
    )


def _constrained(leaf: Any, target: Any) -> Any:
    sharding = concrete(target, "with_sharding_constraint")
    if sharding is None:
        return leaf if isinstance(leaf, Tracer) else placement.device_put(leaf)
    shape = np.shape(leaf)
    placement.check_fits("with_sharding_constraint arguments", sharding, shape)
    _check_explicit(leaf, sharding)
    if isinstance(leaf, Tracer) or tracing.is_tracing():
        return sharding_constraint_p.bind(leaf, **_params(sharding))
    return _constrain(leaf, sharding)


def _check_explicit(leaf: Any, sharding: Sharding) -> None:
    """Along explicit axes a constraint moves nothing: AssertionError if the value lies otherwise."""
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.are_all_axes_explicit:
        return
    own, asked = explicit.of_type(avals.get_aval(leaf)).spec, sharding.spec.padded(np.ndim(leaf))
    if own != asked:
        raise AssertionError(
            "`with_sharding_constraint` acts as an assert when all axes of mesh are of type `Explicit`. The array "
            f"sharding: {own} did not match the sharding provided: {asked}. Please use `weft.sharding.reshard` to "
            "shard your input to the sharding you want."
        )


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """The devices as an array of ``mesh_shape``, to make a Mesh of; ValueError unless it has one cell for each device.

    >>> from weft.experimental import mesh_utils
    >>> mesh_utils.create_device_mesh((1, 1)).shape
    (1, 1)
    """
    array = _device_array("create_device_mesh", mesh_shape, devices)
    count = len(_all_devices() if devices is None else devices)
    if array.size != count:
        raise ValueError(f"Number of devices {count} must equal the product of mesh_shape {tuple(mesh_shape)}")
    return array


def _all_devices() -> list[Any]:
    return devices.devices()


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Devices of several processes as one array: ``mesh_shape`` within a process, ``dcn_mesh_shape`` among them.

    ValueError without ``process_is_granule`` (devices of the CPU belong to no slice), or if there are not as many
    processes or devices.
    """
    given = _all_devices() if devices is None else list(devices)
    attribute = "process_index" if process_is_granule else "slice_index"
    if not hasattr(given[0], attribute):
        raise ValueError(f"Device {given[0]} does not have attribute {attribute}. See `process_is_granule` option.")
    granules: dict[int, list[Any]] = {}
    for device in given:
        granules.setdefault(getattr(device, attribute), []).append(device)
    keys = sorted(granules) if should_sort_granules_by_key else list(granules)
    if math.prod(dcn_mesh_shape) != len(keys):
        raise ValueError(
            f"Number of slices {len(keys)} must equal the product of dcn_mesh_shape {tuple(dcn_mesh_shape)}"
        )
    blocks = np.empty(len(keys), object)
    blocks[:] = [create_device_mesh(mesh_shape, granules[key]) for key in keys]
    return np.block(blocks.reshape(tuple(dcn_mesh_shape)).tolist())


def constrained(x: Any, sharding: Sharding | None) -> Any:
    """A value of the program that is recorded, lying as a sharding says (None: anyhow)."""
    return x if sharding is None else sharding_constraint_p.bind(x, **_params(sharding))
