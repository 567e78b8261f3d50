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

from weft import runtime
from weft.core import avals, kinds, tracebacks
from weft.core import trace as tracing
from weft.core.jaxpr import Jaxpr, subjaxprs
from weft.core.primitive import ALL, Primitive
from weft.core.tracer import Tracer
from weft.dispatch import devices, signature, transfers


class ArrayCopySemantics(enum.Enum):
    """Whether ``device_put`` may return the operand itself."""

    ALWAYS_COPY = 0
    REUSE_INPUT = 1
    DONATE_INPUT = 2

    def __repr__(self) -> str:
        return str(self)


def _same_type(x: Any, **params: Any) -> Any:
    return x


def _eager(params: dict[str, Any]) -> Callable[[Any], Any] | None:
    """What moves the operand of a ``device_put`` that no program contains, if it names a device."""
    (device,) = params["devices"]
    return None if device is None else lambda x: device_put(x, device)


device_put_p = Primitive("device_put", kind=kinds.Identity(eager=_eager))
device_put_p.def_abstract_eval(_same_type)
device_put_p.linear = ALL
device_put_p.transpose = lambda ct, x, *, srcs, devices, **_: (
    device_put_p.bind(ct, copy_semantics=(ArrayCopySemantics.ALWAYS_COPY,) * len(srcs), devices=srcs, srcs=devices),
)


def check_program(jaxpr: Jaxpr, place: int, name: str) -> None:
    """NotImplementedError if a ``device_put`` inside a program names another device than the one it runs on."""
    for device in _named_devices(jaxpr):
        if device.number != place >> 1:
            raise NotImplementedError(
                f"[device_put] {name} runs on {devices.BY_NUMBER[place >> 1]}, and a device_put inside of it names "
                f"{device}: a compiled program runs on one device. Put the arguments there outside of jit, or use "
                "weft.jit(function, device=...)"
            )


def _named_devices(jaxpr: Jaxpr) -> tuple[devices.Device, ...]:
    """The devices that ``device_put`` names anywhere in a program."""
    return jaxpr.memoize("named_devices", _find_named_devices)


def _find_named_devices(jaxpr: Jaxpr) -> tuple[devices.Device, ...]:
    found: dict[devices.Device, None] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is device_put_p:
            found |= dict.fromkeys([device for device in map(devices.as_device, eqn.params["devices"]) if device])
    for inner in subjaxprs(jaxpr):
        found |= dict.fromkeys(_named_devices(inner))
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
    targets = _spread(device, treedef, "device")
    _spread(src, treedef, "source")
    for target in {id(value): value for value in targets}.values():
        _check_device(target)
    donated, aliased = _spread(donate, treedef, "donate"), _spread(may_alias, treedef, "may_alias")
    if any(gives and alias for gives, alias in zip(donated, aliased, strict=True)):
        raise ValueError("may_alias and donate cannot be True at the same time.")
    guard = transfers.level()
    if guard is not None and not tracing.is_tracing():
        for leaf in leaves:
            transfers.check(guard, leaf, explicit=True)
    put = [_put_leaf(*each) for each in zip(leaves, targets, donated, aliased, strict=True)]
    return runtime.tree_unflatten(treedef, put)


def _check_device(device: Any) -> None:
    try:
        devices.as_device(device)
    except ValueError as error:
        raise ValueError(
            "`weft.device_put` only accepts `None`, `weft.sharding.Sharding`, `weft.Device` or a pytree of these "
            f"values. Received invalid value: {device}"
        ) from error


def _spread(prefix: Any, treedef: Any, name: str) -> Sequence[Any]:
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


def _put_leaf(leaf: Any, device: Any, donate: bool, may_alias: bool | None) -> Any:
    if isinstance(leaf, Tracer) or (device is not None and tracing.recorder() is not None):
        semantics = ArrayCopySemantics.ALWAYS_COPY if may_alias is False else ArrayCopySemantics.REUSE_INPUT
        return device_put_p.bind(leaf, copy_semantics=(semantics,), devices=(device,), srcs=(None,))
    target = devices.as_device(device)
    if isinstance(leaf, runtime.Array):
        place = leaf.place if target is None else target.number << 1 | 1
        copies = may_alias is False and place >> 1 == leaf.place >> 1
        held = runtime.array_from_numpy(np.asarray(leaf), leaf.aval) if copies else leaf
        moved = runtime.array_to_place(held, place)
        if donate:
            leaf.delete()
        return moved
    try:
        aval = avals.get_aval(leaf)
    except TypeError as error:
        raise TypeError(f"Argument {leaf!r} of type {type(leaf)} is not a valid JAX type") from error
    made = signature.to_array(leaf, aval)
    return devices.at_default(made) if target is None else runtime.array_to_place(made, target.number << 1 | 1)


def device_get(x: Any) -> Any:
    """``x`` with its Arrays as (read-only) NumPy arrays; other leaves are returned unchanged.

    >>> weft.device_get({"a": jnp.ones(2), "n": 3})
    {'a': array([1., 1.], dtype=float32), 'n': 3}
    """
    leaves, treedef = runtime.tree_flatten(x)
    return runtime.tree_unflatten(treedef, [np.asarray(v) if isinstance(v, runtime.Array) else v for v in leaves])


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
