"""Which results of a program depend on marked inputs; through calls, loops and branches result by result.

{ lambda ; i c. let d = mul c i; j = add i 1 in (j, d) }, c marked    ->    (False, True)
"""

from __future__ import annotations

from typing import Any

from weft.core import kinds
from weft.core.programs.jaxpr import Jaxpr, Literal

Flags = tuple[bool, ...]


def reached(jaxpr: Jaxpr, marked: Flags) -> Flags:
    """Which results depend on the inputs that are marked; memoised on the program."""
    key: Any = ("reached", marked)
    return jaxpr.memoize(key, lambda jaxpr: _reached(jaxpr, marked))


def _reached(jaxpr: Jaxpr, marked: Flags) -> Flags:
    found = {v for v, has in zip(jaxpr.invars, marked, strict=True) if has}

    def depends(atom: Any) -> bool:
        return type(atom) is not Literal and atom in found

    for eqn in jaxpr.eqns:
        given = tuple([depends(atom) for atom in eqn.invars])
        if any(given):
            flags = results(eqn.primitive, eqn.params, given, len(eqn.outvars))
            found.update([v for v, has in zip(eqn.outvars, flags, strict=True) if has])
    return tuple([depends(atom) for atom in jaxpr.outvars])


def results(primitive: Any, params: dict[str, Any], marked: Flags, count: int) -> Flags:
    """Which of the ``count`` results of an equation depend on its marked operands."""
    kind = primitive.kind
    if type(kind) is kinds.Higher and primitive.linearize is not None:  # a call
        return reached(kind.inline(params).jaxpr, marked)
    if type(kind) is kinds.Branch and not marked[0]:
        return _any(*[reached(branch.jaxpr, marked[1:]) for branch in kind.branches(params)])
    if type(kind) is kinds.Loop:
        return loop(kind.parts(params), marked)
    return (True,) * count


def loop(parts: kinds.LoopParts, marked: Flags) -> Flags:
    """Which results of a loop depend on its marked operands: all, if they decide how often it runs."""
    first = parts.n_cond_consts + parts.n_consts
    tests, consts = marked[: parts.n_cond_consts], marked[parts.n_cond_consts : first]
    state, rows = marked[first : first + parts.n_carry], marked[first + parts.n_carry :]
    while True:
        outs = reached(parts.body.jaxpr, (*consts, *state, *rows))
        if parts.cond is not None and any(reached(parts.cond.jaxpr, (*tests, *state))):
            return (True,) * len(outs)
        grown = _any(state, outs[: parts.n_carry])
        if grown == state:
            return (*state, *outs[parts.n_carry :])
        state = grown


def _any(*rows: Flags) -> Flags:
    return tuple([any(column) for column in zip(*rows, strict=True)])
