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
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.symbolic.sizes import present
from weft.loops import ir
from weft.loops.routines import promotion_rules, routine
from weft.loops.routines.promoted_values import LARGEST, Memory, TooLarge
from weft.loops.routines.register_promotion import Flatten, Lowered, Lowering

MOST_OF_A_LANE = 32  # elements of one value in a lane
MOST_WORK = 1200  # estimated instructions of one lane
MOST_LANES = 4096  # for more, rows begin on different pages, and several threads are faster
MOST_THREADS = (1 << 31) - 1  # threads of a launch on a GPU
MOST_AT_ONCE = 32000  # instructions of all lanes, if there are over 256 (tanh of 1000: 84 us, 50 on two threads)
MOST_OF_ROWS = 256000  # instructions, if lanes have rows: kernels take many steps for rows (Lorenz of 1000: 54 us, 156)
FEW = 64  # instructions common to all lanes that may be repeated for each tile

ByElement = Callable[[ClosedJaxpr], bool]


def lower_loop(
    parts: kinds.LoopParts,
    atoms: Sequence[Any],
    flatten: Flatten,
    name: str,
    by_element: ByElement,
    mask: ClosedJaxpr | None = None,
    threads: bool = False,
) -> Lowered | None:
    """The routine in lanes of a loop, along as many dimensions as possible; None if there is none.

    ``by_element`` tells whether a condition is that of a mapped loop: the loop continues while any element does, and
    leaves the others unchanged. ``mask`` is the condition of an element of another loop that does so (or None).
    ``threads``: each lane is a thread of a GPU, which has any number of them.
    """
    for shared in _shared(parts, MOST_THREADS if threads else MOST_LANES):
        try:
            return _Lanes(shared, flatten, by_element, (parts.cond, mask), threads).lowered(parts, atoms, name)
        except TooLarge:
            continue
    return None


def _shared(parts: kinds.LoopParts, most: int) -> list[tuple[int, ...]]:
    """The candidates for the shared first dimensions, longest first."""
    shape = max([aval.shape for aval in parts.body.out_avals], key=len, default=())
    counts = range(len(shape), 0, -1)
    return [shape[:count] for count in counts if 0 < math.prod(shape[:count]) <= most]


class _Lanes(Lowering):
    """Lowers the program of one lane: arrays whose shape begins with ``shared`` lose these dimensions."""

    rules = promotion_rules.IN_LANES

    def __init__(
        self,
        shared: tuple[int, ...],
        flatten: Flatten,
        by_element: ByElement,
        masked: tuple[ClosedJaxpr | None, ClosedJaxpr | None],
        threads: bool,
    ) -> None:
        super().__init__(flatten)
        self.shared, self.by_element, self.masked, self.threads = shared, by_element, masked, threads
        self.spreads: dict[int, int] = {}
        self.extent(math.prod(shared))

    def equation(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[int]:
        moved = any(not isinstance(atom, Literal) and atom in self.later for atom in equation.invars)
        if moved and type(equation.primitive.kind) not in self.rules:
            raise TooLarge("lanes are not the first dimension where they enter control flow")
        return super().equation(equation, operands)

    def result(self, atom: Any, env: dict[Any, Any]) -> Any:
        if not isinstance(atom, Literal) and atom in self.later:
            raise TooLarge("lanes are not the first dimension of a result")
        return super().result(atom, env)

    def pieces(self, size: int) -> int:
        return size

    def value(self, dtype: Any, size: int, depth: int, most: int = LARGEST) -> int:
        if size > MOST_OF_A_LANE:
            raise TooLarge(f"a value of {present(size)} elements in each lane")
        return super().value(dtype, size, depth, most)

    def append(self, statement: Any, depth: int) -> None:
        if isinstance(statement, ir.Apply | routine.Fold | routine.Pick | routine.Spread):
            self.mark(statement)
        elif isinstance(statement, ir.Load) and self.operands[statement.operand].lanes:
            self.differs(statement.out)
        super().append(statement, depth)

    def mark(self, statement: Any) -> None:
        """Record which results differ between lanes: those with an operand that does."""
        if isinstance(statement, routine.Pick):
            args = [value for value, _ in statement.sources]
        else:
            args = [] if isinstance(statement, routine.Spread) else statement.args
        if not args or any(self.types[n].lanes for n in args):
            for out in routine.outs(statement):
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
        if isinstance(value, Memory):  # an array that is only sliced may merely happen to have this extent
            self.of_each(value.operand, value.aval)
        return super().in_registers(value)

    def loop_routine(self, parts: kinds.LoopParts, atoms: Sequence[Any], name: str) -> routine.Routine:
        made = super().loop_routine(parts, atoms, name)
        if self.work > MOST_WORK or self.for_all > max(FEW, self.work - self.for_all):
            raise TooLarge("too much of it is common to all lanes")
        lanes = math.prod(self.shared)
        rows = any(kind.lanes and kind.size > 1 for kind in self.types)
        if not self.threads and lanes > LARGEST and self.work * lanes > (MOST_OF_ROWS if rows else MOST_AT_ONCE):
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
