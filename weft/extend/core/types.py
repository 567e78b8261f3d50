"""Types of values under JAX's names: AbstractValue, tokens, and types with one dimension more or less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.core import avals
from weft.core.ref_types import AbstractRef
from weft.core.tangents import is_differentiable

ShapedArray = runtime.ShapedArray
array_types = frozenset((np.ndarray, *dtypes.SCALAR_TYPES))  # of values that are no weft Arrays and may be operands
pytype_aval_mappings = avals.pytype_avals
ParamDict = dict[str, Any]  # the parameters of an equation
Value = Any  # a traced value or one that may be an operand


class _TypeOfTypes(type):
    """Types of arrays and of references are instances of ``AbstractValue``."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is AbstractValue and isinstance(instance, (runtime.ShapedArray, AbstractRef)):
            return True
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is AbstractValue and issubclass(subclass, (runtime.ShapedArray, AbstractRef)):
            return True
        return super().__subclasscheck__(subclass)


class AbstractValue(metaclass=_TypeOfTypes):
    """What a value is in a program: the base of all types of values."""

    is_high = False

    def to_tangent_aval(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must override to_tangent_aval")

    def at_least_vspace(self) -> Any:
        return self.to_tangent_aval()

    def to_ct_aval(self) -> Any:
        return self.to_tangent_aval()

    def strip_weak_type(self) -> Any:
        return self

    def update_weak_type(self, weak_type: bool) -> Any:
        return self

    def update(self, **changes: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must override update")

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        return str(self)


class AbstractToken(AbstractValue):
    """The type of a token, by which JAX orders effects. weft orders the steps of a program instead."""

    def to_tangent_aval(self) -> Any:
        return self

    def update(self, **changes: Any) -> AbstractToken:
        return self

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        return "Tok"

    def __repr__(self) -> str:
        return "AbstractToken()"


abstract_token = AbstractToken()


class Token:
    """A value that is ready when an effect has happened."""

    def __init__(self, buf: Any) -> None:
        self._buf = buf

    def block_until_ready(self) -> None:
        """Wait until the effect has happened."""
        self._buf.block_until_ready()


def _map_array(size: int, axis: int | None, aval: Any) -> Any:
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ValueError(f"[mapped_aval] axis {axis} of {aval.str_short()} has size {aval.shape[axis]}, not {size}")
    shape = list(aval.shape)
    del shape[axis]
    return aval.update(shape=tuple(shape))


def _unmap_array(size: int, axis: int | None, explicit_mesh_axis: Any, aval: Any) -> Any:
    if axis is None:
        return aval
    shape = list(aval.shape)
    shape.insert(axis, size)
    return aval.update(shape=tuple(shape))


# type of types -> (the type of an element, the type of all elements)
aval_mapping_handlers: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    runtime.ShapedArray: (_map_array, _unmap_array),
    AbstractToken: (lambda size, axis, aval: aval, lambda size, axis, mesh_axis, aval: aval),
}


def mapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """The type of an element of a mapped value: without dimension ``axis``, which has ``size`` elements.

    >>> weft.extend.core.mapped_aval(3, 0, weft.core.ShapedArray((3, 2), "float32")).shape
    (2,)
    """
    return _mapping(aval)[0](size, axis, aval)


def unmapped_aval(size: int, axis: int | None, aval: Any, explicit_mesh_axis: Any = None) -> Any:
    """The type of a mapped value, given that of an element.

    >>> weft.extend.core.unmapped_aval(3, 1, weft.core.ShapedArray((2,), "float32")).shape
    (2, 3)
    """
    return _mapping(aval)[1](size, axis, explicit_mesh_axis, aval)


def _mapping(aval: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    handlers = aval_mapping_handlers.get(type(aval))
    if handlers is None:
        raise TypeError(f"no mapping handler for {aval} of type {type(aval)}: only types of arrays can be mapped")
    return handlers


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of tangents: the same, or float0 for integers and booleans."""
    dtype = primal_dtype if dtypes.is_extended(primal_dtype) else np.dtype(primal_dtype)
    return dtype if is_differentiable(dtype) else dtypes.float0


def valid_jaxtype(x: Any) -> bool:
    """Whether ``x`` may be an operand: an array, a traced value or a number."""
    return avals.is_valid(x)


def shaped_abstractify(x: Any) -> Any:
    """The type of an array, a number, or anything with a shape and a dtype; TypeError for other values."""
    if isinstance(x, AbstractValue):
        return x
    if avals.find_rule(x) is not None:
        return avals.get_aval(x)
    if hasattr(x, "dtype"):
        dtype = dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
        return runtime.ShapedArray(tuple(np.shape(x)), dtype, bool(getattr(x, "weak_type", False)))
    raise TypeError(
        f"Cannot interpret value of type {type(x)} as an abstract array; it does not have a dtype attribute"
    )


def raise_to_shaped(aval: Any, weak_type: bool | None = None) -> Any:
    """The type itself (in old versions of JAX: a type without a value)."""
    return aval if weak_type is None else aval.update(weak_type=weak_type)


def max_dim(d1: int, d2: int) -> int:
    """The larger of two sizes."""
    return max(d1, d2)


def min_dim(d1: int, d2: int) -> int:
    """The smaller of two sizes."""
    return min(d1, d2)


def is_constant_dim(d: Any) -> bool:
    """Whether a size is a number: True, since weft has no sizes that are symbols."""
    return isinstance(d, (int, np.integer))


def is_constant_shape(shape: Any) -> bool:
    """Whether all sizes are numbers."""
    return all(map(is_constant_dim, shape))
