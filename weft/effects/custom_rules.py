"""Functions with rules of their own that take references, or close over them: the same function and rules on values.

    r:Ref{f32[3]} x:f32[]    f32[] = custom_vjp_call[fwd] r x      before
    r:f32[3]      x:f32[]    f32[] f32[3] = custom_vjp_call[..]    after, where f writes r

A rule is given references again: each holds the value that came in, and what it holds afterwards is a result. A
reference among the residuals is not a value: ``bwd`` gets the reference of the caller itself, whose content is the one
at that time, and what it writes stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import errors, runtime
from weft.autodiff import custom_jvp, custom_vjp, jvp
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.ref_types import AbstractRef, is_ref
from weft.core.tangents import FLOAT0, Zero, tangent_aval
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import set_current
from weft.effects import discharge, refs
from weft.effects.refs import Ref
from weft.operations import linear

state = tracing.state


class _Operands:
    """The operands of one call: which are references, which of those the function writes, and the caller's own.

    Captured references come first, then the leaves of the arguments; an index counts both. Where the rule runs at once,
    ``written`` are those that it turns out to write.
    """

    __slots__ = ("avals", "captured", "is_open", "name", "own", "written")

    def __init__(self, name: str, given: Sequence[Any], n_captured: int, written: Sequence[int] | None) -> None:
        self.name = name
        self.avals = [x.aval if is_ref(x) else None for x in given]
        self.own = [refs.root(x) if is_ref(x) else None for x in given]
        self.captured = [refs.root(x) for x in given[:n_captured]]
        self.written: tuple[int, ...] = tuple(written or ())
        self.is_open = written is None

    def lent(self, values: Sequence[Any], level: int) -> list[Any]:
        """The operands as the rule takes them: new references instead of the values of references."""
        pairs = zip(values, self.avals, strict=True)
        return [x if aval is None else Ref(aval, x, level) for x, aval in pairs]

    def returned(self, values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """What the written references hold. NotImplementedError if the rule wrote others."""
        indices = [index for index, aval in enumerate(self.avals) if aval is not None]
        changed = [index for index in indices if given[index]._value is not values[index]]
        if self.is_open:
            self.written = tuple(changed)
        for index in changed:
            if index not in self.written:
                raise NotImplementedError(
                    f"[{self.name}] the derivative rule writes a mutable array reference of type {self.avals[index]} "
                    "that the function itself does not write: let the function write it too, or write in bwd"
                )
        return [given[index]._value for index in self.written]


def _run_rule(rule: Callable[[list[Any]], Any], operands: _Operands, values: Sequence[Any]) -> tuple[Any, list[Any]]:
    """(what ``rule`` gives for the leaves, what the written references hold then)."""
    trace = discharge.DischargeTrace(state.trace)
    given = operands.lent(values, trace.level)
    count = len(operands.captured)
    try:
        with set_current(trace), refs.standing_for(operands.captured, given[:count]):
            made = rule(given)
        return made, operands.returned(values, given)
    finally:
        for index, ref in enumerate(given):
            if type(ref) is Ref and operands.avals[index] is not None:
                ref._closed = True


class RefJvpRule(custom_jvp.JvpRule):
    """The rule of a custom_jvp function, on values instead of references.

    For each reference the rule also gets a reference to its tangent. It holds the tangent before the call; the rule
    writes the tangent after it.
    """

    __slots__ = ("operands", "rule")
    __hash__ = object.__hash__

    def __init__(self, rule: Any, operands: _Operands) -> None:
        tree = _flat_tree(len(operands.avals))
        super().__init__(rule.name, rule.function, rule.nondiff, tree, rule.symbolic_zeros)
        self.rule, self.operands = rule, operands

    def __eq__(self, other: object) -> bool:
        return self is other

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        operands, count = self.operands, len(self.operands.captured)
        if any(type(t) is not Zero for t in tangents[:count]):
            raise errors.UnexpectedTracerError(custom_jvp.CAPTURED.format(name=self.name))
        slopes: list[Any] = []
        starts: list[Any] = []
        known = None if out_avals is None else out_avals[: len(out_avals) - len(operands.written)]

        def run(given: list[Any]) -> Any:
            level = state.trace.level
            slopes[:] = [_tangent_ref(t, aval, level) for t, aval in zip(tangents, operands.avals, strict=True)]
            starts[:] = [slope._value if type(slope) is Ref else None for slope in slopes]
            return self.rule.push(given[count:], slopes[count:], known)

        (outs, out_tangents, _), finals = _run_rule(run, operands, primals)
        last = []
        for index in operands.written:
            slope, before, aval = slopes[index], tangents[index], operands.avals[index]
            assert aval is not None
            if type(slope) is not Ref or (type(before) is Zero and slope._value is starts[index]):
                last.append(Zero(tangent_aval(aval.inner_aval)))
            else:
                last.append(slope._value)
        for slope in slopes:
            if type(slope) is Ref:
                slope._closed = True
        made = [*outs, *finals]
        return made, [*out_tangents, *last], _flat_tree(len(made))


def _tangent_ref(tangent: Any, aval: AbstractRef | None, level: int) -> Any:
    """The tangent of an operand, in a reference if the operand is one and has a tangent type."""
    if aval is None:
        return tangent
    inner = tangent_aval(aval.inner_aval)
    if inner.dtype == FLOAT0:
        return tangent
    return Ref(AbstractRef(inner), linear.instantiate(tangent), level)


class RefVjpRule(custom_vjp.VjpRule):
    """The rules of a custom_vjp function, on values instead of references.

    They say nothing of a reference's content, which keeps the tangent that it had.
    """

    __slots__ = ("operands", "rule")

    def __init__(self, rule: Any, operands: _Operands) -> None:
        tree = _flat_tree(len(operands.avals))
        super().__init__(rule.name, rule.fwd, rule.bwd, rule.fixed, tree, rule.symbolic_zeros)
        self.rule, self.operands = rule, operands

    def forward(self, primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Any, list[Any], Any]:
        operands, count = self.operands, len(self.operands.captured)
        if any(perturbed[:count]):
            raise errors.UnexpectedTracerError(custom_vjp.CAPTURED.format(name=self.name))
        flags = [flag and aval is None for flag, aval in zip(perturbed, operands.avals, strict=True)]
        own: dict[int, Any] = {}

        def run(given: list[Any]) -> Any:
            own.update({id(ref): mine for ref, mine in zip(given, operands.own, strict=True) if mine is not None})
            return self.rule.forward(given[count:], flags[count:])

        (outs, out_tree, residuals, res_tree), finals = _run_rule(run, operands, primals)
        if type(res_tree) is custom_vjp.HeldRefs:
            res_tree = res_tree.exchanged(lambda ref: own.get(id(ref), ref))
        made = [*outs, *finals]
        return made, _flat_tree(len(made)), residuals, (res_tree, out_tree, len(outs))

    def constant_results(self, live: Sequence[bool], count: int) -> Sequence[int]:
        written = self.operands.written
        return [count - len(written) + k for k, index in enumerate(written) if not live[index]]

    def pull(self, res_tree: Any, out_tree: Any, residuals: Any, cts: Any, in_avals: Any) -> list[Any]:
        operands, count = self.operands, len(self.operands.captured)
        inner, tree, n_outs = res_tree
        avals = [aval if own is None else own for aval, own in zip(in_avals, operands.avals, strict=True)]
        back = self.rule.pull(inner, tree, residuals, cts[:n_outs], avals[count:])
        last = dict(zip(operands.written, cts[n_outs:], strict=True))
        return [
            ct if own is None else last.get(index, Zero(tangent_aval(aval)))
            for index, (ct, own, aval) in enumerate(
                zip([*[None] * count, *back], operands.avals, in_avals, strict=True)
            )
        ]


def _flat_tree(count: int) -> Any:
    return runtime.tree_flatten(tuple(range(count)))[1]


def run(primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """A call of a function with rules of its own that takes references, or uses them within."""
    closed: ClosedJaxpr = params["call_jaxpr"]
    trace = state.trace
    if trace is tracing.EVAL:
        return eval_jaxpr(closed.jaxpr, closed.consts, *args)
    word = "jvp" if primitive is custom_jvp.custom_jvp_call_p else "rule"
    rule = params[word]
    n_captured = len(args) - rule.in_tree.num_leaves
    held = [index for index in range(n_captured) if is_ref(args[index])]
    seen = [args[index] for index in (*held, *range(n_captured, len(args)))]  # what the rule sees
    values = [discharge.value_of(x) for x in seen]
    if isinstance(trace, jvp.JVPTrace) and any(map(trace.owns, values)):
        operands = _Operands(params["name"], seen, len(held), None)
        made = list(trace.differentiate_by(_RULES[word](rule, operands).push, values))
        count = len(made) - len(operands.written)
    else:
        operands, program, rest, count = _of_values(args, params, seen, held)
        made = primitive.bind(*rest, *values, **{**params, "call_jaxpr": program, word: _RULES[word](rule, operands)})
    for index, value in zip(operands.written, made[count:], strict=True):
        discharge.store(seen[index], value)
    return made[:count]


def _of_values(args: list[Any], params: dict[str, Any], seen: list[Any], held: list[int]) -> tuple[Any, ...]:
    """(the operands, the program, what it takes before the operands that the rule sees, how many results it had)."""
    closed: ClosedJaxpr = params["call_jaxpr"]
    found = discharge.discharged(closed.jaxpr, args)
    n_extra, n_outs = len(found.captured), len(closed.jaxpr.outvars)
    n_captured = len(args) - len(seen) + len(held)
    others = [index for index in range(n_captured) if index not in held]
    order = [*held, *range(n_captured, len(args))]
    last = {order.index(index): v for index, v in zip(found.written, found.jaxpr.outvars[n_outs:], strict=True)}
    invars = found.jaxpr.invars
    program = found.jaxpr.replace(
        invars=[*invars[:n_extra], *[invars[n_extra + index] for index in (*others, *order)]],
        outvars=[*found.jaxpr.outvars[:n_outs], *last.values()],
        debug_info=None,
    )
    operands = _Operands(params["name"], seen, len(held), tuple(last))
    return operands, ClosedJaxpr(program), [*found.captured, *[args[index] for index in others]], n_outs


_RULES: dict[str, Any] = {"jvp": RefJvpRule, "rule": RefVjpRule}
