"""Programs without references: each reference becomes a value that goes in, and comes out again if it was written.

    before   { lambda ; a:Ref{f32[3]} b:f32[]. let a[0] <- b; c:f32[] <- a[1] in (c,) }
    after    { lambda ; a:f32[3] b:f32[]. let d = dynamic_update_slice a ...; c = ... in (c, d) }

The program is run with a ``Ref`` for each reference under a trace that hands every other operation to the recorder.
Loops get the references that they write as parts of their state, branches as results. ``run`` is what
``core.ref_types`` calls: a primitive with references in its programs is replaced by one without, and the references
that it was given are read before and written after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.control import bodies
from weft.core import trace as tracing
from weft.core.eval import eval_jaxpr
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, Var
from weft.core.ref_types import AbstractRef, is_ref, uses_refs
from weft.core.trace import Trace, set_current, trace_to_jaxpr
from weft.effects.refs import Ref, RefTracer, get_p, swap_p
from weft.operations.mapped import at, placed

state = tracing.state


class Discharged(NamedTuple):
    """A program of values alone, which takes ``captured``, then the constants and arguments of the original.

    Its results are those of the original and the last values of the references at the places ``written`` among the
    original's constants and arguments.
    """

    closed: ClosedJaxpr
    captured: tuple[Any, ...]
    written: tuple[int, ...]

    @property
    def jaxpr(self) -> Jaxpr:
        return self.closed.jaxpr


class DischargeTrace(Trace):
    """Operations go to the parent; references are held here."""

    __slots__ = ("parent",)

    def __init__(self, parent: Trace) -> None:
        super().__init__(state.level + 1)
        self.parent = parent

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        with set_current(self.parent):
            return self.parent.process(primitive, args, params)


def discharged(jaxpr: Jaxpr) -> Discharged:
    """The program without references; memoised on it."""
    return jaxpr.memoize("discharged", _discharge)


def _discharge(jaxpr: Jaxpr) -> Discharged:
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    avals = [v.aval.inner_aval if type(v.aval) is AbstractRef else v.aval for v in inputs]
    written: list[int] = []

    def flat(*values: Any) -> list[Any]:
        trace = DischargeTrace(state.trace)
        with set_current(trace):
            args = [Ref(v.aval, x, trace.level) if is_ref(v) else x for v, x in zip(inputs, values, strict=True)]
            consts, own = args[: len(jaxpr.constvars)], args[len(jaxpr.constvars) :]
            outs = eval_jaxpr(jaxpr, consts, *own)
        written[:] = [place for place, x in enumerate(args) if type(x) is Ref and x._value is not values[place]]
        return [*outs, *[args[place]._value for place in written]]

    closed, _ = trace_to_jaxpr(flat, avals, None)
    program, captured = bodies.without_constants(closed)
    return Discharged(program, tuple(captured), tuple(written))


def pure(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program that takes no references, without those that it makes inside."""
    if not uses_refs(closed.jaxpr):
        return closed
    found = discharged(closed.jaxpr)
    count = len(found.captured) + len(closed.consts)
    key: Any = ("pure", count)
    jaxpr = found.jaxpr.memoize(
        key, lambda made: made.replace(constvars=made.invars[:count], invars=made.invars[count:])
    )
    return ClosedJaxpr(jaxpr, [*found.captured, *closed.consts])


# -- references from outside ------------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Whether two references are one."""
    if type(left) is RefTracer and type(right) is RefTracer:
        return left.val is right.val
    return left is right


def _value(operand: Any) -> Any:
    """What a program of values takes for an operand."""
    return get_p.bind(operand, indices=()) if is_ref(operand) else operand


def _set(ref: Any, value: Any) -> None:
    swap_p.bind(ref, value, indices=())


def check_distinct(refs: Sequence[Any], what: Callable[[int], str]) -> None:
    """ValueError if a reference is given twice; ``what`` says where the one at a place comes from."""
    for place, ref in enumerate(refs):
        for other in range(place):
            if same(ref, refs[other]):
                raise ValueError(
                    "only one reference to a mutable array may be passed as an argument to a function, but the mutable "
                    f"array reference of type {ref.aval} appeared at both {what(other)} and {what(place)}."
                )


def map_with_refs(
    map_flat: Callable[..., Any], function: Callable[..., Sequence[Any]], axis: Any, values: Sequence[Any],
    dims: Sequence[Any],
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """``map_flat`` of a function with references among its arguments, each mapped as an array is."""
    refs = [place for place, (x, dim) in enumerate(zip(values, dims, strict=True)) if is_ref(x) and dim is not None]

    def on_values(*args: Any) -> list[Any]:
        given = list(args)
        for place in refs:
            given[place] = Ref(AbstractRef(args[place].aval.strip_weak_type()), args[place], state.trace.level)
        outs = function(*given)
        return [*outs, *[given[place]._value for place in refs]]

    operands = [_value(x) if place in refs else x for place, x in enumerate(values)]
    outs, out_dims = map_flat(on_values, axis, operands, dims)
    count = len(outs) - len(refs)
    for place, value, dim in zip(refs, outs[count:], out_dims[count:], strict=True):
        wanted = dims[place]
        _set(values[place], placed(axis.size, value, wanted) if dim is None else at(value, dim, wanted))
    return outs[:count], out_dims[:count]


# -- primitives that carry programs -----------------------------------------------------------------------------------


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


def _call(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """jit and checkpoint: a call of one program."""
    closed: ClosedJaxpr = params["jaxpr"]
    found = discharged(closed.jaxpr)
    given = [*closed.consts, *args]
    check_distinct([x for x in given if is_ref(x)], lambda place: f"reference {place}")
    operands = [*found.captured, *map(_value, given)]
    params = {**params, "jaxpr": found.closed}
    added = len(operands) - len(args)
    if "donated_invars" in params:
        params["donated_invars"] = (False,) * len(operands)
    if type(params.get("prevent_cse")) is tuple:
        params["prevent_cse"] = (True,) * added + params["prevent_cse"]
    outs = primitive.bind(*operands, **params)
    n_outs = len(closed.jaxpr.outvars)
    for place, value in zip(found.written, outs[n_outs:], strict=True):
        _set(given[place], value)
    return outs[:n_outs]


def _scan(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """References among the constants become state if they are written; among the inputs, inputs and outputs."""
    closed: ClosedJaxpr = params["jaxpr"]
    found = discharged(closed.jaxpr)
    n_extra, n_lead = len(found.captured), len(closed.consts)
    given = [*closed.consts, *args]
    check_distinct([x for x in given if is_ref(x)], lambda place: f"reference {place}")
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
        *found.captured, *[_value(given[i]) for i in order],
        **{**params, "jaxpr": ClosedJaxpr(body), "num_consts": n_extra + len(consts),
           "num_carry": n_carry + len(state_refs)},
    )  # fmt: skip
    n_state = n_carry + len(state_refs)
    n_stacked = n_outs - n_carry
    finals = [*made[n_carry:n_state], *made[n_state + n_stacked :]]
    for place, value in zip([*state_refs, *stacked_refs], finals, strict=True):
        _set(given[place], value)
    return [*made[:n_carry], *made[n_state : n_state + n_stacked]]


def _while(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """References that the body writes become state, which the condition sees."""
    cond, body = discharged(params["cond_jaxpr"].jaxpr), discharged(params["body_jaxpr"].jaxpr)
    if cond.written:
        raise NotImplementedError("[while] the condition of a loop writes to a mutable array reference: let the body")
    n_tested, n_consts = params["cond_nconsts"], params["body_nconsts"]
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
        *cond.captured, *[_value(tested[i]) for i in test_kept], *body.captured, *[_value(captured[i]) for i in kept],
        *carry, *map(_value, refs), cond_jaxpr=ClosedJaxpr(test), body_jaxpr=ClosedJaxpr(step),
        cond_nconsts=n_test_extra + len(test_kept), body_nconsts=n_extra + len(kept),
    )  # fmt: skip
    for ref, value in zip(refs, outs[len(carry) :], strict=True):
        _set(ref, value)
    return outs[: len(carry)]


def _cond(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """What any branch writes is a result of every branch."""
    index, operands = args[0], args[1:]
    check_distinct([x for x in operands if is_ref(x)], lambda place: f"reference {place}")
    found = [discharged(branch.jaxpr) for branch in params["branches"]]
    written = sorted({place for one in found for place in one.written})
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
        outvars = [*one.jaxpr.outvars[:n_outs], *[last.get(place, own[place]) for place in written]]
        branches.append(ClosedJaxpr(one.jaxpr.replace(invars=[*leading, *own], outvars=outvars, debug_info=None)))
    outs = primitive.bind(index, *extra, *map(_value, operands), **{**params, "branches": tuple(branches)})
    n_outs = len(outs) - len(written)
    for place, value in zip(written, outs[n_outs:], strict=True):
        _set(operands[place], value)
    return outs[:n_outs]


_RULES: dict[str, Callable[..., list[Any]]] = {
    "jit": _call,
    "remat2": _call,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
