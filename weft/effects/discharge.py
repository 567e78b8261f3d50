"""Programs without references: each reference becomes a value that goes in, and comes out again if it was written.

    before   { lambda ; a:Ref{f32[3]} b:f32[]. let a[0] <- b; c:f32[] <- a[1] in (c,) }
    after    { lambda ; a:f32[3] b:f32[]. let d = dynamic_update_slice a ...; c = ... in (c, d) }

The program is run with a ``Ref`` for each reference under a trace that hands every other operation to the recorder.
``discharge_rules`` does the same for a primitive that carries programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.control import bodies
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params
from weft.core.ref_types import AbstractRef, CustomCallPrimitive, is_ref, uses_refs
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import Trace, set_current, trace_to_jaxpr
from weft.effects.refs import Ref, get_p, root, standing_for, swap_p
from weft.operations.mapped import at, repeated

state = tracing.state


class Discharged(NamedTuple):
    """A program of values alone, which takes ``captured``, then the constants and arguments of the original.

    Its results are those of the original and the last values of the references at the indices ``written`` among the
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


def discharged(jaxpr: Jaxpr, given: Sequence[Any] = ()) -> Discharged:
    """The program without references; memoised on it.

    ``given`` are the operands of the call, or None for one that is not the same throughout the call. Rules of functions
    within that take references keep them, for ``bwd``: such a program is made anew for each call.
    """
    if given and jaxpr.memoize("has_rules", _has_rules):
        return _discharge(jaxpr, [root(x) if is_ref(x) else None for x in given])
    return jaxpr.memoize("discharged", lambda jaxpr: _discharge(jaxpr, ()))


def _has_rules(jaxpr: Jaxpr) -> bool:
    """Whether a function with rules of its own takes a reference, at any depth."""
    return any(
        (isinstance(eqn.primitive, CustomCallPrimitive) and any(map(is_ref, eqn.invars)))
        or any(inner.memoize("has_rules", _has_rules) for inner in jaxprs_in_params(eqn.params))
        for eqn in jaxpr.eqns
    )


def _discharge(jaxpr: Jaxpr, own: Sequence[Any]) -> Discharged:
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    avals = [v.aval.inner_aval if type(v.aval) is AbstractRef else v.aval for v in inputs]
    written: list[int] = []

    def flat(*values: Any) -> list[Any]:
        trace = DischargeTrace(state.trace)
        with set_current(trace):
            args = [Ref(v.aval, x, trace.level) if is_ref(v) else x for v, x in zip(inputs, values, strict=True)]
            lent = [x for x, v in zip(args, inputs, strict=True) if is_ref(v)]
            for ref, mine in zip(lent, [x for x, v in zip(own, inputs, strict=False) if is_ref(v)], strict=False):
                ref._own = mine
            count = len(jaxpr.constvars)
            outs = eval_jaxpr(jaxpr, args[:count], *args[count:])
        for ref in lent:
            ref._closed = True
        written[:] = [index for index, x in enumerate(args) if type(x) is Ref and x._value is not values[index]]
        return [*outs, *[args[index]._value for index in written]]

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


def value_of(operand: Any) -> Any:
    """What a program of values takes for an operand."""
    return get_p.bind(operand, indices=()) if is_ref(operand) else operand


def store(ref: Any, value: Any) -> None:
    swap_p.bind(ref, value, indices=())


def map_with_refs(
    map_flat: Callable[..., Any], function: Callable[..., Sequence[Any]], axis: Any, values: Sequence[Any],
    dims: Sequence[Any],
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """``map_flat`` of a function with references among its arguments, each mapped as an array is."""
    refs = [index for index, (x, dim) in enumerate(zip(values, dims, strict=True)) if is_ref(x) and dim is not None]

    def on_values(*args: Any) -> list[Any]:
        given = list(args)
        for index in refs:
            given[index] = Ref(AbstractRef(args[index].aval.strip_weak_type()), args[index], state.trace.level)
            given[index]._whole = (values[index], dims[index], axis)
        outs = function(*given)
        for index in refs:
            given[index]._closed = True
        return [*outs, *[given[index]._value for index in refs]]

    operands = [value_of(x) if index in refs else x for index, x in enumerate(values)]
    outs, out_dims = map_flat(on_values, axis, operands, dims)
    count = len(outs) - len(refs)
    for index, value, dim in zip(refs, outs[count:], out_dims[count:], strict=True):
        wanted = dims[index]
        store(values[index], repeated(axis.size, value, wanted) if dim is None else at(value, dim, wanted))
    return outs[:count], out_dims[:count]


def map_again(
    map_flat: Callable[..., Any], function: Callable[..., Sequence[Any]], axis: Any, values: Sequence[Any],
    dims: Sequence[Any], held: Sequence[Any],
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """``map_flat`` of a function that uses the references ``held``, which ``map_with_refs`` made for this axis or
    which stand for parts of such: it uses the same elements again."""
    parts: list[Ref] = []
    for ref in held:
        while type(ref) is Ref and ref._whole is not None:
            if ref._whole[2] is axis and ref not in parts:
                parts.append(ref)
            ref = ref._whole[0]

    def with_parts(*args: Any) -> Sequence[Any]:
        with standing_for(parts, args[len(values) :]):
            return function(*args[: len(values)])

    wholes = [ref._whole for ref in parts]
    given = [*values, *[whole for whole, _, _ in wholes]]
    return map_with_refs(map_flat, with_parts, axis, given, [*dims, *[dim for _, dim, _ in wholes]])
