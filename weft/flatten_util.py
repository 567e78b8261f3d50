"""weft.flatten_util: a pytree of arrays as one vector, and back.

{'w': f32[2,3], 'b': f32[]}  ->  f32[7], and a function from f32[7] to {'w': f32[2,3], 'b': f32[]}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft import operations as lax
from weft._base import unbuilt
from weft.core import avals


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The leaves of a pytree end to end in one vector, and the function that takes such a vector apart.

    Args:
        pytree: arrays or numbers of any shapes and dtypes, in any containers.

    Returns:
        The vector, of the dtype to which all leaves promote (float32 of no element if there are none), and a
        function from vectors of its shape to pytrees of the given structure, shapes and dtypes.

    Raises:
        TypeError: a leaf is no array; or the vector given back has another dtype than the one made.
        ValueError: the vector given back has another shape.

    >>> flat, unravel = weft.flatten_util.ravel_pytree({"a": jnp.arange(3.0), "b": 7.0})
    >>> flat
    Array([0., 1., 2., 7.], dtype=float32)
    >>> unravel(2 * flat)["b"]
    Array(14., dtype=float32)
    """
    leaves, tree = runtime.tree_flatten(pytree)
    flat, unravel = _ravel_leaves(leaves)

    def unravel_pytree(vector: Any) -> Any:
        return runtime.tree_unflatten(tree, unravel(vector))

    return flat, unravel_pytree


def _ravel_leaves(leaves: list[Any]) -> tuple[Any, Callable[[Any], list[Any]]]:
    if not leaves:
        empty = lax.full((0,), 0, np.dtype(np.float32))
        return empty, lambda vector: [_check(vector, (0,), None)][1:]
    shapes = [avals.get_aval(leaf) for leaf in leaves]
    common = dtypes.result_type(*leaves)
    sizes = [int(np.prod(aval.shape)) for aval in shapes]
    weak = all(aval.weak_type for aval in shapes)
    vectors = [lax.reshape(_as(leaf, common, weak), (size,)) for leaf, size in zip(leaves, sizes)]
    flat = lax.concatenate(vectors, 0)

    def unravel(vector: Any) -> list[Any]:
        _check(vector, (sum(sizes),), None if all(aval.dtype == common for aval in shapes) else common)
        return [restored(part, aval) for part, aval in zip(lax.split(vector, sizes), shapes)]

    def restored(part: Any, aval: Any) -> Any:
        part = lax.reshape(part, aval.shape)
        return part if aval.dtype == common else _as(part, aval.dtype, False)

    return flat, unravel


def _as(value: Any, dtype: Any, weak: bool) -> Any:
    aval = avals.get_aval(value)
    if aval.dtype == dtype and aval.weak_type == weak:
        return value
    return lax.convert_element_type_p.bind(value, new_dtype=np.dtype(dtype), weak_type=weak, sharding=None)


def _check(vector: Any, shape: tuple[int, ...], dtype: Any) -> None:
    aval = avals.get_aval(vector)
    if tuple(aval.shape) != shape:
        raise ValueError(f"unravel expects a vector of shape {shape}, which ravel_pytree gave, but got {aval.shape}")
    if dtype is not None and aval.dtype != dtype:
        raise TypeError(
            f"unravel expects a vector of dtype {dtype}, which ravel_pytree gave, but got {aval.dtype}: convert it"
            f" with .astype({dtype})"
        )


__getattr__ = unbuilt.fallback("weft.flatten_util")
