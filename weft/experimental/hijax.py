"""weft.experimental.hijax: types and primitives above those of programs, which can be declared and not be used.

Libraries declare such types where they are imported, so that classes may be derived from these and be registered. What
would need the types in a program raises NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from weft._base import unbuilt
from weft.core.ref_types import AbstractRef
from weft.extend.core import AbstractValue, ShapedArray
from weft.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal

__all__ = [
    "AbstractRef",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "HiPrimitive",
    "MutableHiType",
    "ShapedArray",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "instantiate_zeros",
    "is_undefined_primal",
    "register_hitype",
]

_registered: dict[type, Callable[[Any], Any]] = {}  # kept, so that a later version can serve what was declared


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f"[hijax] {what} has no program in weft: hijax types and primitives can be declared, and not be used"
    )


class HiPrimitive:
    """A primitive on hijax types: it can be declared."""

    multiple_results = False

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raises NotImplementedError naming the primitive."""
        _refuse(f"the primitive {self.name!r}")

    def __repr__(self) -> str:
        return self.name


class MutableHiType(AbstractValue):
    """The base of types whose values change: it can be derived from."""

    has_qdd = True

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[misc] - it always raises
        _refuse(f"the type {cls.__name__}")


class AvalQDD:
    """A type with what is known of the present value; making one raises NotImplementedError."""

    def __init__(self, aval: Any, qdd: Any) -> None:
        _refuse(f"a value of type {aval}")


class AvalMutableQDD(AvalQDD):
    """The same, while a program is traced."""


class aval_method:
    """A method of a type's tracers, declared in the type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


class aval_property:
    """A property of a type's tracers, declared in the type."""

    def __init__(self, fget: Callable[[Any], Any]) -> None:
        self.fget = fget


class _AllowedEffects:
    """Effects that control flow lets pass; none of those that are added here can occur."""

    def add_type(self, kind: type) -> None:
        """Allow effects of a class."""


__getattr__ = unbuilt.fallback(__name__)
control_flow_allowed_effects = _AllowedEffects()


def register_hitype(kind: type, to_type: Callable[[Any], Any]) -> None:
    """Declare that values of ``kind`` have the hijax type ``to_type(value)``."""
    _registered[kind] = to_type


def cur_qdd(value: Any) -> NoReturn:
    """What is known of the present value of a mutable hijax value: NotImplementedError."""
    _refuse(f"a value of class {type(value).__name__}")
