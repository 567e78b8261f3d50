"""Reductions: sums, products, extrema, bitwise folds, argmax and argmin.

A reduction states its accumulators with their identities, and how to combine two of them; docs/NUMERICS.md has the
fixed order of combination. Half precisions accumulate in float32: ``prepare`` widens the operand, and the caller of
``finish`` rounds its values once to the dtypes of the outputs.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, core, dtypes, runtime
from weft.core import kinds
from weft.core.loop_forms import LoopForms
from weft.core.tangents import along
from weft.operations import prefix, references
from weft.operations.later import ops
from weft.operations.pointwise import arithmetic, complex_math, half_words
from weft.operations.pointwise.elementwise import (
    ANY,
    BOOL,
    COMPLEX,
    FLOAT,
    INTEGER,
    NUMBER,
    Accepts,
    all_ones,
    category,
    check_dtype,
    highest,
    lowest,
    widened,
)
from weft.operations.static import integer, integers, placed
from weft.runtime import Array

__all__ = [
    "argmax",
    "argmax_p",
    "argmin",
    "argmin_p",
    "reduce_and",
    "reduce_and_p",
    "reduce_max",
    "reduce_max_p",
    "reduce_min",
    "reduce_min_p",
    "reduce_or",
    "reduce_or_p",
    "reduce_prod",
    "reduce_prod_p",
    "reduce_sum",
    "reduce_sum_p",
    "reduce_xor",
    "reduce_xor_p",
]

ArrayLike = Any
Axes = Sequence[int]
Params = dict[str, Any]


def check_axes(name: str, aval: Any, axes: tuple[int, ...]) -> None:
    """Raise ValueError unless the axes are distinct, non-negative and inside the operand."""
    if len(axes) > 1 and len(set(axes)) != len(axes):
        raise ValueError(f"[{name}] duplicate value in 'axes' of reduction: {axes}")
    if axes and not 0 <= min(axes) <= max(axes) < aval.ndim:
        raise ValueError(f"[{name}] reduction axes {axes} contain out-of-bounds indices for {aval.str_short()}")


def reduced_shape(aval: Any, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([n for axis, n in enumerate(aval.shape) if axis not in axes])


def _typing(name: str, accepts: Accepts) -> Callable[..., Any]:
    def typing(x: Any, *, axes: tuple[int, ...], out_sharding: Any = None) -> Any:
        check_dtype(name, 0, x, accepts)
        check_axes(name, x, axes)
        return runtime.ShapedArray(reduced_shape(x, axes), x.dtype, x.weak_type)

    return typing


def accumulated(dtype: np.dtype) -> np.dtype:
    """The dtype that an operand is accumulated in: float32 for half precisions, int8 for bools."""
    return np.dtype(np.uint8) if dtype == np.bool_ else widened(dtype)


def widen_value(emit: Any, value: Any) -> Any:
    """The value in the dtype it is accumulated in."""
    if value.dtype == np.bool_:
        return emit.select(value, emit.const(0, np.dtype(np.uint8)), emit.const(255, np.dtype(np.uint8)))
    wide = widened(value.dtype)
    return value if wide == value.dtype else emit.convert(value, wide)


def exact_integers(dtype: np.dtype) -> bool:
    """Whether sums and products have the same bits in every order: those of integers, which wrap."""
    return category(dtype) not in FLOAT | COMPLEX


def exact_reals(dtype: np.dtype) -> bool:
    """Whether extrema have the same bits in every order."""
    return category(dtype) not in COMPLEX


def in_accumulator(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Run a NumPy reduction over axes in the accumulator's dtype and round once."""

    def reduce(x: Any, *, axes: tuple[int, ...], **_: Any) -> Any:
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            return np.asarray(reference(x.astype(widened(x.dtype)), axes)).astype(x.dtype)

    return reduce


def extreme(larger: bool, identity: Callable[[np.dtype], Any]) -> Callable[..., Any]:
    """NumPy's max or min from the identity, with +0 above -0 and complex numbers ordered by their parts."""
    combine = references.maximum if larger else references.minimum

    def reduce(x: Any, axes: tuple[int, ...]) -> Any:
        if x.dtype.kind == "c":
            kept = [axis for axis in builtins.range(x.ndim) if axis not in axes]
            rows = np.transpose(x, [*axes, *kept]).reshape([-1] + [x.shape[axis] for axis in kept])
            out = np.full(rows.shape[1:], identity(x.dtype), x.dtype)
            for row in rows:
                out = combine(out, row)
            return out
        out = (np.max if larger else np.min)(x, axis=axes, initial=identity(x.dtype))
        if x.dtype.kind == "f":
            winner = np.any((x == 0) & (np.signbit(x) != larger), axis=axes)
            zero = np.where(winner == larger, 0.0, -0.0)
            out = np.where(out == 0, zero, out)
        return out

    return reduce


def reduction(
    name: str,
    accepts: Accepts,
    *,
    identity: Callable[[np.dtype], Any],
    combine: Callable[[Any, Any, Any], Any],
    reference: Callable[..., Any],
    partial: Callable[..., Any] | None,
    exact: Callable[[np.dtype], bool] = exact_reals,
    absorbing: Callable[[np.dtype], Any] | None = None,
    nan_wins: bool = False,
    of_words: Callable[[np.dtype], kinds.Reduction | None] | None = None,
    combiner: str = "again",
    wraps: Any = None,
) -> core.Primitive:
    """Declare a reduction of one operand by one accumulator; ``combine(emit, left, right)`` on single values.

    ``partial(tangent, out, operand, axes)`` is the tangent of the result, None if it has none; ``absorbing(dtype)`` the
    integer that no further combination changes; ``of_words`` as in ``LoopForms``; ``exact`` and ``wraps`` as in the
    kind.
    """

    def accumulators(avals: Any, params: Params) -> Any:
        dtype = accumulated(avals[0].dtype)
        return ((dtype, identity(dtype)),)

    primitive = core.Primitive(
        name,
        kind=kinds.Reduction(
            axes=lambda params: params["axes"],
            accumulators=accumulators,
            prepare=lambda emit, values, index, **_: (widen_value(emit, values[0]),),
            combine=lambda emit, left, right, **_: (combine(emit, left[0], right[0]),),
            finish=lambda emit, accs, **_: accs,
            reference=in_accumulator(reference),
            exact=exact,
            absorbing=absorbing and (lambda dtype: absorbing(dtype) if dtype.kind in "iu" else None),
            nan_wins=nan_wins,
            forms=LoopForms(of_words=of_words),
            combiner=combiner,
            wraps=wraps,
        ),
    )
    primitive.def_abstract_eval(_typing(name, accepts))
    push = None if partial is None else along(lambda t, out, x, *, axes, **_: partial(t, out, x, axes))
    primitive.partials, primitive.transpose = (push,), None
    return primitive


add_values = arithmetic.by_parts(lambda emit, x, y: emit.add(x, y), complex_math.add)
mul_values = arithmetic.by_parts(lambda emit, x, y: emit.mul(x, y), complex_math.mul)
reduce_sum_p = reduction(
    "reduce_sum",
    NUMBER,
    combiner="sum",
    identity=lambda dtype: 0,
    combine=add_values,
    exact=exact_integers,
    reference=lambda x, axes: np.sum(x, axis=axes, dtype=x.dtype),
    wraps=np.add,
    partial=lambda t, out, x, axes: reduce_sum(t, axes),
)


def _reduce_sum_transpose(ct: Any, x: Any, *, axes: tuple[int, ...], **_: Any) -> Any:
    shape = x.aval.shape
    return (ops.broadcast_in_dim(ct, shape, [d for d in builtins.range(len(shape)) if d not in axes]),)


reduce_sum_p.transpose = _reduce_sum_transpose


def reduce_sum(operand: ArrayLike, axes: Axes, *, out_sharding: Any = None) -> Array:
    """The sum over the given axes, in the operand's dtype (integers wrap).

    ValueError for half precisions if the option ``allow_f16_reductions`` is off.

    >>> lax.reduce_sum(np.float32([[1, 2], [3, 4]]), (0,)).tolist()
    [4.0, 6.0]
    """
    if out_sharding is not None:
        return placed(lambda: reduce_sum(operand, axes), out_sharding, "reduce_sum", "out_sharding")
    if not config.read("allow_f16_reductions"):
        found = core.get_aval(operand)
        if found.dtype in (np.float16, dtypes.bfloat16):
            raise ValueError(
                f"reduce_sum on operand {found.str_short()} is not allowed when jax_allow_f16_reductions=False."
            )
    return reduce_sum_p.bind(operand, axes=integers(axes, "reduce_sum"), out_sharding=None)


def _reduce_prod_push(t: Any, out: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """Products by halving: no division, so that zeros among the factors are allowed."""
    if not x.size:
        return ops.full_like(out, 0)
    found = [x, t]
    for axis in sorted(axes, reverse=True):
        found = prefix.halves(arithmetic.mul_pairs, found, axis, (1, 0))
    return found[1]


reduce_prod_p = reduction(
    "reduce_prod",
    NUMBER,
    identity=lambda dtype: 1,
    combine=mul_values,
    exact=exact_integers,
    reference=lambda x, axes: np.prod(x, axis=axes, dtype=x.dtype),
    wraps=np.multiply,
    partial=_reduce_prod_push,
)


def reduce_prod(operand: ArrayLike, axes: Axes) -> Array:
    """The product over the given axes, in the operand's dtype (integers wrap).

    >>> lax.reduce_prod(np.float32([[1, 2], [3, 4]]), (0,)).tolist()
    [3.0, 8.0]
    """
    return reduce_prod_p.bind(operand, axes=integers(axes, "reduce_prod"))


def _extreme_push(t: Any, out: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """The mean of the tangents at the positions of the extremum."""
    kept = ops.reshape(out, [1 if axis in axes else n for axis, n in enumerate(x.shape)])
    here = ops.convert_element_type(ops.eq(x, kept), t.dtype)
    count = reduce_sum(here, axes)
    return arithmetic.div(reduce_sum(arithmetic.mul(t, here), axes), count)


reduce_max_p = reduction(
    "reduce_max",
    ANY,
    combiner="max",
    identity=lowest,
    combine=arithmetic.max_values,
    reference=extreme(True, lowest),
    partial=_extreme_push,
    absorbing=highest,
    nan_wins=True,
    of_words=lambda dtype: half_words.extremum(reduce_max_p.kind, dtype, larger=True),
)


def reduce_max(operand: ArrayLike, axes: Axes) -> Array:
    """The maximum over the given axes; NaN if any element is; -inf, or the lowest integer, if there is no element.

    >>> lax.reduce_max(np.float32([[1, 2], [3, 4]]), (1,)).tolist()
    [2.0, 4.0]
    """
    return reduce_max_p.bind(operand, axes=integers(axes, "reduce_max"))


reduce_min_p = reduction(
    "reduce_min",
    ANY,
    combiner="min",
    identity=highest,
    combine=arithmetic.min_values,
    reference=extreme(False, highest),
    partial=_extreme_push,
    absorbing=lowest,
    nan_wins=True,
    of_words=lambda dtype: half_words.extremum(reduce_min_p.kind, dtype, larger=False),
)


def reduce_min(operand: ArrayLike, axes: Axes) -> Array:
    """The minimum over the given axes; NaN if any element is; inf, or the highest integer, if there is no element.

    >>> lax.reduce_min(np.float32([[1, 2], [3, 4]]), (1,)).tolist()
    [1.0, 3.0]
    """
    return reduce_min_p.bind(operand, axes=integers(axes, "reduce_min"))


reduce_and_p = reduction(
    "reduce_and",
    BOOL | INTEGER,
    identity=all_ones,
    combine=lambda emit, x, y: emit.and_(x, y),
    reference=lambda x, axes: np.bitwise_and.reduce(x, axis=axes),
    partial=None,
    absorbing=lambda dtype: 0,
)


def reduce_and(operand: ArrayLike, axes: Axes) -> Array:
    """Bitwise (of bools: logical) and over the given axes.

    >>> lax.reduce_and(np.array([[True, False], [True, True]]), (1,)).tolist()
    [False, True]
    """
    return reduce_and_p.bind(operand, axes=integers(axes, "reduce_and"))


reduce_or_p = reduction(
    "reduce_or",
    BOOL | INTEGER,
    identity=lambda dtype: 0,
    combine=lambda emit, x, y: emit.or_(x, y),
    reference=lambda x, axes: np.bitwise_or.reduce(x, axis=axes),
    partial=None,
    absorbing=all_ones,
)


def reduce_or(operand: ArrayLike, axes: Axes) -> Array:
    """Bitwise (of bools: logical) or over the given axes.

    >>> lax.reduce_or(np.array([[True, False], [False, False]]), (1,)).tolist()
    [True, False]
    """
    return reduce_or_p.bind(operand, axes=integers(axes, "reduce_or"))


reduce_xor_p = reduction(
    "reduce_xor",
    BOOL | INTEGER,
    identity=lambda dtype: 0,
    combine=lambda emit, x, y: emit.xor(x, y),
    reference=lambda x, axes: np.bitwise_xor.reduce(x, axis=axes),
    partial=None,
)


def reduce_xor(operand: ArrayLike, axes: Axes) -> Array:
    """Bitwise exclusive or over the given axes.

    >>> lax.reduce_xor(np.int32([1, 2, 7]), (0,)).item()
    4
    """
    return reduce_xor_p.bind(operand, axes=integers(axes, "reduce_xor"))


# ---- argmax and argmin: accumulators (value, position); the first of equals wins, and the first NaN before all


def _position_dtype(index_dtype: np.dtype) -> np.dtype:
    return np.dtype(np.int64 if index_dtype.itemsize == 8 else np.int32)


def _extremum_typing(name: str) -> Callable[..., Any]:
    def typing(x: Any, *, axes: tuple[int, ...], index_dtype: Any) -> Any:
        if category(index_dtype) not in INTEGER:
            raise TypeError(f"[{name}] index_dtype must be an integer type, got {np.dtype(index_dtype).name}")
        check_dtype(name, 0, x, ANY)
        (axis,) = axes
        if not 0 <= axis < x.ndim:
            raise ValueError(f"[{name}] Invalid axis {axis} for operand shape {x.shape}")
        if x.shape[axis] == 0:
            raise ValueError(
                f"[{name}] argmin and argmax require non-empty reduced dimension. Got {x.shape} and {axis=}"
            )
        if x.shape[axis] > dtypes.iinfo(index_dtype).max + 1:
            raise OverflowError(
                f"[{name}] {np.dtype(index_dtype).name} does not hold the positions in axis {axis} of {x.str_short()}; "
                "64-bit types are turned on by weft.config.update('enable_x64', True)"
            )
        return runtime.ShapedArray(reduced_shape(x, axes), index_dtype, False)

    return typing


def _keys(emit: Any, value: Any) -> list[Any]:
    """The real values that order an element: itself, or a complex number's two parts."""
    return [emit.real(value), emit.imag(value)] if value.dtype.kind == "c" else [value]


def _is_nan(emit: Any, value: Any) -> Any:
    flags = [emit.compare("ne", key, key) for key in _keys(emit, value)]
    return flags[0] if len(flags) == 1 else emit.or_(*flags)


def _precedes(emit: Any, direction: str, left: Any, right: Any) -> tuple[Any, Any]:
    """(left is strictly better, left equals right), lexicographically over the keys."""
    pairs = list(zip(_keys(emit, left), _keys(emit, right), strict=True))
    better, equal = emit.compare(direction, *pairs[0]), emit.compare("eq", *pairs[0])
    for pair in pairs[1:]:
        better = emit.or_(better, emit.and_(equal, emit.compare(direction, *pair)))
        equal = emit.and_(equal, emit.compare("eq", *pair))
    return better, equal


def _position_alone(emit: Any, accs: Any, *, index_dtype: np.dtype, **_: Any) -> Any:
    index_dtype = np.dtype(index_dtype)
    return (accs[1] if accs[1].dtype == index_dtype else emit.convert(accs[1], index_dtype),)


def _extremum(
    name: str, direction: str, worst: Callable[[np.dtype], Any], extremum: core.Primitive, reference: Any
) -> core.Primitive:
    def accumulators(avals: Any, params: Params) -> Any:
        dtype = accumulated(avals[0].dtype)
        position = _position_dtype(np.dtype(params["index_dtype"]))
        return (dtype, worst(dtype)), (position, np.iinfo(position).max)

    def prepare(emit: Any, values: Any, index: Any, *, index_dtype: np.dtype, **_: Any) -> Any:
        return widen_value(emit, values[0]), emit.convert(index, _position_dtype(np.dtype(index_dtype)))

    def combine(emit: Any, left: Any, right: Any, **_: Any) -> Any:
        better, equal = _precedes(emit, direction, left[0], right[0])
        if category(left[0].dtype) in FLOAT | COMPLEX:
            left_nan, right_nan = _is_nan(emit, left[0]), _is_nan(emit, right[0])
            better = emit.or_(emit.and_(better, emit.not_(right_nan)), emit.and_(left_nan, emit.not_(right_nan)))
            equal = emit.or_(equal, emit.and_(left_nan, right_nan))
        take_left = emit.or_(better, emit.and_(equal, emit.compare("lt", left[1], right[1])))
        return tuple(emit.select(take_left, r, value) for value, r in zip(left, right, strict=True))

    def seed(emit: Any, identities: Any, index: Any, *, index_dtype: np.dtype, **_: Any) -> Any:
        """The worst value at the first position, so that a row without better values gives its first element."""
        return identities[0], emit.convert(index, _position_dtype(np.dtype(index_dtype)))

    def append(emit: Any, left: Any, right: Any, **_: Any) -> Any:
        """The right element wins only if it is strictly better, or the first NaN."""
        if category(left[0].dtype) in FLOAT:
            no_worse = emit.compare({"gt": "ge", "lt": "le"}[direction], left[0], right[0])
            take = emit.and_(emit.not_(no_worse), emit.compare("eq", left[0], left[0]))
        else:
            take, _ = _precedes(emit, direction, right[0], left[0])
            if category(left[0].dtype) in COMPLEX:
                right_nan = _is_nan(emit, right[0])
                take = emit.and_(emit.or_(take, right_nan), emit.not_(_is_nan(emit, left[0])))
        return tuple(emit.select(take, value, r) for value, r in zip(left, right, strict=True))

    one = extremum.kind
    assert isinstance(one, kinds.Reduction)

    def of_words(dtype: np.dtype) -> kinds.Reduction | None:
        return half_words.position(argmax_p.kind, half_words.extremum(one, dtype, direction == "gt", first=True))

    primitive = core.Primitive(
        name,
        kind=kinds.Reduction(
            axes=lambda params: params["axes"],
            accumulators=accumulators,
            prepare=prepare,
            combine=combine,
            finish=_position_alone,
            reference=lambda x, *, axes, index_dtype: reference(np.asarray(x), axes[0]).astype(index_dtype),
            needs_index=True,
            exact=one.exact,
            absorbing=one.absorbing,
            forms=LoopForms(append, seed, extremum.kind, of_words),
        ),
    )
    primitive.def_abstract_eval(_extremum_typing(name))
    primitive.partials, primitive.transpose = (None,), None
    return primitive


def _argmax_reference(x: Any, axis: int) -> Any:
    return np.argmax(x.astype(widened(x.dtype)), axis)


def _argmin_reference(x: Any, axis: int) -> Any:
    return np.argmin(x.astype(widened(x.dtype)), axis)


argmax_p = _extremum("argmax", "gt", lowest, reduce_max_p, _argmax_reference)
argmin_p = _extremum("argmin", "lt", highest, reduce_min_p, _argmin_reference)


def argmax(operand: ArrayLike, axis: int, index_dtype: Any) -> Array:
    """The position of the maximum along one axis: the first NaN if there is one, otherwise the first of equals.

    >>> lax.argmax(np.float32([[1, 3], [5, 4]]), 1, np.int32).tolist()
    [1, 0]
    """
    return argmax_p.bind(operand, axes=(integer(axis, "argmax"),), index_dtype=dtypes.allowed_dtype(index_dtype))


def argmin(operand: ArrayLike, axis: int, index_dtype: Any) -> Array:
    """The position of the minimum along one axis: the first NaN if there is one, otherwise the first of equals.

    >>> lax.argmin(np.float32([[1, 3], [5, 4]]), 1, np.int32).tolist()
    [0, 1]
    """
    return argmin_p.bind(operand, axes=(integer(axis, "argmin"),), index_dtype=dtypes.allowed_dtype(index_dtype))
