"""Arithmetic of integers that follow from sizes: an operation's own definition, run on ``core.symbolic.sizes``.

select_n (lt n 0) n (add n m)    ->    n, and the guard: not n < 0
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import dtypes
from weft._base.record import NamedTuple
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.symbolic.sizes import Size


class _Number(NamedTuple):
    """A number or a Size, in a dtype that holds it."""

    value: Any
    dtype: np.dtype


def _within(value: Any, dtype: np.dtype) -> _Number:
    """OverflowError where the dtype wraps, so that the number is another one."""
    if dtype.kind in "iu" and not dtypes.iinfo(dtype).min <= value <= dtypes.iinfo(dtype).max:
        raise OverflowError
    return _Number(value, dtype)


class _Emit:
    """What definitions of operations call (``core.emit``), as far as numbers of sizes need it."""

    def const(self, value: Any, dtype: np.dtype) -> _Number:
        return _within(value, np.dtype(dtype))

    def add(self, x: _Number, y: _Number) -> _Number:
        return _within(x.value + y.value, x.dtype)

    def sub(self, x: _Number, y: _Number) -> _Number:
        return _within(x.value - y.value, x.dtype)

    def mul(self, x: _Number, y: _Number) -> _Number:
        return _within(x.value * y.value, x.dtype)

    def max(self, x: _Number, y: _Number) -> _Number:
        return x if x.value >= y.value else y

    def min(self, x: _Number, y: _Number) -> _Number:
        return x if x.value <= y.value else y

    def compare(self, direction: str, x: _Number, y: _Number) -> _Number:
        return _Number(getattr(operator, direction)(x.value, y.value), np.dtype(np.bool_))

    def select(self, which: _Number, on_false: _Number, on_true: _Number) -> _Number:
        return on_true if which.value else on_false


def number(equation: JaxprEqn) -> Literal | None:
    """The result of an operation on integer literals and sizes; None for other operations."""
    values = [
        _Number(v.val if type(v.val) is Size else np.asarray(v.val, v.aval.dtype).item(), v.aval.dtype)
        for v in equation.invars
        if isinstance(v, Literal)
    ]
    try:
        found = equation.primitive.kind.scalar(_Emit(), *values, **equation.params)
    except (AttributeError, OverflowError):
        return None
    out = equation.outvars[0].aval
    return Literal(found.value if type(found.value) is Size else out.dtype.type(found.value), out)
