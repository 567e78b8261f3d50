"""Plans as functions of sizes: what is made of a tree whose numbers follow from sizes, at other sizes.

    Run(extents=(n, m), params=[n, m | 2.0])    ->    values -> Run(extents=(301, 70), params=b"...")

A template is made once of a plan that the compiler made of ``core.symbolic.sizes``; ``None`` stands for what has no
size in it and stays as it is.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import Record
from weft.compiler.storage import cache
from weft.core.primitive import Primitive
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.symbolic import sized_programs, sizes
from weft.core.symbolic.sized_programs import HiddenError
from weft.loops import ir
from weft.loops.nests import Binding, Lowered
from weft.loops.routines import routine

# no sizes are in these: machine code is made of them, or they are plain values
_FIXED = (
    bool, int, float, complex, str, bytes, type(None), type, enum.Enum, frozenset, range, np.dtype, np.generic,
    np.ndarray, runtime.ShapedArray, Primitive, ir.Nest, ir.Chain, routine.Routine, cache.Compiled,
    types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip
_NUMBERS = frozenset((bool, int, float, str, bytes, type(None)))


class At:
    """The values at some sizes, by their slots. ``made``: results of parts that stand in a template more than once."""

    def __init__(self, values: sizes.Values | Sequence[Any]) -> None:
        self.values = values
        self.made: dict[Any, Any] = {}
        self.numbers: sized_programs.ToNumbers | None = None


Template = Callable[[At], Any]


def template(value: Any, guards: sizes.Guards, whole: bool = True) -> Template | None:
    """A function that gives a value at other sizes; None if it is the same at all of them. Raises ``HiddenError``.

    ``whole``: the strides of kernels too, which instructions for a CPU do not have.
    """
    return _Maker(guards, whole).of(value)


def at(value: Any, made: Template | None, values: At) -> Any:
    """A value at other sizes."""
    return value if made is None else made(values)


class _Maker:
    """Makes templates of what has the sizes of one compilation in it; those of others are plain numbers."""

    def __init__(self, guards: sizes.Guards, whole: bool) -> None:
        self.guards, self.whole = guards, whole
        self.present = sized_programs.ToNumbers(sizes.present)
        self.calls: dict[int, Template | None] = {}  # of kernels, which stand in a plan and beside it

    def of(self, value: Any) -> Template | None:
        if isinstance(value, _FIXED):
            return None
        kind = type(value)
        if kind is sizes.Size:
            slot, number = value.slot, value.value
            return (lambda values: values.values[slot]) if value.guards is self.guards else (lambda _: number)
        make = _MAKERS.get(kind)
        if make is not None:
            return make(self, value)
        if isinstance(value, tuple):
            return self.items(value, kind)
        if isinstance(value, Record):
            return self.fields(value)
        if kind is types.FunctionType:
            return self.present.check_captured(value)
        if kind.__module__.partition(".")[0] != "weft" or kind.__module__.startswith("weft.runtime"):
            return None  # it was there before, since no compilation makes one
        raise HiddenError(kind.__qualname__)

    def items(self, value: tuple[Any, ...], kind: type) -> Template | None:
        if _NUMBERS.issuperset(map(type, value)):
            return None
        changed = list[tuple[int, Template]]()
        for position, item in enumerate(value):
            kind_of = type(item)
            part = self.items(item, tuple) if kind_of is tuple else None if kind_of in _NUMBERS else self.of(item)
            if part is not None:
                changed.append((position, part))
        if not changed:
            return None

        def made(values: At) -> Any:
            items = list(value)
            for position, part in changed:
                items[position] = part(values)
            return tuple(items) if kind is tuple else tuple.__new__(kind, items)

        return made

    def in_list(self, value: Sequence[Any]) -> Template | None:
        made = self.items(tuple(value), tuple)
        return None if made is None else lambda values: list(made(values))

    def in_dict(self, value: Mapping[Any, Any]) -> Template | None:
        made = self.items(tuple(value.values()), tuple)
        return None if made is None else lambda values: dict(zip(value, made(values), strict=True))

    def fields(self, value: Record) -> Template | None:
        names = type(value)._fields
        given = [(name, getattr(value, name)) for name in names]
        parts = {name: part for name, x in given if type(x) not in _NUMBERS and (part := self.of(x)) is not None}
        if not parts:
            return None
        return lambda values: value.replace(**{name: part(values) for name, part in parts.items()})

    def aval(self, aval: sizes.SizedAval) -> Template | None:
        shape = self.of(aval.shape)
        return None if shape is None else lambda values: aval.hint.update(shape=shape(values))

    def lowered(self, low: Lowered) -> Template | None:
        if id(low) not in self.calls:
            self.calls[id(low)] = self._call(low)
        return self.calls[id(low)]

    def _call(self, low: Lowered) -> Template | None:
        names = ("extents", "outer", "params", *(("operands",) if self.whole or low.gpu else ()))
        changed = {name: part for name in names if (part := self.of(getattr(low, name))) is not None}
        if not changed:
            return None

        def made(values: At) -> Lowered:
            found = values.made.get(id(low))
            if found is None:
                found = low.replace(**{name: part(values) for name, part in changed.items()})
                values.made[id(low)] = found
            return found

        return made

    def binding(self, binding: Binding) -> Template | None:
        """An operand of a kernel with other numbers. Its variable stays: kernels and jaxpr refer to it."""
        made = self.items((binding.offset, binding.strides, binding.outer), tuple)
        if made is None:
            return None

        def at_values(values: At) -> Binding:
            offset, strides, outer = made(values)
            return binding._replace(offset=offset, strides=strides, outer=outer)

        return at_values

    def program(self, program: Jaxpr | ClosedJaxpr) -> Template | None:
        if self.present.value(program) is program:
            return None

        def made(values: At) -> Jaxpr | ClosedJaxpr:
            if values.numbers is None:
                values.numbers = sized_programs.ToNumbers(functools.partial(self.number, values))
            return values.numbers.value(program)

        return made

    def number(self, values: At, size: sizes.Size) -> Any:
        return values.values[size.slot] if size.guards is self.guards else size.value


_MAKERS: dict[Any, Callable[[_Maker, Any], Template | None]] = {
    list: _Maker.in_list, dict: _Maker.in_dict, sizes.SizedAval: _Maker.aval, Lowered: _Maker.lowered,
    Binding: _Maker.binding, Jaxpr: _Maker.program, ClosedJaxpr: _Maker.program,
}  # fmt: skip
