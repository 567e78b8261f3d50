"""The kernels of products of a vector and a matrix whose rows, the terms of a sum, are contiguous.

Every sum is the tree of ``Lanes.chains`` chains, whose terms are every so many: see docs/NUMERICS.md. The records are
those of runtime/src/gemm_kernels.h.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .lanes import Lanes
from .packing import source_bytes
from .tiles import Rows
from .writer import Fields, Function, Module, Value, Variable

VECTOR = [
    ("a", "ptr"), ("a_row", "i64"), ("a_k", "i64"), ("x", "ptr"), ("x_k", "i64"), ("y", "ptr"), ("y_row", "i64"),
    ("rows", "i64"), ("k", "i64"), ("scratch", "ptr"), ("waiting", "i64"), ("tile", "i64"), ("in_strips", "i8"),
    ("in_parts", "i8"), ("far", "i8"), ("by_chain", "i8"), ("backwards", "i8"), ("add", "i8"),
]  # fmt: skip
# Vectors that rows are fetched ahead if they cross cache lines or come from the third cache; others get slower by it.
# Measured on a Zen 4 (benchmarks/NOTES.md).
VECTORS_AHEAD = 4


def put(module: Module, e: Lanes, name: str) -> Function:
    """y[i * y_row] (+)= sums[i] for i < count."""
    f = module.function(f"{name}_put", ["ptr", "i64", "ptr", "i64", "i64"])
    y, y_row, sums, count, add = f.arguments
    put_each(f, e, y, y_row * e.item, sums, count, add.differs(0))
    return f


def put_each(f: Function, e: Lanes, y: Value, y_step: Value, sums: Value, count: Value, add: Value) -> None:
    """The same within a kernel."""
    to, source = f.variable("ptr", y), f.variable("ptr", sums)
    with f.each(count):
        one = f.variable(e.element, f.load(e.element, source.value))
        with f.when(add):
            one.set(f.load(e.element, to.value) + one.value)
        f.store(to.value, one.value)
        to.add(y_step)
        source.add(e.item)


def folded(f: Function, e: Lanes, rows: Sequence[Value], group: int) -> Value:
    """Element r of the result is the sum of row r, lane l added to lane l + group / 2, and so on."""
    while group > 1:
        half, made = group // 2, []
        for r in range(0, group, 2):
            low = [i // half * group + i % half for i in range(e.width)]
            a, b = rows[r], rows[r + 1]
            made.append(e.shuffle(f, a, b, low) + e.shuffle(f, a, b, [i + half for i in low]))
        rows, group = made, half
    return rows[0]


class RowsKernel:
    """All rows of a matrix, some at a time. The terms of a row lie side by side, and so do those of the vector, which
    are as wide as the sums."""

    def __init__(self, module: Module, e: Lanes, name: str, source: str, held: int, far: bool) -> None:
        self.f, self.e, self.source, self.far = module.function(name, ["ptr"]), e, source, far
        f, self.bytes = self.f, source_bytes(e, source)
        work = Fields(f, f.arguments[0], VECTOR)
        self.x, self.k = work["x"], work["k"]
        self.a_row, self.y_row = work["a_row"] * self.bytes, work["y_row"] * e.item
        self.add = work["add"]
        self.straight = f.select(self.add, Value(f, "i1", "false"), work["y_row"].equals(1))
        self.a, self.y = f.variable("ptr", work["a"]), f.variable("ptr", work["y"])
        self.buffer = f.place(e.vector)
        left, all_ = f.variable("i64", work["rows"]), e.width
        while all_ > 0:
            with f.loop(lambda all_=all_: left.value >= all_):
                self._some(all_, min(held, all_))
                self.a.add(self.a_row * all_)
                self.y.add(self.y_row * all_)
                left.add(-all_)
            all_ //= 2

    def _some(self, all_: int, count: int) -> None:
        """So many rows; registers hold ``count`` of them at a time, and their lanes are folded together."""
        f, e, rows = self.f, self.e, []
        for r in range(0, all_, count):
            rows += self._lanes(self.a.value + self.a_row * r, count)
        rows += [rows[r % all_] for r in range(all_, e.width)]  # again, what nobody reads
        total, y = folded(f, e, rows, e.width), self.y.value

        def apart() -> None:
            f.store(self.buffer, total)
            put_each(f, e, y, self.y_row, self.buffer, f.number(all_), self.add)

        first = total if all_ == e.width else f.shuffle(total, None, range(all_ * e.parts))
        f.either(self.straight, lambda: f.store(y, first), apart)

    def _lanes(self, first: Value, count: int) -> list[Value]:
        """The sums of the chains of some rows, folded to a vector each."""
        f, e = self.f, self.e
        sums = [[e.sum(f) for _ in range(e.folds)] for _ in range(count)]
        rows = Rows(f, first, self.a_row, e.chains * self.bytes, count)
        x, k = f.variable("ptr", self.x), f.variable("i64", self.k)
        with f.loop(lambda: k.value >= e.chains):
            for v in range(e.folds):
                factor = e.factor(f, e.load(f, x.value + v * e.machine.bytes))
                for r in range(count):
                    place = rows.at(r) + v * e.width * self.bytes
                    e.grow(f, sums[r][v], factor, e.widen(f, self.source, place))
                    if self.far:
                        f.prefetch(place + VECTORS_AHEAD * e.width * self.bytes)
            rows.advance()
            x.add(e.folds * e.machine.bytes)
            k.add(-e.chains)
        for v in range(e.folds):
            with f.when(k.value > v * e.width):
                some = e.some(f, (k.value - v * e.width).least(e.width))
                factor = e.factor(f, e.load(f, x.value + v * e.machine.bytes, some))
                for r in range(count):
                    place = rows.at(r) + v * e.width * self.bytes
                    e.grow_some(f, sums[r][v], factor, e.widen(f, self.source, place, some), some)
        return [halved(e.paired_total(f, [part.value for part in sum_]) for sum_ in row) for row in sums]


def halved(vectors: Iterable[Value]) -> Value:
    """The sum of some vectors: the first half of them added to the other half, and so on."""
    all_ = list(vectors)
    while len(all_) > 1:
        half = len(all_) // 2
        all_ = [a + b for a, b in zip(all_[:half], all_[half:], strict=True)]
    return all_[0]


def short_rows(module: Module, e: Lanes, name: str) -> Function:
    """Rows of at most half a vector, as many in a vector as there is room for.

    Their other lanes are sums of nothing, and what adding these would do, a sum of -0 becoming +0, is done at the end.
    """
    f = module.function(f"{name}_short_rows", ["ptr"])
    work = Fields(f, f.arguments[0], VECTOR)
    _by_lanes(f, e, work, work["k"], e.width // 2)
    return f


def _by_lanes(f: Function, e: Lanes, work: Fields, k: Value, lanes: int) -> None:
    """Short rows of at most so many elements, by the smallest part of a vector that has room for one."""

    def here() -> None:
        ShortRows(f, e, work, lanes)

    if lanes == 1:
        here()
    else:
        f.either(k <= lanes // 2, lambda: _by_lanes(f, e, work, k, lanes // 2), here)


class ShortRows:
    """Short rows where each takes so many elements of a vector."""

    def __init__(self, f: Function, e: Lanes, work: Fields, lanes: int) -> None:
        self.f, self.e, self.work, self.lanes, self.k = f, e, work, lanes, work["k"]
        self.a, self.y = f.variable("ptr", work["a"]), f.variable("ptr", work["y"])
        self.a_row, self.y_row, self.add = work["a_row"] * e.item, work["y_row"] * e.item, work["add"]
        self.side_by_side = work["a_row"].equals(self.k)
        self.whole = self.side_by_side & self.k.equals(lanes)
        self.straight = work["y_row"].equals(1)
        self.in_vector = e.width // lanes
        once = e.load(f, work["x"], e.some(f, self.k))
        repeated = e.shuffle(f, once, once, [i % lanes for i in range(e.width)])
        self.factor = e.factor(f, repeated)
        # what lies side by side, moved to where each row begins: which lane comes to each, and whether one does
        whole = "i64" if e.size == 8 else "i32"
        index = f.place(f"<{e.lanes} x {whole}>")
        k = self.k if whole == "i64" else self.k.cast("trunc", "i32")
        for lane in range(e.lanes):
            row, part = divmod(lane, lanes * e.parts)
            f.store(index + lane * e.size, k * (row * e.parts) + part)
        self.order = f.load(f"<{e.lanes} x {whole}>", index)
        numbers = ", ".join(f"{whole} {lane % (lanes * e.parts)}" for lane in range(e.lanes))
        bound = f.splat(k * e.parts, e.lanes)
        self.there = f.emit(f"<{e.lanes} x i1>", f"icmp slt {self.order.type} <{numbers}>, {bound.text}")
        self.buffer = f.place(e.vector)
        left = f.variable("i64", work["rows"])
        with f.loop(lambda: left.value >= e.width):
            self._rows(None)
            self.a.add(self.a_row * e.width)
            self.y.add(self.y_row * e.width)
            left.add(-e.width)
        with f.when(left.value > 0):
            self._rows(left.value)

    def _rows(self, count: Value | None) -> None:
        """As many rows as a vector has elements, or fewer."""
        f, e, rows = self.f, self.e, []
        for v in range(self.lanes):
            elements = f.variable(e.vector, "zeroinitializer")
            if count is None:
                self._all(v, elements)
            else:
                left = (count - v * self.in_vector).least(self.in_vector)
                with f.when(left > 0):
                    self._left(v, elements, left)
            sums = e.sum(f)
            e.grow(f, sums, self.factor, elements.value)
            rows.append(e.paired_total(f, [part.value for part in sums]))
        total = folded(f, e, rows, self.lanes) + Value(f, e.vector, "zeroinitializer")
        y, some = self.y.value, None if count is None else e.some(f, count)
        number = f.number(e.width) if count is None else count

        def straight() -> None:
            made = f.variable(e.vector, total)
            with f.when(self.add):
                made.set(e.load(f, y, some) + total)
            e.store(f, y, made.value, some)

        def apart() -> None:
            f.store(self.buffer, total)
            put_each(f, e, y, self.y_row, self.buffer, number, self.add)

        f.either(self.straight, straight, apart)

    def _moved(self, elements: Variable, loaded: Value) -> None:
        f, e = self.f, self.e
        moved = e.permuted(f, loaded, self.order)
        elements.set(f.select(self.there, moved, Value(f, e.vector, "zeroinitializer")))

    def _all(self, v: int, elements: Variable) -> None:
        """Vector v of whole ones."""
        f, e = self.f, self.e
        followed = v < self.lanes - 1  # by the rows of another vector, which are more than half of one
        place = self.a.value + self.k * (v * self.in_vector * e.item)
        some = None if followed else e.some(f, self.k * self.in_vector)

        def moved() -> None:
            self._moved(elements, e.load(f, place, some))

        def plain() -> None:
            elements.set(e.load(f, self.a.value + v * e.machine.bytes))

        def by_side() -> None:
            f.either(self.side_by_side, moved, lambda: self._apart(v, elements, None))

        f.either(self.whole, plain, by_side)

    def _left(self, v: int, elements: Variable, left: Value) -> None:
        """Vector v where so many of its rows are left."""
        f, e = self.f, self.e
        place = self.a.value + self.k * (v * self.in_vector * e.item)
        some = e.some(f, self.k * left)

        def moved() -> None:
            self._moved(elements, e.load(f, place, some))

        f.either(self.side_by_side, moved, lambda: self._apart(v, elements, left))

    def _apart(self, v: int, elements: Variable, left: Value | None) -> None:
        """Row by row."""
        f, e = self.f, self.e
        for r in range(self.in_vector):
            some = e.some(f, self.k if left is None else f.select(left > r, self.k, f.number(0)))
            row = e.load(f, self.a.value + self.a_row * (v * self.in_vector + r), some)
            at = [e.width + i - r * self.lanes if 0 <= i - r * self.lanes < self.lanes else i for i in range(e.width)]
            elements.set(e.shuffle(f, elements.value, row, at))
