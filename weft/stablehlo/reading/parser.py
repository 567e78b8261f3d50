"""Reads MLIR's text in generic form: functions, operations, regions, attributes.

    %3 = "stablehlo.add"(%1, %2) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>

Attributes stay text, which ``integers``, ``word`` and ``constant`` interpret. Modules and functions may also be in the
short form that ``weft.stablehlo.module`` writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import dtypes
from weft._base.record import NamedTuple
from weft.operations.tokens import TOKEN
from weft.stablehlo import types

Type = tuple[tuple[Any, ...], np.dtype]  # extents (None where they are not known) and dtype


class ParsedRegion(NamedTuple):
    """Arguments with their types, and operations."""

    arguments: list[tuple[str, Type]]
    operations: list[Operation]


class Operation(NamedTuple):
    """One operation; the names of results are without their numbers."""

    name: str
    results: list[str]
    operands: list[str]
    attributes: dict[str, str]
    regions: list[ParsedRegion]
    types: list[Type]  # of the results


class Module(NamedTuple):
    """The functions and meshes of a module by name, and on how many devices it runs.

    ``lies``: for each function the texts of the attributes of its arguments and of its results.
    """

    functions: dict[str, ParsedRegion]
    meshes: dict[str, str]
    lies: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]]
    n_devices: int


_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_RESULT = re.compile(r"(%[\w.$-]+)(?::(\d+))?")
_VALUE = re.compile(r"%[\w.$#-]+")
_KEY = re.compile(r'[\w.$-]+|"[^"]*"')
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OPENING, _CLOSING = "([{<", ")]}>"


class Parser:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._lies: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]] = {}

    def fail(self, wanted: str) -> Exception:
        line = self.text.count("\n", 0, self.position) + 1
        return ValueError(
            f"[stablehlo] line {line}: {wanted} expected, got {self.text[self.position : self.position + 60]!r}"
        )

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.position)
        assert found is not None
        self.position = found.end()

    def at(self, token: str) -> bool:
        """Whether the next token is this one, which is then passed."""
        self.skip()
        if not self.text.startswith(token, self.position):
            return False
        self.position += len(token)
        return True

    def take(self, token: str) -> None:
        if not self.at(token):
            raise self.fail(repr(token))

    def match(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        self.skip()
        found = pattern.match(self.text, self.position)
        if found is None:
            raise self.fail(wanted)
        self.position = found.end()
        return found

    def raw(self, ends: str) -> str:
        """The text up to one of the characters ``ends`` outside of brackets and strings."""
        self.skip()
        text, start, depth = self.text, self.position, 0
        while self.position < len(text):
            c = text[self.position]
            if depth == 0 and c in ends:
                break
            if c == '"':
                self.position = self._string_end(self.position)
                continue
            if text.startswith("->", self.position):
                self.position += 2
                continue
            depth += (c in _OPENING) - (c in _CLOSING)
            self.position += 1
        return text[start : self.position].strip()

    def _string_end(self, position: int) -> int:
        found = _STRING.match(self.text, position)
        if found is None:
            raise self.fail("the end of a string")
        return found.end()

    def attributes(self, end: str) -> dict[str, str]:
        """``name = value`` pairs up to ``end``."""
        found: dict[str, str] = {}
        while not self.at(end):
            key = self.match(_KEY, "the name of an attribute")[0].strip('"')
            found[key] = self.raw(",}") if self.at("=") else "unit"
            self.at(",")
        return found

    def type(self) -> Type:
        """``tensor<2x3xf32>``."""
        self.skip()
        start = self.position
        self.match(re.compile(r"[\w.!]+"), "a type")
        if self.text.startswith("<", self.position):
            self.position += 1
            self.raw(">")
            self.position += 1
        return tensor_type(self.text[start : self.position])

    def types(self, given: list[dict[str, str]] | None = None) -> list[Type]:
        """``(a, b)``, or one type; the attributes of each are added to ``given``."""
        if not self.at("("):
            return [self.type()]
        found = []
        while not self.at(")"):
            found.append(self.type())
            attributes = self.attributes("}") if self.at("{") else {}
            if given is not None:
                given.append(attributes)
            self.at(",")
        return found

    def dictionaries(self) -> list[dict[str, str]]:
        """``[{a = 1}, {}]``."""
        found = []
        self.take("[")
        while not self.at("]"):
            self.take("{")
            found.append(self.attributes("}"))
            self.at(",")
        return found

    # -- operations ---------------------------------------------------------------------------------------------------

    def operation(self) -> Operation:
        results = []
        self.skip()
        while self.text.startswith("%", self.position):
            found = self.match(_RESULT, "a result")
            results.append(found[1])
            if not self.at(","):
                self.take("=")
                break
            self.skip()
        name = self.match(re.compile(r'"([^"]+)"'), "an operation")[1]
        self.take("(")
        operands = self._values(")")
        attributes = self.attributes("}>") if self.at("<{") else {}
        regions = self._regions() if self.at("(") else []
        if self.at("{"):
            attributes |= self.attributes("}")
        self.take(":")
        self.types()
        self.take("->")
        operation = Operation(name, results, operands, attributes, regions, self.types())
        self._location()
        return operation

    def _location(self) -> None:
        if self.at("loc("):
            self.raw(")")
            self.take(")")

    def _values(self, end: str) -> list[str]:
        found = []
        while not self.at(end):
            found.append(self.match(_VALUE, "a value")[0])
            self.at(",")
        return found

    def _regions(self) -> list[ParsedRegion]:
        found = []
        while not self.at(")"):
            self.take("{")
            found.append(self.block())
            self.at(",")
        return found

    def block(self) -> ParsedRegion:
        """What stands between braces: arguments if there are any, and operations."""
        arguments: list[tuple[str, Type]] = []
        self.skip()
        if self.text.startswith("^", self.position):
            self.match(re.compile(r"\^\w+"), "a block")
            arguments = self._arguments() if self.at("(") else []
            self.take(":")
        operations = []
        while not self.at("}"):
            operations.append(self._statement())
        return ParsedRegion(arguments, operations)

    def _arguments(self, given: list[dict[str, str]] | None = None) -> list[tuple[str, Type]]:
        found = []
        while not self.at(")"):
            name = self.match(_VALUE, "an argument")[0]
            self.take(":")
            found.append((name, self.type()))
            attributes = self.attributes("}") if self.at("{") else {}
            if given is not None:
                given.append(attributes)
            self._location()
            self.at(",")
        return found

    def _statement(self) -> Operation:
        if self.at("func.func"):
            return self._function()
        if self.at("func.return"):
            self.skip()
            operands = []
            while self.text.startswith("%", self.position):
                operands.append(self.match(_VALUE, "a value")[0])
                self.at(",")
                self.skip()
            if self.at(":"):
                self.raw("\n")
            return Operation("func.return", [], operands, {}, [], [])
        return self.operation()

    def _function(self) -> Operation:
        visibility = "public" if self.at("public") else "private" if self.at("private") else "public"
        name = self.match(re.compile(r"@([\w.$-]+)"), "the name of a function")[1]
        self.take("(")
        ins: list[dict[str, str]] = []
        outs: list[dict[str, str]] = []
        arguments = self._arguments(ins)
        if self.at("->"):
            self.types(outs)
        if self.at("attributes"):
            self.take("{")
            self.attributes("}")
        self.take("{")
        block = self.block()
        self._lies[name] = ins, outs
        given = {"sym_name": f'"{name}"', "sym_visibility": f'"{visibility}"'}
        return Operation("func.func", [], [], given, [ParsedRegion(arguments, block.operations)], [])

    def module(self) -> Module:
        """The whole text."""
        attributes: dict[str, str] = {}
        if self.at("module"):
            if self.at("@"):
                self.match(re.compile(r"[\w.$-]+"), "the name of a module")
            if self.at("attributes"):
                self.take("{")
                attributes = self.attributes("}")
            self.take("{")
            operations = self.block().operations
        else:
            whole = self.operation()
            operations, attributes = whole.regions[0].operations, whole.attributes
        functions, meshes = {}, {}
        for op in operations:
            name = op.attributes.get("sym_name", "").strip('"')
            if op.name == "func.func":
                functions[name] = op.regions[0]
                if name not in self._lies:
                    listed = [op.attributes.get(word, "[]") for word in ("arg_attrs", "res_attrs")]
                    self._lies[name] = Parser(listed[0]).dictionaries(), Parser(listed[1]).dictionaries()
            elif op.name == "sdy.mesh":
                meshes[name] = op.attributes["mesh"]
        return Module(functions, meshes, self._lies, integer(attributes.get("mhlo.num_partitions"), 1))


def needed(block: ParsedRegion, name: str) -> set[str]:
    """The values of a block, and of those around it, from which a value is made, with itself."""
    made = {result: op for op in block.operations for result in op.results}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop().partition("#")[0]
        if each not in found:
            found.add(each)
            waiting += made[each].operands if each in made else []
    return found


def reached(block: ParsedRegion, name: str) -> set[str]:
    """The arguments of a block from which a value is made."""
    return needed(block, name) & {argument for argument, _ in block.arguments}


def tensor_type(text: str) -> Type:
    """The extents and dtype of ``tensor<2x3xf32>``, or of a token."""
    if text == "!stablehlo.token":
        return (), TOKEN
    found = re.fullmatch(r"tensor<((?:[\d?]+x)*)(.+?)(?:,.*)?>", text, re.DOTALL)
    if found is None or found[2] not in types.DTYPES:
        raise NotImplementedError(f"[stablehlo] values of type {text} are not read")
    shape = tuple([None if n == "?" else int(n) for n in found[1].split("x")[:-1]])
    return shape, types.DTYPES[found[2]]


# -- attributes -------------------------------------------------------------------------------------------------------


def integers(text: str | None) -> tuple[int, ...]:
    """The numbers of ``array<i64: 1, 2>`` or ``dense<[1, 2]> : ...``, or of a list; () for None."""
    if text is None:
        return ()
    if text.startswith("dense"):
        return tuple(np.atleast_1d(constant(text)).ravel().tolist())
    inner = text.partition(":")[2] if text.startswith("array") else text.partition("[")[2]
    return tuple([int(word) for word in re.findall(r"-?\d+", inner)])


def flags(text: str | None) -> tuple[bool, ...]:
    """The truth values of ``array<i1: true, false>``."""
    return tuple([word == "true" for word in re.findall(r"true|false", text or "")])


def integer(text: str | None, default: int = 0) -> int:
    """The number of ``3 : i64``."""
    return default if text is None else int(text.partition(":")[0])


def word(text: str | None) -> str:
    """The last word of ``#stablehlo<comparison_direction LT>``."""
    return (text or "").rstrip(">").split(" ")[-1]


def field(text: str, name: str) -> tuple[int, ...]:
    """The numbers of a field of ``#stablehlo.gather<offset_dims = [1], index_vector_dim = 1>``."""
    found = re.search(rf"\b{name} = (\[[^\]]*\]|\d+)", text)
    if found is None:
        return ()
    return tuple([int(n) for n in re.findall(r"\d+", found[1])])


def constant(text: str) -> np.ndarray:
    """The array of ``dense<...> : tensor<...>``."""
    parser = Parser(text)
    parser.take("dense<")
    inner = parser.raw(">")
    parser.take(">")
    parser.take(":")
    shape, dtype = parser.type()
    if any(n is None for n in shape):
        raise ValueError(f"[stablehlo] a constant of unknown extents: {text[:60]}")
    if not inner:
        return np.zeros(shape, dtype)
    if inner.startswith('"0x'):
        return _of_bytes(bytes.fromhex(inner[3:-1]), shape, dtype)
    numbers = re.findall(r"\([^)]*\)|[^\s\[\],]+", inner)
    values = _array([_number(number, dtype) for number in numbers], dtype)
    if len(values) == 1:
        return np.broadcast_to(values[0], shape).copy()
    return values.reshape(shape)


def _array(numbers: list[Any], dtype: np.dtype) -> np.ndarray:
    """Integers keep all their bits: NumPy would take float64 for a list that only some 64-bit type holds."""
    if not dtypes.issubdtype(dtype, np.integer):
        return np.array(numbers).astype(dtype)
    bits = dtypes.itemsize_bits(dtype)
    signed = dtypes.issubdtype(dtype, np.signedinteger)
    lowest = -(2 ** (bits - 1)) if signed else 0
    wrapped = [(number - lowest) % 2**bits + lowest for number in numbers]  # 0xFF is -1 in eight bits with a sign
    return np.array(wrapped, np.int64 if signed else np.uint64).astype(dtype)


def _of_bytes(data: bytes, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        count = int(np.prod(shape))
        if data in (b"\x00", b"\xff"):  # for all; otherwise there is a byte for each, or for each eight
            return np.full(shape, data != b"\x00")
        if len(data) < count:
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count].astype(bool)
            return bits.reshape(shape)
        return np.frombuffer(data, np.uint8).astype(bool).reshape(shape)
    found = np.frombuffer(data, dtype)
    return np.broadcast_to(found[0], shape).copy() if len(found) == 1 else found.reshape(shape)


def _number(text: str, dtype: np.dtype) -> Any:
    if text.startswith("("):
        parts = [_number(part.strip(), np.dtype(f"f{dtype.itemsize // 2}")) for part in text[1:-1].split(",")]
        return np.complex128(complex(*map(float, parts)))
    if text in ("true", "false"):
        return text == "true"
    if dtypes.issubdtype(dtype, np.integer):
        return int(text, 0)
    if text.startswith("0x"):
        bits = dtypes.itemsize_bits(dtype)
        return np.frombuffer(int(text, 16).to_bytes((bits + 7) // 8, "little"), dtype)[0]
    return np.float64(text) if dtype != ml_dtypes.bfloat16 else np.float32(text)
