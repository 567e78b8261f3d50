"""Membership, files and text: isin, save and load, array_repr.

isin(i32[12], i32[5])  ->  jit[name=_in1d]: eq of i32[12,1] and i32[1,5], reduce_or
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft.higher import jit as jit_module
from weft.numpy import creation, promotion, rearrange, reductions

jit = jit_module.jit


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Any:
    """Whether each element is among ``test_elements`` (or is not, with ``invert``); all are compared with all.

    >>> isin(2, np.array([1, 2])).item()
    True
    """
    promotion.check_arraylike("isin", element, test_elements)
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ValueError(f"method={method!r} is not supported")
    shape = promotion.shape_of(element)
    found = _in1d(element, test_elements, invert=bool(invert))
    return rearrange.reshape(found, shape)


@functools.partial(jit, static_argnames=("invert",))
def _in1d(element: Any, test_elements: Any, *, invert: bool) -> Any:
    element, test_elements = promotion.promote_dtypes(element, test_elements)
    element, test_elements = rearrange.ravel(element), rearrange.ravel(test_elements)
    count = promotion.shape_of(test_elements)[0]
    if math.prod(promotion.shape_of(element)) == 0 or count == 0:
        return lax.full(promotion.shape_of(element), invert, np.bool_)
    rows, columns = lax.expand_dims(element, (1,)), lax.expand_dims(test_elements, (0,))
    if invert:
        return reductions.all(lax.ne(rows, columns), axis=1)
    return reductions.any(lax.eq(rows, columns), axis=1)


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write an array to a file in NumPy's format."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write arrays to one file in NumPy's archive format."""
    named: dict[str, Any] = {name: np.asarray(a) for name, a in kwds.items()}
    np.savez(file, *(np.asarray(a) for a in args), allow_pickle=allow_pickle, **named)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """An array from a file that ``save`` wrote; an archive is handed back as NumPy gives it."""
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype.kind == "V" and found.dtype.names is None and found.dtype.itemsize == 2:
        found = found.view(dtypes.bfloat16)  # NumPy's format does not name it
    return creation.asarray(found)


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The text of an array with its type, as NumPy writes it.

    >>> array_repr(np.arange(2))
    'array([0, 1])'
    """
    return np.array_repr(np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The text of an array's values, as NumPy writes it.

    >>> array_str(np.arange(2))
    '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)
