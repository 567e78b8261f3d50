"""The items between the brackets of ``x[...]``, checked and put in order: one for each axis, and for each new axis.

In: any index of NumPy's. Out: a list of items without sequences, masks, or an Ellipsis that stands for axes: None, a
slice, an integer known while tracing, an array or tracer of integers, or a ``Truth``. A mask becomes the positions of
its true elements, which must be known, one array for each of its axes::

    x[..., 1:3, [0, 2]]        ->  [:, 1:3, int[2]]            # x of rank 3
    x[mask]                    ->  [int[n], int[n]]            # a mask of rank 2
    x[True]                    ->  [Truth(int[1]), :, :, :]    # a new axis, taken at its only position
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import core, dtypes, errors, runtime
from weft._base.record import NamedTuple
from weft.numpy.array_creation import creation

_ARRAYS = (runtime.Array, core.Tracer, np.ndarray, np.generic)


class Truth(NamedTuple):
    """A boolean scalar: a new axis of extent 1; ``positions`` (one or none) are taken from it."""

    positions: np.ndarray


def items_of(idx: Any, shape: tuple[int, ...]) -> list[Any]:
    """The items of an index into an array of ``shape``, one for each axis beside None, Truth and an empty Ellipsis.

    IndexError for too many indices, a mask of another shape or an object that is no index; TypeError for a list that
    is the whole index, a string, and arrays of another type; NonConcreteBooleanIndexError for a traced mask.
    """
    whole = idx if type(idx) is tuple else tuple(idx) if isinstance(idx, tuple) else (idx,)
    if isinstance(idx, list):
        raise TypeError(_sequence_text(idx))
    items = [_item(item) for item in whole]
    axes_used = [_axes_of(item) for item in items]
    if sum(axes_used) > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {sum(axes_used)} were indexed")
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    missing = len(shape) - sum(axes_used)
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    found: list[Any] = []
    axis = 0
    for position, item in enumerate(items):
        if item is Ellipsis:  # an empty one stays, since it separates arrays
            found += [slice(None)] * missing if missing or position == len(whole) else [Ellipsis]
            axis += missing
        elif is_mask(item):
            found += _positions(item, shape[axis : axis + item.ndim], position)
            axis += item.ndim
        else:
            found.append(item)
            axis += _axes_of(item)
    return found


def is_mask(item: Any) -> bool:
    """Whether an item is an array of booleans."""
    return isinstance(item, _ARRAYS) and item.dtype == np.bool_


def is_static(item: Any) -> bool:
    """Whether an item is an integer known while tracing."""
    return isinstance(item, int | np.integer)


def _axes_of(item: Any) -> int:
    """How many axes of the array an item stands for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if is_mask(item) else 1


def _item(item: Any) -> Any:
    """One item, checked: sequences become arrays, booleans arrays of rank 0."""
    if (
        item is None
        or item is Ellipsis
        or isinstance(item, slice)
        or (isinstance(item, int) and type(item) is not bool)
    ):
        return item
    if isinstance(item, str):
        raise TypeError(f"JAX does not support string indexing; got idx={item!r}")
    if isinstance(item, list | tuple):
        item = _array_of(item)
    elif isinstance(item, bool):
        item = np.asarray(item)
    elif hasattr(item, "__jax_array__"):
        item = item.__jax_array__()
    elif isinstance(item, float | complex):
        item = np.asarray(item)
    elif not isinstance(item, _ARRAYS):
        return _integer(item)
    if isinstance(item.dtype, dtypes.ExtendedDType) or not (
        item.dtype == np.bool_ or dtypes.issubdtype(item.dtype, np.integer)
    ):
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {item.dtype}")
    return item


def _integer(item: Any) -> int:
    """An object that is an integer to Python."""
    if hasattr(item, "__index__"):
        return operator.index(item)
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean arrays are valid "
        f"indices. Got {item}"
    )


def _array_of(sequence: Any) -> Any:
    """A list or tuple among the indices: an array of integers or booleans; an empty one of integers."""
    if any(part is None or part is Ellipsis or isinstance(part, slice | str) for part in sequence):
        raise TypeError(_sequence_text(sequence))
    if not sequence:
        return np.asarray([], np.int32)
    if isinstance(sequence[0], bool | list | tuple) and np.asarray(sequence).dtype == np.bool_:
        return np.asarray(sequence)
    return creation.asarray(sequence)


def _sequence_text(sequence: Any) -> str:
    nested = any(
        part is None or part is Ellipsis or isinstance(part, slice | list | tuple | np.ndarray) for part in sequence
    )
    cure = "tuple(seq)" if nested else "array(seq)"
    return (
        f"Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[{cure}]` instead of "
        "`arr[seq]`. See https://github.com/jax-ml/jax/issues/4564 for more information."
    )


def _positions(mask: Any, shape: tuple[int, ...], position: int) -> list[Any]:
    """A mask as the positions of its true elements along each of its axes."""
    _check_mask(mask, shape, position)
    values = np.asarray(mask)
    if not values.ndim:
        return [Truth(np.nonzero(values[None])[0])]
    return list(np.nonzero(values))


def _check_mask(mask: Any, shape: tuple[int, ...], position: int) -> None:
    """Raise unless the mask is known, and of the shape of the axes that it stands for."""
    if isinstance(mask, core.Tracer):
        raise errors.NonConcreteBooleanIndexError(mask)
    if tuple(mask.shape) != shape:
        raise IndexError(
            f"boolean index did not match shape of indexed array in index {position}: got {tuple(mask.shape)}, "
            f"expected {list(shape)}"
        )
