"""Operators, methods and properties of arrays: one table, installed on ``runtime.Array`` and ``core.Tracer``.

A binary operator defers (NotImplemented) to operands it does not know. On concrete arrays the native
``BinaryOperator`` calls the jitted function directly when both operands are simple; the Python function below is its
fallback and what tracers use. Functions that are methods under their own name are loaded when first asked for.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft import operations as lax
from weft._base import lazy
from weft.core.symbolic import open_sizes
from weft.dispatch import devices
from weft.numpy import axes, promotion, rearrange, reductions, small_copies
from weft.numpy.array_creation import creation
from weft.numpy.linear_algebra import contractions
from weft.numpy.pointwise import arithmetic, logic, selection

_ACCEPTED = (runtime.Array, core.Tracer, np.ndarray, np.generic, *promotion.PYTHON_SCALARS)

# name of the dunder (without underscores) -> function of two operands
BINARY: dict[str, Callable[..., Any]] = {
    "add": arithmetic.add,
    "sub": arithmetic.subtract,
    "mul": arithmetic.multiply,
    "truediv": arithmetic.true_divide,
    "floordiv": arithmetic.floor_divide,
    "mod": arithmetic.remainder,
    "divmod": arithmetic.divmod,
    "pow": arithmetic.power,
    "matmul": contractions.matmul,
    "and": logic.bitwise_and,
    "or": logic.bitwise_or,
    "xor": logic.bitwise_xor,
    "lshift": logic.left_shift,
    "rshift": logic.right_shift,
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": logic.equal,
    "ne": logic.not_equal,
    "lt": logic.less,
    "le": logic.less_equal,
    "gt": logic.greater,
    "ge": logic.greater_equal,
}
SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "divmod": "divmod()", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
UNARY: dict[str, Any] = {
    "neg": arithmetic.negative,
    "pos": arithmetic.positive,
    "abs": arithmetic.absolute,
    "invert": logic.invert,
}


def _defers(other: Any) -> bool:
    return not isinstance(other, _ACCEPTED) and not hasattr(other, "__jax_array__")


def _defer(name: str, self: Any, other: Any) -> Any:
    """NotImplemented. For a container, which no operation takes as an array, TypeError that says what to do."""
    if isinstance(other, list | tuple | set | dict):
        kind = type(other).__name__
        raise TypeError(
            f"unsupported operand type(s) for {SYMBOLS[name]}: 'weft.Array' and {kind!r}. Make an array of the {kind} "
            "first, with weft.numpy.asarray."
        )
    return NotImplemented


def _forward(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, other: Any) -> Any:
        return _defer(name, self, other) if _defers(other) else function(self, promotion.unwrapped(other))

    return operate


def _reflected(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Any, other: Any) -> Any:
        return _defer(name, self, other) if _defers(other) else function(promotion.unwrapped(other), self)

    return operate


def _power(self: Any, other: Any, modulus: None = None) -> Any:
    if modulus is not None or _defers(other):
        return _defer("pow", self, other)
    return arithmetic.power(self, promotion.unwrapped(other))


def _transpose(self: Any, *args: Any) -> Any:
    one = len(args) == 1 and (args[0] is None or not axes.is_one(args[0]))
    return rearrange.transpose(self, None if not args else args[0] if one else args)


def _reshape(self: Any, *args: Any, order: str = "C", out_sharding: Any = None) -> Any:
    if out_sharding is not None:
        return devices.placed(lambda: _reshape(self, *args, order=order), out_sharding=out_sharding)
    shape = args[0] if len(args) == 1 and not axes.is_one(args[0]) else args
    return rearrange.reshape(self, shape, order)


def _compress(
    self: Any, condition: Any, axis: int | None = None, *, out: None = None, size: int | None = None,
    fill_value: Any = 0,
) -> Any:  # fmt: skip
    return sys.modules["weft.numpy"].compress(condition, self, axis, out=out, size=size, fill_value=fill_value)


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    if device is not None:
        return devices.placed(lambda: _astype(self, dtype, copy), device=device)
    return creation.astype(self, dtype, copy=copy)


def _clip(self: Any, min: Any = None, max: Any = None) -> Any:
    limits = {"min": min, "max": max}
    return selection.clip(self, **{name: limit for name, limit in limits.items() if limit is not None})


def _flatten(self: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    if out_sharding is not None:
        return devices.placed(lambda: _flatten(self, order), out_sharding=out_sharding)
    return rearrange.ravel(self, order)


def _view(self: Any, dtype: Any = None, type: None = None) -> Any:
    """The same bytes as another dtype; the last axis changes with the item size."""
    if type is not None:
        raise NotImplementedError("`type` argument of array.view() is not supported.")
    if dtype is None:
        return self
    target, own = dtypes.check_user_dtype(dtype, "view"), self.dtype
    if own == target:
        return self
    if np.bool_ in (own, target):
        return _view_bool(self, own, target)
    if dtypes.issubdtype(own, np.complexfloating) or dtypes.issubdtype(target, np.complexfloating):
        return _view_complex(self, own, target)
    old, new = dtypes.itemsize_bits(own), dtypes.itemsize_bits(target)
    if old == new:
        return lax.bitcast_convert_type(self, target)
    if not self.shape:
        raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
    if old > new:
        wide = lax.bitcast_convert_type(self, target)
        return lax.reshape(wide, (*wide.shape[:-2], wide.shape[-2] * wide.shape[-1]))
    return lax.bitcast_convert_type(_grouped(self, new // old), target)


def _grouped(x: Any, factor: int) -> Any:
    """``x[..., n]`` as ``[..., n / factor, factor]``."""
    if not x.shape or x.shape[-1] % factor:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the last axis of"
            " the array."
        )
    return lax.reshape(x, (*x.shape[:-1], x.shape[-1] // factor, factor))


def _view_complex(self: Any, own: Any, target: Any) -> Any:
    """A view from or to a complex dtype, whose elements are two parts of half its size, one after the other."""
    if dtypes.issubdtype(own, np.complexfloating):
        if not self.shape:
            raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
        parts = lax.concatenate([x[..., None] for x in (lax.real(self), lax.imag(self))], len(self.shape))
        return _view(lax.reshape(parts, (*self.shape[:-1], 2 * self.shape[-1])), target)
    half = np.dtype(np.float32) if target.itemsize == 8 else np.dtype(np.float64)
    pairs = _grouped(_view(self, half), 2)
    return lax.complex(pairs[..., 0], pairs[..., 1])


def _byteswap(self: Any) -> Any:
    """Each element with its bytes in the opposite order; each part of a complex number by itself."""
    own = self.dtype
    if dtypes.issubdtype(own, np.complexfloating):
        return lax.complex(_byteswap(lax.real(self)), _byteswap(lax.imag(self)))
    if own.itemsize == 1:
        return self
    parts = lax.bitcast_convert_type(self, np.dtype(np.uint8))
    return lax.bitcast_convert_type(lax.rev(parts, (len(self.shape),)), own)


def _view_bool(self: Any, own: Any, target: Any) -> Any:
    if own == np.bool_:
        as_bytes = lax.convert_element_type(self, np.uint8)
        return as_bytes if target == np.uint8 else _view(as_bytes, target)
    as_bytes = self if own == np.uint8 else _view(self, np.uint8)
    return lax.ne(as_bytes, np.asarray(0, np.uint8))


def _trace(self: Any, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    return sys.modules["weft.numpy"].trace(self, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, out=out)


def _contains(self: Any, item: Any) -> bool:
    promotion.check_arraylike("Array.__contains__", item)
    if len(self.shape) != 1:
        raise ValueError(
            f"Array.__contains__: search array must be one-dimensional, got arr.shape={self.shape}. Compare and reduce "
            "instead: (arr == query).any()"
        )
    if np.shape(item):
        raise ValueError(f"Array.__contains__: query value must be a scalar, got query.shape={np.shape(item)}")
    return bool(reductions.any(logic.equal(self, item)))


def _iter_traced(self: Any) -> Iterator[Any]:
    if not self.aval.shape:
        raise TypeError("iteration over a 0-d array")
    open_sizes.check_known(self.aval.shape[0])
    return lazy.submodule("weft.numpy.subscripts.indexing").rows(self)


def _round_dunder(self: Any, ndigits: int | None = None) -> Any:
    rounded = sys.modules["weft.numpy"].round(self, ndigits or 0)
    return rounded.astype(int) if ndigits is None else rounded


def _copy(self: Any) -> Any:
    return creation.array(self, copy=True)


def _var(
    self: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: int | float | None = None,
) -> Any:
    return sys.modules["weft.numpy"].var(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


def _std(
    self: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: int | float | None = None,
) -> Any:
    return sys.modules["weft.numpy"].std(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)


def _dot(self: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    return contractions.dot(self, b, precision=precision, preferred_element_type=preferred_element_type)


def _array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    if api_version is not None and api_version != "2024.12":
        raise ValueError(f"api_version={api_version!r} is not available; available versions are: ['2024.12']")
    return sys.modules["weft.numpy"]


METHODS: dict[str, Callable[..., Any]] = {
    "__contains__": _contains,
    "__round__": _round_dunder,
    "__array_namespace__": _array_namespace,
    "astype": _astype,
    "byteswap": _byteswap,
    "clip": _clip,
    "compress": _compress,
    "copy": _copy,
    "dot": _dot,
    "flatten": _flatten,
    "reshape": _reshape,
    "std": _std,
    "trace": _trace,
    "transpose": _transpose,
    "var": _var,
    "view": _view,
}
# What stands in other modules: method -> module of weft.numpy and its function.
FUNCTIONS: dict[str, tuple[str, str]] = {
    "__getitem__": ("subscripts.indexing", "index"),
    **{name: (module, name) for module, names in {
        "bins": "searchsorted",
        "array_creation.matrices": "diagonal",
        "rearrange": "ravel squeeze swapaxes",
        "reductions": "all any argmax argmin cumprod cumsum max min prod ptp sum",
        "pointwise.rounding": "conj conjugate round",
        "searching": "nonzero",
        "sorting": "argpartition argsort sort",
        "statistics": "mean",
        "subscripts.taking": "choose repeat take",
    }.items() for name in names.split()},
}  # fmt: skip
PROPERTIES: dict[str, tuple[str, str]] = {
    "T": ("rearrange", "transpose"),
    "mT": ("rearrange", "matrix_transpose"),
    "real": ("pointwise.rounding", "real"),
    "imag": ("pointwise.rounding", "imag"),
    "at": ("subscripts.index_updates", "IndexUpdates"),
}


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, so that it binds ``self`` whatever the callable is."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = getattr(function, "__name__", "method")
    method.__doc__ = function.__doc__
    return method


def _flat(self: Any) -> Any:
    raise NotImplementedError("JAX Arrays do not implement the arr.flat property: consider arr.flatten() instead.")


class _Later:
    """A method or property that loads its module when it is first looked up, and which it then replaces."""

    def __init__(self, name: str, module: str, function: str) -> None:
        self.name, self.module, self.function = name, f"weft.numpy.{module}", function

    def __get__(self, instance: Any, owner: type) -> Any:
        function = getattr(lazy.submodule(self.module), self.function)
        found: Any = _as_method(function) if isinstance(function, runtime.JitFunction) else function
        if self.name in PROPERTIES:
            found = property(function, doc=(function.__doc__ or "").partition("\n")[0])
        for target in (runtime.Array, core.Tracer):
            if isinstance(vars(target)[self.name], _Later):  # arrays may have a view of the runtime's
                setattr(target, self.name, found)
        return found.__get__(instance, owner)


def _install_operators(target: type, native: bool) -> None:
    def binary(function: Callable[..., Any], fallback: Callable[..., Any], reflected: bool) -> Any:
        if native and isinstance(function, runtime.JitFunction):
            return runtime.BinaryOperator(function, fallback, reflected)
        return fallback

    for name, function in BINARY.items():
        forward = _power if name == "pow" else _forward(name, function)
        setattr(target, f"__{name}__", binary(function, forward, False))
        setattr(target, f"__r{name}__", binary(function, _reflected(name, function), True))
    for name, function in COMPARISONS.items():
        setattr(target, f"__{name}__", binary(function, _forward(name, function), False))
    for name, function in UNARY.items():
        fallback = _as_method(function)
        setattr(target, f"__{name}__", runtime.UnaryOperator(function, fallback) if native else fallback)


def _later(module: str, function: str) -> Callable[..., Any]:
    """A function that loads its module when it is called."""

    found: Any = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal found
        if found is None:
            found = getattr(lazy.submodule(f"weft.numpy.{module}"), function)
        return found(*args, **kwargs)

    call.__name__ = function
    return call


def _install_views() -> None:
    """Small views of arrays are copied by the runtime, which leaves everything else to the functions here."""

    def view(name: str, fallback: Callable[..., Any]) -> Any:
        return functools.update_wrapper(runtime.ViewOperator(name, fallback, small_copies.is_unwatched), fallback)

    array: Any = runtime.Array
    array.__getitem__ = view("index", _later(*FUNCTIONS["__getitem__"]))
    array.reshape = view("reshape", _reshape)
    array.ravel, array.flatten = view("ravel", rearrange.ravel), view("ravel", _flatten)
    array.T = property(view("transpose", rearrange.transpose))


def _install() -> None:
    """Put the table on arrays and tracers."""
    for target in (runtime.Array, core.Tracer):
        _install_operators(target, native=target is runtime.Array)
        for name, method in METHODS.items():
            setattr(target, name, method)
        for name, (module, function) in {**FUNCTIONS, **PROPERTIES}.items():
            setattr(target, name, _Later(name, module, function))
        target.flat = property(_flat)  # type: ignore[union-attr]
        target.__hash__ = None  # type: ignore[assignment]
    core.Tracer.__iter__ = _iter_traced  # type: ignore[method-assign]
    _install_views()


_install()
