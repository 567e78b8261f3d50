"""Derivative rules of scan, while and cond.

In forward mode the tangents of the state are part of the state. In reverse mode a scan becomes two: one of the values,
which stacks the residuals of every step, and one of the tangents, whose transpose runs in the opposite direction. Which
parts of the state have tangents is found as a fixed point: a part that gets a tangent in any step has one in all,
starting at zero. All branches of a ``cond`` return the residuals of all branches, with zeros for those of others. A
``while`` loop has no known length, so that it has no reverse mode.

    scan[jaxpr={c x -> sin c * x}]   ->   scan[jaxpr={c x -> ..., cos c, sin c}], scan[jaxpr={ct ...} reverse=True]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff import jvp, linearize, transpose
from weft.control import bodies, branches, scan, while_loop
from weft.core.avals import get_aval
from weft.core.programs import rewrite
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Literal, Var
from weft.core.tangents import Zero, is_differentiable, is_undefined, tangent_aval
from weft.core.tracing import trace as tracing
from weft.operations import linear as linear_operations

Flags = tuple[bool, ...]


def _live(tangents: Sequence[Any]) -> list[bool]:
    return [type(t) is not Zero for t in tangents]


def _some(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _zero(aval: Any) -> Any:
    """A tangent of zeros."""
    return linear_operations.instantiate(Zero(tangent_aval(aval)))


def _tangents(tangents: Sequence[Any], flags: Sequence[bool], types: Sequence[Any]) -> list[Any]:
    """The tangents of the marked values, with arrays of zeros for symbolic ones."""
    return [_zero(aval) if type(t) is Zero else t for t, flag, aval in zip(tangents, flags, types, strict=True) if flag]


def _spread(found: Sequence[Any], flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """One tangent for every value: those in ``found`` for marked values, symbolic zeros for others."""
    made = iter(found)
    return [next(made) if flag else Zero.from_primal_value(x) for x, flag in zip(values, flags, strict=True)]


def _completed(closed: ClosedJaxpr, has: Flags, wanted: Flags, types: Sequence[Any], n_before: int = 0) -> ClosedJaxpr:
    """The program with zeros added for wanted tangents that it lacks; results after ``n_before`` are tangents."""
    if has == wanted:
        return closed

    def flat(*args: Any) -> list[Any]:
        outs = eval_jaxpr(closed.jaxpr, closed.consts, *args)
        made = iter(outs[n_before:])
        rows = zip(has, wanted, types, strict=True)
        return [*outs[:n_before], *[next(made) if there else _zero(aval) for there, want, aval in rows if want]]

    return tracing.trace_to_jaxpr(flat, closed.in_avals)[0]


def _permuted(closed: ClosedJaxpr, order: Sequence[int]) -> ClosedJaxpr:
    """The program with its inputs in another order."""
    jaxpr = closed.jaxpr
    return ClosedJaxpr(jaxpr.replace(invars=[jaxpr.invars[k] for k in order], debug_info=None), closed.consts)


def _settled(
    live: Sequence[bool], first: int, count: int, types: Sequence[Any], out_live: Callable[[Flags], Flags]
) -> Flags:
    """Which inputs have tangents at the fixed point. The state is ``count`` inputs from number ``first`` on."""
    flags = [flag and is_differentiable(aval.dtype) for flag, aval in zip(live, types, strict=True)]
    while True:
        found = out_live(tuple(flags))
        grown = [a or b for a, b in zip(flags[first : first + count], found[:count], strict=True)]
        if grown == flags[first : first + count]:
            return tuple(flags)
        flags[first : first + count] = grown


# -- scan -------------------------------------------------------------------------------------------------------------


def bind_scan(
    program: ClosedJaxpr, consts: Sequence[Any], state: Sequence[Any], rows: Sequence[Any], **params: Any
) -> Any:
    program, captured = bodies.without_constants(program)
    return scan.scan_p.bind(
        *captured, *consts, *state, *rows, jaxpr=program, num_consts=len(captured) + len(consts), num_carry=len(state),
        **params,
    )  # fmt: skip


def _jvp_scan(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    **params: Any,
) -> tuple[list[Any], list[Any]]:
    types, n_outs = jaxpr.in_avals, len(jaxpr.out_avals)
    first, last = num_consts, num_consts + num_carry
    flags = _settled(_live(tangents), first, num_carry, types, lambda live: jvp.jvp_jaxpr(jaxpr, live)[1])
    program, out_live = jvp.jvp_jaxpr(jaxpr, flags)
    wanted = (*flags[first:last], *out_live[num_carry:])
    program = _completed(program, out_live, wanted, jaxpr.out_avals, n_outs)
    n = len(types)
    positions = [n - 1 + sum(flags[: k + 1]) for k in range(n)]  # k -> position of input k's tangent among the inputs
    groups = [range(first), range(first, last), range(last, n)]
    order = [[*group, *[positions[k] for k in group if flags[k]]] for group in groups]
    outs_order = [
        *range(num_carry), *[n_outs + i for i in range(sum(wanted[:num_carry]))],
        *range(num_carry, n_outs), *[n_outs + i for i in range(sum(wanted[:num_carry]), sum(wanted))],
    ]  # fmt: skip
    reordered = _permuted(program, [k for group in order for k in group])
    inner = reordered.jaxpr
    reordered = ClosedJaxpr(inner.replace(outvars=[inner.outvars[k] for k in outs_order]), reordered.consts)
    given = _given_tangents(tangents, flags, primals)
    parts = [[*[primals[k] for k in group], *[given[k] for k in group if flags[k]]] for group in groups]
    outs = bind_scan(reordered, *parts, **params)
    back = dict(zip(outs_order, outs, strict=True))
    values = [back[k] for k in range(n_outs)]
    return values, _spread([back[n_outs + i] for i in range(sum(wanted))], wanted, values)


def _given_tangents(tangents: Sequence[Any], flags: Sequence[bool], primals: Sequence[Any]) -> list[Any]:
    """The tangents of the marked operands, as arrays."""
    return [
        (_zero(get_aval(x)) if type(t) is Zero else t) if flag else None
        for t, flag, x in zip(tangents, flags, primals, strict=True)
    ]


def _linearize_scan(
    live: Flags, *primals: Any, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int, **params: Any
) -> Any:
    types, n_outs = jaxpr.in_avals, len(jaxpr.out_avals)
    first, last = num_consts, num_consts + num_carry
    flags = _settled(live, first, num_carry, types, lambda some: linearize.linearize_jaxpr(jaxpr, some).out_live)
    split = linearize.linearize_jaxpr(jaxpr, flags)
    known = split.known.jaxpr
    stacked: list[Any] = []  # results of the known program, stacked over the steps
    # residuals, constant or one row per step: (position among the linear program's inputs, value)
    steady, moving = [], []
    same = _same_in_every_step(split, first, primals)
    for position, (word, which) in enumerate(split.residuals):
        if word == "result" and which in same:
            steady.append((position, same[which]))
        elif word == "constant" or (word == "input" and which < first):
            steady.append((position, which if word == "constant" else primals[which]))
        elif word == "input" and which >= last:
            moving.append((position, ("row", which)))
        else:
            atom = known.invars[which] if word == "input" else known.outvars[which]
            moving.append((position, ("stack", len(stacked))))
            stacked.append(atom)
    program = known.replace(outvars=[*known.outvars[:n_outs], *stacked])
    program = ClosedJaxpr(rewrite.dce(program)[0] if same else program, split.known.consts)
    outs = bind_scan(program, primals[:first], primals[first:last], primals[last:], **params)
    rows = [primals[k] if word == "row" else outs[n_outs + k] for _, (word, k) in moving]
    wanted = (*flags[first:last], *split.out_live[num_carry:])
    linear = _completed(split.linear, split.out_live, wanted, jaxpr.out_avals)
    n_residuals = len(split.residuals)
    tangent_positions = [n_residuals + sum(flags[:k]) for k in range(len(types))]
    groups = [[k for k in group if flags[k]] for group in (range(first), range(first, last), range(last, len(types)))]
    order = [
        *[position for position, _ in steady], *[tangent_positions[k] for k in groups[0]],
        *[tangent_positions[k] for k in groups[1]],
        *[position for position, _ in moving], *[tangent_positions[k] for k in groups[2]],
    ]  # fmt: skip
    linear = _permuted(linear, order)

    def record(*tangents: Any) -> list[Any]:
        if not any(wanted):
            return []
        made = iter(tangents)
        given = {k: next(made) for k, has in enumerate(live) if has}
        given.update({k: _zero(types[k]) for k in groups[1] if k not in given})
        consts = [*[value for _, value in steady], *[given[k] for k in groups[0]]]
        return bind_scan(
            linear, consts, [given[k] for k in groups[1]], [*rows, *[given[k] for k in groups[2]]], **params
        )

    return list(outs[:n_outs]), wanted, record


def _same_in_every_step(split: linearize.Split, first: int, primals: Sequence[Any]) -> dict[int, Any]:
    """Residuals that depend on captured values alone, by position; they are computed once."""
    known = split.known.jaxpr
    from_captured = {*known.invars[:first], *known.constvars}
    for equation in known.eqns:
        if not equation.effects and all(isinstance(v, Literal) or v in from_captured for v in equation.invars):
            from_captured.update(equation.outvars)
    positions = [which for word, which in split.residuals if word == "result"]
    positions = [k for k in positions if isinstance(known.outvars[k], Var) and known.outvars[k] in from_captured]
    if not positions:
        return {}
    wanted = [known.outvars[k] for k in positions]
    equations = [e for e in known.eqns if all(v in from_captured for v in e.outvars)]
    program = known.replace(invars=known.invars[:first], outvars=wanted, eqns=equations, debug_info=None)
    values = eval_jaxpr(rewrite.dce(program)[0], split.known.consts, *primals[:first])
    return dict(zip(positions, values, strict=True))


def _transpose_scan(
    cts: Sequence[Any],
    *operands: Any,
    jaxpr: ClosedJaxpr,
    num_consts: int,
    num_carry: int,
    reverse: bool,
    **params: Any,
) -> list[Any]:
    types = jaxpr.in_avals
    first, last = num_consts, num_consts + num_carry
    linear = tuple([is_undefined(x) or first <= k < last for k, x in enumerate(operands)])
    program, in_live = transpose.transpose_jaxpr(jaxpr, linear, (True,) * len(jaxpr.out_avals))
    consts = [k for k in range(first) if linear[k]]
    rows = [k for k in range(last, len(types)) if linear[k]]
    known_consts = [k for k in range(first) if not linear[k]]
    known_rows = [k for k in range(last, len(types)) if not linear[k]]
    n_ys = len(jaxpr.out_avals) - num_carry

    def step(*args: Any) -> list[Any]:
        given = iter(args)
        steady = [next(given) for _ in known_consts]
        totals = [next(given) for _ in consts]
        state = [next(given) for _ in range(num_carry)]
        ys = [next(given) for _ in range(n_ys)]
        residuals = [next(given) for _ in known_rows]
        made = iter(eval_jaxpr(program.jaxpr, program.consts, *steady, *residuals, *state, *ys))
        back = [next(made) if has else None for has in in_live]
        found = dict(zip([k for k, flag in enumerate(linear) if flag], back, strict=True))
        totals = [
            total if found[k] is None else linear_operations.add_any(total, found[k])
            for k, total in zip(consts, totals, strict=True)
        ]
        rest = [_zero(types[k]) if found[k] is None else found[k] for k in [*range(first, last), *rows]]
        return [*totals, *rest]

    row_types = [tangent_aval(aval) for aval in jaxpr.out_avals[num_carry:]]
    in_avals = [
        *[types[k] for k in known_consts], *[tangent_aval(types[k]) for k in consts],
        *[tangent_aval(aval) for aval in jaxpr.out_avals[:num_carry]], *row_types, *[types[k] for k in known_rows],
    ]  # fmt: skip
    body, _ = tracing.trace_to_jaxpr(step, in_avals)
    whole = [linear_operations.instantiate(ct) for ct in cts]
    state = [*[_zero(types[k]) for k in consts], *whole[:num_carry]]
    inputs = [*whole[num_carry:], *[operands[k] for k in known_rows]]
    outs = bind_scan(body, [operands[k] for k in known_consts], state, inputs, reverse=not reverse, **params)
    positions = [*consts, *range(first, last), *rows]
    found = dict(zip(positions, outs, strict=True))
    return [found.get(k) if is_undefined(x) else None for k, x in enumerate(operands)]


scan.scan_p.jvp, scan.scan_p.linearize, scan.scan_p.transpose = _jvp_scan, _linearize_scan, _transpose_scan


# -- while ------------------------------------------------------------------------------------------------------------

_FORWARD_ONLY = (
    "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic start/stop values. "
    "Try using lax.scan, or using fori_loop with static start/stop."
)


def _while_flags(live: Sequence[bool], body_jaxpr: ClosedJaxpr, body_nconsts: int) -> Flags:
    """Which inputs of the body have tangents at the fixed point."""
    types = body_jaxpr.in_avals
    n_state = len(types) - body_nconsts
    return _settled(live, body_nconsts, n_state, types, lambda some: jvp.jvp_jaxpr(body_jaxpr, some)[1])


def _jvp_while(
    primals: Sequence[Any], tangents: Sequence[Any], *, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr,
    cond_nconsts: int, body_nconsts: int,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    types = body_jaxpr.in_avals
    n_state = len(types) - body_nconsts
    body_tangents = tangents[cond_nconsts:]
    flags = _while_flags(_live(body_tangents), body_jaxpr, body_nconsts)
    program, out_live = jvp.jvp_jaxpr(body_jaxpr, flags)
    wanted = flags[body_nconsts:]
    program = _completed(program, out_live, wanted, body_jaxpr.out_avals, n_state)
    n = len(types)
    positions = [n - 1 + sum(flags[: k + 1]) for k in range(n)]
    groups = (range(body_nconsts), range(body_nconsts, n))
    order = [k for group in groups for k in (*group, *[positions[i] for i in group if flags[i]])]
    program, in_body = bodies.without_constants(_permuted(program, order))
    test = cond_jaxpr.jaxpr
    unread = [Var(tangent_aval(types[k])) for k in groups[1] if flags[k]]
    test = test.replace(invars=[*test.invars, *unread], debug_info=None)
    given = _given_tangents(body_tangents, flags, primals[cond_nconsts:])
    body_primals = primals[cond_nconsts:]
    parts = [[*[body_primals[k] for k in g], *[given[k] for k in g if flags[k]]] for g in groups]
    outs = while_loop.while_p.bind(
        *primals[:cond_nconsts], *in_body, *parts[0], *parts[1], cond_jaxpr=ClosedJaxpr(test, cond_jaxpr.consts),
        body_jaxpr=program, cond_nconsts=cond_nconsts, body_nconsts=len(in_body) + len(parts[0]),
    )  # fmt: skip
    return list(outs[:n_state]), _spread(outs[n_state:], wanted, outs[:n_state])


def _linearize_while(live: Flags, *primals: Any, body_jaxpr: ClosedJaxpr, **params: Any) -> Any:
    """The values, and a second loop for the tangents, which recomputes the values."""
    outs = while_loop.while_p.bind(*primals, body_jaxpr=body_jaxpr, **params)
    body_nconsts = params["body_nconsts"]
    wanted = _while_flags(live[params["cond_nconsts"] :], body_jaxpr, body_nconsts)[body_nconsts:]

    def record(*tangents: Any) -> list[Any]:
        made = _jvp_while(primals, _spread(tangents, live, primals), body_jaxpr=body_jaxpr, **params)[1]
        return _some(made, wanted)

    return outs, wanted, record


def _transpose_while(cts: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    raise ValueError(_FORWARD_ONLY)


while_loop.while_p.jvp, while_loop.while_p.linearize, while_loop.while_p.transpose = (
    _jvp_while,
    _linearize_while,
    _transpose_while,
)


# -- cond -------------------------------------------------------------------------------------------------------------


def bind_cond(index: Any, programs: Sequence[ClosedJaxpr], operands: Sequence[Any], params: Any) -> list[Any]:
    made = []
    for program in programs:
        closed, captured = bodies.without_constants(program)
        made.append(bodies.Body(closed, tuple(captured), None))
    common, captured = bodies.with_common_captures(made)
    return branches.cond_p.bind(index, *captured, *operands, branches=tuple(common), **params)


def _jvp_cond(
    primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple[ClosedJaxpr, ...], **params: Any
) -> tuple[list[Any], list[Any]]:
    index, operands = primals[0], primals[1:]
    flags = tuple(
        [flag and is_differentiable(get_aval(x).dtype) for flag, x in zip(_live(tangents[1:]), operands, strict=True)]
    )
    made = [jvp.jvp_jaxpr(branch, flags) for branch in branches]
    n_outs = len(branches[0].out_avals)
    wanted = tuple([any(column) for column in zip(*[out_live for _, out_live in made], strict=True)])
    programs = [_completed(program, out_live, wanted, branches[0].out_avals, n_outs) for program, out_live in made]
    outs = bind_cond(index, programs, [*operands, *_some(tangents[1:], flags)], params)
    return list(outs[:n_outs]), _spread(outs[n_outs:], wanted, outs[:n_outs])


def _linearize_cond(live: Flags, *primals: Any, branches: tuple[ClosedJaxpr, ...], **params: Any) -> Any:
    index, operands = primals[0], primals[1:]
    flags = tuple([flag and is_differentiable(get_aval(x).dtype) for flag, x in zip(live[1:], operands, strict=True)])
    splits = [linearize.linearize_jaxpr(branch, flags) for branch in branches]
    n_outs = len(branches[0].out_avals)
    wanted = tuple([any(column) for column in zip(*[split.out_live for split in splits], strict=True)])
    kept = [[k for word, k in split.residuals if word == "result"] for split in splits]
    kinds_of = [[split.known.out_avals[k] for k in own] for split, own in zip(splits, kept, strict=True)]
    known = [_with_all_residuals(splits[b], kept[b], kinds_of, b, n_outs) for b in range(len(splits))]
    outs = bind_cond(index, known, operands, params)
    residuals = outs[n_outs:]
    starts = [sum(len(types) for types in kinds_of[:b]) for b in range(len(splits))]
    read = sorted({which for split in splits for word, which in split.residuals if word == "input"})
    read_avals = [get_aval(operands[which]) for which in read]
    tangent_types = [tangent_aval(get_aval(x)) for x in _some(operands, flags)]
    in_avals = [*read_avals, *[aval for types in kinds_of for aval in types], *tangent_types]

    def tangents_of(b: int) -> ClosedJaxpr:
        split = splits[b]

        def flat(*args: Any) -> list[Any]:
            results = iter(args[len(read) + starts[b] :])
            found = [
                args[read.index(which)] if word == "input" else which if word == "constant" else next(results)
                for word, which in split.residuals
            ]
            return eval_jaxpr(split.linear.jaxpr, split.linear.consts, *found, *args[len(args) - len(tangent_types) :])

        closed, _ = tracing.trace_to_jaxpr(flat, in_avals)
        return _completed(closed, split.out_live, wanted, branches[0].out_avals)

    def record(*tangents: Any) -> list[Any]:
        if not any(wanted):
            return []
        programs = [tangents_of(b) for b in range(len(splits))]
        return bind_cond(index, programs, [*[operands[which] for which in read], *residuals, *tangents], params)

    return list(outs[:n_outs]), wanted, record


def _with_all_residuals(
    split: linearize.Split, own: Sequence[int], types: Sequence[Sequence[Any]], branch: int, n_outs: int
) -> ClosedJaxpr:
    """A branch whose results are followed by the residuals of all branches; those of other branches are zeros."""

    def flat(*args: Any) -> list[Any]:
        outs = eval_jaxpr(split.known.jaxpr, split.known.consts, *args)
        rest = [
            [outs[k] for k in own] if b == branch else [linear_operations.zeros(aval) for aval in some]
            for b, some in enumerate(types)
        ]
        return [*outs[:n_outs], *[value for part in rest for value in part]]

    return tracing.trace_to_jaxpr(flat, split.known.in_avals)[0]


def _transpose_cond(
    cts: Sequence[Any], index: Any, *operands: Any, branches: tuple[ClosedJaxpr, ...], **params: Any
) -> list[Any]:
    linear = tuple([is_undefined(x) for x in operands])
    live = tuple(_live(cts))
    types = [aval for aval, flag in zip(branches[0].in_avals, linear, strict=True) if flag]
    made = [transpose.transpose_jaxpr(branch, linear, live) for branch in branches]
    wanted = tuple([any(column) for column in zip(*[in_live for _, in_live in made], strict=True)])
    programs = [_completed(program, in_live, wanted, types) for program, in_live in made]
    known = [x for x in operands if not is_undefined(x)]
    outs = iter(bind_cond(index, programs, [*known, *_some(cts, live)], params) if any(wanted) else [])
    has_ct = iter(wanted)
    return [None, *[next(outs) if is_linear and next(has_ct) else None for is_linear in linear]]


branches.cond_p.jvp, branches.cond_p.linearize, branches.cond_p.transpose = _jvp_cond, _linearize_cond, _transpose_cond
