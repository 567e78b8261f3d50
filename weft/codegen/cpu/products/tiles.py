"""The kernels of products of matrices: tiles of the result whose sums are in registers, and how operands are packed.

Their records are those of runtime/src/gemm_kernels.h.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from .lanes import Lanes, Some
from .writer import Fields, Function, Module, Value, Variable, lanes_of, size_of

TILE = [
    ("a", "ptr"), ("a_row", "i64"), ("a_k", "i64"), ("b", "ptr"), ("b_k", "i64"), ("c", "ptr"), ("c_row", "i64"),
    ("k", "i64"), ("fetch", "ptr"), ("fetch_step", "i64"), ("store", "ptr"), ("carry", "ptr"), ("runs", "ptr"),
    ("run_count", "i64"), ("rows", "i32"), ("columns", "i32"), ("exchanged", "i8"), ("b_padded", "i8"), ("add", "i8"),
    ("ahead", "i8"),
]  # fmt: skip
CARRY = [("from", "ptr"), ("step", "i64"), ("to", "ptr"), ("columns", "i32"), ("rows", "i64")]
RUN = [("offset", "i64"), ("k", "i64")]
PANEL = [
    ("source", "ptr"), ("k_stride", "i64"), ("x_stride", "i64"), ("lines", "ptr"), ("k", "i64"), ("width", "i64"),
    ("padded", "i64"), ("pitch", "i64"), ("to", "ptr"),
]  # fmt: skip

# Distances were measured on a Zen 4 (benchmarks/NOTES.md).
VECTORS = 2  # vectors in a row of a whole tile
AHEAD = 16  # steps of k that packed columns are fetched ahead: large products take 3 to 8 % less time
ROW_VECTORS = 8  # vectors of a row that are fetched together
ROWS_AHEAD = 24  # rows that an operand is fetched ahead as it is packed: each row lies in another page
ROWS_CARRIED = 16  # rows that an operand is fetched ahead as it is packed during tiles (``Carry``)
# Rows that one pointer serves. With a pointer for every row, more than there are registers, tiles of 13 and 14 rows
# took 12 % longer.
ROWS_OF_POINTER = 4


class Rows:
    """Step k of rows of an operand: packed, or a stride apart. There one pointer serves four rows."""

    def __init__(
        self, f: Function, first: Value, row: Value | int, step: Value | int, height: int, third: Value | None = None
    ) -> None:
        self.f, self.row, self.step = f, row, step  # bytes from row to row, and from step to step
        self.third = row * 3 if third is None else third  # given where it is known before a loop
        self.pointers = []
        apart = row * ROWS_OF_POINTER
        for _ in range(1 if isinstance(row, int) else -(-height // ROWS_OF_POINTER)):
            self.pointers.append(f.variable("ptr", first))
            first = first + apart

    def at(self, r: int) -> Value:
        """Where row r is."""
        if isinstance(self.row, int):
            return self.pointers[0].value + self.row * r
        pointer, place = self.pointers[r // ROWS_OF_POINTER].value, r % ROWS_OF_POINTER
        if place == 0:
            return pointer
        return pointer + (self.third if place == 3 else self.row * place)

    def advance(self) -> None:
        """To the next step."""
        for pointer in self.pointers:
            pointer.add(self.step)


class Tile:
    """One kernel of tiles as it is written: so many rows, columns as vectors of these types, and where operands lie."""

    def __init__(self, module: Module, e: Lanes, name: str, height: int, widths: Sequence[str], mode: str) -> None:
        self.f, self.e, self.height, self.widths, self.mode = module.function(name, ["ptr"]), e, height, widths, mode
        f = self.f
        self.tile = Fields(f, f.arguments[0], TILE)
        self.c, self.c_row = self.tile["c"], self.tile["c_row"] * e.item
        self.sums = [[e.sum(f, vector) for vector in widths] for _ in range(height)]
        self.starts = [sum(lanes_of(w)[0] * e.size for w in widths[:v]) for v in range(len(widths))]
        self.last = self.tile["columns"] - self.starts[-1] // e.item
        self.add = self.tile["add"]

    def write(self) -> Function:
        """The whole kernel."""
        f, e = self.f, self.e
        with f.when(self.add):
            self._each_place(lambda r, v, place: f.prefetch(place, write=1))
        if self.mode == "in_runs":
            self._runs()
            full = self.last.equals(lanes_of(self.widths[-1])[0] // e.parts)
        else:
            full = self.last.equals(lanes_of(self.widths[-1])[0] // e.parts)
            whole = full | self.tile["b_padded"]
            f.either(whole, lambda: self._accumulate(None), lambda: self._accumulate(e.some(f, self.last)))
        totals = [[e.total(f, [part.value for part in sums]) for sums in row] for row in self.sums]

        def put(add: bool, some: bool) -> None:
            last = e.some(f, self.last, partly=True) if some else None

            def one(r: int, v: int, place: Value) -> None:
                edge = last if v == len(self.widths) - 1 else None
                total, vector = totals[r][v], self.widths[v]
                e.store(f, place, e.load(f, place, edge, vector) + total if add else total, edge)

            self._each_place(one)

        def by_width(add: bool) -> None:
            f.either(full, lambda: put(add, False), lambda: put(add, True))

        f.either(self.add, lambda: by_width(True), lambda: by_width(False))
        return f

    def _each_place(self, do: Callable[[int, int, Value], None]) -> None:
        row = self.c
        for r in range(self.height):
            for v, start in enumerate(self.starts):
                do(r, v, row + start)
            row = row + self.c_row

    def _columns(self, b: Value, some: Some | None) -> list[Value]:
        e, last = self.e, len(self.widths) - 1
        return [
            e.load(self.f, b + start, some if v == last else None, self.widths[v])
            for v, start in enumerate(self.starts)
        ]

    def _step(self, rows: Rows, columns: Sequence[Value]) -> None:
        f, e = self.f, self.e
        for r in range(self.height):
            factor = e.splat(f, rows.at(r))
            for v, column in enumerate(columns):
                lanes = lanes_of(column.type)[0]
                x = factor if lanes == e.lanes else [f.shuffle(part, None, range(lanes)) for part in factor]
                e.grow(f, self.sums[r][v], x, column)

    @contextlib.contextmanager
    def _steps(self, count: Value, b: Variable, b_step: Value, rows: Rows) -> Iterator[None]:
        k = self.f.variable("i64", count)
        with self.f.loop(lambda: k.value > 0):
            yield
            rows.advance()
            b.add(b_step)
            k.add(-1)

    def _accumulate(self, some: Some | None) -> None:
        f, e, tile, mode = self.f, self.e, self.tile, self.mode
        b, b_step = f.variable("ptr", tile["b"]), tile["b_k"] * e.item
        if mode == "strided":
            rows = Rows(f, tile["a"], tile["a_row"] * e.item, tile["a_k"] * e.item, self.height)
        else:
            rows = Rows(f, tile["a"], e.item, self.height * e.item, self.height)
        ahead = b_step * (ROWS_AHEAD if mode == "storing" else AHEAD)
        store, ahead_too = f.variable("ptr", tile["store"]), tile["ahead"]
        fetched = tile["fetch"].differs("null")
        fetch = f.variable("ptr", f.select(fetched, tile["fetch"], tile["a"]))
        fetch_step = f.select(fetched, tile["fetch_step"], f.number(0))
        carry = Carry(f, e, tile["carry"], tile["k"]) if mode == "carrying" else None
        with self._steps(tile["k"], b, b_step, rows):
            if carry is not None:
                carry.turn()
            now = b.value
            columns = self._columns(now, some)
            if mode == "strided":
                f.prefetch(fetch.value, near=2)
                fetch.add(fetch_step)
            else:
                for start in self.starts:
                    f.prefetch(now + ahead + start)
            if mode == "storing":
                for start, column in zip(self.starts, columns, strict=True):
                    e.store(f, store.value + start, column)
                store.add(len(columns) * e.machine.bytes)
                with f.when(ahead_too):  # memory likes long contiguous reads: the tiles to the right find theirs near
                    for v in range(len(columns), ROW_VECTORS):
                        f.prefetch(now + ahead + v * e.machine.bytes, near=2)
            self._step(rows, columns)

    def _runs(self) -> None:
        """Where the terms of a lie in runs, and b is packed."""
        f, e, tile = self.f, self.e, self.tile
        b, b_step = f.variable("ptr", tile["b"]), tile["b_k"] * e.item
        ahead = b_step * AHEAD
        row, step = tile["a_row"] * e.item, tile["a_k"] * e.item
        a, run, left = tile["a"], f.variable("ptr", tile["runs"]), f.variable("i64", tile["run_count"])
        with f.loop(lambda: left.value > 0):
            fields = Fields(f, run.value, RUN)
            rows = Rows(f, a + fields["offset"], row, step, self.height)
            with self._steps(fields["k"], b, b_step, rows):
                now = b.value
                columns = self._columns(now, None)
                for start in self.starts:
                    f.prefetch(now + ahead + start)
                self._step(rows, columns)
            run.add(size_of(RUN))
            left.add(-1)


class Carry:
    """Rows of the columns that are next, copied between the steps of a tile."""

    def __init__(self, f: Function, e: Lanes, place: Value, steps: Value) -> None:
        self.f, self.e, self.steps = f, e, steps
        carry = Fields(f, place, CARRY)
        self.source, self.to = f.variable("ptr", carry["from"]), f.variable("ptr", carry["to"])
        self.step, self.columns = carry["step"], carry["columns"]
        self.rows = f.variable("i64", carry["rows"])
        self.every, self.wait = steps // self.rows.value, f.variable("i64", 1)

    def turn(self) -> None:
        """Copy a row and fetch a later one, if it is time."""
        f, e = self.f, self.e
        self.wait.add(-1)
        with f.when(self.wait.value.equals(0)):
            source, to = f.variable("ptr", self.source.value), f.variable("ptr", self.to.value)
            left = f.variable("i64", self.columns)
            ahead = self.step * ROWS_CARRIED
            with f.loop(lambda: left.value > 0):
                f.prefetch(source.value + ahead)
                some = e.some(f, left.value.least(e.width))
                e.store(f, to.value, e.load(f, source.value, some))
                source.add(e.machine.bytes)
                to.add(e.machine.bytes)
                left.add(-e.width)
            self.source.add(self.step)
            self.to.set(to.value)
            self.rows.add(-1)
            self.wait.set(f.select(self.rows.value > 0, self.every, self.steps))


def tiles(module: Module, e: Lanes, name: str, mode: str) -> str:
    """The table of a kind of tiles: of each height, of one vector and of two."""
    made = [
        Tile(module, e, f"{name}_{mode}_{height}_{count}", height, [e.vector] * count, mode).write()
        for height in range(1, e.height + 1)
        for count in range(1, VECTORS + 1)
    ]
    return module.table(f"{name}_{mode}", made)


def broad_height(e: Lanes) -> int:
    """Rows of tiles of a vector more: for a last vector, which alone is bound by its loads."""
    return e.height * VECTORS // (VECTORS + 1)


def broad_tiles(module: Module, e: Lanes, name: str) -> list[str]:
    """Tables of strided tiles of a vector more, and of half a vector more if a vector is two halves, or no table."""

    def table(kind: str, last: str) -> str:
        made = [
            Tile(module, e, f"{name}_{kind}_{height}", height, [e.vector] * VECTORS + [last], "strided").write()
            for height in range(1, broad_height(e) + 1)
        ]
        return module.table(f"{name}_{kind}", made)

    halves = e.machine.masks and e.parts == 1
    half = f"<{e.lanes // 2} x {e.scalar}>"
    return [table("broad", e.vector), table("half", half) if halves else "null"]


def thin(module: Module, e: Lanes, name: str, terms: int) -> Function:
    """Few terms and at most a vector of columns, which stay in registers; any number of rows.

    A tile of such a product is done in tens of cycles, and most of these are spent on calling it and on waiting for
    its chains. Here one call multiplies all rows, and the chains of many of them are in flight. Each row is stored as
    a whole vector where the rows after it follow in memory and are written after it.
    """
    f = module.function(f"{name}_thin_{terms}", ["ptr"])
    tile = Fields(f, f.arguments[0], TILE)
    a, c, b, n = f.variable("ptr", tile["a"]), f.variable("ptr", tile["c"]), tile["b"], tile["columns"]
    b_step, a_row, a_step, c_row = (tile[word] * e.item for word in ("b_k", "a_row", "a_k", "c_row"))
    some, full = e.some(f, n), n.equals(e.width)
    columns = [f.variable(e.vector, "zeroinitializer") for _ in range(terms)]

    def load(mask: Some | None) -> None:
        place = b
        for column in columns:
            column.set(e.load(f, place, mask))
            place = place + b_step

    f.either(full | tile["b_padded"], lambda: load(None), lambda: load(some))
    held = [column.value for column in columns]

    def sum_() -> Value:
        chain, rows = e.sum(f), Rows(f, a.value, a_step, 0, terms)
        for k, column in enumerate(held):
            e.grow(f, chain, e.splat(f, rows.at(k)), column)
        a.add(a_row)
        return e.total(f, [part.value for part in chain])

    rows, reach = tile["rows"], f.number(e.width - 1) // n  # reach: rows that a whole vector goes into beyond its own
    last = f.select(full, f.number(0), f.select(tile["c_row"].equals(n), reach, rows))
    whole, row = rows - last, f.variable("i64", 0)
    with f.loop(lambda: row.value < whole):
        e.store(f, c.value, sum_())
        c.add(c_row)
        row.add(1)
    with f.loop(lambda: row.value < rows):
        e.store(f, c.value, sum_(), some)
        c.add(c_row)
        row.add(1)
    return f
