"""Where the lanes of a vector lie in memory: whole vectors and shuffles wherever offsets are known, otherwise gathers.

    offsets 0 1 2 3:   one load            3 2 1 0:   a load, reversed
            2 2 2 2:   one element         0 3 6 9:   loads at 0, 4 and 6, and shuffles
    element 0 of 8 rows, element 1, ...:   loads along the rows, transposed (``row_blocks``)

Memory outside of the elements that are asked for is not accessed: the last vector loaded ends with them, and stores
between which others lie are masked. Words are shuffled as they are in memory, where small ones fill fewer registers.

Strides that are known only at run time have a variant of the code for each likely stride (2, 3 and 4; the extent of
short, contiguous rows), and a general one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._base.record import Record
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.memory_access import row_blocks
from weft.codegen.memory_access.memory import Mask, Memory
from weft.codegen.memory_access.memory_words import alignment, whole
from weft.codegen.writer import Writer
from weft.loops import elements, ir

Access = tuple[int, int]  # the number of a pointer, and an offset from there in elements


# ---- offsets that are known when the code is written


def load(memory: Memory, dtype: np.dtype, pointers: Sequence[str], wanted: Sequence[Sequence[Access]]) -> list[Value]:
    """For each vector that is ``wanted`` the elements at the accesses of its lanes."""
    if _across(memory, dtype, pointers, wanted):
        return row_blocks.load(memory, dtype, pointers, len(wanted))
    around, made = _Around(memory, dtype, pointers, wanted), dict[tuple[Access, ...], Value]()
    for lanes in dict.fromkeys(map(tuple, wanted)):
        if len(set(lanes)) > 1:
            made[lanes] = memory.join(dtype, around.words(lanes), memory.lanes.width)
        else:
            p = memory.writer.element(whole(dtype), pointers[lanes[0][0]], str(lanes[0][1]))
            made[lanes] = memory.splat(memory.load_scalar(dtype, p))
    return [made[tuple(lanes)] for lanes in wanted]


def _across(memory: Memory, dtype: np.dtype, pointers: Sequence[str], accesses: Sequence[Sequence[Access]]) -> bool:
    """Whether the lanes are rows at different pointers, of words that are transposed in registers."""
    if len(pointers) == 1 or len(pointers) != memory.lanes.width or not row_blocks.possible(dtype, len(pointers)):
        return False
    return all(list(lanes) == [(row, k) for row in range(len(pointers))] for k, lanes in enumerate(accesses))


class _Around:
    """Vectors of the memory from the first to the last of the elements that are accessed from each pointer."""

    def __init__(
        self, memory: Memory, dtype: np.dtype, pointers: Sequence[str], wanted: Sequence[Sequence[Access]]
    ) -> None:
        self.writer, self.dtype, self.pointers = memory.writer, dtype, pointers
        self.word, self.units = memory.word(dtype)
        accesses = [access for lanes in wanted for access in lanes]
        offsets = [[offset for n, offset in accesses if n == number] for number in range(len(pointers))]
        self.ends = [(min(some), max(some)) for some in offsets]
        self.width, span = memory.lanes.width, min([last - first + 1 for first, last in self.ends])
        while self.width > span:
            self.width //= 2
        self.loaded: dict[Access, str] = {}  # the vectors that begin there

    def words(self, lanes: Sequence[Access]) -> str:
        """One vector, as words of memory."""
        numbers = {number for number, _ in lanes}
        starts = {n: self._starts(n, sorted({offset for number, offset in lanes if number == n})) for n in numbers}
        picks = []
        for number, offset in lanes:
            start = next(start for start in starts[number] if offset - self.width < start <= offset)
            text = self._vector(number, start)
            picks += [(text, (offset - start) * self.units + unit) for unit in range(self.units)]
        return _picked(self.writer, self.word, picks, self.width * self.units)

    def _starts(self, number: int, offsets: Sequence[int]) -> list[int]:
        """Where the vectors that hold these offsets begin, each as soon as it holds no fewer of them."""
        (first, last), width, found = self.ends[number], self.width, list[int]()
        for offset in offsets:
            if found and offset < found[-1] + width:
                continue
            most = max([other for other in offsets if other < offset + width])
            known = [start for n, start in self.loaded if n == number and most - width < start <= offset]
            even = offset - (offset - first) % width
            found.append(known[0] if known else min(even if most < even + width else offset, last - width + 1))
        return found

    def _vector(self, number: int, start: int) -> str:
        if (number, start) not in self.loaded:
            p = self.writer.element(whole(self.dtype), self.pointers[number], str(start))
            type_ = Lanes(self.writer, self.width * self.units).type(self.word)
            self.loaded[number, start] = self.writer.op(f"load {type_}, ptr {p}, align {alignment(self.dtype)}")
        return self.loaded[number, start]


def _picked(writer: Writer, word: str, picks: Sequence[tuple[str, int]], width: int) -> str:
    """A vector of words: a pick says which vector of ``width`` words holds it, and at which number."""
    lanes, found = Lanes(writer, len(picks)), ""
    if width == 1:
        for lane, (text, _) in enumerate(picks):
            found = writer.op(f"insertelement {lanes.type(word)} {found or 'poison'}, {word} {text}, i64 {lane}")
        return found
    sources = list(dict.fromkeys([text for text, _ in picks]))
    each = 1 if width == lanes.width else 2  # vectors that a shuffle joins to those before
    for some in [sources[:2], *[sources[k : k + each] for k in range(2, len(sources), each)]]:
        made, numbers = some[0], [number for _, number in picks]
        if len(some) > 1 or width != lanes.width or not (found or numbers == list(range(width))):
            numbers = [some.index(text) * width + number if text in some else 0 for text, number in picks]
            made = lanes.shuffle(made, some[1] if len(some) > 1 else "poison", word, numbers, width)
            numbers = list(range(lanes.width))
        if found:
            numbered = enumerate(zip(picks, numbers, strict=True))
            numbers = [lanes.width + number if text in some else lane for lane, ((text, _), number) in numbered]
            made = lanes.shuffle(found, made, word, numbers, lanes.width)
        found = made
    return found


def store(
    memory: Memory, values: Sequence[Value], accesses: Sequence[Sequence[Access]], pointers: Sequence[str]
) -> None:
    """Store the lanes of vectors there; elements between them stay as they are, by masks."""
    dtype, width, writer = values[0].dtype, memory.lanes.width, memory.writer
    if _across(memory, dtype, pointers, accesses):
        row_blocks.store(memory, values, pointers)
        return
    if all(list(row) == [(row[0][0], row[0][1] + k) for k in range(width)] for row in accesses):
        for value, ((number, offset), *_) in zip(values, accesses, strict=True):
            memory.store(value, writer.element(whole(dtype), pointers[number], str(offset)))
        return
    packed, (word, units) = [memory.pack(value) for value in values], memory.word(dtype)
    for number, pointer in enumerate(pointers):
        each = [(access, (n, lane)) for n, row in enumerate(accesses) for lane, access in enumerate(row)]
        owners = {offset: owner for (to, offset), owner in each if to == number}
        owner = owners[0]
        for start in range(0, max(owners) + 1, width):
            picks, there = [], [offset in owners for offset in range(start, start + width)]
            for offset in range(start, start + width):
                owner = owners.get(offset, owner)
                picks += [(packed[owner[0]][1], owner[1] * units + unit) for unit in range(units)]
            text = _picked(writer, word, picks, width * units)
            mask = None if all(there) else Mask("0", memory.lanes.flags(there))
            memory.put(dtype, (packed[0][0], text), writer.element(whole(dtype), pointer, str(start)), mask)


# ---- neighbouring lanes at equal distances


class Step(Record):
    """The distance of neighbouring lanes: a class of strides (``loops.ir``), and what is known of one at run time."""

    kind: int
    stride: str = ""
    offsets: V | None = None  # stride * (0, 1, ...)
    near: Sequence[int] = ()  # likely strides

    def times(self, lanes: Lanes) -> V:
        """The offsets of the lanes from the first one."""
        if self.kind == ir.RUNTIME:
            assert self.offsets is not None
            return self.offsets
        return lanes.iota("i64") if self.kind == 1 else -lanes.iota("i64")


def load_along(memory: Memory, dtype: np.dtype, pointer: str, step: Step, mask: Mask | None = None) -> Value:
    """Load a value for each lane, that of the first lane from ``pointer``."""
    if not step.kind:
        return memory.splat(memory.load_scalar(dtype, pointer))
    if step.kind == 1 or memory.lanes.width == 1:
        return memory.load(dtype, pointer, mask)
    load_apart = _load_reversed if step.kind == ir.REVERSED else _load_strided
    return load_apart(memory, dtype, pointer, step, mask)


def store_along(memory: Memory, value: Value, pointer: str, step: Step, mask: Mask | None = None) -> None:
    """Store lanes, the first at ``pointer``."""
    if step.kind == 1 or memory.lanes.width == 1:
        memory.store(value, pointer, mask)
    else:
        store_apart = _store_reversed if step.kind == ir.REVERSED else _store_strided
        store_apart(memory, value, pointer, step, mask)


def _load_reversed(memory: Memory, dtype: np.dtype, pointer: str, _: Step, mask: Mask | None) -> Value:
    if mask is not None and not memory.masks(dtype):
        return memory.load_through_buffer(dtype, pointer, "-1", mask)
    last = memory.writer.element(whole(dtype), pointer, str(1 - memory.lanes.width))
    text = _reversed(memory, memory.load_words(dtype, last, _reversed_mask(memory, mask)), *memory.word(dtype))
    return memory.join(dtype, text, memory.lanes.width)


def _store_reversed(memory: Memory, value: Value, pointer: str, _: Step, mask: Mask | None) -> None:
    if mask is not None and not memory.masks(value.dtype):
        memory.store_through_buffer(value, pointer, "-1", mask)
        return
    last = memory.writer.element(whole(value.dtype), pointer, str(1 - memory.lanes.width))
    type_, text = memory.pack(value)
    text = _reversed(memory, text, *memory.word(value.dtype))
    memory.put(value.dtype, (type_, text), last, _reversed_mask(memory, mask))


def _reversed(memory: Memory, text: str, word: str, units: int = 1) -> str:
    """The elements of a vector, from the last to the first."""
    width = memory.lanes.width
    picks = [(text, units * lane + unit) for lane in reversed(range(width)) for unit in range(units)]
    return _picked(memory.writer, word, picks, width * units)


def _reversed_mask(memory: Memory, mask: Mask | None) -> Mask | None:
    if mask is None:
        return None
    return Mask(mask.remaining, V(memory.lanes, "i1", _reversed(memory, mask.lanes.text, "i1")))


# ---- strides that are known only at run time


def _load_strided(memory: Memory, dtype: np.dtype, pointer: str, step: Step, mask: Mask | None) -> Value:
    """Lanes apart; with a mask that is not whole, by the general code."""
    width, ends, offsets = memory.lanes.width, list[tuple[str, str]](), step.times(memory.lanes)
    if not step.near or dtype == elements.COMPLEX128 or (mask is not None and not mask.mostly_whole):
        return memory.load_far(dtype, pointer, step.stride, offsets, mask)

    def likely(stride: int) -> None:
        accesses = [(0, stride * lane) for lane in range(width)]
        ends.append((_Around(memory, dtype, [pointer], [accesses]).words(accesses), memory.writer.block))

    def far() -> None:
        value = memory.load_far(dtype, pointer, step.stride, offsets, mask)
        ends.append((memory.pack(value)[1], memory.writer.block))

    _by_stride(memory, step, mask, likely, far)
    return memory.join(dtype, memory.writer.phi(memory.lanes.type(memory.word(dtype)[0]), *ends), width)


def _store_strided(memory: Memory, value: Value, pointer: str, step: Step, mask: Mask | None) -> None:
    dtype, width, offsets = value.dtype, memory.lanes.width, step.times(memory.lanes)

    def likely(stride: int) -> None:
        store(memory, [value], [[(0, stride * lane) for lane in range(width)]], [pointer])

    def far() -> None:
        memory.store_far(value, pointer, step.stride, offsets, mask)

    if step.near and (mask is None or mask.mostly_whole) and dtype != elements.COMPLEX128 and memory.masks(dtype):
        _by_stride(memory, step, mask, likely, far)
    else:
        far()


def _by_stride(
    memory: Memory, step: Step, mask: Mask | None, likely: Callable[[int], None], far: Callable[[], None]
) -> None:
    writer, done, stride = memory.writer, memory.writer.fresh_label(), step.stride
    if mask is not None:  # a partial vector uses the general code
        whole_vector = writer.compare_index("eq", mask.count, str(memory.lanes.width))
        stride = writer.choose_index(whole_vector, stride, "0")
    for near in step.near:
        chosen, other = writer.fresh_label(), writer.fresh_label()
        writer.branch_if(writer.compare_index("eq", stride, str(near)), chosen, other)
        writer.label(chosen)
        likely(near)
        writer.branch(done)
        writer.label(other)
    far()
    writer.branch(done)
    writer.label(done)
