"""Equations whose extents have no value, with the equations at whole sizes that they were fitted from.

What is computed of an equation in Python (the pieces of an assembly, the program that it expands into) is computed at
each of those sizes, and the results are fitted: rules of operations see integers only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn
from weft.stablehlo import factorizations


class OpenEqn(JaxprEqn):
    """An equation that is ``alike`` at several sizes; ``fit`` joins what is said of each (``open_extents.Fit``)."""

    __slots__ = ("alike", "fit")

    alike: tuple[JaxprEqn, ...]
    fit: Any


def said(eqn: JaxprEqn, function: Callable[[JaxprEqn], Any]) -> Any:
    """``function(eqn)``, with sizes for the integers that differ where the equation's extents are open."""
    if not isinstance(eqn, OpenEqn):
        return function(eqn)
    return eqn.fit.joined(eqn.fit.of_each(eqn.alike, function))


def program(eqn: JaxprEqn, expand: Callable[[JaxprEqn], ClosedJaxpr | None]) -> ClosedJaxpr | None:
    """The program that an equation expands into; None if it expands into none."""
    if not isinstance(eqn, OpenEqn):
        return expand(eqn)
    with factorizations.undivided():
        programs = eqn.fit.of_each(eqn.alike, expand)
    return eqn.fit.joined(programs)
