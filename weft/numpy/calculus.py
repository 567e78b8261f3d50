"""Differences, gradients, integrals, unwrapped phases, covariances, and polynomials.

All are short compositions of slices and arithmetic, under JAX's inner ``jit`` names::

    diff(f32[5])        ->  jit[name=diff]: two slices and a sub
    gradient(f32[5])    ->  jit[name=gradient]: central differences, one-sided at the ends
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import config, core, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.control import scan as scan_module
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, joining, promotion, rearrange, reductions, statistics
from weft.numpy.linear_algebra import contractions
from weft.numpy.pointwise import arithmetic, logic, rounding, selection
from weft.numpy.subscripts import indexing

jit = jit_module.jit


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    """A slice along one axis, printed as subscripting prints it."""
    extents = promotion.shape_of(x)
    starts = tuple(start if d == axis else 0 for d in range(len(extents)))
    stops = tuple(stop if d == axis else n for d, n in enumerate(extents))
    return lax.slice(x, starts, stops)


@jit(static_argnames=("n", "axis"))
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Differences of neighbours along ``axis``, ``n`` times; for bool, whether they differ.

    ``prepend`` and ``append`` are joined to the ends first. ValueError for rank 0 or a negative ``n``.

    >>> diff(weft.numpy.array([1, 3, 6])).tolist()
    [2, 3]
    """
    promotion.check_arraylike("diff", a)
    rank = len(promotion.shape_of(a))
    n = operator.index(n)
    if n == 0:
        return promotion.as_array(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if rank == 0:
        raise errors.AxisError(f"diff requires input that is at least one dimensional; got {a}")
    axis = axes.canonical_axis(axis, rank)
    parts = [_end(prepend, a, axis), a, _end(append, a, axis)]
    present = [part for part in parts if part is not None]
    if len(present) > 1:
        a = joining.concatenate(present, axis)
    subtract = lax.ne if promotion.dtype_of(a) == np.bool_ else lax.sub
    for _ in range(n):
        extent = promotion.shape_of(a)[axis]
        a = subtract(_part(a, axis, min(1, extent), extent), _part(a, axis, 0, max(extent - 1, 0)))
    return a


def _end(value: Any, a: Any, axis: int) -> Any:
    if value is None:
        return None
    promotion.check_arraylike("diff", value)
    if promotion.shape_of(value) == ():
        extents = tuple(1 if d == axis else n for d, n in enumerate(promotion.shape_of(a)))
        return lax.broadcast_in_dim(value, extents, ())
    return value


@jit
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """Differences of neighbours in the flattened array, between ``to_begin`` and ``to_end``.

    >>> ediff1d(weft.numpy.array([1, 3, 6])).tolist()
    [2, 3]
    """
    promotion.check_arraylike("ediff1d", ary)
    flat = rearrange.ravel(ary)
    extent = promotion.shape_of(flat)[0]
    result = lax.sub(_part(flat, 0, min(1, extent), extent), _part(flat, 0, 0, max(extent - 1, 0)))
    dtype = promotion.dtype_of(flat)
    if to_begin is not None:
        promotion.check_arraylike("ediff1d", to_begin)
        result = joining.concatenate([rearrange.ravel(promotion.convert(to_begin, dtype)), result])
    if to_end is not None:
        promotion.check_arraylike("ediff1d", to_end)
        result = joining.concatenate([result, rearrange.ravel(promotion.convert(to_end, dtype))])
    return result


@jit(static_argnames=("axis",))
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """Integral along ``axis`` by the trapezoidal rule, over positions ``x`` or at distance ``dx``.

    ``dx`` may be the distance of each pair of neighbours, in an array that broadcasts against them.

    >>> trapezoid(weft.numpy.array([0.0, 1.0, 2.0])).item()
    2.0
    """
    promotion.check_arraylike("trapezoid", y, *(() if x is None else (x,)))
    given_widths = x is None and bool(promotion.shape_of(dx))
    if x is None and not given_widths:
        (y,) = promotion.promote_dtypes_inexact(y)
        dtype = promotion.dtype_of(y)
        y = rearrange.moveaxis(y, axis, -1)
        last = len(promotion.shape_of(y)) - 1
        extent = promotion.shape_of(y)[last]
        if extent == 0:
            raise IndexError(f"[trapezoid] axis {axis} has no elements: y has shape {promotion.shape_of(y)}")
        total = reductions.sum(y, axis=-1)
        first_value = lax.squeeze(_part(y, last, 0, 1), (last,))
        last_value = lax.squeeze(_part(y, last, extent - 1, extent), (last,))
        ends = lax.mul(np.asarray(0.5).astype(dtype), lax.add(first_value, last_value))
        area = lax.sub(total, ends)
        return lax.mul(promotion.convert(dx, dtype), area)
    y, x = promotion.promote_dtypes_inexact(y, dx if x is None else x)
    dtype = promotion.dtype_of(y)
    if given_widths:
        widths = lax.expand_dims(x, range(len(promotion.shape_of(y)) - len(promotion.shape_of(x))))
        y, widths = rearrange.moveaxis(y, axis, -1), rearrange.moveaxis(widths, axis, -1)
    elif len(promotion.shape_of(x)) == 1:
        widths = diff(x)
        y = rearrange.moveaxis(y, axis, -1)
    else:
        y = rearrange.moveaxis(y, axis, -1)
        widths = rearrange.moveaxis(diff(x, axis=axis), axis, -1)
    last = len(promotion.shape_of(y)) - 1
    extent = promotion.shape_of(y)[last]
    pairs = lax.add(_part(y, last, 1, extent), _part(y, last, 0, extent - 1))
    areas = lax.mul(*promotion.promote_shapes(widths, pairs))
    return lax.mul(np.asarray(0.5).astype(dtype), reductions.sum(areas, axis=-1))


@jit(static_argnames=("axis", "edge_order"))
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Central differences along each axis (or those given), one-sided at the ends; a list for several axes.

    Spacings are one number for all axes, or a number or rank-1 positions per axis. Only the default edge order.

    >>> gradient(weft.numpy.array([0.0, 1.0, 4.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    promotion.check_arraylike("gradient", f, *varargs)
    f, *spacings = promotion.promote_dtypes_inexact(f, *varargs)
    rank = len(promotion.shape_of(f))
    dims = axes.canonical_axes(axis, rank, repeats=True)
    if not spacings:
        spacings = [promotion.constant_like(1, f, any_rank=True)] * len(dims)
    elif not dims:
        return []
    elif len(spacings) == 1:
        spacings = spacings * len(dims)
    elif len(spacings) != len(dims):
        raise TypeError(f"Invalid number of spacing arguments {len(spacings)} for axis={axis}")
    if any(promotion.shape_of(f)[dim] < 2 for dim in dims):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least 2 elements are required."
        )
    results = [_gradient_along(f, h, dim) for h, dim in zip(spacings, dims, strict=True)]
    return results[0] if len(results) == 1 and (axis is None or hasattr(axis, "__index__") or rank == 1) else results


def _gradient_along(f: Any, spacing: Any, axis: int) -> Any:
    extent = promotion.shape_of(f)[axis]
    cut = functools.partial(lax.slice_in_dim, axis=axis)
    low = lax.sub(cut(f, 1, 2), cut(f, 0, 1))
    high = lax.sub(cut(f, extent - 1, extent), cut(f, extent - 2, extent - 1))
    if promotion.shape_of(spacing) != ():
        return _uneven_gradient(f, spacing, axis, low, high)
    middle = lax.sub(cut(f, 2, extent), cut(f, 0, extent - 2))
    middle = lax.div(lax.mul(middle, promotion.constant_like(0.5, f, any_rank=True)), spacing)
    high = lax.div(high, spacing)
    return lax.concatenate([lax.div(low, spacing), middle, high], axis)


def _uneven_gradient(f: Any, positions: Any, axis: int, low: Any, high: Any) -> Any:
    """Second-order differences for uneven positions: weights from the widths on either side."""
    rank, extent = len(promotion.shape_of(f)), promotion.shape_of(f)[axis]
    if len(promotion.shape_of(positions)) != 1:
        raise ValueError("distances must be either scalars or 1d")
    if promotion.shape_of(positions)[0] != extent:
        raise ValueError(
            "Spacing arrays must have the same length as the dimension along which the gradient is calculated."
        )
    if rank > 1:
        positions = lax.reshape(positions, tuple(extent if d == axis else 1 for d in range(rank)))
    cut = functools.partial(lax.slice_in_dim, axis=axis)

    def width(start: int, stop: int) -> Any:
        return lax.sub(cut(positions, start + 1, stop + 1), cut(positions, start, stop))

    first = lax.div(low, width(0, 1))
    last = lax.div(high, width(extent - 2, extent - 1))
    left, right = width(0, extent - 2), width(1, extent - 1)
    down = lax.neg(right)
    down = lax.div(down, lax.mul(left, lax.add(left, right)))
    center = lax.div(lax.sub(right, left), lax.mul(left, right))
    up = lax.div(left, lax.mul(right, lax.add(left, right)))
    middle = lax.add(lax.mul(down, cut(f, 0, extent - 2)), lax.mul(center, cut(f, 1, extent - 1)))
    middle = lax.add(middle, lax.mul(up, cut(f, 2, extent)))
    return lax.concatenate([first, middle, last], axis)


@jit(static_argnames=("axis",))
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 6.283185307179586) -> Array:
    """Jumps of more than half a ``period`` between neighbours along ``axis`` taken out by whole periods.

    >>> unwrap(weft.numpy.array([0, 3, 0]), period=4).tolist()
    [0, -1, 0]
    """
    promotion.check_arraylike("unwrap", p)
    p, period = promotion.promote_args("unwrap", p, period)
    if dtypes.issubdtype(promotion.dtype_of(p), np.complexfloating):
        raise ValueError("jnp.unwrap does not support complex inputs; unwrap the angles of them, jnp.angle(p).")
    threshold = arithmetic.true_divide(period, 2) if discont is None else discont
    if dtypes.issubdtype(promotion.dtype_of(p), np.integer):
        interval: Any = arithmetic.floor_divide(period, 2)
    else:
        interval = arithmetic.true_divide(period, 2)
    steps = diff(p, axis=axis)
    wrapped = arithmetic.subtract(arithmetic.mod(arithmetic.add(steps, interval), period), interval)
    at_edge = logic.equal(wrapped, arithmetic.negative(interval))
    wrapped = selection.where(logic.logical_and(at_edge, logic.greater(steps, 0)), interval, wrapped)
    small = logic.less(arithmetic.abs(steps), threshold)
    correction = selection.where(small, 0, arithmetic.subtract(wrapped, steps))
    axis = axes.canonical_axis(axis, len(promotion.shape_of(p)))
    extent = promotion.shape_of(p)[axis]
    first = lax.slice_in_dim(p, 0, min(1, extent), axis=axis)
    rest = lax.slice_in_dim(p, min(1, extent), extent, axis=axis)
    moved = arithmetic.add(rest, reductions.cumsum(correction, axis=axis))
    return joining.concatenate([first, moved], axis)


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Array:
    """Covariance matrix of the rows (or columns) of ``m``, and ``y``, with optional weights of the observations.

    >>> cov(weft.numpy.array([1.0, 3.0])).item()
    2.0
    """
    asked = reductions.user_dtype(dtype, "cov")
    if asked is not None and not dtypes.issubdtype(asked, np.inexact):
        raise ValueError(f"cov: dtype must be a subclass of float or complex; got dtype={dtype!r}")
    optional = {"y": y, "fweights": fweights, "aweights": aweights}
    return _cov(
        m,
        **{k: v for k, v in optional.items() if v is not None},
        rowvar=bool(rowvar),
        bias=bool(bias),
        ddof=ddof,
        dtype=asked,
    )


def _as_cov(
    m: Any,
    y: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    rowvar: bool,
    bias: bool,
    ddof: int | None,
    dtype: Any,
) -> Any:
    given = (m,) if y is None else (m, y)
    promotion.check_arraylike("cov", *given)
    given = (
        promotion.promote_dtypes_inexact(*given) if dtype is None else tuple(promotion.convert(x, dtype) for x in given)
    )
    if any(len(promotion.shape_of(x)) > 2 for x in given):
        raise ValueError("m has more than 2 dimensions")
    data = _observations(given, rowvar)
    rows, count = promotion.shape_of(data)
    if rows == 0:
        return lax.full((0, 0), 0, promotion.dtype_of(data))
    if count == 0:
        return lax.full(() if rows == 1 else (rows, rows), np.nan, promotion.dtype_of(data))
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights, aweights = _observation_weights(fweights, aweights, count, promotion.dtype_of(data))
    average, total = statistics.average(data, axis=1, weights=weights, returned=True)
    total = indexing.index(total, 0)
    if weights is None:
        freedom: Any = core.scalar(promotion.shape_of(data)[1] - ddof, promotion.dtype_of(data))
    elif ddof == 0:
        freedom = total
    elif aweights is None:
        freedom = arithmetic.subtract(total, ddof)
    else:
        freedom = arithmetic.subtract(
            total,
            arithmetic.divide(arithmetic.multiply(ddof, reductions.sum(arithmetic.multiply(weights, aweights))), total),
        )
    centered = lax.sub(*promotion.promote_args("cov", data, lax.expand_dims(average, (1,))))
    scaled = (
        centered
        if weights is None
        else lax.mul(*promotion.promote_args("cov", centered, lax.expand_dims(weights, (0,))))
    )
    product = contractions.dot(centered, rounding.conj(lax.transpose(scaled, (1, 0))))
    return rearrange.squeeze(arithmetic.true_divide(product, freedom))


def _observations(given: tuple[Any, ...], rowvar: bool) -> Any:
    """Variables in rows, those of the second array after those of the first."""
    rows = []
    for x in given:
        flat = len(promotion.shape_of(x)) < 2
        x = rearrange.atleast_2d(x)
        rows.append(lax.transpose(x, (1, 0)) if not rowvar and not flat else x)
    return rows[0] if len(rows) == 1 else joining.concatenate(rows, 0)


def _observation_weights(fweights: Any, aweights: Any, count: int, dtype: Any) -> tuple[Any, Any]:
    """The product of both weights of the observations, and what ``aweights`` are without their sign."""
    weights = given = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        promotion.check_arraylike("cov", given)
        if len(promotion.shape_of(given)) != 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if promotion.shape_of(given)[0] != count:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if name == "fweights" and not dtypes.issubdtype(promotion.dtype_of(given), np.integer):
            raise TypeError("fweights must be integer.")
        if config.read("numpy_dtype_promotion") == "strict":  # whole weights of float data are what it is called with
            given = promotion.convert(given, dtype)
        given = arithmetic.abs(given)
        weights = given if weights is None else arithmetic.multiply(weights, given)
    return weights, given


_as_cov.__name__ = "cov"
_cov = functools.partial(jit, static_argnames=("rowvar", "bias", "ddof", "dtype"))(_as_cov)


@jit(static_argnames=("rowvar", "dtype"))
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Array:
    """Correlation matrix of the rows (or columns) of ``x``, and ``y``: the covariances scaled to -1..1.

    >>> corrcoef(weft.numpy.array([[1.0, 2.0], [2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    promotion.check_arraylike("corrcoef", x)
    covariance = cov(x, y, rowvar, dtype=dtype)
    if promotion.shape_of(covariance) == ():
        return arithmetic.divide(covariance, covariance)
    spread = lax.sqrt(lax.real(_main_diagonal(covariance)) if _is_complex(covariance) else _main_diagonal(covariance))
    spread = promotion.convert(spread, promotion.dtype_of(covariance))  # also where types may not be mixed
    scaled = lax.div(*promotion.promote_args("corrcoef", covariance, lax.expand_dims(spread, (1,))))
    scaled = lax.div(*promotion.promote_args("corrcoef", scaled, lax.expand_dims(spread, (0,))))
    if _is_complex(scaled):
        return lax.complex(selection.clip(lax.real(scaled), -1, 1), selection.clip(lax.imag(scaled), -1, 1))
    return selection.clip(scaled, -1, 1)


def _is_complex(x: Any) -> bool:
    return bool(dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating))


def _main_diagonal(x: Any) -> Any:
    size = promotion.shape_of(x)[0]
    return lax.slice_in_dim(lax.reshape(x, (size * size,)), 0, None, size + 1)


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Array:
    """The polynomial with coefficients ``p``, the highest power first, at ``x``; in integers, if all are.

    ``p`` of a higher rank holds one polynomial for each element of its later axes, which broadcast against ``x``.

    >>> polyval(weft.numpy.array([1.0, 2.0]), 3.0).item()
    5.0
    """
    promotion.check_arraylike("polyval", p, x)
    if not promotion.shape_of(p):
        raise errors.AxisError(f"[polyval] the coefficients must have a rank of at least 1, got {p}")
    return _polyval(p, x, unroll=operator.index(unroll))


def _as_polyval(p: Any, x: Any, *, unroll: int) -> Any:
    p, x = (promotion.convert(part, promotion.dtype_of(part)) for part in promotion.promote_dtypes(p, x))
    start = lax.full(
        promotion.broadcast_shapes(promotion.shape_of(x), promotion.shape_of(p)[1:]), 0, promotion.dtype_of(x)
    )

    def step(value: Any, coefficient: Any) -> tuple[Any, None]:
        return arithmetic.add(arithmetic.multiply(value, x), coefficient), None

    return scan_module.scan(step, start, p, unroll=unroll)[0]


_as_polyval.__name__ = "polyval"
_polyval = functools.partial(jit, static_argnames=("unroll",))(_as_polyval)


@jit
def polyadd(a1: Any, a2: Any) -> Array:
    """Sum of two polynomials given by their coefficients along the first axis, the highest power first.

    Further axes of the shorter one are broadcast to those of the longer one (``a1`` if they are as long); ValueError if
    they cannot be.

    >>> polyadd(weft.numpy.ones(1), weft.numpy.ones(2)).tolist()
    [1.0, 2.0]
    """
    promotion.check_arraylike("polyadd", a1, a2)
    return lax.add(*_same_length(*promotion.promote_dtypes(a1, a2)))


@jit
def polysub(a1: Any, a2: Any) -> Array:
    """Difference of two polynomials given by their coefficients along the first axis, the highest power first.

    Further axes of the shorter one are broadcast to those of the longer one (``a1`` if they are as long); ValueError if
    they cannot be.

    >>> polysub(weft.numpy.ones(1), weft.numpy.ones(2)).tolist()
    [-1.0, 0.0]
    """
    promotion.check_arraylike("polysub", a1, a2)
    return lax.sub(*_same_length(*promotion.promote_dtypes(a1, a2)))


def _same_length(a1: Any, a2: Any) -> tuple[Any, Any]:
    """Both with as many coefficients as the longer one, to whose further axes those of the other are broadcast."""
    if promotion.shape_of(a2)[0] <= promotion.shape_of(a1)[0]:
        return a1, _lengthened(a2, promotion.shape_of(a1))
    return _lengthened(a1, promotion.shape_of(a2)), a2


def _lengthened(coefficients: Any, shape: tuple[int, ...]) -> Any:
    count = promotion.shape_of(coefficients)[0]
    rows = promotion.broadcast_to(coefficients, (count, *shape[1:]))
    zero = promotion.constant_like(0, coefficients, any_rank=True)
    return lax.pad(rows, zero, ((shape[0] - count, 0, 0), *((0, 0, 0) for _ in shape[1:])))


@jit(static_argnames=("m",))
def polyder(p: Any, m: int = 1) -> Array:
    """Coefficients of the ``m``-th derivative of a polynomial, the highest power first.

    >>> polyder(weft.numpy.array([1.0, 2.0, 3.0])).tolist()
    [2.0, 2.0]
    """
    promotion.check_arraylike("polyder", p)
    if not promotion.shape_of(p):
        raise TypeError(f"[polyder] the coefficients must have a rank of at least 1, got {p}")
    (p,) = promotion.promote_dtypes_inexact(p)
    m = operator.index(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    if m == 0:
        return p
    count, dtype = max(promotion.shape_of(p)[0] - m, 0), promotion.dtype_of(p)
    # the power k comes down as k (k-1) ... (k-m+1), for k from m upward
    powers = lax.expand_dims(lax.add(np.asarray(m).astype(dtype), lax.iota(dtype, count)), (0,))
    factors = lax.reduce_prod(lax.sub(powers, lax.expand_dims(lax.iota(dtype, m), (1,))), (0,))
    return lax.mul(*promotion.promote_args("polyder", _part(p, 0, 0, count), lax.rev(factors, (0,))))
