"""Lowers a loop over arrays with common first dimensions to a routine for one element, run in vector lanes.

    c:f32[n] = c * 0.5 + 1, ten times      ->      routine in lanes: a few vectors of c at a time, ten times

The number of elements is a parameter, so that one routine works for every n. The state of a few lanes stays in
registers until the loop ends. Dimensions after the common ones belong to one lane; their sizes are part of the routine,
as in other routines. ``TooLarge`` is raised if a lane needs values of another lane, or if it does not pay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core import kinds
from weft.core.index_maps import CONSTANT, Affine, IndexMap, Piece, Region
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.loops import routine, small
from weft.loops.small import Flatten, Lowered, Lowering, TooLarge

MOST_OF_A_LANE = 32  # elements of one value in a lane
MOST_WORK = 1200  # estimated instructions of one lane
MOST_LANES = 4096  # for more, rows begin on different pages, and several threads are faster
MOST_AT_ONCE = 32000  # instructions of all lanes, if there are over 256 (tanh of 1000: 84 us, 50 on two threads)
MOST_OF_ROWS = 256000  # the same if lanes have rows, of which kernels make many steps (Lorenz of 1000: 54 us, 156)
MOST_GENERATED = 1 << 16  # elements of a generated array that are inspected
FEW = 64  # instructions common to all lanes that may be repeated for each tile

ByElement = Callable[[ClosedJaxpr], bool]


def lower_loop(
    parts: kinds.LoopParts,
    atoms: Sequence[Any],
    flatten: Flatten,
    name: str,
    by_element: ByElement,
    mask: ClosedJaxpr | None = None,
) -> Lowered | None:
    """The routine in lanes of a loop, along as many dimensions as possible; None if there is none.

    ``by_element`` tells whether a condition is that of a mapped loop: the loop continues while any element does, and
    leaves the others unchanged. ``mask`` is the condition of an element of another loop that does so (or None).
    """
    for shared in _shared(parts):
        try:
            return _Lanes(shared, flatten, by_element, (parts.cond, mask)).lowered(parts, atoms, name)
        except TooLarge:
            continue
    return None


def _shared(parts: kinds.LoopParts) -> list[tuple[int, ...]]:
    """The candidates for the shared first dimensions, longest first."""
    shape = max([aval.shape for aval in parts.body.out_avals], key=len, default=())
    counts = range(len(shape), 0, -1)
    return [shape[:count] for count in counts if 0 < math.prod(shape[:count]) <= MOST_LANES]


class _Lanes(Lowering):
    """Lowers the program of one lane: arrays whose shape begins with ``shared`` lose these dimensions."""

    def __init__(
        self,
        shared: tuple[int, ...],
        flatten: Flatten,
        by_element: ByElement,
        masked: tuple[ClosedJaxpr | None, ClosedJaxpr | None],
    ) -> None:
        super().__init__(flatten)
        self.shared, self.by_element, self.masked = shared, by_element, masked
        self.rules = RULES
        self.for_all = 0.0  # instructions on values common to all lanes
        self.spreads: dict[int, int] = {}
        # where the lanes' dimensions begin in variables of which they are not the first
        self.later: dict[Any, int] = {}
        self.extent(math.prod(shared))

    def own(self, aval: Any) -> bool:
        """Whether the value differs between lanes."""
        return aval.shape[: len(self.shared)] == self.shared

    def first(self, atom: Any) -> int | None:
        """Where the lanes' dimensions begin in a value of the program; None if it is common to all lanes."""
        found = None if isinstance(atom, Literal) else self.later.get(atom)
        return found if found is not None else 0 if self.own(atom.aval) else None

    def begins(self, variable: Any, at: int | None) -> None:
        """The lanes' dimensions of a new variable begin there."""
        if at:
            self.later[variable] = at

    def without(self, shape: Sequence[int], at: int | None) -> tuple[int, ...]:
        """A shape without the lanes' dimensions, which begin at ``at``."""
        return tuple(shape) if at is None else (*shape[:at], *shape[at + len(self.shared) :])

    def inner_shape(self, atom: Any) -> tuple[int, ...]:
        return self.without(atom.aval.shape, self.first(atom))

    def equation(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[int]:
        moved = any(not isinstance(atom, Literal) and atom in self.later for atom in equation.invars)
        if moved and type(equation.primitive.kind) not in self.rules:
            raise TooLarge("lanes are not the first dimension where they are sliced, or enter control flow")
        return super().equation(equation, operands)

    def result(self, atom: Any, env: dict[Any, Any]) -> Any:
        if not isinstance(atom, Literal) and atom in self.later:
            raise TooLarge("lanes are not the first dimension of a result")
        return super().result(atom, env)

    def shape_of(self, aval: Any) -> tuple[int, ...]:
        return aval.shape[len(self.shared) :] if self.own(aval) else aval.shape

    def size_of(self, aval: Any) -> int:
        return math.prod(self.shape_of(aval))

    def pieces(self, size: int) -> int:
        return size

    def value(self, dtype: Any, size: int, depth: int, most: int = small.LARGEST) -> int:
        if size > MOST_OF_A_LANE:
            raise TooLarge(f"a value of {size} elements in each lane")
        return super().value(dtype, size, depth, most)

    def append(self, statement: Any, depth: int) -> None:
        if isinstance(statement, routine.Map | routine.Fold | routine.Pick | routine.Spread):
            self.mark(statement)
        elif isinstance(statement, routine.Read) and self.operands[statement.operand].lanes:
            self.differs(statement.out)
        super().append(statement, depth)

    def mark(self, statement: Any) -> None:
        """Record which results differ between lanes: those with an operand that does."""
        if isinstance(statement, routine.Pick):
            args = [value for value, _ in statement.sources]
        else:
            args = [] if isinstance(statement, routine.Spread) else statement.args
        if not args or any(self.types[n].lanes for n in args):
            for out in statement.outs if isinstance(statement, routine.Fold) else (statement.out,):
                self.differs(out)

    def differs(self, value: int) -> None:
        self.types[value] = self.types[value].replace(lanes=True)

    def variable(self, aval: Any, depth: int) -> int:
        made = super().variable(aval, depth)
        if self.own(aval):
            self.differs(made)
        return made

    def brought(self, array: np.ndarray) -> int:
        """A constant of the program, or its part in one lane, which must be that of every lane."""
        if array.shape[: len(self.shared)] != self.shared:
            return self.constant(array)
        each = np.ascontiguousarray(array).reshape(math.prod(self.shared), -1)
        if any(row.tobytes() != each[0].tobytes() for row in each):
            raise TooLarge("lanes have different constants")
        return self.constant(each[0])

    def matched(self, values: Sequence[int], avals: Sequence[Any]) -> list[int]:
        return [self.spread(v) if self.own(aval) else v for v, aval in zip(values, avals, strict=True)]

    def spread(self, value: int) -> int:
        """A value common to all lanes, broadcast to each of them."""
        if self.types[value].lanes:
            return value
        made = self.spreads.get(value)
        if made is None:
            kind, depth = self.types[value], self.depth_of([value])
            made = self.value(kind.dtype, kind.size, depth)
            if not self.floors[-1]:  # otherwise it is in a block that may not run
                self.spreads[value] = made
            self.append(routine.Spread(made, value), depth)
        return made

    def pick(self, dtype: Any, sources: Sequence[tuple[int, int]]) -> int:
        if any(self.types[value].lanes for value, _ in sources):
            sources = [(self.spread(value), element) for value, element in sources]
        return super().pick(dtype, sources)

    def operand(self, aval: Any, role: Any, rows: bool) -> int:
        number = super().operand(aval, role, rows)
        if rows or role == "out":
            self.of_each(number, aval)
        return number

    def of_each(self, operand: int, aval: Any) -> None:
        self.operands[operand] = self.operands[operand].replace(lanes=self.own(aval))

    def in_registers(self, value: Any) -> int:
        if isinstance(value, small.Memory):  # an array that is only sliced may merely happen to have this extent
            self.of_each(value.operand, value.aval)
        return super().in_registers(value)

    def loop_routine(self, parts: kinds.LoopParts, atoms: Sequence[Any], name: str) -> routine.Routine:
        made = super().loop_routine(parts, atoms, name)
        if self.work > MOST_WORK or self.for_all > max(FEW, self.work - self.for_all):
            raise TooLarge("too much of it is common to all lanes")
        lanes = math.prod(self.shared)
        rows = any(kind.lanes and kind.size > 1 for kind in self.types)
        if lanes > small.LARGEST and self.work * lanes > (MOST_OF_ROWS if rows else MOST_AT_ONCE):
            raise TooLarge("it is large enough for several threads")
        return made.replace(scalar=False, lanes=True)

    def test(self, parts: kinds.LoopParts) -> tuple[ClosedJaxpr, bool]:
        cond = parts.cond
        (of, mask), self.masked = self.masked, (None, None)  # a loop inside with an equal condition is not proved
        if mask is not None and cond is of:
            if mask.out_avals[0].shape != self.shared:
                raise TooLarge("a condition on more than a lane")
            return mask, True
        if not self.by_element(cond):
            return cond, False
        flat = self.flatten(cond)
        (goes_on,) = flat.jaxpr.outvars
        any_of = next((equation for equation in flat.jaxpr.eqns if goes_on in equation.outvars), None)
        kind = any_of.primitive.kind if any_of is not None else None
        along = list(range(len(self.shared)))
        if any_of is not None and isinstance(kind, kinds.Reduction):
            of_all = sorted(kind.axes(any_of.params)) == along
        else:  # in one lane there is nothing to combine
            of_all = isinstance(kind, kinds.View | kinds.Reshape) and math.prod(self.shared) == 1
        if any_of is None or not of_all or not self.own(any_of.invars[0].aval):
            raise TooLarge("a condition on more than a lane")
        jaxpr = flat.jaxpr
        each = type(jaxpr)(jaxpr.constvars, jaxpr.invars, any_of.invars, [e for e in jaxpr.eqns if e is not any_of])
        return ClosedJaxpr(each, flat.consts), True

    def slice(self, equation: JaxprEqn, operands: list[Any]) -> int:
        if not isinstance(operands[0], small.Memory) or self.own(equation.outvars[0].aval):
            raise TooLarge("a slice whose start differs between lanes")
        return super().slice(equation, operands)

    def gather(self, equation: JaxprEqn, operands: list[Any]) -> int:
        raise TooLarge("a gather in each lane")


# the program of one lane


def _elementwise(low: _Lanes, equation: JaxprEqn, kind: kinds.Elementwise, args: list[int]) -> Sequence[int]:
    out = equation.outvars[0].aval
    found = {low.first(atom) for atom in equation.invars if atom.aval.shape} - {None}
    if len(found) > 1:
        raise TooLarge("lanes meet others along another dimension")
    at = found.pop() if found else 0 if low.own(out) else None
    low.begins(equation.outvars[0], at)
    shape = low.without(out.shape, at)
    stretched = []
    for arg, atom in zip(args, equation.invars, strict=True):
        given = low.inner_shape(atom)
        if at is not None and given and low.first(atom) is None:
            if any(extent != 1 for extent in given[at : at + len(low.shared)]):
                raise TooLarge("lanes are combined with an array that is not in lanes")
            given = low.without(given, at)
        stretched.append(low.stretched(arg, given, shape))
    if any(low.types[arg].lanes for arg in stretched):
        stretched = [low.spread(arg) for arg in stretched]
    depth = low.depth_of(stretched)
    made = low.value(out.dtype, math.prod(shape), depth)
    params = tuple(sorted(equation.params.items()))
    low.append(routine.Map(made, equation.primitive.name, kind, params, tuple(stretched)), depth)
    low.guard(equation, stretched, math.prod(shape))
    low.work += kind.cost * math.prod(shape)
    low.for_all += 0.0 if at is not None else kind.cost * math.prod(shape)
    return [made]


def _inner(low: _Lanes, index_map: IndexMap, at: int | None, out_at: int | None) -> IndexMap:
    """The index map of one lane; the lanes' dimensions begin at ``at`` in the operand, at ``out_at`` in the result."""
    count = len(low.shared)
    if at is not None:
        if out_at is None or index_map[at : at + count] != tuple([Affine(out_at + k) for k in range(count)]):
            raise TooLarge("lanes change places")
        index_map = index_map[:at] + index_map[at + count :]
    if out_at is None:
        return index_map
    if any(out_at <= use.axis < out_at + count for use in index_map):
        raise TooLarge("lanes take different elements")
    axes = [use.axis - count if use.axis >= out_at else use.axis for use in index_map]
    return tuple([
        use if use.axis == CONSTANT else Affine(axis, use.start, use.step)
        for use, axis in zip(index_map, axes, strict=True)
    ])  # fmt: skip


def _out_at(low: _Lanes, index_map: IndexMap, at: int | None, out: Any, otherwise: int | None) -> int | None:
    """Where the lanes' dimensions begin in a result, if they are in the operand of this map."""
    if at is None:
        return otherwise
    axis = index_map[at].axis
    if axis == CONSTANT or out.shape[axis : axis + len(low.shared)] != low.shared:
        raise TooLarge("lanes are not a dimension of the result")
    return axis


def _view(low: _Lanes, equation: JaxprEqn, kind: kinds.View, args: list[int]) -> Sequence[int]:
    operand, out = equation.invars[0].aval, equation.outvars[0].aval
    at, index_map = low.first(equation.invars[0]), kind.index_map(operand, out, equation.params)
    out_at = _out_at(low, index_map, at, out, 0 if low.own(out) else None)
    low.begins(equation.outvars[0], out_at)
    inner = _inner(low, index_map, at, out_at)
    return [
        low.reordered(args[0], small.view_places(inner, low.without(operand.shape, at), low.without(out.shape, out_at)))
    ]


def _reshape(low: _Lanes, equation: JaxprEqn, kind: kinds.Reshape, args: list[int]) -> Sequence[int]:
    operand, out = equation.invars[0].aval, equation.outvars[0].aval
    at, count = low.first(equation.invars[0]), len(low.shared)
    if operand.dtype != out.dtype or (at is None and low.own(out)):
        raise TooLarge("lanes are not a dimension of the result")
    if at is not None:
        before = math.prod(operand.shape[:at])
        places = [
            k for k in range(out.ndim) if math.prod(out.shape[:k]) == before and out.shape[k : k + count] == low.shared
        ]
        if not places:
            raise TooLarge("lanes are not a dimension of the result")
        low.begins(equation.outvars[0], places[0])
    return args


def _assemble(low: _Lanes, equation: JaxprEqn, kind: kinds.Assemble, args: list[int]) -> Sequence[int]:
    out, count = equation.outvars[0].aval, len(low.shared)
    at = [low.first(atom) if atom.aval.shape else None for atom in equation.invars]
    given = list(kind.pieces([atom.aval for atom in equation.invars], out, equation.params))
    out_at = 0 if low.own(out) else None
    for piece in given:
        out_at = _out_at(low, piece.index_map, at[piece.operand], out, out_at)
    low.begins(equation.outvars[0], out_at)
    pieces = []
    for piece in given:
        region, index_map = piece.region, piece.index_map if equation.invars[piece.operand].aval.shape else ()
        if out_at is not None:
            if Region(*[sizes[out_at : out_at + count] for sizes in region]) != Region.box((0,) * count, low.shared):
                raise TooLarge("a part of the lanes")
            region = Region(*[low.without(sizes, out_at) for sizes in region])
        pieces.append(Piece(piece.operand, region, _inner(low, index_map, at[piece.operand], out_at)))
    shapes = [low.inner_shape(atom) for atom in equation.invars]
    return [small.assembled(low, out.dtype, low.without(out.shape, out_at), pieces, shapes, args)]


def _generate(low: _Lanes, equation: JaxprEqn, kind: kinds.Generate, args: list[int]) -> Sequence[int]:
    out = equation.outvars[0].aval
    if out.size > MOST_GENERATED:
        raise TooLarge(f"{out.size} elements are made")
    return [low.brought(np.asarray(kind.reference(**equation.params)))]


def _reduction(low: _Lanes, equation: JaxprEqn, kind: kinds.Reduction, args: list[int]) -> Sequence[int]:
    (at, *others), count = [low.first(atom) for atom in equation.invars], len(low.shared)
    axes, whole = sorted(kind.axes(equation.params)), equation.invars[0].aval.shape
    over_lanes = at is not None and any(at <= axis < at + count for axis in axes)
    if kind.operands is not None or not axes or over_lanes or 0 in whole or any(other != at for other in others):
        raise TooLarge("a reduction over lanes, with initial values, or of no elements")
    if at is not None:
        for out in equation.outvars:
            low.begins(out, at - sum(axis < at for axis in axes))
        axes = [axis - count if axis >= at else axis for axis in axes]
    return small.fold(low, equation, kind, args, axes, low.without(whole, at))


def _identity(low: _Lanes, equation: JaxprEqn, kind: kinds.Identity, args: list[int]) -> Sequence[int]:
    for atom, out in zip(equation.invars, equation.outvars, strict=True):
        low.begins(out, low.first(atom))
    return small.RULES[kinds.Identity](low, equation, kind, args)


RULES: dict[type, Any] = {
    kinds.Elementwise: _elementwise,
    kinds.View: _view,
    kinds.Reshape: _reshape,
    kinds.Assemble: _assemble,
    kinds.Generate: _generate,
    kinds.Reduction: _reduction,
    kinds.Identity: _identity,
}
