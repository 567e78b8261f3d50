"""Sets, pieces and files: isin, piecewise, apply_over_axes, delete, save and load, array_repr.

isin(i32[12], i32[5])  ->  jit[name=_in1d]: eq of i32[12,1] and i32[1,5], reduce_or
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft.higher import jit as jit_module
from weft.numpy import creation, joining, promotion, rearrange, reductions

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


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """For each element the function (or number) of the first true condition; one more than conditions is the default.

    Every function is applied to the whole array, and the results are chosen from.

    >>> piecewise(np.float32(2), [True], [lambda v: v * 3]).item()
    6.0
    """
    promotion.check_arraylike("piecewise", x)
    x = promotion.as_array(x)
    conditions = [condlist] if not isinstance(condlist, list | tuple) else list(condlist)
    count = len(conditions)
    if len(funclist) == count + 1:
        functions = [funclist[-1], *funclist[:-1]]
    elif len(funclist) == count:
        functions = [0, *funclist]
    else:
        raise ValueError(
            f"with {count} condition(s), either {count} or {count + 1} functions are expected; got {len(funclist)}"
        )
    shape, dtype = promotion.shape_of(x), promotion.dtype_of(x)
    values = [f(x, *args, **kw) if callable(f) else f for f in functions]
    cases = [promotion.broadcast_to(creation.asarray(v, dtype=dtype), shape) for v in values]
    flags = [promotion.broadcast_to(creation.asarray(c, dtype=bool), shape) for c in (False, *conditions)]
    running = reductions.cumsum(joining.stack(flags), axis=0)
    chosen = promotion.convert(reductions.argmax(running, axis=0), np.dtype(np.int32))
    return lax.select_n(chosen, *cases)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Any:
    """``func(a, axis)`` for each axis in turn; axes that it drops are put back with extent 1.

    >>> apply_over_axes(reductions.sum, np.ones((2, 3), np.float32), (0, 1)).shape
    (1, 1)
    """
    promotion.check_arraylike("apply_over_axes", a)
    rank = len(promotion.shape_of(a))
    for axis in (axes,) if hasattr(axes, "__index__") else axes:
        result = func(a, axis)
        if len(promotion.shape_of(result)) == rank - 1:
            result = rearrange.expand_dims(result, operator.index(axis) % rank)
        if len(promotion.shape_of(result)) != rank:
            raise ValueError("function is not returning an array of the correct shape")
        a = result
    return a


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
