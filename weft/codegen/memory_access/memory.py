"""Memory access of one vector: contiguous, broadcast, gathered; whole or masked; any dtype.

A mask covers the first ``count`` lanes. If the target has no masked access for an element size, the lanes are copied
one by one through a stack buffer: memory outside the operand is never accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np

from weft._base.record import Record
from weft._base.target import Target
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.memory_access import part_copies
from weft.codegen.memory_access.memory_words import Words, alignment, whole
from weft.loops import elements


class Mask(Record):
    """The lanes below ``remaining`` (an i64 name; no lane if it is not positive), as a vector of i1.

    ``mostly_whole``: in nearly every vector all lanes are set. ``words``: a vector of i32 that are negative there. If
    masks have no registers, LLVM keeps a vector of i1 from block to block in halves of others, and widens it each time.
    """

    remaining: str
    lanes: V
    mostly_whole: bool = False
    words: str = ""

    def text(self) -> str:
        """The vector of i1, for an access at this point of the code."""
        if not self.words:
            return self.lanes.text
        lanes = self.lanes.lanes
        return lanes.writer.op(f"icmp slt {lanes.type('i32')} {self.words}, zeroinitializer")

    @property
    def count(self) -> str:
        """The number of lanes (an i64 name), computed at this point of the code."""
        return self.lanes.lanes.writer.minimum_index(self.remaining, str(self.lanes.lanes.width))


def first_lanes(lanes: Lanes, remaining: str, few: bool = False) -> Mask:
    """The lanes below ``remaining``. With ``few`` it is far below 2**31, which saves a minimum."""
    writer = lanes.writer
    element = "i32" if lanes.width <= 16 else "i8" if lanes.width < 128 else "i16"
    count = remaining if few and element == "i32" else writer.minimum_index(remaining, str(lanes.width))
    short = writer.op(f"trunc i64 {count} to {element}")
    return Mask(remaining, lanes.iota(element) < lanes.splat(short, element))


def lanes_below(lanes: Lanes, remaining: str, mostly_whole: bool) -> Mask:
    """``first_lanes`` in a loop. With ``mostly_whole`` the mask is computed only for vectors that are not whole."""
    if not mostly_whole:
        return first_lanes(lanes, remaining, few=True)
    writer = lanes.writer
    part, join, before = writer.fresh_label(), writer.fresh_label(), writer.block
    writer.branch_if(writer.compare_index("slt", remaining, str(lanes.width)), part, join, cold=True)
    writer.label(part)
    mask = first_lanes(lanes, remaining, few=True)
    type_, every, some = lanes.type("i1"), lanes.constant_text(True, "i1"), mask.lanes.text
    # LLVM's way to set a full mask has a false dependence on a mask register
    by_bits = writer.model.masks and lanes.width >= 8
    bits, word = f"i{lanes.width}", f"i{max(lanes.width, 32)}"  # a narrower move depends on the register's old value
    if by_bits:
        some = writer.op(f"bitcast {lanes.type('i1')} {some} to {bits}")
        type_, every, some = word, "-1", some if word == bits else writer.op(f"zext {bits} {some} to {word}")
    by_words = not writer.model.masks and lanes.width in (4, 8)
    if by_words:
        some = writer.op(f"sext {type_} {some} to {lanes.type('i32')}")
        type_, every = lanes.type("i32"), lanes.constant_text(-1, "i32")
    end = writer.block
    writer.branch(join)
    writer.label(join)
    chosen = writer.phi(type_, (every, before), (some, end))
    if by_bits:
        chosen = chosen if word == bits else writer.op(f"trunc {word} {chosen} to {bits}")
        chosen = writer.op(f"bitcast {bits} {chosen} to {lanes.type('i1')}")
    if by_words:
        masked = writer.op(f"icmp slt {type_} {chosen}, zeroinitializer")
        return Mask(remaining, V(lanes, "i1", masked), True, chosen)
    return Mask(remaining, V(lanes, "i1", chosen), True)


class Memory(Words):
    """Loads and stores of ``Value``s at a pointer."""

    def __init__(self, lanes: Lanes, target: Target) -> None:
        super().__init__(lanes)
        self.target = target

    def _mask(self, dtype: np.dtype, mask: Mask) -> tuple[str, str]:
        """(LLVM type, text) of a mask as wide as the memory vector."""
        if elements.of(dtype).parts == 2 and elements.of(dtype).register == "double":
            width = self.lanes.width
            picks = [k // 2 for k in range(2 * width)]
            return f"<{2 * width} x i1>", self.lanes.shuffle(mask.text(), "poison", "i1", picks, width)
        return self.lanes.type("i1"), mask.text()

    def masks(self, dtype: np.dtype) -> bool:
        """Whether the target has masked access for elements of this dtype."""
        element = elements.of(dtype)
        return min(element.size, 8) in self.target.masked_bytes

    # scalars

    def load_scalar(self, dtype: np.dtype, pointer: str) -> Value:
        """One element, as a value of one lane."""
        element, one = elements.of(dtype), Lanes(self.writer, 1)
        parts = []
        for k in range(element.parts):
            p = self.writer.element(element.memory, pointer, str(k))
            text = self.writer.op(f"load {element.memory}, ptr {p}, align {element.bytes}")
            parts.append(Memory(one, self.target).arrive(dtype, V(one, element.memory, text)))
        return Value(dtype, tuple(parts))

    def store_scalar(self, value: Value, pointer: str) -> None:
        element = elements.of(value.dtype)
        for k, part in enumerate(value.parts):
            p = self.writer.element(element.memory, pointer, str(k))
            text = self.leave(value.dtype, part).text
            self.writer.line(f"store {element.memory} {text}, ptr {p}, align {element.bytes}")

    def splat(self, value: Value) -> Value:
        """A one-lane value in every lane."""
        parts = tuple(self.lanes.splat(p.text, p.element) for p in value.parts)
        return Value(value.dtype, parts, value.loose)

    def window(self, low: V, high: V, start: int) -> V:
        """One vector of consecutive lanes of two vectors, from lane ``start`` of the first."""
        lanes, picks = self.lanes, range(start, start + self.lanes.width)
        return V(lanes, low.element, lanes.shuffle(low.text, high.text, low.element, picks, lanes.width))

    # contiguous

    def load(self, dtype: np.dtype, pointer: str, mask: Mask | None = None) -> Value:
        """Lanes at consecutive elements."""
        if self.lanes.width == 1:
            return self.load_scalar(dtype, pointer)
        if mask is not None and not self.masks(dtype):
            return self.load_through_buffer(dtype, pointer, "1", mask)
        return self.join(dtype, self.load_words(dtype, pointer, mask), self.lanes.width)

    def load_words(self, dtype: np.dtype, pointer: str, mask: Mask | None = None) -> str:
        """A vector of words of memory; a mask only if the target ``masks`` such elements."""
        type_, suffix = self.vector_type(dtype)
        if mask is None:
            return self.writer.op(f"load {type_}, ptr {pointer}, align {alignment(dtype)}")
        given = [(f"ptr align {alignment(dtype)}", pointer), self._mask(dtype, mask), (type_, "zeroinitializer")]
        return self.writer.call(f"llvm.masked.load.{suffix}.p0", type_, given)

    def load_inside(self, dtype: np.dtype, pointer: str, offsets: V, inside: V) -> Value:
        """Those lanes at ``offsets`` that are ``inside``, one after another; for others zero is read from the stack."""
        lanes, writer, zero = self.lanes, self.writer, self.writer.alloca(whole(dtype))
        writer.line(f"store {whole(dtype)} 0, ptr {zero}, align 64")

        def addresses() -> Iterator[str]:
            for lane in range(lanes.width):
                at, taken = (lanes.extract(v, lane) for v in (offsets, inside))
                yield writer.op(f"select i1 {taken}, ptr {writer.element(whole(dtype), pointer, at)}, ptr {zero}")

        return self._one_by_one(dtype, addresses())

    def _one_by_one(self, dtype: np.dtype, addresses: Iterable[str]) -> Value:
        """Lanes whose elements lie at these addresses."""
        element, lanes, writer = elements.of(dtype), self.lanes, self.writer
        texts, type_ = ["poison"] * element.parts, lanes.type(element.memory)
        for lane, p in enumerate(addresses):
            for k, text in enumerate(texts):
                at = writer.element(element.memory, p, str(k))
                word = writer.op(f"load {element.memory}, ptr {at}, align {element.bytes}")
                if lanes.width > 1:
                    word = writer.op(f"insertelement {type_} {text}, {element.memory} {word}, i64 {lane}")
                texts[k] = word
        return Value(dtype, tuple([self.arrive(dtype, V(lanes, element.memory, text)) for text in texts]))

    def store(self, value: Value, pointer: str, mask: Mask | None = None) -> None:
        if self.lanes.width == 1:
            self.store_scalar(value, pointer)
            return
        dtype = value.dtype
        if mask is not None and not self.masks(dtype):
            self.store_through_buffer(value, pointer, "1", mask)
            return
        self.put(dtype, self.pack(value), pointer, mask)

    def put(self, dtype: np.dtype, packed: tuple[str, str], pointer: str, mask: Mask | None) -> None:
        """Store the result of ``pack``; a mask only if the target ``masks`` such elements."""
        type_, text = packed
        if mask is not None and mask.mostly_whole and self.target.model.tests_masks:
            self._put_tested(dtype, packed, pointer, mask)
        elif mask is None:
            self.writer.line(f"store {type_} {text}, ptr {pointer}, align {alignment(dtype)}")
        else:
            suffix = self.vector_type(dtype)[1]
            arguments = [(type_, text), (f"ptr align {alignment(dtype)}", pointer), self._mask(dtype, mask)]
            self.writer.call(f"llvm.masked.store.{suffix}.p0", "void", arguments)

    def _put_tested(self, dtype: np.dtype, packed: tuple[str, str], pointer: str, mask: Mask) -> None:
        """Store by a mask only if it is not whole."""
        writer = self.writer
        writer.either(
            writer.compare_index("sge", mask.remaining, str(self.lanes.width)),
            lambda: self.put(dtype, packed, pointer, None),
            lambda: self.put(dtype, packed, pointer, mask.replace(mostly_whole=False)),
        )

    def put_parts(self, value: Value, pointer: str, mask: Mask) -> None:
        """Store by plain stores of whole vectors, then of halves of halves, where masked ones are slow or missing.

        For loops that store the same lanes again and again, whose branches are foreseen.
        """
        writer, lanes, dtype = self.writer, self.lanes, value.dtype
        width, size = min(self.target.lanes, lanes.width), elements.of(dtype).size
        type_, text = self.pack(value)
        count, word = type_[1:-1].split(" x ")
        words = int(count) // lanes.width
        for first in range(0, lanes.width, width):
            left = writer.index("sub", mask.remaining, str(first))
            picks = range(first * words, (first + width) * words)
            vector = text if width == lanes.width else lanes.shuffle(text, "poison", word, picks, int(count))
            packed = f"<{width * words} x {word}>", vector
            plain, part, done = (writer.fresh_label() for _ in range(3))
            writer.branch_if(writer.compare_index("sge", left, str(width)), plain, part)
            writer.label(plain)
            self.put(dtype, packed, writer.element("i8", pointer, str(first * size)), None)
            writer.branch(done)
            writer.label(part)
            self._put_halves(dtype, packed, pointer, (first, width), writer.maximum_index(left, "0"))
            writer.branch(done)
            writer.label(done)

    def _put_halves(
        self, dtype: np.dtype, packed: tuple[str, str], pointer: str, lanes: tuple[int, int], count: str
    ) -> None:
        """Store fewer lanes of a vector than it has, which begins at a lane of the tile."""
        writer, size, (first, width) = self.writer, elements.of(dtype).size, lanes
        buffer, half = writer.alloca(packed[0]), width // 2
        writer.line(f"store {packed[0]} {packed[1]}, ptr {buffer}, align 64")
        while half:
            some, rest = writer.fresh_label(), writer.fresh_label()
            writer.branch_if(writer.compare_index("ne", writer.index("and", count, str(half)), "0"), some, rest)
            writer.label(some)
            at = writer.index("mul", writer.index("and", count, str(-2 * half)), str(size))
            type_ = f"i{8 * half * size}" if half * size <= 8 else f"<{half * size // 8} x i64>"
            word = writer.op(f"load {type_}, ptr {writer.element('i8', buffer, at)}, align {alignment(dtype)}")
            sink = writer.element("i8", writer.element("i8", pointer, str(first * size)), at)
            writer.line(f"store {type_} {word}, ptr {sink}, align {alignment(dtype)}")
            writer.branch(rest)
            writer.label(rest)
            half //= 2

    # strided

    def load_far(self, dtype: np.dtype, pointer: str, stride: str, offsets: V, mask: Mask | None) -> Value:
        """A gather, or one element after another."""
        element = elements.of(dtype)
        native = element.bytes * min(element.parts, 2) in (*self.target.gather_bytes, 16)
        if mask is not None and not (native and self.target.gather_bytes):
            return self.load_through_buffer(dtype, pointer, stride, mask)
        if native and self.target.gather_bytes:
            return self._gather(dtype, pointer, offsets, mask)
        later = range(1, self.lanes.width)
        return self._one_by_one(
            dtype, accumulate(later, lambda p, _: self.writer.element(whole(dtype), p, stride), initial=pointer)
        )

    def load_at(self, dtype: np.dtype, pointer: str, offsets: V) -> Value:
        """Lanes at ``offsets`` (i32 or i64), all of them inside the operand.

        One load per lane: gather instructions take twice as long on Zen 4 (0.76 against 0.36 ns an element, in cache).
        """
        stored = self.writer.alloca(self.lanes.type(offsets.element))
        self.writer.line(f"store {self.lanes.type(offsets.element)} {offsets.text}, ptr {stored}, align 64")
        return self.load_by_offsets(dtype, pointer, offsets.element, stored)

    def load_by_offsets(self, dtype: np.dtype, pointer: str, integer: str, offsets: str) -> Value:
        """``load_at`` with offsets that are integers in memory."""
        writer = self.writer

        def addresses() -> Iterator[str]:
            for lane in range(self.lanes.width):
                # volatile, or LLVM would extract the lanes from registers, with two instructions per lane
                at = writer.op(f"load volatile {integer}, ptr {writer.element(integer, offsets, str(lane))}, align 4")
                yield writer.op(f"getelementptr {whole(dtype)}, ptr {pointer}, {integer} {at}")

        return self._one_by_one(dtype, addresses())

    def _pointers(self, dtype: np.dtype, pointer: str, offsets: V) -> str:
        return self.writer.op(
            f"getelementptr {whole(dtype)}, ptr {pointer}, {self.lanes.type(offsets.element)} {offsets.text}"
        )

    def _gather(self, dtype: np.dtype, pointer: str, offsets: V, mask: Mask | None) -> Value:
        element, lanes = elements.of(dtype), self.lanes
        pointers = self._pointers(dtype, pointer, offsets)
        some = mask.lanes.text if mask else lanes.constant_text(True, "i1")
        align = alignment(dtype)
        if element.parts == 2 and element.register == "double":
            parts = []
            for k in range(2):
                shifted = pointers if k == 0 else self._next_double(pointers)
                parts.append(self._gather_words("double", shifted, some, align))
            return Value(dtype, tuple(V(lanes, "double", p) for p in parts))
        word = "i64" if element.parts == 2 else element.memory
        return self.join(dtype, self._gather_words(word, pointers, some, align), lanes.width)

    def _next_double(self, pointers: str) -> str:
        return self.writer.op(f"getelementptr double, {self.lanes.type('ptr')} {pointers}, i64 1")

    def _gather_words(self, word: str, pointers: str, mask: str, align: int) -> str:
        type_, lanes = self.lanes.type(word), self.lanes
        name = f"llvm.masked.gather.{lanes.suffix(word)}.v{lanes.width}p0"
        arguments = [
            (f"{lanes.type('ptr')} align {align}", pointers),
            (lanes.type("i1"), mask),
            (type_, "zeroinitializer"),
        ]
        return self.writer.call(name, type_, arguments)

    def store_far(self, value: Value, pointer: str, stride: str, offsets: V, mask: Mask | None) -> None:
        """A scatter, or one element after another."""
        dtype = value.dtype
        element = elements.of(dtype)
        if element.parts == 1 and element.bytes in self.target.gather_bytes:
            self._scatter(value, pointer, offsets, mask)
        else:
            self.store_through_buffer(value, pointer, stride, mask)

    def _scatter(self, value: Value, pointer: str, offsets: V, mask: Mask | None) -> None:
        lanes, element = self.lanes, elements.of(value.dtype)
        pointers = self._pointers(value.dtype, pointer, offsets)
        some = mask.lanes.text if mask else lanes.constant_text(True, "i1")
        v = self.leave(value.dtype, value.part)
        name = f"llvm.masked.scatter.{lanes.suffix(v.element)}.v{lanes.width}p0"
        target = (f"{lanes.type('ptr')} align {element.bytes}", pointers)
        self.writer.call(name, "void", [(lanes.type(v.element), v.text), target, (lanes.type("i1"), some)])

    # one lane at a time, through the stack

    def _copy(
        self, word: str, source: str, source_stride: str, sink: str, sink_stride: str, count: str, align: int
    ) -> None:
        writer = self.writer

        def body(k: str, _: list[str]) -> list[str]:
            p = writer.element(word, source, writer.index("mul", k, source_stride))
            q = writer.element(word, sink, writer.index("mul", k, sink_stride))
            writer.line(f"store {word} {writer.op(f'load {word}, ptr {p}, align {align}')}, ptr {q}, align {align}")
            return []

        writer.loop("0", count, 1, [], body)

    def load_through_buffer(self, dtype: np.dtype, pointer: str, stride: str, mask: Mask) -> Value:
        type_, _ = self.vector_type(dtype)
        size = elements.of(dtype).size
        if stride == "1":
            text = part_copies.loaded(self.writer, type_, pointer, mask.count, size, self.lanes.width)
            if text is not None:
                return self.join(dtype, text, self.lanes.width)
        buffer = self.writer.alloca(type_)
        self.writer.line(f"store {type_} zeroinitializer, ptr {buffer}, align 64")
        if stride == "1":
            part_copies.copy(self.writer, pointer, buffer, mask.count, size, self.lanes.width)
        else:
            self._copy(whole(dtype), pointer, stride, buffer, "1", mask.count, alignment(dtype))
        return self.load(dtype, buffer)

    def store_through_buffer(self, value: Value, pointer: str, stride: str, mask: Mask | None) -> None:
        type_, text = self.pack(value)
        buffer = self.writer.alloca(type_)
        self.writer.line(f"store {type_} {text}, ptr {buffer}, align 64")
        if stride == "1" and mask is not None:
            size = elements.of(value.dtype).size
            part_copies.copy(self.writer, buffer, pointer, mask.count, size, self.lanes.width)
            return
        count = mask.count if mask else str(self.lanes.width)
        self._copy(whole(value.dtype), buffer, "1", pointer, stride, count, alignment(value.dtype))
