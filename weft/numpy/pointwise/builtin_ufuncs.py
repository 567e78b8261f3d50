"""Which functions of weft.numpy are ufuncs (as in JAX), what they leave unchanged, and how they reduce.

add         identity 0    reduce is sum, accumulate is cumsum, at is x.at[i].add
maximum     none          reduce is max, the others are those of any ufunc
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft.numpy import axes, promotion, reductions
from weft.numpy.array_creation import creation
from weft.numpy.pointwise.arithmetic import add, maximum, minimum, multiply, negative, subtract
from weft.numpy.pointwise.elementary import logaddexp, logaddexp2
from weft.numpy.pointwise.logic import bitwise_and, bitwise_or, bitwise_xor, logical_and, logical_or, logical_xor
from weft.numpy.pointwise.ufuncs import give_methods
from weft.numpy.reductions import Reducer


def _all_bits(dtype: Any) -> Any:
    return np.asarray(-1).astype(dtype)


def _no_bits(dtype: Any) -> Any:
    return np.asarray(0, dtype)


def _one(dtype: Any) -> Any:
    return np.asarray(1, dtype)


def _reducing(reducer: Reducer, prepare: Callable[[Any], Any] = creation.asarray) -> Callable[..., Any]:
    """``reduce`` of a ufunc by one of ``lax``'s reductions, of operands that ``prepare`` makes."""

    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        return reductions.reduce_by(
            prepare(a), initial, where, reducer=reducer, axis=axes.static_axes(axis),
            dtype=reductions.user_dtype(dtype, reducer.name), keepdims=keepdims, widen=False,
        )  # fmt: skip

    return reduce


def _integers(a: Any) -> Any:
    dtype = promotion.dtype_of(a)
    if dtype != np.bool_ and not dtypes.issubdtype(dtype, np.integer):
        raise ValueError(f"integer argument required; got dtype={dtype}")
    return a


def _truth(a: Any) -> Any:
    return promotion.convert(a, np.dtype(np.bool_))


def _log_of_sum(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any, base: Any = None) -> Any:
    """log(sum(exp(a))) without overflow; ``base`` 2: log2(sum(2**a)). The dtype is that of ``a``, as in JAX."""
    reductions.user_dtype(dtype, "logaddexp.reduce")
    scale = 1.0 if base is None else float(np.log(base))
    (a,) = promotion.promote_dtypes_inexact(a if base is None else a * scale)
    largest = reductions.max(a.real, axis=axis, keepdims=True, where=where, initial=-np.inf)
    largest = lax.stop_gradient(lax.select(lax.is_finite(largest), largest, lax.full_like(largest, 0)))
    total = reductions.sum(lax.exp(a - largest), axis=axis, keepdims=keepdims, where=where)
    result = lax.log(total) + (largest if keepdims else largest.reshape(total.shape))
    return (result if initial is None else logaddexp(initial * scale, result)) / scale


def _counted(name: str) -> Callable[..., Any]:
    """``at`` by an update of the array's own; truth values are counted in int32."""

    def at(a: Any, indices: Any, b: Any) -> Any:
        promotion.check_arraylike(f"{name}.at", a, b)
        array = creation.asarray(a)
        truth = array.dtype == np.bool_ and name != "subtract"
        if truth:
            array, b = array.astype(np.int32), creation.asarray(b).astype(np.bool_).astype(np.int32)
        result = getattr(array.at[indices], name)(b)
        return result.astype(np.bool_) if truth else result

    return at


def _give_methods() -> None:
    give_methods(add, 2, 0, reduce=reductions.sum, accumulate=reductions.cumsum, at=_counted("add"))
    give_methods(multiply, 2, 1, reduce=reductions.prod, accumulate=reductions.cumprod, at=_counted("multiply"))
    give_methods(subtract, 2, None, at=_counted("subtract"))
    give_methods(negative, 1, None)
    give_methods(maximum, 2, None, reduce=_reducing(reductions.MAX))
    give_methods(minimum, 2, None, reduce=_reducing(reductions.MIN))
    give_methods(logaddexp, 2, -np.inf, reduce=_log_of_sum)
    give_methods(logaddexp2, 2, -np.inf, reduce=functools.partial(_log_of_sum, base=2))
    folds = (
        ("and", bitwise_and, logical_and, lax.reduce_and, lax.bitwise_and, _all_bits, _one),
        ("or", bitwise_or, logical_or, lax.reduce_or, lax.bitwise_or, _no_bits, _no_bits),
        ("xor", bitwise_xor, logical_xor, lax.reduce_xor, lax.bitwise_xor, _no_bits, _no_bits),
    )
    for name, of_bits, of_truth, reduce, combine, bits, truth in folds:
        bitwise = Reducer(f"reduce_bitwise_{name}", reduce, combine, bits)
        logical = Reducer(f"reduce_logical_{name}", reduce, combine, truth)
        give_methods(of_bits, 2, -1 if name == "and" else 0, reduce=_reducing(bitwise, _integers))
        give_methods(of_truth, 2, name == "and", reduce=_reducing(logical, _truth))


_give_methods()
