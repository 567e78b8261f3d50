"""Writes the text of an LLVM function: instructions, labels, loops, declarations.

All LLVM IR is written through this module and ``lanes``. A writer knows types only as strings. Functions are declared
when they are first called.

    w.loop("0", "%n", 4, [("float", "0.0")], body)
    # br / phi / guarded do-while, returns the carried values after the loop
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from weft._base.record import Record
from weft._base.target_model import Model
from weft.codegen.arithmetic.features import Native

Carried = Sequence[tuple[str, str]]  # (type, initial value)


class Kept(Record, frozen=False):
    """A value that a loop keeps: its names at the start of an iteration and now, and what is done with the last one."""

    first: str
    now: str
    type: str
    initial: str
    finish: Callable[[str], None]


def _phis(names: Sequence[str], begun: Carried, following: Sequence[str], before: str, latch: str) -> list[str]:
    """The values of a loop: those that it begins with, and after an iteration the following ones."""
    return [
        f"{name} = phi {type_} [ {initial}, %{before} ], [ {new}, %{latch} ]"
        for name, (type_, initial), new in zip(names, begun, following, strict=True)
    ]


class Writer:
    """Instructions of one function in order; ``block`` is the label of the block being filled."""

    __slots__ = (
        "aside", "block", "cold_branches", "count", "declarations", "entry", "functions", "held", "lines", "literals",
        "model", "native", "open_loops", "prepared", "scalar", "spills", "splats", "streams",
    )  # fmt: skip

    keeps_sums = True  # (x + c) - c is x rounded, and not simplified

    def __init__(self, model: Model, native: Native[Any], scalar: bool = False) -> None:
        self.model = model
        self.native = native
        self.scalar = scalar  # whether there are no vectors in the function
        self.lines: list[str] = []
        self.aside: list[str] = []  # rare blocks, after the others
        self.block = "entry"
        self.declarations: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # separate cold functions
        self.entry: list[str] = []  # instructions at the start of the function
        self.splats: dict[str, str] = {}  # vector -> the scalar that it holds in every lane
        self.prepared: dict[tuple[str, str], list[str]] = {}  # the results of ``beside``
        self.held: dict[tuple[str, str], str] = {}  # constant vectors: (type, value) -> name
        self.literals = False  # whether there are constant vectors that are not held
        self.cold_branches = False
        self.streams = False  # whether there are non-temporal stores
        self.spills = False  # whether there are rare blocks, which may call
        self.count = 0
        self.open_loops: list[dict[Any, Kept] | None] = []  # what each loop being written keeps, the innermost last

    def other(self) -> Writer:
        """A writer of another function, with vectors, for the same target."""
        return Writer(self.model, self.native)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def op(self, text: str) -> str:
        """Emit an instruction that gives a value, return its name."""
        self.count += 1
        result = f"%v{self.count}"
        self.lines.append(f"{result} = {text}")
        return result

    def line(self, text: str) -> None:
        self.lines.append(text)

    def label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def fresh_label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def branch(self, label: str) -> None:
        self.lines.append(f"br label %{label}")

    def branch_if(self, condition: str, yes: str, no: str, cold: bool = False) -> None:
        """A conditional branch; with ``cold``, ``yes`` is rarely taken."""
        self.cold_branches = self.cold_branches or cold
        self.lines.append(f"br i1 {condition}, label %{yes}, label %{no}" + (", !prof !0" if cold else ""))

    def alloca(self, type_: str) -> str:
        """Stack memory for the whole call, aligned to 64 bytes."""
        return self.once(f"alloca {type_}, align 64")

    def once(self, text: str) -> str:
        """Emit an instruction at the start of the function; it may use parameters and other values defined there."""
        self.count += 1
        result = f"%v{self.count}"
        self.entry.append(f"{result} = {text}")
        return result

    def hold(self, type_: str, constant: str) -> str:
        """A constant vector of 64 bytes, kept in a register throughout the function if there are few of them.

        That saves compile time: LLVM takes 150,000 instructions for each use of a constant, 40,000 for a load at the
        start.
        """
        return self.held.setdefault((type_, constant), f"%c{len(self.held)}") if self.model.held else constant

    def beside(self, value: str, purpose: str, write: Callable[[], list[str]]) -> list[str]:
        """The results of ``write``, whose instructions stand right after the one that defines ``value``.

        They are written once for each value and purpose, and contain no branches. So they are outside every loop in
        which ``value`` does not change; LLVM itself would leave integer divisions inside.
        """
        found = self.prepared.get((value, purpose))
        if found is None:
            at = next(k for k, line in enumerate(self.lines) if line.startswith(value + " = "))
            lines, self.lines = self.lines, []
            found = self.prepared[value, purpose] = write()
            lines[at] = "\n".join([lines[at], *self.lines])
            self.lines = lines
        return found

    def defines(self, value: str) -> bool:
        """Whether ``value`` is defined where ``beside`` finds it, and not in the part that is being written."""
        return any(line.startswith(value + " = ") for line in self.lines)

    def called(self, name: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of an LLVM intrinsic, which is declared on first use, as text."""
        if name not in self.declarations:
            types = ", ".join(map(itemgetter(0), arguments))
            self.declarations[name] = f"declare {result} @{name}({types})"
        return f"call {result} @{name}({', '.join(map(' '.join, arguments))})"

    def call(self, name: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Call an LLVM intrinsic."""
        text = self.called(name, result, arguments)
        if result == "void":
            self.lines.append(text)
            return ""
        return self.op(text)

    def prefetch(self, pointer: str) -> None:
        """Prefetch a cache line that is read soon; an invalid address is harmless."""
        hints = [("i32", "0"), ("i32", "3"), ("i32", "1")]  # to read, near, data
        self.call("llvm.prefetch.p0", "void", [("ptr", pointer), *hints])

    def stream(self, type_: str, value: str, pointer: str, align: int) -> None:
        """A non-temporal store."""
        self.streams = True
        self.lines.append(f"store {type_} {value}, ptr {pointer}, align {align}, !nontemporal !1")

    def phi(self, type_: str, *incoming: tuple[str, str]) -> str:
        """Incoming values as (value, label)."""
        return self.op(f"phi {type_} " + ", ".join(map("[ %s, %%%s ]".__mod__, incoming)))

    # 64-bit index arithmetic; literal operands fold

    def index(self, op: str, x: str, y: str) -> str:
        if op in ("add", "sub") and y == "0":
            return x
        if op == "add" and x == "0":
            return y
        if op == "mul" and "0" in (x, y):
            return "0"
        if op == "mul" and "1" in (x, y):
            return y if x == "1" else x
        return self.op(f"{op} i64 {x}, {y}")

    def compare_index(self, op: str, x: str, y: str) -> str:
        return self.op(f"icmp {op} i64 {x}, {y}")

    def choose_index(self, condition: str, yes: str, no: str) -> str:
        return self.op(f"select i1 {condition}, i64 {yes}, i64 {no}")

    def minimum_index(self, x: str, y: str) -> str:
        return self.choose_index(self.compare_index("slt", x, y), x, y)

    def maximum_index(self, x: str, y: str) -> str:
        return self.choose_index(self.compare_index("sgt", x, y), x, y)

    def load(self, type_: str, pointer: str, align: int = 0) -> str:
        """A load of one element; with ``align`` for less than its own alignment."""
        return self.op(f"load {type_}, ptr {pointer}" + (f", align {align}" if align else ""))

    def element(self, type_: str, pointer: str, index: str) -> str:
        """Pointer to element ``index``."""
        return pointer if index == "0" else self.op(f"getelementptr {type_}, ptr {pointer}, i64 {index}")

    def loop(
        self,
        low: str,
        high: str,
        step: int | str,
        carried: Carried,
        body: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """``for i in range(low, high, step)``, signed, with values carried from one iteration to the next.

        ``body(i, values)`` emits one iteration and returns the next values. The loop is skipped if empty.
        """
        head, done = self.fresh_label(), self.fresh_label()
        before = self.block
        self.branch_if(self.compare_index("slt", low, high), head, done)
        self.label(head)
        at = len(self.lines)
        index = self.name()
        values = [self.name() for _ in carried]
        self.open_loops.append({})
        following = body(index, values)
        kept = (self.open_loops.pop() or {}).values()
        latch = self.block
        next_index = self.op(f"add nsw i64 {index}, {step}")
        self.branch_if(self.compare_index("slt", next_index, high), head, done)
        phis = [f"{index} = phi i64 [ {low}, %{before} ], [ {next_index}, %{latch} ]"]
        for (type_, initial), value, new in zip(carried, values, following, strict=True):
            phis.append(f"{value} = phi {type_} [ {initial}, %{before} ], [ {new}, %{latch} ]")
        for one in kept:
            phis.append(f"{one.first} = phi {one.type} [ {one.initial}, %{before} ], [ {one.now}, %{latch} ]")
        self.lines[at:at] = phis
        self.label(done)
        results = [
            self.phi(type_, (initial, before), (new, latch))
            for (type_, initial), new in zip(carried, following, strict=True)
        ]
        ends = [self.phi(one.type, (one.initial, before), (one.now, latch)) for one in kept]
        for one, end in zip(kept, ends, strict=True):
            one.finish(end)
        return results

    def keep(self, key: Any, type_: str, initial: str, finish: Callable[[str], None]) -> Kept | None:
        """A value of the innermost loop being written, kept from iteration to iteration; None outside, and in a branch.

        It starts with ``initial``; ``now`` is the value in this iteration, which may be set to another. After the loop
        ``finish`` is called with the last one. Only code that runs in every iteration may change it.
        """
        found = self.open_loops[-1] if self.open_loops else None
        if found is None:
            return None
        if key not in found:
            first = self.name()
            found[key] = Kept(first, first, type_, initial, finish)
        return found[key]

    def repeat(self, high: str, carried: Carried, body: Callable[[str, list[str]], Sequence[str]]) -> None:
        """A loop that runs at least once, and while the first carried value is below ``high``.

        ``body(first, rest)`` takes the carried values and returns the next ones.
        """
        head, done, before = self.fresh_label(), self.fresh_label(), self.block
        self.branch(head)
        self.label(head)
        at = len(self.lines)
        values = [self.name() for _ in carried]
        following = body(values[0], values[1:])
        latch = self.block
        self.branch_if(self.compare_index("slt", following[0], high), head, done)
        self.lines[at:at] = _phis(values, carried, following, before, latch)
        self.label(done)

    def rounds(
        self, condition: str, bound: int, carried: Carried, body: Callable[[list[str]], tuple[Sequence[str], str]]
    ) -> list[str]:
        """A loop that runs while the condition holds, at most ``bound`` times; gives the carried values after it.

        ``body(values)`` emits one round and returns the next values and whether to go on (an i1).
        """
        head, done = self.fresh_label(), self.fresh_label()
        before = self.block
        self.branch_if(condition, head, done)
        self.label(head)
        at = len(self.lines)
        count = self.name()
        values = [self.name() for _ in carried]
        following, more = body(values)
        latch = self.block
        next_count = self.op(f"add nuw nsw i64 {count}, 1")
        within = self.compare_index("slt", next_count, str(bound))
        self.branch_if(self.op(f"and i1 {more}, {within}"), head, done)
        counted = [("i64", "0"), *carried]
        self.lines[at:at] = _phis([count, *values], counted, [next_count, *following], before, latch)
        self.label(done)
        return [
            self.phi(type_, (initial, before), (new, latch))
            for (type_, initial), new in zip(carried, following, strict=True)
        ]

    def either(self, condition: str, yes: Callable[[], Carried | None], no: Callable[[], Carried | None]) -> list[str]:
        """The values of ``yes()`` if the condition holds, otherwise those of ``no()``, which have the same types."""
        labels, done, ends = (self.fresh_label(), self.fresh_label()), self.fresh_label(), []
        self.branch_if(condition, *labels)
        for label, write in zip(labels, (yes, no), strict=True):
            self.label(label)
            self.open_loops.append(None)
            ends.append((write() or (), self.block))
            self.open_loops.pop()
            self.branch(done)
        self.label(done)
        (left, a), (right, b) = ends
        return [self.phi(type_, (x, a), (y, b)) for (type_, x), (_, y) in zip(left, right, strict=True)]

    def when(
        self,
        condition: str,
        cold: Callable[[], Sequence[str] | None],
        types: Sequence[str] = (),
        otherwise: Sequence[str] = (),
        rare: bool = True,
        aside: bool = False,
    ) -> list[str]:
        """Values of ``cold()`` if the (rare) condition holds, or ``otherwise``; ``aside``: at the function's end."""
        slow, join = self.fresh_label(), self.fresh_label()
        fast, self.spills = self.block, self.spills or rare
        self.branch_if(condition, slow, join, cold=rare)
        at = len(self.lines)
        self.label(slow)
        self.open_loops.append(None)
        values = cold() or ()
        self.open_loops.pop()
        end = self.block
        self.branch(join)
        if aside:
            self.aside += self.lines[at:]
            del self.lines[at:]
        self.label(join)
        return [self.phi(t, (no, fast), (yes, end)) for t, yes, no in zip(types, values, otherwise, strict=True)]
