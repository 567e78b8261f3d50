"""A small writer of LLVM IR for the kernels of products: typed values, variables, loops, records in memory.

A build has nothing of weft yet when it makes these kernels. So the files of this package import nothing of weft:
operators of values, for example, are like those of codegen/arithmetic/lanes.py, and cannot be those. Variables are
places on the stack: LLVM's own passes, which ``objects`` runs, move them to registers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from . import ENTRY

Number = int | float
FLOATS = ("half", "float", "double")
BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}


def lanes_of(type_: str) -> tuple[int, str]:
    """Lanes and elements of a vector's type; a scalar is one lane."""
    if not type_.startswith("<"):
        return 1, type_
    count, _, element = type_[1:-1].partition(" x ")
    return int(count), element


class Value:
    """A value in a register: what LLVM calls it, and its type. Adding bytes to a pointer gives a pointer."""

    def __init__(self, function: Function, type_: str, text: str) -> None:
        self.function, self.type, self.text = function, type_, text

    def _op(self, name: str, other: Value | Number) -> Value:
        is_float = lanes_of(self.type)[1] in FLOATS
        return self.function.emit(self.type, f"{'f' * is_float}{name} {self.type} {self.text}, {self._text(other)}")

    def _text(self, other: Value | Number | str) -> str:
        return other.text if isinstance(other, Value) else str(other)

    def _compared(self, sign: str, other: Value | Number | str) -> Value:
        return self.function.emit("i1", f"icmp {sign} {self.type} {self.text}, {self._text(other)}")

    def __add__(self, other: Value | Number) -> Value:
        if self.type == "ptr":
            if not isinstance(other, Value) and other == 0:
                return self
            return self.function.emit("ptr", f"getelementptr i8, ptr {self.text}, i64 {self._text(other)}")
        return self._op("add", other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._op("sub", other)

    def __mul__(self, other: Value | Number) -> Value:
        return self if not isinstance(other, Value) and other == 1 else self._op("mul", other)

    def __and__(self, other: Value | Number) -> Value:
        return self.function.emit(self.type, f"and {self.type} {self.text}, {self._text(other)}")

    def __or__(self, other: Value) -> Value:
        return self.function.emit(self.type, f"or {self.type} {self.text}, {other.text}")

    def __floordiv__(self, other: Value | Number) -> Value:
        return self.function.emit(self.type, f"sdiv {self.type} {self.text}, {self._text(other)}")

    def __lt__(self, other: Value | Number) -> Value:
        return self._compared("slt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._compared("sle", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._compared("sgt", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._compared("sge", other)

    def equals(self, other: Value | Number | str) -> Value:
        """Whether integers are equal."""
        return self._compared("eq", other)

    def differs(self, other: Value | Number | str) -> Value:
        """Whether integers differ."""
        return self._compared("ne", other)

    def cast(self, how: str, type_: str) -> Value:
        """Another type of the value: ``how`` is LLVM's conversion."""
        return self.function.emit(type_, f"{how} {self.type} {self.text} to {type_}")

    def least(self, other: Value | Number) -> Value:
        """The smaller of two integers."""
        return self.function.select(self < other, self, other)


class Variable:
    """A value that changes."""

    def __init__(self, function: Function, type_: str, place: str) -> None:
        self.function, self.type, self.place = function, type_, place

    @property
    def value(self) -> Value:
        """What it holds now."""
        return self.function.emit(self.type, f"load {self.type}, ptr {self.place}")

    def set(self, value: Value | Number | str) -> None:
        """Replace what it holds."""
        text = value.text if isinstance(value, Value) else value
        self.function.line(f"store {self.type} {text}, ptr {self.place}")

    def add(self, other: Value | Number) -> None:
        """Add to what it holds."""
        self.set(self.value + other)


class Fields:
    """A record in memory, by the names of its fields, laid out as C does."""

    def __init__(self, function: Function, place: Value, layout: Sequence[tuple[str, str]]) -> None:
        self.function, self.place, self.layout = function, place, layout

    def __getitem__(self, name: str) -> Value:
        offset, type_ = offsets(self.layout)[name]
        value = self.function.load(type_, self.place + offset)
        if type_ == "i8":
            return value.differs(0)
        return value.cast("sext", "i64") if type_ == "i32" else value


def offsets(layout: Sequence[tuple[str, str]]) -> dict[str, tuple[int, str]]:
    """Where fields begin, in bytes, and their types."""
    found, end = {}, 0
    for name, type_ in layout:
        end = -(-end // BYTES[type_]) * BYTES[type_]
        found[name] = end, type_
        end += BYTES[type_]
    return found


def size_of(layout: Sequence[tuple[str, str]]) -> int:
    """The bytes of a record, one after the other in an array."""
    end, aligned = max(at + BYTES[type_] for at, type_ in offsets(layout).values()), max(BYTES[t] for _, t in layout)
    return -(-end // aligned) * aligned


class Function:
    """A function as it is written, statement by statement."""

    def __init__(self, module: Module, name: str, parameters: Sequence[str]) -> None:
        self.module, self.name, self.count = module, name, 0
        self.lines: list[str] = []
        self.places: list[str] = []
        self.arguments = [Value(self, type_, f"%a{i}") for i, type_ in enumerate(parameters)]

    def line(self, text: str) -> None:
        """A statement without a value."""
        self.lines.append(text)

    def emit(self, type_: str, text: str) -> Value:
        """A statement and its value."""
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return Value(self, type_, f"%v{self.count}")

    def place(self, type_: str, count: int = 1) -> Value:
        """Memory of the call."""
        self.count += 1
        self.places.append(f"%p{self.count} = alloca {type_}, i64 {count}, align 64")
        return Value(self, "ptr", f"%p{self.count}")

    def variable(self, type_: str, value: Value | Number | str) -> Variable:
        """A variable that holds this to begin with."""
        self.count += 1
        self.places.append(f"%p{self.count} = alloca {type_}")
        made = Variable(self, type_, f"%p{self.count}")
        made.set(value)
        return made

    def number(self, value: int) -> Value:
        """A number of 64 bits."""
        return Value(self, "i64", str(value))

    def load(self, type_: str, place: Value) -> Value:
        """What is in memory, aligned to elements."""
        return self.emit(type_, f"load {type_}, ptr {place.text}, align {BYTES[lanes_of(type_)[1]]}")

    def store(self, place: Value, value: Value) -> None:
        """Write to memory that is aligned to elements."""
        align = BYTES[lanes_of(value.type)[1]]
        self.line(f"store {value.type} {value.text}, ptr {place.text}, align {align}")

    def select(self, which: Value, yes: Value, no: Value | Number) -> Value:
        """One of two values; lane by lane if ``which`` is a vector."""
        text = no.text if isinstance(no, Value) else str(no)
        return self.emit(yes.type, f"select {which.type} {which.text}, {yes.type} {yes.text}, {yes.type} {text}")

    def call(self, name: str, type_: str, *arguments: Value | str) -> Value:
        """A call of one of LLVM's own functions. An argument that is a text has its type in it."""
        texts = [arg if isinstance(arg, str) else f"{arg.type} {arg.text}" for arg in arguments]
        types = [text.rpartition(" ")[0].partition(" align")[0] for text in texts]
        self.module.declared.add(f"declare {type_} @{name}({', '.join(types)})")
        text = f"call {type_} @{name}({', '.join(texts)})"
        if type_ != "void":
            return self.emit(type_, text)
        self.line(text)
        return Value(self, type_, "")

    def prefetch(self, place: Value, write: int = 0, near: int = 3) -> None:
        """Fetch a line into a cache: 3 is the first one, 2 the second one."""
        self.call("llvm.prefetch.p0", "void", place, f"i32 {write}", f"i32 {near}", "i32 1")

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes of two vectors, those of b after those of a."""
        type_ = f"<{len(lanes)} x {lanes_of(a.type)[1]}>"
        other, picks = "poison" if b is None else b.text, ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {a.type} {a.text}, {a.type} {other}, <{len(lanes)} x i32> <{picks}>"
        return self.emit(type_, text)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        type_ = f"<{lanes} x {value.type}>"
        one = self.emit(type_, f"insertelement {type_} poison, {value.type} {value.text}, i64 0")
        text = f"shufflevector {type_} {one.text}, {type_} poison, <{lanes} x i32> zeroinitializer"
        return self.emit(type_, text)

    def _label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def _begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    @contextlib.contextmanager
    def loop(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Do this while the condition holds."""
        body, end = self._label(), self._label()
        branch = f", label %{body}, label %{end}"
        self.line(f"br i1 {condition().text}{branch}")
        self._begin(body)
        yield
        self.line(f"br i1 {condition().text}{branch}")
        self._begin(end)

    @contextlib.contextmanager
    def each(self, count: Value | int) -> Iterator[Value]:
        """Do this for 0, 1, ... below a count."""
        index = self.variable("i64", 0)
        with self.loop(lambda: index.value < count):
            yield index.value
            index.add(1)

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Do this if the condition holds."""
        body, end = self._label(), self._label()
        self.line(f"br i1 {condition.text}, label %{body}, label %{end}")
        self._begin(body)
        yield
        self.line(f"br label %{end}")
        self._begin(end)

    def either(self, condition: Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Do one of two things."""
        first, second, end = self._label(), self._label(), self._label()
        self.line(f"br i1 {condition.text}, label %{first}, label %{second}")
        for label, do in ((first, yes), (second, no)):
            self._begin(label)
            do()
            self.line(f"br label %{end}")
        self._begin(end)

    def text(self) -> str:
        """The whole function. It begins with a cache line, so that loops lie alike wherever it is linked."""
        parameters = ", ".join(f"{value.type} {value.text}" for value in self.arguments)
        body, linkage = "\n".join([*self.places, *self.lines, "ret void"]), "internal " * (self.name != ENTRY)
        return f"define {linkage}void @{self.name}({parameters}) #0 align 64 {{\n{body}\n}}\n"


class Module:
    """The functions of one object file, and the records and tables that tell where they are."""

    def __init__(self) -> None:
        self.declared: set[str] = set()
        self.functions: dict[str, Function] = {}
        self.records: dict[str, tuple[Sequence[tuple[str, str]], Sequence[str]]] = {}  # layouts and values

    def function(self, name: str, parameters: Sequence[str]) -> Function:
        """A new function."""
        function = self.functions[name] = Function(self, name, parameters)
        return function

    def table(self, name: str, functions: Sequence[Function]) -> str:
        """An array of functions: its name."""
        return self.tables(name, [f"@{function.name}" for function in functions])

    def tables(self, name: str, names: Sequence[str]) -> str:
        """An array of pointers: its name."""
        return self.record(name, [(str(i), "ptr") for i in range(len(names))], names)

    def record(self, name: str, layout: Sequence[tuple[str, str]], values: Sequence[str]) -> str:
        """A record, whose pointers are to functions and to other records: its name."""
        self.records[name] = layout, values
        return f"@{name}"

    def entry(self) -> None:
        """The function by which others find all of these. It says how many bytes the records take, and writes them
        where it is told, if it is, the latest one in front: so addresses are in code alone, which may lie anywhere."""
        f, places, end = self.function(ENTRY, ["ptr", "ptr"]), {}, 0
        to, bytes_ = f.arguments
        for name, (layout, _) in reversed(self.records.items()):
            places[f"@{name}"] = to, end
            end += -(-size_of(layout) // BYTES["ptr"]) * BYTES["ptr"]  # no field has more bytes
        f.store(bytes_, f.number(end))
        with f.when(to.differs("null")):
            for name, (layout, values) in self.records.items():
                for (offset, type_), value in zip(offsets(layout).values(), values, strict=True):
                    base, at = places.get(value, (Value(f, type_, value), 0))
                    f.store(to + places[f"@{name}"][1] + offset, base + at if type_ == "ptr" else base)

    def text(self, attributes: str) -> str:
        """The module; its functions have these attributes."""
        parts = [*sorted(self.declared), *(f.text() for f in self.functions.values())]
        return "\n".join([*parts, f"attributes #0 = {{ nounwind {attributes} }}", ""])
