"""Symbolic zeros in custom rules, and checks of the tangents that custom rules return.

With ``symbolic_zeros=True`` a rule gets a ``SymbolicZero`` instead of an array of zeros for an argument without a
tangent.
"""

from __future__ import annotations

from typing import Any

from weft import tree_util
from weft.autodiff.jvp import JVPTrace
from weft.autodiff.linearize import TangentTrace
from weft.core.avals import Typed, get_aval, long_text
from weft.core.tangents import FLOAT0, Zero, plain, tangent_aval
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import signature
from weft.operations import linear


class SymbolicZero(Typed):
    """A tangent that is zero and was not made into an array; it has a shape and a dtype."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> SymbolicZero:
        """The zero tangent of a value."""
        return SymbolicZero(tangent_aval(get_aval(value)))

    def __repr__(self) -> str:
        return "SymbolicZero"


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a value, or of each leaf of a tree: an array of zeros, or a ``SymbolicZero``."""
    return tree_util.tree_map(lambda leaf: as_user_sees(Zero.from_primal_value(leaf), symbolic_zeros), val)


def as_user_sees(tangent: Any, symbolic_zeros: bool) -> Any:
    """A tangent as a custom rule gets it."""
    if type(tangent) is Zero and symbolic_zeros:
        return SymbolicZero(tangent.aval)
    made = linear.instantiate(tangent)
    return _as_array(made) if isinstance(made, (float, complex)) else made


def _as_array(scalar: Any) -> Any:
    """A number in the form that rules expect: an Array, or a literal of the program being traced."""
    trace = tracing.state.trace
    while isinstance(trace, (JVPTrace, TangentTrace)):
        trace = trace.parent
    aval = get_aval(scalar)
    if type(trace) is tracing.DynamicJaxprTrace:
        return tracing.DynamicJaxprTracer(trace, aval, trace.atom(scalar), None)
    return signature.to_array(scalar, aval)


def as_recorded(value: Any) -> Any:
    """A Python number that is an operand of a recorded equation as a literal of the program being traced."""
    if type(value) is not bool and not isinstance(value, (int, float, complex)):
        return value
    trace = tracing.state.trace
    while type(trace) is not tracing.DynamicJaxprTrace:
        trace = getattr(trace, "parent", None)
        if trace is None:
            return value
    return tracing.DynamicJaxprTracer(trace, get_aval(value), trace.atom(plain(value)), None)


def checked(tangent: Any, aval: Any, rule: Any) -> Any:
    """The tangent that a rule returned for a result of type ``aval``; TypeError if it does not fit."""
    expected = tangent_aval(aval)
    if type(tangent) in (SymbolicZero, Zero):
        return Zero(expected)
    found = get_aval(tangent)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise TypeError(
            "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. Expected "
            f"{long_text(expected)} (tangent type of {long_text(aval)}) but got {long_text(found)}. The rule is "
            f"{rule!r}, of function {rule.name}."
        )
    return Zero(expected) if expected.dtype == FLOAT0 else tangent
