"""Verifies a stage: its result is well typed, has the same types as before, and gives the same bits.

The comparison of bits runs the reference interpreter on made-up arguments, for programs that touch few elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.compiler.checks.reference_interpreter import interpret
from weft.compiler.passes import lower_prng_keys
from weft.core import kinds
from weft.core.programs.check import check_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params
from weft.errors import InternalError

FEW_ELEMENTS = 20_000


Results = tuple[ClosedJaxpr, list[np.ndarray]]  # a program, and its results for the made-up arguments


def verify(stage: str, before: ClosedJaxpr, after: ClosedJaxpr, known: Results | None = None) -> Results | None:
    """Raise InternalError, naming the stage, if it broke the program; returns the results for the next comparison."""
    try:
        check_jaxpr(after.jaxpr)
    except TypeError as error:
        raise InternalError(f"the program is not well typed: {error}", stage=stage) from error
    if lower_prng_keys.has_keys(before.jaxpr):
        return None
    for old, new in zip(before.jaxpr.outvars, after.jaxpr.outvars, strict=True):
        if (old.aval.shape, old.aval.dtype) != (new.aval.shape, new.aval.dtype):
            raise InternalError(f"a result changed from {old.aval} to {new.aval}", stage=stage)
    if elements(before) + elements(after) < FEW_ELEMENTS and is_pure(before) and is_pure(after):
        return after, compare(stage, before, after, known)
    return None


def elements(closed: ClosedJaxpr) -> int:
    """The number of elements that the equations of a program compute (inner programs once)."""
    jaxpr = closed.jaxpr
    total = sum(v.aval.size for v in (*jaxpr.constvars, *jaxpr.invars))
    for equation in jaxpr.eqns:
        total += sum(v.aval.size for v in equation.outvars) + sum(a.aval.size for a in equation.invars)
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Higher) and kind.inline(equation.params) is not None:
            total += elements(kind.inline(equation.params))
        elif isinstance(kind, (kinds.Loop, kinds.Routine)):  # a routine is a loop that has been lowered
            parts = equation.params["parts"] if isinstance(kind, kinds.Routine) else kind.parts(equation.params)
            if parts.trips is None:
                total += FEW_ELEMENTS
            elif parts.trips:  # a body that never runs may be invalid
                total += (elements(parts.body) + 100) * parts.trips
        elif isinstance(kind, kinds.Branch):
            total += sum(elements(branch) for branch in kind.branches(equation.params))
    return total


def is_pure(closed: ClosedJaxpr | Jaxpr) -> bool:
    """Whether a program, inner ones included, can be run on made-up arguments."""
    return all(
        not equation.effects
        and not isinstance(equation.primitive.kind, (kinds.Effect, kinds.External, kinds.Opaque))
        and all(map(is_pure, jaxprs_in_params(equation.params)))
        for equation in _jaxpr(closed).eqns
    )


def _jaxpr(program: ClosedJaxpr | Jaxpr) -> Jaxpr:
    return program.jaxpr if isinstance(program, ClosedJaxpr) else program


def compare(stage: str, before: ClosedJaxpr, after: ClosedJaxpr, known: Results | None = None) -> list[np.ndarray]:
    """Run both programs on the same arguments and compare; returns the results."""
    args = list(arguments(before))
    old = known[1] if known is not None and known[0] is before else interpret(before, args)
    new = interpret(after, args)
    for index, (left, right) in enumerate(zip(old, new, strict=True)):
        if not same_bits(left, right):
            raise InternalError(f"result {index} changed: {left.ravel()[:4]} became {right.ravel()[:4]}", stage=stage)
    return list(new)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal bit for bit, any NaN equal to any other."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.tobytes() == right.tobytes():
        return True
    if left.dtype.kind not in "fcV":
        return False
    kind = np.complex128 if left.dtype.kind == "c" else np.float64
    wide_left, wide_right = left.astype(kind), right.astype(kind)
    parts = [(wide_left.real, wide_right.real), (wide_left.imag, wide_right.imag)]
    return all(
        bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b))))) for a, b in parts
    )


def arguments(closed: ClosedJaxpr) -> Iterator[Any]:
    """Made-up arguments: small numbers of both signs."""
    for position, variable in enumerate(closed.jaxpr.invars):
        yield made_up(variable.aval, position)


def made_up(aval: Any, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(-9, 10, aval.shape)
    if aval.dtype.kind in "fcV":
        return np.asarray(values / 4).astype(aval.dtype)
    return np.asarray(np.abs(values) if aval.dtype.kind in "ub" else values).astype(aval.dtype)
