"""Vectors of one kind of element for the kernels of products, at the width of an instruction set.

A complex element is two lanes. A product's sums of real products are kept apart, in two vectors: real parts of factors
times whole elements, and imaginary parts. So nothing is shuffled as they grow, and operands may be exchanged: the bits
are the same. Factors and sums are lists, of one vector or of two.
"""

from __future__ import annotations

from collections.abc import Sequence

from .writer import BYTES, FLOATS, Function, Value, Variable, lanes_of

CHAIN_BYTES = 64  # bytes of the sums that a row times a vector is added up in: see docs/NUMERICS.md


class Machine:
    """An instruction set."""

    def __init__(
        self,
        name: str,
        vector_bytes: int,
        *,
        height: int,
        free: int,
        masks: bool,
        permutes: bool,
        cpu: str = "",
        features: str = "",
    ) -> None:
        self.name, self.bytes = name, vector_bytes
        self.height = height  # rows of a whole tile of real elements
        self.free = free  # registers that other kernels than tiles may fill with sums, or with columns
        self.masks = masks  # whether vectors are loaded, stored and selected by masks of any element
        self.permutes = permutes  # whether an instruction permutes lanes by numbers in a register
        self.cpu, self.features = cpu, features  # LLVM's names


def _v4(more: str = "") -> Machine:
    # 28 of 32 registers accumulate: tiles from 8 x 32 on reach the peak. Without -prefer-256-bit LLVM splits vectors.
    features = f"-prefer-256-bit{more}"
    return Machine("v4", 64, height=14, free=16, masks=True, permutes=True, cpu="x86-64-v4", features=features)


MACHINES = {
    "v4": _v4(),
    # 12 of 16 registers accumulate
    "v3": Machine("v3", 32, height=6, free=8, masks=False, permutes=False, cpu="x86-64-v3"),
    # 16 of 32
    "neon": Machine("neon", 16, height=8, free=16, masks=False, permutes=False, cpu="generic", features="+neon"),
}
PAIRS = _v4(",+avx512bf16")  # adds products of bfloat16 in pairs

SUMS = {"f": ("float", 1), "d": ("double", 1), "F": ("float", 2), "D": ("double", 2), "i": ("i32", 1), "l": ("i64", 1)}
# elements that are narrower than their sums: their type in memory, and how they are widened
NARROW: dict[str, tuple[str, str]] = {
    "e": ("half", "fpext"), "E": ("i16", "bfloat16"), "h": ("i16", "sext"), "H": ("i16", "zext"),
    "b": ("i8", "sext"), "B": ("i8", "zext"),
}  # fmt: skip


class Some:
    """The first elements of a vector: how many, and their mask."""

    def __init__(self, count: Value, mask: Value, partly: bool) -> None:
        self.count, self.mask, self.partly = count, mask, partly  # partly: it is known that not all are there


class Lanes:
    """Vectors whose sums are of one dtype; elements in memory may be narrower."""

    def __init__(self, machine: Machine, sums: str) -> None:
        self.machine, self.sums = machine, sums
        self.scalar, self.parts = SUMS[sums]
        self.size = BYTES[self.scalar]
        self.lanes = machine.bytes // self.size
        self.vector = f"<{self.lanes} x {self.scalar}>"
        self.width = self.lanes // self.parts  # elements of a vector
        self.item = self.size * self.parts  # bytes of an element
        self.height = machine.height // self.parts
        self.chains = CHAIN_BYTES // self.item  # partial sums of a row times a vector
        self.folds = self.chains // self.width  # vectors that hold them
        self.element = self.scalar if self.parts == 1 else f"<2 x {self.scalar}>"

    # memory

    def some(self, f: Function, count: Value, partly: bool = False) -> Some:
        """The first ``count`` elements of a vector."""
        whole = "i64" if self.size == 8 else "i32"
        lanes = count * self.parts
        narrow = lanes if whole == "i64" else lanes.cast("trunc", "i32")
        numbers = ", ".join(f"{whole} {lane}" for lane in range(self.lanes))
        all_ = f.splat(narrow, self.lanes)
        mask = f.emit(f"<{self.lanes} x i1>", f"icmp slt <{self.lanes} x {whole}> <{numbers}>, {all_.text}")
        return Some(count, mask, partly)

    def load(self, f: Function, place: Value, some: Some | None = None, vector: str = "") -> Value:
        """A vector, or its first elements and zeros."""
        vector = vector or self.vector
        if some is None:
            return f.load(vector, place)
        lanes, element = lanes_of(vector)
        mask = some.mask if lanes == self.lanes else f.shuffle(some.mask, None, range(lanes))
        suffix = _suffix(lanes, element)
        aligned = f"ptr align {BYTES[element]} {place.text}"
        return f.call(f"llvm.masked.load.{suffix}.p0", vector, aligned, mask, f"{vector} zeroinitializer")

    def store(self, f: Function, place: Value, value: Value, some: Some | None = None) -> None:
        """Write a vector, or its first elements."""
        lanes, element = lanes_of(value.type)
        if some is None:
            f.store(place, value)
        elif self.machine.masks:
            mask = some.mask if lanes == self.lanes else f.shuffle(some.mask, None, range(lanes))
            name = f"llvm.masked.store.{_suffix(lanes, element)}.p0"
            f.call(name, "void", value, f"ptr align {BYTES[element]} {place.text}", mask)
        elif some.partly:
            self._store_parts(f, place, value, some.count)
        else:
            full = some.count.equals(self.width)
            f.either(full, lambda: f.store(place, value), lambda: self._store_parts(f, place, value, some.count))

    def _store_parts(self, f: Function, place: Value, value: Value, count: Value) -> None:
        """Halves, quarters, ...: a masked store takes 12 cycles on a Zen 4."""
        lanes, _ = lanes_of(value.type)
        left, at = f.variable(value.type, value), f.variable("ptr", place)
        half = lanes // 2
        while half >= self.parts:
            with f.when((count & (half // self.parts)).differs(0)):
                now = left.value
                f.store(at.value, f.shuffle(now, None, range(half)))
                upper = [half + lane if lane < half else lane for lane in range(lanes)]
                left.set(f.shuffle(now, None, upper))
                at.add(half * self.size)
            half //= 2

    def widen(self, f: Function, source: str, place: Value, some: Some | None = None) -> Value:
        """Elements of ``source`` as those of the sums."""
        if source not in NARROW:
            return self.load(f, place, some)
        element, how = NARROW[source]
        type_ = f"<{self.lanes} x {element}>"
        if some is None:
            narrow = f.load(type_, place)
        elif self.machine.masks:
            bits = f"i{8 * BYTES[element]}"
            loaded = f"<{self.lanes} x {bits}>"
            name = f"llvm.masked.load.{_suffix(self.lanes, bits)}.p0"
            aligned = f"ptr align {BYTES[element]} {place.text}"
            narrow = f.call(name, loaded, aligned, some.mask, f"{loaded} zeroinitializer")
            narrow = narrow if bits == element else narrow.cast("bitcast", type_)
        else:
            narrow = self._few(f, element, place, some.count)
        if how == "bfloat16":
            words = narrow.cast("zext", f"<{self.lanes} x i32>")
            sixteen = f.splat(Value(f, "i32", "16"), self.lanes)
            return f.emit(words.type, f"shl {words.type} {words.text}, {sixteen.text}").cast("bitcast", self.vector)
        return narrow.cast(how, self.vector)

    def _few(self, f: Function, element: str, place: Value, count: Value) -> Value:
        """Up to 16 bytes, the rest zero, in registers: a copy in memory, read before it is written, takes 20 ns."""
        bytes_ = count * BYTES[element]
        low, high = f.variable("i64", 0), f.variable("i64", 0)

        def two_words() -> None:
            low.set(_word(f, 8, place))
            shift = (bytes_ * -8) + 128
            high.set(f.emit("i64", f"lshr i64 {_word(f, 8, place + (bytes_ - 8)).text}, {shift.text}"))

        f.either(bytes_ > 8, two_words, lambda: _up_to_twice(f, 4, place, bytes_, low))
        words = "<2 x i64>"
        first = f.emit(words, f"insertelement {words} poison, i64 {low.value.text}, i64 0")
        both = f.emit(words, f"insertelement {words} {first.text}, i64 {high.value.text}, i64 1")
        all_ = both.cast("bitcast", f"<{16 // BYTES[element]} x {element}>")
        return f.shuffle(all_, None, range(self.lanes))

    # arithmetic

    def sum(self, f: Function, vector: str = "") -> list[Variable]:
        """A sum that grows, from zero."""
        return [f.variable(vector or self.vector, "zeroinitializer") for _ in range(self.parts)]

    def splat(self, f: Function, place: Value) -> list[Value]:
        """The element there as a factor of every element of a vector."""
        return [f.splat(f.load(self.scalar, place + part * self.size), self.lanes) for part in range(self.parts)]

    def fma(self, f: Function, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, rounded once; integers wrap."""
        lanes, element = lanes_of(y.type)
        if element in FLOATS:
            return f.call(f"llvm.fma.{_suffix(lanes, element)}", y.type, x, y, z)
        return x * y + z

    def grow(self, f: Function, sums: Sequence[Variable], factor: Sequence[Value], v: Value) -> None:
        """Add the products of a factor and a vector."""
        for sum_, x in zip(sums, factor, strict=True):
            sum_.set(self.fma(f, x, v, sum_.value))

    def grow_some(self, f: Function, sums: Sequence[Variable], factor: Sequence[Value], v: Value, some: Some) -> None:
        """The same for the first elements alone: products of zeros must not turn -0 into +0."""
        for sum_, x in zip(sums, factor, strict=True):
            old = sum_.value
            sum_.set(f.select(some.mask, self.fma(f, x, v, old), old))

    def factor(self, f: Function, x: Value) -> list[Value]:
        """Elements as factors, each of the element of its own lane."""
        return [x] if self.parts == 1 else [x, f.shuffle(x, None, [lane ^ 1 for lane in range(self.lanes)])]

    def factors(self, f: Function, x: Value, picks: Sequence[int]) -> list[Value]:
        """Element j of the factor is element picks[j] of x."""
        if self.parts == 1:
            return [f.shuffle(x, None, picks)]
        return [f.shuffle(x, None, [2 * pick + part for pick in picks for _ in range(2)]) for part in range(2)]

    def shuffle(self, f: Function, a: Value, b: Value, picks: Sequence[int]) -> Value:
        """Element j of the result is element picks[j] of a, or of b after it."""
        return f.shuffle(a, b, [self.parts * pick + part for pick in picks for part in range(self.parts)])

    def _difference_and_sum(self, f: Function, a: Value, b: Value) -> Value:
        n = lanes_of(a.type)[0]
        return f.shuffle(a - b, a + b, [n + lane if lane % 2 else lane for lane in range(n)])

    def total(self, f: Function, sums: Sequence[Value]) -> Value:
        """What a sum has come to."""
        if self.parts == 1:
            return sums[0]
        exchanged = f.shuffle(sums[1], None, [lane ^ 1 for lane in range(self.lanes)])
        return self._difference_and_sum(f, sums[0], exchanged)

    def paired_total(self, f: Function, sums: Sequence[Value]) -> Value:
        """The same of sums of products lane by lane, whose factors are those of ``factor``."""
        if self.parts == 1:
            return sums[0]
        n, (real, imag) = self.lanes, sums
        evens = f.shuffle(real, imag, [n + lane - 1 if lane % 2 else lane for lane in range(n)])
        odds = f.shuffle(real, imag, [n + lane if lane % 2 else lane + 1 for lane in range(n)])
        return self._difference_and_sum(f, evens, odds)

    def turned(self, f: Function, rows: Sequence[Value]) -> list[Value]:
        """As many vectors as they have elements, as rows of a square: its columns."""
        rows, w = list(rows), self.width
        d = w // 2
        while d > 0:
            for r in range(w):
                if not r & d:
                    low, high = rows[r], rows[r + d]
                    rows[r] = self.shuffle(f, low, high, [w + i - d if i & d else i for i in range(w)])
                    rows[r + d] = self.shuffle(f, low, high, [w + i if i & d else i + d for i in range(w)])
            d //= 2
        return rows

    def permuted(self, f: Function, x: Value, order: Value) -> Value:
        """Lane j of the result is lane order[j] of x; ``order`` has as many integers as wide as lanes."""
        if self.machine.permutes:
            name = {"float": "sf", "double": "df", "i32": "si", "i64": "di"}[self.scalar]
            return f.call(f"llvm.x86.avx512.permvar.{name}.512", self.vector, x, order)
        made = Value(f, self.vector, "zeroinitializer")  # as a machine without them does it, for tests
        for lane in range(self.lanes):
            number = f.emit(lanes_of(order.type)[1], f"extractelement {order.type} {order.text}, i64 {lane}")
            one = f.emit(self.scalar, f"extractelement {x.type} {x.text}, {number.type} {number.text}")
            made = f.emit(self.vector, f"insertelement {self.vector} {made.text}, {one.type} {one.text}, i64 {lane}")
        return made


class Pairs(Lanes):
    """Pairs of bfloat16, of an even index in the low half of a lane and of the next one in its high half."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, "f")

    def fma(self, f: Function, x: Value, y: Value, z: Value) -> Value:
        """Both products, added by the processor's instruction."""
        type_ = f"<{2 * self.lanes} x bfloat>"
        return f.call(
            "llvm.x86.avx512bf16.dpbf16ps.512", self.vector, z, x.cast("bitcast", type_), y.cast("bitcast", type_)
        )


def _suffix(lanes: int, element: str) -> str:
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
    return f"v{lanes}{short}"


def _word(f: Function, size: int, at: Value) -> Value:
    type_ = f"i{8 * size}"
    value = f.emit(type_, f"load {type_}, ptr {at.text}, align 1")
    return value if size == 8 else value.cast("zext", "i64")


def _up_to_twice(f: Function, size: int, place: Value, count: Value, to: Variable) -> None:
    """Up to twice ``size`` bytes as a number: by two words of ``size`` bytes that overlap, or fewer bytes likewise."""
    if size == 1:
        return to.set(_word(f, 1, place))

    def ends() -> None:
        shift = (count - size) * 8
        first = _word(f, size, place)
        to.set(first | f.emit("i64", f"shl i64 {_word(f, size, place + (count - size)).text}, {shift.text}"))

    return f.either(count >= size, ends, lambda: _up_to_twice(f, size // 2, place, count, to))
