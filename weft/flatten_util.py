"""weft.flatten_util: a pytree of arrays as one vector, and back.

{'w': f32[2,3], 'b': f32[]}  ->  f32[7], and a function from f32[7] to {'w': f32[2,3], 'b': f32[]}
"""

from __future__ import annotations

import math
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
    if not leaves:
        return lax.full((0,), 0, np.dtype(np.float32)), Unravel(tree, (), None)
    types = tuple([avals.get_aval(leaf) for leaf in leaves])
    common = dtypes.result_type(*leaves)
    weak = all(aval.weak_type for aval in types)
    vectors = [lax.reshape(_as(leaf, common, weak), (aval.size,)) for leaf, aval in zip(leaves, types, strict=True)]
    return lax.concatenate(vectors, 0), Unravel(tree, tuple([(aval.shape, aval.dtype) for aval in types]), common)


class Unravel:
    """The function that takes a vector apart; equal to that of another tree of the same structure, shapes and dtypes,
    so that it can be a static argument of ``jit``."""

    __slots__ = ("common", "tree", "types")

    def __init__(self, tree: Any, types: tuple[tuple[tuple[int, ...], np.dtype], ...], common: np.dtype | None) -> None:
        self.tree = tree
        self.types = types
        self.common = common  # the dtype of the vector; None without leaves

    def __call__(self, vector: Any) -> Any:
        sizes = [math.prod(shape) for shape, _ in self.types]
        mixed = any(dtype != self.common for _, dtype in self.types)
        _check(vector, (sum(sizes),), self.common if mixed else None)
        parts = lax.split(vector, sizes) if sizes else []
        leaves = [self._restored(part, *of) for part, of in zip(parts, self.types, strict=True)]
        return runtime.tree_unflatten(self.tree, leaves)

    def _restored(self, part: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        part = lax.reshape(part, shape)
        return part if dtype == self.common else _as(part, dtype, False)

    def _key(self) -> tuple[Any, ...]:
        return self.tree, self.types, self.common

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unravel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


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
