"""From the operands a user writes to the operands a primitive takes: dtypes unified, ranks made equal.

In: arrays, tracers, NumPy arrays and scalars, Python scalars. Out: operands of one dtype whose non-scalar members
have one rank, leading axes of extent 1 added. Python and 0-d NumPy scalars are converted at once and become literals;
anything else is converted by an equation. Operands that already agree are handed back as they are::

    promote_args("add", f32[3,4], 1)       ->  f32[3,4], 1.0:f32[]
    promote_args("add", f32[3,4], i32[4])  ->  f32[3,4], broadcast_in_dim(convert_element_type(i32[4]))  # f32[1,4]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft import operations as lax

PYTHON_SCALARS = (bool, int, float, complex)
_ARRAYLIKE = (runtime.Array, core.Tracer, np.ndarray, np.generic, bool, int, float, complex)


def is_arraylike(x: Any) -> bool:
    """Whether ``x`` may stand for an array without being converted: an array, a tracer, or a scalar."""
    return isinstance(x, _ARRAYLIKE) or hasattr(x, "__jax_array__")


def check_arraylike(name: str, *args: Any) -> None:
    """Refuse lists, strings, None and other objects, naming the function and the position."""
    for position, x in enumerate(args):
        if not isinstance(x, _ARRAYLIKE) and not hasattr(x, "__jax_array__"):
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}.")


def check_arraylike_or_none(name: str, *args: Any) -> None:
    """As ``check_arraylike``, but None passes."""
    for position, x in enumerate(args):
        if x is not None and not is_arraylike(x):
            raise TypeError(
                f"{name} requires ndarray, scalar, or None arguments, got {type(x)} at position {position}."
            )


def inexact_dtype(dtype: Any) -> Any:
    """The float (or complex) dtype that values of ``dtype`` are computed in: integers of 64 bits give float64."""
    if dtypes.issubdtype(dtype, np.inexact):
        return dtype
    wide = np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize == 8
    return np.dtype(np.float64 if wide else np.float32)


def numeric_dtype(dtype: Any) -> Any:
    """``dtype``, with bool replaced by the default integer."""
    return dtypes.canonicalize_dtype(np.int64) if dtype == np.bool_ else dtype


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array, tracer or scalar; ``()`` for Python scalars."""
    return () if isinstance(x, PYTHON_SCALARS) else tuple(np.shape(x) if not hasattr(x, "shape") else x.shape)


def dtype_of(x: Any) -> Any:
    """The canonical dtype of an array, tracer or scalar (weakly typed scalars have their default dtype)."""
    aval = getattr(x, "aval", None)
    return aval.dtype if aval is not None else dtypes.result_type(x)


def is_weak(x: Any) -> bool:
    """Whether ``x`` is weakly typed: a Python scalar or an array made from one."""
    return type(x) in PYTHON_SCALARS or bool(getattr(x, "weak_type", False))


def convert(x: Any, dtype: Any, weak_type: bool = False) -> Any:
    """``x`` as ``dtype``: unchanged if it is that already, a literal for host scalars, else an equation."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        if aval.dtype == dtype and aval.weak_type == weak_type:
            return x
        return _convert_array(x, dtype, weak_type)
    if isinstance(x, PYTHON_SCALARS):
        return _convert_python_scalar(x, dtype, weak_type)
    if isinstance(x, np.ndarray | np.generic):
        if x.ndim == 0 and not isinstance(dtype, dtypes.ExtendedDType):
            return np.asarray(x).astype(dtype)
        if dtypes.canonicalize_dtype(x.dtype) == dtype:
            return x
    return _convert_array(x, dtype, weak_type)


def as_array(x: Any) -> Any:
    """``x`` as an array or tracer of its own type; a host scalar becomes a literal (weak if it is Python's)."""
    if getattr(x, "aval", None) is not None:
        return x
    return lax.convert_element_type_p.bind(x, new_dtype=dtype_of(x), weak_type=is_weak(x), sharding=None)


def _convert_array(x: Any, dtype: Any, weak_type: bool) -> Any:
    if not weak_type:
        return lax.convert_element_type(x, dtype)
    return lax.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=True, sharding=None)


def _convert_python_scalar(x: Any, dtype: Any, weak_type: bool) -> Any:
    """A host scalar as a weak Python scalar or a strong 0-d array, by way of the scalar's default dtype."""
    kind = np.dtype(dtype).kind
    if weak_type:
        return {"b": bool, "i": int, "f": float, "c": complex}[kind](x)
    default = dtypes.canonicalize_dtype(dtypes.result_type(x))
    return np.asarray(np.asarray(x, default).astype(dtype))


def promote_dtypes(*args: Any) -> tuple[Any, ...]:
    """The operands in their common dtype; a result is weak only if all operands are."""
    dtype, weak_type = dtypes.result_type(*args, return_weak_type_flag=True)
    return tuple(convert(x, dtype, weak_type) for x in args)


def promote_dtypes_inexact(*args: Any) -> tuple[Any, ...]:
    """The operands in their common dtype, integers and bool as float."""
    dtype, weak_type = dtypes.result_type(*args, return_weak_type_flag=True)
    target = inexact_dtype(dtype)
    return tuple(convert(x, target, weak_type) for x in args)


def promote_dtypes_numeric(*args: Any) -> tuple[Any, ...]:
    """The operands in their common dtype, bool as the default integer."""
    dtype, weak_type = dtypes.result_type(*args, return_weak_type_flag=True)
    target = numeric_dtype(dtype)
    return tuple(convert(x, target, weak_type) for x in args)


def _refuse_keys(name: str, *args: Any) -> None:
    """Typed keys take part in no arithmetic."""
    found = [dtype_of(x) for x in args]
    if any(isinstance(dtype, dtypes.ExtendedDType) for dtype in found):
        raise TypeError(f"{name} does not accept dtypes {', '.join(map(str, found))}.")


def promote_shapes(*args: Any) -> tuple[Any, ...]:
    """Operands of one rank: leading axes of extent 1 are added to all but scalars."""
    shapes = [shape_of(x) for x in args]
    ranks = {len(shape) for shape in shapes if shape}
    if len(ranks) <= 1:
        return args
    rank = max(ranks)
    return tuple(
        lax.broadcast_in_dim(x, (1,) * (rank - len(shape)) + shape, tuple(range(rank - len(shape), rank)))
        if shape and len(shape) < rank
        else x
        for x, shape in zip(args, shapes, strict=True)
    )


def promote_args(name: str, *args: Any) -> tuple[Any, ...]:
    """Check, unify dtypes, unify ranks: what a ufunc does to its operands before it binds."""
    if len(args) == 2:  # the common case: two arrays of one type
        first = getattr(args[0], "aval", None)
        if first is not None and first is getattr(args[1], "aval", None):
            if not first.weak_type or first.dtype != np.bool_:  # bool is never weak in a result
                return args
    check_arraylike(name, *args)
    _refuse_keys(name, *args)
    return promote_shapes(*promote_dtypes(*args))


def promote_args_inexact(name: str, *args: Any) -> tuple[Any, ...]:
    """As ``promote_args``, integers and bool becoming float."""
    if len(args) == 1:
        aval = getattr(args[0], "aval", None)
        if aval is not None and dtypes.issubdtype(aval.dtype, np.inexact):
            return args
    check_arraylike(name, *args)
    _refuse_keys(name, *args)
    return promote_shapes(*promote_dtypes_inexact(*args))


def promote_args_numeric(name: str, *args: Any) -> tuple[Any, ...]:
    """As ``promote_args``, bool becoming the default integer."""
    check_arraylike(name, *args)
    _refuse_keys(name, *args)
    return promote_shapes(*promote_dtypes_numeric(*args))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of ``shapes`` under NumPy's rules; ValueError if there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for extents in zip(*padded, strict=True):
        others = {extent for extent in extents if extent != 1}
        if len(others) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={[tuple(shape) for shape in shapes]}")
        result.append(others.pop() if others else 1)
    return tuple(result)


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """``x`` broadcast to ``shape`` by one equation, or ``x`` itself if it has that shape."""
    own = shape_of(x)
    if own == tuple(shape):
        return x
    compatible = len(own) <= len(shape) and all(
        mine in (1, theirs) for mine, theirs in zip(own, shape[len(shape) - len(own) :], strict=True)
    )
    if not compatible:
        raise ValueError(
            "Incompatible types for broadcasting: "
            f"input type={_typed(own, x)} and requested type={_typed(tuple(shape), x)}"
        )
    return lax.broadcast_in_dim(x, tuple(shape), tuple(range(len(shape) - len(own), len(shape))))


def _typed(shape: tuple[int, ...], x: Any) -> str:
    return f"{dtype_of(x)}[{','.join(map(str, shape))}]"
