"""Tangents and cotangents in derivative rules: arrays of the tangent type, or a symbolic zero.

Zero(f32[3])        a tangent that is zero and was never computed
Undefined(f32[3])   in a transposition, an operand in which the equation is linear: it has a type and no value
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.core.avals import Typed, get_aval
from weft.runtime import ShapedArray

FLOAT0 = dtypes.float0

_has_tangent: dict[Any, bool] = {}


def is_differentiable(dtype: Any) -> bool:
    """Whether values of this dtype have tangents other than zero: floats and complex numbers."""
    known = _has_tangent.get(dtype)
    if known is None:
        known = isinstance(dtype, np.dtype) and dtypes.issubdtype(dtype, np.inexact)
        _has_tangent[dtype] = known
    return known


def tangent_aval(aval: Any) -> Any:
    """The type of the tangents of a value: its own, or float0 for integers, bools and keys."""
    return aval if is_differentiable(aval.dtype) else ShapedArray(aval.shape, FLOAT0)


for _name in ("to_tangent_aval", "to_ct_aval", "at_least_vspace"):  # JAX's names for it
    setattr(ShapedArray, _name, tangent_aval)


class Zero(Typed):
    """A tangent or cotangent that is zero. ``aval`` is its own type (float0 for integers)."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(tangent_aval(get_aval(value)))

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


class _Scalar:
    """A Python number with the attributes of a weakly typed array, for derivative rules."""

    __slots__ = ()
    shape = ()
    ndim = 0
    size = 1
    weak_type = True

    @property
    def dtype(self) -> Any:
        return get_aval(self).dtype


class Number(_Scalar, float):
    __slots__ = ()


class ComplexNumber(_Scalar, complex):
    __slots__ = ()


class WholeNumber(_Scalar, int):
    pass


_NUMBERS: dict[type, type] = {float: Number, complex: ComplexNumber, int: WholeNumber}
_PLAIN = {number: plain for plain, number in _NUMBERS.items()}


def with_attributes(value: Any) -> Any:
    """A Python number with the attributes of an array; any other value unchanged."""
    number = _NUMBERS.get(type(value))
    return value if number is None else number(value)


def plain(value: Any) -> Any:
    """The inverse of ``with_attributes``."""
    kind = _PLAIN.get(type(value))
    return value if kind is None else kind(value)


class Undefined:
    """In a transposition, an operand in which the equation is linear."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval.str_short()})"


def is_undefined(value: Any) -> bool:
    """Whether an operand of a transposition is one that the function is linear in, and so has no value."""
    return type(value) is Undefined


# Neither is an array: in trees, both are nodes without leaves.
runtime.register_node(Zero, lambda zero: ((), zero.aval), lambda aval, _: Zero(aval))
runtime.register_node(Undefined, lambda value: ((), value.aval), lambda aval, _: Undefined(aval))


class Along:
    """A partial derivative stated as its product with a tangent (see ``along``)."""

    __slots__ = ("push",)

    def __init__(self, push: Callable[..., Any]) -> None:
        self.push = push


def along(push: Callable[..., Any]) -> Along:
    """An entry of ``partials``: ``push(tangent, out, *operands, **params)``, linear in the tangent.

    For derivatives that are not a product with a coefficient, or where JAX multiplies in another order.
    """
    return Along(push)
