"""Families on disk: programs for many sizes as plain data, from which a later process makes those for its sizes.

An entry has the members of a family (``other_sizes``), each with its guards and its plan, in which a list stands for
what has no plain form: one with a slot for a size, one with the number of a class and its fields for a record. A nest
is kept as its outline, and its machine code has an entry of its own. Programs with others inside of them, and those
that ``stored`` does not keep either, are in no such entry.

    Copy((0, 0, -1), (1, 0, -1), 4 * n)    ->    [15, (0, 0, -1), (1, 0, -1), [5]]

A plan is read when its guards hold for the first time. What cannot be read is a miss, and is removed.
"""

from __future__ import annotations

import marshal
import operator
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes, runtime
from weft.compiler.plans import instructions, steps
from weft.compiler.sizes import other_sizes
from weft.compiler.storage import cache, disk
from weft.core.caches import plain_values
from weft.core.caches.plain_values import NotPlainError
from weft.core.symbolic import sizes
from weft.loops import ir, nests
from weft.loops.routines import register_promotion, routine
from weft.loops.schedules import parallel

if TYPE_CHECKING:
    from weft.compiler.context import Context

_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
_GONE = (ir.Nest, ir.Chain, routine.Routine, nests.Binding)  # link asks for their outlines only
_AVAL, _DTYPE, _ARRAY, _LIST = range(4)
_RECORDS: tuple[Any, ...] = (
    steps.Plan, steps.Run, steps.Chain, steps.FusedEpilogue, steps.Native, register_promotion.Lowered, nests.Lowered,
    nests.Params, parallel.Outline, instructions.Offset, instructions.Gemm, instructions.Copy, instructions.CopyRows,
    instructions.Fill, instructions.Sort, instructions.Library, instructions.Foreign, *instructions.OUTPUTS,
)  # fmt: skip
_NUMBERS = {kind: number for number, kind in enumerate(_RECORDS, _LIST + 1)}
_OPERATIONS = {operation.__name__: operation for operation in (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.pow,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, sizes.round_up, sizes.round_down,
)}  # fmt: skip

# errors of reading an entry, and of running it: the runtime checks every location that an instruction names
_INVALID = (
    disk.DamagedError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError, struct.error,
)  # fmt: skip


class _Guards(sizes.Guards):
    """Guards as plain data, and from it."""

    def __init__(self, numbers: Sequence[Any], made: Sequence[Any], noted: Sequence[Any]) -> None:
        super().__init__(numbers, 0)
        self.close()
        operations = {**_OPERATIONS, "constant": "constant"}
        self._made = [(operations[m[0]], *m[1:]) if type(m) is tuple else m for m in made]
        self._guards = [sizes.Guard(_OPERATIONS[compare], *rest) for compare, *rest in noted]

    @staticmethod
    def written(guards: sizes.Guards) -> tuple[Any, ...]:
        made = [
            (m[0] if m[0] == "constant" else m[0].__name__, *m[1:]) if type(m) is tuple else m for m in guards._made
        ]
        return guards.numbers, made, [(compare.__name__, *rest) for compare, *rest in guards._guards]


# -- writing ----------------------------------------------------------------------------------------------------------


def write(wanted: disk.Request, member: other_sizes.Member) -> None:
    """Add a program to the entry of its family. Raises ``NotPlainError``."""
    found = wanted.store.load(wanted.key, disk.PROGRAM)
    others = [] if found is None else marshal.loads(found.bytes)
    mine = _written(member)
    if mine not in others:
        content = plain_values.text([*others, mine][-other_sizes.MOST_MEMBERS :])
        wanted.store.store(wanted.key, "family", content, disk.PROGRAM)


def _written(member: other_sizes.Member) -> bytes:
    keys = [entry.key for entry in member.compiled]
    if None in keys:
        raise NotPlainError("it has a kernel that is not on disk")
    writer = _PlanWriter(member.guards)
    plan, outlines, out_avals = map(
        writer.of, (member.plan, tuple(e.outline for e in member.compiled), member.out_avals)
    )
    body = plain_values.text((keys, outlines, plan, out_avals))
    return plain_values.text((*_Guards.written(member.guards), body))


class _PlanWriter:
    """Writes plans as plain values."""

    def __init__(self, guards: sizes.Guards) -> None:
        self.guards = guards

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return value if _PLAIN.issuperset(map(type, value)) else tuple(map(self.of, value))
        if kind is sizes.Size:
            return [value.slot] if value.guards is self.guards else value.value
        if kind in _NUMBERS:
            return [_NUMBERS[kind], *[self.of(getattr(value, name)) for name in kind._fields]]
        if kind is list:
            return [_LIST, self.of(tuple(value))]
        if isinstance(value, _GONE):
            return None
        if (kind is sizes.SizedAval or kind is runtime.ShapedArray) and not dtypes.is_extended(value.dtype):
            return [_AVAL, self.of(value.shape), *plain_values.aval(sizes.plain_aval(value))[1:]]
        if isinstance(value, np.dtype):
            return [_DTYPE, plain_values.dtype_name(value)]
        if isinstance(value, np.ndarray | np.generic):  # a literal's value
            return [_ARRAY, value.shape, plain_values.dtype_name(value.dtype), value.tobytes()]
        raise NotPlainError(f"its plan has a {kind.__name__}")


# -- reading ----------------------------------------------------------------------------------------------------------


def find(wanted: disk.Request, name: str, within: Context) -> other_sizes.Family | None:
    """The family of an entry, if there is one."""
    entry = wanted.store.load(wanted.key, disk.PROGRAM)
    if entry is None:
        return None
    try:
        members = [
            _Member(wanted, name, within, *content) for content in map(marshal.loads, marshal.loads(entry.bytes))
        ]
    except _INVALID as error:
        wanted.store.remove(wanted.key, f"it cannot be read: {error}", disk.PROGRAM)
        return None
    return other_sizes.Family(
        other_sizes.weight_of(len(entry.bytes) // 32, 0), members
    )  # measured: 12 to 20 times that


class _Member(other_sizes.Member):
    """A program that another process compiled."""

    is_whole = False

    def __init__(
        self, wanted: disk.Request, name: str, within: Context, numbers: Any, made: Any, noted: Any, body: bytes
    ) -> None:
        super().__init__(name, within, None, _Guards(numbers, made, noted), ())
        self.wanted, self.body = wanted, body

    def at(self, values: sizes.Values) -> tuple[steps.Plan, tuple[Any, ...]]:
        if self.plan is None:
            self._read()
        return super().at(values)

    def executable(self, numbers: Sequence[Any], in_avals: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
        try:
            return super().executable(numbers, in_avals)
        except _INVALID as error:
            self.serves = False
            self.wanted.store.remove(self.wanted.key, f"it cannot be run: {error}", disk.PROGRAM)
            return None

    def _read(self) -> None:
        keys, *others = marshal.loads(self.body)
        outlines, plan, self.out_avals = map(_Reader(self.guards).of, others)
        compiled, n_loaded = list[Any](), 0
        for key, outline in zip(keys, outlines, strict=True):
            kernel = cache.BUILDER.load(key, self.wanted.store, self.wanted.target)
            if kernel is None:
                raise disk.DamagedError("a kernel is missing")
            kernel.outline = outline
            n_loaded += not kernel.reuses
            compiled.append(kernel)
        self.n_loaded, self.compiled, self.plan, self.body = n_loaded, compiled, plan, b""


class _Reader:
    """Reads what ``_PlanWriter`` has written."""

    def __init__(self, guards: sizes.Guards) -> None:
        self.guards = guards

    def of(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple([self.of(item) if type(item) in (tuple, list) else item for item in value])
        if type(value) is not list:
            return value
        number, *parts = value
        if not parts:
            return sizes.Size(self.guards, 0, number, None, None)
        parts = list(map(self.of, parts))
        if number == _AVAL:
            return self.aval(*parts)
        if number == _ARRAY:
            return np.frombuffer(parts[2], dtypes.as_dtype(parts[1])).reshape(parts[0])
        if number == _DTYPE:
            return dtypes.as_dtype(parts[0])
        return list(parts[0]) if number == _LIST else _RECORDS[number - _LIST - 1](*parts)

    def aval(self, shape: tuple[Any, ...], dtype: str, weak_type: bool) -> Any:
        sized = any(map(sizes.is_sized, shape))
        hint = runtime.ShapedArray((1,) * len(shape) if sized else shape, dtypes.as_dtype(dtype), weak_type)
        return sizes.SizedAval(hint, shape) if sized else hint
