"""A canonical digest of a jaxpr: programs that differ only in the names of variables have equal digests.

The digest covers equations with their parameters, inner jaxprs by content, literals by their bits, and the types of
inputs, constants and results. It does not cover values of constants, names of functions and source lines. What has no
canonical text (a Python function, a primitive or generator of keys of the user's own) counts by identity: it gets a
serial number ``#1``, which is never used again. A digest with one ends in ``#``: it means nothing in another process.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import marshal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft.core.caches.weak_table import WeakTable
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, Literal, Var

_SERIALS: WeakTable[int] = WeakTable()
_next_serial = itertools.count()


_PLAIN = frozenset((type(None), bool, int, str, bytes, float, complex))  # their reprs tell types and values apart


class _DtypeNames(dict[Any, str]):
    """Names of dtypes, those of users with a serial number; cached, since NumPy computes the name at each access."""

    def __missing__(self, dtype: Any) -> str:
        name = dtype.name if getattr(dtype, "is_own", True) else f"{dtype.name}{serial(dtype)}"
        self[dtype] = name
        return name


DTYPE_NAMES = _DtypeNames()


def fingerprint(program: Jaxpr | ClosedJaxpr, *, weak_types: bool = True) -> str:
    """The digest, in hexadecimal. Without ``weak_types`` programs that differ only in weakness are equal."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    if weak_types:
        return jaxpr.memoize("fingerprint", lambda j: _JaxprWriter(True).digest(j))
    return jaxpr.memoize("fingerprint_strong", lambda j: _JaxprWriter(False).digest(j))


def holds_everywhere(digest: str) -> bool:
    """Whether a digest means the same in every process."""
    return not digest.endswith("#")


def primitive_name(primitive: Any) -> str:
    """The name of a primitive, with a serial number if it is a user's, who may give two the same name."""
    return primitive.name if primitive.is_own else f"{primitive.name}{serial(primitive)}"


def params_text(primitive: Any, params: dict[str, Any]) -> str:
    """The parameters of an equation as text; equal texts mean equal behaviour."""
    return repr(_JaxprWriter(True).params(primitive, params))


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, text, None, or a tuple of such."""
    kind = type(value)
    return kind in _PLAIN or (kind is tuple and (_PLAIN.issuperset(map(type, value)) or all(map(_is_plain, value))))


class _JaxprWriter:
    """Writes one jaxpr as plain values for hashing, with numbers for variables."""

    def __init__(self, weak_types: bool) -> None:
        self.weak_types = weak_types
        self.numbers: dict[Var, int] = {}
        self.is_local = False  # whether it names an object of this process

    def digest(self, jaxpr: Jaxpr) -> str:
        lines: list[Any] = [self.binders(jaxpr.constvars), self.binders(jaxpr.invars)]
        numbers, atom = self.numbers, self.atom
        for eqn in jaxpr.eqns:
            operands = tuple([numbers[x] if type(x) is Var else atom(x) for x in eqn.invars])
            params = self.params(eqn.primitive, eqn.params) if eqn.params else ()
            primitive = eqn.primitive
            name = primitive.name if primitive.is_own else self.local(primitive_name(primitive))
            lines.append((name, params, operands, self.binders(eqn.outvars)))
        lines.append(tuple([atom(x) for x in jaxpr.outvars]))
        if jaxpr.effects:
            lines.append(sorted(map(repr, jaxpr.effects)))
        # version 2 of the format: equal values have equal bytes
        digest = lazy.hashlib.blake2b(marshal.dumps(lines, 2), digest_size=20).hexdigest()
        return f"{digest}#" if self.is_local else digest

    def local(self, text: str) -> str:
        """Note that a text names objects of this process, if it does."""
        self.is_local = self.is_local or "#" in text
        return text

    def type(self, aval: Any) -> Any:
        if not hasattr(aval, "dtype"):
            return repr(aval)
        name, shape = self.local(DTYPE_NAMES[aval.dtype]), aval.shape
        return name, shape if _PLAIN.issuperset(map(type, shape)) else repr(shape), self.weak_types and aval.weak_type

    def binders(self, variables: Sequence[Var]) -> tuple[Any, ...]:
        numbers = self.numbers
        types = []
        for v in variables:
            numbers[v] = len(numbers)
            types.append(self.type(v.aval))
        return tuple(types)

    def atom(self, atom: Atom) -> Any:
        if isinstance(atom, Literal):
            return self.local(literal_bits(atom)), self.type(atom.aval)
        return self.numbers[atom]

    def params(self, primitive: Any, params: dict[str, Any]) -> tuple[Any, ...]:
        """Names and values; a value that is not plain is a list with its text."""
        ignored = primitive.unnamed_params
        found = []
        for name in sorted(params):
            value = params[name]
            if value is not None and name not in ignored:
                found.append((name, value if _is_plain(value) else [self.local(self.value(value))]))
        return tuple(found)

    def value(self, value: Any) -> str:
        """A parameter's value as text; equal texts mean equal behaviour."""
        if _is_plain(value):
            return repr(value)
        if isinstance(value, (Jaxpr, ClosedJaxpr)):
            return self.inner(value)
        if isinstance(value, np.dtype) or dtypes.is_extended(value):
            return f"dtype:{DTYPE_NAMES[value]}"
        if type(value) is runtime.ShapedArray and value == runtime.ShapedArray(
            value.shape, value.dtype, value.weak_type
        ):
            return f"aval:{self.local(DTYPE_NAMES[value.dtype])}{value.shape}{value.weak_type}"
        if isinstance(value, enum.Enum) and _is_of_library(type(value)):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, (np.generic, np.ndarray)):
            return f"array:{value.dtype.name}{value.shape}{np.ascontiguousarray(value).tobytes().hex()}"
        if isinstance(value, (tuple, list)):
            return f"{type(value).__name__}({','.join(map(self.value, value))})"
        if isinstance(value, dict):
            return f"dict({','.join(f'{self.value(k)}:{self.value(v)}' for k, v in value.items())})"
        if isinstance(value, frozenset):
            return f"frozenset({','.join(sorted(map(self.value, value)))})"
        return _by_content(value) or f"{type(value).__qualname__}{serial(value)}"

    def inner(self, value: Jaxpr | ClosedJaxpr) -> str:
        digest = fingerprint(value, weak_types=self.weak_types)
        consts = value.consts if isinstance(value, ClosedJaxpr) else []
        return f"jaxpr:{digest}" + "".join(f"+{serial(const)}" for const in consts)


def _is_of_library(kind: type) -> bool:
    """Whether a type's name says what it is: there is one of the name, which nobody defines anew."""
    return kind.__module__.partition(".")[0] in ("weft", "numpy", "ml_dtypes", "builtins")


def _by_content(value: Any) -> str | None:
    """The canonical text of a type or aval, or of a value that defines one; None for other values."""
    if isinstance(value, type) and _is_of_library(value):
        return f"type:{value.__module__}.{value.__qualname__}"
    canonical: Callable[[], str] | None = getattr(value, "__fingerprint__", None)
    return f"{type(value).__qualname__}:{canonical()}" if canonical is not None else None


def serial(value: Any) -> str:
    """The serial number of an object, ``#1``. Numbers are never used again."""
    number = _SERIALS.get(value)
    if number is None:
        number = next(_next_serial)
        with contextlib.suppress(TypeError):  # an object without weak references gets a new number each time
            _SERIALS.set(value, number)
    return f"#{number}"


def literal_bits(literal: Literal) -> str:
    """A literal's value in its own dtype, by bits (so that -0.0 and 0.0 differ)."""
    dtype, value = literal.aval.dtype, literal.val
    if type(value) is np.ndarray and value.dtype is dtype:
        return value.tobytes().hex()
    if dtypes.is_extended(dtype):
        return serial(value)
    return np.asarray(value).astype(dtype).tobytes().hex()
