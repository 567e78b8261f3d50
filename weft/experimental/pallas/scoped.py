"""References made inside of kernels: ``run_scoped``, ``with_scoped``, ``run_state``; arrays that nobody has written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import runtime
from weft.effects import refs
from weft.experimental.pallas import spaces
from weft.operations.data_movement import assemble


def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any) -> Any:
    """``f`` of new references of the given types; what it returns. They are undefined at first, semaphores zero.

    ``types`` are trees of what ``scratch_shapes`` has: ``weft.ShapeDtypeStruct(shape, dtype)``, ``ANY(shape, dtype)``,
    a semaphore.

    >>> def kernel(x_ref, out_ref):
    ...     def inner(total):
    ...         total[...] = x_ref[...] + 1
    ...         out_ref[...] = total[...] * total[...]
    ...     pallas.run_scoped(inner, pallas.ANY((3,), "float32"))
    >>> pallas.pallas_call(kernel, weft.ShapeDtypeStruct((3,), "float32"))(jnp.arange(3.0))
    Array([1., 4., 9.], dtype=float32)
    """
    if not callable(f):
        raise TypeError(f"[run_scoped] takes a function of references first, got {f!r}")
    if collective_axes:
        raise NotImplementedError(
            "[run_scoped] `collective_axes`: a reference that several programs share; scratch_shapes are shared by all "
            "cells of a grid"
        )
    asked, tree = runtime.tree_flatten((types, kw_types))
    kinds = [spaces.ref_type(entry, "run_scoped") for entry in asked]
    made = [refs.new_ref(spaces.first_value(kind)) for kind in kinds]
    args, kwargs = runtime.tree_unflatten(tree, made)
    return f(*args, **kwargs)


def with_scoped(*types: Any, collective_axes: Any = (), **kw_types: Any) -> Callable[..., Any]:
    """A decorator: the function is called with new references, as by ``run_scoped``, after its other arguments."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            inner = functools.partial(f, *args, **kwargs)
            return run_scoped(inner, *types, collective_axes=collective_axes, **kw_types)

        return call

    return decorate


def run_state(f: Callable[..., None]) -> Callable[..., Any]:
    """A function of values that runs ``f`` on references which begin as them; it gives their last values.

    >>> def double(state):
    ...     x_ref, y_ref = state
    ...     y_ref[...] = x_ref[...] * 2
    >>> pallas.run_state(double)((jnp.float32(3), jnp.float32(0)))
    (Array(3., dtype=float32), Array(6., dtype=float32))
    """

    @functools.wraps(f)
    def run(state: Any) -> Any:
        values, tree = runtime.tree_flatten(state)
        made = [refs.new_ref(x) for x in values]
        f(runtime.tree_unflatten(tree, made))
        return runtime.tree_unflatten(tree, [refs.freeze(ref) for ref in made])

    return run


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array whose elements nobody has written; here they are zero."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    return assemble.full(extents, 0, dtype, sharding=out_sharding)


def empty_like(x: Any) -> Any:
    """``empty`` with the shape and dtype of ``x``."""
    return empty(x.shape, x.dtype)


def empty_ref_like(x: Any) -> Any:
    """A reference to an array with the shape and dtype of ``x``."""
    return refs.new_ref(empty(x.shape, x.dtype))


def select_ref(idx: Any, *given: Any) -> Any:
    """One of several references, by a traced number; a number known while tracing selects it at once."""
    if isinstance(idx, int):
        return given[idx]
    raise NotImplementedError(
        "pallas.select_ref by a traced index: read each reference and choose among the values with weft.lax.select_n"
    )
