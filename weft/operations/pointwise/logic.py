"""Comparison, bits and selection on elements: eq ... ge, and/or/xor/not, shifts, select_n, clamp.

Comparisons give bool and follow IEEE (NaN is unordered); the ``_to`` forms follow the total order. A shift by the
width or more gives 0 (arithmetic right shift: copies of the sign).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core.tangents import Zero, along, is_undefined
from weft.operations import key_words, mapped, references
from weft.operations.later import ops
from weft.operations.pointwise import overflow
from weft.operations.pointwise.elementwise import (
    ANY,
    ANYTHING,
    BOOL,
    INTEGER,
    REAL,
    Accepts,
    all_ones,
    bool_result,
    category,
    check_same_dtype,
    elementwise,
    widen_reference,
)
from weft.runtime import Array

__all__ = [
    "and_p",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "clamp",
    "clamp_p",
    "clz",
    "clz_p",
    "eq",
    "eq_p",
    "eq_to_p",
    "ge",
    "ge_p",
    "gt",
    "gt_p",
    "le",
    "le_p",
    "le_to_p",
    "lt",
    "lt_p",
    "lt_to_p",
    "ne",
    "ne_p",
    "not_p",
    "or_p",
    "population_count",
    "population_count_p",
    "select",
    "select_n",
    "select_n_p",
    "shift_left",
    "shift_left_p",
    "shift_right_arithmetic",
    "shift_right_arithmetic_p",
    "shift_right_logical",
    "shift_right_logical_p",
    "xor_p",
]

ArrayLike = Any


def _comparison(name: str, accepts: Accepts, reference: Callable[..., Any], **facts: Any) -> core.Primitive:
    def scalar(emit: Any, x: Any, y: Any) -> Any:
        if x.dtype.kind != "c":
            return emit.compare(name, x, y)
        re = emit.compare(name, emit.real(x), emit.real(y))
        im = emit.compare(name, emit.imag(x), emit.imag(y))
        return emit.and_(re, im) if name.startswith("eq") else emit.or_(re, im)

    return elementwise(
        name,
        accepts,
        accepts,
        scalar=scalar,
        partials=(None, None),
        reference=reference,
        result=bool_result,
        native_half=True,
        **facts,
    )


eq_p = _comparison("eq", ANYTHING, operator.eq)
ne_p = _comparison("ne", ANYTHING, operator.ne, right_identity=lambda dtype: False if dtype.kind == "b" else None)
eq_p.on_words, ne_p.on_words = key_words.all_words, key_words.some_word
ge_p = _comparison("ge", BOOL | REAL, operator.ge)
gt_p = _comparison("gt", BOOL | REAL, operator.gt)
le_p = _comparison("le", BOOL | REAL, operator.le)
lt_p = _comparison("lt", BOOL | REAL, operator.lt)
eq_to_p = _comparison("eq_to", ANY, references.total_order(operator.eq))
le_to_p = _comparison("le_to", BOOL | REAL, references.total_order(operator.le))
lt_to_p = _comparison("lt_to", BOOL | REAL, references.total_order(operator.lt))


def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x == y.

    >>> lax.eq(np.int32([1, 2, 3]), np.int32([2, 2, 2])).tolist()
    [False, True, False]
    """
    return eq_p.bind(x, y)


def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x != y.

    >>> lax.ne(np.int32([1, 2, 3]), np.int32([2, 2, 2])).tolist()
    [True, False, True]
    """
    return ne_p.bind(x, y)


def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x >= y.

    >>> lax.ge(np.int32([1, 2, 3]), np.int32([2, 2, 2])).tolist()
    [False, True, True]
    """
    return ge_p.bind(x, y)


def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x > y.

    >>> lax.gt(np.int32([1, 2, 3]), np.int32([2, 2, 2])).tolist()
    [False, False, True]
    """
    return gt_p.bind(x, y)


def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x <= y.

    >>> lax.le(np.int32([1, 2, 3]), np.int32([2, 2, 2])).tolist()
    [True, True, False]
    """
    return le_p.bind(x, y)


def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x < y.

    >>> lax.lt(np.int32([1, 2, 3]), np.int32([2, 2, 2])).tolist()
    [True, False, False]
    """
    return lt_p.bind(x, y)


not_p = elementwise(
    "not",
    BOOL | INTEGER,
    scalar=lambda emit, x: emit.not_(x),
    partials=(None,),
    reference=np.invert,
    undoes_itself=True,
)


def bitwise_not(x: ArrayLike) -> Array:
    """Elementwise complement of bits; logical not of bools.

    >>> lax.bitwise_not(np.int32([0, 5])).tolist()
    [-1, -6]
    """
    return not_p.bind(x)


and_p = elementwise(
    "and",
    BOOL | INTEGER,
    BOOL | INTEGER,
    scalar=lambda emit, x, y: emit.and_(x, y),
    partials=(None, None),
    reference=np.bitwise_and,
    identity=all_ones,
    keeps_equal=True,
)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise and of bits or bools.

    >>> lax.bitwise_and(np.int32(12), np.int32(10)).item()
    8
    """
    return and_p.bind(x, y)


or_p = elementwise(
    "or",
    BOOL | INTEGER,
    BOOL | INTEGER,
    scalar=lambda emit, x, y: emit.or_(x, y),
    partials=(None, None),
    reference=np.bitwise_or,
    identity=lambda dtype: 0,
    keeps_equal=True,
)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise or of bits or bools.

    >>> lax.bitwise_or(np.int32(12), np.int32(10)).item()
    14
    """
    return or_p.bind(x, y)


xor_p = elementwise(
    "xor",
    BOOL | INTEGER,
    BOOL | INTEGER,
    scalar=lambda emit, x, y: emit.xor(x, y),
    partials=(None, None),
    reference=np.bitwise_xor,
    identity=lambda dtype: 0,
)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise exclusive or of bits or bools.

    >>> lax.bitwise_xor(np.int32(12), np.int32(10)).item()
    6
    """
    return xor_p.bind(x, y)


shift_left_p = elementwise(
    "shift_left",
    INTEGER,
    INTEGER,
    scalar=lambda emit, x, y: emit.shift_left(x, y),
    partials=(None, None),
    reference=references.shift_left,
    wraps=overflow.SHIFT,
)


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x << y; 0 where y is outside 0..width-1.

    >>> lax.shift_left(np.int32([1, 3]), np.int32([4, 32])).tolist()
    [16, 0]
    """
    return shift_left_p.bind(x, y)


shift_right_logical_p = elementwise(
    "shift_right_logical",
    INTEGER,
    INTEGER,
    scalar=lambda emit, x, y: emit.shift_right_logical(x, y),
    partials=(None, None),
    reference=references.shift_right_logical,
)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise right shift filling with zeros; 0 where y is outside 0..width-1.

    >>> lax.shift_right_logical(np.int32([-1, 8]), np.int32([28, 2])).tolist()
    [15, 2]
    """
    return shift_right_logical_p.bind(x, y)


shift_right_arithmetic_p = elementwise(
    "shift_right_arithmetic",
    INTEGER,
    INTEGER,
    scalar=lambda emit, x, y: emit.shift_right_arithmetic(x, y),
    partials=(None, None),
    reference=references.shift_right_arithmetic,
)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise right shift filling with the top bit; all copies of it where y is outside 0..width-1.

    >>> lax.shift_right_arithmetic(np.int32([-8, 8]), np.int32([2, 2])).tolist()
    [-2, 2]
    """
    return shift_right_arithmetic_p.bind(x, y)


population_count_p = elementwise(
    "population_count",
    INTEGER,
    scalar=lambda emit, x: emit.population_count(x),
    partials=(None,),
    reference=references.population_count,
    cost=4.0,
)


def population_count(x: ArrayLike) -> Array:
    """Elementwise number of bits that are set.

    >>> lax.population_count(np.uint8([0, 7, 255])).tolist()
    [0, 3, 8]
    """
    return population_count_p.bind(x)


clz_p = elementwise(
    "clz", INTEGER, scalar=lambda emit, x: emit.clz(x), partials=(None,), reference=references.clz, cost=4.0
)


def clz(x: ArrayLike) -> Array:
    """Elementwise number of leading zero bits.

    >>> lax.clz(np.uint8([0, 7, 255])).tolist()
    [8, 5, 0]
    """
    return clz_p.bind(x)


# ---- selection


def _listed(avals: Any) -> str:
    return ", ".join(aval.str_short() for aval in avals)


def _select_typing(which: Any, first: Any, *others: Any) -> Any:
    cases = (first, *others)
    is_bool = which.dtype == np.bool_
    if not is_bool and which.dtype not in (np.int32, np.int64):
        raise TypeError(f"[select_n] `which` must be boolean or integer type, got {which.str_short()}")
    if is_bool and len(cases) > 2:
        raise TypeError(f"[select_n] select with boolean `which` cannot have > 2 cases, got {len(cases)}")
    if any(case.shape != first.shape for case in others):
        raise TypeError(f"[select_n] select cases must have the same shapes, got {[case.shape for case in cases]}")
    check_same_dtype("select_n", cases)
    if which.shape and which.shape != first.shape:
        raise TypeError(
            f"[select_n] select `which` must be scalar or have the same shape as cases, "
            f"got `which` shape {which.shape} but case shape {first.shape}"
        )
    return runtime.ShapedArray(first.shape, first.dtype, all(case.weak_type for case in cases))


def _select_scalar(emit: Any, which: Any, *cases: Any) -> Any:
    """A chain of selects; an index out of range selects the nearest case."""
    if len(cases) == 1:
        return cases[0]
    if which.dtype == np.bool_:
        return emit.select(which, cases[0], cases[1])
    out = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        out = emit.select(emit.compare("le", which, emit.const(i, which.dtype)), out, cases[i])
    return out


def _select_reference(which: Any, *cases: Any) -> Any:
    index = np.clip(which.astype(np.int64), 0, len(cases) - 1)
    out = np.array(np.broadcast_to(cases[0], np.broadcast_shapes(which.shape, cases[0].shape)))
    for i, case in enumerate(cases[1:], 1):
        out = np.where(index == i, case, out)
    return out


def _select_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The tangent of the selected case. While tracing, zeros are recorded even if no tangent needs them."""
    which, *_ = primals
    _, *moved = tangents
    out = select_n_p.bind(*primals)
    if all(type(tangent) is Zero for tangent in moved):
        return out, Zero.from_primal_value(out)
    if isinstance(out, core.Tracer) or any(type(tangent) is Zero for tangent in moved):
        zeros = ops.full_like(out, 0)
        moved = [zeros if type(tangent) is Zero else tangent for tangent in moved]
    return out, select_n_p.bind(which, *moved)


def _select_transpose(ct: Any, which: Any, *cases: Any) -> list[Any]:
    """Each case gets the cotangent where it was selected."""
    zeros = ops.full_like(ct, 0)

    def back(i: int) -> Any:
        if core.get_aval(which).dtype == np.bool_:
            return select_n(which, *[ct if j == i else zeros for j in range(len(cases))])
        return select_n(eq(which, np.asarray(i, core.get_aval(which).dtype)), zeros, ct)

    return [None, *[back(i) if is_undefined(case) else None for i, case in enumerate(cases)]]


select_n_p = elementwise(
    "select_n",
    scalar=_select_scalar,
    jvp=_select_jvp,
    transpose=_select_transpose,
    reference=_select_reference,
    typing=_select_typing,
    chooses=True,
    native_half=True,
)
select_n_p.on_words = key_words.select


def _select_batch(size: int, values: list[Any], dims: list[mapped.Dim]) -> Any:
    which, *cases = values
    if all(d == dims[0] and d is not None for d in dims) and len({core.get_aval(v).shape for v in values}) == 1:
        return select_n_p.bind(*values), dims[0]
    if dims[0] is None and core.get_aval(which).ndim == 0:
        return select_n_p.bind(which, *mapped.all_in_front(size, cases, dims[1:])), 0
    which = mapped.in_front(size, which, dims[0])
    cases = mapped.all_in_front(size, cases, dims[1:])
    extents = core.get_aval(cases[0]).shape
    if core.get_aval(which).shape != extents:
        which = ops.broadcast_in_dim(which, extents, (0,))
    return select_n_p.bind(which, *cases), 0


select_n_p.batch = _select_batch


def _case_numbers(which: ArrayLike, dtype: np.dtype, count: int) -> Array:
    """Numbers of cases in 32 bits: unsigned ones are clipped first, since the greatest of them are negative there."""
    if dtypes.iinfo(dtype).max > np.iinfo(np.int32).max:
        which = ops.min(which, np.asarray(count - 1, dtype))
    return ops.convert_element_type(which, np.int32)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Element by element, the case that ``which`` numbers (bool: False takes the first).

    >>> lax.select_n(np.int32([0, 2, 1]), np.float32([1, 2, 3]), np.float32([4, 5, 6]), np.float32([7, 8, 9])).tolist()
    [1.0, 8.0, 6.0]
    """
    if not cases:
        raise ValueError("select_n() must have at least one case")
    dtype = core.get_aval(which).dtype
    if category(dtype) in INTEGER and dtype not in (np.int32, np.int64):
        which = _case_numbers(which, dtype, len(cases))
    return select_n_p.bind(which, *cases)


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Element by element, ``on_true`` where ``pred`` holds, otherwise ``on_false``.

    >>> lax.select(np.array([True, False]), np.float32([1, 2]), np.float32([3, 4])).tolist()
    [1.0, 4.0]
    """
    return select_n_p.bind(pred, on_false, on_true)


def _clamp_typing(low: Any, x: Any, high: Any) -> Any:
    check_same_dtype("clamp", (low, x, high))
    for word, bound in (("min", low), ("max", high)):
        if bound.shape and bound.shape != x.shape:
            raise TypeError(
                f"clamp requires {word}.shape == operand.shape or {word}.shape == (), "
                f"got {word}.shape={bound.shape}, operand.shape={x.shape}."
            )
    return runtime.ShapedArray(x.shape, x.dtype, x.weak_type and low.weak_type and high.weak_type)


def _clamp_scalar(emit: Any, low: Any, x: Any, high: Any) -> Any:
    return emit.min(emit.max(x, low), high)


def _kept(mask: Any, tangent: Any) -> Any:
    """The tangent where the mask holds, zero elsewhere."""
    if mask.shape != tangent.shape:
        tangent = ops.broadcast_in_dim(tangent, mask.shape, ())
    return select(mask, tangent, ops.full_like(tangent, 0))


clamp_p = elementwise(
    "clamp",
    scalar=_clamp_scalar,
    partials=(
        along(lambda t, out, low, x, high: _kept(bitwise_and(gt(low, x), lt(low, high)), t)),
        along(lambda t, out, low, x, high: _kept(bitwise_and(gt(x, low), lt(x, high)), t)),
        along(lambda t, out, low, x, high: _kept(lt(high, x), t)),
    ),
    reference=widen_reference(lambda low, x, high: references.minimum(references.maximum(x, low), high)),
    typing=_clamp_typing,
    cost=2.0,
    native_half=True,
    rounds_once=True,
)


def _clamp_batch(size: int, values: list[Any], dims: list[mapped.Dim]) -> Any:
    if all(dims[bound] is None and core.get_aval(values[bound]).ndim == 0 for bound in (0, 2)):
        return clamp_p.bind(*values), dims[1]
    full = mapped.all_in_front(size, values, dims)
    extents = core.get_aval(full[1]).shape
    full = [v if core.get_aval(v).shape == extents else ops.broadcast_in_dim(v, extents, (0,)) for v in full]
    return clamp_p.bind(*full), 0


clamp_p.batch = _clamp_batch


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Element by element, x limited to min..max; the bounds may be scalars.

    >>> lax.clamp(0.0, np.float32([-1, 0.5, 2]), 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    return clamp_p.bind(min, x, max)
