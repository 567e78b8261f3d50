"""The values of a routine that is being lowered, and the blocks of statements that make them.

A value belongs to one element of the whole, or in a routine in lanes (``lane_routine``) to one lane: arrays whose shape
begins with ``shared``, somewhere, lose these dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.symbolic.sizes import present
from weft.loops import guards, ir
from weft.loops.routines import routine
from weft.loops.routines.routine import Type

LARGEST = 256  # elements of one value
LARGEST_IN_PLACE = 1024  # elements of one that is carried, sliced and updated, but not computed element for element
VECTOR = 16


class TooLarge(Exception):
    """The reason why a program cannot be a routine."""


class Memory:
    """A captured array. Slices read it from memory; if it is used as a whole it is loaded once, into ``value``."""

    def __init__(self, operand: int, aval: Any) -> None:
        self.operand, self.aval = operand, aval
        self.value: int | None = None


class Values:
    """Builds statements, in nested blocks."""

    shared: tuple[int, ...] = ()  # the lanes' dimensions

    def __init__(self) -> None:
        self.types: list[Type] = []
        self.depths: list[int] = []  # for each value the depth of the block that defines it
        self.blocks: list[list[Any]] = [[]]
        self.floors: list[int] = [0]  # for each open block the outermost one into which its statements may be hoisted
        self.operands: list[routine.Operand] = []
        self.extents: list[int] = []  # equal sizes are not merged: the routine must not depend on their values
        self.work = 0.0
        self.for_all = 0.0  # of it, instructions on values common to all lanes
        self.moved = 0  # elements that are shuffled
        self.single = 0.0  # instructions that vectors would save
        self.scalars: list[Any] = []
        self.word = -1  # the operand that guards set; none at the end if there are no guards
        self.guarded = False
        self.constants: dict[tuple[bytes, np.dtype], int] = {}
        # where the lanes' dimensions begin in variables that have others before them
        self.later: dict[Any, int] = {}

    # shapes

    def own(self, aval: Any) -> bool:
        """Whether the value differs between lanes."""
        return bool(self.shared) and aval.shape[: len(self.shared)] == self.shared

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

    def size_of(self, aval: Any) -> int:
        """Elements of a value, in one lane."""
        return math.prod(self.without(aval.shape, 0 if self.own(aval) else None))

    def pieces(self, size: int) -> int:
        """Vectors of a value."""
        return -(-size // VECTOR)

    # values

    def value(self, dtype: Any, size: int, depth: int, most: int = LARGEST) -> int:
        if size > most or size == 0:
            raise TooLarge(f"a value of {present(size)} elements")
        self.types.append(Type(np.dtype(dtype), size))
        self.depths.append(depth)
        return len(self.types) - 1

    def variable(self, aval: Any, depth: int) -> int:
        """A new value that control flow defines."""
        return self.value(aval.dtype, self.size_of(aval), depth, LARGEST_IN_PLACE)

    def spread(self, value: int) -> int:
        """In lanes: a value common to all of them, broadcast to each."""
        return value

    def literal(self, atom: Literal) -> int:
        return self.constant(np.asarray(atom.val).astype(atom.aval.dtype).reshape(1))

    def constant(self, array: np.ndarray) -> int:
        """A value of known elements: a constant of the routine if there are several, otherwise a parameter.

        Each integer is a parameter of its own, since two that are equal may be sizes that differ in the next call.
        """
        array = np.ascontiguousarray(array)
        key = (array.tobytes(), array.dtype)
        found = None if array.size == 1 and array.dtype.kind in "iu" else self.constants.get(key)
        if found is None:
            found = self.constants[key] = self.value(array.dtype, array.size, 0)
            if array.size == 1 and array.dtype.itemsize <= 8:
                self.blocks[0].insert(0, ir.Param(found, len(self.scalars), array.dtype))
                self.scalars.append(array)
            else:
                self.blocks[0].insert(0, routine.Constant(found, array.tobytes()))
        return found

    def brought(self, array: np.ndarray) -> int:
        """An array that the program brings with it."""
        return self.constant(array)

    # memory

    def operand(self, aval: Any, role: Any, rows: bool) -> int:
        """Memory; ``aval`` is that of a row if there are rows."""
        self.operands.append(routine.Operand(np.dtype(aval.dtype), role, self.size_of(aval) if rows else 0))
        return len(self.operands) - 1

    def captured(self, atom: Any) -> Any:
        """A value from outside the loop."""
        if isinstance(atom, Literal):
            return self.literal(atom)
        return Memory(self.operand(atom.aval, "in", False), atom.aval)

    def load(self, operand: int, dtype: Any, size: int, depth: int) -> int:
        """An operand, or its row."""
        out = self.value(dtype, size, depth, LARGEST if self.operands[operand].size else LARGEST_IN_PLACE)
        self.append(ir.Load(out, operand), depth)
        return out

    def in_registers(self, value: Any) -> int:
        if not isinstance(value, Memory):
            return value
        size = self.size_of(value.aval)
        if size > LARGEST_IN_PLACE:
            raise TooLarge(f"an array of {present(size)} elements is used as a whole")
        if value.value is None:
            value.value = self.load(value.operand, value.aval.dtype, size, 0)
        return value.value

    def extent(self, size: int) -> int:
        """The number of a parameter for a size."""
        self.extents.append(size)
        return len(self.extents) - 1

    # statements

    def depth_of(self, args: Sequence[int]) -> int:
        """The depth to which a pure statement on these values is hoisted: as far out as its operands allow."""
        return max([self.floors[-1], *(self.depths[arg] for arg in args)])

    def append(self, statement: Any, depth: int) -> None:
        self.blocks[depth].append(statement)

    def block(self, run: Callable[[], Sequence[int]], floor: int) -> tuple[list[Any], Sequence[int]]:
        """The statements and the results of what ``run`` lowers."""
        self.blocks.append([])
        self.floors.append(floor)
        results = run()
        self.floors.pop()
        return self.blocks.pop(), results

    def apply(
        self, name: str, kind: kinds.Elementwise, args: Sequence[int], dtype: Any, params: Any = (), size: int = 0
    ) -> int:
        """The value of a function of values; values of one element are broadcast."""
        depth, size = self.depth_of(args), size or max(self.types[arg].size for arg in args)
        made = self.value(dtype, size, depth)
        self.append(ir.Apply(made, name, kind, params, tuple(args), np.dtype(dtype)), depth)
        self.work += kind.cost * self.pieces(size)
        self.single += kind.cost * (size - self.pieces(size))
        return made

    def guard(self, equation: JaxprEqn, args: Sequence[int], size: int) -> None:
        """Test an equation for integer overflow, if that is asked for."""
        test = guards.wraps_at(equation)
        if test is None or not check_scopes.wants_integers(equation):
            return
        depth, params = self.depth_of(args), ir.params_of(equation)
        made = self.value(np.bool_, size, depth)
        self.append(ir.Apply(made, "wraps", test, params, tuple(args), guards.BOOL), depth)
        self.append(ir.Guard(self.word, made), depth)
        self.guarded = True

    def guards_index(self, equation: JaxprEqn) -> bool:
        """Whether the starts of an equation are to be tested."""
        asked = "index" in check_scopes.wanted(equation)
        self.guarded = self.guarded or asked
        return asked

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
        """The value's elements in the given order."""
        return self.pick(self.types[value].dtype, [(value, int(k)) for k in order.ravel()])

    def stretched(self, value: int, shape: tuple[int, ...], out_shape: tuple[int, ...]) -> int:
        """The value repeated along dimensions of extent 1 to the result's shape; a single element is not changed."""
        if shape == out_shape or self.types[value].size == 1:
            return value
        return self.reordered(value, np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), out_shape))
