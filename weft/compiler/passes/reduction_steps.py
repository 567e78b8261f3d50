"""Reductions of a few elements, written as operations: what ``prepare``, ``combine`` and ``finish`` emit.

    reduce_sum of a, b and c: f32[n]    ->    add (add (add 0.0 a) b) c

Elements are combined in the order of docs/NUMERICS.md, so that the bits stay. The kind alone is asked: every reduction
of one operand has this form whose functions emit arithmetic, comparisons and choices. Others stay reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft.compiler import expansions
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn
from weft.core.tracing.tracer import Tracer
from weft.loops.numpy_emit import NumpyEmit
from weft.loops.reduction_tree import LANES

Values = tuple[Any, ...]  # one for each accumulator


def written_out(eqn: JaxprEqn, rows: Sequence[int]) -> ClosedJaxpr | None:
    """The program of a reduction's elements, ``rows`` of them in each row that the tree takes by itself; None: no form.

    Elements have the shape of the result.
    """
    kind, params = eqn.primitive.kind, eqn.params
    if not isinstance(kind, kinds.Reduction) or len(eqn.invars) != 1 or len(eqn.outvars) != 1:
        return None
    operand, out = eqn.invars[0].aval, eqn.outvars[0].aval
    few = _Few(kind, params, operand)

    def function(*elements: Any) -> Any:
        found = lax.convert_element_type(few.reduced(elements, rows), out.dtype)
        return found if found.shape == out.shape else lax.broadcast(found, out.shape)  # a known position

    who = eqn.primitive, "written out", tuple(rows), few.in_order
    element = operand.update(shape=out.shape)
    try:
        return expansions.expansion(who, function, (element,) * sum(rows), params)
    except (_NoFormError, AttributeError):  # an emitter has no such method
        return None


class _NoFormError(Exception):
    """An identity changes what is combined with it."""


class _Few:
    """A reduction whose elements are arrays."""

    def __init__(self, kind: kinds.Reduction, params: dict[str, Any], operand: Any) -> None:
        self.kind, self.params, self.emit, self.known = kind, params, _Equations(), NumpyEmit()
        accumulators = kind.accumulators([operand], params)
        self.identities = tuple([np.asarray(identity, dtype) for dtype, identity in accumulators])
        # in every order the bits are the same, and in that of positions there is a cheaper form
        self.append = kind.forms.append if all(kind.exact(x.dtype) for x in self.identities) else None
        self.in_order = operand.ndim - 1 not in kind.axes(params) or self.append is not None

    def combine(self, left: Values, right: Values) -> Values:
        return (self.append or self.kind.combine)(self.emit, left, right, **self.params)

    def reduced(self, elements: Sequence[Any], rows: Sequence[int]) -> Any:
        values = [self._prepared(x, position) for position, x in enumerate(elements)]
        if self._identity_matters():
            values[0] = self.combine(self.identities, values[0])
        totals = []
        for n in rows:
            row, values = values[:n], values[n:]
            totals.append(self._in_order(row) if self.in_order else self._by_halves(row))
        (out,) = self.kind.finish(self.emit, self._in_order(totals), **self.params)
        return out

    def _prepared(self, element: Any, position: int) -> Values:
        index = np.asarray(position, np.int64) if self.kind.needs_index else None
        return tuple(self.kind.prepare(self.emit, (element,), index, **self.params))

    def _identity_matters(self) -> bool:
        """Whether an identity makes -0.0 to 0.0. One that changes more (a complex 1 times inf is NaN) has no form."""
        if self.append is not None:
            return False
        some = tuple([_some(x.dtype) for x in self.identities])
        with np.errstate(all="ignore"):
            found = self.kind.combine(self.known, self.identities, some, **self.params)
        pairs = [(np.asarray(a), b) for a, b in zip(found, some, strict=True)]
        if not all(np.array_equal(a, b) for a, b in pairs):
            raise _NoFormError
        return any(a.tobytes() != b.tobytes() for a, b in pairs)

    def _in_order(self, values: Sequence[Values]) -> Values:
        total = values[0]
        for value in values[1:]:
            total = self.combine(total, value)
        return total

    def _by_halves(self, values: list[Values]) -> Values:
        half = LANES // 2
        while half:
            for lane in range(min(half, len(values) - half)):
                values[lane] = self.combine(values[lane], values[lane + half])
            values, half = values[:half], half // 2
        return values[0]


def _some(dtype: np.dtype) -> np.ndarray:
    """Numbers that an identity might change."""
    return np.array([-0.0, np.inf, 1] if dtypes.issubdtype(dtype, np.inexact) else [0, 1, 1], dtype)


def _are_known(*values: Any) -> bool:
    return not any(isinstance(x, Tracer) for x in values)


class _Written:
    """A method of an emitter whose operation emits just it; if all operands are constants, its result is computed
    here."""

    def __init__(self, operation: Callable[..., Any]) -> None:
        self.operation = operation

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, emit: _Equations, owner: type) -> Callable[..., Any]:
        return lambda *args: (getattr(emit.known, self.name) if _are_known(*args) else self.operation)(*args)


class _Equations:
    """The emitter protocol in operations on traced values."""

    abs, neg, sign, floor, ceil = map(_Written, (lax.abs, lax.neg, lax.sign, lax.floor, lax.ceil))
    add, sub, mul, div, rem = map(_Written, (lax.add, lax.sub, lax.mul, lax.div, lax.rem))
    max, min, is_finite = map(_Written, (lax.max, lax.min, lax.is_finite))
    and_, or_, xor, not_ = map(_Written, (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor, lax.bitwise_not))
    complex, real, imag = map(_Written, (lax.complex, lax.real, lax.imag))

    def __init__(self) -> None:
        self.known = NumpyEmit()
        self.const = self.known.const

    def convert(self, x: Any, dtype: Any) -> Any:
        return self.known.convert(x, dtype) if _are_known(x) else lax.convert_element_type(x, dtype)

    def compare(self, direction: str, x: Any, y: Any) -> Any:
        return self.known.compare(direction, x, y) if _are_known(x, y) else getattr(lax, direction)(x, y)

    def select(self, which: Any, on_false: Any, on_true: Any) -> Any:
        if _are_known(which):
            return on_true if which else on_false
        shape = which.shape
        return lax.select_n(which, *[x if x.shape == shape else lax.broadcast(x, shape) for x in (on_false, on_true)])
