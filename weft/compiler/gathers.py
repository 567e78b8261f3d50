"""Gathers of computed values: what a value is computed from is gathered, and the rest computed at the gathered places.

    b = exp a; c = gather b i   ->   a2 = gather a i; c = exp a2

so that ``b`` need not be stored, and a gather joins the kernel of the reductions that its value was computed from (the
cross-entropy of a row is a gathered logit and the row's own reductions). An axis that index vectors count through is
walked: in ``x[arange(n), j]`` the first axis of x is a batch of the gather.

Only where storing less outweighs what is loaded and computed more: an expensive value gathered more often than it has
elements stays stored. The bits are those of the gather: starts are clamped, and windows outside filled, as it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft.compiler import affine_indices
from weft.compiler.dimensions import matched
from weft.core import kinds, rewrite
from weft.core.index_maps import CONSTANT, Affine
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.rewrite import Builder, Index
from weft.operations.settings import GatherDimensionNumbers, GatherScatterMode
from weft.record import NamedTuple

MAX_PASSED = 32  # equations between a gather and what is gathered instead
# Estimates in ns: a unit of Elementwise's cost, an element of a row, one at a place of its own near and far, a kernel.
WORK, STREAMED, NEAR, FAR, LAUNCHED = 0.03, 0.1, 0.3, 4.0, 1000.0
FREE_COST = 2.0  # hides behind a load
FAR_SIZE = 1 << 20  # elements
LONG_WINDOW = 16  # elements beside each other from which on they are read as a row

PASSED = (kinds.Elementwise, kinds.View, kinds.Reshape)  # what gathers may be pulled through
_IN_PLACE = (kinds.Elementwise, kinds.View, kinds.Generate, kinds.Reduction, kinds.Cumulative, kinds.Gather)
_COMPUTED = (kinds.Elementwise, kinds.View, kinds.Generate, kinds.Reduction, kinds.Cumulative, kinds.Assemble)


class Along(NamedTuple):
    """One dimension of a gathered array: ``size`` elements from where ``column`` says, or from 0."""

    column: Any  # i32[*batch,1], or None
    walk: int | None  # the dimension of the result that walks it; None: ``size`` is 1
    size: int


THIN = Along(None, None, 1)
Reading = tuple[Along, ...]


class Unfit(Exception):
    """A value that is not, or not for less, computed at the gathered places."""


class _Load(NamedTuple):
    """Elements read, of an array, ``run`` of them side by side (``_long_run``)."""

    read: tuple[int, ...]
    array: tuple[int, ...]
    run: int | None

    def time_ns(self) -> float:
        streamed = self.run is None or self.run >= LONG_WINDOW
        near = NEAR if math.prod(self.array) < FAR_SIZE else FAR
        return math.prod(self.read) * (STREAMED if streamed else near)


class Price(NamedTuple):
    """What a gather of a computed value takes either way.

    ``loads``: of the value itself, were it stored, and of what is loaded instead; ``saved``: what is stored for that.
    """

    own: float
    shared: float
    gathers: int
    is_read: bool
    loads: tuple[_Load, ...]
    saved: tuple[tuple[int, ...], ...]

    def pays(self) -> bool:
        """Whether what is computed and loaded at the gathered places takes less than to store the value for them."""
        value, *loads = self.loads
        stored = math.prod(value.array) * (self.own * WORK + 2 * STREAMED) / self.gathers + value.time_ns()
        if not self.is_read:
            stored += LAUNCHED
        spent = sum([load.time_ns() for load in loads]) + sum([math.prod(s) * 2 * STREAMED for s in self.saved])
        return math.prod(value.read) * max(self.own + self.shared - FREE_COST, 0.0) * WORK + spent <= stored


def gathers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such gathers."""
    known = rewrite.index(closed.jaxpr)
    pulled = _Program(known).pulled()
    return closed if pulled is known.eqns else rewrite.with_equations(closed, pulled)


class _Program:
    """What makes and reads the values of a program."""

    def __init__(self, known: Index) -> None:
        equations = self.equations = known.eqns
        self.makers = known.makers
        self.gathers: dict[Any, int] = {}  # how many read a value
        self.others: dict[Any, int] = {}  # how many other equations
        self.stored = set(known.outputs)  # in memory whatever becomes of gathers
        for equation in equations:
            kind = equation.primitive.kind
            for place, atom in enumerate(equation.invars):
                if isinstance(atom, Literal):
                    continue
                counts = self.gathers if isinstance(kind, kinds.Gather) and place == 0 else self.others
                counts[atom] = counts.get(atom, 0) + 1
                if not isinstance(kind, _IN_PLACE) and not (isinstance(kind, kinds.Reshape) and unit_pairs(equation)):
                    self.stored.add(atom)
        self.known: dict[Any, Any] = {}  # (value, reading, result) -> the value so read

    def pulled(self) -> list[Any]:
        result: list[Any] = []
        changed = False
        for equation in self.equations:
            made = None
            if isinstance(equation.primitive.kind, kinds.Gather) and equation.outvars[0].aval.size:
                made = _Pull(self, equation).made()
            changed = changed or made is not None
            result += [equation] if made is None else made
        return result if changed else self.equations


class _Pull:
    """One gather: what is made instead of it, and what that costs."""

    def __init__(self, program: _Program, equation: JaxprEqn) -> None:
        self.program, self.equation = program, equation
        self.array, self.indices = equation.invars
        self.out = equation.outvars[0].aval
        kind = equation.primitive.kind
        self.windows = kind.windows([self.array.aval, self.indices.aval], self.out, equation.params)
        self.fill = kind.fill(self.out, equation.params)
        self.builder = Builder()
        self.builder.source = equation.source
        self.columns = self._columns()
        self.reading = self._reading()
        self.known: dict[Any, Any] = {}
        self.passed = 0
        self.own_cost = self.shared_cost = 0.0
        self.loads: list[_Load] = []
        self.saved: list[tuple[int, ...]] = []

    def made(self) -> list[Any] | None:
        """The equations in its place, or None."""
        equations = self.builder.eqns
        start, value = len(equations), None
        if self._through(self.array, self.reading) is not None:
            try:
                value = self._at(self.array, self.reading, self.program.others.get(self.array, 0) == 0)
            except Unfit:
                value = None
            if value is None or not self._pays():
                del equations[start:]
                self.known, value = {}, None
        if value is None:
            if sum(along.column is not None for along in self.reading) == len(self.columns):
                return None
            value = self._leaf(self.array, self.reading)
        value = self._filled(self._spread(value, self.out.shape))
        if not equations or equations[-1].outvars[0] is not value:
            value = self._viewed(value, self.out.shape, tuple(range(self.out.ndim)))
        out = self.equation.outvars[0]
        equations[-1] = equations[-1].replace(outvars=[out])
        self.program.known.update({key: out if atom is value else atom for key, atom in self.known.items()})
        return equations

    def _pays(self) -> bool:
        """Whether it takes less than to store the value."""
        loads = [_Load(self.out.shape, self.array.aval.shape, _long_run(self.reading)), *self.loads]
        price = Price(
            self.own_cost,
            self.shared_cost,
            self.program.gathers[self.array],
            bool(self.program.others.get(self.array)),
            tuple(loads),
            tuple(self.saved),
        )
        return price.pays()

    # what the gather says

    def _columns(self) -> list[Any]:
        """The components of the index vectors, each i32[*batch,1]."""
        found = affine_indices.columns(self.indices, self.program.makers)
        if found is not None:
            return found
        shape = self.indices.aval.shape
        first = (0,) * (len(shape) - 1)
        return [
            self._bind(lax.slice_p, self.indices, start_indices=(*first, k), limit_indices=(*shape[:-1], k + 1),
                       strides=None)
            for k in range(shape[-1])
        ]  # fmt: skip

    def _reading(self) -> Reading:
        """How the array is read; a component that counts along the index vectors walks its dimension."""
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

    # values at the gathered places: of the result's rank, with extents of 1 where they do not move, or 0-d

    def _at(self, atom: Any, reading: Reading, own: bool) -> Any:
        """A value so read; ``own``: it is computed for this gather alone."""
        if isinstance(atom, Literal) or not atom.aval.shape:
            return atom
        key = (atom, reading, self.out.shape, self.windows.batch)
        found = self.known.get(key) or self.program.known.get(key)
        if found is not None:
            return found
        operands = self._through(atom, reading)
        if operands is None:
            found = self._leaf(atom, reading)
            self.loads.append(_Load(found.aval.shape, atom.aval.shape, _long_run(reading)))
            maker = self.program.makers.get(atom)
            if maker is not None and isinstance(maker.primitive.kind, _COMPUTED) and atom not in self.program.stored:
                self.saved.append(atom.aval.shape)
        else:
            self.passed += 1
            if self.passed > MAX_PASSED:
                raise Unfit
            maker = self.program.makers[atom]
            own = own and self.program.others.get(atom, 0) <= 1
            atoms = [self._at(v, r, own) for v, r in zip(maker.invars, operands, strict=True)]
            found = atoms[0]
            if isinstance(maker.primitive.kind, kinds.Elementwise):
                found = self._computed(maker, atoms)
                self.own_cost += maker.primitive.kind.cost * own
                self.shared_cost += maker.primitive.kind.cost * (not own)
        self.known[key] = found
        return found

    def _through(self, atom: Any, reading: Reading) -> list[Reading] | None:
        """How the operands of what makes a value are read instead of it; None where it is gathered itself."""
        maker = self.program.makers.get(atom)
        if maker is None or atom in self.program.stored or len(maker.outvars) != 1:
            return None
        kind = maker.primitive.kind
        operand: Any = maker.invars[0] if maker.invars else None
        if isinstance(kind, kinds.Elementwise):
            return [_stretched(v, atom.aval.shape, reading) for v in maker.invars]
        if isinstance(kind, kinds.View):
            index_map = kind.index_map(operand.aval, atom.aval, maker.params)
            extents = zip(index_map, operand.aval.shape, strict=True)
            found: list[Any] = [self._moved(place, extent, atom.aval.shape, reading) for place, extent in extents]
            return None if None in found else [tuple(found)]
        if isinstance(kind, kinds.Reshape) and (pairs := unit_pairs(maker)) is not None:
            by_dim = dict(pairs)
            return [tuple([reading[by_dim[d]] if d in by_dim else THIN for d in range(operand.aval.ndim)])]
        return None

    def _moved(self, place: Affine, extent: int, viewed: Sequence[int], reading: Reading) -> Along | None:
        """How a dimension behind a view is read, or None."""
        if place.axis == CONSTANT:
            return THIN if extent == 1 else None
        along, whole = reading[place.axis], viewed[place.axis]
        if (place.start, place.step, extent) == (0, 1, whole):
            return along
        if along.column is None or along.walk is not None or extent > np.iinfo(np.int32).max:
            return None
        start = self._clamped(along.column, whole)
        start = self._bind(lax.mul_p, start, _literal(place.step, np.int32))
        return Along(self._bind(lax.add_p, start, _literal(place.start, np.int32)), None, 1)

    def _clamped(self, column: Any, extent: int) -> Any:
        dtype = column.aval.dtype
        start = self._bind(lax.min_p, column, _bound(extent, -1, dtype))
        if dtype.kind == "i":
            start = self._bind(lax.max_p, start, _literal(0, dtype))
        params = {"new_dtype": np.dtype(np.int32), "weak_type": False, "sharding": None}
        return start if dtype == np.int32 else self._bind(lax.convert_element_type_p, start, **params)

    def _computed(self, maker: JaxprEqn, operands: list[Any]) -> Any:
        """An elementwise equation on other operands, of one shape."""
        arrays = [place for place, v in enumerate(maker.invars) if v.aval.shape]
        shapes = {operands[place].aval.shape for place in arrays}
        if len(shapes) > 1:
            shape = tuple([max(extents) for extents in zip(*[s for s in shapes if s], strict=True)])
            operands = [self._spread(v, shape) if place in arrays else v for place, v in enumerate(operands)]
        return self._bind(maker.primitive, *operands, **maker.params)

    def _leaf(self, atom: Any, reading: Reading) -> Any:
        """An array read by a gather, or by views alone where no index moves it."""
        batch, rank = self.windows.batch, self.out.ndim
        walks = [along.walk for along in reading if along.walk is not None]
        columns = {dim: along.column for dim, along in enumerate(reading) if along.column is not None}
        if not columns:
            value = self._cut(atom, reading)
        else:
            inner = [walk for walk in walks if walk not in batch]
            there = sorted((*batch, *inner))
            value = self._gathered(atom, reading, columns, [there.index(walk) for walk in sorted(inner)])
            windows = iter(inner)
            walks = [walk if walk in batch else next(windows) for walk in there]
        order = sorted(range(len(walks)), key=walks.__getitem__)
        if order != list(range(len(order))):
            value = self._bind(lax.transpose_p, value, permutation=tuple(order))
        shape = [1] * rank
        for walk, extent in zip(sorted(walks), value.aval.shape, strict=True):
            shape[walk] = extent
        return value if len(walks) == rank else self._viewed(value, tuple(shape), tuple(sorted(walks)))

    def _cut(self, atom: Any, reading: Reading) -> Any:
        """The elements that are read of an array that no index moves, without its thin dimensions."""
        shape = atom.aval.shape
        sizes = [n if along.walk in self.windows.batch else along.size for n, along in zip(shape, reading, strict=True)]
        if sizes != list(shape):
            starts = (0,) * len(shape)
            atom = self._bind(lax.slice_p, atom, start_indices=starts, limit_indices=tuple(sizes), strides=None)
        thin = tuple([dim for dim, along in enumerate(reading) if along.walk is None])
        return self._bind(lax.squeeze_p, atom, dimensions=thin) if thin else atom

    def _gathered(self, atom: Any, reading: Reading, columns: dict[int, Any], offsets: Sequence[int]) -> Any:
        batch, parts = self.windows.batch, list(columns.values())
        indices = self.indices
        if parts != self.columns:
            last = parts[0].aval.ndim - 1
            indices = parts[0] if len(parts) == 1 else self._bind(lax.concatenate_p, *parts, dimension=last)
        walked = {dim: batch.index(along.walk) for dim, along in enumerate(reading) if along.walk in batch}
        thin = [dim for dim, along in enumerate(reading) if along.walk is None]
        numbers = GatherDimensionNumbers(
            tuple(offsets), tuple(thin), tuple(columns), tuple(walked), tuple(walked.values())
        )
        return self._bind(
            lax.gather_p, atom, indices, dimension_numbers=numbers, fill_value=None, mode=GatherScatterMode.CLIP,
            slice_sizes=tuple([along.size for along in reading]), indices_are_sorted=False, unique_indices=False,
        )  # fmt: skip

    def _filled(self, value: Any) -> Any:
        """The value where the windows lie inside, the fill elsewhere."""
        if self.fill is None:
            return value
        inside = None
        for column, dim, most in zip(self.columns, self.windows.starts, self.windows.most, strict=True):
            dtype = column.aval.dtype
            if self.reading[dim].column is None:
                continue
            tests = [self._bind(lax.le_p, column, _bound(most, 0, dtype))]
            if dtype.kind == "i":
                tests.append(self._bind(lax.ge_p, column, _literal(0, dtype)))
            for test in tests:
                inside = test if inside is None else self._bind(lax.and_p, inside, test)
        if inside is None:
            return value
        inside = self._bind(lax.squeeze_p, inside, dimensions=(inside.aval.ndim - 1,))
        fill = _literal(self.fill, self.out.dtype)
        return self._bind(
            lax.select_n_p,
            self._viewed(inside, self.out.shape, self.windows.batch),
            self._viewed(fill, self.out.shape, ()),
            value,
        )

    def _spread(self, value: Any, shape: tuple[int, ...]) -> Any:
        if value.aval.shape == shape:
            return value
        return self._viewed(value, shape, tuple(range(value.aval.ndim)))

    def _viewed(self, value: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
        return self._bind(lax.broadcast_in_dim_p, value, shape=shape, broadcast_dimensions=dims, sharding=None)

    def _bind(self, primitive: Any, *operands: Any, **params: Any) -> Any:
        return self.builder.bind(primitive, *operands, **params)[0]


def unit_pairs(equation: JaxprEqn) -> list[tuple[int, int]] | None:
    """Corresponding dimensions of a reshape that only adds or drops dimensions of extent 1, or None."""
    operand, out = equation.invars[0], equation.outvars[0].aval
    if isinstance(operand, Literal) or operand.aval.dtype != out.dtype or not out.size:
        return None
    pairs = matched(operand.aval.shape, out.shape)
    old, new = {old for old, _ in pairs}, {new for _, new in pairs}
    extents = [n for d, n in enumerate(operand.aval.shape) if d not in old]
    extents += [n for d, n in enumerate(out.shape) if d not in new]
    return pairs if all(n == 1 for n in extents) else None


def _stretched(operand: Any, shape: Sequence[int], reading: Reading) -> Reading:
    """How an elementwise operand is read: extents of 1 do not move where the others do."""
    if not operand.aval.shape:
        return ()
    pairs = zip(reading, operand.aval.shape, shape, strict=True)
    return tuple([along if own == extent else THIN for along, own, extent in pairs])


def _long_run(reading: Reading) -> int | None:
    """How many elements are read side by side, of which enough are a row; None: no index moves the array."""
    if all(along.column is None for along in reading):
        return None
    return reading[-1].size if reading[-1].column is None else 1


def _bound(size: int, rest: int, dtype: np.dtype) -> Literal:
    """The integer that a size of the program is, with ``rest``, or the most that its dtype holds."""
    value, most = size + rest, int(np.iinfo(dtype).max)
    return Literal(min(value, most), runtime.ShapedArray((), dtype))


def _literal(value: Any, dtype: Any) -> Literal:
    dtype = np.dtype(dtype)
    return Literal(np.asarray(value, dtype)[()], runtime.ShapedArray((), dtype))
