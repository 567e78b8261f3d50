"""pmap: a function mapped over one axis of its arguments, with one element on each device: jit of ``shard_map``.

pmap(f, axis_name="i")(x:f32[8,3])     jit of shard_map of f over a mesh of 8 devices with the axis i, on f32[3]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft import runtime, tree_util
from weft.batching import shard_map as shard_map_module
from weft.batching.vmap import mapped_size, spread, vmap
from weft.core import avals
from weft.core.sharding.meshes import Mesh, get_abstract_mesh
from weft.core.sharding.partition_specs import PartitionSpec
from weft.dispatch import devices as devices_module
from weft.dispatch.calls import jit as jit_module
from weft.operations.data_movement import shape

_AXIS_NAME = "<axis of pmap>"


def _as_tuple(numbers: Any) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)


def _check(fun: Any, in_axes: Any, out_axes: Any, devices: Sequence[Any] | None) -> None:
    """Raise for what ``pmap`` cannot be given, before there are arguments."""
    jit_module.check_callable(fun)
    if devices is not None and not len(devices):
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")
    for word, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if any(type(leaf) is not int for leaf in tree_util.tree_leaves(axes)):
            raise TypeError(
                f"pmap {word} must be an int, None, or (nested) container with those types as leaves, but got {axes!r}."
            )


def pmap(
    fun: Callable[..., Any],
    axis_name: Hashable | None = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: Any = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Any = (),
) -> Callable[..., Any]:
    """``fun`` on each device with its slice of the arguments, compiled.

    Arguments are cut along ``in_axes`` (as in ``vmap``) into as many slices as the axis is long, one for each of the
    first of ``devices`` (by default all of ``backend``), and results are stacked along ``out_axes``; a result whose
    axis is None is that of the first device. Collectives refer to the axis by ``axis_name``. Inside another ``pmap``
    or ``shard_map``, the axis is mapped by ``vmap``. ValueError where the axis is longer than there are devices, sizes
    disagree, or ``axis_size`` is another; TypeError for axes that are no ints.

    >>> weft.pmap(lambda x: x - weft.lax.psum(x, "i"), axis_name="i")(jnp.arange(3.0)[None]).shape
    (1, 3)
    """
    _check(fun, in_axes, out_axes, devices)
    static = _as_tuple(static_broadcasted_argnums)
    name = _AXIS_NAME if axis_name is None else axis_name

    @functools.wraps(fun)
    def on_slices(*args: Any, **kwargs: Any) -> Any:
        _check_static(static, len(args))
        fixed = {number % len(args) for number in static if -len(args) <= number < len(args)}
        moving = [number for number in range(len(args)) if number not in fixed]
        if isinstance(in_axes, tuple | list) and len(in_axes) != len(args):
            spread(tuple(in_axes), args, "pmap in_axes")  # which says so
        chosen = tuple([in_axes[number] for number in moving]) if isinstance(in_axes, tuple | list) else in_axes

        def with_static(named: dict[str, Any], *mapped: Any) -> Any:
            every = list(args)
            for number, value in zip(moving, mapped, strict=True):
                every[number] = value
            return fun(*every, **named)

        given = tuple([args[number] for number in moving])
        axes = (*spread(chosen, given, "pmap in_axes"), *[0] * len(tree_util.tree_leaves(kwargs)))
        leaves, tree = runtime.tree_flatten((given, kwargs))
        if all(axis is None for axis in axes):
            raise ValueError(
                f"pmap requires at least one argument with a mapped axis. It was called with {len(leaves)} arrays, "
                f"in_axes={in_axes!r} and static_broadcasted_argnums={static}."
            )
        size = mapped_size(fun, given, kwargs, leaves, list(axes), None, "pmap")
        _check_size(size, axis_size)
        if not get_abstract_mesh().empty:
            return vmap(with_static, (0, *(chosen if isinstance(chosen, tuple) else (chosen,) * len(given))), out_axes,
                        name)(kwargs, *given)  # fmt: skip
        return _on_devices(with_static, leaves, tree, axes, out_axes, name, _devices(devices, backend, size))

    return jit_module.jit(on_slices, static_argnums=static, donate_argnums=donate_argnums, backend=backend)


def _check_size(size: int, asked: int | None) -> None:
    if asked is not None and asked != size:
        raise ValueError(f"[pmap] Specified axis_size {asked} doesn't match received axis_size {size}.")
    if not size:
        raise ValueError("[pmap] the mapped axis has size 0: map over at least one element, one for each device")


def _check_static(static: tuple[int, ...], count: int) -> None:
    if any(number >= count for number in static):
        raise ValueError(
            f"pmapped function has static_broadcasted_argnums={static} but was called with only {count} positional "
            f"argument{'' if count == 1 else 's'}. All static broadcasted arguments must be passed positionally."
        )


def _devices(given: Sequence[Any] | None, backend: str | None, size: int) -> list[Any]:
    known = list(devices_module.devices(backend) if given is None else given)
    if size > len(known):
        raise ValueError(
            f"[pmap] the mapped axis has size {size}, and there are {len(known)} devices: map over fewer elements, "
            "make more virtual devices (the option num_cpu_devices), or use weft.vmap"
        )
    return known[:size]


def _on_devices(
    fun: Callable[..., Any], leaves: list[Any], tree: Any, axes: Sequence[int | None], out_axes: Any, name: Hashable,
    devices: list[Any],
) -> Any:  # fmt: skip
    """The result of ``fun(kwargs, *args)`` of the slices; ``leaves`` and ``tree`` are those of (args, kwargs)."""
    array = np.empty(len(devices), object)
    array[:] = devices
    out_tree: Any = None
    wanted: list[int | None] = []
    mapped = [axis if axis is None else axis % avals.get_aval(x).ndim for axis, x in zip(axes, leaves, strict=True)]

    def of_shards(*shards: Any) -> list[Any]:
        nonlocal out_tree
        slices = [x if dim is None else shape.squeeze(x, (dim,)) for x, dim in zip(shards, mapped, strict=True)]
        args, kwargs = runtime.tree_unflatten(tree, slices)
        result = fun(kwargs, *args)
        outs, out_tree = runtime.tree_flatten(result)
        wanted[:] = spread(out_axes, result, "pmap out_axes")
        moved = []
        for x, axis in zip(outs, wanted, strict=True):
            rank = avals.get_aval(x).ndim + 1
            if axis is not None and not -rank <= axis < rank:
                raise ValueError(
                    f"[pmap] out_axes {axis} for a result of {rank - 1} dimensions: "
                    f"axis {axis} is out of bounds for array of dimension {rank}"
                )
            moved.append(x if axis is None else shape.expand_dims(x, (axis % rank,)))
        specs[:] = [
            _spec(axis if axis is None else axis % avals.get_aval(x).ndim, name)
            for x, axis in zip(moved, wanted, strict=True)
        ]
        return moved

    specs: list[PartitionSpec] = []  # filled while ``of_shards`` is traced, before they are read
    in_specs = tuple([_spec(dim, name) for dim in mapped])
    outs = shard_map_module.mapped_function(
        of_shards, in_specs=in_specs, out_specs=specs, mesh=Mesh(array, (name,)), axis_names=frozenset(),
        check_vma=False, word="pmap",
    )(*leaves)  # fmt: skip
    return runtime.tree_unflatten(out_tree, outs)


def _spec(axis: int | None, name: Hashable) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, name)
