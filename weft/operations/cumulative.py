"""Running reductions along one axis, in the order of docs/NUMERICS.md (from the end when reversed).

Accumulators are those of reductions.py: whoever runs the operation converts each element to the accumulator's dtype,
combines, and rounds the result of ``finish`` to the output's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, runtime
from weft.core import kinds
from weft.core.primitive import ALL
from weft.core.tangents import along
from weft.operations import prefix, reductions, references
from weft.operations.later import ops
from weft.operations.pointwise import arithmetic, complex_math
from weft.operations.pointwise.algebra import Term, where
from weft.operations.pointwise.elementwise import COMPLEX, FLOAT, NUMBER, Accepts, check_dtype, widened
from weft.operations.static import integer
from weft.runtime import Array

__all__ = [
    "cumlogsumexp",
    "cumlogsumexp_p",
    "cummax",
    "cummax_p",
    "cummin",
    "cummin_p",
    "cumprod",
    "cumprod_p",
    "cumsum",
    "cumsum_p",
]

ArrayLike = Any


def _typing(name: str, accepts: Accepts) -> Callable[..., Any]:
    def typing(x: Any, *, axis: int, reverse: bool) -> Any:
        check_dtype(name, 0, x, accepts)
        if axis < 0:
            raise ValueError(f"[{name}] XLA operations do not allow negative axes, got {axis}")
        if axis >= x.ndim:
            raise ValueError(f"[{name}] axis {axis} is out of bounds for array of shape {x.shape}")
        return runtime.ShapedArray(x.shape, x.dtype, x.weak_type)

    return typing


def _reference(combine: Callable[[Any, Any], Any], identity: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    """Compute position by position in the accumulator's dtype, and round each result once."""

    def run(x: Any, *, axis: int, reverse: bool) -> Any:
        x = np.asarray(x)
        rows = np.moveaxis(x.astype(widened(x.dtype)), axis, 0)
        rows = rows[::-1] if reverse else rows
        out = np.empty(rows.shape, rows.dtype)
        acc = np.full(rows.shape[1:], identity(rows.dtype), rows.dtype)
        with np.errstate(all="ignore"):
            for i, row in enumerate(rows):
                acc = np.asarray(combine(acc, row)).astype(rows.dtype)
                out[i] = acc
            return np.moveaxis(out[::-1] if reverse else out, 0, axis).astype(x.dtype)

    return run


def cumulative(
    name: str,
    accepts: Accepts,
    *,
    identity: Callable[[np.dtype], Any],
    combine: Callable[[Any, Any, Any], Any],
    reference: Callable[[Any, Any], Any],
    pairs: prefix.Combine | None,
    cost: float = 1.0,
    exact: Callable[[np.dtype], bool] = lambda dtype: False,
) -> core.Primitive:
    """Declare a running reduction by one accumulator; ``combine(emit, running, element)``.

    ``pairs`` combines values with their tangents; None if the operation is linear. ``exact`` as in the kind.
    """

    def accumulators(avals: Any, params: dict[str, Any]) -> Any:
        dtype = widened(avals[0].dtype)
        return ((dtype, identity(dtype)),)

    primitive = core.Primitive(
        name,
        kind=kinds.Cumulative(
            axis=lambda params: params["axis"],
            reverse=lambda params: params["reverse"],
            accumulators=accumulators,
            combine=lambda emit, left, right, **_: (combine(emit, left[0], right[0]),),
            finish=lambda emit, accs, **_: accs,
            reference=_reference(reference, identity),
            cost=cost,
            exact=exact,
        ),
    )
    primitive.def_abstract_eval(_typing(name, accepts))
    if pairs is None:
        primitive.linear = ALL
    else:
        push = along(lambda t, out, x, *, axis, reverse: prefix.scan(pairs, [x, t], axis, reverse)[1])
        primitive.partials, primitive.transpose = (push,), None
    return primitive


def _bind(primitive: core.Primitive, operand: ArrayLike, axis: int, reverse: bool) -> Array:
    return primitive.bind(operand, axis=integer(axis, primitive.name), reverse=bool(reverse))


cumsum_p = cumulative(
    "cumsum",
    NUMBER,
    identity=lambda dtype: 0,
    combine=reductions.add_values,
    reference=np.add,
    pairs=None,
    exact=reductions.exact_integers,
)
cumsum_p.transpose = lambda ct, x, *, axis, reverse: (cumsum_p.bind(ct, axis=axis, reverse=not reverse),)


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running sum along an axis.

    >>> lax.cumsum(np.int32([1, 2, 3])).tolist()
    [1, 3, 6]
    """
    return _bind(cumsum_p, operand, axis, reverse)


cumprod_p = cumulative(
    "cumprod",
    NUMBER,
    identity=lambda dtype: 1,
    combine=reductions.mul_values,
    reference=np.multiply,
    pairs=arithmetic.mul_pairs,
    exact=reductions.exact_integers,
)


def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running product along an axis.

    >>> lax.cumprod(np.int32([1, 2, 3]), reverse=True).tolist()
    [6, 6, 3]
    """
    return _bind(cumprod_p, operand, axis, reverse)


cummax_p = cumulative(
    "cummax",
    NUMBER,
    identity=reductions.lowest,
    combine=arithmetic.max_values,
    reference=references.maximum,
    pairs=arithmetic.extreme_pairs(arithmetic.max),
    exact=reductions.exact_reals,
)


def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running maximum along an axis.

    >>> lax.cummax(np.int32([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return _bind(cummax_p, operand, axis, reverse)


cummin_p = cumulative(
    "cummin",
    NUMBER,
    identity=reductions.highest,
    combine=arithmetic.min_values,
    reference=references.minimum,
    pairs=arithmetic.extreme_pairs(arithmetic.min),
    exact=reductions.exact_reals,
)


def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running minimum along an axis.

    >>> lax.cummin(np.int32([3, 1, 2])).tolist()
    [3, 1, 1]
    """
    return _bind(cummin_p, operand, axis, reverse)


def _logaddexp_values(emit: Any, left: Any, right: Any) -> Any:
    """max + log1p(exp(-|difference|)); equal infinities give themselves, NaN propagates."""
    if left.dtype.kind == "c":
        x, y = complex_math.split(emit, left), complex_math.split(emit, right)
        swap = x.re < y.re
        big, small = complex_math.choose(swap, y, x), complex_math.choose(swap, x, y)
        tail = complex_math.log1p(complex_math.exp(complex_math.sub(small, big)))
        out = complex_math.choose(big.re.equals(-np.inf), big, complex_math.add(big, tail))
        return emit.complex(out.re.value, out.im.value)
    x, y = Term(emit, left), Term(emit, right)
    big, gap = x.max(y), abs(x - y)
    return where(x.equals(y), big + float(np.log(2)), big + (-gap).call("exp").call("log1p")).value


def _logaddexp(x: Any, y: Any) -> Any:
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    big, small = np.where(x.real < y.real, y, x), np.where(x.real < y.real, x, y)
    return np.where(np.isneginf(big.real), big, big + np.log1p(np.exp(small - big)))


def _finite(x: Any) -> Any:
    """The value, or 0 for inf: a difference of two inf is NaN."""
    return ops.select(ops.eq(x, np.asarray(np.inf, x.dtype)), ops.full_like(x, 0), x)


def _logaddexp_pairs(left: list[Any], right: list[Any]) -> list[Any]:
    """log(exp x + exp y) of two values with their tangents."""
    (x, s), (y, t) = left, right
    if x.dtype.kind == "c":
        swap = ops.lt(ops.real(x), ops.real(y))
        big, small = ops.select(swap, y, x), ops.select(swap, x, y)
        grown = ops.add(big, ops.log1p(ops.exp(ops.sub(small, big))))
        out = ops.select(ops.eq(ops.exp(small), ops.full_like(x, 0)), big, grown)
    else:
        gap = ops.sub(x, y)
        grown = ops.add(ops.max(x, y), ops.log1p(ops.exp(ops.neg(ops.abs(gap)))))
        out = ops.select(ops.ne(gap, gap), ops.add(x, y), grown)
    shares = [ops.exp(ops.sub(_finite(z), _finite(out))) for z in (x, y)]
    return [out, ops.add_any(ops.mul(s, shares[0]), ops.mul(t, shares[1]))]


cumlogsumexp_p = cumulative(
    "cumlogsumexp",
    FLOAT | COMPLEX,
    identity=lambda dtype: -np.inf,
    combine=_logaddexp_values,
    reference=_logaddexp,
    pairs=_logaddexp_pairs,
    cost=28.0,
)


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Running log of the sum of exponentials along an axis.

    >>> [round(v, 4) for v in lax.cumlogsumexp(np.float32([0, 0])).tolist()]
    [0.0, 0.6931]
    """
    return _bind(cumlogsumexp_p, operand, axis, reverse)
