"""Gathers of computed values: the operands of the computation are gathered instead.

    b = exp a; c = gather b i   ->   a2 = gather a i; c = exp a2

so that ``b`` need not be stored, and a gather can be fused with the reductions that its value depends on (the
cross-entropy of a row is a gathered logit and the row's own reductions). An axis whose positions the index vectors
count becomes a batch: in ``x[arange(n), j]`` the first axis of x.

Done only where it saves more stores than it adds loads and computation: an expensive value stays stored if gathers read
more elements than it has. The bits are the same: starts are clamped, and windows outside filled, alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft._base.record import NamedTuple
from weft._base.target_model import FAR_ELEMENTS, HIDDEN, NS_FAR, NS_LAUNCH, NS_NEAR, NS_PER_COST, NS_STREAMED
from weft.compiler.passes import affine_indices
from weft.compiler.passes.data_movement import Along, DefUse, Pull, Reading, Unfit
from weft.core.index_maps import CONSTANT, Affine
from weft.core.programs.jaxpr import Literal
from weft.operations.data_movement import views
from weft.operations.settings import GatherDimensionNumbers, GatherScatterMode

LONG_WINDOW = 16  # least contiguous elements that count as a row


class _Load(NamedTuple):
    """The elements read of an array, ``run`` of them contiguous (``_long_run``)."""

    read: tuple[int, ...]
    array: tuple[int, ...]
    run: int | None

    def time_ns(self) -> float:
        streamed = self.run is None or self.run >= LONG_WINDOW
        near = NS_NEAR if math.prod(self.array) < FAR_ELEMENTS else NS_FAR
        return math.prod(self.read) * (NS_STREAMED if streamed else near)


class Price(NamedTuple):
    """The cost of a gather of a computed value, with the value stored and without.

    ``loads``: that of the stored value, then those of what is loaded instead; ``saved``: shapes whose stores are saved.
    """

    own: float
    shared: float
    gathers: int
    is_read: bool
    loads: tuple[_Load, ...]
    saved: tuple[tuple[int, ...], ...]

    def pays(self) -> bool:
        """Whether computing and loading at the gathered positions costs less than storing the value."""
        value, *loads = self.loads
        stored = math.prod(value.array) * (self.own * NS_PER_COST + 2 * NS_STREAMED) / self.gathers + value.time_ns()
        if not self.is_read:
            stored += NS_LAUNCH
        spent = sum([load.time_ns() for load in loads]) + sum([math.prod(s) * 2 * NS_STREAMED for s in self.saved])
        return math.prod(value.read) * max(self.own + self.shared - HIDDEN, 0.0) * NS_PER_COST + spent <= stored


class Gathered(Pull):
    """One gather: the equations that replace it, and their cost."""

    def __init__(self, program: DefUse, equation: Any) -> None:
        super().__init__(program, equation)
        self.indices, kind = equation.invars[1], equation.primitive.kind
        self.windows = kind.windows([self.array.aval, self.indices.aval], self.out, equation.params)
        self.fill = kind.fill(self.out, equation.params)
        self.columns = self._columns()  # the ``column`` of a reading is one of them, i32[*batch,1]
        self.reading = self._reading()
        self.scope = (self.out.shape, self.windows.batch)

    def made(self) -> list[Any] | None:
        """The equations that replace it, or None."""
        equations = self.builder.eqns
        start, value = len(equations), None
        if self.through(self.array, self.reading) is not None:
            try:
                value = self.at(self.array, self.reading, self.program.others.get(self.array, 0) == 0)
            except Unfit:
                value = None
            if value is None or not self._pays():
                del equations[start:]
                self.known, value = {}, None
        if value is None:
            if sum(along.column is not None for along in self.reading) == len(self.columns):
                return None
            value = self.leaf(self.array, self.reading)
        return self.result(self._filled(self.spread(value, self.out.shape)))

    def _pays(self) -> bool:
        """Whether it costs less than storing the value."""
        loads = [(self.out.shape, self.array.aval.shape, self.reading), *self.loads]
        price = Price(
            self.own_cost,
            self.shared_cost,
            self.program.moved[self.array],
            bool(self.program.others.get(self.array)),
            tuple([_Load(read, array, _long_run(reading)) for read, array, reading in loads]),
            tuple(self.saved),
        )
        return price.pays()

    # the parameters of the gather

    def _columns(self) -> list[Any]:
        """The components of the index vectors, each i32[*batch,1]."""
        found = affine_indices.columns(self.indices, self.program.makers)
        if found is not None:
            return found
        shape = self.indices.aval.shape
        first = (0,) * (len(shape) - 1)
        bind, indices = self.builder.bind, self.indices
        return [views.slice(bind, indices, (*first, k), (*shape[:-1], k + 1)) for k in range(shape[-1])]

    def _reading(self) -> Reading:
        """How the array is read; a component that counts along the index vectors makes its dimension a batch."""
        windows, extents, batch = self.windows, self.indices.aval.shape[:-1], self.windows.batch
        walked = {dim for dim in windows.moved if dim in batch}
        by_dim = dict(zip(windows.starts, self.columns, strict=True))
        reading = []
        for dim, (extent, walk) in enumerate(zip(self.array.aval.shape, windows.moved, strict=True)):
            column = by_dim.get(dim)
            if column is not None and walk is not None and self.out.shape[walk] == 1:
                walk = None
            if column is not None and walk is None:
                index = affine_indices.affine(column, self.program.makers)
                counts = index is not None and index == Affine(index.axis)
                if index is not None and counts and extents[index.axis] == extent and batch[index.axis] not in walked:
                    column, walk = None, batch[index.axis]
                    walked.add(walk)
            reading.append(Along(column, walk, 1 if walk is None or walk in batch else self.out.shape[walk]))
        return tuple(reading)

    def moved(self, affine: Affine, extent: int, viewed: Sequence[int], reading: Reading) -> Along | None:
        """A dimension with an index may also be read through a view with steps."""
        found = super().moved(affine, extent, viewed, reading)
        if found is not None or affine.axis == CONSTANT:
            return found
        along, whole = reading[affine.axis], viewed[affine.axis]
        if along.column is None or along.walk is not None or extent > np.iinfo(np.int32).max:
            return None
        start = self._clamped(along.column, whole)
        start = self.apply(lax.mul, start, _literal(affine.step, np.int32))
        return Along(self.apply(lax.add, start, _of_this_size(affine.start, np.dtype(np.int32))), None, 1)

    def _clamped(self, column: Any, extent: int) -> Any:
        dtype = column.aval.dtype
        start = self.apply(lax.min, column, _of_this_size(extent - 1, dtype))
        if dtype.kind == "i":
            start = self.apply(lax.max, start, _literal(0, dtype))
        return start if dtype == np.int32 else self.apply(_int32, start)

    def leaf(self, atom: Any, reading: Reading) -> Any:
        """An array read by a gather, or by views alone if it has no index."""
        batch = self.windows.batch
        walks = [along.walk for along in reading]
        columns = {dim: along.column for dim, along in enumerate(reading) if along.column is not None}
        if not columns:
            return self.arranged(self._cut(atom, reading), walks)
        inner = [walk for walk in walks if walk is not None and walk not in batch]
        there = sorted((*batch, *inner))
        value = self._gathered(atom, reading, columns, [there.index(walk) for walk in sorted(inner)])
        windows = iter(inner)
        return self.arranged(value, [walk if walk in batch else next(windows) for walk in there])

    def _cut(self, atom: Any, reading: Reading) -> Any:
        """The elements that are read of an array without an index."""
        shape = atom.aval.shape
        sizes = [n if along.walk in self.windows.batch else along.size for n, along in zip(shape, reading, strict=True)]
        if sizes == list(shape):
            return atom
        return views.slice(self.builder.bind, atom, (0,) * len(shape), sizes)

    def _gathered(self, atom: Any, reading: Reading, columns: dict[int, Any], offsets: Sequence[int]) -> Any:
        batch, parts = self.windows.batch, list(columns.values())
        indices = self.indices
        if parts != self.columns:
            indices = views.concatenate(self.builder.bind, parts, parts[0].aval.ndim - 1)
        walked = {dim: batch.index(along.walk) for dim, along in enumerate(reading) if along.walk in batch}
        thin = [dim for dim, along in enumerate(reading) if along.walk is None]
        numbers = GatherDimensionNumbers(
            tuple(offsets), tuple(thin), tuple(columns), tuple(walked), tuple(walked.values())
        )
        return self.bind(
            lax.gather_p, atom, indices, dimension_numbers=numbers, fill_value=None, mode=GatherScatterMode.CLIP,
            slice_sizes=tuple([along.size for along in reading]), indices_are_sorted=False, unique_indices=False,
        )  # fmt: skip

    def _filled(self, value: Any) -> Any:
        """The value where windows are inside, the fill value elsewhere."""
        if self.fill is None:
            return value
        inside = None
        for column, dim, most in zip(self.columns, self.windows.starts, self.windows.most, strict=True):
            dtype = column.aval.dtype
            if self.reading[dim].column is None:
                continue
            tests = [self.apply(lax.le, column, _of_this_size(most, dtype))]
            if dtype.kind == "i":
                tests.append(self.apply(lax.ge, column, _literal(0, dtype)))
            for test in tests:
                inside = test if inside is None else self.apply(lax.bitwise_and, inside, test)
        if inside is None:
            return value
        inside = views.squeeze(self.builder.bind, inside, (inside.aval.ndim - 1,))
        fill = self.viewed(_literal(self.fill, self.out.dtype), self.out.shape, ())
        return self.apply(lax.select_n, self.viewed(inside, self.out.shape, self.windows.batch), fill, value)


def _long_run(reading: Reading) -> int | None:
    """The number of contiguous elements, which are a row if there are enough; None: the array has no index."""
    if all(along.column is None for along in reading):
        return None
    return reading[-1].size if reading[-1].column is None else 1


def _of_this_size(value: int, dtype: np.dtype) -> Literal:
    """A literal that follows from an extent, at most the largest value of its dtype."""
    return Literal(min(value, int(np.iinfo(dtype).max)), runtime.ShapedArray((), dtype))


def _literal(value: Any, dtype: Any) -> Literal:
    dtype = np.dtype(dtype)
    return Literal(np.asarray(value, dtype)[()], runtime.ShapedArray((), dtype))


def _int32(x: Any) -> Any:
    return lax.convert_element_type(x, np.int32)
