"""The key of a nest's machine code on disk: a digest of all that the code depends on.

A nest is written as text such that equal texts mean equal code: dtypes, stride classes, statements, parameters by type
and bits; then the target and the version of the compiler. A kind is written as the name of weft's primitive that it
belongs to. Kinds without such a text (a user-defined primitive, the function of a general reduction) have no key: such
kernels are built in every process.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core
from weft._base.record import Record
from weft._base.target import Target
from weft.compiler.storage.version import compiler_version
from weft.core import kinds
from weft.core.caches.cache_keys import disk_key
from weft.loops import ir

_KIND_HOMES = ("weft.operations", "weft.loops", "weft.random")
_KINDS = (kinds.Elementwise, kinds.Reduction, kinds.Cumulative)
# fields with these annotations hold plain values, which their repr fully describes
_PLAIN = frozenset(["int", "int | None", "bool", "str", "tuple[int, ...]"])


class NoKeyError(Exception):
    """A nest contains something that cannot be written as text."""


def key(nest: ir.Nest, machine: Target) -> bytes | None:
    """32 bytes that identify the nest's code for a machine, or None if it must not be stored on disk."""
    version = compiler_version()
    if version is None:
        return None
    try:
        text = nest_text(nest)
    except NoKeyError:
        return None
    return disk_key("kernel", machine.key, text.encode(), version)


# the text of a nest


def nest_text(nest: ir.Nest) -> str:
    """The canonical text. Raises NoKeyError."""
    return _write(nest)


def _write(value: Any) -> str:
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = _WRITERS[type(value)] = _writer_of(type(value))
    return writer(value)


@functools.cache
def _dtype(value: np.dtype) -> str:
    return f"{value.name}{value.byteorder}"


def _tuple(value: tuple[Any, ...]) -> str:
    return f"({','.join([_write(item) for item in value])})"


def _dict(value: dict[Any, Any]) -> str:
    return f"{{{','.join([f'{_write(name)}:{_write(item)}' for name, item in value.items()])}}}"


def _array(value: Any) -> str:
    if value.dtype.hasobject:
        raise NoKeyError(f"an array of {value.dtype}")
    return f"array[{value.dtype.name}{value.shape}{value.tobytes().hex()}]"


def _enum(value: enum.Enum) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"


def _type(value: type) -> str:
    if value.__module__ not in ("builtins", "numpy", "ml_dtypes"):
        raise NoKeyError(f"the type {value!r}")
    return f"type[{value.__module__}.{value.__qualname__}]"


def _kind(value: Any) -> str:
    found = _home_of_kind(value)
    if found is None:
        raise NoKeyError(f"{value!r} is no kind of weft's own")
    return found


_WRITERS: dict[type, Callable[[Any], str]] = {
    bool: repr,
    int: repr,
    str: repr,
    bytes: repr,
    type(None): repr,
    float: lambda value: f"float[{struct.pack('<d', value).hex()}]",
    complex: lambda value: f"complex[{struct.pack('<dd', value.real, value.imag).hex()}]",
    tuple: _tuple,
    list: lambda value: f"list{_tuple(tuple(value))}",
    dict: _dict,
    frozenset: lambda value: f"set({','.join(sorted([_write(item) for item in value]))})",
    type: _type,
}


def _writer_of(kind: type) -> Callable[[Any], str]:
    """How values of a type are written."""
    is_ours = kind.__module__.startswith("weft.")
    if issubclass(kind, np.dtype):
        return _dtype
    if issubclass(kind, (np.generic, np.ndarray)):
        return _array
    if kind in _KINDS:
        return _kind
    if is_ours and issubclass(kind, enum.Enum):
        return _enum
    if kind.__module__.startswith("weft.loops.") and issubclass(kind, Record):
        return _structure(kind)
    raise NoKeyError(f"a value of type {kind.__qualname__}")


def _structure(kind: type[Record]) -> Callable[[Any], str]:
    """Writes every field that counts for equality: the plain ones together, the others one by one."""
    annotations: dict[str, Any] = {}
    for base in reversed(kind.__mro__):  # a statement may extend another one
        annotations.update(inspect.get_annotations(base))
    fields = {field: annotations[field] for field in kind._fields if field not in kind._labels}
    plain = [field for field, written in fields.items() if written in _PLAIN or written.startswith("Literal[")]
    plain_of = operator.attrgetter(*plain) if plain else lambda _: ()
    others = [operator.attrgetter(field) for field in fields if field not in plain]
    name = kind.__name__

    def write(value: Any) -> str:
        return f"{name}{plain_of(value)!r}[{','.join([_write(other(value)) for other in others])}]"

    return write


# kinds that a name identifies

_homes: dict[int, tuple[Any, str]] = {}  # id of a kind -> the kind, its text
_collected = (0, 0)  # numbers of primitives and modules when the homes were collected


def _home_of_kind(kind: Any) -> str | None:
    """``primitive add`` for the kind of weft's own primitive of that name; None for any other kind."""
    global _collected
    found = _homes.get(id(kind))
    if found is None and _collected != (len(core.registry), len(sys.modules)):
        _collected = len(core.registry), len(sys.modules)
        _collect_homes()
        found = _homes.get(id(kind))
    return found[1] if found is not None and found[0] is kind else None


def _collect_homes() -> None:
    """Collect primitives, which are in modules as ``name_p``, and a few kinds of ``loops`` without a primitive."""
    modules = {name: vars(module) for name, module in sys.modules.items() if name.startswith(_KIND_HOMES)}
    for primitive in core.registry.values():
        if isinstance(primitive.kind, _KINDS):
            variable = f"{primitive.name}_p"
            if any(names.get(variable) is primitive for names in modules.values()):
                _homes[id(primitive.kind)] = primitive.kind, f"primitive {primitive.name}"
                wraps = getattr(primitive.kind, "wraps", None)
                if wraps is not None:
                    _homes[id(wraps)] = wraps, f"overflow of {primitive.name}"
    for module, names in modules.items():
        if module.startswith("weft.loops"):
            for variable, value in list(names.items()):
                if type(value) in _KINDS:
                    _homes.setdefault(id(value), (value, f"kind {variable}"))
