"""Matrices with ones on a diagonal, or below one: eye, identity, tri, and masks of both for other matrices.

eye(2)  ->  counts of rows and columns, compared
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import core, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Array:
    """Ones on the ``k``-th diagonal of an ``N`` by ``M`` (default ``N``) matrix of zeros.

    >>> eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if device is not None:
        return devices.placed(lambda: eye(N, M, k, dtype), device=device)
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, "eye")
    rows = _extent(N, "N", "eye")
    columns = rows if M is None else _extent(M, "M", "eye")
    if rows < 0 or columns < 0:
        raise ValueError(f"negative dimensions are not allowed, got {N} and {M}")
    if type(k) is int:
        return _eye(rows=rows, columns=columns, k=k, dtype=target)
    return promotion.convert(diagonal_mask(rows, columns, k), target)


@functools.partial(jit_module.jit, inline=True, static_argnames=("rows", "columns", "k", "dtype"))
def _eye(*, rows: int, columns: int, k: int, dtype: Any) -> Any:
    return promotion.convert(diagonal_mask(rows, columns, k), dtype)


def _extent(value: Any, name: str, function: str) -> int:
    if isinstance(value, core.Tracer):
        raise errors.ConcretizationTypeError(value, f"argument of '{name}' jnp.{function}()")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got ({value},). "
            f"argument of '{name}' jnp.{function}()."
        ) from None


def diagonal_mask(rows: int, columns: int, k: Any) -> Array:
    """bool[rows,columns], true where column - row is ``k``."""
    counted = dtypes.canonicalize_dtype(np.int64)
    row = lax.broadcasted_iota(counted, (rows, columns), 0)
    column = lax.broadcasted_iota(counted, (rows, columns), 1)
    return lax.eq(lax.add(row, promotion.convert(k, counted)), column)


def triangle_mask(rows: int, columns: int, k: Any) -> Array:
    """bool[rows,columns], true where column - row is at most ``k``."""
    counted = dtypes.canonicalize_dtype(np.int64)
    row = lax.broadcasted_iota(counted, (rows, columns), 0)
    shifted = lax.add(row, promotion.convert(k, counted))
    return lax.ge(shifted, lax.broadcasted_iota(counted, (rows, columns), 1))


def identity(n: Any, dtype: Any = None) -> Array:
    """The ``n`` by ``n`` identity matrix.

    >>> identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = None) -> Array:
    """Ones at and below the ``k``-th diagonal, zeros above.

    >>> tri(2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    target = np.dtype(np.float32) if dtype is None else dtypes.check_user_dtype(dtype, "tri")
    rows = _extent(N, "N", "tri")
    columns = rows if M is None else _extent(M, "M", "tri")
    if type(k) is int:
        return _tri(rows=rows, columns=columns, k=k, dtype=target)
    return promotion.convert(triangle_mask(rows, columns, k), target)


@functools.partial(jit_module.jit, inline=True, static_argnames=("rows", "columns", "k", "dtype"))
def _tri(*, rows: int, columns: int, k: int, dtype: Any) -> Any:
    return promotion.convert(triangle_mask(rows, columns, k), dtype)
