"""The data structures of programs: jaxprs, equations, variables, literals.

    Jaxpr       ::= { lambda Var* ; Var* . let Eqn* in Atom* }     constvars; invars; equations; outvars
    Eqn         ::= Var* = Primitive[params] Atom*
    Atom        ::= Var | Literal
    ClosedJaxpr ::= (Jaxpr, value for each constvar)

Every variable is bound once, before it is used, and has an aval. ``DropVar`` stands for an output nobody reads.
A Literal is a scalar written into the program. Jaxprs are never changed once made: passes build new ones.
Sharing is by identity: two equations that hold the same Jaxpr object call the same function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from weft._base import lazy
from weft.core import effects as effects_module
from weft.core.avals import long_text
from weft.core.effects import Effects, no_effects
from weft.core.tracing import source_info as source_info_module

# Installed by core.programs.printer, which reads the classes below.
_printer: dict[str, Callable[..., str]] = {}


class Var:
    """A variable: compared by identity, typed by its aval."""

    __slots__ = ("__weakref__", "aval")

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{long_text(self.aval)}"


class DropVar(Var):
    """The binder of an output that is never read; printed ``_``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


@final
class Literal:
    """A scalar constant inside a program. ``val`` is a Python or NumPy scalar, or a 0-d ndarray.

    Unhashable, as in JAX: literals are values, never keys of an environment.
    """

    __slots__ = ("aval", "val")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, val: Any, aval: Any) -> None:
        self.val = val
        self.aval = aval

    @property
    def hash(self) -> int | None:
        """The hash of the value; None for an array."""
        return None if isinstance(self.val, np.ndarray) else hash(self.val)

    def __repr__(self) -> str:
        return f"Literal({literal_text(self.val)})"


Atom = Var | Literal


def literal_text(value: Any) -> str:
    """A literal's value as printed: the Python scalar's own text."""
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.item()) if value.ndim == 0 else str(value)
    return str(value)


class DebugInfo:
    """What was traced: the function and its line, the transformation, the path of each argument leaf.

    ``arg_names`` may be given as a callable, which is called when an error text or a report needs the names.
    """

    __slots__ = ("_arg_names", "_result_paths", "func_src_info", "traced_for")

    def __init__(
        self,
        traced_for: str = "jit",
        func_src_info: str = "<unknown>",
        arg_names: Sequence[str] | Callable[[], Sequence[str]] | None = None,
        result_paths: Sequence[str] | Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.traced_for = traced_for
        self.func_src_info = func_src_info
        self._arg_names = arg_names
        self._result_paths = result_paths

    @property
    def func_name(self) -> str:
        return self.func_src_info.split(" at ")[0]

    @property
    def arg_names(self) -> tuple[str, ...] | None:
        if callable(self._arg_names):
            self._arg_names = tuple(self._arg_names())
        return None if self._arg_names is None else tuple(self._arg_names)

    @property
    def result_paths(self) -> tuple[str, ...] | None:
        if callable(self._result_paths):
            self._result_paths = tuple(self._result_paths())
        return None if self._result_paths is None else tuple(self._result_paths)

    def _replace(self, **changes: Any) -> DebugInfo:
        """A copy with some fields changed."""
        names = ("traced_for", "func_src_info", "arg_names", "result_paths")
        return DebugInfo(**{**{name: getattr(self, name) for name in names}, **changes})

    def with_unknown_names(self) -> DebugInfo:
        return self._replace(arg_names=None, result_paths=None)

    def resolve_result_paths(self) -> DebugInfo:
        return self

    def safe_arg_names(self, expected_count: int) -> tuple[str, ...]:
        """The names of the arguments, empty where they are unknown."""
        return self.arg_names or ("",) * expected_count

    def safe_result_paths(self, expected_count: int) -> tuple[str, ...]:
        """The paths of the results, empty where they are unknown."""
        return self.result_paths or ("",) * expected_count

    def __repr__(self) -> str:
        return (
            f"DebugInfo(traced_for={self.traced_for!r}, func_src_info={self.func_src_info!r}, "
            f"arg_names={self.arg_names!r}, result_paths={self.result_paths!r})"
        )


class EqnContext:
    """What JAX restores before it evaluates an equation again: ``with eqn.ctx.manager``."""

    manager = contextlib.nullcontext()
    compute_type = xla_metadata = None


class JaxprEqn:
    """One equation. ``source`` is the captured position (see ``core.tracing.source_info``) or None."""

    __slots__ = ("effects", "invars", "outvars", "params", "primitive", "source")

    def __init__(
        self,
        invars: Sequence[Atom],
        outvars: Sequence[Var],
        primitive: Any,
        params: dict[str, Any],
        effects: Effects = no_effects,
        source: source_info_module.Captured | None = None,
    ) -> None:
        self.invars = invars
        self.outvars = outvars
        self.primitive = primitive
        self.params = params
        self.effects = effects
        self.source = source

    @property
    def source_info(self) -> source_info_module.SourceInfo:
        return source_info_module.SourceInfo(self.source)

    @property
    def ctx(self) -> type[EqnContext]:
        """JAX's context of an equation (options while it was recorded): empty, since weft keeps none of it."""
        return EqnContext

    def replace(self, **changes: Any) -> JaxprEqn:
        """A copy with some fields changed."""
        if "source_info" in changes:
            changes["source"] = changes.pop("source_info").captured
        changes.pop("ctx", None)
        given = {name: getattr(self, name) for name in JaxprEqn.__slots__}
        return JaxprEqn(**{**given, **changes})

    def __repr__(self) -> str:
        return _printer["eqn"](self)


class Jaxpr:
    """An open program: ``constvars`` are inputs whose values a ClosedJaxpr supplies."""

    __slots__ = ("__weakref__", "_memo", "constvars", "debug_info", "effects", "eqns", "invars", "outvars")

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Effects = no_effects,
        debug_info: DebugInfo | None = None,
    ) -> None:
        self.constvars = list(constvars)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)
        self.effects = effects
        self.debug_info = debug_info
        self._memo: dict[str, Any] = {}

    is_high = False  # JAX's word: all of its types are those of arrays

    @property
    def in_avals(self) -> list[Any]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [v.aval for v in self.outvars]

    def memoize(self, key: Any, make: Callable[[Jaxpr], Any]) -> Any:
        """A fact derived from this jaxpr, computed once and dropped with it."""
        if key not in self._memo:
            self._memo[key] = make(self)
        return self._memo[key]

    def forget(self, key: str) -> None:
        """Drop a fact that is not needed any more."""
        self._memo.pop(key, None)

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with some fields changed."""
        names = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")
        return Jaxpr(**{**{name: getattr(self, name) for name in names}, **changes})

    def pretty_print(self, **settings: Any) -> str:
        return _printer["jaxpr"](self, **settings)

    def __str__(self) -> str:
        return self.pretty_print()

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.pretty_print())

    def _repr_html_(self) -> str:
        return lazy.submodule("weft.inspect.notebook").jaxpr(self)


class ClosedJaxpr:
    """A program with the values of its constvars."""

    __slots__ = ("__weakref__", "consts", "jaxpr")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] = ()) -> None:
        if len(consts) != len(jaxpr.constvars):
            raise TypeError(f"[ClosedJaxpr] {len(jaxpr.constvars)} constvars but {len(consts)} values")
        self.jaxpr = jaxpr
        self.consts = list(consts)

    is_high = False

    @property
    def in_avals(self) -> list[Any]:
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> list[Any]:
        return self.jaxpr.out_avals

    @property
    def literals(self) -> list[Any]:
        return self.consts

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @property
    def constvars(self) -> list[Var]:
        return self.jaxpr.constvars

    @property
    def invars(self) -> list[Var]:
        return self.jaxpr.invars

    @property
    def outvars(self) -> list[Atom]:
        return self.jaxpr.outvars

    @property
    def debug_info(self) -> DebugInfo | None:
        return self.jaxpr.debug_info

    def map_jaxpr(self, function: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """The program that ``function`` makes of the open one, with the same constants."""
        return ClosedJaxpr(function(self.jaxpr), self.consts)

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None) -> ClosedJaxpr:
        return ClosedJaxpr(jaxpr or self.jaxpr, self.consts if consts is None else consts)

    def pretty_print(self, **settings: Any) -> str:
        return _printer["jaxpr"](self.jaxpr, **settings)

    def __str__(self) -> str:
        return self.pretty_print()

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.pretty_print())

    def _repr_html_(self) -> str:
        return lazy.submodule("weft.inspect.notebook").jaxpr(self)


_LEAVES = frozenset((type(None), bool, int, float, complex, str))


def jaxprs_in(value: Any) -> list[Jaxpr]:
    """The jaxprs in a parameter's value: itself, or inside a tuple or list."""
    if isinstance(value, Jaxpr):
        return [value]
    if isinstance(value, ClosedJaxpr):
        return [value.jaxpr]
    if not isinstance(value, (tuple, list)) or _LEAVES.issuperset(map(type, value)):
        return []
    return [jaxpr for item in value for jaxpr in jaxprs_in(item)]


def jaxprs_in_params(params: dict[str, Any]) -> list[Jaxpr]:
    """The jaxprs an equation carries, in the order of its parameters."""
    found: list[Jaxpr] = []
    for value in params.values():
        kind = type(value)
        if kind not in _LEAVES and not (kind is tuple and _LEAVES.issuperset(map(type, value))):
            found += jaxprs_in(value)
    return found


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxprs directly inside a jaxpr's equations."""
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def joined_effects(eqns: Sequence[JaxprEqn]) -> Effects:
    """The union of the equations' effects."""
    found = [eqn.effects for eqn in eqns if eqn.effects]
    return effects_module.join(*found) if found else no_effects


def name_unused_outputs(jaxpr: Jaxpr) -> Jaxpr:
    """The same program with DropVars where an equation's output is never read (outermost level only)."""
    used = {v for v in jaxpr.outvars if isinstance(v, Var)}
    for eqn in jaxpr.eqns:
        used.update(v for v in eqn.invars if type(v) is Var)
    eqns = [
        eqn
        if all(v in used for v in eqn.outvars)
        else eqn.replace(outvars=[v if v in used else DropVar(v.aval) for v in eqn.outvars])
        for eqn in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=eqns)
