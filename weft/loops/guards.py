"""Guards of a kernel: tests of its values. One byte for the kernel tells the runtime whether any test held.

    store out1 = v3         ->      store out1 = v3;  guard in2 if v3 is nan

What is stored is tested for NaN and infinity, integer arithmetic for overflow, index vectors for the bounds of their
array. A test may hold where nothing is wrong (a NaN that came with an operand): what is told leads to a search
(``compiler.checks.fault_search``), which decides. It never fails to hold where something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.core import kinds
from weft.loops import ir
from weft.loops.body import Body, Operand

BOOL, BYTE, FLOAT64 = np.dtype(np.bool_), np.dtype(np.uint8), np.dtype(np.float64)
EITHER = kinds.Elementwise(scalar=lambda emit, x, y: emit.or_(x, y), reference=np.logical_or)
OUTSIDE = kinds.Elementwise(scalar=lambda emit, inside: emit.not_(inside), reference=np.logical_not)


def _leaves(emit: Any, x: Any, *, dtype: np.dtype) -> Any:
    limits = np.iinfo(dtype)
    least, most = [
        emit.const(float(limit) * (1 - 2.0**-50 * (dtype.itemsize > 4)), FLOAT64) for limit in (limits.min, limits.max)
    ]
    return emit.not_(emit.and_(emit.compare("le", least, x), emit.compare("le", x, most)))


AS_FLOAT64 = kinds.Elementwise(
    scalar=lambda emit, x: emit.convert(x, FLOAT64), reference=lambda x: x.astype(np.float64)
)
LEAVES = kinds.Elementwise(
    scalar=_leaves, reference=lambda x, dtype: (x < np.iinfo(dtype).min) | (x > np.iinfo(dtype).max)
)


class Guarded(NamedTuple):
    """Where a kernel tells what its tests found: byte ``number`` of the variable ``words``; what is tested."""

    words: Any
    number: int
    wanted: Callable[[Any], frozenset[str]]  # the checks of an equation


def is_inexact(dtype: Any) -> bool:
    """Whether elements can be NaN or infinite: floats of two bytes or more, and complex numbers."""
    dtype = np.dtype(dtype)
    return dtype.kind in "fc" or (dtype.itemsize == 2 and dtype.name == "bfloat16")


def may_make(kind: Any) -> bool:
    """Whether an operation of a kind computes values: others only move or choose them."""
    if isinstance(kind, kinds.Elementwise):
        return not kind.chooses
    if isinstance(kind, kinds.Gather):
        return True  # fills with NaN what is out of bounds
    return isinstance(kind, (kinds.Reduction, kinds.Cumulative, kinds.Scatter))


def wraps_at(equation: Any) -> kinds.Elementwise | None:
    """The test of an equation for integer overflow; None if there is none."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Elementwise) or kind.wraps is None:
        return None
    dtypes = [np.dtype(atom.aval.dtype) for atom in equation.invars]
    if np.dtype(equation.outvars[0].aval.dtype).kind not in "iu" or any(d.kind in "bc" for d in dtypes):
        return None
    return kind.wraps


def sum_wraps(equation: Any) -> bool:
    """Whether an equation is a reduction of integers whose result may not fit."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Reduction) or kind.wraps is None or len(equation.invars) != 1:
        return False
    return np.dtype(equation.invars[0].aval.dtype).kind in "iu"


class GuardWriter:
    """Collects the tests of one kernel, and writes their statements at the end of each block."""

    def __init__(self, guarded: Guarded, number: Callable[[], int]) -> None:
        self.guarded, self.number = guarded, number
        self.found: list[tuple[list[ir.Statement], int]] = []  # a block, and a value that is true where a test holds
        self.updates: list[tuple[list[ir.Statement], int, Any]] = []  # a block, the index of an update, as above
        self.numbers: list[tuple[list[ir.Statement], int, Any]] = []  # a block, a value, what it must not be

    def wants(self, equation: Any, word: str) -> bool:
        return word in self.guarded.wanted(equation)

    def add(self, block: list[ir.Statement], value: int) -> None:
        self.found.append((block, value))

    def apply(self, block: list[ir.Statement], name: str, kind: kinds.Elementwise, args: tuple[int, ...],
              params: tuple[tuple[str, Any], ...] = ()) -> int:  # fmt: skip
        """A test as a statement of a block; gives its value."""
        out = self.number()
        block.append(ir.Apply(out, name, kind, params, args, BOOL))
        return out

    def stored(self, block: list[ir.Statement], value: int, dtype: Any, words: frozenset[str]) -> None:
        """Test a value that is stored."""
        if not is_inexact(dtype) or not words & {"nan", "overflow"}:
            return
        self.numbers.append((block, value, "finite" if "overflow" in words else "nan"))

    def updated(self, block: list[ir.Statement], dtype: Any, words: frozenset[str]) -> None:
        """Test what the update at the end of a block writes."""
        if is_inexact(dtype) and words & {"nan", "overflow"}:
            self.updates.append((block, len(block) - 1, "finite" if "overflow" in words else "nan"))

    def outside(self, block: list[ir.Statement], inside: int) -> None:
        """Test an index vector, given whether it is inside."""
        self.add(block, self.apply(block, "outside", OUTSIDE, (inside,)))

    def finish(self, body: Body) -> None:
        """One guard at the end of each block that has tests; those of the setup go to the start of the first phase."""
        if not self.found and not self.numbers and not self.updates:
            return
        operand = len(body.operands)
        body.operands.append(Operand(self.guarded.words, "in", self.guarded.number, True, {}, None, BYTE, ()))
        by_block: dict[int, tuple[list[ir.Statement], list[int]]] = {}
        for block, value in self.found:
            home = body.phases[0][0] if block is body.setup else block
            by_block.setdefault(id(home), (home, []))[1].append(value)
        for block, index, fails in self.updates:
            update = block[index]
            assert isinstance(update, ir.Update)
            block[index] = update.replace(guard=ir.Guard(operand, update.new, fails))
        for block, value, fails in self.numbers:
            (body.phases[0][0] if block is body.setup else block).append(ir.Guard(operand, value, fails))
        for block, values in by_block.values():
            total, *others = values
            for value in others:
                total = self.apply(block, "either", EITHER, (total, value))
            block.append(ir.Guard(operand, total))
