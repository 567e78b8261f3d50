"""Sets: unique and what is made of it, union, intersection, differences, membership.

The number of elements of a set is data: outside a trace NumPy counts them, in a trace ``size`` must give the size of
the result. Rows are sorted, and the first of each run of equal rows is marked::

    unique([3, 1, 3], size=2)  ->  lexsort: 1 3 3, marks 1 1 0, nonzero(size=2): 0 1, elements 1 3

Sets are joined with their members in front, so that equal ones are neighbours once sorted.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, overload

import numpy as np

from weft import core, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.core.interruptible import interruptible
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, bins, calculus, joining, promotion, rearrange, reductions, searching, sorting
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic, logic, selection
from weft.numpy.subscripts import index_updates, indexing

jit = jit_module.jit


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
    narrow = values.dtype.isbuiltin != 1 and dtypes.issubdtype(values.dtype, np.floating)
    return values.astype(np.float32) if narrow else values


def _host(value: np.ndarray, like: Any) -> Any:
    return promotion.constant(np.asarray(value), dtype=promotion.dtype_of(like))


def _host_integers(value: np.ndarray) -> Any:
    return promotion.constant(np.asarray(value, dtypes.canonicalize_dtype(np.int64)))


@overload
def unique(
    ar: Any, return_index: Literal[False] = False, return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False, axis: int | None = None, *, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None, sorted: bool = True,
) -> Array: ...  # fmt: skip


@overload
def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
    sorted: bool = True,
) -> Any: ...  # fmt: skip


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
    ar = promotion.unwrapped(ar)
    axis = axis if axis is None else axes.canonical_axis(axis, len(promotion.shape_of(ar)))
    wanted = (return_index, return_inverse, return_counts)
    if _needs_values("unique", size, ar):
        if core.is_tracing():
            size = _members(ar, axis, equal_nan).shape[axis or 0]
        else:
            return _unique_host(ar, wanted, axis, equal_nan)
    members: int = core.concrete_or_error(operator.index, size, "The error arose for the size argument of jnp.unique()")
    if members < 0:
        raise TypeError(f"[unique] size must not be negative, got {members}")
    result, _ = _unique_sized(ar, axis, equal_nan, members, fill_value, wanted)
    return result[0] if len(result) == 1 else tuple(result)


def _unique_host(ar: Any, wanted: tuple[bool, ...], axis: int | None, equal_nan: bool) -> Any:
    if not any(wanted):
        return _host(_members(ar, axis, equal_nan), ar)
    values = _comparable(ar)
    found: Any = interruptible(values.size, np.unique, values, *wanted, axis=axis, equal_nan=equal_nan)
    return (_host(found[0], ar), *map(_host_integers, found[1:]))


def _members(x: Any, axis: int | None = None, equal_nan: bool = True) -> np.ndarray:
    # asked for counts NumPy sorts; its hash table takes seconds for a million integers that are all different
    values = _comparable(x)
    return interruptible(values.size, np.unique, values, return_counts=True, axis=axis, equal_nan=equal_nan)[0]


@jit(static_argnames=("axis", "equal_nan"))
def _unique_sorted_mask(ar: Any, *, axis: int, equal_nan: bool) -> tuple[Any, Any, Any]:
    """The slices along ``axis`` in order, which of them are the first of equal ones, and where each was."""
    slices = rearrange.moveaxis(promotion.as_array(ar), axis, 0)
    dtype = promotion.dtype_of(slices)
    if equal_nan and dtypes.issubdtype(dtype, np.complexfloating):  # one NaN, whatever its parts
        slices = selection.where(logic.isnan(slices), np.asarray(np.nan, dtype), slices)
    count, *rest = promotion.shape_of(slices)
    width = math.prod(rest)
    rows = rearrange.reshape(slices, (count, width))
    order = sorting.lexsort(rearrange.transpose(rows)[::-1]) if width else creation.arange(count)
    ordered = indexing.index(slices, order)
    if not count:
        return ordered, creation.zeros(0, bool), order
    marks = creation.ones(count, bool)
    below, above = ordered[1:], ordered[:-1]
    differs = logic.not_equal(below, above)
    if equal_nan and dtypes.issubdtype(dtype, np.inexact):
        both = logic.logical_and(logic.not_equal(below, below), logic.not_equal(above, above))
        differs = logic.logical_and(differs, logic.logical_not(both))
    changed = reductions.any(differs, axis=tuple(range(1, len(rest) + 1)))
    return ordered, index_updates.IndexUpdate(marks, slice(1, None)).set(changed), order


def _unique_sized(
    ar: Any, axis: int | None, equal_nan: bool, size: int, fill_value: Any, wanted: tuple[bool, ...]
) -> tuple[list[Any], Any]:
    """``size`` members, then what is ``wanted`` of first positions, numbers of members and counts; the marks."""
    shape = promotion.shape_of(ar)
    flat = rearrange.ravel(ar) if axis is None else promotion.as_array(ar)
    dim = 0 if axis is None else axes.canonical_axis(axis, len(shape))
    count = promotion.shape_of(flat)[dim]
    ordered, marks, order = _unique_sorted_mask(flat, axis=dim, equal_nan=equal_nan)
    indices = searching.nonzero(marks, size=size)[0]
    members = indexing.index(ordered, indices) if count else _nothing(ordered, size, fill_value)
    if fill_value is not None and count:
        real = lax.lt(creation.arange(size), reductions.sum(marks))
        fill = creation.asarray(fill_value, dtype=promotion.dtype_of(ordered))
        real = lax.expand_dims(real, tuple(range(1, len(promotion.shape_of(ordered)))))
        members = selection.where(real, members, fill)
    result = [rearrange.moveaxis(members, 0, dim)]
    if wanted[0]:
        result.append(indexing.index(order, indices) if count else indices)
    if wanted[1]:
        numbers = arithmetic.subtract(reductions.cumsum(marks), 1)
        inverse = index_updates.IndexUpdate(creation.zeros_like(order), order).set(numbers)
        result.append(rearrange.reshape(inverse, shape) if axis is None else inverse)
    if wanted[2]:
        result.append(_run_lengths(marks, size) if count else indices)
    return result, marks


def _nothing(ordered: Any, size: int, fill_value: Any) -> Any:
    """``size`` members of an empty array."""
    if not size:
        return ordered
    if fill_value is None:
        raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, fill_value must be specified")
    return creation.full((size, *promotion.shape_of(ordered)[1:]), fill_value, promotion.dtype_of(ordered))


def _run_lengths(marks: Any, size: int) -> Any:
    """How far each of the first ``size`` marks is from the next, or from the end; 0 where there is none."""
    count = promotion.shape_of(marks)[0]
    starts = searching.nonzero(marks, size=size + 1)[0]
    ends = selection.where(starts[1:], starts[1:], count)
    return calculus.diff(index_updates.IndexUpdate(starts, slice(1, None)).set(ends))


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Array:
    """Whether each element is among ``test_elements`` (or is not, with ``invert``); NaN is never.

    ``method``: "compare_all" compares all with all in one kernel, "binary_search" sorts ``test_elements``, "sort" sorts
    both together; "auto" (the default) is the first for few test elements, the second for many. ``assume_unique``
    spares "sort" a step.

    >>> isin(2, np.array([1, 2])).item()
    True
    """
    promotion.check_arraylike("isin", element, test_elements)
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ValueError(
            f"{method=} is not implemented; options are 'compare_all', 'binary_search', 'sort', and 'auto'"
        )
    shape = promotion.shape_of(element)
    found = _in1d(element, test_elements, assume_unique=bool(assume_unique), invert=bool(invert), method=method)
    return rearrange.reshape(found, shape)


_FEW_TEST_ELEMENTS = 256


@jit(static_argnames=("assume_unique", "invert", "method"))
def _in1d(element: Any, test_elements: Any, *, assume_unique: bool, invert: bool, method: str) -> Any:
    element, test_elements = promotion.promote_dtypes(element, test_elements)
    element, test_elements = rearrange.ravel(element), rearrange.ravel(test_elements)
    lengths = [promotion.shape_of(array)[0] for array in (element, test_elements)]
    if 0 in lengths:
        return lax.full((lengths[0],), invert, np.bool_)
    if method == "sort":
        return _in1d_sorted(element, test_elements, assume_unique, invert)
    compare = lax.ne if invert else lax.eq
    if method == "auto" and lengths[1] > _FEW_TEST_ELEMENTS:
        method = "binary_search"
    if method == "binary_search" and not dtypes.issubdtype(promotion.dtype_of(element), np.complexfloating):
        ordered = lax.sort(test_elements)
        return compare(element, indexing.index(ordered, bins.searchsorted(ordered, element)))
    compared = compare(lax.expand_dims(element, (1,)), lax.expand_dims(test_elements, (0,)))
    return (reductions.all if invert else reductions.any)(compared, axis=1)


def _in1d_sorted(element: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    """Membership by sorting members together with the test elements: a member is found if an equal element follows."""
    members, numbers = element, None
    if not assume_unique:
        fill = reductions.max(test_elements)
        count = promotion.shape_of(element)[0]
        members, numbers = unique(element, return_inverse=True, size=count, fill_value=fill)
    joined = joining.concatenate([members, test_elements])
    ordered, order = lax.sort((joined, creation.arange(promotion.shape_of(joined)[0])), num_keys=1)
    found = lax.full(promotion.shape_of(members), invert, np.bool_)
    indices = order[:-1]
    compare = lax.ne if invert else lax.eq
    found = index_updates.IndexUpdate(found, indices).set(compare(ordered[1:], ordered[:-1]))
    return found if assume_unique else indexing.index(found, numbers)


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


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The different elements of both arrays, in order; ``size`` and ``fill_value`` as in ``unique``.

    >>> union1d(weft.numpy.array([1, 3]), weft.numpy.array([2, 3])).tolist()
    [1, 2, 3]
    """
    first, second = _flat_pair("union1d", ar1, ar2)
    _needs_values("union1d", size, ar1, ar2)
    return unique(joining.concatenate((first, second)), size=size, fill_value=fill_value)


def _joined_members(first: Any, second: Any, fill_value: Any) -> tuple[Any, list[Any], Any, Any]:
    """The members of both arrays, those of the second behind those of the first, then anything.

    Further the first positions of each array's members, and how many members the first and the second have.
    """
    arrays = first, second
    total = sum(promotion.shape_of(array)[0] for array in arrays)
    found, counts = [], []
    wanted = fill_value is not None, False, False
    for array in arrays:
        parts, marks = _unique_sized(array, None, True, promotion.shape_of(array)[0], fill_value, wanted)
        found.append(parts)
        counts.append(reductions.sum(marks))
    joined = lax.full((total,), 0, promotion.dtype_of(first))
    joined = lax.dynamic_update_slice(joined, found[0][0], (0,))
    joined = lax.dynamic_update_slice(joined, found[1][0], (counts[0],))
    return joined, [parts[-1] for parts in found], *counts


def _picked(ordered: Any, marks: Any, size: int, fill_value: Any) -> tuple[Any, Any, Any]:
    """The marked elements, filled up to ``size`` (by default with the least), their indices, which are real."""
    count = promotion.shape_of(ordered)[0]
    number = reductions.sum(marks)
    indices = searching.nonzero(marks, size=size, fill_value=count)[0]
    picked = _or_fill(ordered, indices, 0)

    if fill_value is not None:
        return selection.where(lax.lt(creation.arange(size), number), picked, fill_value), indices, number
    for least_or_most in (reductions.max, reductions.min):  # the 0 of what is missing is above or below the real ones
        real = lax.lt(creation.arange(size), number)
        picked = selection.where(real, picked, least_or_most(picked))
    return picked, indices, number


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The different elements of ``ar1`` that are not in ``ar2``, in order.

    In a trace ``size`` must be given; what is missing is ``fill_value`` (0). There an array of NaN alone keeps all of
    them, as in JAX.

    >>> setdiff1d(weft.numpy.array([1, 2, 3]), weft.numpy.array([2])).tolist()
    [1, 3]
    """
    promotion.check_arraylike("setdiff1d", ar1, ar2)
    ar1, ar2 = promotion.unwrapped(ar1), promotion.unwrapped(ar2)
    if _needs_values("setdiff1d", size, ar1, ar2):
        pick = _comparable if assume_unique else _members
        values, others = pick(ar1), pick(ar2)
        return _host(interruptible(values.size + others.size, np.setdiff1d, values, others, assume_unique=True), ar1)
    dtype = promotion.dtype_of(ar1)
    fill = creation.asarray(0 if fill_value is None else fill_value, dtype=dtype)
    candidates = rearrange.ravel(ar1)
    count, size = promotion.shape_of(candidates)[0], int(size or 0)
    if not count:
        return lax.full((size,), fill, dtype)
    if not assume_unique:
        candidates = unique(candidates, size=count)
    absent = isin(candidates, ar2, invert=True)
    if not assume_unique:  # the first member fills up
        members = arithmetic.subtract(count + 1, reductions.sum(logic.equal(candidates, candidates[0])))
        absent = selection.where(lax.lt(creation.arange(count), members), absent, False)
    real = lax.lt(creation.arange(size), reductions.sum(absent))
    indices = searching.nonzero(absent, size=size)[0]
    return selection.where(real, indexing.index(candidates, indices), fill)


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The different elements that are in one of the arrays and not in both, in order.

    In a trace ``size`` must be given; what is missing is ``fill_value``, by default the first of the result.

    >>> setxor1d(weft.numpy.array([1, 2]), weft.numpy.array([2, 3])).tolist()
    [1, 3]
    """
    first, second = _flat_pair("setxor1d", ar1, ar2)
    if _needs_values("setxor1d", size, ar1, ar2):
        values, others = _comparable(first), _comparable(second)
        return _host(interruptible(values.size + others.size, np.setxor1d, values, others, assume_unique), first)
    size = int(size or 0)
    if not size:
        return lax.full((0,), 0, promotion.dtype_of(first))
    return _setxor1d_size(first, second, fill_value, assume_unique=bool(assume_unique), size=size)


@jit(static_argnames=("assume_unique", "size"))
def _setxor1d_size(first: Any, second: Any, fill_value: Any, *, assume_unique: bool, size: int) -> Any:
    if assume_unique:
        joined = joining.concatenate((first, second))
        ordered = sorting.sort(joining.concatenate((first, second)))
        borders = _between(logic.not_equal(ordered[1:], ordered[:-1]), True)
    else:
        joined, _, *counts = _joined_members(first, second, None)
        number = arithmetic.add(*counts)
        total = promotion.shape_of(joined)[0]
        real = lax.lt(creation.arange(total + 1), arithmetic.add(number, 1))
        _, ordered = lax.sort((logic.logical_not(real[1:]), joined), num_keys=2)
        borders = _between(logic.not_equal(ordered[1:], ordered[:-1]), False)
        borders = index_updates.IndexUpdate(borders, number).set(True)
        borders = logic.logical_and(real, borders)
    return _picked(ordered, logic.logical_and(borders[1:], borders[:-1]), size, fill_value)[0]


def _between(marks: Any, last: bool) -> Any:
    """Marks with one before them, which is set, and one behind."""
    return joining.concatenate([rearrange.ravel(True), marks, rearrange.ravel(last)])


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
        pick = _comparable if return_indices or assume_unique else _members
        values, others = pick(first), pick(second)
        alike = assume_unique or not return_indices
        found: Any = interruptible(values.size + others.size, np.intersect1d, values, others, alike, return_indices)
        if not return_indices:
            return _host(found, first)
        return (_host(found[0], first), *map(_host_integers, found[1:]))
    size, assume_unique = int(size or 0), bool(assume_unique)
    lengths = [promotion.shape_of(array)[0] for array in (first, second)]
    fill_value = None if fill_value is None else np.asarray(fill_value).item()
    if not size or 0 in lengths:
        members = lax.full((size,), 0 if fill_value is None else fill_value, promotion.dtype_of(first))
        return (members, *[creation.full(size, length, int) for length in lengths]) if return_indices else members
    found = _intersect1d_size(
        first, second, assume_unique=assume_unique, fill_value=fill_value, size=size,
        return_indices=bool(return_indices),
    )  # fmt: skip
    return found if return_indices else found[0]


@jit(static_argnames=("assume_unique", "fill_value", "size", "return_indices"))
def _intersect1d_size(
    first: Any, second: Any, *, assume_unique: bool, fill_value: Any, size: int, return_indices: bool
) -> tuple[Any, ...]:
    """The members of both arrays; with ``return_indices`` their first positions."""
    arrays = first, second
    lengths = [promotion.shape_of(array)[0] for array in arrays]
    if assume_unique:
        origins = [creation.arange(length) for length in lengths]
        start: Any = lengths[0]
        joined = joining.concatenate(arrays)
        ordered, order = lax.sort((joined, creation.arange(sum(lengths))), num_keys=1)
        real = creation.ones(sum(lengths), bool)
    else:
        joined, origins, start, number = _joined_members(first, second, 0)
        real = lax.lt(creation.arange(sum(lengths)), arithmetic.add(start, number))
        keys = logic.logical_not(real), joined, creation.arange(sum(lengths))
        _, ordered, order = lax.sort(keys, num_keys=2)
    twice = logic.logical_and(logic.equal(ordered[1:], ordered[:-1]), real[1:])
    members, indices, number = _picked(ordered, twice, size, fill_value)
    if not return_indices:
        return (members,)

    def positions(found: Any, length: int) -> Any:
        return selection.where(lax.lt(creation.arange(size), number), found, length)

    found = [positions(_or_fill(order, indices, lengths[0]), lengths[0])]
    behind = arithmetic.subtract(_or_fill(order, arithmetic.add(indices, 1), lengths[1]), start)
    found.append(positions(behind, lengths[1]))
    if not assume_unique:
        found = [_or_fill(*each) for each in zip(origins, found, lengths, strict=True)]
    return members, *found


def _or_fill(array: Any, indices: Any, fill_value: Any) -> Any:
    return indexing.get(array, indices, mode="fill", fill_value=fill_value)
