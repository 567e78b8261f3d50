"""Programs some of whose scalar operands are known, or are one of few numbers: what follows from that, in NumPy.

k in (1, 2): c = eq k 0; cond c {...} {...}     ->    c is False, and the first branch is run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.tracing import source_info
from weft.core.tracing.trace import trace_to_jaxpr


class _Among(Record):
    """A value all of whose elements are one number: number i of ``numbers`` in case i. ``value``: as it is traced."""

    value: Any
    numbers: np.ndarray

    @property
    def is_known(self) -> bool:
        return bool(np.all(self.numbers == self.numbers[0]))


def results(closed: ClosedJaxpr, cases: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """The scalar results of a program in several cases, for which its operands are given.

    None if one depends on an operand that is None, or on more than elementwise operations that NumPy computes exactly.
    """
    given = [None if numbers is None else _Among(None, numbers) for numbers in cases]
    found = _run(closed, given, is_traced=False)
    return [x.numbers for x in found] if all(type(x) is _Among for x in found) else None


def specialised(closed: ClosedJaxpr, known: dict[int, np.ndarray]) -> ClosedJaxpr:
    """The program for scalar operands that are known in all cases in which it runs: branches that follow are taken."""

    def run(*args: Any) -> list[Any]:
        values = [_among(x, known[index]) if index in known else x for index, x in enumerate(args)]
        return [_traced(x) for x in _run(closed, values, is_traced=True)]

    return trace_to_jaxpr(run, closed.in_avals, of_program=True)[0]


def _among(value: Any, numbers: np.ndarray) -> _Among:
    """A scalar; it is a literal if it has the same value in all cases."""
    made = _Among(value, numbers)
    return _Among(numbers[0], numbers[:1]) if made.is_known else made


def _traced(value: Any) -> Any:
    return value.value if type(value) is _Among else value


def _run(closed: ClosedJaxpr, values: Sequence[Any], is_traced: bool) -> list[Any]:
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *values), strict=True))

    def read(atom: Any) -> Any:
        if not isinstance(atom, Literal):
            return env[atom]
        number = np.asarray(atom.val).astype(atom.aval.dtype)
        return _Among(number[()], number[None])

    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _results(eqn, [read(atom) for atom in eqn.invars], is_traced), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _results(eqn: JaxprEqn, operands: list[Any], is_traced: bool) -> list[Any]:
    kind = eqn.primitive.kind
    inner = kind.inline(eqn.params) if isinstance(kind, kinds.Higher) else None
    if inner is not None:
        return _run(inner, operands, is_traced)
    if isinstance(kind, kinds.Branch) and type(operands[0]) is _Among and operands[0].is_known:
        branches = kind.branches(eqn.params)
        which = min(max(int(operands[0].numbers[0]), 0), len(branches) - 1)
        return _run(branches[which], operands[1:], is_traced)
    if isinstance(kind, kinds.Elementwise):
        chosen = _chosen(eqn, kind, operands)
        if chosen is not None:
            return [chosen]
    made = _bound(eqn, operands) if is_traced else [None] * len(eqn.outvars)
    if not operands or not all(type(x) is _Among for x in operands):
        return made
    aval = eqn.outvars[0].aval
    if isinstance(kind, kinds.View | kinds.Reshape) and len(operands) == 1:
        return [_Among(made[0], operands[0].numbers)]
    if isinstance(kind, kinds.Elementwise) and _is_exact(kind, aval.dtype):
        with np.errstate(all="ignore"):
            numbers = np.asarray(kind.reference(*[x.numbers for x in operands], **eqn.params)).astype(aval.dtype)
        return [_among(made[0], numbers) if aval.shape == () else _Among(made[0], numbers)]
    return made


def _is_exact(kind: kinds.Elementwise, dtype: np.dtype) -> bool:
    """Whether NumPy gives the bits of the operation's own kernel. It may give others for an exponential."""
    return dtype.kind in "biu" or kind.rounds_once or kind.chooses


def _chosen(eqn: JaxprEqn, kind: kinds.Elementwise, operands: list[Any]) -> Any:
    """The operand that a selection gives, if that is known."""
    if not kind.chooses or type(operands[0]) is not _Among or not operands[0].is_known:
        return None
    which = 1 + int(operands[0].numbers[0])
    return operands[which] if eqn.invars[which].aval.shape == eqn.outvars[0].aval.shape else None


def _bound(eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
    with source_info.replayed(eqn.source):
        out = eqn.primitive.bind(*map(_traced, operands), **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]
