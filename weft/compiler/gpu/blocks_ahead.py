"""Blocks of operands that the next step of a cell's loop reads are brought to the block's memory while this one runs.

    for k: total += sum of x[i, k]    ->    x[i, 0] comes; for k: x[i, k + 1] begins to come; total += sum of x[i, k]

So it is with a block whose rows kernels read whole in every step, at an offset that follows from the step's number and
from what is known before the loop: nothing writes to it, since cells write to rows of their results alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler.gpu.cell_memory import ALIGNED, written
from weft.compiler.matrix_products.contraction import dtype_of
from weft.compiler.plans.instructions import Gemm
from weft.compiler.plans.steps import FusedEpilogue, Launched, Run
from weft.loops import ir
from weft.loops.gpu import grid, grid_products, resident
from weft.loops.nests import Lowered

Key = tuple[int, tuple[int, ...]]  # a base, and the numbers of the offsets behind it


class Dim(NamedTuple):
    """A dimension of what a launch reads: bytes from one to the next; which word says so, and in units of what."""

    extent: int
    stride: int
    word: int
    unit: int


class Read(NamedTuple):
    """What a launch reads of an operand, from ``begin`` on: elements of ``size`` bytes; 0 if that is not known."""

    begin: int
    dims: tuple[Dim, ...] = ()
    size: int = 0


class Rows(NamedTuple):
    """Rows of bytes, ``stride`` bytes apart. Once they are brought, they lie side by side."""

    begin: int
    run: int
    rows: int
    stride: int

    def moved(self, stride: int) -> int:
        """A stride in the block once it was brought."""
        return stride // self.stride * self.run if self.rows > 1 and stride >= self.stride else stride

    def shares(self, threads: int) -> tuple[int, int, int, bool]:
        """How threads share its copy: ``lanes``, ``passes``, ``rounds`` and ``exact`` of ``resident.Ahead``."""
        lanes = min(1 << (self.run // grid.ALIGNED - 1).bit_length(), threads)
        along, down = lanes * grid.ALIGNED, threads // lanes
        exact = self.run % along == 0 and self.rows % down == 0
        return lanes, -(-self.run // along), -(-self.rows // down), exact


def reads(entry: Launched) -> dict[int, Read]:
    """What a launch reads of operands, from their beginning on, where it reads by strides alone.

    A product has none: it brings its next terms itself while it multiplies others, unless it is one by a vector.
    """
    source = entry.source
    if isinstance(source, Run):
        return _of_kernel(source.lowered, 0)
    gemm = source.product if isinstance(source, FusedEpilogue) else source
    found = _of_product(gemm) if isinstance(gemm, Gemm) and entry.nest.form == "vector" else {}
    behind = (
        _of_kernel(source.run.lowered, grid_products.n_words(entry.nest)) if isinstance(source, FusedEpilogue) else {}
    )
    return {**found, **{grid_products.OPERANDS + k: read for k, read in behind.items()}}


def _of_product(gemm: Gemm) -> dict[int, Read]:
    size, at = dtype_of(gemm.source).itemsize, 10  # behind the sizes (``grid_products.launches``)
    found: tuple[list[Dim], list[Dim]] = ([], [])
    for dims, sides in ((gemm.rows, (0, 2)), (gemm.columns, (1,)), (gemm.summed, (0, 1)), (gemm.batch, (0, 1, 2))):
        unit = 1 if dims is gemm.batch else size
        for extent, *strides in dims:
            for k, side in enumerate(sides):
                if side < len(found):
                    found[side].append(Dim(extent, strides[k] * unit, at + 3 + k, unit))
            at += 3 + len(strides)
    return {k: Read(0, tuple(dims), size) for k, dims in enumerate(found)}


def _of_kernel(low: Lowered, first: int) -> dict[int, Read]:
    nest, at, found = low.nest, first + len(low.extents), dict[int, Read]()
    plain = _loaded(nest)
    for k, (binding, kind) in enumerate(zip(low.operands, nest.operands, strict=True)):
        dims, size = list[Dim](), binding.dtype.itemsize
        for d, (step, known) in enumerate(zip(binding.strides, kind.strides, strict=True)):
            dims.append(Dim(low.extents[d], step * size, at if known == ir.RUNTIME else -1, size))
            at += known == ir.RUNTIME
        alone = kind.near is None and kind.apart is None and len(dims) == len(low.extents)
        if k in plain and alone and not low.outer:
            found[k] = Read(0, tuple(dims), size)
    return found


def _loaded(nest: ir.Nest) -> set[int]:
    """The operands that are accessed by plain loads alone."""
    statements = list(nest.statements())
    return {s.operand for s in statements if isinstance(s, ir.Load)} - set(
        ir.operands([s for s in statements if not isinstance(s, ir.Load)])
    )


def block(reads: Sequence[Read]) -> Rows | None:
    """The one block that all launches read; None if they read different ones, or if it is no block of rows."""
    found = {_block(read) for read in reads}
    (one,) = found if len(found) == 1 else (None,)
    fixed = [dim.stride for read in reads for dim in read.dims if dim.word < 0 and dim.extent != 1]
    return one if one is not None and all(one.moved(stride) == stride for stride in fixed) else None


def _block(read: Read) -> Rows | None:
    run, rows, stride = read.size, 1, 0
    for dim in sorted([dim for dim in read.dims if dim.stride and dim.extent != 1], key=lambda dim: dim.stride):
        if dim.stride < 0 or not dim.extent:
            return None
        if rows == 1 and dim.stride == run:
            run *= dim.extent
        elif dim.stride == stride * rows or (rows == 1 and dim.stride > run):
            rows, stride = rows * dim.extent, stride or dim.stride
        else:
            return None
    fits = run and not (read.begin | run | stride) % grid.ALIGNED
    return Rows(read.begin, run, rows, stride) if fits else None


def candidates(step: resident.Repeat) -> dict[Key, int]:
    """The locations of operands at which kernels in each step read, and the number of the offset that moves them."""
    own = {one.number for one in step.body if isinstance(one, resident.Offset)}
    inner = {one.number for one in resident.every(step.body) if isinstance(one, resident.Offset)}
    others = {(location.base, location.moved) for location in resident.locations(step.body, calls=False)}
    found = dict[Key, int]()
    for location in resident.locations([one for one in step.body if isinstance(one, resident.Call)]):
        numbers = inner.intersection(location.moved)
        if location.base < 0 and len(numbers) == 1 and numbers <= own and (location.base, location.moved) not in others:
            found[location.base, location.moved] = next(iter(numbers))
    return found


class Origins:
    """The steps of a loop's body that offsets follow from; ``fixed``: bases of what no step changes.

    They are offsets, and kernels that compute a number from numbers. A number is all that lies in its region.
    """

    def __init__(self, step: resident.Repeat, fixed: Collection[int], words: Sequence[int]) -> None:
        self.body, self.words = step.body, words
        self.bases = {*fixed, *[row.base for row in step.rows]}
        self.numbers = {one.number: at for at, one in enumerate(step.body) if isinstance(one, resident.Offset)}
        self.ends = (step.carry, step.left)

    def of(self, number: int) -> set[int] | None:
        """Which steps; None if one of them depends on anything but rows and what is fixed."""
        found = set[int]()
        return found if self._needs(self.numbers[number], found) else None

    def _needs(self, at: int, found: set[int]) -> bool:
        """Adds a step, and those that it follows from."""
        step = self.body[at]
        if at in found:
            return True
        found.add(at)
        if isinstance(step, resident.Offset):
            return step.flag is None and all(self._known(location, at, found) for location, *_ in step.terms)
        nest = step.kernel
        if not isinstance(nest, ir.Nest) or any(n != 1 for n in self.words[step.words :][: len(nest.dims)]):
            return False
        if any(isinstance(s, ir.Update) for s in nest.statements()):
            return False
        made, plain = written(nest, len(step.operands)), _loaded(nest)
        return all(
            self._is_own(location)
            if k in made
            else (k in plain or location.base in self.bases) and self._known(location, at, found)
            for k, location in enumerate(step.operands)
        )

    def _is_own(self, location: resident.Location) -> bool:
        """Whether a region of the cell's memory begins there."""
        return (
            location.base >= 0
            and location.base not in self.bases
            and not location.moved
            and not self._begin(location) % ALIGNED
        )

    def _known(self, location: resident.Location, before: int, found: set[int]) -> bool:
        """Whether the contents of a location before a step depend only on rows and on what no step changes."""
        moved = [self.numbers[number] for number in location.moved if number in self.numbers]
        if not all(self._needs(at, found) for at in moved):
            return False
        if location.base in self.bases:
            return True
        for at in reversed(range(before)):
            step = self.body[at]
            if any(self._region(one) == self._region(location) for one in self._changed(step)):
                same = isinstance(step, resident.Call) and self._key(location) in map(self._key, self._changed(step))
                return same and self._needs(at, found)
        return False

    def _changed(self, step: Any) -> list[resident.Location]:
        """Where a step may write."""
        if isinstance(step, resident.Call):
            return [step.operands[k] for k in written(step.kernel, len(step.operands))]
        return [] if isinstance(step, resident.Offset) else list(resident.locations([step]))

    def _begin(self, location: resident.Location) -> int:
        return 0 if location.offset is None else self.words[location.offset]

    def _region(self, location: resident.Location) -> tuple[int, int]:
        return location.base, self._begin(location) // ALIGNED

    def _key(self, location: resident.Location) -> tuple[int, int, tuple[int, ...]]:
        return location.base, self._begin(location), location.moved

    def early(self, steps: Iterable[int], fresh: Callable[[], resident.Location]) -> tuple[Any, ...]:
        """These steps, with memory of their own for what they write."""
        now, found = dict[Any, resident.Location](), list[Any]()
        for step in [self.body[at] for at in sorted(steps)]:
            if isinstance(step, resident.Offset):
                terms = [(now.get(self._key(location), location), *rest) for location, *rest in step.terms]
                found.append(step.replace(terms=tuple(terms)))
                continue
            operands = [now.get(self._key(location), location) for location in step.operands]
            for k in written(step.kernel, len(operands)):
                now[self._key(step.operands[k])] = operands[k] = fresh()
            found.append(step.replace(operands=tuple(operands)))
        return tuple(found)

    def left(self, body: Sequence[Any], steps: Iterable[int]) -> tuple[Any, ...]:
        """A body without those of these steps from which nothing in it follows any more."""
        left = list(body)
        for at in sorted(steps, reverse=True):
            step, others = left[at], [*left[:at], *left[at + 1 :], self.ends]
            if isinstance(step, resident.Offset):
                used = any(step.number in location.moved for location in resident.locations(others))
            else:
                used = any(self._is_read(location, [*left[at + 1 :], self.ends]) for location in self._changed(step))
            if not used:
                left[at] = None
        return tuple([step for step in left if step is not None])

    def _is_read(self, number: resident.Location, steps: Sequence[Any]) -> bool:
        """Whether some steps read a number before another one is written there."""
        for step in steps:
            changed = self._changed(step) if isinstance(step, resident.Call) else []
            locations = [
                location for location in resident.locations([step]) if not any(location is one for one in changed)
            ]
            if any(self._region(location) == self._region(number) for location in locations):
                return True
            if any(self._key(location) == self._key(number) for location in changed):
                return False
        return False
