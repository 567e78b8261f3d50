"""pmap and shard_map on one device: the axis over devices has size 1, and collectives over it are vmap's.

``pmap(f)`` runs f on the one slice of its arguments; ``shard_map`` runs it on the arrays as they are, since every shard
is the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft.batching.vmap import vmap
from weft.dispatch import jit as jit_module
from weft.dispatch import shardings
from weft.dispatch.devices import PartitionSpec

_AXIS_OF_PMAP = "<axis of pmap>"


def _as_tuple(numbers: Any) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)


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
    """``fun`` on each device with its slice of the arguments; there is one device, hence one slice.

    Arguments are cut along ``in_axes``, where they have size 1, and results joined along ``out_axes``; collectives
    refer to the axis by ``axis_name``. ValueError where an axis has another size than 1.

    >>> weft.pmap(lambda x: x - weft.lax.psum(x, "i"), axis_name="i")(jnp.arange(3.0)[None]).shape
    (1, 3)
    """
    if devices is not None and len(devices) != 1:
        raise ValueError(f"[pmap] there is one device, weft.devices()[0]; got {len(devices)}")
    jit_module.check_callable(fun)
    static = _as_tuple(static_broadcasted_argnums)

    @functools.wraps(fun)
    def on_slices(*args: Any, **kwargs: Any) -> Any:
        positions = [number for number in range(len(args)) if number not in static]
        axes = in_axes if not isinstance(in_axes, tuple | list) else tuple(in_axes[number] for number in positions)

        def with_static(named: dict[str, Any], *mapped: Any) -> Any:
            every = list(args)
            for number, value in zip(positions, mapped, strict=True):
                every[number] = value
            return fun(*every, **named)

        some = tuple(axes) if isinstance(axes, tuple) else (axes,) * len(positions)
        _check_sizes(some, [args[number] for number in positions], kwargs)
        return vmap(with_static, (0, *some), out_axes, axis_name or _AXIS_OF_PMAP, 1)(
            kwargs, *[args[number] for number in positions]
        )

    return jit_module.jit(on_slices, static_argnums=static, donate_argnums=donate_argnums, backend=backend)


def _check_sizes(axes: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    for axis, arg in [*zip(axes, args, strict=True), *[(0, value) for value in kwargs.values()]]:
        for leaf in runtime.tree_flatten(arg)[0] if isinstance(axis, int) else ():
            size = np.shape(leaf)[axis] if np.ndim(leaf) > axis else None
            if size != 1:
                raise ValueError(
                    f"[pmap] the mapped axis has size {size} in an argument of shape {np.shape(leaf)}, and there is "
                    "1 device: give it size 1, or use weft.vmap"
                )


def _check_specs(what: str, specs: Any) -> None:
    for leaf in runtime.tree_flatten(specs)[0]:
        if not isinstance(leaf, PartitionSpec):
            raise TypeError(f"[shard_map] {what} are a tree of PartitionSpec objects and None, got {leaf!r}")


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = None,
    mesh: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
    check_rep: bool = True,
) -> Any:
    """``f`` on each device with its shards of the arguments; there is one device, whose shards are the arrays.

    The axes of ``mesh`` (by default the one that ``set_mesh`` chose), or those in ``axis_names``, are bound in ``f``
    with size 1, so that collectives work. Without ``f``, gives a decorator.

    >>> mesh = weft.make_mesh((1,), ("i",))
    >>> P = weft.sharding.PartitionSpec
    >>> weft.shard_map(lambda x: weft.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    if f is None:
        return functools.partial(shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names)
    jit_module.check_callable(f)
    _check_specs("in_specs", in_specs)
    _check_specs("out_specs", out_specs)
    chosen = shardings.get_mesh() if mesh is None else mesh
    if any(size != 1 for size in chosen.axis_sizes):
        raise NotImplementedError(f"[shard_map] weft has one device; the mesh {chosen} wants {chosen.size}")
    names = [name for name in chosen.axis_names if not axis_names or name in axis_names]

    @functools.wraps(f)
    def on_whole(*args: Any) -> Any:
        def body(values: tuple[Any, ...]) -> Any:
            return f(*values)

        run = body
        for name in reversed(names):
            run = _under_axis(run, name)
        return run(args)

    return on_whole


def _under_axis(function: Callable[[Any], Any], name: Hashable) -> Callable[[Any], Any]:
    mapped = vmap(function, in_axes=None, out_axes=0, axis_name=name, axis_size=1)

    def with_axis(values: Any) -> Any:
        leaves, treedef = runtime.tree_flatten(mapped(values))
        return runtime.tree_unflatten(treedef, [leaf[0] for leaf in leaves])

    return with_axis
