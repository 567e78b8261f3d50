"""Loops: the IR between kernels and machine code; one ``Nest`` is one compiled function.

Grammar (everything a compiled function may do):

    nest      parallel dimensions, then reduced dimensions; one of them carries the vector lanes; then digits
    setup     once per call:            statements on 0-d values
    edges     once per row:             for every index of the parallel dimensions before the one with the lanes
    phases    once per parallel point:  before (statements), then a loop over the reduced dimensions that runs body
                                        and feeds reductions, whose results the next phase may use
    statement Load | Store | LoadAt | Update | RowLoad | RowStore | Param | IndexOf | Apply | Scan | Guard

A nest contains no sizes: extents, run-time strides and scalar literals are parameters, so that one machine code works
for every shape. Values are numbered; each is defined once, before its uses. Index arithmetic is int64, in elements. A
nest without reduced dimensions has exactly one phase, run at every parallel point.

The last reduced dimension may stand for several axes, flattened in row-major order. If those axes cannot be collapsed
for an operand (a broadcast row, a transposed matrix), dimensions with the role *digit* follow, one for each axis. They
are not loops: their values are the mixed-radix digits of the flattened index, with the extents as bases, and they
contribute to the address of operands that have a stride along them.

The last parallel dimension may stand for several in the same way, if all but the first of them are short and the last
alone would leave lanes empty. The short ones have at most COLLAPSED elements together.

Parameter block (``const int64_t* params``), 8-byte slots in this order:
    extents of the dimensions; run-time strides, operand by operand and dimension by dimension where the class is
    RUNTIME; scalar parameters (complex128 takes two slots; others the low bytes of one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from weft._base.record import Record
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.symbolic import sizes

RUNTIME = 2  # stride classes are 0 (broadcast), 1 (contiguous), REVERSED and RUNTIME
REVERSED = -1  # contiguous, from the last element to the first
_NEUTRAL = {"weak_type": False, "sharding": None, "out_sharding": None, "axes": (0,), "axis": 0, "dimensions": (0,)}
COLLAPSED = 64  # elements of the short dimensions that are collapsed into one with the dimension before them


class Dim(Record):
    """One loop. ``role``: parallel (independent points), reduced (iterated inside a phase, in tree order), or digit.

    ``extent`` is None if it is known only at run time; it is known for short reduced dimensions, which are unrolled,
    and for the last parallel dimension if rows are short (``loops.schedules.blocks``).
    ``runs``: the updates of a sorted scatter. Points are independent where the target changes: a range that is
    cut elsewhere is moved on to the next change.
    """

    role: Literal["parallel", "reduced", "digit"]
    extent: int | None = None
    runs: bool = False


class Operand(Record):
    """A buffer and how its address moves: one stride class for each dimension of the nest.

    The base pointer includes all constant offsets. ``in`` operands never alias ``out`` ones except element for element
    (in-place reuse); an ``out`` operand of Updates holds its old elements at the start. Only the alignment of the dtype
    is guaranteed.

    ``near`` is (operand, rows, elements) if another operand of equal strides reads the same buffer at a distance: this
    operand reads at a point what that one reads ``rows`` steps later along the dimension before the lanes, and
    ``elements`` steps later along the lanes.

    ``apart``: the strides along the last two dimensions, if they are compiled in (``loops.schedules.blocks``).
    """

    dtype: np.dtype
    role: Literal["in", "out"]
    strides: tuple[int, ...]
    near: tuple[int, int, int] | None = None
    apart: tuple[int, int] | None = None


class Load(Record):
    out: int
    operand: int


class Store(Record):
    operand: int
    value: int


class LoadAt(Record):
    """A load at a computed address: ``offset`` elements (an int32 or int64 value) past the operand's address.

    Offsets are clamped beforehand, so that no read is outside the operand. With ``inside`` the offset is the same
    everywhere, and valid only where ``inside`` holds: elsewhere nothing is read, and the value is zero.
    """

    out: int
    operand: int
    offset: int
    inside: int | None = None


class Update(Record):
    """operand[offset] = steps(old = operand[offset], ...); nothing is written where ``inside`` is false.

    This is the only statement that may write an element twice: along reduced dimensions in order of the index; points
    along parallel dimensions never write the same element. ``steps`` compute the value ``new`` and may use ``old``.
    Without ``inside`` the offset is clamped; with it, the offset is valid only where ``inside`` holds. ``guard``: a
    test of ``new`` where it is written. ``free``: the order has no say in the result, since no element is updated twice
    ("once"), or since updates are a "sum", "max" or "min" of integers, or a "sum" of floats that may be rounded anyhow.
    """

    operand: int
    offset: int
    inside: int | None
    old: int
    steps: tuple[Apply, ...]
    new: int
    guard: Guard | None = None
    free: str | None = None


class Guard(Record):
    """operand = 1 (a byte, the same at all points) if ``value`` fails a test at any point, or is not written.

    ``fails``: a boolean if it is "true"; a float or complex number if it is "nan", or not "finite" (or, at times, if
    it is infinite where only NaN is asked for). The operand has role "in" and no strides: points and threads may all
    write it, and all write the same.
    """

    operand: int
    value: int
    fails: Literal["true", "nan", "finite"] = "true"


class RowStore(Record):
    """Store a body value for a later phase in row buffer ``row``: scratch memory with one slot per reduced index."""

    row: int
    value: int


class RowLoad(Record):
    out: int
    row: int


class Param(Record):
    """Scalar parameter number ``index`` (a literal of the program), as a value of ``dtype``."""

    out: int
    index: int
    dtype: np.dtype


class IndexOf(Record):
    """The current index along dimension ``dim``, converted to ``dtype`` (iota; argmax's position)."""

    out: int
    dim: int
    dtype: np.dtype


class Apply(Record):
    """out = kind.scalar(emit, *args, **params); ``name`` and ``params`` are for printing and the cache key."""

    out: int
    name: str
    kind: kinds.Elementwise
    params: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    dtype: np.dtype  # of the result


class Scan(Record):
    """outs = running combination of ``args`` along the serial reduced dimension, in the order of docs/NUMERICS.md."""

    outs: tuple[int, ...]
    name: str
    kind: kinds.Cumulative
    params: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    accumulators: tuple[tuple[np.dtype, Any], ...]
    dtypes: tuple[np.dtype, ...]


Statement = Load | Store | LoadAt | Update | RowStore | RowLoad | Param | IndexOf | Apply | Scan | Guard


def arguments(statement: Statement) -> tuple[int, ...]:
    """The values a statement uses."""
    if isinstance(statement, Apply | Scan):
        return statement.args
    if isinstance(statement, Store | RowStore | Guard):
        return (statement.value,)
    if isinstance(statement, LoadAt):
        return (statement.offset,) if statement.inside is None else (statement.offset, statement.inside)
    if isinstance(statement, Update):
        own = {statement.old, *[step.out for step in statement.steps]}
        used = [*[arg for step in statement.steps for arg in step.args], statement.new]
        inside = () if statement.inside is None else (statement.inside,)
        return (statement.offset, *inside, *[n for n in used if n not in own])
    return ()


class Reduce(Record):
    """outs (parallel-level values) = the tree over the phase's reduced dimensions of the body values ``args``.

    tree (docs/NUMERICS.md):
      lanes       last reduced dimension in blocks of 8192; inside a block 32 lane accumulators, element i goes to
                  lane i % 32; lanes are folded by halves (l + 16, l + 8, ...).
      rows        last reduced dimension in blocks of 256, each in order from the identity.
    The results of all blocks, of outer reduced dimensions in order, are combined in order by groups of 256, and the
    results of groups in order, each time starting from the identity.
    """

    outs: tuple[int, ...]
    name: str
    kind: kinds.Reduction
    params: tuple[tuple[str, Any], ...]
    args: tuple[int, ...]
    index: int | None  # body value with the position, when kind.needs_index
    accumulators: tuple[tuple[np.dtype, Any], ...]
    dtypes: tuple[np.dtype, ...]
    tree: Literal["row", "column"]


# the statements of equations: one rule for each kind, for nests and routines


def params_of(equation: JaxprEqn) -> tuple[tuple[str, Any], ...]:
    """The parameters on which machine code depends, in the form in which statements hold them."""
    found = tuple([(name, _NEUTRAL.get(name, value)) for name, value in equation.params.items()])
    return sizes.fixed(found) if sizes.opened.all else found


def applied(equation: JaxprEqn, out: int, args: Sequence[int]) -> Apply:
    primitive, dtype = equation.primitive, np.dtype(equation.outvars[0].aval.dtype)
    return Apply(out, primitive.name, primitive.kind, params_of(equation), tuple(args), dtype)


def is_exact(s: Reduce | Scan) -> bool:
    """Whether every order of its combinations gives the same bits."""
    return s.kind.exact(s.accumulators[0][0])


def _accumulated(equation: JaxprEqn) -> tuple[tuple[tuple[np.dtype, Any], ...], tuple[np.dtype, ...]]:
    """The accumulators of a reduction or a running combination, and the dtypes of its results."""
    found = equation.primitive.kind.accumulators([atom.aval for atom in equation.invars], equation.params)
    return (
        tuple([(np.dtype(dtype), one) for dtype, one in found]),
        tuple([np.dtype(v.aval.dtype) for v in equation.outvars]),
    )


def reduced(
    equation: JaxprEqn, outs: Sequence[int], args: Sequence[int], index: int | None, tree: Any,
    make: Callable[..., Reduce] = Reduce, *more: Any,
) -> Any:  # fmt: skip
    """``make``: the class of the statement, ``more`` its own fields."""
    name, kind, params = equation.primitive.name, equation.primitive.kind, params_of(equation)
    return make(tuple(outs), name, kind, params, tuple(args), index, *_accumulated(equation), tree, *more)


def scanned(
    equation: JaxprEqn, outs: Sequence[int], args: Sequence[int], make: Callable[..., Scan] = Scan, *more: Any
) -> Any:
    """The direction is no part of the statement: whoever runs it gives the elements in order."""
    params = tuple([(key, value) for key, value in params_of(equation) if key != "reverse"])
    name, kind = equation.primitive.name, equation.primitive.kind
    return make(tuple(outs), name, kind, params, tuple(args), *_accumulated(equation), *more)


class Phase(Record):
    """before: once per parallel point, before the loop. body: at every reduced point. Then the reductions.

    A phase with an empty body and no reductions runs ``before`` only (the last scalars of a row and their stores).
    """

    before: tuple[Statement, ...] = ()
    body: tuple[Statement, ...] = ()
    reductions: tuple[Reduce, ...] = ()


def operands(statements: Iterable[Statement]) -> list[int]:
    """The operands that statements access."""
    return sorted({s.operand for s in statements if isinstance(s, Load | Store | LoadAt | Update | Guard)})


def used(phase: Phase) -> set[int]:
    """Values used in the loop of a phase."""
    found = {n for s in phase.body for n in arguments(s)}
    for reduction in phase.reductions:
        found.update(reduction.args)
        if reduction.index is not None:
            found.add(reduction.index)
    return found


class Nest(Record, labels=("name",)):
    """One compiled function.

    ``vector``: the dimension whose index runs across lanes; None for a 0-d program. If it is reduced (the row form),
    lanes are folded at the end of a phase. If it is parallel, every accumulator is a vector; the tree "row" is then
    possible only for a reduced dimension of known extent, whose lane accumulators are registers. ``split``: the
    reduction may be cut at block borders. Such a nest has one phase with reductions, and no parallel dimension or one
    that carries the lanes. Called with mode 0 it leaves the accumulators of each block in the partial buffer; called
    with mode 1 it combines them in order and runs the remaining phases. Columns are cut only if there is a partial
    buffer. ``long``: there are so many blocks that the order of the combinations of blocks matters. ``step``: the
    stride along the lanes of the operands that have a small one there, if it is compiled in.
    """

    dims: tuple[Dim, ...]
    operands: tuple[Operand, ...]
    scalars: tuple[np.dtype, ...]
    rows: tuple[np.dtype, ...]
    vector: int | None
    width: int
    split: bool
    setup: tuple[Statement, ...]
    phases: tuple[Phase, ...]
    name: str = "kernel"
    edges: tuple[Statement, ...] = ()
    step: int | None = None
    long: bool = False
    __slots__ = ("_hash",)
    _hash: ClassVar[int]  # of an instance, once it was asked for

    def __hash__(self) -> int:
        """A hash of the fields in which most nests differ; cached, since every compilation looks nests up."""
        if not hasattr(self, "_hash"):
            shape = tuple([(len(phase.before), len(phase.body), len(phase.reductions)) for phase in self.phases])
            names = tuple([s.name for phase in self.phases for s in phase.body if type(s) is Apply])
            facts = (self.dims, self.operands, self.scalars, self.vector, self.width, self.split, shape, names)
            object.__setattr__(self, "_hash", hash(facts))
        return self._hash

    @property
    def short(self) -> int | None:
        """The extent of the reduced dimension if it is known."""
        return next((dim.extent for dim in self.dims if dim.extent is not None and dim.role == "reduced"), None)

    @property
    def last(self) -> int:
        """The number of the innermost loop."""
        return len(self.dims) - len(self.digits) - 1

    @property
    def row(self) -> int | None:
        """The extent of short rows (the last parallel dimension), if it is known."""
        return self.dims[self.last].extent if self.dims and self.dims[self.last].role == "parallel" else None

    @property
    def digits(self) -> list[int]:
        """The digits of the last loop, outermost first."""
        return [d for d, dim in enumerate(self.dims) if dim.role == "digit"]

    @property
    def is_map(self) -> bool:
        """Whether it is elementwise, with lanes side by side along its last dimension."""
        if any(dim.role != "parallel" for dim in self.dims) or self.vector != len(self.dims) - 1:
            return False
        if any(operand.strides[-1] not in (0, 1) for operand in self.operands):
            return False
        return all(isinstance(s, Load | Store | Param | Apply | Guard) for s in self.statements())

    def uses_digits(self, operand: int) -> bool:
        """Whether an operand's address depends on the digits."""
        return any(self.dims[d].role == "digit" for d, stride in enumerate(self.operands[operand].strides) if stride)

    def reads_digits(self, s: Statement) -> bool:
        """Whether the value of a statement depends on the digits."""
        return self.uses_digits(s.operand) if isinstance(s, Load) else isinstance(s, IndexOf) and s.dim in self.digits

    def repeats(self, s: Load | IndexOf) -> bool:
        """Whether a value that depends on the digits is the same for every number of the first one."""
        first = self.digits[0]
        return s.dim != first if isinstance(s, IndexOf) else not self.operands[s.operand].strides[first]

    def statements(self) -> list[Statement]:
        """Every statement, in order."""
        return [*self.setup, *[s for phase in self.phases for s in (*phase.before, *phase.body)], *self.edges]

    def size(self) -> int:
        """How many statements and reductions there are in the phases."""
        return sum([len(phase.before) + len(phase.body) + len(phase.reductions) for phase in self.phases])


class Chain(Record, labels=("name",)):
    """Several nests as one compiled function, run in turn on one block of rows after another (loop tiling).

        for each block of rows: for each nest: run it on the part of its first dimension that is in the block

    If one nest writes what another reads or writes, both do so row by row, so that blocks are independent. If the first
    dimension of a nest is not parallel, there is only one block, of all rows.

    Parameter block: the rows of a block; for every nest the ``CHAIN_WORDS`` below; then the nests' own blocks.
        start of its own block, in slots; points of its first dimension per row; its whole range: 4 slots;
        start of its partial buffer in the scratch memory, in bytes
    """

    nests: tuple[Nest, ...]
    name: str = "chain"

    def size(self) -> int:
        return sum(nest.size() for nest in self.nests)


CHAIN_WORDS = 7
