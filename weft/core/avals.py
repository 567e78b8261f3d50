"""Abstract values: the type a concrete value has inside a program.

    get_aval(2.5)                      f32[], weak
    get_aval(np.float64(2.5))          f32[]              (f64[] with x64)
    get_aval(weft array of shape 3)    f32[3]

Python scalars are weakly typed. A NumPy dtype that is not available (64 bits without x64) is narrowed silently.
Anything that is neither an array nor a scalar raises TypeError.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, dtypes, errors, runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.symbolic import open_sizes
from weft.runtime import ShapedArray

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


class Typed:
    """Something with an ``aval``, which says what it answers before its value is known, or without one."""

    __slots__ = ()
    aval: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape if open_sizes.thread.session is None else open_sizes.shape_for(self.aval.shape)

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        if open_sizes.thread.session is None:
            return self.aval.size
        return math.prod(open_sizes.shape_for(self.aval.shape))

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type


def scalar_aval(kind: type) -> ShapedArray:
    """The aval of a Python bool, int, float or complex."""
    return _PYTHON_AVALS[config.x64_enabled()][kind]


def _make_scalar_avals(x64: bool) -> dict[type, ShapedArray]:
    with config.context("enable_x64", x64):
        kinds = dtypes.python_scalar_types
        return {kind: ShapedArray((), dtypes.scalar_dtype(kind), weak_type=kind is not bool) for kind in kinds}


_PYTHON_AVALS = {x64: _make_scalar_avals(x64) for x64 in (False, True)}


def _bool_aval(value: bool) -> ShapedArray:
    return scalar_aval(bool)


def _int_aval(value: int) -> ShapedArray:
    aval = scalar_aval(int)
    low, high = _INT64 if aval.dtype.itemsize == 8 else _INT32
    if not low <= value <= high:
        raise OverflowError(f"Python int {value} too large to convert to {aval.dtype.name}")
    return aval


def _float_aval(value: float) -> ShapedArray:
    return scalar_aval(float)


def _complex_aval(value: complex) -> ShapedArray:
    return scalar_aval(complex)


def _array_aval(value: Any) -> ShapedArray:
    return value.aval


def is_masked(value: Any) -> bool:
    """Whether a value is a masked array of NumPy. Answered without importing ``numpy.ma``, which takes long."""
    kind = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return kind is not None and isinstance(value, kind)


def _numpy_aval(value: np.ndarray | np.generic) -> ShapedArray:
    dtype = value.dtype
    if is_masked(value):
        raise ValueError(
            "numpy masked arrays are not supported as direct inputs to JAX functions. "
            "Use arr.filled() to convert the value to a standard numpy array."
        )
    if not dtypes.is_supported(dtype):
        raise TypeError(
            f"Value '{value}' with dtype {dtype} is not a valid JAX array type. "
            "Only arrays of numeric types are supported by JAX."
        )
    return ShapedArray(value.shape, dtypes.canonicalize_dtype(dtype))


def host_aval(value: Any, operands: Sequence[Any]) -> Any:
    """The aval of a host value among operands: of 64 bits, whatever the configuration, beside an array of its dtype."""
    aval = get_aval(value)
    own = getattr(value, "dtype", None)
    if own is None or aval.dtype is own or not dtypes.narrows(own):
        return aval
    beside = any(getattr(getattr(x, "aval", None), "dtype", None) is own for x in operands)
    return ShapedArray(value.shape, own) if beside else aval


def numpy_scalar_aval(value: np.ndarray | np.generic) -> ShapedArray:
    """The aval of a NumPy scalar or 0-d ndarray."""
    key = (value.dtype, config.x64_enabled())
    aval = _numpy_scalar_avals.get(key)
    if aval is None:
        aval = _numpy_aval(value)
        if len(_numpy_scalar_avals) < _SCALAR_BOUND:
            _numpy_scalar_avals[key] = aval
    return aval


_numpy_scalar_avals: dict[tuple[np.dtype, bool], ShapedArray] = {}
_SCALAR_BOUND = 256

# Exact type -> aval. core.tracing.trace adds its tracers, random its keys.
pytype_avals: dict[type, Callable[[Any], Any]] = {
    bool: _bool_aval,
    int: _int_aval,
    float: _float_aval,
    complex: _complex_aval,
    runtime.Array: _array_aval,
    np.ndarray: _numpy_aval,
    **dict.fromkeys(dtypes.SCALAR_TYPES, _numpy_aval),
}


# Types of what describes an array without having its values -> the aval. Traced functions may return such things.
structs: dict[type, Callable[[Any], Any]] = {ShapedArray: lambda aval: aval}


def find_rule(value: Any) -> Callable[[Any], Any] | None:
    """The rule that gives the aval of ``value``: that of its exact type, or of the first base class that has one."""
    rule = pytype_avals.get(type(value))
    if rule is not None:
        return rule
    for base in type(value).__mro__[1:]:
        if base in pytype_avals:
            return pytype_avals[base]
    return _numpy_aval if isinstance(value, (np.ndarray, np.generic)) else None


def get_aval(value: Any) -> Any:
    """The aval of an array, a traced value or a scalar."""
    rule = find_rule(value)
    if rule is None:
        raise not_an_array(value) or TypeError(f"Argument '{value}' of type {type(value)} is not a valid JAX type")
    return rule(value)


def not_an_array(value: Any) -> errors.ArrayHolderError | None:
    """The error for an object that could be made an array by its method ``__jax_array__``; None for other values."""
    if isinstance(value, type) or not hasattr(value, "__jax_array__"):
        return None
    return errors.ArrayHolderError(
        "Triggering __jax_array__() during abstractification is no longer supported. To avoid this error, either "
        "explicitly convert your object using jax.numpy.array(), or register your object as a pytree. The object is of "
        f"type {type(value)}."
    )


def typeof(value: Any) -> Any:
    """The type of a value, as printed jaxprs show it: shape, dtype and weakness."""
    described = structs.get(type(value))
    return get_aval(value) if described is None else described(value)


def physical_aval(aval: ShapedArray) -> ShapedArray:
    """For an array of keys the type of its words, which has more dimensions at the end; other types unchanged."""
    if not dtypes.is_words(aval.dtype):
        return aval
    words, dtype = dtypes.words_of(aval.dtype)
    return ShapedArray((*aval.shape, *words), dtype)


def key_words(array: runtime.Array) -> np.ndarray:
    """The words of an array of keys."""
    return np.asarray(runtime.array_alias(array, physical_aval(array.aval)))


def from_numpy(value: np.ndarray, aval: ShapedArray) -> runtime.Array:
    """An Array of the given type; for keys ``value`` holds their words."""
    if not dtypes.is_extended(aval.dtype):
        return runtime.array_from_numpy(value, aval)
    return runtime.array_alias(runtime.array_from_numpy(value, physical_aval(aval)), aval)


def is_valid(value: Any) -> bool:
    """Whether ``value`` may be an operand of a primitive."""
    rule = find_rule(value)
    if rule is None:
        return False
    try:
        rule(value)
    except TypeError:
        return False
    return True


def short_dtype_name(dtype: Any) -> str:
    """float32 -> f32, uint8 -> u8, bool -> bool; an extended dtype names itself."""
    if dtype == dtypes.float0:
        return "float0"
    name = dtype.name
    if dtypes.is_extended(dtype):
        return "Tok" if name == "token" else name
    for long, short in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        name = name.replace(long, short)
    return name


def short_text(aval: Any) -> str:
    """``f32[3,4]``, as in printed jaxprs."""
    if type(aval) is not ShapedArray:
        return aval.str_short(short_dtypes=True)
    if aval.explicit_sharding is not None or aval.varying:
        return aval.str_short(short_dtypes=True)
    name = _short_dtype_names[aval.dtype]
    return name if name == "Tok" else f"{name}[{','.join(map(str, aval.shape))}]"


def long_text(aval: Any) -> str:
    """``float32[3,4]``, as in error messages; weakness is not shown."""
    if type(aval) is not ShapedArray:
        return str(aval)
    if aval.explicit_sharding is not None or aval.varying:
        return aval.str_short(short_dtypes=False)
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


class _ShortNames(dict[Any, str]):
    def __missing__(self, dtype: Any) -> str:
        name = self[dtype] = short_dtype_name(dtype)
        return name


_short_dtype_names = _ShortNames()


class ManualAxisType(NamedTuple):
    """JAX's description of how values differ between devices; weft has no types of partial sums."""

    varying: frozenset[Any]
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()


# JAX's methods and attributes of types; those of tangents are set by core.tangents
_JAX: dict[str, Any] = {
    "normalize": lambda aval: aval.strip_weak_type(),
    "update_weak_type": lambda aval, weak_type: aval.update(weak_type=weak_type),
    "is_high": False,
    "vma": property(lambda aval: frozenset(aval.varying)),
    "mat": property(lambda aval: ManualAxisType(frozenset(aval.varying))),
    "sharding": property(lambda aval: lazy.submodule("weft.core.sharding.explicit").of_type(aval)),
}
for _name, _value in _JAX.items():
    setattr(ShapedArray, _name, _value)
