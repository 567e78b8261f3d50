"""Index-set splitting: elementwise results on arrays assembled from boxes of one array are computed by regions.

    b = concatenate a[-1:] a[:-1] (a roll); c = add a b   ->   c = concatenate (a[:1] + a[-1:]) (a[1:] + a[:-1])
    b = pad x 0.0 (1, 0, 0); c = add a b                  ->   c = concatenate (a[:1] + 0.0) (a[1:] + x)

Such an array is not stored: in each region between the ends of its pieces it is a slice of its source. A result of
several such arrays is assembled from the regions between all of their ends. Regions are disjoint, so that nothing is
computed twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft import operations as lax
from weft._base.record import NamedTuple
from weft.compiler import windows
from weft.core import index_maps, kinds, rewrite
from weft.core.index_maps import Affine, Piece, Region
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.rewrite import Index, Makers
from weft.errors import InternalError

LEAST_SIZE = 1 << 14  # for smaller arrays, fewer kernels are faster
MOST_REGIONS = 27
MOST_EQUATIONS = 512  # of all regions of a result
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
    known = rewrite.index(closed.jaxpr)
    found, equations = _moved_arrays(known), known.eqns
    if not found:
        return closed
    simple = {out: e for e in equations if isinstance(e.primitive.kind, kinds.Elementwise) for out in e.outvars
              if len(e.outvars) == 1 and all(v.aval.shape in ((), out.aval.shape) for v in e.invars)}  # fmt: skip
    inner, sizes = _inner(equations, simple, found, closed.jaxpr.outvars)
    regions = _Regions(found, inner)
    result: list[Any] = []
    for equation in equations:
        out = equation.outvars[0] if equation.outvars else None
        ends = out in simple and out not in inner and sizes[out] <= MOST_INNER
        made = regions.assembled(equation) if ends else None
        result += [equation] if made is None else made
    return closed if len(result) == len(equations) else rewrite.with_equations(closed, result)


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
        self.made: list[Any] = []

    def assembled(self, equation: JaxprEqn) -> list[Any] | None:
        """Equations for its result; None where none of its values is in pieces, or the regions are too many."""
        shape = equation.outvars[0].aval.shape
        cuts = self._cuts_of(equation)
        size, counts = math.prod(shape), Counter([dim for dim, _ in cuts])
        if not cuts or size < LEAST_SIZE or math.prod([1 + count for count in counts.values()]) > MOST_REGIONS:
            return None
        regions = index_maps.split(shape, cuts)
        if max([math.prod(region.extent) for region in regions]) < LEAST_SHARE * size:
            return None
        self.made, self.known = [], {}
        parts = [self._computed(equation, region) for region in regions]
        for dim in reversed(range(len(shape))):
            step = 1 + counts[dim]
            parts = [self._joined(equation, parts[i : i + step], dim) for i in range(0, len(parts), step)]
        if len(self.made) > MOST_EQUATIONS:
            return None
        return [*self.made[:-1], self.made[-1].replace(outvars=equation.outvars)]

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

    def _joined(self, equation: Any, parts: Sequence[Any], dim: int) -> Any:
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].aval.shape)
        shape[dim] = sum([part.aval.shape[dim] for part in parts])
        return self._made(equation, parts, lax.concatenate_p, {"dimension": dim}, shape)

    def _computed(self, equation: JaxprEqn, region: Region) -> Any:
        operands = [v if type(v) is Literal else self._read(v, region, equation) for v in equation.invars]
        return self._made(equation, operands, equation.primitive, equation.params, region.extent)

    def _read(self, variable: Any, region: Region, reader: Any) -> Any:
        if not variable.aval.shape:
            return variable
        if variable in self.moved:
            source, pieces, fill = self.moved[variable]
            found = index_maps.piece_of(pieces, region.index_map(), dict(enumerate(region.extent)))
            if found is None:
                raise InternalError("a region across pieces", stage="index_set_splitting", node=str(reader))
            if fill is not None and found[0].fill:
                given = {"shape": region.extent, "broadcast_dimensions": (), "sharding": None}
                return self._made(reader, [fill], lax.broadcast_in_dim_p, given, region.extent)
            start = tuple([use.start for use in found[1]])
            return self._read(source, region._replace(start=start), reader)
        value = self.known.get((variable, region))
        if value is None:
            if variable in self.inner:
                value = self._computed(self.inner[variable], region)
            else:
                params = {"start_indices": region.start, "limit_indices": region.stop, "strides": None}
                value = self._made(reader, [variable], lax.slice_p, params, region.extent)
            self.known[variable, region] = value
        return value

    def _made(self, like: Any, operands: Sequence[Any], primitive: Any, params: Any, shape: Sequence[int]) -> Any:
        dtype_of = operands[0] if isinstance(primitive.kind, (kinds.View, kinds.Assemble)) else like.outvars[0]
        out = Var(dtype_of.aval.update(shape=tuple(shape)))
        self.made.append(JaxprEqn(list(operands), [out], primitive, params, source=like.source))
        return out
