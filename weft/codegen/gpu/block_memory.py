"""What the threads of one block do with memory in a loop that it runs whole: addresses, copies, run-time offsets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft._base.target import Target
from weft.codegen.cpu import families
from weft.codegen.gpu import starts, threads
from weft.loops.gpu.resident import Location, Offset, Resident


class BlockMemory:
    """What all threads of one block do with memory: addresses, copies, offsets found at run time."""

    def __init__(self, program: Resident, target: Target) -> None:
        self.program, self.target = program, target
        self.writer = families.writer(target)
        self.thread = ""
        self.bases: dict[int, str] = {}
        self.moved: dict[int, str] = {}

    def address(self, location: Location) -> str:
        pointer = self.bases[location.base]
        if location.offset is not None:
            pointer = self.writer.element("i8", pointer, f"%w{location.offset}")
        for number in location.moved:
            pointer = self.writer.element("i8", pointer, self.moved[number])
        return pointer

    def over(self, count: str, step: int, body: Callable[[str], None]) -> None:
        """``body(i)`` for i = 0, step, 2 step, ... below a count, shared by all threads."""
        first = self.writer.index("mul", self.thread, str(step))
        self.writer.loop(first, count, step * self.program.threads, [], lambda i, _: (body(i), [])[1])

    def copy(self, to: str, source: str, nbytes: str) -> None:
        """Bytes, four at a time where all is a multiple of four."""

        def one(type_: str, i: str) -> str:
            return self.writer.load(type_, self.writer.element("i8", source, i))

        self._store_all(to, [source], nbytes, one)

    def fill(self, to: str, byte: int, nbytes: str) -> None:
        """The same byte everywhere, four at a time likewise."""
        bytes_ = np.full(4, byte, np.uint8)
        values = {"i32": bytes_.view(np.int32)[0], "i8": bytes_.view(np.int8)[0]}
        self._store_all(to, [], nbytes, lambda type_, _: str(values[type_]))

    def _store_all(self, to: str, sources: list[str], nbytes: str, value: Callable[[str, str], str]) -> None:
        """``value(type, i)`` for byte i and following ones; ``sources``: what has to be aligned too."""
        writer, bits = self.writer, nbytes
        for pointer in (to, *sources):
            bits = writer.op(f"or i64 {writer.op(f'ptrtoint ptr {pointer} to i64')}, {bits}")
        whole = writer.compare_index("eq", writer.index("and", bits, "3"), "0")

        def by(type_: str, step: int) -> None:
            def one(i: str) -> None:
                given = value(type_, i)
                writer.line(f"store {type_} {given}, ptr {writer.element('i8', to, i)}")

            self.over(nbytes, step, one)

        writer.either(whole, lambda: by("i32", 4), lambda: by("i8", 1))

    def offset(self, step: Offset) -> None:
        """Every thread computes it."""
        writer = self.writer
        terms = [
            (self.address(location), dtype, f"%w{most}", f"%w{stride}") for location, dtype, most, stride in step.terms
        ]
        total, clamped = starts.offset_of(writer, terms)
        self.moved[step.number] = total
        if step.flag is not None:
            first = writer.op(f"and i1 {clamped}, {writer.compare_index('eq', self.thread, '0')}")
            flag = self.address(step.flag)
            threads.when(writer, first, lambda: writer.line(f"store i8 1, ptr {flag}"))
