"""Index-set splitting: elementwise results on arrays assembled from boxes of one array are computed by regions.

    b = concatenate a[-1:] a[:-1] (a roll); c = add a b   ->   c = concatenate (a[:1] + a[-1:]) (a[1:] + a[:-1])
    b = pad x 0.0 (1, 0, 0); c = add a b                  ->   c = concatenate (a[:1] + 0.0) (a[1:] + x)

Such an array is not stored: in each region between the ends of its pieces it is a slice of its source. A result of
several such arrays is assembled from the regions between all of their ends. Regions are disjoint, so that nothing is
computed twice.

Sums of many arrays, padded with zeros around disjoint regions, are put together at once: every element is one value
plus zeros. The gradient of x[0], x[1], ... is such a sum, whose cost would be quadratic in their number.

    b = pad x 0.0 (0, 1, 0); c = pad y 0.0 (1, 0, 0); d = add_any b c   ->   d = concatenate (x + 0.0) (y + 0.0)
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler.fusion import windows
from weft.compiler.passes import algebra
from weft.core import index_maps, kinds
from weft.core.index_maps import Affine, Piece, Region
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.programs.rewrite import Builder, Index, Makers, Splicer
from weft.errors import InternalError
from weft.operations.data_movement import views

LEAST_SIZE = 1 << 14  # for smaller arrays, fewer kernels are faster
MOST_REGIONS = 27
MOST_EQUATIONS = 512  # equations of all regions of a result
MOST_INNER = 128  # inlined equations of a result; the recursion would be too deep for more
MOST_NESTED = 16  # pieces of an array in pieces
LEAST_SHARE = 0.75  # least share of the elements in the largest region
CHEAP = 2.0  # cost of an operation that may be computed again for each array that its result is padded to


class Moved(NamedTuple):
    """An array whose pieces are boxes of another array: of its shape, or padded with a number."""

    source: Var
    pieces: tuple[Piece, ...]
    fill: Any = None  # the number


def index_set_splitting(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such results assembled."""
    closed = _sums_joined(closed)
    known = rewrite.index(closed.jaxpr)
    found = _moved_arrays(known)
    if not found:
        return closed
    simple = {out: e for e in known.eqns if isinstance(e.primitive.kind, kinds.Elementwise) for out in e.outvars
              if len(e.outvars) == 1 and all(v.aval.shape in ((), out.aval.shape) for v in e.invars)}  # fmt: skip
    inner, sizes = _inner(known.eqns, simple, found, closed.jaxpr.outvars)
    regions = _Regions(found, inner)

    def rule(equation: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        out = equation.outvars[0]
        ends = out in simple and out not in inner and sizes[out] <= MOST_INNER
        made = regions.assembled(simple[out]) if ends else None
        return None if made is None else _emitted(splicer, regions.builder, equation)

    return Splicer(closed, rule, (kinds.Elementwise,)).run()


def _emitted(splicer: Splicer, builder: Builder, equation: JaxprEqn) -> Sequence[Atom]:
    """The equations of a builder, the last under the name of a result, which regions of others may read."""
    for each in builder.eqns[:-1]:
        splicer.emit(each)
    return splicer.emit(builder.eqns[-1].replace(outvars=equation.outvars))


# sums of disjoint regions


class _Sum:
    """Arrays padded with one number, with disjoint regions along one dimension, in order."""

    def __init__(self, dim: int, fill: Literal, start: int, stop: int, atom: Any) -> None:
        self.dim, self.fill, self.rows = dim, fill, [(start, stop, atom)]

    def take(self, other: _Sum) -> bool:
        """Add another sum's regions; False, with no change, if they overlap."""
        if self.dim != other.dim or not all(self._is_free(start, stop) for start, stop, _ in other.rows):
            return False
        for row in other.rows:
            self.rows.insert(self._position(row[0]), row)
        return True

    def _position(self, start: int) -> int:
        return bisect.bisect_left(self.rows, start, key=lambda row: row[0])

    def _is_free(self, start: int, stop: int) -> bool:
        position = self._position(start)
        before = position == 0 or self.rows[position - 1][1] <= start
        return before and (position == len(self.rows) or stop <= self.rows[position][0])


def _sums_joined(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such sums as concatenations."""
    known = rewrite.index(closed.jaxpr)
    if sum([isinstance(equation.primitive.kind, kinds.Assemble) for equation in known.eqns]) < 2:
        return closed
    sums: dict[Any, _Sum] = {}  # variable -> the sum that it is
    ends: dict[Any, _Sum] = {}  # those of more than one region
    for equation in known.eqns:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Assemble) and (found := _region_of(equation)) is not None:
            sums[equation.outvars[0]] = found
        elif isinstance(kind, kinds.Elementwise) and len(equation.invars) == 2:
            left, right = (
                None if isinstance(v, Literal) or known.uses[v] != 1 else sums.get(v) for v in equation.invars
            )
            if left is None or right is None or left is right:
                continue
            if not all(algebra.is_identity(kind, x.fill) for x in (left, right)):
                continue
            if equation.outvars[0].aval.dtype != left.fill.aval.dtype:  # a product may be of another dtype
                continue
            if len(left.rows) < len(right.rows):
                left, right = right, left
            if left.take(right):
                for v in equation.invars:
                    ends.pop(v, None)
                sums[equation.outvars[0]] = ends[equation.outvars[0]] = left

    def rule(equation: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        found = ends.get(equation.outvars[0])
        return None if found is None else _emitted(splicer, _concatenated(found, equation), equation)

    return Splicer(closed, rule, (kinds.Elementwise,)).run()


def _region_of(equation: JaxprEqn) -> _Sum | None:
    """A pad by a number along one dimension."""
    out = equation.outvars[0].aval
    pieces = equation.primitive.kind.pieces([v.aval for v in equation.invars], out, equation.params)
    found = _padded(equation, pieces) if len(pieces) == 2 and pieces[0].fill else None
    if found is None or not isinstance(found.fill, Literal) or not found.source.aval.size:
        return None
    region = found.pieces[1].region
    cut = [dim for dim, extent in enumerate(region.extent) if extent != out.shape[dim]]
    if len(cut) != 1 or region.extent != found.source.aval.shape:
        return None
    return _Sum(cut[0], found.fill, region.start[cut[0]], region.stop[cut[0]], found.source)


def _concatenated(found: _Sum, equation: JaxprEqn) -> Builder:
    """The sum's regions plus zero, and zeros between them."""
    out, kind, parts, end = equation.outvars[0].aval, equation.primitive.kind, list[Atom](), 0
    builder = Builder()
    builder.source = equation.source
    assert isinstance(kind, kinds.Elementwise)
    for start, stop, atom in [*found.rows, (out.shape[found.dim], 0, None)]:
        if start > end:
            shape = (*out.shape[: found.dim], start - end, *out.shape[found.dim + 1 :])
            parts.append(views.broadcast(builder.bind, found.fill, shape))
        if atom is not None:  # -0.0 and the others' zeros are +0.0
            same = algebra.changes_nothing(kind, found.fill)
            parts.append(atom if same else builder.bind(equation.primitive, atom, found.fill, **equation.params)[0])
        end = stop
    views.concatenate(builder.bind, parts, found.dim)
    return builder


# arrays in pieces


def _moved_arrays(known: Index) -> dict[Any, Moved]:
    """Such arrays, where elementwise equations read one."""
    found: dict[Any, Moved] = {}
    depth: Counter[Any] = Counter()  # nesting of assembled arrays
    for equation in known.eqns:
        moved = _moved(equation, known.makers) if isinstance(equation.primitive.kind, kinds.Assemble) else None
        if moved is not None and depth[moved.source] < MOST_NESTED:
            found[equation.outvars[0]] = moved
            depth[equation.outvars[0]] = depth[moved.source] + 1
    elementwise = [e for e in known.eqns if isinstance(e.primitive.kind, kinds.Elementwise)]
    return found if any(v in found for e in elementwise for v in rewrite.variables(e.invars)) else {}


def _moved(equation: JaxprEqn, makers: Makers) -> Moved | None:
    out, found, sources = equation.outvars[0].aval, [], set()
    pieces = equation.primitive.kind.pieces([v.aval for v in equation.invars], out, equation.params)
    if len(pieces) == 2 and pieces[0].fill:
        return _padded(equation, pieces)
    for piece in pieces:
        maker = makers.of(equation.invars[piece.operand])
        if piece.fill or maker is None or not isinstance(maker.primitive.kind, kinds.View):
            return None
        source, view = maker.invars[0], maker.outvars[0].aval
        index_map = maker.primitive.kind.index_map(source.aval, view, maker.params)
        index_map = index_maps.compose(index_map, piece.index_map)
        if isinstance(source, Literal) or any(use != Affine(dim, use.start) for dim, use in enumerate(index_map)):
            return None
        sources.add(source)
        found.append(Piece(0, piece.region, index_map))
    if len(sources) != 1 or len(found) < 2 or not all(piece.region.is_dense for piece in found):
        return None
    if windows.are_short(out, found):  # read piece by piece at every point
        return None
    (source,) = sources
    return Moved(source, tuple(found)) if source.aval.shape == out.shape else None


def _padded(equation: JaxprEqn, pieces: Sequence[Piece]) -> Moved | None:
    """An array padded with a number."""
    fill, source = [equation.invars[piece.operand] for piece in pieces]
    whole = pieces[1].index_map == index_maps.identity(equation.outvars[0].aval.ndim)
    if fill.aval.shape or isinstance(source, Literal) or not whole or not pieces[1].region.is_dense:
        return None
    return Moved(source, tuple(pieces), fill)


def _inner(
    equations: Sequence[JaxprEqn], simple: dict[Any, Any], moved: dict[Any, Moved], outvars: Sequence[Any]
) -> tuple[dict[Any, Any], Counter[Any]]:
    """The elementwise equations whose readers are all elementwise and lead to one result; their number, per result.

    Cheap ones may be read through arrays that are padded.
    """
    again: set[Any] = set()  # what is computed for several padded arrays
    # variable -> the results it leads to
    ends: dict[Any, set[Any]] = {v: {v} for v in outvars if type(v) is not Literal}
    inner: dict[Any, Any] = {}
    sizes: Counter[Any] = Counter()
    for equation in reversed(equations):
        out = equation.outvars[0] if equation.outvars else None
        led = {out}
        one = len(ends.get(out, ())) == 1 and ends[out] != {out}
        padded = out in moved and moved[out].fill is not None and one
        if padded:
            led = ends[out]
        elif out in simple and one and (out not in again or equation.primitive.kind.cost <= CHEAP):
            inner[out], led = equation, ends[out]
            sizes.update(led)
        for v in equation.invars:
            if type(v) is not Literal:
                ends.setdefault(v, set()).update(led if out in simple or padded else {v})
                again.update([v] if padded or (out in again and out in inner) else [])
    return inner, sizes


class _Regions:
    """``inner``: equations that are inlined into their readers."""

    def __init__(self, moved: dict[Any, Moved], inner: dict[Any, Any]) -> None:
        self.moved, self.inner = moved, inner
        self.cuts: dict[Any, frozenset[tuple[int, int]]] = {}
        self.known: dict[Any, Any] = {}
        self.builder = Builder()

    def assembled(self, equation: JaxprEqn) -> Atom | None:
        """Its result, made by the builder; None where none of its values is in pieces, or the regions are too many."""
        shape = equation.outvars[0].aval.shape
        cuts = self._cuts_of(equation)
        size, counts = math.prod(shape), Counter([dim for dim, _ in cuts])
        if not cuts or size < LEAST_SIZE or math.prod([1 + count for count in counts.values()]) > MOST_REGIONS:
            return None
        regions = index_maps.split(shape, cuts)
        if max([math.prod(region.extent) for region in regions]) < LEAST_SHARE * size:
            return None
        self.builder, self.known = Builder(), {}
        parts = [self._computed(equation, region) for region in regions]
        for dim in reversed(range(len(shape))):
            step = 1 + counts[dim]
            rows = [parts[i : i + step] for i in range(0, len(parts), step)]
            parts = [views.concatenate(self.builder.bind, row, dim) for row in rows]
        return None if len(self.builder.eqns) > MOST_EQUATIONS else parts[0]

    def _cuts_of(self, equation: JaxprEqn) -> frozenset[tuple[int, int]]:
        return frozenset().union(*[self._cuts(v) for v in equation.invars if type(v) is not Literal])

    def _cuts(self, variable: Any) -> frozenset[tuple[int, int]]:
        """(dimension, position) of the ends of the regions in which a variable is read as one slice."""
        if variable not in self.cuts:
            found: frozenset[tuple[int, int]] = frozenset()
            if variable in self.moved:
                found = self._cuts_in(variable)
            elif variable in self.inner:
                found = self._cuts_of(self.inner[variable])
            self.cuts[variable] = found
        return self.cuts[variable]

    def _cuts_in(self, variable: Any) -> frozenset[tuple[int, int]]:
        """The ends of its pieces, and those of its source that are inside pieces."""
        source, pieces, _ = self.moved[variable]
        found: set[tuple[int, int]] = set()
        for piece in pieces:
            region, index_map = piece.region, piece.index_map
            found.update(enumerate(region.start), enumerate(region.stop))
            if piece.fill:
                continue
            inner = [(dim, at - index_map[dim].start + region.start[dim]) for dim, at in self._cuts(source)]
            found.update([(dim, at) for dim, at in inner if region.start[dim] < at < region.stop[dim]])
        return frozenset([(dim, at) for dim, at in found if 0 < at < variable.aval.shape[dim]])

    def _computed(self, equation: JaxprEqn, region: Region) -> Any:
        operands = [v if type(v) is Literal else self._read(v, region, equation) for v in equation.invars]
        self.builder.source = equation.source
        return self.builder.bind(equation.primitive, *operands, **equation.params)[0]

    def _read(self, variable: Any, region: Region, reader: Any) -> Any:
        if not variable.aval.shape:
            return variable
        if variable in self.moved:
            source, pieces, fill = self.moved[variable]
            found = index_maps.piece_of(pieces, region.index_map(), dict(enumerate(region.extent)))
            if found is None:
                raise InternalError("a region across pieces", stage="index_set_splitting", node=str(reader))
            if fill is not None and found[0].fill:
                return views.broadcast(self.builder.bind, fill, region.extent)
            start = tuple([use.start for use in found[1]])
            return self._read(source, region._replace(start=start), reader)
        value = self.known.get((variable, region))
        if value is None:
            if variable in self.inner:
                value = self._computed(self.inner[variable], region)
            else:
                value = views.slice(self.builder.bind, variable, region.start, region.stop)
            self.known[variable, region] = value
        return value
