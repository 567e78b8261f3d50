"""The types of mutable references, and primitives that carry programs which may use them.

``Ref{f32[3]}`` is the type of a reference in a program. Programs with references are recorded and printed as they are;
before anything differentiates, maps or compiles one, ``effects.discharge`` turns it into one of values alone. As long
as no reference has been made, there is nothing to look for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base import lazy
from weft.core.effects import NamedEffect
from weft.core.primitive import Primitive
from weft.core.programs.jaxpr import Jaxpr, jaxprs_in_params
from weft.core.tracing import trace as tracing

ref_effect = NamedEffect("Ref")  # of every equation that makes, reads or writes a reference, at any depth


class AbstractRef:
    """The type of a reference to an array of type ``inner_aval``."""

    __slots__ = ("inner_aval", "kind", "memory_space")

    def __init__(self, inner_aval: Any, memory_space: Any = None, kind: str | None = None) -> None:
        self.inner_aval = inner_aval
        self.memory_space = memory_space
        self.kind = kind

    weak_type = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return self.inner_aval.ndim

    @property
    def size(self) -> int:
        return self.inner_aval.size

    def update(self, **changes: Any) -> AbstractRef:
        """The type with some fields changed: its own, or those of the array."""
        own = {name: changes.pop(name) for name in AbstractRef.__slots__ if name in changes}
        fields = {name: getattr(self, name) for name in AbstractRef.__slots__} | own
        return AbstractRef(**(fields | {"inner_aval": fields["inner_aval"].update(**changes)}))

    def strip_weak_type(self) -> AbstractRef:
        return self

    def str_short(self, short_dtypes: bool = False) -> str:
        return f"Ref{{{self.inner_aval.str_short(short_dtypes=short_dtypes)}}}"

    def _key(self) -> tuple[Any, ...]:
        return self.inner_aval, self.memory_space, self.kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((AbstractRef, self._key()))

    def __repr__(self) -> str:
        return self.str_short()


BLOCK = "block"  # the kind of a reference that a kernel is given, which loops may carry


def is_ref(value: Any) -> bool:
    """Whether an array-like value or a variable is a reference."""
    return type(getattr(value, "aval", None)) is AbstractRef


def is_block(value: Any) -> bool:
    """Whether a value is a reference that a kernel is given."""
    return is_ref(value) and value.aval.kind == BLOCK


def same(left: Any, right: Any) -> bool:
    """Whether two references are one."""
    if isinstance(left, tracing.DynamicJaxprTracer) and isinstance(right, tracing.DynamicJaxprTracer):
        return left.val is right.val
    return left is right


def check_distinct(values: Sequence[Any], paths: Callable[[], Sequence[str]], traced: str = "") -> None:
    """ValueError if a reference is among the values twice.

    ``paths``: the names of the values; ``traced``: what is traced, for what.
    """
    refs = [(index, value) for index, value in enumerate(values) if is_ref(value)]
    for number, (index, ref) in enumerate(refs):
        for other, earlier in refs[:number]:
            if same(ref, earlier):
                when = f"when tracing {traced} " if traced else ""
                raise ValueError(
                    "only one reference to a mutable array may be passed as an argument to a function, but "
                    f"{when}the mutable array reference of type {ref.aval} appeared at both {paths()[other]} and "
                    f"{paths()[index]}."
                )


def check_not_captured(
    values: Sequence[Any], captured: Sequence[Any], paths: Callable[[], Sequence[str]], traced: str
) -> None:
    """ValueError if a reference among the values is one that the traced function closed over as well."""
    held = [value for value in captured if is_ref(value)]
    for index, ref in enumerate(values if held else ()):
        if is_ref(ref) and any(same(ref, other) for other in held):
            raise ValueError(
                f"when tracing {traced}, a mutable array reference of type {ref.aval} was both closed over and passed "
                f"as the argument {paths()[index]}"
            )


class _Use:
    """Whether there may be references: ``effects.refs``, which makes them, has been loaded."""

    possible = False


def are_possible() -> bool:
    """Whether a reference may have been made."""
    return _Use.possible


def expect_refs() -> None:
    """Look for references from now on."""
    _Use.possible = True


class ProgramPrimitive(Primitive):
    """A primitive that carries programs. Where it is not recorded, references are discharged from them first."""

    refuses_refs = False
    # (operands, params) -> those of the equation whose programs have no constants: they are operands before the others
    lift: Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None = None

    def bind(self, *args: Any, **params: Any) -> Any:
        if self.lift is not None:
            args, params = self.lift(args, params)
        trace = tracing.state.trace
        if _Use.possible and type(trace) is not tracing.DynamicJaxprTrace and _refs_in(args, params):
            return lazy.discharge_rules.run(self, args, params)
        return trace.process(self, args, params)


class CustomCallPrimitive(ProgramPrimitive):
    """A call of a function with rules of its own. JAX's interpreters see its function and rules as ``subfuns``."""

    def bind(self, *args: Any, subfuns: Any = None, **params: Any) -> Any:
        if "call_jaxpr" not in params:
            return lazy.custom_calls.bind(self, args, subfuns, params)
        return super().bind(*args, **params)

    def bind_with_trace(self, trace: Any, args: Any, avals: Any, params: dict[str, Any], /) -> Any:
        with tracing.set_current(trace):
            return self.bind(*args, **params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "subfuns": lazy.custom_calls.parts(self, params)}


def _refs_in(args: tuple[Any, ...], params: dict[str, Any]) -> bool:
    return any(map(is_ref, args)) or any(ref_effect in inner.effects for inner in jaxprs_in_params(params))


def uses_refs(jaxpr: Jaxpr) -> bool:
    """Whether a program must be discharged."""
    return jaxpr.memoize("uses_refs", _uses_refs)


def _uses_refs(jaxpr: Jaxpr) -> bool:
    return ref_effect in jaxpr.effects or any(map(is_ref, (*jaxpr.constvars, *jaxpr.invars)))
