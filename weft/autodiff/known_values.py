"""Equations with programs in them: the results that depend on known values alone are computed, the rest stays.

The transposition of a program, and partial evaluation, ask a primitive's ``separate(operands, unknown, params)``. It
computes the known results, and gives a ``Rest``: an equation for the others. In a loop the known parts of the state are
computed first by a loop of their own, which stacks them; the rest reads them as rows::

    i c = scan[jaxpr={ lambda ; i c. let ... in (i + 1, c * i)}] 0 x    ->    rows = [0, 1, 2];  scan of c over rows

``with_counted_loops`` makes scans of the ``while`` loops that run a known number of times, which have no transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.autodiff import checkpoint, dead_code, loop_derivatives
from weft.control import bodies, branches, scan, while_loop
from weft.core import kinds
from weft.core.programs import dependence, rewrite
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import call_primitive

Flags = tuple[bool, ...]


class Rest(NamedTuple):
    """``known``: position of a result -> its value. The equation of ``params`` on ``operands`` gives those at
    ``indices``, and perhaps others, where ``indices`` has None."""

    known: dict[int, Any]
    operands: list[Any]
    params: dict[str, Any]
    indices: list[int | None]


_UNKNOWN = object()


def _marked(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _without(flags: Sequence[bool]) -> list[bool]:
    return [not flag for flag in flags]


def _evaluated(closed: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    """The results of a program some of whose operands are ``_UNKNOWN``, as are the results that depend on them."""
    jaxpr = closed.jaxpr
    values: dict[Var, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *operands], strict=True))

    def read(atom: Any) -> Any:
        return tracing.literal_value(atom) if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        unknown = tuple([x is _UNKNOWN for x in given])
        outs: Sequence[Any] = [_UNKNOWN] * len(eqn.outvars)
        if not any(unknown):
            with source_info.replayed(eqn.source):
                made = eqn.primitive.bind(*given, **eqn.params)
            outs = made if eqn.primitive.multiple_results else [made]
        elif eqn.primitive.separate is not None:
            rest = eqn.primitive.separate(given, unknown, eqn.params)
            outs = outs if rest is None else [rest.known.get(index, _UNKNOWN) for index in range(len(outs))]
        values.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _known_part(closed: ClosedJaxpr, unknown: Sequence[bool], wanted: Sequence[bool]) -> ClosedJaxpr:
    """The program of the known inputs and of the ``wanted`` results, which depend on no other."""

    def flat(*known: Any) -> list[Any]:
        given = iter(known)
        return _marked(_evaluated(closed, [_UNKNOWN if flag else next(given) for flag in unknown]), wanted)

    return tracing.trace_to_jaxpr(flat, _marked(closed.in_avals, _without(unknown)))[0]


def _same_equation(known: Sequence[Any], after: Flags, operands: Sequence[Any], params: dict[str, Any]) -> Rest:
    """The rest is the whole equation: it computes the known results once more, and nobody reads them."""
    found = iter(known)
    values = {index: next(found) for index, flag in enumerate(after) if not flag}
    return Rest(values, list(operands), params, [index if flag else None for index, flag in enumerate(after)])


def _call(operands: Sequence[Any], unknown: Flags, params: dict[str, Any]) -> Rest | None:
    closed: ClosedJaxpr = params["jaxpr"]
    after = dependence.reached(closed.jaxpr, unknown)
    if all(after):
        return None
    given = [_UNKNOWN if flag else x for x, flag in zip(operands, unknown, strict=True)]
    return _same_equation(_marked(_evaluated(closed, given), _without(after)), after, operands, params)


def _cond(operands: Sequence[Any], unknown: Flags, params: dict[str, Any]) -> Rest | None:
    programs: Sequence[ClosedJaxpr] = params["branches"]
    after = dependence.results(branches.cond_p, params, unknown, len(programs[0].out_avals))
    if all(after):
        return None
    made = [_known_part(program, unknown[1:], _without(after)) for program in programs]
    index, *given = _marked(operands, _without(unknown))
    others = {name: value for name, value in params.items() if name != "branches"}
    return _same_equation(loop_derivatives.bind_cond(index, made, given, others), after, operands, params)


def _scan(operands: Sequence[Any], unknown: Flags, params: dict[str, Any]) -> Rest | None:
    closed: ClosedJaxpr = params["jaxpr"]
    first, n_carry = params["num_consts"], params["num_carry"]
    last = first + n_carry
    kind: Any = scan.scan_p.kind
    after = dependence.loop(kind.parts(params), unknown)
    if all(after):
        return None
    jaxpr, moves = closed.jaxpr, after[:n_carry]  # the parts of the state that become unknown
    state = _marked(jaxpr.invars[first:last], _without(moves))
    # the known loop, which also stacks the known parts of the state as they are before each step
    whole = ClosedJaxpr(jaxpr.replace(outvars=[*jaxpr.outvars, *state], debug_info=None), closed.consts)
    hidden = [*unknown[:first], *moves, *unknown[last:]]
    program = _known_part(whole, hidden, [*_without(after), *[True] * len(state)])
    groups = [
        _marked(operands[start:end], _without(hidden[start:end]))
        for start, end in ((0, first), (first, last), (last, len(operands)))
    ]
    others = {name: params[name] for name in ("length", "reverse", "unroll")}
    outs = loop_derivatives.bind_scan(program, *groups, **others)
    n_known = len(outs) - len(state)
    indices = [index for index, flag in enumerate(after) if not flag]
    # the rest, in which those parts are rows
    order = [*range(first), *[k for k in range(first, last) if moves[k - first]], *range(last, len(operands))]
    moving: list[int | None] = [index for index, flag in enumerate(after) if flag]
    rest = jaxpr.replace(
        invars=[*[jaxpr.invars[k] for k in order], *state], outvars=_marked(jaxpr.outvars, after), debug_info=None
    )
    return Rest(
        dict(zip(indices, outs[:n_known], strict=True)),
        [*[operands[k] for k in order], *outs[n_known:]],
        {**params, "jaxpr": ClosedJaxpr(rest, closed.consts), "num_carry": sum(moves)},
        moving,
    )


def _while(operands: Sequence[Any], unknown: Flags, params: dict[str, Any]) -> Rest | None:
    kind: Any = while_loop.while_p.kind
    parts = kind.parts(params)
    after = dependence.loop(parts, unknown)
    if all(after):
        return None
    tested, first = parts.n_cond_consts, parts.n_cond_consts + parts.n_consts
    body = _known_part(parts.body, [*unknown[tested:first], *after], _without(after))
    test = _known_part(parts.cond, [*unknown[:tested], *after], [True])
    body, in_body = bodies.without_constants(body)
    test, in_test = bodies.without_constants(test)
    tests, consts = (_marked(operands[a:b], _without(unknown[a:b])) for a, b in ((0, tested), (tested, first)))
    outs = while_loop.while_p.bind(
        *in_test, *tests, *in_body, *consts, *_marked(operands[first:], _without(after)),
        cond_jaxpr=test, body_jaxpr=body, cond_nconsts=len(in_test) + len(tests),
        body_nconsts=len(in_body) + len(consts),
    )  # fmt: skip
    return _same_equation(outs, after, operands, params)


call_primitive.jit_p.separate = checkpoint.checkpoint_p.separate = _call
branches.cond_p.separate, scan.scan_p.separate, while_loop.while_p.separate = _cond, _scan, _while


# -- while loops of a known number of steps ---------------------------------------------------------------------------


def with_counted_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program in which a ``while`` is a ``scan`` if the values that its condition depends on are known."""
    constants = _Constants(closed)
    eqns = [_counted(_with_counted_inside(eqn), constants) for eqn in closed.jaxpr.eqns]
    return ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)


class _Constants:
    """The values in a program that do not depend on its inputs, each computed when it is asked for."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.values: dict[Any, Any] = dict.fromkeys(closed.jaxpr.invars)
        for v, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            self.values[v] = None if isinstance(value, Tracer) else value
        self.makers = rewrite.index(closed.jaxpr).makers

    def value(self, atom: Any) -> Any:
        """None if it is not known while tracing."""
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self.values:
            eqn = self.makers[atom]
            operands = [None] if eqn.effects else [self.value(operand) for operand in eqn.invars]
            outs: Any = [None] * len(eqn.outvars)
            if all(operand is not None for operand in operands):
                with tracing.eval_context():
                    made = eqn.primitive.bind(*operands, **eqn.params)
                outs = made if eqn.primitive.multiple_results else [made]
            self.values.update(zip(eqn.outvars, outs, strict=True))
        return self.values[atom]


def _with_counted_inside(eqn: JaxprEqn) -> JaxprEqn:
    kind = eqn.primitive.kind
    if type(kind) in (kinds.Loop, kinds.Branch):
        return eqn.replace(params=kind.mapped(eqn.params, with_counted_loops))
    if eqn.primitive.separate is _call:
        return eqn.replace(params={**eqn.params, "jaxpr": with_counted_loops(eqn.params["jaxpr"])})
    return eqn


def _counted(eqn: JaxprEqn, constants: _Constants) -> JaxprEqn:
    """A ``while`` loop as a scan, if its number of steps is known; any other equation as it was."""
    if eqn.primitive is not while_loop.while_p:
        return eqn
    count = _count(eqn, constants)
    if count is None:
        return eqn
    parts = eqn.primitive.kind.parts(eqn.params)
    return eqn.replace(
        primitive=scan.scan_p, invars=eqn.invars[parts.n_cond_consts :],
        params={
            "jaxpr": parts.body, "length": count, "num_consts": parts.n_consts, "num_carry": parts.n_carry,
            "reverse": False, "unroll": 1,
        },
    )  # fmt: skip


def _count(eqn: JaxprEqn, constants: _Constants) -> int | None:
    """How often a loop runs: the part of its state that the condition depends on is run by itself."""
    parts = eqn.primitive.kind.parts(eqn.params)
    tested = parts.n_cond_consts
    test, read = dead_code.dce_jaxpr(parts.cond.jaxpr, True)
    wanted = read[tested:]
    while True:  # to a fixed point: parts of the state that decide how the deciding parts change are deciding too
        body, needs = dead_code.dce_jaxpr(parts.body.jaxpr, wanted, [*[False] * parts.n_consts, *wanted])
        if needs[parts.n_consts :] == wanted:
            break
        wanted = needs[parts.n_consts :]
    keep = [*read[:tested], *needs[: parts.n_consts], *wanted]
    operands = [constants.value(atom) for atom in _marked(eqn.invars, keep)]
    if any(value is None for value in operands) or parts.cond.effects or parts.body.effects:
        return None
    n_tests, n_consts = sum(read[:tested]), sum(needs[: parts.n_consts])
    test = dead_code.dce_jaxpr(parts.cond.jaxpr, True, [*read[:tested], *wanted])[0]
    tests, consts, state = operands[:n_tests], operands[n_tests : n_tests + n_consts], operands[n_tests + n_consts :]

    def goes_on(state: Any) -> Any:
        return eval_jaxpr(test, parts.cond.consts, *tests, *state[1])[0]

    def step(state: Any) -> Any:
        return state[0] + 1, eval_jaxpr(body, parts.body.consts, *consts, *state[1])

    with tracing.eval_context():
        return int(while_loop.while_loop(goes_on, step, (np.int32(0), state))[0])
