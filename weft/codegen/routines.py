"""Compiles a ``loops.routine.Routine`` to one LLVM function with the signature of a kernel.

Loops have their state in phi nodes, branches become a switch. Only operands, and arrays that are sliced or updated at
run-time offsets, are in memory. Such an array that a loop carries has a place on the stack for all iterations, and is
updated there. Its elements are read when it is defined, for uses of the whole; LLVM drops what has no use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.target import Target
from weft.codegen import guards
from weft.codegen.emitter import Emitter, Value
from weft.codegen.instances import typed
from weft.codegen.lanes import Lanes, V
from weft.codegen.memory import Memory, whole
from weft.codegen.pieces import Array, Scope
from weft.codegen.writer import Writer
from weft.loops import elements, routine

PARAMETERS = (
    "ptr readonly %operands, ptr noalias readonly %params, ptr noalias readonly %table,"
    " ptr noalias readonly %range, ptr noalias %scratch"
)
ABORT = "abort"
POLL_MASK = (1 << 15) - 1  # iterations between checks for an interrupt
LANES = 32  # accumulators of the tree "lanes"

Values = tuple[Value, ...]


class RoutineWriter:
    """Writes one function. ``text()`` gives the module."""

    def __init__(self, program: routine.Routine, target: Target, helpers: Sequence[str]) -> None:
        self.program, self.target = program, target
        scalar = program.scalar or all(kind.size == 1 for kind in program.types)
        self.writer = Writer.of(target, scalar)
        self.writer.shares = True
        self.helpers = helpers
        self.scope = Scope(self.writer, target, helpers, 1 if scalar else target.lanes)
        self.values: dict[int, Array] = {}
        self.pointers: list[str] = []
        self.trips: list[str] = []
        self.extents: list[str] = []
        self.row: str | None = None  # the row of the enclosing loop's current iteration
        self.downwards = False  # whether that loop starts at the last row
        self.stops = False  # whether a loop may be left because of an interrupt
        self.steps = "0"  # the number of steps of the last loop written
        self.homes: dict[int, str] = {}  # values whose elements are on the stack now, and where
        self.written: frozenset[str] = frozenset()  # the places that belong to the innermost loop

    def text(self, symbol: str) -> str:
        self.load_parameters()
        self.run(self.program.block)
        return self.ended(symbol)

    def load_parameters(self) -> None:
        writer = self.writer
        for k in range(len(self.program.operands)):
            self.pointers.append(writer.op(f"load ptr, ptr {writer.element('ptr', '%operands', str(k))}, align 8"))
        numbers = self.program.trips + self.program.extents
        slots = [writer.element("i64", "%params", str(k)) for k in range(numbers)]
        loaded = [writer.op(f"load i64, ptr {slot}, align 8") for slot in slots]
        self.trips, self.extents = loaded[: self.program.trips], loaded[self.program.trips :]

    def ended(self, symbol: str) -> str:
        """The text of what was written."""
        if self.stops:
            self.writer.branch(ABORT)
            self.writer.label(ABORT)
        return self.writer.text(symbol, PARAMETERS)

    def run(self, block: routine.Block) -> list[Array]:
        for statement in block.statements:
            self.statement(statement)
        return [self.values[n] for n in block.results]

    def statement(self, s: Any) -> None:
        getattr(self, _STATEMENTS[type(s)])(s)

    def type(self, n: int) -> routine.Type:
        return self.program.types[n]

    # moving elements

    def constant(self, s: routine.Constant) -> None:
        kind = self.type(s.out)
        self.values[s.out] = self.scope.constant(np.frombuffer(s.bits, kind.dtype))

    def param(self, s: routine.Param) -> None:
        kind = self.type(s.out)
        slot = self.writer.element("i64", "%params", str(len(self.trips) + len(self.extents) + s.index))
        self.values[s.out] = self.scope.load(kind.dtype, 1, slot)

    def pick(self, s: routine.Pick) -> None:
        self.values[s.out] = self.scope.pick(
            self.type(s.out).dtype, [(self.values[value], element) for value, element in s.sources]
        )

    def pointer(self, operand: int, row: bool) -> str:
        base = self.pointers[operand]
        if not row:
            return base
        assert self.row is not None
        info = self.program.operands[operand]
        return self.writer.element(whole(info.dtype), base, self.writer.index("mul", self.row, str(info.size)))

    def read(self, s: routine.Read) -> None:
        kind = self.type(s.out)
        self.values[s.out] = self.scope.load(kind.dtype, kind.size, self.pointer(s.operand, s.row))

    def write(self, s: routine.Write) -> None:
        self.scope.store(self.values[s.value], self.pointer(s.operand, s.row))

    # computing

    def map(self, s: routine.Map) -> None:
        kind, params = self.type(s.out), dict(s.params)

        def compute(emit: Emitter, *args: Value) -> Values:
            return (typed(emit, s.kind.scalar(emit, *args, **params), kind.dtype),)

        (pieces,) = self.scope.mapped(compute, [self.values[n] for n in s.args], kind.size)
        self.values[s.out] = Array(kind.dtype, kind.size, tuple(pieces))

    def product(self, s: routine.Product) -> None:
        kind, scope = self.type(s.out), self.scope
        batch, m, n, k = s.extents
        lhs, rhs = self.values[s.lhs], self.values[s.rhs]
        grid = [(b, i, j) for b in range(batch) for i in range(m) for j in range(n)]
        total: list[Value] = []
        for step in range(k):
            left = scope.pick(kind.dtype, [(lhs, (b * m + i) * k + step) for b, i, _ in grid])
            right = scope.pick(kind.dtype, [(rhs, (b * k + step) * n + j) for b, _, j in grid])
            for number, width in enumerate(scope.widths(kind.size)):
                emit, pair = scope.emit(width), (left.pieces[number], right.pieces[number])
                if step == 0:
                    total.append(emit.mul(*pair))
                else:
                    total[number] = emit.fma(*pair, total[number])
        self.values[s.out] = Array(kind.dtype, kind.size, tuple(total))

    def fold(self, s: routine.Fold) -> None:
        if s.kept == 1 and s.outer == 1 and s.tree == "lanes":
            accs = self.folded_lanes(s, [self.values[n] for n in s.args])
        else:
            accs = self.folded_columns(s, [self.values[n] for n in s.args])
        params = dict(s.params)
        columns: list[list[Value]] = [[] for _ in s.outs]
        for number, width in enumerate(self.scope.widths(s.kept)):
            emit = self.scope.emit(width)
            finished = s.kind.finish(emit, tuple(acc[number] for acc in accs), **params)
            for column, value, out in zip(columns, finished, s.outs, strict=True):
                column.append(typed(emit, value, self.type(out).dtype))
        for out, column in zip(s.outs, columns, strict=True):
            self.values[out] = Array(self.type(out).dtype, s.kept, tuple(column))

    def combined(self, s: Any, emit: Emitter, left: Values, right: Values) -> Values:
        return tuple(emit.settle(v) for v in s.kind.combine(emit, left, right, **dict(s.params)))

    def prepared(self, s: routine.Fold, emit: Emitter, args: Values, index: Value | None) -> Values:
        return tuple(emit.settle(v) for v in s.kind.prepare(emit, args, index, **dict(s.params)))

    def identities(self, s: Any, emit: Emitter) -> Values:
        return tuple(emit.const(identity, dtype) for dtype, identity in s.accumulators)

    def folded_lanes(self, s: routine.Fold, args: list[Array]) -> list[list[Value]]:
        """Fold a whole row by 32 lane accumulators; those without an element are left out."""
        scope, used = self.scope, min(s.run, LANES)
        width = min(1 << (used - 1).bit_length(), scope.lanes)
        emit = scope.emit(width)
        count = -(-used // width)
        accs = [self.identities(s, emit) for _ in range(count)]
        for at in range(0, s.run, width):
            here = min(width, s.run - at)
            places = [s.place(0, 0, at + min(lane, here - 1)) for lane in range(width)]
            values = tuple(scope.piece(arg, places, width) for arg in args)
            index = None
            if s.kind.needs_index:
                index = scope.constant_piece(np.arange(at, at + width, dtype=np.int64), width)
            slot = at // width % count
            new = self.combined(s, emit, accs[slot], self.prepared(s, emit, values, index))
            accs[slot] = new if here == width else self.where(new, accs[slot], here, width)
        half = 1 << (count - 1).bit_length() >> 1
        while half:
            for k in range(len(accs) - half):
                accs[k] = self.combined(s, emit, accs[k], accs[k + half])
            del accs[half:]
            half //= 2
        acc = accs[0]
        while width > 1:
            half = width // 2
            left = tuple(scope.gathered(v.dtype, [(v, lane) for lane in range(half)], half) for v in acc)
            right = tuple(scope.gathered(v.dtype, [(v, lane) for lane in range(half, width)], half) for v in acc)
            acc, width = self.combined(s, scope.emit(half), left, right), half
        one = scope.emit(1)
        acc = self.combined(s, one, self.identities(s, one), acc)
        return [[value] for value in acc]

    def where(self, new: Values, old: Values, count: int, width: int) -> Values:
        """``new`` in the first lanes."""
        lanes = self.scope.emit(width).lanes
        mask = self.scope.mask(width, count)
        return tuple(
            Value(n.dtype, tuple(lanes.select(mask, a, b) for a, b in zip(n.parts, o.parts, strict=True)))
            for n, o in zip(new, old, strict=True)
        )

    def folded_columns(self, s: routine.Fold, args: list[Array]) -> list[list[Value]]:
        """Fold rows elementwise: every accumulator is an array over the kept elements."""
        scope = self.scope
        sizes = scope.widths(s.kept)
        total: list[Values] = [self.identities(s, scope.emit(width)) for width in sizes]
        for outer in range(s.outer):
            lanes: list[list[Values] | None] = [None] * (LANES if s.tree == "lanes" else 1)
            for i in range(s.run):
                element = [scope.pick(arg.dtype, [(arg, s.place(k, outer, i)) for k in range(s.kept)]) for arg in args]
                slot = i % len(lanes)
                lanes[slot] = self.stepped(s, sizes, lanes[slot], element, i)
            half = len(lanes) // 2
            while half:
                for k in range(half):
                    other = lanes[k + half]
                    if other is not None:
                        mine = lanes[k]
                        assert mine is not None
                        lanes[k] = self.joined(s, sizes, mine, other)
                half //= 2
            assert lanes[0] is not None
            total = self.joined(s, sizes, total, lanes[0])
        return [[acc[number] for acc in total] for number in range(len(s.accumulators))]

    def stepped(
        self, s: routine.Fold, sizes: list[int], accs: list[Values] | None, element: list[Array], i: int
    ) -> list[Values]:
        made = []
        for number, width in enumerate(sizes):
            emit = self.scope.emit(width)
            index = emit.const(i, elements.INT64) if s.kind.needs_index else None
            values = self.prepared(s, emit, tuple(array.pieces[number] for array in element), index)
            made.append(self.combined(s, emit, self.identities(s, emit) if accs is None else accs[number], values))
        return made

    def joined(self, s: routine.Fold, sizes: list[int], left: list[Values], right: list[Values]) -> list[Values]:
        return [self.combined(s, self.scope.emit(width), a, b) for width, a, b in zip(sizes, left, right, strict=True)]

    def running(self, s: routine.Running) -> None:
        scope, args, params = self.scope, [self.values[n] for n in s.args], dict(s.params)
        rest = args[0].size // s.run
        state: list[Values] = [self.identities(s, scope.emit(width)) for width in scope.widths(rest)]
        rows: list[list[Array]] = [[] for _ in s.outs]
        for i in range(s.run):
            element = [scope.pick(arg.dtype, [(arg, i * rest + k) for k in range(rest)]) for arg in args]
            columns: list[list[Value]] = [[] for _ in s.outs]
            for number, width in enumerate(scope.widths(rest)):
                emit = scope.emit(width)
                wide = tuple(
                    emit.convert(array.pieces[number], dtype)
                    for array, (dtype, _) in zip(element, s.accumulators, strict=True)
                )
                state[number] = self.combined(s, emit, state[number], wide)
                finished = s.kind.finish(emit, state[number], **params)
                for column, value, out in zip(columns, finished, s.outs, strict=True):
                    column.append(typed(emit, value, self.type(out).dtype))
            for row, column, out in zip(rows, columns, s.outs, strict=True):
                row.append(Array(self.type(out).dtype, rest, tuple(column)))
        for row, out in zip(rows, s.outs, strict=True):
            places = [(row[i], k) for i in range(s.run) for k in range(rest)]
            self.values[out] = scope.pick(self.type(out).dtype, places)

    # run-time offsets

    def guard(self, s: routine.Guard) -> None:
        for piece in self.values[s.value].pieces:
            guards.tell(piece.part.lanes, piece.part, self.pointers[-1])

    def offset(self, starts: Sequence[tuple[int, Any, Any]], guarded: bool) -> str:
        """The sum of the clamped starts times their strides (numbers, or names of i64), as i64."""
        writer, total = self.writer, "0"
        for value, most, stride in starts:
            unsigned = self.type(value).dtype.kind == "u"
            start = self.one(value)
            text = start.text
            if start.element != "i64":
                text = writer.op(f"{'zext' if unsigned else 'sext'} {start.element} {text} to i64")
            minimum, maximum = ("umin", "umax") if unsigned else ("smin", "smax")
            given = text
            text = writer.call(f"llvm.{minimum}.i64", "i64", [("i64", text), ("i64", str(most))])
            text = writer.call(f"llvm.{maximum}.i64", "i64", [("i64", text), ("i64", "0")])
            if guarded:
                one = Lanes(writer, 1)
                guards.tell(one, V(one, "i1", writer.op(f"icmp ne i64 {given}, {text}")), self.pointers[-1])
            total = writer.index("add", total, writer.index("mul", text, str(stride)))
        return total

    def spilled(self, array: Array) -> str:
        """A pointer to the array's elements, stored on the stack."""
        element = elements.of(array.dtype)
        room = sum(self.scope.widths(array.size)) * element.size
        buffer = self.writer.alloca(f"[{room} x i8]")
        self.scope.store(array, buffer)
        return buffer

    def slice(self, s: routine.Slice) -> None:
        kind, writer = self.type(s.out), self.writer
        base = self.source(s)
        starts: Sequence[tuple[int, Any, Any]] = s.starts
        if s.value is None:
            sizes = self.extents
            starts = [(start, sizes[most], 1 if stride is None else sizes[stride]) for start, most, stride in s.starts]
        base = writer.element(whole(kind.dtype), base, self.offset(starts, s.guarded))
        self.values[s.out] = self.loaded(kind, base, s.offsets)

    def source(self, s: routine.Slice | routine.Take) -> str:
        """A pointer to the elements of what is sliced."""
        value = s.value
        if value is None:
            assert s.operand is not None
            return self.pointers[s.operand]
        if value not in self.homes:
            self.homes[value] = self.spilled(self.values[value])
        return self.homes[value]

    def take(self, s: routine.Take) -> None:
        kind, base, pieces = self.type(s.out), self.source(s), []
        for width, place in zip(self.scope.widths(kind.size), self.values[s.place].pieces, strict=True):
            memory = Memory(self.scope.emit(width).lanes, self.target)
            if width == 1:
                at = self.writer.op(f"getelementptr {whole(kind.dtype)}, ptr {base}, i32 {place.part.text}")
                pieces.append(memory.load_scalar(kind.dtype, at))
            else:
                pieces.append(memory.load_at(kind.dtype, base, place.part))
        self.values[s.out] = Array(kind.dtype, kind.size, tuple(pieces))

    def loaded(self, kind: routine.Type, base: str, offsets: tuple[int, ...]) -> Array:
        """The elements at these offsets."""
        if offsets == tuple(range(kind.size)):
            return self.scope.load(kind.dtype, kind.size, base)
        pointers = [self.writer.element(whole(kind.dtype), base, str(offset)) for offset in offsets]
        return self.scope.pick(kind.dtype, [(self.scope.load(kind.dtype, 1, pointer), 0) for pointer in pointers])

    def one(self, n: int) -> V:
        """The register of a scalar."""
        return self.values[n].pieces[0].part

    def update(self, s: routine.Update) -> None:
        kind, writer, update = self.type(s.out), self.writer, self.values[s.update]
        buffer = self.homes.get(s.value)
        if buffer in self.written:
            self.leave(buffer)
            self.homes[s.out] = buffer
        else:
            buffer = self.spilled(self.values[s.value])
        base = writer.element(whole(kind.dtype), buffer, self.offset(s.starts, s.guarded))
        if s.offsets == tuple(range(update.size)):
            self.scope.store(update, base)
        else:
            for k, offset in enumerate(s.offsets):
                one = self.scope.pick(kind.dtype, [(update, k)])
                self.scope.store(one, writer.element(whole(kind.dtype), base, str(offset)))
        self.values[s.out] = self.scope.load(kind.dtype, kind.size, buffer)

    def leave(self, buffer: str) -> None:
        """The values at this place are no longer there."""
        self.homes = {n: place for n, place in self.homes.items() if place != buffer}

    def settled(self, s: routine.Repeat) -> dict[int, str]:
        """Store arrays that the loop slices or updates; the places of those of its state, by their number."""
        inner = [*routine.statements(s.body), *(routine.statements(s.cond) if s.cond is not None else ())]
        sources = [one.value for one in inner if isinstance(one, routine.Slice | routine.Take)]
        sliced = {n for n in sources if n is not None}
        for n in (sliced & self.values.keys()) - self.homes.keys():
            self.homes[n] = self.spilled(self.values[n])
        kept = set(s.body.arguments)
        for one in s.body.statements:
            kept |= {one.out} if isinstance(one, routine.Update) else set()
            kept |= set(one.outs) if isinstance(one, routine.Choose) else set()
        moving = sliced | {one.value for one in inner if isinstance(one, routine.Update)}
        tested = s.cond.arguments if s.cond is not None else s.body.arguments
        rows = enumerate(zip(s.body.results, s.body.arguments, tested, strict=True))
        own = [k for k, (result, *row) in rows if result in kept and moving.intersection(row)]
        return {k: self.spilled(self.values[s.initial[k]]) for k in own if self.type(s.initial[k]).size > 1}

    # control flow

    def repeat(self, s: routine.Repeat) -> None:
        writer, outer_scope, outer_row = self.writer, self.scope, (self.row, self.downwards)
        head, body, done = writer.fresh_label(), writer.fresh_label(), writer.fresh_label()
        outer_homes, outer_written = self.homes, self.written
        places = self.settled(s)
        before = writer.block
        initial = outer_scope.flatten([self.values[n] for k, n in enumerate(s.initial) if k not in places])
        held = [_held(writer, type_) for type_, _ in initial]
        first = _widened(writer, initial, held)
        writer.branch(head)
        writer.label(head)
        at = len(writer.lines)
        count = writer.name()
        names = [writer.name() for _ in initial]
        types = [self.type(n) for n in s.body.arguments]

        def state() -> list[Array]:
            """In a block of its own: a mask that comes from another block would be taken apart, lane by lane."""
            kept = zip(initial, held, names, strict=True)
            texts = [
                name if type_ == to else writer.op(f"icmp ne {to} {name}, zeroinitializer")
                for (type_, _), to, name in kept
            ]
            arrays = iter(outer_scope.rebuild([kind for k, kind in enumerate(types) if k not in places], texts))
            near = outer_scope.inner()
            return [
                near.load(kind.dtype, kind.size, places[k]) if k in places else next(arrays)
                for k, kind in enumerate(types)
            ]

        self.written = frozenset()
        goes_on = self.test(s, state(), places, count)
        writer.branch_if(goes_on, body, done)
        writer.label(body)
        self.scope, self.row, self.downwards = outer_scope.inner(), count, s.reverse
        if s.reverse and s.trips is not None:
            last = writer.index("sub", self.trips[s.trips], "1")
            self.row = writer.index("sub", last, count)
        self.values.update(zip(s.body.arguments, state(), strict=True))
        self.homes.update({s.body.arguments[k]: place for k, place in places.items()})
        self.written = frozenset(places.values())
        results = self.run(s.body)
        self.return_home(s, places, results)
        following = [result for k, result in enumerate(results) if k not in places]
        following = _widened(writer, self.scope.flatten(following), held)
        counted = writer.op(f"add nsw i64 {count}, 1")
        self.poll(counted)
        latch = writer.block
        writer.branch(head)
        phis = [f"{count} = phi i64 [ 0, %{before} ], [ {counted}, %{latch} ]"]
        for to, name, old, new in zip(held, names, first, following, strict=True):
            phis.append(f"{name} = phi {to} [ {old}, %{before} ], [ {new}, %{latch} ]")
        writer.lines[at:at] = phis
        writer.label(done)
        self.scope = outer_scope.inner()
        self.row, self.downwards = outer_row
        self.homes, self.written = outer_homes, outer_written
        self.values.update(zip(s.outs, state(), strict=True))
        self.steps = count

    def return_home(self, s: routine.Repeat, places: dict[int, str], results: Sequence[Array]) -> None:
        """Store what the loop's next iteration finds at the places, unless it is there."""
        for k, place in places.items():
            if self.homes.get(s.body.results[k]) != place:
                self.scope.store(results[k], place)

    def poll(self, count: str) -> None:
        """Check now and then whether to stop; if so, the results are discarded."""
        low = self.writer.index("and", count, str(POLL_MASK))
        self.look(self.writer.compare_index("eq", low, "0"))

    def look(self, due: str) -> None:
        """Ask the runtime whether to stop, if ``due``."""
        writer = self.writer
        look, stay = writer.fresh_label(), writer.fresh_label()
        writer.branch_if(due, look, stay, cold=True)
        writer.label(look)
        (stop,) = Emitter(Lanes(writer, 1), "%table", self.helpers).call("poll", [], [("i32", 1)])
        writer.branch_if(writer.op(f"icmp ne i32 {stop.text}, 0"), ABORT, stay, cold=True)
        writer.label(stay)
        self.stops = True

    def test(self, s: routine.Repeat, state: list[Array], places: dict[int, str], count: str) -> str:
        """Whether the loop continues, as i1."""
        if s.cond is None:
            assert s.trips is not None
            return self.writer.compare_index("slt", count, self.trips[s.trips])
        self.scope = self.scope.inner()
        self.values.update(zip(s.cond.arguments, state, strict=True))
        self.homes.update({s.cond.arguments[k]: place for k, place in places.items()})
        (result,) = self.run(s.cond)
        return self.holds(s, result)

    def holds(self, s: routine.Repeat, result: Array) -> str:
        return result.pieces[0].part.text

    def choose(self, s: routine.Choose) -> None:
        writer, outer_scope = self.writer, self.scope
        labels, join = [writer.fresh_label() for _ in s.blocks], writer.fresh_label()
        index = self.one(s.index).text
        index = writer.call("llvm.smax.i32", "i32", [("i32", index), ("i32", "0")])
        cases = " ".join(f"i32 {k}, label %{label}" for k, label in enumerate(labels[:-1]))
        writer.line(f"switch i32 {index}, label %{labels[-1]} [ {cases} ]")
        incoming: list[tuple[str, list[list[tuple[str, str]]]]] = []
        outer_homes, homes = self.homes, []
        for label, block in zip(labels, s.blocks, strict=True):
            writer.label(label)
            self.scope, self.homes = outer_scope.inner(), dict(outer_homes)
            registers = [self.scope.flatten([array]) for array in self.run(block)]
            incoming.append((writer.block, registers))
            homes.append(self.homes)
            writer.branch(join)
        writer.label(join)
        self.homes = {n: place for n, place in outer_homes.items() if all(one.get(n) == place for one in homes)}
        places = [self.common_home(s, k, homes) for k in range(len(s.outs))]
        texts: list[list[str]] = [[] for _ in s.outs]
        for k in [k for k, place in enumerate(places) if place is None]:
            for j, (type_, _) in enumerate(incoming[0][1][k]):
                texts[k].append(writer.phi(type_, *((registers[k][j][1], label) for label, registers in incoming)))
        self.scope = outer_scope.inner()
        for n, place, given in zip(s.outs, places, texts, strict=True):
            kind = self.type(n)
            if place is None:
                (self.values[n],) = self.scope.rebuild([kind], given)
            else:
                self.values[n], self.homes[n] = self.scope.load(kind.dtype, kind.size, place), place

    def common_home(self, s: routine.Choose, k: int, homes: Sequence[dict[int, str]]) -> str | None:
        """The place of result ``k`` if every block leaves it at the same one."""
        first, *others = [home.get(block.results[k]) for home, block in zip(homes, s.blocks, strict=True)]
        return first if all(other == first for other in others) else None


_STATEMENTS = {
    routine.Constant: "constant",
    routine.Param: "param",
    routine.Pick: "pick",
    routine.Spread: "spread",
    routine.Map: "map",
    routine.Fold: "fold",
    routine.Running: "running",
    routine.Product: "product",
    routine.Read: "read",
    routine.Write: "write",
    routine.Slice: "slice",
    routine.Take: "take",
    routine.Update: "update",
    routine.Repeat: "repeat",
    routine.Choose: "choose",
    routine.Guard: "guard",
}


def _held(writer: Writer, type_: str) -> str:
    """The type in which a loop holds a value: masks as numbers where there are no registers for masks."""
    return type_.replace("x i1>", "x i32>") if not writer.avx512 else type_


def _widened(writer: Writer, values: Sequence[tuple[str, str]], held: Sequence[str]) -> list[str]:
    """(type, value) as these types."""
    return [
        text if to == type_ else writer.op(f"sext {type_} {text} to {to}")
        for (type_, text), to in zip(values, held, strict=True)
    ]
