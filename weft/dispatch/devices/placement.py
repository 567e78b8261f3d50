"""Moving values to devices and back: device_put (also while tracing), device_get, block_until_ready.

On the CPU nothing moves: a NumPy array or a scalar becomes an Array, an Array is returned on the same memory. An Array
put on a device by name is committed to it: computations with it run there. While tracing, ``device_put`` is recorded as
JAX records it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft.core import avals, kinds
from weft.core.primitive import ALL, Primitive
from weft.core.programs.jaxpr import Jaxpr, subjaxprs
from weft.core.sharding.meshes import chosen_mesh
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import NamedSharding, Space
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices
from weft.dispatch.calls import signature
from weft.dispatch.devices import transfers


class ArrayCopySemantics(enum.Enum):
    """Whether ``device_put`` may return the operand itself."""

    ALWAYS_COPY = 0
    REUSE_INPUT = 1
    DONATE_INPUT = 2

    def __repr__(self) -> str:
        return str(self)


def _put_type(x: Any, *, devices: Sequence[Any], **_: Any) -> Any:
    return x if devices[0] is None else lazy.explicit.sharded(x, devices[0])


def _eager(params: dict[str, Any]) -> Callable[[Any], Any] | None:
    """What moves the operand of a ``device_put`` that no program contains, if it names a device."""
    (device,) = params["devices"]
    return None if device is None else lambda x: device_put(x, device)


def _asked(params: dict[str, Any]) -> Any:
    (device,) = params["devices"]
    return lazy.submodule("weft.dispatch.devices.shardings").axes_asked(device)


device_put_p = Primitive("device_put", kind=kinds.Identity(eager=_eager, constraint=_asked))
device_put_p.def_abstract_eval(_put_type)
device_put_p.types_shardings = True
device_put_p.linear = ALL
device_put_p.transpose = lambda ct, x, *, srcs, devices, **_: (
    device_put_p.bind(ct, copy_semantics=(ArrayCopySemantics.ALWAYS_COPY,) * len(srcs), devices=srcs, srcs=devices),
)


def check_program(jaxpr: Jaxpr, place: Any, name: str) -> None:
    """NotImplementedError if a ``device_put`` inside a program names a device with other memory than it runs on."""
    own = devices.backend_at(place)
    for target in named_targets(jaxpr):
        if devices.backend_at(devices.place_on(target)) is not own:
            here = devices.CPU if own is devices.OWN else devices.device_at(place)
            raise NotImplementedError(
                f"[device_put] {name} runs on {here}, and a device_put inside of it names "
                f"{devices.as_device(target)}: a compiled program runs on one device. Put the arguments there outside "
                "of jit, or use weft.jit(function, device=...)"
            )


def check_target(jaxpr: Jaxpr, target: devices.Device, name: str) -> None:
    """NotImplementedError if a ``device_put`` inside a program names another device than the one compiled for."""
    other = next((device for device in named_targets(jaxpr) if device is not target), None)
    if other is not None:
        raise NotImplementedError(
            f"[device_put] {name} is compiled for {target}, and a device_put inside of it names {other}"
        )


def named_targets(jaxpr: Jaxpr) -> tuple[Any, ...]:
    """The devices and shardings that ``device_put`` names anywhere in a program."""
    return jaxpr.memoize("named_devices", _find_named)


def _find_named(jaxpr: Jaxpr) -> tuple[Any, ...]:
    found: dict[Any, None] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is device_put_p:
            found |= dict.fromkeys([target for target in map(devices.as_target, eqn.params["devices"]) if target])
    for inner in subjaxprs(jaxpr):
        found |= dict.fromkeys(named_targets(inner))
    return tuple(found)


@tracebacks.boundary
def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: bool | None = None
) -> Any:
    """``x`` (a pytree of arrays and scalars) as Arrays on ``device``.

    ``device`` is None, a device, a sharding, or a pytree of these that is a prefix of ``x``. ``donate`` gives up the
    operand; ``may_alias=False`` forces a copy.

    >>> weft.device_put({"a": 1.0, "b": np.ones(2)})
    {'a': Array(1., dtype=float32, weak_type=True), 'b': Array([1., 1.], dtype=float32)}
    """
    leaves, treedef = runtime.tree_flatten(x)
    targets = [_target(value) for value in spread(device, treedef, "device")]
    spread(src, treedef, "source")
    donated, aliased = spread(donate, treedef, "donate"), spread(may_alias, treedef, "may_alias")
    if any(gives and alias for gives, alias in zip(donated, aliased, strict=True)):
        raise ValueError("may_alias and donate cannot be True at the same time.")
    guard = transfers.level()
    if guard is not None and not tracing.is_tracing():
        for leaf in leaves:
            transfers.check(guard, leaf, explicit=True)
    put = [_put_leaf(*each) for each in zip(leaves, targets, donated, aliased, strict=True)]
    return runtime.tree_unflatten(treedef, put)


def _target(device: Any) -> Any:
    """What a user gave as ``device``: None, a device or a sharding; a spec alone belongs to the chosen mesh."""
    if isinstance(device, PartitionSpec):
        mesh = chosen_mesh()
        if mesh.empty:
            raise ValueError("Please set a mesh via `weft.set_mesh` if a PartitionSpec is passed to device_put")
        return NamedSharding(mesh, device)
    if isinstance(device, Space):
        return device
    try:
        return devices.as_target(device)
    except ValueError as error:
        raise ValueError(
            "`weft.device_put` only accepts `None`, `weft.sharding.Sharding`, `weft.Device` or a pytree of these "
            f"values. Received invalid value: {device}"
        ) from error


def check_fits(what: str, target: Any, shape: Sequence[int]) -> None:
    """Raise what JAX raises if an array of this shape cannot lie so; ``what`` names the array."""
    if not isinstance(target, NamedSharding):
        return
    try:
        target.check_compatible_aval(shape)
    except ValueError as error:
        raise ValueError(f"One of {what} is incompatible with its sharding annotation {target}: {error}") from None
    target.check_shape(shape)


def spread(prefix: Any, treedef: Any, name: str) -> Sequence[Any]:
    """For each leaf what a prefix of the tree says about it; None is a leaf of the prefix."""
    if not isinstance(prefix, (tuple, list, dict)):
        return [prefix] * treedef.num_leaves
    leaves, given = runtime.tree_flatten(prefix, lambda value: value is None)
    numbered = runtime.tree_unflatten(treedef, list(range(treedef.num_leaves)))
    try:
        subtrees = given.flatten_up_to(numbered)
    except ValueError as error:
        raise ValueError(
            f"device_put {name} specification must be a tree prefix of the corresponding value; it is {prefix}, and "
            f"the value has the structure {treedef}. {error}"
        ) from None
    found: list[Any] = []
    for value, subtree in zip(leaves, subtrees, strict=True):
        found += [value] * runtime.tree_structure(subtree).num_leaves
    return found


def _in_space(leaf: Any, space: Space) -> Any:
    """The sharding of a leaf in another memory of its device; None in a program, which runs in one."""
    if space.value is None or isinstance(leaf, Tracer) or tracing.recorder() is not None:
        return None
    own = leaf.sharding if isinstance(leaf, runtime.Array) else devices.SingleDeviceSharding(devices.devices()[0])
    return own.with_memory_kind(space.value)


def _put_leaf(leaf: Any, target: Any, donate: bool, may_alias: bool | None) -> Any:
    if isinstance(target, Space):
        target = _in_space(leaf, target)
    if isinstance(leaf, Tracer) or (target is not None and tracing.recorder() is not None):
        check_fits("device_put args", target, np.shape(leaf))
        semantics = ArrayCopySemantics.ALWAYS_COPY if may_alias is False else ArrayCopySemantics.REUSE_INPUT
        return device_put_p.bind(leaf, copy_semantics=(semantics,), devices=(target,), srcs=(None,))
    if devices.many_processes() and target is not None and not _is_here(target):
        return _put_across(leaf, target, donate)
    if isinstance(leaf, runtime.Array):
        place = leaf.place if target is None else devices.place_on(target)
        check_fits("device_put args", target, leaf.shape)
        if place == leaf.place and may_alias is not False and not donate and not leaf.is_deleted():
            return leaf
        copies = may_alias is False and place >> 1 == leaf.place >> 1
        held = runtime.array_from_numpy(np.asarray(leaf), leaf.aval) if copies else leaf
        moved = _typed(runtime.array_to_place(held, place), target)
        if donate:
            leaf.delete()
        return moved
    try:
        aval = avals.get_aval(leaf)
    except TypeError as error:
        raise TypeError(f"Argument {leaf!r} of type {type(leaf)} is not a valid JAX type") from error
    check_fits("device_put args", target, aval.shape)
    made = signature.to_array(leaf, aval)
    if target is None:
        return devices.at_default(made)
    return _typed(runtime.array_to_place(made, devices.place_on(target)), target)


def _is_here(target: Any) -> bool:
    """Whether a device, or all those of a sharding, belong to this process."""
    return target.is_local if isinstance(target, devices.Device) else target.is_fully_addressable


def _put_across(leaf: Any, target: Any, donate: bool) -> Any:
    """A value on devices of several processes: each takes its part of the same value."""
    if not isinstance(target, NamedSharding):
        devices.check_local(target if isinstance(target, devices.Device) else target.device_list[0])
    if not isinstance(leaf, runtime.Array):
        try:
            aval = avals.get_aval(leaf)
        except TypeError as error:
            raise TypeError(f"Argument {leaf!r} of type {type(leaf)} is not a valid JAX type") from error
        leaf = signature.to_array(leaf, aval)
    check_fits("device_put args", target, leaf.shape)
    if devices.spans_processes(leaf.place):
        made = lazy.process_calls.resharded(leaf, target)
    else:
        lazy.process_calls.check_same_value(leaf, "device_put")
        made = lazy.process_calls.part_of_whole(leaf, target)
    if donate:
        leaf.delete()
    return _typed(made, target)


def _typed(array: Any, target: Any) -> Any:
    """The array with the type that says how it lies along explicit axes of a mesh."""
    if target is None or (array.aval.explicit_sharding is None and not isinstance(target, NamedSharding)):
        return array
    aval = lazy.explicit.sharded(array.aval, target)
    return array if aval is array.aval else runtime.array_alias(array, aval)


def moved_or_lent(array: Any, device: Any, copy: bool | None) -> Any:
    """A new Array of the host on ``device``: on the same memory where its plugin takes that and ``copy`` lets it.

    ValueError if ``copy`` is false and it must be copied.
    """
    if not copy and isinstance(device, devices.Device | devices.Sharding):
        place = devices.place_on(device)
        found = devices.backend_at(place).lend(array, place)
        if found is not None:
            return found
    moved = devices.placed(lambda: array, device=device)
    if copy is False and devices.backend_at(moved.place) is not devices.backend_at(array.place):
        raise ValueError(f"[from_dlpack] copy=False, but the array can only be copied to {moved.device}")
    return moved


def device_get(x: Any) -> Any:
    """``x`` with its Arrays as (read-only) NumPy arrays, and all that has ``__array__``; other leaves as they are.

    Arrays of random keys have no NumPy counterpart: they are given on the CPU.

    >>> weft.device_get({"a": jnp.ones(2), "n": 3})
    {'a': array([1., 1.], dtype=float32), 'n': 3}
    """
    leaves, treedef = runtime.tree_flatten(x)
    return runtime.tree_unflatten(treedef, [_get_leaf(leaf) for leaf in leaves])


def _get_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tracer):
        return leaf
    if not isinstance(leaf, runtime.Array):
        return leaf.__array__() if hasattr(leaf, "__array__") else leaf
    if isinstance(leaf.aval.dtype, dtypes.ExtendedDType):
        return runtime.array_to_place(leaf, 0)
    return np.asarray(leaf)


def _each(x: Any, method: str) -> Any:
    for leaf in runtime.tree_flatten(x)[0]:
        call: Callable[[], Any] | None = getattr(leaf, method, None)
        if call is not None and not isinstance(leaf, Tracer):
            call()
    return x


def block_until_ready(x: Any) -> Any:
    """Wait until the arrays in ``x`` have been computed; returns ``x``.

    >>> weft.block_until_ready((jnp.ones(2), "text"))
    (Array([1., 1.], dtype=float32), 'text')
    """
    if type(x) is runtime.Array:  # fast path: benchmarks call this in their innermost loop
        return x.block_until_ready()
    return _each(x, "block_until_ready")


def copy_to_host_async(x: Any) -> Any:
    """Start copying the arrays in ``x`` to the host, where those of the CPU are already; returns ``x``."""
    return _each(x, "copy_to_host_async")


def effects_barrier() -> None:
    """Wait until the effects of all running computations have happened.

    Raises the first exception of a callback that no use of a result has raised yet.

    >>> weft.effects_barrier()
    """
    runtime.stream_barrier()


def stage(x: Any) -> Any:
    """``x`` as a traced value of the function being traced; an Array outside of traces. TypeError if it is no array.

    >>> lax.stage(1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if not avals.is_valid(x):
        raise TypeError(
            "Error interpreting argument to stage as a JAX value. The problematic value is of type "
            f"{type(x)} and was passed to stage at position 0."
        )
    trace = tracing.state.trace
    if isinstance(x, Tracer) or not isinstance(trace, tracing.DynamicJaxprTrace):
        return x if isinstance(x, Tracer) else signature.to_array(x, avals.get_aval(x))
    atom = trace.atom(x)
    return tracing.DynamicJaxprTracer(trace, atom.aval, atom, None)
