"""Tracer: the stand-in for an array while a function is traced.

A tracer has an aval and a trace, and supports what the aval is enough for: shape, dtype, length. ``weft.numpy``
installs arithmetic, indexing and array methods. Anything that needs the value raises an error that names the arguments
it depends on (``errors``). Tracers are unhashable, as arrays are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft import dtypes, errors
from weft.core import avals
from weft.core.symbolic import open_sizes


class Tracer(avals.Typed):
    """Base of the traced values of every transformation."""

    __slots__ = ("__weakref__", "_trace", "aval")
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]
    _repr_name = "Tracer"

    _trace: Any
    aval: Any

    def __init__(self, trace: Any, aval: Any) -> None:
        self._trace = trace
        self.aval = aval

    def full_lower(self) -> Any:
        """The value itself (a trace of one's own may know a simpler one)."""
        return self

    def to_concrete_value(self) -> Any:
        """None: the value is not known while tracing."""
        return None

    # -- known while tracing --------------------------------------------------------------------------------------

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(open_sizes.shape_for(self.aval.shape)) * self.aval.dtype.itemsize

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of unsized object")
        return open_sizes.shape_for(self.aval.shape)[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.aval.shape:
            raise TypeError("iteration over a 0-d array")
        open_sizes.check_known(self.aval.shape[0])
        return (self[index] for index in range(self.aval.shape[0]))  # type: ignore[index]

    def __repr__(self) -> str:
        weak = "~" if getattr(self.aval, "weak_type", False) else ""
        return f"{self._repr_name}({weak}{avals.long_text(self.aval)})"

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        return self

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_WHILE_TRACING:
            what = "method" if name in _METHODS_NOT_WHILE_TRACING else "attribute"
            text = f"The {name!r} {what} is not available on {self._error_repr()}."
            if name in _OF_SHARDS:
                raise errors.TracerAttributeError(self, text)
            if name == "sharding":
                text += " How a traced array lies is part of its type: weft.typeof(x)."
            origin = self._origin()
            raise AttributeError(f"{text}\n{origin.text}" if origin is not None else text)
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    # -- needs a value --------------------------------------------------------------------------------------------

    def _origin(self) -> Any:
        """The ``provenance.Origin`` of this value, or None."""
        return None

    def _error_repr(self) -> str:
        return f"traced array with shape {avals.long_text(self.aval)}"

    def _require_scalar(self) -> None:
        if self.aval.ndim != 0:
            raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={self.aval.ndim}")

    def __bool__(self) -> bool:
        if self.aval.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        if self.aval.size == 0:
            raise ValueError(
                "The truth value of an empty array is ambiguous. "
                "Use `array.size > 0` to check that an array is not empty."
            )
        raise errors.TracerBoolConversionError(self)

    def _no_python_scalar(self, kind: str) -> errors.ConcretizationTypeError:
        self._require_scalar()
        return errors.ConcretizationTypeError(
            self,
            f"The problem arose with the `{kind}` function. If trying to convert the data type of a value, try using "
            f"`x.astype({kind})` or `jnp.array(x, {kind})` instead.",
        )

    def __int__(self) -> int:
        raise self._no_python_scalar("int")

    def __float__(self) -> float:
        raise self._no_python_scalar("float")

    def __complex__(self) -> complex:
        raise self._no_python_scalar("complex")

    def __index__(self) -> int:
        if self.aval.ndim != 0 or not dtypes.issubdtype(self.aval.dtype, np.integer):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        raise errors.TracerIntegerConversionError(self)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise errors.TracerArrayConversionError(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "JAX arrays are immutable and do not support in-place item assignment. "
            "Instead of x[idx] = y, use x = x.at[idx].set(y) or another .at[] method: "
            "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise errors.ConcretizationTypeError(
            self,
            "The error occurred in the __reduce__ method, which may indicate an attempt to serialize/pickle a traced "
            "value.",
        )

    def _method_error(self, name: str) -> errors.ConcretizationTypeError:
        return errors.ConcretizationTypeError(self, f"The {name}() method was called on {self._error_repr()}.")

    def item(self, *args: Any) -> Any:
        raise errors.ConcretizationTypeError(self, "This occurred in the item() method of jax.Array")

    def tolist(self) -> Any:
        raise self._method_error("tolist")

    def tobytes(self, order: str = "C") -> bytes:
        raise self._method_error("tobytes")

    def devices(self) -> Any:
        raise self._method_error("devices")

    def unsafe_buffer_pointer(self) -> int:
        raise self._method_error("unsafe_buffer_pointer")

    def delete(self) -> None:
        raise self._method_error("delete")

    def is_deleted(self) -> bool:
        raise self._method_error("is_deleted")

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise self._method_error("__dlpack__")


# What arrays have and tracers lack: asking for it raises an AttributeError, so that hasattr is False.
_METHODS_NOT_WHILE_TRACING = frozenset(
    ("addressable_data", "block_until_ready", "copy_to_host_async", "on_device_size_in_bytes")
)
_OF_SHARDS = frozenset(
    ("addressable_shards", "committed", "global_shards", "is_fully_addressable", "is_fully_replicated")
)
_NOT_WHILE_TRACING = _METHODS_NOT_WHILE_TRACING | _OF_SHARDS | {"sharding"}


def is_concrete(value: Any) -> bool:
    """Whether ``value`` has a value now."""
    return not isinstance(value, Tracer)


def concrete_or_error(force: Any, value: Any, context: str = "") -> Any:
    """``force(value)`` (``value`` itself if ``force`` is None), or ConcretizationTypeError for a traced value."""
    if isinstance(value, Tracer):
        raise errors.ConcretizationTypeError(value, context)
    return value if force is None else force(value)


avals.pytype_avals[Tracer] = lambda tracer: tracer.aval
