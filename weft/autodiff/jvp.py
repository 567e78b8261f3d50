"""Forward differentiation: the trace that computes every value together with its tangent.

``JVPTrace`` runs the derivative rule of every operation in the enclosing trace: at once on concrete values, recorded
under ``jit``. A value whose tangent is zero is not a tracer, so that operations that do not depend on the
differentiated arguments cost nothing and stay concrete.

    push(sin_p, [x], [t])   ->   sin x, mul t (cos x)

``push`` reads the four ways in which a primitive states its derivative (see ``core.primitive``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.core import avals, kinds
from weft.core.primitive import MISSING, missing_rule
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.tangents import FLOAT0, Along, Zero, plain, tangent_aval, with_attributes
from weft.core.tracing import provenance
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import Trace, set_current
from weft.core.tracing.tracer import Tracer
from weft.operations import linear
from weft.operations.pointwise.arithmetic import mul

state = tracing.state

Rule = Callable[[Any, Sequence[Any], Sequence[Any], dict[str, Any]], tuple[Any, Any]]


# -- rules ------------------------------------------------------------------------------------------------------------


def push(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """(result, its tangent) of an operation; lists of them with ``multiple_results``. A tangent may be a Zero."""
    if primitive.jvp is not MISSING:
        if primitive.jvp is None:
            raise NotImplementedError(f"Differentiation rule for '{primitive.name}' not implemented")
        out, tangent = primitive.jvp(primals, tangents, **params)
        if type(primitive.kind) is kinds.Opaque:
            return _checked(primitive, out, tangent)
        if type(primitive.kind) is kinds.Elementwise and type(tangent) is not Zero:
            tangent = linear.broadcast_tangent(tangent, avals.get_aval(out))  # of an operand that was broadcast
        return out, tangent
    return push_stated(primitive, primals, tangents, params)


def push_stated(primitive: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    """``push`` for a primitive whose derivative is stated in another way than by ``jvp``."""
    if primitive.partials is not None:
        return _push_partials(primitive, primals, tangents, params)
    if primitive.linear is not None:
        return _push_linear(primitive, primals, tangents, params)
    if primitive.expansion is not None:
        return _push_expansion(primitive, primals, tangents, params)
    raise missing_rule(
        primitive,
        f"Differentiation rule for '{primitive.name}' not implemented",
        "ad.primitive_jvps[{name}] = rule, where rule(primals, tangents, **params) gives (results, their tangents)",
    )


def _checked(primitive: Any, out: Any, tangent: Any) -> tuple[Any, Any]:
    """What a user's rule gave: tangents of integers become symbolic zeros, others have the types of the results."""
    if not primitive.multiple_results:
        return out, _as_tangent(primitive, out, tangent)
    out, tangent = list(out), list(tangent)
    if len(out) != len(tangent):
        raise ValueError(f"the jvp rule of '{primitive.name}' gives {len(out)} results and {len(tangent)} tangents")
    return out, [_as_tangent(primitive, x, t) for x, t in zip(out, tangent, strict=True)]


def _as_tangent(primitive: Any, out: Any, tangent: Any) -> Any:
    expected = tangent_aval(avals.get_aval(out))
    if type(tangent) is Zero or expected.dtype == FLOAT0:
        return Zero(expected)
    found = None if tangent is None else avals.get_aval(tangent)
    if found is None or (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise TypeError(
            f"the jvp rule of '{primitive.name}' gives a tangent of type "
            f"{None if found is None else avals.long_text(found)} for a result of type "
            f"{avals.long_text(avals.get_aval(out))}; a tangent that is zero is ad.Zero.from_primal_value(result)"
        )
    return tangent


def _push_partials(primitive: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    """The sum of tangent times partial derivative over the operands."""
    out = primitive.bind(*primals, **params)
    total: Any = None
    for partial, tangent in zip(primitive.partials, tangents, strict=True):
        if partial is None or type(tangent) is Zero:
            continue
        if type(partial) is Along:
            part = partial.push(tangent, out, *primals, **params)
        else:
            coefficient = partial(out, *primals, **params)
            part = None if coefficient is None else mul(tangent, coefficient)
        if part is None or type(part) is Zero:
            continue
        if type(primitive.kind) is kinds.Elementwise:
            part = linear.broadcast_tangent(part, avals.get_aval(out))
        total = part if total is None else linear.add_any(total, part)
    return out, Zero.from_primal_value(out) if total is None else total


def _push_linear(primitive: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    """The operation applied to the tangents; operands in which it is not linear keep their values."""
    out = primitive.bind(*primals, **params)
    indices = range(len(primals))[primitive.linear]
    if all(type(tangents[index]) is Zero for index in indices):
        many = primitive.multiple_results
        return out, [Zero.from_primal_value(x) for x in out] if many else Zero.from_primal_value(out)
    operands = list(primals)
    for index in indices:
        operands[index] = linear.instantiate(tangents[index])
    return out, primitive.bind(*operands, **params)


def _push_expansion(primitive: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    """The operation's own result, with tangents from the function that it expands to."""
    out = primitive.bind(*primals, **params)

    def flat(*args: Any) -> list[Any]:
        made = primitive.expansion(*args, **params)
        return list(made) if primitive.multiple_results else [made]

    _, made = jvp_flat(flat, primals, tangents)
    return out, made if primitive.multiple_results else made[0]


# -- the trace --------------------------------------------------------------------------------------------------------


class JVPTracer(Tracer):
    """A value and its tangent, which is not zero."""

    __slots__ = ("primal", "tangent")
    primal: Any

    def __init__(self, trace: Trace, primal: Any, tangent: Any) -> None:
        self._trace = trace
        self.aval = avals.get_aval(primal)
        self.primal = with_attributes(primal)
        self.tangent = tangent

    def __repr__(self) -> str:
        return f"JVPTracer(primal={_short(self.primal)}, tangent={_short(self.tangent)})"

    def _origin(self) -> provenance.Origin | None:
        return self.primal._origin() if isinstance(self.primal, Tracer) else None

    def __bool__(self) -> bool:
        return bool(self.primal)

    def __int__(self) -> int:
        return int(self.primal)

    def __float__(self) -> float:
        return float(self.primal)

    def __complex__(self) -> complex:
        return complex(self.primal)

    def __index__(self) -> int:
        return operator.index(self.primal)


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, Tracer) else str(value)


class JVPTrace(Trace):
    """Operations on values with tangents; ``parent`` is the trace that encloses the differentiated call.

    Rules run under the trace ``rules``: the parent itself here, a recorder of tangents in ``linearize``.
    """

    __slots__ = ("parent", "rules")
    tracer: type[JVPTracer] = JVPTracer

    def __init__(self, parent: Trace, rules: Trace | None = None) -> None:
        super().__init__(state.level + 1)
        self.parent = parent
        self.rules = parent if rules is None else rules

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        primals: list[Any] = []
        tangents: list[Any] = []
        live = False
        for x in args:
            if isinstance(x, JVPTracer) and x._trace is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                live = True
            else:
                primals.append(with_attributes(x))
                tangents.append(None)
        if not live:
            with set_current(self.parent):
                return self.parent.process(primitive, args, params)
        tangents = [Zero.from_primal_value(x) if t is None else t for x, t in zip(primals, tangents, strict=True)]
        out, tangent = self.differentiate(primitive, primals, tangents, params)
        if primitive.multiple_results:
            return [self.join(x, t) for x, t in zip(out, tangent, strict=True)]
        return self.join(out, tangent)

    def differentiate(self, primitive: Any, primals: list[Any], tangents: list[Any], params: dict[str, Any]) -> Any:
        """Run the rule of an operation."""
        with set_current(self.rules):
            rules = self.rules
            apart = primitive.linearize is not None and rules.records_tangents
            if apart and not any(rules.owns(x) for x in primals):  # keep values out of the tangents' program
                return split(primitive, primals, tangents, params, rules)
            return push(primitive, primals, tangents, params)

    def join(self, primal: Any, tangent: Any) -> Any:
        """A tracer of the value and its tangent; the value itself if the tangent is zero."""
        return primal if type(tangent) is Zero else self.tracer(self, primal, tangent)

    def owns(self, value: Any) -> bool:
        """Whether a value has a tangent here."""
        return isinstance(value, JVPTracer) and value._trace is self

    def differentiate_by(self, rule: Callable[..., Any], args: Sequence[Any]) -> Any:
        """The results, as a tree, of a function with its own rule.

        ``rule(primals, tangents)`` gives flat results, flat tangents (Zeros allowed) and the tree of results.
        """
        primals, tangents = zip(*[self.split(x) for x in args], strict=True)
        with set_current(self.rules):
            outs, out_tangents, tree = rule(primals, tangents)
            for out in outs:
                if self.owns(out):  # the function closed over a value that is being differentiated
                    raise tracing.escaped_tracer(out)
        return runtime.tree_unflatten(tree, [self.join(x, t) for x, t in zip(outs, out_tangents, strict=True)])

    def primal(self, value: Any) -> Any:
        """A value without its tangent."""
        return value.primal if isinstance(value, JVPTracer) and value._trace is self else value

    def split(self, value: Any) -> tuple[Any, Any]:
        """(value, tangent) of a result."""
        if isinstance(value, JVPTracer) and value._trace is self:
            return value.primal, value.tangent
        value = plain(value)
        return value, Zero.from_primal_value(value)


def split(
    primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any], rules: Trace
) -> tuple[list[Any], list[Any]]:
    """"""
    live = tuple([type(t) is not Zero for t in tangents])
    outs, out_live, record = primitive.linearize(live, *primals, **params)
    with set_current(rules):
        made = iter(record(*[t for t in tangents if type(t) is not Zero]))
    return outs, [next(made) if has else Zero.from_primal_value(x) for x, has in zip(outs, out_live, strict=True)]


def jvp_flat(
    fun: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """(results, tangents) of a function on flat lists; tangents may be Zeros on both sides."""
    trace = JVPTrace(state.trace)
    try:
        with set_current(trace):
            outs = list(fun(*[trace.join(x, t) for x, t in zip(primals, tangents, strict=True)]))
            pairs = [trace.split(out) for out in outs]
    finally:
        trace.valid = False
    return [x for x, _ in pairs], [t for _, t in pairs]


# -- programs ---------------------------------------------------------------------------------------------------------


def jvp_jaxpr(closed: ClosedJaxpr, live: tuple[bool, ...]) -> tuple[ClosedJaxpr, tuple[bool, ...]]:
    """The program of values and tangents, and which results have a tangent; memoised on the program.

    Its inputs are those of ``closed`` followed by the tangents of the ``live`` ones, its results those of ``closed``
    followed by the tangents of the results that have one.
    """
    key: Any = ("jvp", live, tuple([id(const) for const in closed.consts]))
    return closed.jaxpr.memoize(key, lambda jaxpr: (*_jvp_jaxpr(closed, live), closed.consts))[:2]


def _jvp_jaxpr(closed: ClosedJaxpr, live: tuple[bool, ...]) -> tuple[ClosedJaxpr, tuple[bool, ...]]:
    jaxpr, out_live = closed.jaxpr, []

    def flat(*values: Any) -> list[Any]:
        count = len(jaxpr.invars)
        given = iter(values[count:])
        primals = values[:count]
        tangents = [
            next(given) if has else Zero(tangent_aval(v.aval)) for has, v in zip(live, jaxpr.invars, strict=True)
        ]
        outs, out_tangents = jvp_flat(lambda *args: eval_jaxpr(jaxpr, closed.consts, *args), primals, tangents)
        out_live[:] = [type(t) is not Zero for t in out_tangents]
        return [*outs, *[t for t in out_tangents if type(t) is not Zero]]

    in_avals = [v.aval for v in jaxpr.invars]
    tangent_avals = [aval for aval, has in zip(in_avals, live, strict=True) if has]
    made, _ = tracing.trace_to_jaxpr(flat, [*in_avals, *tangent_avals], jaxpr.debug_info, of_program=True)
    return made, tuple(out_live)
