"""From the operands a user writes to the operands a primitive takes: dtypes unified, ranks made equal.

In: arrays, tracers, NumPy arrays and scalars, Python scalars. Out: operands of one dtype whose non-scalar members
have one rank, leading axes of extent 1 added. Python and 0-d NumPy scalars are converted at once and become literals;
anything else is converted by an equation. Operands that already agree are handed back as they are::

    promote_args("add", f32[3,4], 1)       ->  f32[3,4], 1.0:f32[]
    promote_args("add", f32[3,4], i32[4])  ->  f32[3,4], broadcast_in_dim(convert_element_type(i32[4]))  # f32[1,4]
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import config, core, dtypes, errors, runtime
from weft import operations as lax
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.core.caches.budget import BUDGET
from weft.core.symbolic import sizes

PYTHON_SCALARS = (bool, int, float, complex, sizes.Size)
_ARRAYLIKE = (runtime.Array, core.Tracer, np.ndarray, np.generic, *PYTHON_SCALARS)


_SEEN = frozenset((runtime.Array, core.DynamicJaxprTracer, np.ndarray, bool, int, float, complex))


def is_arraylike(x: Any) -> bool:
    """Whether ``x`` may stand for an array without being converted: an array, a tracer, or a scalar."""
    return isinstance(x, _ARRAYLIKE) or hasattr(x, "__jax_array__")


def unwrapped(x: Any) -> Any:
    """The array of an object that says how to make one of it, by a method ``__jax_array__``; other values unchanged."""
    return x.__jax_array__() if type(x) not in _SEEN and holds_array(x) else x


def check_arraylike(name: str, *args: Any) -> None:
    """Refuse lists, strings, None and other objects, naming the function and the position."""
    for x in args:
        if type(x) not in _SEEN and not isinstance(x, _ARRAYLIKE) and not hasattr(x, "__jax_array__"):
            position = next(k for k, other in enumerate(args) if other is x)
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}.")


def another(result: Any, given: Any) -> Array:
    """``result``; if it is ``given`` itself, another Array of the same memory, so that either can be deleted."""
    return runtime.array_alias(result, result.aval) if result is given and type(result) is runtime.Array else result


def check_options(name: str, out: Any, where: Any) -> None:
    """Refuse the two options of a ufunc that write to an array: arrays never change."""
    if out is not None or where is not None:
        option, cure = ("out", "use the array that is returned") if out is not None else ("where", _SELECT)
        raise NotImplementedError(f"{option} argument of <jnp.ufunc '{name}'>: arrays are immutable; {cure}")


_SELECT = "choose afterwards, by weft.numpy.where(mask, result, otherwise)"


def inexact_dtype(dtype: Any) -> Any:
    """The float (or complex) dtype that values of ``dtype`` are computed in: integers of 64 bits give float64."""
    if dtypes.issubdtype(dtype, np.inexact):
        return dtype
    wide = np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize == 8
    return np.dtype(np.float64 if wide else np.float32)


def complex_dtype(dtype: Any) -> np.dtype:
    """The complex dtype that values of ``dtype`` become: complex128 of 64-bit floats, otherwise complex64."""
    return np.dtype(np.complex128 if dtype in (np.float64, np.complex128) else np.complex64)


def numeric_dtype(dtype: Any) -> Any:
    """``dtype``, with bool replaced by int32."""
    return np.dtype(np.int32) if dtype == np.bool_ else dtype


def holds_array(x: Any) -> bool:
    """Whether ``x`` is no array, but an object whose method ``__jax_array__`` gives one."""
    return not isinstance(x, _ARRAYLIKE) and hasattr(x, "__jax_array__")


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array, tracer or scalar; ``()`` for Python scalars."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval.shape
    if isinstance(x, PYTHON_SCALARS):
        return ()
    if holds_array(x):
        return shape_of(x.__jax_array__())
    return tuple(x.shape if hasattr(x, "shape") else np.shape(x))


def dtype_of(x: Any) -> Any:
    """The canonical dtype of an array, tracer or scalar (weakly typed scalars have their default dtype)."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval.dtype
    return dtype_of(x.__jax_array__()) if holds_array(x) else dtypes.result_type(x)


def is_weak(x: Any) -> bool:
    """Whether ``x`` is weakly typed: a Python scalar or an array made from one."""
    if isinstance(x, PYTHON_SCALARS):  # an IntEnum is an int, and np.float64 a float, which is not weak
        return not isinstance(x, np.generic)
    return bool(getattr(x, "weak_type", False))


def constant_like(value: float, x: Any, any_rank: bool = False) -> Any:
    """``value`` in the dtype of ``x``, weakly typed if ``x`` is a weak scalar (or weak of any rank)."""
    dtype = np.dtype(dtype_of(x))
    weak = is_weak(x) and dtype.kind in _PYTHON_KINDS and (any_rank or not shape_of(x))
    if type(value) is sizes.Size:
        return core.scalar(value, dtype, weak)
    return _PYTHON_KINDS[dtype.kind](value) if weak else np.asarray(value, dtype)


def convert(x: Any, dtype: Any, weak_type: bool = False) -> Any:
    """``x`` as ``dtype``: unchanged if it is that already, a literal for host scalars, otherwise an equation."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        if aval.dtype == dtype and aval.weak_type == weak_type:
            return x
        return _convert_array(x, dtype, weak_type)
    if isinstance(x, PYTHON_SCALARS):
        return _convert_python_scalar(x, dtype, weak_type)
    if isinstance(x, np.ndarray | np.generic):
        if x.ndim == 0 and not isinstance(dtype, dtypes.ExtendedDType):
            return _PYTHON_KINDS[np.dtype(dtype).kind](x) if weak_type else core.wide(np.asarray(x).astype(dtype))
        if dtypes.canonicalize_dtype(x.dtype) == dtype:
            return x
    elif holds_array(x):
        return convert(x.__jax_array__(), dtype, weak_type)
    return _convert_array(x, dtype, weak_type)


def constant(value: np.ndarray, weak_type: bool = False, dtype: Any = None) -> Array:
    """A host array as an Array of a dtype (its canonical one); it is copied."""
    dtype = dtypes.canonicalize_dtype(value.dtype) if dtype is None else dtype
    if value.dtype != dtype:
        value = runtime.convert_numpy(value, dtype)
    return runtime.array_from_numpy(value, runtime.ShapedArray(value.shape, dtype, weak_type))


def as_array(x: Any) -> Array:
    """``x`` as an array or tracer of its own type; a host scalar becomes a literal (weak if it is a Python number)."""
    if getattr(x, "aval", None) is not None:
        return x
    if holds_array(x):
        return as_array(x.__jax_array__())
    weak = is_weak(x) and not isinstance(x, bool)
    if not core.is_tracing():
        return constant(np.asarray(x), weak)
    return lax.convert_element_type_p.bind(x, new_dtype=dtype_of(x), weak_type=weak, sharding=None)


def weak_as(x: Any, *operands: Any) -> Array:
    """``x``, weakly typed if all of ``operands`` are: for functions that compute with strong types in between."""
    if is_weak(x) or not all(map(is_weak, operands)):
        return x
    return lax.convert_element_type_p.bind(x, new_dtype=dtype_of(x), weak_type=True, sharding=None)


def _convert_array(x: Any, dtype: Any, weak_type: bool) -> Any:
    if not weak_type:
        return lax.convert_element_type(x, dtype)
    return lax.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=True, sharding=None)


def _convert_python_scalar(x: Any, dtype: Any, weak_type: bool) -> Any:
    """A host scalar as a weak Python scalar or a strong 0-d array, by way of the scalar's default dtype."""
    if type(x) is sizes.Size:
        return core.scalar(x, dtype, weak_type)
    if weak_type:
        return _PYTHON_KINDS[np.dtype(dtype).kind](x)
    if dtypes.narrows(dtype):
        return core.wide(np.asarray(x).astype(dtype))
    if (x == 0 and not isinstance(x, int)) or isinstance(x, complex):  # -0.0 is no key
        return _strong_scalar(type(x), x, dtype, dtypes.result_type(x))
    return _cached_scalar(type(x), x, dtype, dtypes.result_type(x))


_PYTHON_KINDS: dict[str, type] = {"b": bool, "i": int, "f": float, "c": complex}


def _strong_scalar(kind: type, x: Any, dtype: Any, default: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # -inf as an integer, the initial value of an integer maximum
        return np.asarray(np.asarray(x, default).astype(dtype))


_cached_scalar = functools.lru_cache(maxsize=4096)(_strong_scalar)
BUDGET.enlist(lambda: _cached_scalar.cache_info().currsize, 300, _cached_scalar.cache_clear)


class _Common(NamedTuple):
    """The dtype that some operands have in common, and whether it is weak."""

    dtype: Any
    weak_type: bool
    inexact: Any
    numeric: Any
    refused: bool  # typed keys, or tangents of integers, are among the operands


_commons: dict[Any, _Common] = {}
_commons_of_dtypes: dict[Any, _Common] = {}  # the same whatever the shapes are


def _token(x: Any) -> Any:
    """What decides how ``x`` promotes: its aval, its Python type, or its NumPy dtype."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        return sizes.plain_aval(aval)
    return type(x) if is_weak(x) else getattr(x, "dtype", None)


def common_type(*args: Any) -> _Common:
    """The common type of operands, remembered by their types."""
    tokens = [_token(x) for x in args]
    if None in tokens:
        return _new_common(tuple(map(unwrapped, args)))
    key = (config.token(), *tokens)
    found = _commons.get(key)
    if found is None:
        types = (key[0], *[(x.dtype, x.weak_type) if type(x) is runtime.ShapedArray else x for x in tokens])
        found = _commons_of_dtypes.get(types)
        if found is None:
            found = _commons_of_dtypes[types] = _new_common(args)
        if len(_commons) > 8192:
            _commons.clear()
            _commons_of_dtypes.clear()
        _commons[key] = found
    return found


def _new_common(args: tuple[Any, ...]) -> _Common:
    if any(isinstance(dtype, dtypes.ExtendedDType) or dtype == dtypes.float0 for dtype in map(dtype_of, args)):
        return _Common(None, False, None, None, True)
    dtype, weak_type = dtypes.result_type(*args, return_weak_type_flag=True)
    return _Common(dtype, weak_type, inexact_dtype(dtype), numeric_dtype(dtype), False)


def promote_dtypes(*args: Any) -> tuple[Any, ...]:
    """The operands in their common dtype; a result is weak only if all operands are."""
    common = common_type(*args)
    if common.refused:
        if len({dtype_of(x) for x in args}) == 1:
            return args
        raise TypeError(
            f"typed keys and float0 cannot be combined with other dtypes: {', '.join(str(dtype_of(x)) for x in args)}"
        )
    return tuple([convert(x, common.dtype, common.weak_type) for x in args])


def promote_dtypes_inexact(*args: Any) -> tuple[Any, ...]:
    """The operands in their common dtype, integers and bool as float."""
    common = common_type(*args)
    return tuple([convert(x, common.inexact, common.weak_type) for x in args])


def promote_dtypes_numeric(*args: Any) -> tuple[Any, ...]:
    """The operands in their common dtype, bool as the default integer."""
    common = common_type(*args)
    return tuple([convert(x, common.numeric, common.weak_type) for x in args])


def _operands(name: str, args: tuple[Any, ...]) -> _Common:
    """The common type of checked operands of a function."""
    check_arraylike(name, *args)
    common = common_type(*args)
    if common.refused:
        if any(dtype_of(x) == dtypes.float0 for x in args):
            raise TypeError(dtypes.FLOAT0_OPERAND.format(name=name))
        raise TypeError(f"{name} does not accept dtypes {', '.join(str(dtype_of(x)) for x in args)}.")
    return common


def _check_rank_promotion(name: str, shapes: list[tuple[int, ...]]) -> None:
    """What the option ``numpy_rank_promotion`` asks for when the operands of ``name`` differ in rank."""
    mode = config.read("numpy_rank_promotion")
    if mode == "allow":
        return
    listed = " ".join(map(str, shapes))
    if mode == "raise":
        raise ValueError(
            f"Operands could not be broadcast together for {name} on shapes {listed} and with the config option "
            "jax_numpy_rank_promotion='raise'. Add axes with weft.numpy.expand_dims, or set the option to 'allow'."
        )
    errors.warn(
        f"Following NumPy automatic rank promotion for {name} on shapes {listed}. Set the numpy_rank_promotion config "
        "option to 'allow' to disable this warning."
    )


def promote_shapes(*args: Any, name: str | None = None) -> tuple[Any, ...]:
    """Operands of one rank: leading axes of extent 1 are added to all but scalars; ``name`` makes this checked."""
    shapes = [shape_of(x) for x in args]
    rank = 0
    uneven = False
    for shape in shapes:
        if shape:
            uneven = uneven or (rank != 0 and len(shape) != rank)
            rank = max(rank, len(shape))
    if not uneven:
        return args
    broadcast_shapes(*shapes)  # an error names the shapes as the user gave them
    if name is not None:
        _check_rank_promotion(name, [shape for shape in shapes if shape])
    return tuple([with_rank(x, rank) if shape else x for x, shape in zip(args, shapes, strict=True)])


def with_rank(x: Any, rank: int) -> Any:
    """``x`` with leading axes of extent 1, so that it has ``rank`` axes at least: what broadcasting does by itself.

    Functions that combine their own vectors with a user's array write it, since the user may have forbidden that ranks
    are promoted (the option ``numpy_rank_promotion``).
    """
    shape = shape_of(x)
    more = rank - len(shape)
    return lax.broadcast_in_dim(x, (1,) * more + shape, tuple(range(more, rank))) if more > 0 else x


def _alike(one: Any, other: Any) -> bool:
    """Whether two types differ in extents at most."""
    return one.dtype == other.dtype and one.weak_type == other.weak_type and len(one.shape) == len(other.shape)


def promote_args(name: str, *args: Any) -> tuple[Any, ...]:
    """Check, unify dtypes, unify ranks: what a ufunc does to its operands before it binds."""
    if len(args) == 2:  # the common case: two arrays of one dtype and rank
        one: Any = getattr(args[0], "aval", None)
        other: Any = getattr(args[1], "aval", None)
        if type(one) is type(other) is runtime.ShapedArray and (one is other or _alike(one, other)):
            weak_bool = one.weak_type and one.dtype == np.bool_  # bool is never weak in a result
            if not weak_bool and not isinstance(one.dtype, dtypes.ExtendedDType):
                return args
    common = _operands(name, args)
    return promote_shapes(*[convert(x, common.dtype, common.weak_type) for x in args], name=name)


def promote_args_inexact(name: str, *args: Any) -> tuple[Any, ...]:
    """As ``promote_args``, integers and bool becoming float."""
    common = _operands(name, args)
    return promote_shapes(*[convert(x, common.inexact, common.weak_type) for x in args], name=name)


def promote_args_numeric(name: str, *args: Any) -> tuple[Any, ...]:
    """As ``promote_args``, bool becoming the default integer."""
    common = _operands(name, args)
    return promote_shapes(*[convert(x, common.numeric, common.weak_type) for x in args], name=name)


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
    if len(own) > len(shape):
        raise ValueError(f"Cannot broadcast to shape with fewer dimensions: arr_shape={own} shape={tuple(shape)}")
    compatible = all(mine in (1, theirs) for mine, theirs in zip(own, shape[len(shape) - len(own) :], strict=True))
    if not compatible:
        raise ValueError(
            "Incompatible types for broadcasting: "
            f"input type={_typed(own, x)} and requested type={_typed(tuple(shape), x)}"
        )
    return lax.broadcast_in_dim(x, tuple(shape), tuple(range(len(shape) - len(own), len(shape))))


def _typed(shape: tuple[int, ...], x: Any) -> str:
    return f"{dtype_of(x)}[{','.join(map(str, shape))}]"
