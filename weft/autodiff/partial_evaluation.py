"""Partial evaluation for ``checkpoint``: a policy splits a program into what is stored and what is recomputed.

    b = sin a; c = name[name=p] b; d = cos c    keeping p:   known: a -> d, c    again: c, a, t -> cos a, sin c, ...

The policy is also asked inside jitted functions, loops and branches. A scan stacks the stored values of every step; the
scan that recomputes the others reads them row by row. A branch returns zeros for values that other branches store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.autodiff import linearize
from weft.autodiff.remat_policy import Policy, may_keep
from weft.control import bodies, branches, scan
from weft.core import effects
from weft.core.programs import rewrite
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var
from weft.core.tangents import tangent_aval
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive
from weft.dispatch.programs import constants
from weft.operations import linear as linear_operations

# -- a derivative -----------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A linearised program split by a policy.

    ``known`` gives the results followed by the stored values. ``again`` takes the stored values, the inputs listed in
    ``reads`` and the tangents of live inputs, and gives the tangents of live results.
    """

    known: ClosedJaxpr
    again: ClosedJaxpr
    reads: tuple[int, ...]
    out_live: tuple[bool, ...]


def split_by_policy(closed: ClosedJaxpr, live: tuple[bool, ...], policy: Policy) -> Kept:
    """A program split with respect to its ``live`` inputs; memoised on the program."""
    key: Any = ("kept", live, policy, tuple([id(const) for const in closed.consts]))
    return closed.jaxpr.memoize(key, lambda jaxpr: (_split_by_policy(closed, live, policy), closed.consts))[0]


def _split_by_policy(closed: ClosedJaxpr, live: tuple[bool, ...], policy: Policy) -> Kept:
    split = linearize.linearize_jaxpr(closed, live)
    n_outs, n_inputs = len(closed.out_avals), len(closed.in_avals)
    indices = [which for word, which in split.residuals if word == "result"]
    divided = divide(split.known, [index in indices for index in range(len(split.known.out_avals))], policy)
    order = sorted(set(indices))

    def tangents(*given: Any) -> list[Any]:
        inputs = given[divided.n_kept : divided.n_kept + n_inputs]
        made = eval_jaxpr(divided.again.jaxpr, divided.again.consts, *given[: divided.n_kept + n_inputs])
        residuals = split.find_residuals(inputs, dict(zip(order, made, strict=True)))
        return eval_jaxpr(split.linear.jaxpr, split.linear.consts, *residuals, *given[divided.n_kept + n_inputs :])

    moving = [tangent_aval(aval) for aval, has in zip(closed.in_avals, live, strict=True) if has]
    in_avals = [*divided.again.in_avals, *moving]
    made, _ = tracing.trace_to_jaxpr(tangents, in_avals, closed.jaxpr.debug_info, of_program=True)
    program, used = rewrite.dce(made.jaxpr)
    start = divided.n_kept
    reads = tuple([index for index in range(n_inputs) if used[start + index]])
    stay = [*range(start), *[start + index for index in reads], *range(start + n_inputs, len(in_avals))]
    program = program.replace(invars=[program.invars[index] for index in stay])
    results = [index < n_outs or index >= len(split.known.out_avals) for index in range(len(divided.known.out_avals))]
    known = _without_unread(rewrite.dce(divided.known.jaxpr, results)[0])
    return Kept(ClosedJaxpr(known, divided.known.consts), ClosedJaxpr(program, made.consts), reads, split.out_live)


# -- a program --------------------------------------------------------------------------------------------------------


class Divided(NamedTuple):
    """``known`` gives a program's results followed by the stored values. ``again`` computes the wanted results from the
    stored values and from the inputs that ``reads`` marks."""

    known: ClosedJaxpr
    again: ClosedJaxpr
    n_kept: int
    reads: list[bool]


class _Inside(NamedTuple):
    """An equation split in two. ``reads``: the positions of the operands that ``second`` reads.

    ``first(*operands)`` gives the equation's results followed by the stored values, ``second(stored, operands)`` a dict
    from position to wanted result.
    """

    first: Callable[..., Sequence[Any]]
    second: Callable[[Sequence[Any], dict[int, Any]], dict[int, Any]]
    kept: list[Any]
    reads: list[int]


def divide(closed: ClosedJaxpr, wanted: Sequence[bool], policy: Policy) -> Divided:
    """Split a program whose results marked in ``wanted`` are needed again later."""
    lifted = constants.lifted(closed.jaxpr)
    jaxpr, consts = _with_calls_inlined(lifted.jaxpr), [*closed.consts, *lifted.values]
    keepable = {v for eqn in jaxpr.eqns if may_keep(policy, eqn) for v in eqn.outvars}
    results = [atom for atom, want in zip(jaxpr.outvars, wanted, strict=True) if want]
    needed = {atom for atom in results if type(atom) is Var}
    again: list[JaxprEqn] = []
    inside: dict[int, _Inside] = {}  # by the id of the equation
    for eqn in reversed(jaxpr.eqns):
        if not any(v in needed and v not in keepable for v in eqn.outvars) and not _shows_again(policy, eqn):
            continue
        again.append(eqn)
        parts = _divided_equation(eqn, needed, policy)
        if parts is not None:
            inside[id(eqn)] = parts
        read = eqn.invars if parts is None else [eqn.invars[index] for index in parts.reads]
        needed.update(atom for atom in read if type(atom) is Var)
    again.reverse()
    kept = [v for eqn in jaxpr.eqns for v in eqn.outvars if v in needed and v in keepable]
    known, kept_avals = _known(jaxpr, consts, kept, inside)

    def flat(*given: Any) -> list[Any]:
        kept_values = iter(given[: len(kept_avals)])
        values = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, given[len(kept_avals) :], strict=True))
        values.update((v, next(kept_values)) for v in kept)
        rows = {number: [next(kept_values) for _ in parts.kept] for number, parts in inside.items()}
        for eqn in again:
            _run_again(eqn, values, inside.get(id(eqn)), rows.get(id(eqn), ()))
        return [_read(values, atom) for atom in results]

    made, _ = tracing.trace_to_jaxpr(flat, [*kept_avals, *closed.in_avals])
    program, used = rewrite.dce(made.jaxpr)
    return Divided(
        known, ClosedJaxpr(_without_unread(program), made.consts), len(kept_avals), list(used[len(kept_avals) :])
    )


def _known(
    jaxpr: Jaxpr, consts: Sequence[Any], kept: Sequence[Var], inside: dict[int, _Inside]
) -> tuple[ClosedJaxpr, list[Any]]:
    """(the program computed once, the types of the values it stores: variables, then values inside equations)."""
    if not inside:
        known, _ = rewrite.dce(jaxpr.replace(outvars=[*jaxpr.outvars, *kept]))
        return ClosedJaxpr(known, consts), [v.aval for v in kept]

    def flat(*given: Any) -> list[Any]:
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *given], strict=True))
        rows: dict[int, Sequence[Any]] = {}
        for eqn in jaxpr.eqns:
            parts = inside.get(id(eqn))
            if parts is None:
                _run_again(eqn, values)
                continue
            with source_info.replayed(eqn.source):
                outs = parts.first(*[_read(values, atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, outs, strict=False))
            rows[id(eqn)] = outs[len(eqn.outvars) :]
        stacked = [row for number in inside for row in rows[number]]
        return [_read(values, atom) for atom in [*jaxpr.outvars, *kept]] + stacked

    made, out_avals = tracing.trace_to_jaxpr(flat, [v.aval for v in jaxpr.invars], jaxpr.debug_info, of_program=True)
    known, _ = rewrite.dce(made.jaxpr)
    return ClosedJaxpr(known, made.consts), list(out_avals[len(jaxpr.outvars) :])


def _read(values: dict[Var, Any], atom: Any) -> Any:
    return tracing.literal_value(atom) if isinstance(atom, Literal) else values[atom]


def _run_again(eqn: JaxprEqn, values: dict[Var, Any], parts: _Inside | None = None, kept: Sequence[Any] = ()) -> None:
    """Evaluate an equation on ``values`` and add its results; if it is split (``parts``), its second part."""
    with source_info.replayed(eqn.source):
        if parts is not None:
            outs = parts.second(kept, {index: _read(values, eqn.invars[index]) for index in parts.reads})
            values.update((eqn.outvars[index], out) for index, out in outs.items())
            return
        out = eqn.primitive.bind(*[_read(values, atom) for atom in eqn.invars], **eqn.params)
    made = out if eqn.primitive.multiple_results else (out,)
    values.update((v, x) for v, x in zip(eqn.outvars, made, strict=True) if v not in values)


def _shows_again(policy: Policy, eqn: JaxprEqn) -> bool:
    """Whether a print or callback also happens in the recomputation, so that the user sees it."""
    shown = effects.debug_effect in eqn.effects or effects.ordered_debug_effect in eqn.effects
    return shown and not eqn.outvars and not may_keep(policy, eqn)


def _with_calls_inlined(jaxpr: Jaxpr) -> Jaxpr:
    """The program with calls of jitted functions inlined; the calls must have no constants."""

    if not any(eqn.primitive is call_primitive.jit_p for eqn in jaxpr.eqns):
        return jaxpr
    return rewrite.rewrite(jaxpr, _inline_call)


def _inline_call(builder: rewrite.Builder, eqn: JaxprEqn, operands: list[Any]) -> Any:
    if eqn.primitive is not call_primitive.jit_p:
        return None
    return builder.inline(eqn.params["jaxpr"].jaxpr, operands, _inline_call)


def _without_unread(jaxpr: Jaxpr) -> Jaxpr:
    """The program without results of loops and branches that nothing reads."""
    return jaxpr.replace(eqns=[_with_read_results(eqn) for eqn in jaxpr.eqns])


def _with_read_results(eqn: JaxprEqn) -> JaxprEqn:
    if eqn.primitive is not scan.scan_p and eqn.primitive is not branches.cond_p:
        return eqn
    dropped = [type(v) is DropVar for v in eqn.outvars]
    n_carry = eqn.params.get("num_carry", 0)
    dropped[:n_carry] = [False] * n_carry
    if not any(dropped):
        return eqn

    def prune(closed: ClosedJaxpr) -> ClosedJaxpr:
        return ClosedJaxpr(rewrite.dce(bodies.pruned(closed.jaxpr, dropped))[0], closed.consts)

    outvars = [v for v, drop in zip(eqn.outvars, dropped, strict=True) if not drop]
    return eqn.replace(outvars=outvars, params=eqn.primitive.kind.mapped(eqn.params, prune))


# -- equations that carry programs ------------------------------------------------------------------------------------


def _divided_equation(eqn: JaxprEqn, needed: set[Var], policy: Policy) -> _Inside | None:
    """The two parts of an equation some of whose inner values are kept; None for any other equation."""
    wanted = [v in needed for v in eqn.outvars]
    if eqn.primitive is scan.scan_p:
        return _divided_scan(eqn, wanted, policy)
    return _divided_branches(eqn, wanted, policy) if eqn.primitive is branches.cond_p else None


def _divided_scan(eqn: JaxprEqn, wanted: list[bool], policy: Policy) -> _Inside | None:
    params = {**eqn.params}
    body, first, n_carry = (params.pop(name) for name in ("jaxpr", "num_consts", "num_carry"))
    last, count = first + n_carry, len(eqn.outvars)
    while True:  # to a fixed point: a part of the state that is needed again must be recomputed
        parts = divide(body, wanted, policy)
        grown = [a or b for a, b in zip(wanted[:n_carry], parts.reads[first:last], strict=True)]
        if grown == wanted[:n_carry]:
            break
        wanted[:n_carry] = grown
    if not parts.n_kept:
        return None
    state = [index for index in range(first, last) if wanted[index - first]]
    steady = [index for index in range(first) if parts.reads[index]]
    moving = [index for index in range(last, len(eqn.invars)) if parts.reads[index]]
    program = parts.again.jaxpr
    order = [*steady, *state, *moving]
    invars = [*[program.invars[parts.n_kept + index] for index in order], *program.invars[: parts.n_kept]]
    again = ClosedJaxpr(program.replace(invars=invars, debug_info=None), parts.again.consts)
    rows = [scan.stacked_aval(aval, params["length"]) for aval in parts.known.out_avals[count:]]

    def bind(closed: ClosedJaxpr, n_consts: int, n_state: int, operands: Sequence[Any]) -> list[Any]:
        inner, captured = bodies.without_constants(closed)
        return scan.scan_p.bind(
            *captured, *operands, jaxpr=inner, num_consts=len(captured) + n_consts, num_carry=n_state, **params
        )

    def second(kept: Sequence[Any], operands: dict[int, Any]) -> dict[int, Any]:
        outs = bind(again, len(steady), len(state), [*[operands[index] for index in order], *kept])
        return dict(zip([index for index in range(count) if wanted[index]], outs, strict=True))

    return _Inside(lambda *operands: bind(parts.known, first, n_carry, operands), second, rows, order)


def _divided_branches(eqn: JaxprEqn, wanted: list[bool], policy: Policy) -> _Inside | None:
    params = {**eqn.params}
    divided = [divide(branch, wanted, policy) for branch in params.pop("branches")]
    if not any(parts.n_kept for parts in divided):
        return None
    count = len(eqn.outvars)
    slots, slots_of = _shared_slots([parts.known.out_avals[count:] for parts in divided])
    reads = [number for number in range(1, len(eqn.invars)) if any(parts.reads[number - 1] for parts in divided)]

    def bind(functions: Sequence[Callable[..., Any]], index: Any, operands: Sequence[Any], in_avals: list[Any]) -> Any:
        closed = [tracing.trace_to_jaxpr(function, in_avals)[0] for function in functions]
        made = [bodies.Body(program, tuple(held), None) for program, held in map(bodies.without_constants, closed)]
        programs, captured = bodies.with_common_captures(made)
        return branches.cond_p.bind(index, *captured, *operands, branches=tuple(programs), **params)

    def first(index: Any, *operands: Any) -> Sequence[Any]:
        def known(parts: Divided, own: Sequence[int]) -> Callable[..., list[Any]]:
            def flat(*args: Any) -> list[Any]:
                outs = eval_jaxpr(parts.known.jaxpr, parts.known.consts, *args)
                kept = dict(zip(own, outs[count:], strict=True))
                rest = [kept[k] if k in kept else linear_operations.zeros(aval) for k, aval in enumerate(slots)]
                return [*outs[:count], *rest]

            return flat

        functions = [known(parts, own) for parts, own in zip(divided, slots_of, strict=True)]
        return bind(functions, index, operands, [v.aval for v in eqn.invars[1:]])

    def second(kept: Sequence[Any], operands: dict[int, Any]) -> dict[int, Any]:
        def again(parts: Divided, own: Sequence[int]) -> Callable[..., list[Any]]:
            def flat(*args: Any) -> list[Any]:
                given = dict(zip(reads, args[len(slots) :], strict=True))
                inputs = [given.get(number) for number in range(1, len(eqn.invars))]
                return eval_jaxpr(parts.again.jaxpr, parts.again.consts, *[args[k] for k in own], *inputs)

            return flat

        functions = [again(parts, own) for parts, own in zip(divided, slots_of, strict=True)]
        in_avals = [*slots, *[eqn.invars[number].aval for number in reads]]
        outs = bind(functions, operands[0], [*kept, *[operands[number] for number in reads]], in_avals)
        return dict(zip([number for number in range(count) if wanted[number]], outs, strict=True))

    return _Inside(first, second, slots, [0, *reads])


def _shared_slots(kept: Sequence[Sequence[Any]]) -> tuple[list[Any], list[list[int]]]:
    """(types of the slots for kept values, the slots of each branch). Branches share slots, since only one runs."""
    slots: list[Any] = []
    slots_of: list[list[int]] = []
    for avals in kept:
        free = list(range(len(slots)))
        own = []
        for aval in avals:
            slot = next((k for k in free if slots[k] is aval), len(slots))
            if slot == len(slots):
                slots.append(aval)
            else:
                free.remove(slot)
            own.append(slot)
        slots_of.append(own)
    return slots, slots_of
