"""The kernels of products of a vector and a matrix whose columns are contiguous: read in strips, or side by side.

Which of them a product takes is said in runtime/src/gemm_columns.cpp. Every sum is the same tree as in ``rows``. Its
chains, ``Lanes.chains`` of them, are called lanes here, as they are there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .lanes import Lanes, Some
from .packing import source_bytes
from .rows import VECTOR, halved, put_each
from .tiles import Rows
from .writer import Fields, Function, Module, Value

STREAMS = [
    ("a", "ptr"), ("x", "ptr"), ("a_lane", "i64"), ("a_term", "i64"), ("x_lane", "i64"), ("x_term", "i64"),
    ("to", "ptr"), ("waiting", "ptr"), ("apart", "i64"), ("chain", "ptr"), ("rows", "i64"), ("before", "i64"),
    ("levels", "i32"), ("begun", "i8"), ("ends", "i8"),
]  # fmt: skip

LINE = 64  # bytes of a line of the caches
# Distances were measured on a Zen 4 (benchmarks/NOTES.md): what it fetches ahead itself ends with each page of memory.
STEPS_AHEAD = 4  # columns of a lane that a strip is fetched ahead: a tenth less time, since columns lie far apart
STREAM_AHEAD = 8  # vectors that columns side by side are fetched ahead
STRIP = 8  # vectors of a strip at most: of fewer much of what is fetched for the next strip is fetched again
LEVELS = 5  # sums that wait for others in the tree, those of 1, 2, 4, 8 and all 16 lanes: kTreeLevels


class Strip:
    """A kernel of some vectors of rows across all columns, a column's rows side by side: their sums stay in registers.

    So many lanes grow together: one chain of additions alone is as slow as an addition. What the tree adds later waits
    on the stack. If lanes are read one by one nothing is fetched ahead: lines from the second and the third cache come
    soon enough by themselves on the processors that this is for (Zen 4); those from memory take twice as long so.
    """

    def __init__(
        self, module: Module, e: Lanes, name: str, source: str, vectors: int, masked: bool, by_lane: bool
    ) -> None:
        self.f, self.e, self.source, self.vectors = module.function(name, ["ptr", "i64", "i64"]), e, source, vectors
        f, self.bytes, self.fetches = self.f, source_bytes(e, source), vectors > 1 and not by_lane
        place, row, last = f.arguments
        self.work = work = Fields(f, place, VECTOR)
        self.some = e.some(f, last, partly=True) if masked else None
        self.together = 1 if by_lane else e.chains
        while self.together > 1 and self.together * vectors * e.parts > e.machine.free:
            self.together //= 2
        self.distance = e.chains // self.together
        self.a, self.k = work["a"] + row * self.bytes, work["k"]
        self.column, self.term = work["a_k"] * self.bytes, work["x_k"] * e.item
        self.waiting = f.place(e.vector, LEVELS * vectors)
        self.totals = [f.variable(e.vector, "zeroinitializer") for _ in range(vectors)]
        bits = self.distance.bit_length() - 1
        with f.each(self.distance) as index:
            # the lanes in the order in which the tree needs the fewest waiting: their bits are mirrored
            mirrored = f.number(0)
            if bits:
                mirrored = f.call("llvm.bitreverse.i64", "i64", index)
                mirrored = f.emit("i64", f"lshr i64 {mirrored.text}, {64 - bits}")
            self._lanes(mirrored)
            if bits:
                self._wait(index)
        self._put(work["y"] + row * work["y_row"] * e.item, work["y_row"], last)

    def _load(self, place: Value, v: int) -> Value:
        return self.e.widen(self.f, self.source, place, self.some if v == self.vectors - 1 else None)

    def _lanes(self, first: Value) -> None:
        """The sum of lane ``first`` and of those of its group."""
        f, e = self.f, self.e
        sums = [[e.sum(f) for _ in range(self.vectors)] for _ in range(self.together)]
        a_step, x_step = self.column * self.distance, self.term * self.distance
        a, x = f.variable("ptr", self.a + first * self.column), f.variable("ptr", self.work["x"] + first * self.term)
        k, ahead = f.variable("i64", first), a_step * STEPS_AHEAD

        def add(lane: int) -> None:
            place = a.value
            factor = e.splat(f, x.value)
            all_ = self.vectors * e.width * self.bytes
            for start in [*range(0, all_, LINE), all_ - 1] if self.fetches else []:
                f.prefetch(place + ahead + start)
            for v in range(self.vectors):
                e.grow(f, sums[lane][v], factor, self._load(place + v * e.width * self.bytes, v))
            a.add(a_step)
            x.add(x_step)

        end = self.k - (e.chains - self.distance)
        with f.loop(lambda: k.value < end):
            for lane in range(self.together):
                add(lane)
            k.add(e.chains)
        with contextlib.ExitStack() as rest:
            for lane in range(self.together - 1):
                rest.enter_context(f.when(k.value < self.k - lane * self.distance))
                add(lane)
        for v, total in enumerate(self.totals):
            total.set(halved(e.total(f, [part.value for part in lane[v]]) for lane in sums))

    def _wait(self, index: Value) -> None:
        """Add what the tree adds now; the sum waits for others."""
        f, e = self.f, self.e
        inverted = f.emit("i64", f"xor i64 {index.text}, -1")
        levels = f.call("llvm.cttz.i64", "i64", inverted, "i1 true")
        bytes_ = self.vectors * e.machine.bytes
        with f.each(levels) as level:
            for v, total in enumerate(self.totals):
                total.set(f.load(e.vector, self.waiting + level * bytes_ + v * e.machine.bytes) + total.value)
        for v, total in enumerate(self.totals):
            f.store(self.waiting + levels * bytes_ + v * e.machine.bytes, total.value)

    def _put(self, y: Value, y_row: Value, last: Value) -> None:
        f, e, add = self.f, self.e, self.work["add"]
        totals = [total.value for total in self.totals]

        def straight() -> None:
            for v, total in enumerate(totals):
                some, place = self.some if v == self.vectors - 1 else None, y + v * e.machine.bytes
                made = f.variable(e.vector, total)
                with f.when(add):
                    made.set(e.load(f, place, some) + total)
                e.store(f, place, made.value, some)

        def apart() -> None:
            for v, total in enumerate(totals):
                f.store(self.waiting + v * e.machine.bytes, total)
            put_each(f, e, y, y_row * e.item, self.waiting, last + (self.vectors - 1) * e.width, add)

        f.either(y_row.equals(1), straight, apart)


def strips(module: Module, e: Lanes, name: str, source: str, by_lane: bool = False) -> str:
    """The table of strips: of 1, 2, ... whole vectors, then of those whose last one is a part."""
    prefix = f"{name}_{'lane_' * by_lane}strip_{source}"
    made = [
        Strip(module, e, f"{prefix}_{vectors}{'_part' * masked}", source, vectors, masked, by_lane).f
        for masked in (False, True)
        for vectors in range(1, strip_vectors(e) + 1)
    ]
    return module.table(prefix, made)


def strip_vectors(e: Lanes) -> int:
    """Vectors of a strip. Sums of complex ones take 12 of 16 registers if there are no more."""
    return 6 if e.machine.free < STRIP * e.parts else STRIP


def narrow_rows(e: Lanes) -> int:
    """Rows of a matrix whose columns are read as whole vectors: the sums of all its chains are in 8 registers."""
    return 8 // (e.parts * e.folds)


def grouped_vectors(e: Lanes) -> int:
    """Vectors of a group of columns that are read at a time: 16 or 20 registers hold their sums, of 32."""
    return (16 if e.parts == 1 else 10) if e.machine.masks else 0


def each_vector(f: Function, e: Lanes, rows: Value, before: Value, do: Callable[[Value, Some | None], None]) -> None:
    """Do(row, some) for all rows: the first ones up to a line of the cache, whole vectors, the last ones."""
    row, end = f.variable("i64", before), rows - (e.width - 1)
    with f.when(before > 0):
        do(f.number(0), e.some(f, before))
    with f.loop(lambda: row.value < end):
        do(row.value, None)
        row.add(e.width)
    with f.when(row.value < rows):
        do(row.value, e.some(f, rows - row.value, partly=True))


class Streams:
    """Columns that are the terms of some lanes, read side by side, each from end to end.

    There are ``together`` lanes with ``terms`` columns each, one column less from lane ``full`` on. A ``part`` belongs
    to a single lane whose sum comes from memory, or goes there. Lines are fetched ``ahead`` vectors before they are
    read, if it is not 0.
    """

    def __init__(
        self, module: Module, e: Lanes, name: str, shape: tuple[int, int, int], ahead: int, part: bool
    ) -> None:
        self.e, (self.together, self.terms, self.full), self.ahead, self.part = e, shape, ahead, part
        self.f = f = module.function(name, ["ptr"])
        self.group = group = Fields(f, f.arguments[0], STREAMS)
        self.a, self.apart = group["a"], group["apart"] * e.item
        self.a_lane, self.a_term = group["a_lane"] * e.item, group["a_term"] * e.item
        self.thirds = self.a_lane * 3, self.a_term * 3
        self.waiting, self.levels, self.chain = group["waiting"], group["levels"], group["chain"]
        self.begun, to = group["begun"], group["to"]
        lanes = range(self.together)
        self.factors = [[self._factor(lane, term) for term in range(self._terms(lane))] for lane in lanes]

        rows = group["rows"]
        if not part:
            return each_vector(
                f, e, rows, f.number(0), lambda row, some: e.store(f, to + row * e.item, self._total(row, some), some)
            )
        before = group["before"].least(rows)

        def last() -> None:
            each_vector(
                f, e, rows, before, lambda row, some: e.store(f, to + row * e.item, self._total(row, some), some)
            )

        f.either(group["ends"], last, lambda: each_vector(f, e, rows, before, self._keep))
        return None

    def _keep(self, row: Value, some: Some | None) -> None:
        """Leave what the chain of a part adds up to where the next part begins with it."""
        place = self.chain + row * self.e.item
        sum_ = self._lane(0, self.a + row * self.e.item, row, some)
        for part, at in zip(sum_, [place, place + self.apart], strict=False):
            self.e.store(self.f, at, part, some)

    def _terms(self, lane: int) -> int:
        return self.terms - (lane >= self.full)

    def _factor(self, lane: int, term: int) -> list[Value]:
        at = self.group["x_lane"] * (lane * self.e.item) + self.group["x_term"] * (term * self.e.item)
        return self.e.splat(self.f, self.group["x"] + at)

    def _lane(self, lane: int, first: Value, row: Value, some: Some | None) -> list[Value]:
        f, e, sum_ = self.f, self.e, self.e.sum(self.f)
        chain = self.chain + row * e.item
        places = [chain, chain + self.apart][: e.parts]
        if self.part:
            with f.when(self.begun):
                for part, at in zip(sum_, places, strict=True):
                    part.set(e.load(f, at, some))
        columns = Rows(f, first, self.a_term, 0, self.terms, self.thirds[1])
        for term, factor in enumerate(self.factors[lane]):
            column = columns.at(term)
            if self.ahead:
                f.prefetch(column + self.ahead * e.machine.bytes)
            e.grow(f, sum_, factor, e.load(f, column, some))
        return [part.value for part in sum_]

    def _total(self, row: Value, some: Some | None) -> Value:
        """The sum of the lanes, and of what waits for it."""
        f, e, lanes = self.f, self.e, []
        firsts = Rows(f, self.a + row * e.item, self.a_lane, 0, self.together, self.thirds[0])
        for lane in range(self.together):
            lanes.append(e.total(f, self._lane(lane, firsts.at(lane), row, some)))
        width = e.chains // 2
        while width > 0:
            for lane in range(min(width, max(0, self.together - width))):
                lanes[lane] = lanes[lane] + lanes[lane + width]
            width //= 2
        if self.together == e.chains:  # nothing waits
            return lanes[0]
        if self.terms == 1:  # the other lanes are of nothing
            return lanes[0] + Value(f, e.vector, "zeroinitializer")
        total, place = f.variable(e.vector, lanes[0]), f.variable("ptr", self.waiting + row * e.item)
        with f.each(self.levels):
            total.set(e.load(f, place.value, some) + total.value)
            place.add(self.apart)
        return total.value


def lanes_of_streams(e: Lanes, terms: int, streams: int) -> int:
    """The lanes of so many terms each that are at most so many columns."""
    lanes = e.chains
    while lanes > 1 and lanes * terms > streams:
        lanes //= 2
    return lanes


def _tree(f: Function, e: Lanes, each: Value, rows: int) -> None:
    """Add up the lanes of ``rows`` rows, which lie in memory lane after lane."""
    width = e.chains // 2
    while width > 0:
        at, all_ = 0, width * rows
        while at < all_:
            chunk = e.width
            while chunk > all_ - at:
                chunk //= 2
            type_ = f"<{chunk * e.parts} x {e.scalar}>"
            place = each + at * e.item
            f.store(place, f.load(type_, place) + f.load(type_, place + all_ * e.item))
            at += chunk
        width //= 2


def narrow(module: Module, e: Lanes, name: str, rows: int) -> Function:
    """The columns of a few rows, which follow each other in memory, as whole vectors: so many are all chains."""
    f = module.function(f"{name}_narrow_{rows}", ["ptr"])
    work, vectors = Fields(f, f.arguments[0], VECTOR), rows * e.folds
    a, x, k = f.variable("ptr", work["a"]), f.variable("ptr", work["x"]), f.variable("i64", work["k"])
    sums = [e.sum(f) for _ in range(vectors)]

    def factor(place: Value, v: int) -> list[Value]:
        first = min(v * e.width // rows, e.chains - e.width)
        near = e.load(f, place + first * e.item)
        return e.factors(f, near, [(v * e.width + i) // rows - first for i in range(e.width)])

    with f.loop(lambda: k.value >= e.chains):
        for v in range(vectors):
            e.grow(f, sums[v], factor(x.value, v), e.load(f, a.value + v * e.machine.bytes))
        a.add(rows * e.chains * e.item)
        x.add(e.chains * e.item)
        k.add(-e.chains)
    each, terms, last = f.place(e.vector, vectors), f.place(e.vector, vectors), f.place(e.vector, e.folds)
    for place, count in ((terms, vectors), (last, e.folds)):
        for v in range(count):
            f.store(place + v * e.machine.bytes, Value(f, e.vector, "zeroinitializer"))
    left = k.value * rows
    for place, source, count in ((terms, a.value, left), (last, x.value, k.value)):
        with f.each(count) as i:
            f.store(place + i * e.item, f.load(e.element, source + i * e.item))
    for v in range(vectors):
        with f.when(left > v * e.width):
            some = e.some(f, (left - v * e.width).least(e.width))
            e.grow_some(f, sums[v], factor(last, v), e.load(f, terms + v * e.machine.bytes), some)
    for v, sum_ in enumerate(sums):
        f.store(each + v * e.machine.bytes, e.total(f, [part.value for part in sum_]))
    _tree(f, e, each, rows)
    put_each(f, e, work["y"], work["y_row"] * e.item, each, f.number(rows), work["add"])
    return f


def grouped(module: Module, e: Lanes, name: str, vectors: int) -> Function:
    """Some vectors of each group of all chains: they are aligned if a is, and each of their lanes has its row."""
    f = module.function(f"{name}_grouped_{vectors}", ["ptr", "ptr", "ptr", "ptr", "i64", "ptr"])
    place, orders, terms, factors, begin, each = f.arguments
    work = Fields(f, place, VECTOR)
    whole = "i64" if e.size == 8 else "i32"
    start = begin * e.machine.bytes
    a, x, rows = f.variable("ptr", work["a"] + start), f.variable("ptr", work["x"]), work["rows"]
    sums = [e.sum(f) for _ in range(vectors)]

    def factor(near: Value, v: int) -> list[Value]:
        order = f.load(f"<{e.lanes} x {whole}>", orders + start + v * e.machine.bytes)
        picked = e.permuted(f, near, order)
        if e.parts == 1:
            return [picked]
        ones = Value(f, order.type, f"splat ({whole} 1)")
        return [picked, e.permuted(f, near, order + ones)]

    k = f.variable("i64", work["k"])
    with f.loop(lambda: k.value >= e.chains):
        near = e.load(f, x.value)
        for v in range(vectors):
            e.grow(f, sums[v], factor(near, v), e.load(f, a.value + v * e.machine.bytes))
        a.add(rows * (e.chains * e.item))
        x.add(e.chains * e.item)
        k.add(-e.chains)
    left, near = k.value * rows - begin * e.width, e.load(f, factors)
    for v in range(vectors):
        with f.when(left > v * e.width):
            some = e.some(f, (left - v * e.width).least(e.width))
            last = e.load(f, terms + start + v * e.machine.bytes)
            e.grow_some(f, sums[v], factor(near, v), last, some)
        e.store(f, each + start + v * e.machine.bytes, e.total(f, [part.value for part in sums[v]]))
    return f


def add_groups(module: Module, e: Lanes, name: str) -> Function:
    """The tree of the sums of all chains, where those of a chain follow those of another one."""
    f = module.function(f"{name}_add_groups", ["ptr", "i64"])
    each, rows = f.arguments
    width = e.chains // 2
    while width > 0:
        all_ = rows * width
        place, other, left = f.variable("ptr", each), f.variable("ptr", each + all_ * e.item), f.variable("i64", all_)
        for type_, count in ((e.vector, e.width), (e.element, 1)):
            with f.loop(lambda left=left, count=count: left.value >= count):
                f.store(place.value, f.load(type_, place.value) + f.load(type_, other.value))
                place.add(count * e.item)
                other.add(count * e.item)
                left.add(-count)
        width //= 2
    return f
