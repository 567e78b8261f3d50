"""Which checks an equation gets: by the option ``checks``, and by name scopes that a part of a program carries.

    scope "checks=nan,overflow"     these, whatever the option says: ``jit(f, checks=...)``, ``with weft.checks(...)``
    scope "mode as given"           its out-of-bounds mode was written by the user, who means it: no check of indices
    scope "inside weft"             integer arithmetic of weft's own functions, which may wrap: random bits, hashes

The compiler writes guards for the equations that ask for them (``compiler.checks.guards``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from weft import config
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params
from weft.core.tracing import source_info

_PREFIX = "checks="
AS_GIVEN = "mode as given"
INSIDE = "inside weft"
EAGER = compile("", "<operation>", "exec")  # the code of operations outside of jit, whose line is that of each call
NONE: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) if text else NONE


@contextlib.contextmanager
def checks(words: Any) -> Iterator[None]:
    """Context manager for the option ``checks``: guards in programs compiled, or traced, inside.

    ``words``: "index", "nan" and "overflow", as a sequence or separated by commas; "all"; or () for none.

    >>> with weft.checks("nan"):
    ...     jnp.log(jnp.array([1.0, 0.5])).shape
    (2,)
    """
    with config.context("checks", words), source_info.name_scope(_PREFIX + config.read("checks")):
        yield


def as_given(mode: Any) -> AbstractContextManager[None]:
    """A context whose equations index as the user's ``mode`` says; without one, or a promise, they are checked."""
    if mode is None or not is_used() or getattr(mode, "name", str(mode)).lower() == "promise_in_bounds":
        return contextlib.nullcontext()
    return _as_given()


@contextlib.contextmanager
def _as_given() -> Iterator[None]:
    others = [word for word in config.read("checks").split(",") if word != "index"]
    with config.context("checks", others), source_info.name_scope(AS_GIVEN):
        yield


def relocated(closed: ClosedJaxpr, source: source_info.Captured) -> ClosedJaxpr:
    """A program of weft's own whose equations belong to the line of its call, with the marks that they have."""
    old = closed.jaxpr
    made = [
        eqn.replace(source=inside((*source[:2], (*source[2], *[m for m in marks(eqn.source) if m not in source[2]]))))
        for eqn in old.eqns
    ]
    return ClosedJaxpr(Jaxpr(old.constvars, old.invars, old.outvars, made, old.effects, old.debug_info), closed.consts)


def is_used() -> bool:
    """Whether checks were ever asked for: only then are equations marked, and programs searched for marks."""
    return config.checks_watched


def apply_now() -> bool:
    """Whether an operation outside of a trace may get checks."""
    return config.checks_watched and bool(config.read("checks") or source_info.open_scopes())


def inside(source: source_info.Captured | None) -> source_info.Captured | None:
    """The position of equations that weft wrote for a call at ``source``."""
    return source if source is None or not is_used() or INSIDE in source[2] else (*source[:2], (*source[2], INSIDE))


def of_steps(source: source_info.Captured | None) -> source_info.Captured | None:
    """The position of equations made of a loop's steps: the loop's, but with checks each equation keeps its own."""
    return None if is_used() else source


def marks(source: source_info.Captured | None) -> tuple[str, ...]:
    """The scopes of this module that a position carries."""
    if source is None:
        return ()
    return tuple([name for name in source[2] if name in (AS_GIVEN, INSIDE) or name.startswith(_PREFIX)])


def wanted(equation: JaxprEqn, option: str | None = None) -> frozenset[str]:
    """The checks of an equation; ``option``: the value of the option, if it is not the present one."""
    words = config.read("checks") if option is None else option
    for name in marks(equation.source):
        if name.startswith(_PREFIX):
            words = name.removeprefix(_PREFIX)
    found = _words(words)
    meant = found and equation.source is not None and AS_GIVEN in equation.source[2]
    return found - {"index"} if meant else found


def wants_integers(equation: JaxprEqn, option: str | None = None) -> bool:
    """Whether the integer arithmetic of an equation is checked."""
    inside = equation.source is not None and INSIDE in equation.source[2]
    return not inside and "overflow" in wanted(equation, option)


def asked(closed: ClosedJaxpr) -> bool:
    """Whether any equation of a program, at any depth, may get a check."""
    return config.checks_watched and (bool(config.read("checks")) or _any(closed.jaxpr))


def _any(jaxpr: Jaxpr) -> bool:
    return any(
        any(name.startswith(_PREFIX) and name != _PREFIX for name in marks(equation.source))
        or any(map(_any, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


def spread(closed: ClosedJaxpr, outer: tuple[str, ...] = ()) -> ClosedJaxpr:
    """The program with the marks of each equation also on the equations of the programs that it carries."""
    made = [_spread(equation, outer) for equation in closed.jaxpr.eqns]
    if all(new is old for new, old in zip(made, closed.jaxpr.eqns, strict=True)):
        return closed
    old = closed.jaxpr
    return ClosedJaxpr(Jaxpr(old.constvars, old.invars, old.outvars, made, old.effects, old.debug_info), closed.consts)


def _spread(equation: JaxprEqn, outer: tuple[str, ...]) -> JaxprEqn:
    source = equation.source
    if outer and source is not None and source[2][: len(outer)] != outer:
        source = (*source[:2], outer + source[2])
    params = {name: _spread_in(value, marks(source) or outer) for name, value in equation.params.items()}
    if source is equation.source and all(params[name] is value for name, value in equation.params.items()):
        return equation
    return equation.replace(params=params, source=source)


def _spread_in(value: Any, outer: tuple[str, ...]) -> Any:
    if isinstance(value, ClosedJaxpr):
        return spread(value, outer)
    if isinstance(value, (tuple, list)) and any(isinstance(item, ClosedJaxpr) for item in value):
        return type(value)([_spread_in(item, outer) for item in value])
    return value
