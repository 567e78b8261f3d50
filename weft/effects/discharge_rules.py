"""Primitives that carry programs, without references: they are read before and written after.

Loops get the references that they write as parts of their state, branches as results. ``run`` is what
``core.ref_types`` calls where an equation with references is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.control import bodies
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Var
from weft.core.ref_types import check_distinct, is_ref, same
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import trace_to_jaxpr
from weft.effects import custom_rules
from weft.effects.discharge import discharged, pure, store, value_of

state = tracing.state


def run(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """A primitive on references, or with references in its programs, by the same on values."""
    rule = _RULES.get(primitive.name, _closed_programs)
    return rule(primitive, list(args), params)


def _closed_programs(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """Where the rules of the primitive see its operands, a program may use references that it makes itself."""
    if any(map(is_ref, args)):
        raise NotImplementedError(
            f"[{primitive.name}] a mutable array reference cannot be an argument of, or closed over by, this function: "
            "pass its value ref[...], and write what the function returns"
        )
    changed = {name: pure(value) if type(value) is ClosedJaxpr else value for name, value in params.items()}
    return primitive.bind(*args, **changed)


def _check_distinct(operands: Sequence[Any]) -> None:
    """ValueError if a reference is an operand twice."""
    given = list(filter(is_ref, operands))
    check_distinct(given, lambda: [f"reference {number}" for number in range(len(given))])


def _call(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """jit and checkpoint: a call of one program."""
    closed: ClosedJaxpr = params["jaxpr"]
    given = [*closed.consts, *args]
    found = discharged(closed.jaxpr, given)
    _check_distinct(given)
    operands = [*found.captured, *map(value_of, given)]
    params = {**params, "jaxpr": found.closed}
    added = len(operands) - len(args)
    if "donated_invars" in params:
        params["donated_invars"] = (False,) * len(operands)
    if type(params.get("prevent_cse")) is tuple:
        params["prevent_cse"] = (True,) * added + params["prevent_cse"]
    outs = primitive.bind(*operands, **params)
    n_outs = len(closed.jaxpr.outvars)
    for index, value in zip(found.written, outs[n_outs:], strict=True):
        store(given[index], value)
    return outs[:n_outs]


def _scan(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """References among the constants become state if they are written; among the inputs, inputs and outputs."""
    closed: ClosedJaxpr = params["jaxpr"]
    given, n_lead = [*closed.consts, *args], len(closed.consts)
    n_fixed = n_lead + params["num_consts"] + params["num_carry"]
    found = discharged(closed.jaxpr, [x if index < n_fixed else None for index, x in enumerate(given)])
    n_extra = len(found.captured)
    _check_distinct(given)
    n_consts, n_carry = params["num_consts"] + n_lead, params["num_carry"]
    moving = n_consts + n_carry
    inputs = list(range(len(given)))
    consts = [i for i in inputs[:n_consts] if i not in found.written]
    state_refs = [i for i in found.written if i < n_consts]
    stacked_refs = [i for i in found.written if i >= moving]
    order = [*consts, *inputs[n_consts:moving], *state_refs, *inputs[moving:]]
    invars, outvars = found.jaxpr.invars, found.jaxpr.outvars
    n_outs = len(closed.jaxpr.outvars)
    last = dict(zip(found.written, outvars[n_outs:], strict=True))
    outs = [*outvars[:n_carry], *[last[i] for i in state_refs], *outvars[n_carry:n_outs]]
    outs += [last[i] for i in stacked_refs]
    body = found.jaxpr.replace(
        invars=[*invars[:n_extra], *[invars[n_extra + i] for i in order]], outvars=outs, debug_info=None
    )
    made = primitive.bind(
        *found.captured, *[value_of(given[i]) for i in order],
        **{**params, "jaxpr": ClosedJaxpr(body), "num_consts": n_extra + len(consts),
           "num_carry": n_carry + len(state_refs)},
    )  # fmt: skip
    n_state = n_carry + len(state_refs)
    n_stacked = n_outs - n_carry
    finals = [*made[n_carry:n_state], *made[n_state + n_stacked :]]
    for index, value in zip([*state_refs, *stacked_refs], finals, strict=True):
        store(given[index], value)
    return [*made[:n_carry], *made[n_state : n_state + n_stacked]]


def _while(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """References that the body writes become state, which the condition sees."""
    n_tested, n_consts = params["cond_nconsts"], params["body_nconsts"]
    nowhere = [None] * (len(args) - n_tested - n_consts)
    cond = discharged(params["cond_jaxpr"].jaxpr, [*args[:n_tested], *nowhere])
    if cond.written:
        return _while_asked_first(primitive, args, params)
    body = discharged(params["body_jaxpr"].jaxpr, [*args[n_tested : n_tested + n_consts], *nowhere])
    tested, captured = args[:n_tested], args[n_tested : n_tested + n_consts]
    carry = args[n_tested + n_consts :]
    refs = [captured[i] for i in body.written]
    test_vars, body_vars = cond.jaxpr.invars, body.jaxpr.invars
    n_test_extra, n_extra = len(cond.captured), len(body.captured)
    kept = [i for i in range(n_consts) if i not in body.written]
    test_kept = [i for i, x in enumerate(tested) if not any(is_ref(x) and same(x, ref) for ref in refs)]
    asked = {i: next(k for k, ref in enumerate(refs) if same(tested[i], ref))
             for i in range(n_tested) if i not in test_kept}  # fmt: skip
    state_vars = [Var(ref.aval.inner_aval) for ref in refs]
    for i, k in asked.items():
        state_vars[k] = test_vars[n_test_extra + i]
    test = cond.jaxpr.replace(
        invars=[*test_vars[:n_test_extra], *[test_vars[n_test_extra + i] for i in test_kept],
                *test_vars[n_test_extra + n_tested :], *state_vars], debug_info=None,
    )  # fmt: skip
    step = body.jaxpr.replace(
        invars=[*body_vars[:n_extra], *[body_vars[n_extra + i] for i in kept], *body_vars[n_extra + n_consts :],
                *[body_vars[n_extra + i] for i in body.written]], debug_info=None,
    )  # fmt: skip
    outs = primitive.bind(
        *cond.captured, *[value_of(tested[i]) for i in test_kept],
        *body.captured, *[value_of(captured[i]) for i in kept], *carry, *map(value_of, refs),
        cond_jaxpr=ClosedJaxpr(test), body_jaxpr=ClosedJaxpr(step), cond_nconsts=n_test_extra + len(test_kept),
        body_nconsts=n_extra + len(kept),
    )  # fmt: skip
    for ref, value in zip(refs, outs[len(carry) :], strict=True):
        store(ref, value)
    return outs[: len(carry)]


def _while_asked_first(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """A loop whose condition writes: it is asked once before, then at the end of each step; the answer is state.

    What the condition writes when it ends the loop stays written.
    """
    test, step = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    n_tested, n_consts = params["cond_nconsts"], params["body_nconsts"]
    n_captured = n_tested + n_consts
    captured, carry = args[:n_captured], args[n_captured:]
    firsts = [next(k for k in range(i + 1) if k == i or (is_ref(x) and is_ref(captured[k]) and same(x, captured[k])))
              for i, x in enumerate(captured)]  # fmt: skip
    kept = sorted(set(firsts))
    where = [kept.index(first) for first in firsts]  # one operand for each reference

    def flat(*values: Any) -> list[Any]:
        given = [values[first] for first in where]
        made = eval_jaxpr(step, [], *given[n_tested:], *values[len(kept) : -1])
        return [*made, *eval_jaxpr(test, [], *given[:n_tested], *made)]

    (goes_on,) = eval_jaxpr(test, [], *captured[:n_tested], *carry)
    state_avals = [bodies.aval_of(x) for x in carry]
    answer = bodies.aval_of(goes_on)
    closed, _ = trace_to_jaxpr(flat, [*[bodies.aval_of(captured[first]) for first in kept], *state_avals, answer])
    program, extra = bodies.without_constants(closed)
    state_vars = [Var(aval) for aval in [*state_avals, answer]]
    outs = primitive.bind(
        *extra, *[captured[first] for first in kept], *carry, goes_on,
        cond_jaxpr=ClosedJaxpr(test.replace(constvars=[], invars=state_vars, outvars=[state_vars[-1]], eqns=[],
                                            effects=frozenset(), debug_info=None)),
        body_jaxpr=program, cond_nconsts=0, body_nconsts=len(extra) + len(kept),
    )  # fmt: skip
    return outs[:-1]


def _cond(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """What any branch writes is a result of every branch."""
    index, operands = args[0], args[1:]
    _check_distinct(operands)
    found = [discharged(branch.jaxpr, operands) for branch in params["branches"]]
    written = sorted({number for one in found for number in one.written})
    extra = [x for one in found for x in one.captured]
    extra_avals = [bodies.aval_of(x) for x in extra]
    branches, before = [], 0
    for one in found:
        count = len(one.captured)
        leading = [Var(aval) for aval in extra_avals]
        leading[before : before + count] = one.jaxpr.invars[:count]
        before += count
        own = one.jaxpr.invars[count:]
        n_outs = len(one.jaxpr.outvars) - len(one.written)
        last = dict(zip(one.written, one.jaxpr.outvars[n_outs:], strict=True))
        outvars = [*one.jaxpr.outvars[:n_outs], *[last.get(number, own[number]) for number in written]]
        branches.append(ClosedJaxpr(one.jaxpr.replace(invars=[*leading, *own], outvars=outvars, debug_info=None)))
    outs = primitive.bind(index, *extra, *map(value_of, operands), **{**params, "branches": tuple(branches)})
    n_outs = len(outs) - len(written)
    for number, value in zip(written, outs[n_outs:], strict=True):
        store(operands[number], value)
    return outs[:n_outs]


_RULES: dict[str, Callable[..., list[Any]]] = {
    "jit": _call,
    "remat2": _call,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_jvp_call": custom_rules.run,
    "custom_vjp_call": custom_rules.run,
}
