"""Loops that one block of a GPU's threads runs whole: kernels one after the other, over memory that stays where it is.

    scan of [64] by a product and tanh   ->   Repeat of (Call product, Call tanh), the state in the block's memory

Addresses are a base and words: the bases -1, -2, ... are the operands of the kernel, 0 is memory of its own (the
arena), others are what loops define. Sizes are words, which are parameters; records hold what follows from
ranges of them: threads, terms held in registers, where the arena is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from weft._base.record import Record

POINT = "point"  # the entry of a kernel with a thread for each point
HELD_THREADS = 4  # threads that share an element of a product whose matrix is held


class Location(Record):
    """An address: a base, the word of a constant offset in bytes, and the numbers of offsets found at run time."""

    base: int
    offset: int | None = None
    moved: tuple[int, ...] = ()


class Held(Record):
    """A product's matrix that threads keep in registers: which operand it is, and at most how many terms of a thread.

    ``all``: there are just as many.
    """

    operand: int
    terms: int
    all: bool


class Call(Record):
    """A kernel: ``threads`` threads for each of as many blocks as a word says. Its words begin at ``words``.

    ``once``: there are enough threads for all of these blocks, so that what finds their points is computed only once.
    """

    kernel: Any  # a nest, a routine or a product
    entry: str
    operands: tuple[Location, ...]
    scratch: Location | None
    words: int
    blocks: int
    threads: int
    once: bool
    held: Held | None = None


class Copy(Record):
    """Copies as many bytes as a word says."""

    to: Location
    source: Location
    nbytes: int


class Fill(Record):
    """Fills as many bytes as a word says with one value."""

    to: Location
    byte: int
    nbytes: int


class Offset(Record):
    """Run-time offset ``number``: the sum of clamped starts times strides; a start that is clamped sets a byte."""

    number: int
    terms: tuple[tuple[Location, np.dtype, int, int], ...]  # where it is, its type, words of most and stride
    flag: Location | None


class Carry(Record):
    """A part of a loop's state: where the loop finds and leaves it, and bases of where it is now and will be next.

    ``start``: it is copied there first. ``spare``: where the first step writes the next state, unless that takes the
    same memory. ``copied``: what a step has to copy there.
    """

    home: Location
    start: Location | None
    spare: Location | None
    copied: Location | None
    nbytes: int
    now: int
    later: int


class Row(Record):
    """A base that moves by a stride (a word) with each step.

    ``ahead``: two buffers in the block's memory, to which the next row is brought while a step runs.
    """

    base: int
    first: Location
    stride: int
    ahead: tuple[Location, Location] | None = None


class Ahead(Record):
    """A block that a step reads: it comes to the block's memory while the step before runs, to two buffers in turn.

    ``base``: where that of this step is. Words say bytes of a row, rows, and bytes from one row to the next; here they
    lie side by side. ``lanes`` threads bring a row, in ``passes`` of 16 bytes each, and all threads the rows that there
    are in ``rounds``. ``exact``: that is all, and no more.
    """

    base: int
    block: Location
    buffers: tuple[Location, Location]
    run: int
    rows: int
    stride: int
    lanes: int
    passes: int
    rounds: int
    exact: bool


class Repeat(Record):
    """A loop of so many steps (a word), or while ``answer`` is not 0, which the steps of the condition write.

    ``left``: rows of results that are copied from elsewhere. ``early``: what finds the offsets of blocks ``ahead``.
    """

    carry: tuple[Carry, ...]
    rows: tuple[Row, ...]
    body: tuple[Any, ...]
    left: tuple[Copy, ...]
    trips: int
    reverse: bool
    cond: tuple[Any, ...] = ()
    answer: Location | None = None
    ahead: tuple[Ahead, ...] = ()
    early: tuple[Any, ...] = ()


class Cell(Record):
    """A cell of a grid, which a block runs: bases that are rows of its own, and what it does.

    The base ``far`` is its part of the GPU's memory, of as many bytes as the word ``far_bytes`` says.
    """

    rows: tuple[Row, ...]
    steps: tuple[Any, ...]
    far: int
    far_bytes: int


class Choose(Record):
    """One of several lists of steps, by a clamped int32."""

    which: Location
    branches: tuple[tuple[Any, ...], ...]


class Resident(Record, labels=("name",)):
    """A kernel of one block, or of one for each cell of a grid.

    ``near``: the arena is in the block's memory, from the byte on that word 0 says.
    """

    n_operands: int
    n_words: int
    threads: int
    near: bool
    steps: tuple[Any, ...]
    name: str = "loop"

    @property
    def operands(self) -> range:
        return range(self.n_operands)

    def size(self) -> int:
        """The number of statements of all kernels."""
        return sum([call.kernel.size() for call in calls(self.steps)])


def calls(steps: tuple[Any, ...]) -> list[Call]:
    """The kernels of some steps, those of inner ones included."""
    found: list[Call] = []
    for step in steps:
        inner = (step.cond, step.body) if isinstance(step, Repeat) else ()
        inner = step.branches if isinstance(step, Choose) else (step.steps,) if isinstance(step, Cell) else inner
        found += [step] if isinstance(step, Call) else [call for some in inner for call in calls(some)]
    return found


def every(steps: Iterable[Any]) -> Iterator[Any]:
    """Some steps, and those inside of them."""
    for step in steps:
        yield step
        inner = (*step.cond, *step.body) if isinstance(step, Repeat) else ()
        yield from every([one for branch in step.branches for one in branch] if isinstance(step, Choose) else inner)


def locations(steps: Iterable[Any], calls: bool = True) -> Iterator[Location]:
    """The addresses in some steps; without those of the operands of kernels."""
    for step in steps:
        if isinstance(step, Location):
            yield step
        elif isinstance(step, Call):
            yield from [*(step.operands if calls else ()), *([] if step.scratch is None else [step.scratch])]
        elif isinstance(step, Record):
            yield from locations([getattr(step, name) for name in step._fields], calls)
        elif isinstance(step, tuple):
            yield from locations(step, calls)


def moved(steps: Iterable[Any], to: Callable[[Location], Location]) -> tuple[Any, ...]:
    """The steps with other addresses of the operands of kernels."""
    found = list[Any]()
    for step in steps:
        if isinstance(step, Call):
            step = step.replace(operands=tuple([to(location) for location in step.operands]))
        elif isinstance(step, Choose):
            step = step.replace(branches=tuple([moved(branch, to) for branch in step.branches]))
        elif isinstance(step, Repeat):
            step = step.replace(body=moved(step.body, to), cond=moved(step.cond, to))
        found.append(step)
    return tuple(found)
