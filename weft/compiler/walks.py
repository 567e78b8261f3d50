"""Arrays that are never made: how the elements of a view lie in the array it is a view of.

A chain of views (slices, transposes, broadcasts, reshapes) of one array in memory is an offset and, for every
dimension, extents and strides of the parts that it consists of:

    qkv f32[8,192] -> [:, 64:128] -> reshape [8,4,16] -> transpose [4,8,16]     offset 64; (4, 16), (8, 192), (16, 1)

What can be walked so depends on which extents are equal, never on their values: at other sizes it is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.compiler.product_loops import Dims, Part, dense
from weft.record import NamedTuple


class Stage(NamedTuple):
    """One view: of every dimension before it the one of ``variable`` that walks it (or None) and where it starts.

    ``walked`` None: a reshape.
    """

    variable: Any
    walked: tuple[tuple[int | None, int], ...] | None


class Chain(NamedTuple):
    """Views, one after the other, of an array in memory."""

    source: Any
    stages: tuple[Stage, ...]

    @property
    def variable(self) -> Any:
        return self.stages[-1].variable


class Walk(NamedTuple):
    """Where an array's elements lie: all in elements of the array in memory."""

    offset: int
    dims: Dims


def walk(chain: Chain) -> Walk | None:
    """How the last view of a chain lies in memory, or None if its dimensions have no strides."""
    shape = chain.source.aval.shape
    offset, dims = 0, dense(shape)
    for variable, walked in chain.stages:
        before, shape = shape, variable.aval.shape
        if walked is None:
            found = _reshaped(before, dims, shape)
            if found is None:
                return None
            dims = found
            continue
        seen: list[tuple[Part, ...] | None] = [None] * len(shape)
        for extent, parts, (out, start) in zip(before, dims, walked, strict=True):
            whole = out is not None and start == 0 and shape[out] == extent
            if out is not None and seen[out] is not None:  # a diagonal
                return None
            if not whole and len(parts) != 1 and extent != 1:
                return None
            if not whole and parts:
                offset += start * parts[0][1]
            if out is not None:
                seen[out] = parts if whole else ((shape[out], parts[0][1] if parts else 0),)
        dims = tuple([((n, 0),) if parts is None else parts for n, parts in zip(shape, seen, strict=True)])
    return Walk(int(offset), dims)


def groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """Where a reshape's dimensions begin and end alike: (dimensions before, dimensions after), extents of 1 aside."""
    found, i, j = [], 0, 0
    left = right = 1
    while i < len(old) or j < len(new):
        if i < len(old) and (left <= right or j == len(new)):
            left *= old[i]
            i += 1
        else:
            right *= new[j]
            j += 1
        if left == right:
            found.append((i, j))
            left = right = 1
    return found


def _reshaped(old: Sequence[int], dims: Dims, new: Sequence[int]) -> Dims | None:
    """The dimensions after a reshape that splits or joins them; None where it would do both at once."""
    if 0 in old:
        return dense(new)
    result: list[tuple[Part, ...]] = []
    i = j = 0
    for end, stop in groups(old, new):
        parts = _joined([part for group in dims[i:end] for part in group if part[0] != 1])
        extents = new[j:stop]
        wide = [extent for extent in extents if extent != 1]
        if len(wide) > 1 and len(parts) > 1:
            return None
        step = math.prod(wide) * parts[0][1] if parts else 0
        for extent in extents:
            if extent == 1:
                result.append(((1, 0),))
            elif len(wide) == 1:
                result.append(tuple(parts))
            else:
                step //= extent
                result.append(((extent, step),))
        i, j = end, stop
    return tuple(result)


def _joined(parts: Sequence[Part]) -> list[Part]:
    found: list[Part] = []
    for extent, stride in parts:
        if found and found[-1][1] == stride * extent:
            found[-1] = found[-1][0] * extent, stride
        else:
            found.append((extent, stride))
    return found
