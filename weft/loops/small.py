"""Lowers a loop with a small state to a routine: every array of its body becomes a value in registers.

In: the parts of a Loop equation, with calls inlined. Out: a ``Routine``. Its operands are, in order: the captures of
the condition, the captures of the body, the initial state, the inputs, the final state, the outputs. Loop invariants
are computed before the loop. ``TooLarge`` is raised if a value or the program is too large for registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.core import check_scopes, index_maps, kinds
from weft.core.index_maps import IndexMap, Piece
from weft.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal
from weft.loops import gathered, guards, indexed, routine
from weft.loops.known_places import known_places
from weft.loops.routine import Block, Type

LARGEST = 256  # elements of one value
LARGEST_IN_PLACE = 1024  # of one that is carried, sliced and updated, but not computed element for element
MOST_WORK = 2500  # estimated vector instructions of a routine
VECTOR = 16
LARGEST_SCALAR = 8  # values up to this size may have one register per element
SHUFFLE = 2.0  # instructions to move one element

Flatten = Callable[[ClosedJaxpr], ClosedJaxpr]


class TooLarge(Exception):
    """The reason why a program cannot be a routine."""


class Memory:
    """A captured array. Slices read it from memory; if it is used as a whole it is loaded once, into ``value``."""

    def __init__(self, operand: int, aval: Any) -> None:
        self.operand, self.aval = operand, aval
        self.value: int | None = None


class Lowered(Record):
    """A routine, the trip counts of its loops, the sizes it needs, and its scalar parameters."""

    routine: routine.Routine
    trips: tuple[int, ...]
    extents: tuple[int, ...]
    scalars: tuple[Any, ...]


def lower_loop(parts: kinds.LoopParts, atoms: Sequence[Any], flatten: Flatten, name: str) -> Lowered:
    """The routine of a loop on operands that are variables (its operands, in order) or literals."""
    return Lowering(flatten).lowered(parts, atoms, name)


class Lowering:
    """Builds statements, in nested blocks."""

    def __init__(self, flatten: Flatten) -> None:
        self.flatten = flatten
        self.rules = RULES
        self.types: list[Type] = []
        self.depths: list[int] = []  # for each value the depth of the block that defines it
        self.blocks: list[list[Any]] = [[]]
        self.floors: list[int] = [0]  # for each open block the outermost one into which its statements may be hoisted
        self.operands: list[routine.Operand] = []
        self.trips: list[int] = []
        self.extents: list[int] = []  # equal sizes are not merged: the routine must not depend on their values
        self.work = 0.0
        self.moved = 0  # elements that are shuffled
        self.single = 0.0  # instructions that vectors would save
        self.scalars: list[Any] = []
        self.guarded = False  # whether there are guards
        self.constants: dict[tuple[bytes, np.dtype], int] = {}

    # the whole

    def lowered(self, parts: kinds.LoopParts, atoms: Sequence[Any], name: str) -> Lowered:
        made = self.loop_routine(parts, atoms, name)
        return Lowered(made, tuple(self.trips), tuple(self.extents), tuple(self.scalars))

    def loop_routine(self, parts: kinds.LoopParts, atoms: Sequence[Any], name: str) -> routine.Routine:
        first = parts.n_cond_consts + parts.n_consts
        captured = [self.captured(atom) for atom in atoms[:first]]
        state = [self.in_registers(self.captured(atom)) for atom in atoms[first:][: parts.n_carry]]
        given = len(self.scalars)
        elements = parts.body.in_avals[parts.n_consts + parts.n_carry :]
        rows = [(self.operand(aval, "in", True), aval) for aval in elements]
        outs = [self.operand(aval, "out", False) for aval in parts.body.out_avals[: parts.n_carry]]
        ys = [self.operand(aval, "out", True) for aval in parts.body.out_avals[parts.n_carry :]]
        results = self.repeat(parts, captured, state, rows, ys)
        for operand, value in zip(outs, results, strict=True):
            self.append(routine.Write(operand, value, False), 0)
        if self.guarded:
            self.operands.append(routine.Operand(np.dtype(np.uint8), "out", 0))
        self.blocks[0], self.scalars = known_places(self.blocks[0], self.scalars, given)
        block = Block((), tuple(self.blocks[0]), ())
        if self.work > MOST_WORK:
            raise TooLarge(f"about {self.work:.0f} instructions")
        return routine.Routine(
            tuple(self.types), tuple(self.operands), len(self.trips), len(self.extents),
            tuple([np.dtype(scalar.dtype) for scalar in self.scalars]), block,
            self.is_scalar(), guarded=self.guarded, cost=max(self.work, 1.0), name=name,
        )  # fmt: skip

    def is_scalar(self) -> bool:
        """Whether moving elements between vectors would cost more than computing them one by one."""
        return max(kind.size for kind in self.types) <= LARGEST_SCALAR and self.single < SHUFFLE * self.moved

    def operand(self, aval: Any, role: Any, rows: bool) -> int:
        """Memory; ``aval`` is that of a row if there are rows."""
        self.operands.append(routine.Operand(np.dtype(aval.dtype), role, self.size_of(aval) if rows else 0))
        return len(self.operands) - 1

    def size_of(self, aval: Any) -> int:
        """Elements of a value."""
        return aval.size

    def captured(self, atom: Any) -> Any:
        """A value from outside the loop."""
        if isinstance(atom, Literal):
            return self.literal(atom)
        return Memory(self.operand(atom.aval, "in", False), atom.aval)

    # values and statements

    def value(self, dtype: Any, size: int, depth: int, most: int = LARGEST) -> int:
        if size > most or size == 0:
            raise TooLarge(f"a value of {size} elements")
        self.types.append(Type(np.dtype(dtype), size))
        self.depths.append(depth)
        return len(self.types) - 1

    def variable(self, aval: Any, depth: int) -> int:
        """A new value that control flow defines."""
        return self.value(aval.dtype, self.size_of(aval), depth, LARGEST_IN_PLACE)

    def matched(self, values: Sequence[int], avals: Sequence[Any]) -> list[int]:
        """Values that enter or leave control flow, in the form in which values of these types are held."""
        return list(values)

    def depth_of(self, args: Sequence[int]) -> int:
        """The depth to which a pure statement on these values is hoisted: as far out as its operands allow."""
        return max([self.floors[-1], *(self.depths[arg] for arg in args)])

    def append(self, statement: Any, depth: int) -> None:
        self.blocks[depth].append(statement)

    def guard(self, equation: JaxprEqn, args: Sequence[int], size: int) -> None:
        """Test an equation for integer overflow, if that is asked for."""
        test = guards.wraps_at(equation)
        if test is None or not check_scopes.wants_integers(equation):
            return
        depth, params = self.depth_of(args), tuple(sorted(equation.params.items()))
        made = self.value(np.bool_, size, depth)
        self.append(routine.Map(made, "wraps", test, params, tuple(args)), depth)
        self.append(routine.Guard(made), depth)
        self.guarded = True

    def guards_index(self, equation: JaxprEqn) -> bool:
        """Whether the starts of an equation are to be tested."""
        asked = "index" in check_scopes.wanted(equation)
        self.guarded = self.guarded or asked
        return asked

    def pieces(self, size: int) -> int:
        return -(-size // VECTOR)

    def read(self, operand: int, dtype: Any, size: int, depth: int, row: bool) -> int:
        out = self.value(dtype, size, depth, LARGEST if row else LARGEST_IN_PLACE)
        self.append(routine.Read(out, operand, row), depth)
        return out

    def extent(self, size: int) -> int:
        """The number of a parameter for a size."""
        self.extents.append(size)
        return len(self.extents) - 1

    def literal(self, atom: Literal) -> int:
        return self.constant(np.asarray(atom.val).astype(atom.aval.dtype).reshape(1))

    def constant(self, array: np.ndarray) -> int:
        """A value of known elements: a constant of the routine if there are several, else a parameter.

        Each integer is a parameter of its own, since two that are equal may be sizes that differ in the next call.
        """
        array = np.ascontiguousarray(array)
        key = (array.tobytes(), array.dtype)
        found = None if array.size == 1 and array.dtype.kind in "iu" else self.constants.get(key)
        if found is None:
            found = self.constants[key] = self.value(array.dtype, array.size, 0)
            if array.size == 1 and array.dtype.itemsize <= 8:
                self.blocks[0].insert(0, routine.Param(found, len(self.scalars)))
                self.scalars.append(array)
            else:
                self.blocks[0].insert(0, routine.Constant(found, array.tobytes()))
        return found

    def brought(self, array: np.ndarray) -> int:
        """An array that the program brings with it."""
        return self.constant(array)

    def pick(self, dtype: Any, sources: Sequence[tuple[int, int]]) -> int:
        values = {value for value, _ in sources}
        if len(values) == 1:
            (value,) = values
            if [element for _, element in sources] == list(range(self.types[value].size)):
                return value
        depth = self.depth_of(tuple(values))
        out = self.value(dtype, len(sources), depth)
        self.append(routine.Pick(out, tuple(sources)), depth)
        self.work += 2.0 * self.pieces(len(sources))
        self.moved += len(sources)
        return out

    def reordered(self, value: int, order: np.ndarray) -> int:
        """The value's elements at the given places."""
        return self.pick(self.types[value].dtype, [(value, int(k)) for k in order.ravel()])

    def stretched(self, value: int, shape: tuple[int, ...], out_shape: tuple[int, ...]) -> int:
        """The value repeated along dimensions of extent 1 to the result's shape; a single element is not changed."""
        if shape == out_shape or self.types[value].size == 1:
            return value
        return self.reordered(value, np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), out_shape))

    # programs

    def program(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[int]:
        """The values of a program's results."""
        flat = self.flatten(closed)
        jaxpr: Jaxpr = flat.jaxpr
        env: dict[Any, Any] = {}
        for v, const in zip(jaxpr.constvars, flat.consts, strict=True):
            env[v] = self.brought(np.asarray(const))
        env.update(zip(jaxpr.invars, args, strict=True))
        for equation in jaxpr.eqns:
            if equation.effects:
                raise TooLarge(f"{equation.primitive.name} has an effect")
            operands = [self.atom(atom, env) for atom in equation.invars]
            outs = self.equation(equation, operands)
            for v, out in zip(equation.outvars, outs, strict=True):
                if not isinstance(v, DropVar):
                    env[v] = out
        return [self.in_registers(self.result(atom, env)) for atom in jaxpr.outvars]

    def atom(self, atom: Any, env: dict[Any, Any]) -> Any:
        if isinstance(atom, Literal):
            return self.literal(atom)
        return env[atom]

    def result(self, atom: Any, env: dict[Any, Any]) -> Any:
        """The value of a program's result."""
        return self.atom(atom, env)

    def in_registers(self, value: Any) -> int:
        if not isinstance(value, Memory):
            return value
        size = self.size_of(value.aval)
        if size > LARGEST_IN_PLACE:
            raise TooLarge(f"an array of {size} elements is used as a whole")
        if value.value is None:
            value.value = self.read(value.operand, value.aval.dtype, size, 0, False)
        return value.value

    def equation(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[int]:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.DynamicSlice):
            return [self.slice(equation, operands)]
        if isinstance(kind, kinds.Gather):
            return [self.gather(equation, operands)]
        if isinstance(kind, kinds.Loop):
            return self.inner_loop(kind.parts(equation.params), operands)
        if isinstance(kind, kinds.Routine):  # a loop inside, which has become a routine already
            given = iter(operands)
            literals = [v if v is None else self.constant(v.reshape(-1)) for v in equation.params["literals"]]
            return self.inner_loop(equation.params["parts"], [next(given) if v is None else v for v in literals])
        if isinstance(kind, kinds.Branch):
            return self.branch(kind.branches(equation.params), operands)
        rule = self.rules.get(type(kind))
        if rule is None:
            raise TooLarge(f"{equation.primitive.name} has no form in registers")
        return rule(self, equation, kind, [self.in_registers(value) for value in operands])

    # control flow

    def block(self, run: Callable[[], Sequence[int]], floor: int) -> tuple[list[Any], Sequence[int]]:
        self.blocks.append([])
        self.floors.append(floor)
        results = run()
        self.floors.pop()
        return self.blocks.pop(), results

    def repeat(
        self, parts: kinds.LoopParts, captured: list[Any], state: list[int], rows: list[tuple[int, Any]], ys: list[int]
    ) -> list[int]:
        depth = len(self.blocks)
        floor = self.floors[-1]
        avals = parts.body.in_avals[parts.n_consts :][: parts.n_carry]
        state = self.matched(state, avals)
        arguments = [self.variable(aval, depth) for aval in avals]
        n_tested = parts.n_cond_consts
        cond = None
        by_element = False
        if parts.cond is not None:
            test, by_element = self.test(parts)
            statements, results = self.block(lambda: self.program(test, [*captured[:n_tested], *arguments]), floor)
            cond = Block(tuple(arguments), tuple(statements), tuple(results))
            arguments = [self.variable(aval, depth) for aval in avals]

        def body() -> Sequence[int]:
            inside = len(self.blocks) - 1
            elements = [self.read(operand, aval.dtype, self.size_of(aval), inside, True) for operand, aval in rows]
            results = self.program(parts.body, [*captured[n_tested:], *arguments, *elements])
            results = self.matched(results, parts.body.out_avals)
            for operand, value in zip(ys, results[parts.n_carry :], strict=True):
                self.append(routine.Write(operand, value, True), len(self.blocks) - 1)
            return results[: parts.n_carry]

        statements, results = self.block(body, floor)
        trips = None
        if parts.trips is not None:
            trips = len(self.trips)
            self.trips.append(parts.trips)
        outs = [self.variable(aval, depth - 1) for aval in avals]
        inner = Block(tuple(arguments), tuple(statements), tuple(results))
        repeat = routine.Repeat(tuple(outs), tuple(state), inner, cond, trips, parts.reverse, by_element)
        self.append(repeat, depth - 1)
        return outs

    def test(self, parts: kinds.LoopParts) -> tuple[ClosedJaxpr, bool]:
        """The condition to compute, and whether each lane has its own."""
        return parts.cond, False

    def inner_loop(self, parts: kinds.LoopParts, operands: list[Any]) -> list[int]:
        first = parts.n_cond_consts + parts.n_consts
        if len(operands) != first + parts.n_carry or len(parts.body.out_avals) != parts.n_carry:
            raise TooLarge("a loop over rows inside another")
        state = [self.in_registers(value) for value in operands[first:]]
        return self.repeat(parts, operands[:first], state, [], [])

    def branch(self, branches: Sequence[ClosedJaxpr], operands: list[Any]) -> list[int]:
        depth = len(self.blocks)
        blocks = []
        for closed in branches:
            statements, results = self.block(lambda closed=closed: self.way(closed, operands[1:]), depth)
            blocks.append(Block((), tuple(statements), tuple(results)))
        outs = [self.variable(aval, depth - 1) for aval in branches[0].out_avals]
        index = self.in_registers(operands[0])
        self.append(routine.Choose(tuple(outs), index, tuple(blocks)), depth - 1)
        return outs

    def way(self, closed: ClosedJaxpr, operands: Sequence[Any]) -> list[int]:
        """The results of a branch, with the types that all branches share."""
        return self.matched(self.program(closed, operands), closed.out_avals)

    # run-time starts

    def starts(self, starts: Sequence[int], shape: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        entries = zip(starts, shape, sizes, strides, strict=True)
        return tuple([(start, extent - size, stride) for start, extent, size, stride in entries if extent != size])

    def far_starts(self, starts: Sequence[int], shape: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
        """``starts`` for an array in memory: bounds and strides are parameters."""
        found = []
        for d, (start, extent, size) in enumerate(zip(starts, shape, sizes, strict=True)):
            if extent != size or size == 1:
                stride = self.extent(math.prod(shape[d + 1 :])) if d + 1 < len(shape) else None
                found.append((start, self.extent(extent - size), stride))
        return tuple(found)

    def slice(self, equation: JaxprEqn, operands: list[Any]) -> int:
        source, *given = operands
        out = equation.outvars[0].aval
        shape = equation.invars[0].aval.shape
        memory = isinstance(source, Memory)
        starts = (self.far_starts if memory else self.starts)([self.in_registers(v) for v in given], shape, out.shape)
        offsets = tuple(view_places(index_maps.identity(len(shape)), shape, out.shape).ravel().tolist())
        depth = self.depth_of([start for start, _, _ in starts] + ([] if memory else [source]))
        made = self.value(out.dtype, out.size, depth)
        self.work += 4.0 * self.pieces(out.size) + 4.0
        value, operand = (None, source.operand) if memory else (source, None)
        self.append(routine.Slice(made, value, operand, offsets, starts, self.guards_index(equation)), depth)
        return made

    def apply(self, name: str, kind: kinds.Elementwise, args: Sequence[int], dtype: Any, params: Any = ()) -> int:
        """The value of a function of values, of which those of one element are broadcast."""
        depth, size = self.depth_of(args), max(self.types[arg].size for arg in args)
        made = self.value(dtype, size, depth)
        self.append(routine.Map(made, name, kind, params, tuple(args)), depth)
        self.work += kind.cost * self.pieces(size)
        self.single += kind.cost * (size - self.pieces(size))
        return made

    def gather(self, equation: JaxprEqn, operands: list[Any]) -> int:
        """Elements at places that are computed; their indices are clamped."""
        out, kind = equation.outvars[0].aval, equation.primitive.kind
        if "index" in check_scopes.wanted(equation) or not gathered.is_small(equation):
            raise TooLarge(
                "a gather that is checked, of many elements, of windows larger than the array, or of a huge array"
            )
        index, source = self.in_registers(operands[1]), operands[0]
        place, inside = gathered.places(self, equation, index)
        value, operand = (None, source.operand) if isinstance(source, Memory) else (source, None)
        depth = self.depth_of([place] if value is None else [place, value])
        made = self.value(out.dtype, out.size, depth)
        self.append(routine.Take(made, value, operand, place), depth)
        self.work += 2.0 * out.size
        fill = kind.fill(out, equation.params)
        if fill is None or inside is None:
            return made
        filled = self.constant(np.asarray([fill]).astype(out.dtype))
        return self.apply("choose", indexed.CHOOSE, (inside, made, filled), out.dtype)


Rule = Callable[[Lowering, Any, Any, list[int]], Sequence[int]]


def _elementwise(low: Lowering, equation: JaxprEqn, kind: kinds.Elementwise, args: list[int]) -> Sequence[int]:
    out = equation.outvars[0].aval
    args = [low.stretched(arg, atom.aval.shape, out.shape) for arg, atom in zip(args, equation.invars, strict=True)]
    depth = low.depth_of(args)
    made = low.value(out.dtype, out.size, depth)
    params = tuple(sorted(equation.params.items()))
    low.append(routine.Map(made, equation.primitive.name, kind, params, tuple(args)), depth)
    low.guard(equation, args, out.size)
    low.work += kind.cost * low.pieces(out.size)
    low.single += kind.cost * (out.size - low.pieces(out.size))
    return [made]


def _view(low: Lowering, equation: JaxprEqn, kind: kinds.View, args: list[int]) -> Sequence[int]:
    operand, out = equation.invars[0].aval, equation.outvars[0].aval
    places = view_places(kind.index_map(operand, out, equation.params), operand.shape, out.shape)
    return [low.reordered(args[0], places)]


def view_places(index_map: IndexMap, shape: Sequence[int], out_shape: Sequence[int]) -> np.ndarray:
    """For every element of a view its position in the operand."""
    offset, strides = index_maps.as_strides(index_map, index_maps.strides_of(shape), len(out_shape))
    places = np.full(out_shape, offset, np.int64)
    for index, stride in zip(np.indices(out_shape, np.int64, sparse=True), strides, strict=True):
        places += index * stride
    return places


def _reshape(low: Lowering, equation: JaxprEqn, kind: kinds.Reshape, args: list[int]) -> Sequence[int]:
    if equation.invars[0].aval.dtype != equation.outvars[0].aval.dtype:
        raise TooLarge("bytes are read as another dtype")
    return args


def _assemble(low: Lowering, equation: JaxprEqn, kind: kinds.Assemble, args: list[int]) -> Sequence[int]:
    out = equation.outvars[0].aval
    avals = [atom.aval for atom in equation.invars]
    pieces = kind.pieces(avals, out, equation.params)
    return [assembled(low, out.dtype, out.shape, pieces, [aval.shape for aval in avals], args)]


def assembled(
    low: Lowering,
    dtype: Any,
    shape: tuple[int, ...],
    pieces: Sequence[Piece],
    shapes: Sequence[Any],
    args: Sequence[int],
) -> int:
    """An array from pieces of operands of these shapes."""
    source = np.zeros(shape, np.int64)
    element = np.zeros(shape, np.int64)
    for piece in pieces:
        extent, region = piece.region.extent, piece.region.slices
        if 0 not in extent:
            source[region] = args[piece.operand]
            element[region] = view_places(piece.index_map, shapes[piece.operand], extent)
    pairs = zip(source.ravel().tolist(), element.ravel().tolist(), strict=True)
    return low.pick(dtype, list(pairs))


def _generate(low: Lowering, equation: JaxprEqn, kind: kinds.Generate, args: list[int]) -> Sequence[int]:
    return [low.constant(np.asarray(kind.reference(**equation.params)))]


def _reduction(low: Lowering, equation: JaxprEqn, kind: kinds.Reduction, args: list[int]) -> Sequence[int]:
    avals = [atom.aval for atom in equation.invars]
    if kind.operands is not None:
        raise TooLarge("a reduction with initial values")
    axes, shape = sorted(kind.axes(equation.params)), avals[0].shape
    if not axes or 0 in shape:
        raise TooLarge("a reduction of no elements")
    return fold(low, equation, kind, args, axes, shape)


def fold(
    low: Lowering, equation: JaxprEqn, kind: kinds.Reduction, args: list[int], axes: list[int], shape: tuple[int, ...]
) -> Sequence[int]:
    """The statement of a reduction along these axes of operands of that shape, which may be parts of the whole ones."""
    if guards.sum_wraps(equation) and check_scopes.wants_integers(equation):
        raise TooLarge("a sum of integers that is to be checked")
    avals = [atom.aval for atom in equation.invars]
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    along = sorted(kind.axes(equation.params))  # of the whole array, which decides about the order
    first = len(along) - 1
    while first > 0 and along[first - 1] == along[first] - 1:
        first -= 1
    order = np.arange(math.prod(shape)).reshape(shape).transpose([*kept, *axes])
    places = None if [*kept, *axes] == list(range(len(shape))) else tuple(order.ravel().tolist())
    depth = low.depth_of(args)
    extents = [math.prod([shape[axis] for axis in group]) for group in (kept, axes[:first], axes[first:])]
    outs = [low.value(v.aval.dtype, extents[0], depth) for v in equation.outvars]
    accumulators = tuple([(np.dtype(d), i) for d, i in kind.accumulators(avals, equation.params)])
    tree: Any = "lanes" if along[-1] == avals[0].ndim - 1 else "rows"
    low.append(
        routine.Fold(
            tuple(outs), equation.primitive.name, kind, tuple(sorted(equation.params.items())), tuple(args),
            accumulators, tree, *extents, places=places,
        ),
        depth,
    )  # fmt: skip
    low.work += 2.0 * len(args) * low.pieces(extents[0]) * math.prod(extents[1:]) / (1 if extents[0] > 1 else VECTOR)
    return outs


def _cumulative(low: Lowering, equation: JaxprEqn, kind: kinds.Cumulative, args: list[int]) -> Sequence[int]:
    avals = [atom.aval for atom in equation.invars]
    axis, shape = kind.axis(equation.params), avals[0].shape
    order = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axis, 0)
    if kind.reverse(equation.params):
        order = order[::-1]
    ordered = [low.reordered(arg, order) for arg in args]
    depth = low.depth_of(ordered)
    outs = [low.value(v.aval.dtype, v.aval.size, depth) for v in equation.outvars]
    accumulators = tuple([(np.dtype(d), i) for d, i in kind.accumulators(avals, equation.params)])
    params = tuple(sorted(equation.params.items()))
    low.append(
        routine.Running(tuple(outs), equation.primitive.name, kind, params, tuple(ordered), accumulators, shape[axis]),
        depth,
    )
    low.work += 4.0 * len(args) * shape[axis]
    back = np.empty(order.size, np.int64)
    back[order.ravel()] = np.arange(order.size)
    return [low.reordered(out, back) for out in outs]


def _product(low: Lowering, equation: JaxprEqn, kind: kinds.Contraction, args: list[int]) -> Sequence[int]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    lhs, rhs = (atom.aval.shape for atom in equation.invars)
    out = equation.outvars[0].aval
    if any(atom.aval.dtype != out.dtype for atom in equation.invars) or out.dtype.kind not in "fc":
        raise TooLarge("a product of other types than floats")
    left_free = [d for d in range(len(lhs)) if d not in (*left_sum, *left_batch)]
    right_free = [d for d in range(len(rhs)) if d not in (*right_sum, *right_batch)]
    left = np.arange(math.prod(lhs)).reshape(lhs).transpose([*left_batch, *left_free, *left_sum])
    right = np.arange(math.prod(rhs)).reshape(rhs).transpose([*right_batch, *right_sum, *right_free])
    batch, k = math.prod([lhs[d] for d in left_batch]), math.prod([lhs[d] for d in left_sum])
    m, n = math.prod([lhs[d] for d in left_free]), math.prod([rhs[d] for d in right_free])
    if k == 0:
        raise TooLarge("a product of no elements")
    a, b = low.reordered(args[0], left), low.reordered(args[1], right)
    depth = low.depth_of([a, b])
    made = low.value(out.dtype, out.size, depth)
    low.append(routine.Product(made, a, b, (batch, m, n, k)), depth)
    low.work += 4.0 * k * low.pieces(batch * m * n)
    return [made]


def _identity(low: Lowering, equation: JaxprEqn, kind: kinds.Identity, args: list[int]) -> Sequence[int]:
    return args[: len(equation.outvars)]


def _update(low: Lowering, equation: JaxprEqn, kind: kinds.DynamicUpdateSlice, args: list[int]) -> Sequence[int]:
    array, update, *given = args
    shape, region = (atom.aval.shape for atom in equation.invars[:2])
    starts = low.starts(given, shape, region)
    offsets = np.arange(math.prod(shape)).reshape(shape)[tuple(slice(n) for n in region)].ravel().tolist()
    depth = low.depth_of([array, update, *(start for start, _, _ in starts)])
    out = low.value(low.types[array].dtype, low.types[array].size, depth, LARGEST_IN_PLACE)
    low.append(routine.Update(out, array, update, tuple(offsets), starts, low.guards_index(equation)), depth)
    low.work += 6.0 * low.pieces(min(low.types[array].size, LARGEST))
    return [out]


RULES: dict[type, Rule] = {
    kinds.Elementwise: _elementwise,
    kinds.View: _view,
    kinds.Reshape: _reshape,
    kinds.Assemble: _assemble,
    kinds.Generate: _generate,
    kinds.Reduction: _reduction,
    kinds.Cumulative: _cumulative,
    kinds.Contraction: _product,
    kinds.Identity: _identity,
    kinds.DynamicUpdateSlice: _update,
}
