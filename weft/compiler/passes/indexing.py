"""Gathers and scatters in normal form: each becomes what the index vectors, as far as they are known, leave of it.

A window at a known position is a slice, or a region between others; index vectors that count rows make them a batch; a
window for each row of one repeated value is a choice by the index of every element:

    y = gather x [2]                             ->   x[2]
    y = x.at[1:-1].add(f(x))                     ->   concatenate(x[:1], x[1:-1] + f(x), x[-1:])
    y = x.at[arange(n), j].add(u)                ->   a scatter along axis 1, with axis 0 of x, j and u as a batch
    y = zeros.at[arange(n), j].add(u)            ->   y = where(iota == j, 0 + u, 0)

Batches are independent, so that threads share them. Many updates of few integers, which may be made in any order, are
made in parts of their own, which are then combined. In loops that may become routines, a single window is updated as a
region, which has a form in registers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.passes import ordered_scatters
from weft.compiler.passes.affine_indices import components, is_fill
from weft.core import kinds
from weft.core.index_maps import CONSTANT, Affine, Region
from weft.core.programs import check_scopes
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.programs.rewrite import Makers
from weft.dispatch.programs import in_place
from weft.loops.routines import promoted_values

LOOK_BACK = 64  # most equations between an array and the updates that depend on it
NARROW = 32  # elements from which on a row of a window fills the lanes
MANY = 1 << 15  # elements of a window with short rows from which on they are copied rather than updated
MAX_CUT = 3  # dimensions that a window covers partly: each adds two slabs
PARTS = 16  # arrays to which parts of the updates go
LEAST = 1 << 15  # updates, which take 25 us: about as long as the second kernel and its threads gain
OFTEN = 4  # updates of each element of the parts from which clearing and adding them takes little
LARGEST = promoted_values.LARGEST_IN_PLACE  # elements of the array of a window; larger ones have no form in routines
_PASSED = (kinds.Elementwise, kinds.View, kinds.Reshape, kinds.Assemble, kinds.Identity)

Form = tuple[Any, Callable[..., Any]]  # a key, and a function that replaces the equation


def indexing(closed: ClosedJaxpr, threads: bool = False) -> ClosedJaxpr:
    """The program with its gathers and scatters in this form; ``threads``: those of a GPU run it."""
    return expansions.expand(closed, (kinds.Gather, kinds.Scatter), _for_threads if threads else _normal)


def single_windows(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with scatters of one window as updates of a region."""
    return expansions.expand(closed, (kinds.Scatter,), lambda equation, makers: _Scatter(equation, makers).updated())


def _normal(equation: JaxprEqn, makers: Makers, threads: bool = False) -> Form | None:
    if isinstance(equation.primitive.kind, kinds.Gather):
        return _sliced(equation, makers)
    scatter = _Scatter(equation, makers)
    return scatter.region() or scatter.in_parts(threads) or scatter.batched() or scatter.selected()


def _for_threads(equation: JaxprEqn, makers: Makers) -> Form | None:
    """This form; scatters that stay are made by many threads, each the updates of some elements in order."""
    found = _normal(equation, makers, True)
    if found is not None or isinstance(equation.primitive.kind, kinds.Gather):
        return found
    function = ordered_scatters.in_order(equation)
    return None if function is None else ("in order", function)


def _sliced(equation: JaxprEqn, makers: Makers) -> Form | None:
    """A gather of one window at a known position."""
    array, indices = equation.invars
    out = equation.outvars[0].aval
    if isinstance(array, Literal) or not out.size or indices.aval.ndim != 1:
        return None
    windows = equation.primitive.kind.windows([array.aval, indices.aval], out, equation.params)
    region = _known_region(windows, indices, array.aval.ndim, out, makers)
    if region is None:
        return None
    return ("sliced", region), lambda array, _: lax.reshape(lax.slice(array, region.start, region.stop), out.shape)


def _known_region(windows: kinds.Windows, indices: Any, rank: int, stacked: Any, makers: Makers) -> Region | None:
    """The region of an array that its only window is, if that is known and inside, and lies as in the stacked array."""
    moved = [dim for dim in windows.moved if dim is not None]
    if windows.batch or moved != sorted(moved):
        return None
    start = [0] * rank
    for dim, index, most in zip(windows.starts, components(indices, makers), windows.most, strict=True):
        if index is None or index.axis != CONSTANT or not 0 <= index.start <= most:
            return None
        start[dim] = index.start
    return Region(tuple(start), (1,) * rank, tuple([1 if dim is None else stacked.shape[dim] for dim in windows.moved]))


class _Scatter:
    """One scatter, and the forms that it may have; each a method that gives None where it does not apply."""

    def __init__(self, equation: JaxprEqn, makers: Makers) -> None:
        kind = equation.primitive.kind
        assert isinstance(kind, kinds.Scatter)
        self.equation, self.makers, self.kind, self.params = equation, makers, kind, equation.params
        self.atoms = equation.invars[:3]
        self.array, self.indices, self.updates = [atom.aval for atom in self.atoms]
        self.numbers = equation.params["dimension_numbers"]
        avals = [self.array, self.indices, self.updates]
        self.windows = kind.windows(avals, equation.outvars[0].aval, equation.params)
        self.is_simple = not equation.params["update_consts"]

    def _bind(self, array: Any, indices: Any, updates: Any, **given: Any) -> Any:
        return self.equation.primitive.bind(array, indices, updates, **{**self.params, **given})

    def _is_of_fill(self) -> bool:
        return is_fill(self.atoms[0], self.makers)

    # a window at a known position

    def region(self) -> Form | None:
        """Slabs around the window; only if the updates cover most of the array and depend on it, or it is one value.

        Such a scatter would first write the whole array and then its window. Any other writes its window in place,
        unless a row of the window is a few elements, which are copied in a tenth of the time.
        """
        shape, array = self.array.shape, self.atoms[0]
        if isinstance(array, Literal) or not self.array.size or not self.updates.size or self.indices.ndim != 1:
            return None
        found = _known_region(self.windows, self.atoms[1], len(shape), self.updates, self.makers)
        if found is None or not self.is_simple:
            return None
        extent = found.extent
        short = bool(extent) and 1 < extent[-1] < min(shape[-1], NARROW) and self.updates.size >= MANY
        if (4 if short else 2) * self.updates.size < self.array.size:
            return None
        if not 0 < sum(map(operator.ne, extent, shape)) <= MAX_CUT:
            return None
        if not short and not self._is_of_fill() and not _is_computed_from(self.atoms[2], array, self.makers):
            return None
        return ("region", found), functools.partial(_assembled, found, self.kind.update(self.params))

    # in parts, where the order is free

    def in_parts(self, threads: bool) -> Form | None:
        """Many updates of a small array of integers: parts of them go to arrays of their own, which are combined.

        Updates of one element that follow each other, which wait for each other, go to several arrays. With ``threads``
        the same is done for floats that may be added in any order.
        """
        dtype = self.array.dtype
        free = (threads or dtype.kind in "iu") and self.kind.free(dtype, self.params) not in (None, "once")
        count, windows = self.indices.shape[0] if self.indices.ndim else 0, tuple(range(1, self.updates.ndim))
        if self.kind.neutral is None or not free:
            return None
        if self.indices.ndim != 2 or self.numbers.operand_batching_dims or self.numbers.update_window_dims != windows:
            return None
        if PARTS * OFTEN * self.array.size > self.updates.size or count < LEAST or not self.array.size:
            return None
        return None if in_place.is_marked(self.equation) else ("in parts", self._scattered_in_parts)

    def _scattered_in_parts(self, array: Any, indices: Any, updates: Any) -> Any:
        """The scatter of parts into rows; what does not fill the rows is scattered into the result."""
        assert self.kind.neutral is not None and self.kind.merged is not None
        numbers, each = self.numbers, indices.shape[0] // PARTS
        whole = each * PARTS
        rows = lax.ScatterDimensionNumbers(
            _later(numbers.update_window_dims), _later(numbers.inserted_window_dims),
            _later(numbers.scatter_dims_to_operand_dims), (0,), (0,),
        )  # fmt: skip
        neutral = np.asarray(self.kind.neutral(np.dtype(array.dtype)), array.dtype)
        first = [lax.slice_in_dim(x, 0, whole, axis=0) for x in (indices, updates)]
        parts = [lax.reshape(x, (PARTS, each, *x.shape[1:])) for x in first]
        made = self._bind(lax.full((PARTS, *array.shape), neutral), *parts, dimension_numbers=rows)
        result = self.kind.merged(array, made)
        rest = [lax.slice_in_dim(x, whole, x.shape[0], axis=0) for x in (indices, updates)]
        return result if whole == indices.shape[0] else self._bind(result, *rest)

    # rows as a batch

    def batched(self) -> Form | None:
        """Components that count the rows of the array as batching dimensions."""
        found: list[tuple[int, int, int]] = []  # component of the index vectors, dimension of the indices, axis
        taken = set(self.numbers.scatter_indices_batching_dims)
        for component, index in enumerate(components(self.atoms[1], self.makers)):
            axis = self.numbers.scatter_dims_to_operand_dims[component]
            if index is None or index != Affine(index.axis) or axis not in self.numbers.inserted_window_dims:
                continue
            if index.axis not in taken and self.indices.shape[index.axis] == self.array.shape[axis]:
                found.append((component, index.axis, axis))
                taken.add(index.axis)
        if not found or len(found) == self.indices.shape[-1]:
            return None
        return ("batched", *found), functools.partial(self._scattered_by_rows, found)

    def _scattered_by_rows(self, found: Sequence[tuple[int, int, int]], array: Any, indices: Any, updates: Any) -> Any:
        numbers, last = self.numbers, indices.ndim - 1
        known = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        pairs = sorted([*known, *[(axis, dim) for _, dim, axis in found]])
        counting, axes = {component for component, _, _ in found}, {axis for _, _, axis in found}
        kept = [k for k in range(indices.shape[-1]) if k not in counting]
        changed = lax.ScatterDimensionNumbers(
            numbers.update_window_dims,
            tuple([d for d in numbers.inserted_window_dims if d not in axes]),
            tuple([numbers.scatter_dims_to_operand_dims[k] for k in kept]),
            tuple([d for d, _ in pairs]),
            tuple([d for _, d in pairs]),
        )
        columns = [lax.slice_in_dim(indices, k, k + 1, axis=last) for k in kept]
        starts = lax.concatenate(columns, last) if len(columns) > 1 else columns[0]
        return self._bind(array, starts, updates, dimension_numbers=changed)

    # one window in each row of one value

    def selected(self) -> Form | None:
        """A choice on the index of every element, which can be fused with its readers.

        The derivative of a cross-entropy is such an array. It is written in full anyway.
        """
        if isinstance(self.atoms[0], Literal) or not self._is_of_fill() or not self.updates.size or not self.is_simple:
            return None
        walks = self._walks()
        return None if walks is None else (("selected", walks), functools.partial(self._select, walks))

    def _walks(self) -> tuple[int | None, ...] | None:
        """For each dimension of the array the updates' along it, or None where windows have extent 1.

        None if two windows may overlap, or one covers part of a dimension.
        """
        windows, given, shape = self.windows, self.updates.shape, self.array.shape
        walks = [None if dim in windows.starts and walk is not None and given[walk] == 1 else walk
                 for dim, walk in enumerate(windows.moved)]  # fmt: skip
        if any(walk is not None and given[walk] != n for walk, n in zip(walks, shape, strict=True)):
            return None
        is_narrow = self.indices.dtype.itemsize < 4
        if any(walks[dim] is not None or (is_narrow and shape[dim] > 127) for dim in windows.starts):
            return None
        alone = all(dim in walks or given[dim] == 1 for dim in windows.batch)
        # a batch of 1 is treated like larger ones
        is_batch = bool(windows.batch) and not any(dim in walks for dim in windows.batch)
        return tuple(walks) if alone and None in walks and not is_batch else None

    def _select(self, walks: Sequence[int | None], array: Any, indices: Any, updates: Any) -> Any:
        windows, shape, update = self.windows, array.shape, self.kind.update(self.params)
        there = [walk for walk in walks if walk is not None]

        def spread(value: Any, dims: list[int]) -> Any:
            """A value whose dimensions are those of the updates named by ``dims``, in the array's order and shape."""
            value = lax.squeeze(value, [number for number, dim in enumerate(dims) if dim not in there])
            dims = [dim for dim in dims if dim in there]
            order = sorted(range(len(dims)), key=lambda number: walks.index(dims[number]))
            return lax.broadcast_in_dim(lax.transpose(value, order), shape, sorted([walks.index(d) for d in dims]))

        new, chosen = spread(updates, list(range(updates.ndim))), None
        if update is not None:
            new = eval_jaxpr(update, (), array, new)[0]
        for k, (dim, most) in enumerate(zip(windows.starts, windows.most, strict=True)):
            if walks[dim] is not None:
                continue
            start = lax.index_in_dim(indices, k, indices.ndim - 1, keepdims=False)
            if self.kind.clips(self.params):
                start = lax.clamp(np.asarray(0, start.dtype), start, np.asarray(most, start.dtype))
            here = lax.eq(lax.broadcasted_iota(start.dtype, shape, dim), spread(start, list(windows.batch)))
            chosen = here if chosen is None else lax.bitwise_and(chosen, here)
        return lax.select_n(chosen, array, new)

    # one window of a small array

    def updated(self) -> Form | None:
        """The window read, combined and written again; starts that are not inside are moved, and find what is there."""
        windows, dtype = self.windows, self.indices.dtype
        if not self.is_simple or self.array.size > LARGEST or not self.updates.size or dtype.kind != "i":
            return None
        if "index" in check_scopes.wanted(self.equation):
            return None  # what is not inside is reported
        if any(self.updates.shape[dim] != 1 for dim in windows.batch) or self.indices.size != len(windows.starts):
            return None
        if any(most < 0 or most > np.iinfo(dtype).max for most in windows.most):
            return None
        return ("updated", windows), self._update

    def _update(self, array: Any, indices: Any, updates: Any) -> Any:
        windows, update = self.windows, self.kind.update(self.params)
        walks = [walk for walk in windows.moved if walk is not None]
        shape = tuple([1 if walk is None else updates.shape[walk] for walk in windows.moved])
        rest = [dim for dim in range(updates.ndim) if dim not in walks]
        new = lax.reshape(lax.transpose(updates, [*rest, *walks]), shape)
        starts: list[Any] = [np.int32(0)] * array.ndim
        inside = None
        for k, (dim, most) in enumerate(zip(windows.starts, windows.most, strict=True)):
            start = lax.reshape(lax.slice_in_dim(lax.reshape(indices, (indices.size,)), k, k + 1), ())
            low, high = np.asarray(0, start.dtype), np.asarray(most, start.dtype)
            starts[dim] = lax.convert_element_type(lax.clamp(low, start, high), np.int32)
            here = lax.bitwise_and(lax.ge(start, low), lax.le(start, high))
            inside = here if inside is None else lax.bitwise_and(inside, here)
        old = lax.dynamic_slice(array, starts, shape)
        if update is not None:
            new = eval_jaxpr(update, (), old, new)[0]
        if not self.kind.clips(self.params) and inside is not None:
            new = lax.select_n(lax.broadcast_in_dim(inside, shape, ()), old, new)
        return lax.dynamic_update_slice(array, new, starts)


def _assembled(window: Region, update: Any, array: Any, _: Any, updates: Any) -> Any:
    """The array with the window among slabs, beside it along its last dimension first."""
    value = lax.reshape(updates, window.extent) if updates.shape != window.extent else updates
    if update is not None:
        value = eval_jaxpr(update, (), lax.slice(array, window.start, window.stop), value)[0]
    for dim in reversed(range(array.ndim)):
        low, high = [*window.start[:dim], *[0] * (array.ndim - dim)], [*window.stop[:dim], *array.shape[dim:]]
        before = lax.slice(array, low, [*high[:dim], window.start[dim], *high[dim + 1 :]])
        after = lax.slice(array, [*low[:dim], window.stop[dim], *low[dim + 1 :]], high)
        parts = [part for part in (before, value, after) if part.shape[dim]]
        value = lax.concatenate(parts, dim) if len(parts) > 1 else value
    return value


def _is_computed_from(atom: Any, array: Any, makers: Makers) -> bool:
    stack, seen = [atom], {atom} if not isinstance(atom, Literal) else set()
    while stack and len(seen) <= LOOK_BACK:
        variable = stack.pop()
        if variable is array:
            return True
        maker = makers.of(variable)
        if maker is None or not isinstance(maker.primitive.kind, _PASSED):
            continue
        for operand in maker.invars:
            if not isinstance(operand, Literal) and operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return False


def _later(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple([dim + 1 for dim in dims])
