"""Sets: unique and what is made of it, union, intersection, differences.

How many elements a set has is data: outside a trace NumPy counts them, in a trace ``size`` must say how many the result
has. Rows are sorted, and the first of each run of equal ones is marked::

    unique([3, 1, 3], size=2)  ->  lexsort: 1 3 3, marks 1 1 0, nonzero(size=2): 0 1, elements 1 3
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import core, dtypes, errors
from weft import operations as lax
from weft.numpy import (
    arithmetic,
    axes,
    calculus,
    creation,
    index_updates,
    indexing,
    joining,
    logic,
    membership,
    promotion,
    rearrange,
    reductions,
    searching,
    selection,
    sorting,
)


class UniqueAll(NamedTuple):
    """What ``unique_all`` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: Any
    inverse_indices: Any


def _needs_values(name: str, size: Any, *operands: Any) -> bool:
    """Whether values decide the size of the result; ConcretizationTypeError if they are traced."""
    if size is not None:
        return False
    for operand in operands:
        if isinstance(operand, core.Tracer):
            raise errors.ConcretizationTypeError(
                operand,
                f"The error arose in jnp.{name}(). The size argument of jnp.{name} must be statically specified to use "
                f"jnp.{name} within JAX transformations.",
            )
    return True


def _comparable(x: Any) -> np.ndarray:
    """The values of ``x`` as NumPy sorts them rightly: it does not order the NaN of bfloat16 and the smaller floats."""
    values = np.asarray(x)
    narrow = values.dtype.kind not in "biufc" and dtypes.issubdtype(values.dtype, np.floating)
    return values.astype(np.float32) if narrow else values


def _host(value: np.ndarray, like: Any) -> Any:
    return promotion.constant(np.asarray(value).astype(promotion.dtype_of(like)))


def _host_integers(value: np.ndarray) -> Any:
    return promotion.constant(np.asarray(value, dtypes.canonicalize_dtype(np.int64)))


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
    sorted: bool = True,
) -> Any:  # fmt: skip
    """The different elements of ``ar`` in order, or the different slices along ``axis``.

    ``return_index``, ``return_inverse`` and ``return_counts`` add the positions of the first of each, the number of
    each element's set member, and how often each occurs. In a trace ``size`` must be given; what is missing is
    ``fill_value``, by default the first member.

    >>> unique(weft.numpy.array([3, 1, 3])).tolist()
    [1, 3]
    """
    promotion.check_arraylike("unique", ar)
    wanted = (return_index, return_inverse, return_counts)
    if _needs_values("unique", size, ar):
        if core.is_tracing():
            size = int(np.unique(_comparable(ar), axis=axis, equal_nan=equal_nan).shape[axis or 0])
        else:
            return _unique_host(ar, wanted, axis, equal_nan)
    members: int = core.concrete_or_error(int, size, "The error arose for the size argument of jnp.unique()")
    found = _unique_sized(ar, axis, equal_nan, max(members, 0), fill_value)
    result = [found[0], *(part for part, asked in zip(found[1:], wanted, strict=True) if asked)]
    return result[0] if len(result) == 1 else tuple(result)


def _unique_host(ar: Any, wanted: tuple[bool, ...], axis: int | None, equal_nan: bool) -> Any:
    # NumPy's stubs have an overload for each combination of literal flags, none for flags that are variables
    found: Any = np.unique(_comparable(ar), *wanted, axis=axis, equal_nan=equal_nan)  # type: ignore[call-overload]
    if not any(wanted):
        return _host(found, ar)
    return (_host(found[0], ar), *map(_host_integers, found[1:]))


def _rows(ar: Any, axis: int | None) -> tuple[Any, tuple[int, ...], int]:
    """The members to compare as rows of a matrix, the shape of one, and the axis they lie along."""
    if axis is None:
        flat = rearrange.ravel(ar)
        return lax.reshape(flat, (promotion.shape_of(flat)[0], 1)), (), 0
    dim = axes.canonical_axis(axis, len(promotion.shape_of(ar)))
    front = rearrange.moveaxis(ar, dim, 0)
    count, *rest = promotion.shape_of(front)
    return lax.reshape(front, (count, int(np.prod(rest)))), tuple(rest), dim


def _unique_sized(ar: Any, axis: int | None, equal_nan: bool, size: int, fill_value: Any) -> list[Any]:
    """Members, first positions, numbers of members, counts: of ``size`` members."""
    rows, rest, dim = _rows(promotion.as_array(ar), axis)
    count, width = promotion.shape_of(rows)
    if not count or not width:
        if count == 0 and size:
            raise ValueError("jnp.unique(): size is nonzero, but the array is empty")
        members = lax.full_like(rows, 0, shape=(size, width))
        empty = creation.zeros(size, int)
        inverse = creation.zeros(count, int)
        return [_member_axes(members, rest, dim, axis), empty, inverse, empty]
    order = sorting.lexsort(rearrange.transpose(rows)[::-1])
    ordered = indexing.index(rows, order)
    marks = _first_of_runs(ordered, equal_nan)
    places = searching.nonzero(marks, size=size)[0]
    missing = _missing(marks, size)
    members = indexing.index(ordered, places)
    if fill_value is not None:
        fill = creation.asarray(fill_value, dtype=promotion.dtype_of(rows))
        members = selection.where(lax.expand_dims(missing, (1,)), fill, members)
    else:
        members = selection.where(lax.expand_dims(missing, (1,)), ordered[0], members)
    first = indexing.index(order, selection.where(missing, 0, places))
    numbers = arithmetic.subtract(reductions.cumsum(marks), 1)
    inverse = index_updates.IndexUpdate(creation.zeros_like(numbers), order).set(numbers)
    if axis is None:
        inverse = lax.reshape(inverse, promotion.shape_of(ar))
    ends = searching.nonzero(marks, size=size + 1, fill_value=count)[0]
    return [_member_axes(members, rest, dim, axis), first, inverse, calculus.diff(ends)]


def _member_axes(members: Any, rest: tuple[int, ...], dim: int, axis: int | None) -> Any:
    shaped = lax.reshape(members, (promotion.shape_of(members)[0], *rest))
    return shaped if axis is None else rearrange.moveaxis(shaped, 0, dim)


def _first_of_runs(ordered: Any, equal_nan: bool) -> Any:
    """Which rows differ from the row before."""
    above, below = ordered[:-1], ordered[1:]
    differs = logic.not_equal(below, above)
    if equal_nan and dtypes.issubdtype(promotion.dtype_of(ordered), np.inexact):
        both = logic.logical_and(logic.not_equal(below, below), logic.not_equal(above, above))
        differs = logic.logical_and(differs, logic.logical_not(both))
    return lax.concatenate([creation.ones(1, bool), reductions.any(differs, axis=1)], 0)


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Members, first positions, numbers and counts; NaN differ from each other."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Members and counts; NaN differ from each other."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Members, and the number of each element's member; NaN differ from each other."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Members; NaN differ from each other."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def _flat_pair(name: str, ar1: Any, ar2: Any) -> tuple[Any, Any]:
    promotion.check_arraylike(name, ar1, ar2)
    first, second = promotion.promote_dtypes(ar1, ar2)
    return rearrange.ravel(first), rearrange.ravel(second)


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The different elements of both arrays, in order; ``size`` and ``fill_value`` as in ``unique``.

    >>> union1d(weft.numpy.array([1, 3]), weft.numpy.array([2, 3])).tolist()
    [1, 2, 3]
    """
    first, second = _flat_pair("union1d", ar1, ar2)
    _needs_values("union1d", size, ar1, ar2)
    return unique(joining.concatenate((first, second)), size=size, fill_value=fill_value)


def _sized_members(candidates: Any, marks: Any, size: int, fill_value: Any) -> Any:
    """The marked ones of sorted candidates."""
    places = searching.nonzero(marks, size=size)[0]
    members = indexing.index(candidates, places)
    if not size:
        return members
    fill = members[0] if fill_value is None else creation.asarray(fill_value, dtype=promotion.dtype_of(candidates))
    return selection.where(_missing(marks, size), fill, members)


def _missing(marks: Any, size: int) -> Any:
    """Which of ``size`` places are beyond the number of marks."""
    return lax.ge(creation.arange(size), reductions.sum(marks))


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The different elements of ``ar1`` that are not in ``ar2``, in order.

    In a trace ``size`` must be given; what is missing is ``fill_value`` (0).

    >>> setdiff1d(weft.numpy.array([1, 2, 3]), weft.numpy.array([2])).tolist()
    [1, 3]
    """
    promotion.check_arraylike("setdiff1d", ar1, ar2)
    if _needs_values("setdiff1d", size, ar1, ar2):
        return _host(np.setdiff1d(_comparable(ar1), _comparable(ar2), assume_unique), ar1)
    flat = rearrange.ravel(ar1)
    absent = logic.logical_not(membership.isin(flat, ar2))
    fill_value = 0 if fill_value is None else fill_value
    if assume_unique:
        return _sized_members(flat, absent, int(size or 0), fill_value)
    ordered = sorting.sort(flat)
    absent = logic.logical_not(membership.isin(ordered, ar2))
    marks = logic.logical_and(_first_of_runs(lax.expand_dims(ordered, (1,)), True), absent)
    return _sized_members(ordered, marks, int(size or 0), fill_value)


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """The different elements that are in one of the arrays and not in both, in order.

    In a trace ``size`` must be given; what is missing is ``fill_value``, by default the first of the result.

    >>> setxor1d(weft.numpy.array([1, 2]), weft.numpy.array([2, 3])).tolist()
    [1, 3]
    """
    first, second = _flat_pair("setxor1d", ar1, ar2)
    if _needs_values("setxor1d", size, ar1, ar2):
        return _host(np.setxor1d(_comparable(first), _comparable(second), assume_unique), first)
    ordered = sorting.sort(joining.concatenate((first, second)))
    alone = logic.logical_not(logic.logical_and(membership.isin(ordered, first), membership.isin(ordered, second)))
    marks = logic.logical_and(_first_of_runs(lax.expand_dims(ordered, (1,)), True), alone)
    return _sized_members(ordered, marks, int(size or 0), fill_value)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """The different elements that are in both arrays, in order; with ``return_indices`` also their first positions.

    In a trace ``size`` must be given; what is missing is ``fill_value``, by default the first of the
    result, and the positions are the length of the array.

    >>> intersect1d(weft.numpy.array([1, 2]), weft.numpy.array([2, 3])).tolist()
    [2]
    """
    first, second = _flat_pair("intersect1d", ar1, ar2)
    if _needs_values("intersect1d", size, ar1, ar2):
        found: Any = np.intersect1d(_comparable(first), _comparable(second), assume_unique, return_indices)
        if not return_indices:
            return _host(found, first)
        return (_host(found[0], first), *map(_host_integers, found[1:]))
    ordered = sorting.sort(first)
    marks = logic.logical_and(_first_of_runs(lax.expand_dims(ordered, (1,)), True), membership.isin(ordered, second))
    count = int(size or 0)
    members = _sized_members(ordered, marks, count, fill_value)
    if not return_indices:
        return members
    missing = _missing(marks, count)
    return members, _first_places(members, first, missing), _first_places(members, second, missing)


def _first_places(members: Any, array: Any, missing: Any) -> Any:
    """Where in an array each member is first; its length for what is missing."""
    found = reductions.argmax(logic.equal(lax.expand_dims(members, (1,)), array), axis=1)
    return selection.where(missing, promotion.shape_of(array)[0], found)
