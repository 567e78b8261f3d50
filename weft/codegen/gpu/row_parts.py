"""Elements of a part of a row for the threads of a block: 16 of each, accessed as vectors where they are.

512 elements of a warp      thread l has those at 4 l + 128 m, as vectors of four
where they are not whole    thread l has those at l + 32 e; so too where addresses are not aligned
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._base.record import Record
from weft._base.target import Target
from weft._base.target_model import GPU_HELD, WARP
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.gpu import threads
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import reduce_tree
from weft.codegen.writer import Carried, Writer
from weft.loops import elements
from weft.loops.gpu import grid


class Spot(Record):
    """The elements of a thread: ``first`` is the distance of its first one from the part's begin, ``at`` its index.

    ``left`` (an i32): how many there are from it. ``full``: there are all of the warp's; ``tight``: and in vectors.
    """

    first: str
    at: str
    left: str
    full: str
    tight: str


class RowParts:
    """Accesses to the elements of a thread, which are ``count`` values of ``lanes`` each."""

    def __init__(self, writer: Writer, lanes: int, target: Target, few: bool) -> None:
        """``few``: indices have 32 bits."""
        self.few = few
        self.writer, self.target, self.lanes = writer, target, Lanes(writer, lanes)
        self.scalar, self.memory = Memory(Lanes(writer, 1), target), Memory(self.lanes, target)
        self.count = GPU_HELD // lanes

    def spot(self, thread: str, warp: str, aligned: str, start: str, stop: str) -> Spot:
        """Those of a thread of a warp in the part of a row from ``start`` to ``stop``."""
        writer, tight, own = self.writer, "false", thread
        begin, count = writer.index("mul", warp, str(grid.WARP_PART)), writer.index("sub", stop, start)
        full = writer.compare_index("sle", writer.index("add", begin, str(grid.WARP_PART)), count)
        if self.lanes.width > 1:
            tight = writer.op(f"and i1 {full}, {aligned}")
            own = writer.choose_index(tight, writer.index("mul", own, str(self.lanes.width)), own)
        first = writer.index("add", begin, own)
        left = writer.op(f"trunc i64 {writer.index('sub', count, first)} to i32")
        return Spot(first, writer.index("add", start, first), left, full, tight)

    def inside(self, spot: Spot, element: int) -> str:
        """Whether there is an element of this number, where they are not in vectors."""
        return self.writer.op(f"icmp sgt i32 {spot.left}, {element * WARP}")

    def positions(self, spot: Spot, value: int, dtype: np.dtype) -> Value:
        """The indices of the elements of a value."""
        lanes, element = self.lanes, "i32" if self.few else "i64"
        first = self.writer.op(f"trunc i64 {spot.at} to i32") if self.few else spot.at
        apart = self.writer.op(f"select i1 {spot.tight}, {element} 1, {element} {WARP}")
        index = lanes.splat(first, element) + value * lanes.width * WARP
        if lanes.width > 1:
            index = index + lanes.iota(element) * lanes.splat(apart, element)
        known = elements.INT32 if element == "i32" else elements.INT64
        emit = Emitter(lanes)
        return emit.settle(emit.convert(Value(known, (index,)), dtype))

    def load(self, dtype: np.dtype, pointer: str, spot: Spot) -> list[Value]:
        """The values of elements from ``pointer`` on; zeros for elements that do not exist."""
        writer, width = self.writer, self.lanes.width
        if width == 1:
            zero = [Emitter(self.lanes).const(0, dtype)]
            return [
                reduce_tree.when(writer, self.inside(spot, e), lambda e=e: [self._one(dtype, pointer, e)], zero)[0]
                for e in range(self.count)
            ]
        type_, word = self.memory.vector_type(dtype)[0], elements.of(dtype).memory

        def vectors() -> Carried:
            addresses = [self._address(dtype, pointer, value * width) for value in range(self.count)]
            return [
                (type_, writer.op(f"load {type_}, ptr {address}, align {self._align(dtype)}")) for address in addresses
            ]

        def one(e: int) -> str:
            address, nbytes = self._address(dtype, pointer, e), elements.of(dtype).bytes
            inside, none = self.inside(spot, e), ["zeroinitializer"]
            return writer.when(inside, lambda: [writer.load(word, address, nbytes)], [word], none, rare=False)[0]

        def singles() -> Carried:
            parts = [[one(value * width + lane) for lane in range(width)] for value in range(self.count)]
            return [(type_, self._joined(word, words)) for words in parts]

        return [self.memory.join(dtype, text, width) for text in writer.either(spot.tight, vectors, singles)]

    def store(self, value: Value, number: int, pointer: str, spot: Spot, everywhere: bool = False) -> None:
        """One of the values; ``everywhere``: also of elements that do not exist, for which there is room."""
        writer, width, dtype = self.writer, self.lanes.width, value.dtype
        first = number * width

        def where(lane: int, body: Callable[[], None]) -> None:
            if everywhere:
                body()
            else:
                threads.when(writer, self.inside(spot, first + lane), body)

        if width == 1:
            where(0, lambda: self.scalar.store_scalar(value, self._address(dtype, pointer, first)))
            return
        (type_, text), word = self.memory.pack(value), elements.of(dtype).memory

        def vectors() -> None:
            address = self._address(dtype, pointer, first)
            writer.line(f"store {type_} {text}, ptr {address}, align {self._align(dtype)}")

        def single(lane: int) -> None:
            taken, address = (
                writer.op(f"extractelement {type_} {text}, i64 {lane}"),
                self._address(dtype, pointer, first + lane),
            )
            writer.line(f"store {word} {taken}, ptr {address}, align {elements.of(dtype).bytes}")

        def singles() -> None:
            for lane in range(width):
                where(lane, lambda lane=lane: single(lane))

        writer.either(spot.tight, vectors, singles)

    def _address(self, dtype: np.dtype, pointer: str, element: int) -> str:
        return self.writer.element(whole(dtype), pointer, str(element * WARP))

    def _one(self, dtype: np.dtype, pointer: str, element: int) -> Value:
        return self.scalar.load_scalar(dtype, self._address(dtype, pointer, element))

    def _align(self, dtype: np.dtype) -> int:
        return min(grid.ALIGNED, self.lanes.width * elements.of(dtype).size)

    def _joined(self, element: str, parts: Sequence[str]) -> str:
        """A vector of these lanes."""
        if len(parts) == 1:
            return parts[0]
        text = "poison"
        for lane, part in enumerate(parts):
            text = self.writer.op(f"insertelement {self.lanes.type(element)} {text}, {element} {part}, i64 {lane}")
        return text
