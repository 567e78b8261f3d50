"""map: a function applied along the leading axis, one element or one batch of elements at a time.

map(f, f32[10,3], batch_size=4)    a scan of 2 steps of vmap(f) on f32[4,3], then vmap(f) on the last f32[2,3]
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

from weft import runtime
from weft.batching.vmap import vmap
from weft.control import scan
from weft.core.avals import get_aval
from weft.operations.data_movement import assemble, shape

R = TypeVar("R")


def map(f: Callable[[Any], R], xs: Any, *, batch_size: int | None = None) -> R:
    """``f`` applied to each element along the leading axis of ``xs``, results stacked; elements one after the other.

    With ``batch_size``, that many elements at a time under ``vmap``, and the remaining ones in one more ``vmap``; 0
    means all at once. ValueError for leaves whose leading extents differ, or a negative ``batch_size``.

    >>> lax.map(lambda x: x ** 2, jnp.arange(3.0)).tolist()
    [0.0, 1.0, 4.0]
    >>> lax.map(lambda x: x ** 2, jnp.arange(5.0), batch_size=2).tolist()
    [0.0, 1.0, 4.0, 9.0, 16.0]
    """
    if not callable(f):
        raise TypeError("lax.map: f argument should be a callable.")
    if batch_size is None:
        return scan.scan_named(f, (), xs, None, adapt=_step)[1]
    try:
        size = operator.index(batch_size)
    except TypeError:
        raise TypeError(f"[map] batch_size must be an int or None, got {batch_size!r}") from None
    if size < 0:
        raise ValueError(f"[map] batch_size must not be negative, got {size}")
    leaves, tree = runtime.tree_flatten(xs)
    length = scan.leading_extent(leaves, None)
    steps = length // size if size else 0
    done = steps * size
    if steps == 0:
        return vmap(f)(xs)
    batches = [_folded(x, steps, size) for x in leaves]
    left = [_rows(x, done, length) for x in leaves] if done < length else None
    ys = scan.scan_named(f, (), runtime.tree_unflatten(tree, batches), None, adapt=_batched_step)[1]
    made, out_tree = runtime.tree_flatten(ys)
    if left is None:
        return runtime.tree_unflatten(out_tree, [_unfolded(y) for y in made])
    rest = runtime.tree_flatten(vmap(f)(runtime.tree_unflatten(tree, left)))[0]
    made = [assemble.concatenate((_unfolded(y), last), 0) for y, last in zip(made, rest, strict=True)]
    return runtime.tree_unflatten(out_tree, made)


def _folded(x: Any, steps: int, size: int) -> Any:
    return shape.reshape(_rows(x, 0, steps * size), (steps, size, *get_aval(x).shape[1:]))


def _rows(x: Any, start: int, stop: int) -> Any:
    inner = get_aval(x).shape[1:]
    return shape.slice(x, (start, *(0 for _ in inner)), (stop, *inner))


def _unfolded(y: Any) -> Any:
    extents = get_aval(y).shape
    return shape.reshape(y, (extents[0] * extents[1], *extents[2:]))


def _step(f: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def step(_: Any, x: Any) -> Any:
        return (), f(x)

    return step


def _batched_step(f: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return _step(vmap(f))
