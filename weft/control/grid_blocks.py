"""Blocks of whole arrays: where the block of a cell of a grid lies, how it is read, and how it is written back.

An array of f32[10, 6] in blocks of (4, 3) lies in six blocks. The last two hang over its edge: they are read
as if the array were f32[12, 6], and what is written outside of it is dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.record import Record


class Blocking(Record):
    """How an array is cut into blocks.

    ``shape``: the extents of a block, 1 where ``squeezed`` says that the body does not see the dimension.
    ``elements``: for each dimension None, if the index map gives the number of a block, or (elements in front of the
    array, elements behind it), if it gives the first element, counted from the first of those in front.
    """

    shape: tuple[int, ...]
    squeezed: tuple[bool, ...]
    elements: tuple[tuple[int, int] | None, ...]

    @property
    def seen(self) -> tuple[int, ...]:
        """The shape that the body sees."""
        return tuple([n for n, squeezed in zip(self.shape, self.squeezed, strict=True) if not squeezed])

    def with_front(self) -> Blocking:
        """The same blocks of an array with one more dimension, in front, which the body does not see."""
        return Blocking((1, *self.shape), (True, *self.squeezed), (None, *self.elements))

    def padding(self, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """How many elements are missing in front of and behind an array of this shape, in each dimension."""
        found = []
        for extent, size, element in zip(shape, self.shape, self.elements, strict=True):
            low, high = element or (0, 0)
            found.append((low, high + -(low + extent + high) % size))
        return tuple(found)

    def padded(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array with what is missing."""
        return tuple([low + n + high for n, (low, high) in zip(shape, self.padding(shape), strict=True)])

    def counts(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """How many blocks lie along each dimension; None if the index map gives elements somewhere."""
        if any(element is not None for element in self.elements):
            return None
        return tuple([-(-n // size) for n, size in zip(shape, self.shape, strict=True)])

    def steps(self) -> tuple[int, ...]:
        """What an index is multiplied by to get the first element."""
        return tuple([1 if e is not None else size for size, e in zip(self.shape, self.elements, strict=True)])


def whole(shape: Sequence[int]) -> Blocking:
    """The one block that is all of an array."""
    return Blocking(tuple(shape), (False,) * len(shape), (None,) * len(shape))


def unset(dtype: Any) -> Any:
    """What elements hold that nobody has written: NaN, the least integer, or False."""
    if dtypes.is_extended(dtype):
        raise NotImplementedError(
            f"a kernel has no results, scratch or blocks over the edge of an array of {dtype}: what nobody has written "
            "would be no key. Use weft.random.key_data, and wrap_key_data"
        )
    if dtypes.issubdtype(dtype, np.inexact):
        return np.asarray(np.nan).astype(dtype)[()]
    if dtype.kind in "iu" or dtypes.issubdtype(dtype, np.integer):
        return np.asarray(dtypes.iinfo(dtype).min).astype(dtype)[()]
    return np.zeros((), dtype)[()]


def pad(x: Any, block: Blocking, always: bool = False) -> Any:
    """The array with what is missing for whole blocks. ``always``: by an operation, also where nothing is missing."""
    padding = block.padding(x.shape)
    if not always and not any(map(any, padding)):
        return x
    return lax.pad(x, unset(x.dtype), [(low, high, 0) for low, high in padding])


def cut(x: Any, block: Blocking, shape: Sequence[int], always: bool = False) -> Any:
    """The array of this shape without what was missing."""
    padding = block.padding(shape)
    if not always and not any(map(any, padding)):
        return x
    return lax.slice(x, [low for low, _ in padding], [low + n for n, (low, _) in zip(shape, padding, strict=True)])


def laid_out(x: Any, block: Blocking) -> Any:
    """The blocks of a padded array one after the other: [number of the block in each dimension, its elements]."""
    n = x.ndim
    parts = [(extent // size, size) for extent, size in zip(x.shape, block.shape, strict=True)]
    apart = lax.reshape(x, tuple(itertools.chain(*parts)))
    return lax.transpose(apart, (*range(0, 2 * n, 2), *range(1, 2 * n, 2)))


def is_contiguous(shape: Sequence[int], block: Blocking) -> bool:
    """Whether the elements of a block of a padded array lie side by side."""
    cut = [d for d, (extent, size) in enumerate(zip(shape, block.shape, strict=True)) if extent != size]
    return not cut or all(n == 1 for n in block.shape[: cut[-1]])


def starts(block: Blocking, indices: Sequence[Any]) -> list[Any]:
    """The first element of a block in each dimension."""
    return [i if step == 1 else lax.mul(i, np.int32(step)) for i, step in zip(indices, block.steps(), strict=True)]


def read(x: Any, block: Blocking, first: Sequence[Any], inside: bool = False, always: bool = False) -> Any:
    """The block of a padded array that begins at ``first``.

    Negative numbers are counted from the end, as ``lax.dynamic_slice`` does; a block that is not inside is moved to the
    nearest position that is. ``inside``: it is known to be inside.
    """
    dims = [d for d, squeezed in enumerate(block.squeezed) if squeezed]
    if always or tuple(x.shape) != block.shape:
        x = lax.dynamic_slice(x, list(first), block.shape, allow_negative_indices=not inside)
    return lax.squeeze(x, dims) if dims else x


def write(x: Any, value: Any, block: Blocking, first: Sequence[Any], always: bool = False) -> Any:
    """The padded array with a block replaced."""
    value = lax.reshape(value, block.shape) if any(block.squeezed) else value
    if not always and tuple(x.shape) == block.shape:
        return value
    return lax.dynamic_update_slice(x, value, list(first))
