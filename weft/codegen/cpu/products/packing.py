"""The kernels that copy an operand of a product to where tiles read it, widening what is narrower than its sums."""

from __future__ import annotations

from .lanes import NARROW, Lanes, Some
from .tiles import PANEL, ROWS_AHEAD, VECTORS
from .writer import BYTES, Fields, Function, Module, Value


def source_bytes(e: Lanes, source: str) -> int:
    """Bytes of an element in memory."""
    return BYTES[NARROW[source][0]] if source in NARROW else e.item


def one_element(f: Function, e: Lanes, source: str, place: Value) -> Value:
    """A single element, widened."""
    if source not in NARROW:
        return f.load(e.element, place)
    element, how = NARROW[source]
    value = f.load(element, place)
    if how != "bfloat16":
        return value.cast(how, e.scalar)
    word = value.cast("zext", "i32")
    return f.emit("i32", f"shl i32 {word.text}, 16").cast("bitcast", "float")


def pack(module: Module, e: Lanes, name: str, source: str) -> Function:
    """to[step * pitch + x] = source[step, x] for x < width, zero up to ``padded``: see GemmPanel."""
    return Packing(module.function(f"{name}_pack_{source}", ["ptr"]), e, source).write()


class Packing:
    """The ways in which an operand's elements lie: columns side by side, terms side by side, neither."""

    def __init__(self, f: Function, e: Lanes, source: str) -> None:
        self.f, self.e, self.source, self.bytes = f, e, source, source_bytes(e, source)
        self.fields = panel = Fields(f, f.arguments[0], PANEL)
        self.k, self.width, self.padded = panel["k"], panel["width"], panel["padded"]
        self.pitch, self.step = panel["pitch"] * e.item, panel["k_stride"] * self.bytes

    def write(self) -> Function:
        """The whole kernel: it takes the way in which the elements lie."""
        side_by_side = self.fields["x_stride"].equals(1) & self.fields["lines"].equals("null")
        along = self.fields["k_stride"].equals(1)
        self.f.either(side_by_side, self.copy, lambda: self.f.either(along, self.turn, self.one_by_one))
        return self.f

    def copy(self) -> None:
        """Row by row; those of a whole tile without counting their vectors."""
        whole = VECTORS * self.e.width
        tile = self.width.equals(whole) & self.padded.equals(whole)
        self.f.either(tile, self._copy_tile, self._copy_rows)

    def _copy_tile(self) -> None:
        """Rows of a tile's vectors: few rows of the other operand meet them, so that copying is most of the time."""
        f, e = self.f, self.e
        row, out = f.variable("ptr", self.fields["source"]), f.variable("ptr", self.fields["to"])
        ahead = self.step * ROWS_AHEAD
        with f.each(self.k):
            for v in range(VECTORS):
                place = row.value + v * e.width * self.bytes
                f.prefetch(place + ahead)
                e.store(f, out.value + v * e.machine.bytes, e.widen(f, self.source, place))
            row.add(self.step)
            out.add(self.pitch)

    def _copy_rows(self) -> None:
        """Rows of any length."""
        f, e, w = self.f, self.e, self.e.width
        row, out = f.variable("ptr", self.fields["source"]), f.variable("ptr", self.fields["to"])
        ahead, whole = self.step * ROWS_AHEAD, self.width.least(self.padded) - (w - 1)
        with f.each(self.k):
            x, source, to = f.variable("i64", 0), f.variable("ptr", row.value), f.variable("ptr", out.value)

            def advance(x=x, source=source, to=to) -> None:
                x.add(w)
                source.add(w * self.bytes)
                to.add(e.machine.bytes)

            with f.loop(lambda x=x: x.value < whole):
                f.prefetch(source.value + ahead)
                e.store(f, to.value, e.widen(f, self.source, source.value))
                advance()
            with f.loop(lambda x=x: x.value < self.padded):
                left = (self.width - x.value).least(w)
                v = f.variable(e.vector, "zeroinitializer")
                with f.when(left > 0):
                    v.set(e.widen(f, self.source, source.value, e.some(f, left)))
                e.store(f, to.value, v.value, e.some(f, (self.padded - x.value).least(w)))
                advance()
            row.add(self.step)
            out.add(self.pitch)

    def _line(self, x: Value) -> Value:
        """Where line x begins."""
        f, lines = self.f, self.fields["lines"]
        offset = f.variable("i64", 0)

        def listed() -> None:
            offset.set(f.load("i64", lines + x * 8))

        f.either(lines.equals("null"), lambda: offset.set(x * self.fields["x_stride"]), listed)
        return self.fields["source"] + offset.value * self.bytes

    def turn(self) -> None:
        """Squares of lines, turned."""
        f, e, w = self.f, self.e, self.e.width
        x, to = f.variable("i64", 0), f.variable("ptr", self.fields["to"])
        lines, square = f.place("ptr", w), f.place(e.vector, w)
        with f.loop(lambda: x.value < self.padded):
            n, room = (self.width - x.value).least(w), (self.padded - x.value).least(w)
            first = self._line(x.value)
            for r in range(w):  # lines that are not there are read again where nobody reads what becomes of them
                f.store(lines + r * 8, first)
            with f.each(n - 1) as r:
                f.store(lines + r * 8 + 8, self._line(x.value + r + 1))
            step, out = f.variable("i64", 0), f.variable("ptr", to.value)
            with f.loop(lambda: step.value < self.k):
                steps, offset = (self.k - step.value).least(w), step.value * self.bytes
                rows = [f.variable(e.vector, "zeroinitializer") for _ in range(w)]

                def load(mask: Some | None, rows=rows, offset=offset, n=n) -> None:
                    for r, row in enumerate(rows):
                        with f.when(n > r):
                            row.set(e.widen(f, self.source, f.load("ptr", lines + r * 8) + offset, mask))

                def square_of(rows=rows, offset=offset) -> None:
                    for r, row in enumerate(rows):
                        row.set(e.widen(f, self.source, f.load("ptr", lines + r * 8) + offset))

                def part(steps=steps) -> None:
                    f.either(steps.equals(w), lambda: load(None), lambda: load(e.some(f, steps)))

                f.either(room.equals(n) & steps.equals(w), square_of, part)
                turned = e.turned(f, [row.value for row in rows])

                def direct(some: Some | None, turned=turned, out=out) -> None:
                    for value in turned:
                        e.store(f, out.value, value, some)
                        out.add(self.pitch)

                def apart(turned=turned, out=out, steps=steps, room=room) -> None:
                    for r, value in enumerate(turned):
                        f.store(square + r * e.machine.bytes, value)
                    with f.each(steps) as r:
                        e.store(f, out.value, f.load(e.vector, square + r * e.machine.bytes), e.some(f, room))
                        out.add(self.pitch)

                def all_(room=room) -> None:
                    f.either(room.equals(w), lambda: direct(None), lambda: direct(e.some(f, room, partly=True)))

                f.either(steps.equals(w), all_, apart)
                step.add(w)
            x.add(w)
            to.add(e.machine.bytes)

    def one_by_one(self) -> None:
        """Elements that lie apart."""
        f, e = self.f, self.e
        out, before = f.variable("ptr", self.fields["to"]), f.variable("i64", 0)
        with f.each(self.k):
            with f.each(self.padded) as x:
                place = out.value + x * e.item
                one = f.variable(e.element, "zeroinitializer")
                with f.when(x < self.width):
                    one.set(one_element(f, e, self.source, self._line(x) + before.value))
                f.store(place, one.value)
            before.add(self.step)
            out.add(self.pitch)


def pack_pairs(module: Module, e: Lanes, name: str) -> Function:
    """The same where a packed element is the pair of bfloat16 of an even step and the next one, or of 0."""
    return PairsPacking(module.function(f"{name}_pack_pairs", ["ptr"]), e).write()


class PairsPacking(Packing):
    """The same ways for pairs, whose lanes are as wide as two elements."""

    def __init__(self, f: Function, e: Lanes) -> None:
        super().__init__(f, e, "E")
        self.steps = f.emit("i64", f"lshr i64 {(self.k + 1).text}, 1")
        self.words = f"<{e.width} x i32>"

    def _loaded(self, count: Value, lanes: int, place: Value) -> Value:
        """So many elements that follow each other, the rest zero."""
        f, type_ = self.f, f"<{lanes} x i16>"
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        bound = f.splat(count, lanes)
        mask = f.emit(f"<{lanes} x i1>", f"icmp slt <{lanes} x i64> <{numbers}>, {bound.text}")
        aligned = f"ptr align 2 {place.text}"
        return f.call(f"llvm.masked.load.v{lanes}i16.p0", type_, aligned, mask, f"{type_} zeroinitializer")

    def copy(self) -> None:
        """Rows in twos, interleaved."""
        f, e, w, words = self.f, self.e, self.e.width, self.words
        row, out = f.variable("ptr", self.fields["source"]), f.variable("ptr", self.fields["to"])
        sixteen = f.splat(Value(f, "i32", "16"), w).text
        with f.each(self.steps) as at:
            x, second = f.variable("i64", 0), at * 2 + 1 < self.k
            with f.loop(lambda x=x: x.value < self.padded):
                low, count = row.value + x.value * 2, self.width - x.value
                f.prefetch(low + self.step * ROWS_AHEAD)
                even = self._loaded(count, w, low).cast("zext", words)
                odd = self._loaded(f.select(second, count, f.number(0)), w, low + self.step).cast("zext", words)
                both = even | f.emit(words, f"shl {words} {odd.text}, {sixteen}")
                some = e.some(f, (self.padded - x.value).least(w))
                e.store(f, out.value + x.value * 4, both.cast("bitcast", e.vector), some)
                x.add(w)
            row.add(self.step * 2)
            out.add(self.pitch)

    def turn(self) -> None:
        """Squares of lines, turned."""
        f, e, w = self.f, self.e, self.e.width
        square, x = f.place(e.vector, w), f.variable("i64", 0)
        with f.loop(lambda: x.value < self.padded):
            at = f.variable("i64", 0)
            with f.loop(lambda at=at: at.value < self.steps):
                for r in range(w):
                    f.store(square + r * e.machine.bytes, Value(f, e.vector, "zeroinitializer"))
                with f.each((self.width - x.value).least(w)) as r:
                    pairs = self._loaded(self.k - at.value * 2, 2 * w, self._line(x.value + r) + at.value * 4)
                    f.store(square + r * e.machine.bytes, pairs.cast("bitcast", e.vector))
                rows = [f.load(e.vector, square + r * e.machine.bytes) for r in range(w)]
                for r, value in enumerate(e.turned(f, rows)):
                    f.store(square + r * e.machine.bytes, value)
                some = e.some(f, (self.padded - x.value).least(w))
                with f.each((self.steps - at.value).least(w)) as r:
                    place = self.fields["to"] + (at.value + r) * self.pitch + x.value * 4
                    e.store(f, place, f.load(e.vector, square + r * e.machine.bytes), some)
                at.add(w)
            x.add(w)

    def one_by_one(self) -> None:
        """Elements that lie apart."""
        f = self.f
        with f.each(self.steps) as at, f.each(self.padded) as x:
            pair = f.variable("i32", 0)
            with f.when(x < self.width):
                low = self._line(x) + at * 2 * self.step
                pair.set(f.load("i16", low).cast("zext", "i32"))
                with f.when(at * 2 + 1 < self.k):
                    odd = f.load("i16", low + self.step).cast("zext", "i32")
                    pair.set(pair.value | f.emit("i32", f"shl i32 {odd.text}, 16"))
            f.store(self.fields["to"] + at * self.pitch + x * 4, pair.value)
