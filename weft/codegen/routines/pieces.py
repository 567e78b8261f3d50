"""Small arrays in registers: pieces of up to W lanes, and how elements move between them.

An array of n elements is n // W whole vectors, and one vector of the next power of two lanes for the rest. Lanes past
the end repeat the last element, so that no operation sees a value that the program does not compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft._base.target import Target
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V, literal
from weft.codegen.memory_access.memory import Mask, Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.writer import Writer
from weft.loops import elements


class Array(Record):
    """``size`` elements of a dtype as a list of pieces, each rounded to the dtype."""

    dtype: np.dtype
    size: int
    pieces: tuple[Value, ...]


def widths(size: int, lanes: int) -> list[int]:
    """Lanes of each piece."""
    rest = size % lanes
    return [lanes] * (size // lanes) + ([1 << (rest - 1).bit_length()] if rest else [])


class Scope:
    """The emitters of one basic block, one for each width; the values they memoise dominate what follows."""

    def __init__(self, writer: Writer, target: Target, lanes: int) -> None:
        self.writer, self.target = writer, target
        self.lanes = lanes  # of a whole piece
        self._emitters: dict[int, Emitter] = {}

    def emit(self, width: int) -> Emitter:
        found = self._emitters.get(width)
        if found is None:
            found = self._emitters[width] = Emitter(Lanes(self.writer, width))
        return found

    def inner(self) -> Scope:
        """A scope for a block that may not run."""
        return Scope(self.writer, self.target, self.lanes)

    def widths(self, size: int) -> list[int]:
        return widths(size, self.lanes)

    # elements

    def constant(self, array: np.ndarray) -> Array:
        """Known elements."""
        flat = array.ravel()
        pieces, at = [], 0
        for width in self.widths(flat.size):
            chosen = flat[at : at + width]
            padded = np.concatenate([chosen, np.repeat(chosen[-1:], width - chosen.size)])
            pieces.append(self.constant_piece(padded, width))
            at += width
        return Array(array.dtype, flat.size, tuple(pieces))

    def constant_piece(self, values: np.ndarray, width: int) -> Value:
        emit = self.emit(width)
        if values.tobytes() == values[:1].tobytes() * width:
            return emit.const(values[0], values.dtype)
        element = elements.of(values.dtype)
        parts = [np.real(values), np.imag(values)] if element.kind == "c" else [values]
        texts = []
        for part in parts:
            numbers = part.astype(np.float32) if element.kind == "h" else part
            listed = ", ".join(f"{element.register} {literal(number, element.register)}" for number in numbers)
            texts.append(V(emit.lanes, element.register, f"<{listed}>"))
        return Value(values.dtype, tuple(texts))

    def pick(self, dtype: np.dtype, sources: Sequence[tuple[Array, int]]) -> Array:
        """The array whose element k is element ``sources[k][1]`` of the array ``sources[k][0]``."""
        lanes, pieces, at = self.lanes, [], 0
        for width in self.widths(len(sources)):
            chosen = list(sources[at : at + width])
            chosen += chosen[-1:] * (width - len(chosen))
            picked = [(array.pieces[element // lanes], element % lanes) for array, element in chosen]
            pieces.append(self.gathered(dtype, picked, width))
            at += width
        return Array(dtype, len(sources), tuple(pieces))

    def piece(self, array: Array, positions: Sequence[int], width: int) -> Value:
        """One piece of ``width`` lanes from elements of an array."""
        lanes = self.lanes
        return self.gathered(
            array.dtype, [(array.pieces[position // lanes], position % lanes) for position in positions], width
        )

    def gathered(self, dtype: np.dtype, chosen: Sequence[tuple[Value, int]], width: int) -> Value:
        """One piece from lanes of other pieces."""
        first = chosen[0][0]
        whole_piece = [lane for _, lane in chosen] == list(range(first.part.lanes.width))
        if whole_piece and all(value is first for value, _ in chosen):
            return first
        parts = []
        for number in range(len(first.parts)):
            registers = [(value.parts[number], lane) for value, lane in chosen]
            parts.append(self._register(registers, width))
        return Value(dtype, tuple(parts))

    def _register(self, chosen: Sequence[tuple[V, int]], width: int) -> V:
        lanes, element = self.emit(width).lanes, chosen[0][0].element
        if width == 1:
            register, lane = chosen[0]
            return V(lanes, element, register.lanes.extract(register, lane))
        sources = list({id(register): register for register, _ in chosen}.values())
        if len(sources) == 1 and sources[0].lanes.width == 1:
            return lanes.splat(sources[0].text, element)
        made: str | None = None
        for source in sources:
            wanted = [lane if register is source else None for register, lane in chosen]
            made = self._inserted(made, source, wanted, lanes)
        assert made is not None
        return V(lanes, element, made)

    def _inserted(self, made: str | None, source: V, wanted: Sequence[int | None], lanes: Lanes) -> str:
        """``made`` with the wanted lanes replaced by lanes of ``source``."""
        writer, type_ = self.writer, lanes.type(source.element)
        if source.lanes.width == 1:
            for slot, lane in enumerate(wanted):
                if lane is not None:
                    one = f"{source.element} {source.text}"
                    made = writer.op(f"insertelement {type_} {made or 'poison'}, {one}, i64 {slot}")
            assert made is not None
            return made
        moved = source.text
        if list(wanted) != list(range(source.lanes.width)):
            picks = ", ".join("i32 poison" if lane is None else f"i32 {lane}" for lane in wanted)
            wide = source.lanes.type(source.element)
            mask = f"<{len(wanted)} x i32> <{picks}>"
            moved = writer.op(f"shufflevector {wide} {source.text}, {wide} poison, {mask}")
        if made is None:
            return moved
        blend = [slot + (lanes.width if lane is not None else 0) for slot, lane in enumerate(wanted)]
        return lanes.shuffle(made, moved, source.element, blend, lanes.width)

    def splat(self, array: Array, width: int) -> Value:
        """An array of one element in every lane."""
        value = array.pieces[0]
        return value if width == 1 else Memory(self.emit(width).lanes, self.target).splat(value)

    def mapped(self, function: Callable[..., Value], args: Sequence[Array], size: int) -> list[Value]:
        """``function(emit, *values)`` piece by piece. Arrays of one element are splat."""
        pieces = []
        for number, width in enumerate(self.widths(size)):
            values = [arg.pieces[number] if arg.size == size else self.splat(arg, width) for arg in args]
            pieces.append(function(self.emit(width), *values))
        return pieces

    # memory

    def load(self, dtype: np.dtype, size: int, pointer: str) -> Array:
        """Consecutive elements."""
        pieces, at = [], 0
        for width in self.widths(size):
            memory, mask = self._memory(width, size - at)
            p = self.writer.element(whole(dtype), pointer, str(at))
            piece = memory.load(dtype, p, mask)
            if mask is not None:
                last = size - at - 1
                piece = self.gathered(dtype, [(piece, min(lane, last)) for lane in range(width)], width)
            pieces.append(piece)
            at += width
        return Array(dtype, size, tuple(pieces))

    def store(self, array: Array, pointer: str) -> None:
        at = 0
        for width, piece in zip(self.widths(array.size), array.pieces, strict=True):
            memory, mask = self._memory(width, array.size - at)
            memory.store(piece, self.writer.element(whole(array.dtype), pointer, str(at)), mask)
            at += width

    def _memory(self, width: int, left: int) -> tuple[Memory, Mask | None]:
        lanes = self.emit(width).lanes
        if left >= width:
            return Memory(lanes, self.target), None
        return Memory(lanes, self.target), Mask(str(left), self.mask(width, left))

    def mask(self, width: int, count: int) -> V:
        """The first ``count`` lanes."""
        return self.emit(width).lanes.flags([lane < count for lane in range(width)])

    # registers as text, for values that loops and branches carry

    def flatten(self, arrays: Sequence[Array]) -> list[tuple[str, str]]:
        """(LLVM type, text) of every register."""
        return [
            (part.lanes.type(part.element), part.text)
            for array in arrays
            for piece in array.pieces
            for part in piece.parts
        ]

    def rebuild(self, like: Sequence[Any], texts: Sequence[str]) -> list[Array]:
        """Arrays of the types ``like`` (``routine.Type``) in registers of these names."""
        rest, arrays = iter(texts), []
        for kind in like:
            element = elements.of(kind.dtype)
            pieces = []
            for width in self.widths(kind.size):
                lanes = self.emit(width).lanes
                parts = tuple(V(lanes, element.register, next(rest)) for _ in range(element.parts))
                pieces.append(Value(kind.dtype, parts))
            arrays.append(Array(kind.dtype, kind.size, tuple(pieces)))
        return arrays
