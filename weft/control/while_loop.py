"""while_loop and fori_loop: repeat a body on a state while a condition holds.

    b:i32[] c:f32[3] = while[body_jaxpr={...} body_nconsts=1 cond_jaxpr={...} cond_nconsts=0] x 0 y

Operands: the captures of the condition, the captures of the body, the state. A part of the state that the body returns
unchanged becomes a captured value of both, and is not a result of the equation. ``fori_loop`` is a ``scan`` if its
bounds are known while tracing, otherwise a while loop over (counter, upper bound, state).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from weft import config, dtypes, runtime
from weft.control import bodies, carry, held_refs, scan
from weft.control.bodies import Body
from weft.core import kinds
from weft.core.primitive import Primitive
from weft.core.programs.jaxpr import ClosedJaxpr, Literal
from weft.core.ref_types import ProgramPrimitive
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import function_names
from weft.errors import TracerBoolConversionError
from weft.operations.pointwise import arithmetic, convert, logic

State = TypeVar("State")


def _loop_parts(params: dict[str, Any]) -> kinds.LoopParts:
    body: ClosedJaxpr = params["body_jaxpr"]
    n_consts = params["body_nconsts"]
    return kinds.LoopParts(
        body=body,
        n_consts=n_consts,
        n_carry=len(body.in_avals) - n_consts,
        cond=params["cond_jaxpr"],
        n_cond_consts=params["cond_nconsts"],
    )


def _mapped(params: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: function(value) if name.endswith("_jaxpr") else value for name, value in params.items()}


while_p = ProgramPrimitive("while", kinds.Loop(parts=_loop_parts, mapped=_mapped), multiple_results=True, memoize=False)


def _type_while(
    *avals: Any, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr, cond_nconsts: int, body_nconsts: int
) -> Any:
    state = avals[cond_nconsts + body_nconsts :]
    expected = [*cond_jaxpr.in_avals[:cond_nconsts], *body_jaxpr.in_avals]
    if len(expected) != len(avals):
        raise TypeError(f"[while] the loop takes {len(expected)} values, got {len(avals)}")
    for given, wanted in zip(avals, expected, strict=True):
        if not bodies.same_type(given, wanted):
            raise TypeError(f"[while] an operand is {given.str_short()}, the loop takes {wanted.str_short()}")
    for before, after in zip(state, body_jaxpr.out_avals, strict=True):
        if not bodies.same_type(before, after):
            raise TypeError(f"[while] the body takes {before.str_short()} and returns {after.str_short()}")
    return list(body_jaxpr.out_avals), cond_jaxpr.effects | body_jaxpr.effects


while_p.def_effectful_abstract_eval(_type_while)


def _lifted(args: tuple[Any, ...], params: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not params["cond_jaxpr"].consts and not params["body_jaxpr"].consts:
        return args, params
    test, in_test = bodies.without_constants(params["cond_jaxpr"])
    body, in_body = bodies.without_constants(params["body_jaxpr"])
    tested = params["cond_nconsts"]
    counts = {"cond_nconsts": len(in_test) + tested, "body_nconsts": len(in_body) + params["body_nconsts"]}
    return (*in_test, *args[:tested], *in_body, *args[tested:]), {"cond_jaxpr": test, "body_jaxpr": body, **counts}


while_p.lift = _lifted


# what compiler.registers makes of a loop with a small state; it sets the params
register_loop_p = Primitive("register_loop", kinds.Routine(), multiple_results=True, memoize=False)
register_loop_p.def_abstract_eval(lambda *avals, out_avals, **params: list(out_avals))
register_loop_p.jvp, register_loop_p.transpose = None, None


def while_loop(cond_fun: Callable[[State], Any], body_fun: Callable[[State], State], init_val: State) -> State:
    """Repeat ``val = body_fun(val)`` while ``cond_fun(val)`` holds; returns the last ``val``.

    ``init_val`` is a tree of arrays and scalars; the body returns the same structure, shapes and dtypes. Both functions
    are traced once. TypeError if the state changes its type (naming the leaf) or the condition is not a boolean scalar.

    >>> lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2.0), (0, 1.0))
    (Array(5, dtype=int32, weak_type=True), Array(32., dtype=float32, weak_type=True))
    """
    if not (callable(body_fun) and callable(cond_fun)):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be callable.")
    return _loop(cond_fun, body_fun, init_val, None)


def _loop(
    cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init_val: Any, adapt: bodies.Adapter | None
) -> Any:
    """``while_loop`` with the body ``adapt(body_fun)``."""
    if config.read("disable_jit"):
        init_val, is_done = _run_in_python(cond_fun, body_fun if adapt is None else adapt(body_fun), init_val)
        if is_done:
            return init_val
    values, tree = runtime.tree_flatten(init_val)
    held = held_refs.apart(values, tree)
    if held is not None:
        return _holding(held, cond_fun, body_fun if adapt is None else adapt(body_fun))
    avals = [bodies.aval_of(value) for value in values]
    in_tree = runtime.tree_flatten((init_val,))[1]

    bodies.check_refs([body_fun], in_tree, values, "while_loop")

    def trace(types: list[Any]) -> tuple[Body, Any, list[Any]]:
        found = bodies.trace_body(body_fun, in_tree, types, "while_loop", adapt)
        return found, found.out_tree, found.out_avals

    names = carry.argument_paths(body_fun, (tree,), 0) if adapt is None else _state_names(init_val)
    cond = bodies.trace_body(cond_fun, in_tree, avals, "while_cond")
    bodies.check_boolean_result(cond, "cond_fun")
    body, values = carry.settled(
        trace, values, avals, tree, "while_loop body function", names, function_names.is_own(body_fun)
    )
    settled = body.closed.in_avals[len(body.captured) :]
    if settled != avals:
        cond = bodies.trace_body(cond_fun, in_tree, settled, "while_cond")
        bodies.check_boolean_result(cond, "cond_fun")
    bodies.check_refs([body_fun], in_tree, values, "while_loop", [body])
    return runtime.tree_unflatten(tree, _bind(cond, body, values))


def _holding(held: held_refs.Held, cond_fun: Callable[..., Any], body_fun: Callable[..., Any]) -> Any:
    """``while_loop`` with references in its state."""

    def step(rest: list[Any]) -> Any:
        return held.rest_of(body_fun(held.whole(rest)), "The body of a while_loop")

    return held.whole(_loop(lambda rest: cond_fun(held.whole(rest)), step, held.rest, None))


def _run_in_python(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], value: Any) -> tuple[Any, bool]:
    """(the last state, True), or the state at which the condition is one for each element of ``vmap``, and False."""
    while True:
        try:
            goes_on = bool(cond_fun(value))
        except TracerBoolConversionError:
            return value, False
        if not goes_on:
            return value, True
        value = body_fun(value)


def _bind(cond: Body, body: Body, values: list[Any]) -> list[Any]:
    """Record the equation, without the parts of the state that the body returns unchanged."""
    program, captured = body.closed, list(body.captured)
    test, tested = cond.closed, list(cond.captured)
    n_captured = len(captured)
    state = program.jaxpr.invars[n_captured:]
    read = _is_read(test, len(tested))
    kept_on = [
        out is before and not asked for out, before, asked in zip(program.jaxpr.outvars, state, read, strict=True)
    ]
    if any(kept_on):
        captured += [value for value, on in zip(values, kept_on, strict=True) if on]
        program = _constant_state(program, n_captured, kept_on)
        test = _without_state(test, len(tested), kept_on)
    moving = [value for value, on in zip(values, kept_on, strict=True) if not on]
    outs = while_p.bind(
        *tested,
        *captured,
        *moving,
        cond_jaxpr=test,
        body_jaxpr=program,
        cond_nconsts=len(tested),
        body_nconsts=len(captured),
    )
    made = iter(outs)
    return [value if on else next(made) for value, on in zip(values, kept_on, strict=True)]


def _is_read(closed: ClosedJaxpr, n_captured: int) -> list[bool]:
    """Which parts of the state a condition reads."""
    jaxpr = closed.jaxpr
    read = {v for eqn in jaxpr.eqns for v in eqn.invars if type(v) is not Literal}
    read.update(v for v in jaxpr.outvars if type(v) is not Literal)
    return [v in read for v in jaxpr.invars[n_captured:]]


def _constant_state(closed: ClosedJaxpr, n_captured: int, flags: Sequence[bool]) -> ClosedJaxpr:
    """The body with the marked parts of the state among the captured values, and not among its results."""
    jaxpr = closed.jaxpr
    state = list(zip(jaxpr.invars[n_captured:], flags, strict=True))
    constant, moving = [v for v, flag in state if flag], [v for v, flag in state if not flag]
    changed = jaxpr.replace(invars=[*jaxpr.invars[:n_captured], *constant, *moving], debug_info=None)
    return ClosedJaxpr(bodies.pruned(changed, flags))


def _without_state(closed: ClosedJaxpr, n_captured: int, flags: Sequence[bool]) -> ClosedJaxpr:
    """The condition without the marked parts of the state, which it does not read."""
    jaxpr = closed.jaxpr
    moving = [v for v, flag in zip(jaxpr.invars[n_captured:], flags, strict=True) if not flag]
    return ClosedJaxpr(jaxpr.replace(invars=[*jaxpr.invars[:n_captured], *moving], debug_info=None))


# -- fori_loop --------------------------------------------------------------------------------------------------------


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, State], State],
    init_val: State,
    *,
    unroll: int | bool | None = None,
) -> State:
    """Repeat ``val = body_fun(i, val)`` for ``i`` from ``lower`` to ``upper`` (exclusive); returns the last ``val``.

    Bounds are scalars of one type, Python numbers or (traced) arrays. If both are known while tracing (fractions are
    cut off), the loop is a ``scan``: it has a reverse derivative, and ``unroll`` may be given.

    >>> lax.fori_loop(0, 4, lambda i, total: total + i, 10)
    Array(16, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable.")
    lower, upper = _bounds(lower, upper)
    if config.read("disable_jit") and _is_static(lower) and _is_static(upper):
        for i in range(int(lower), int(upper)):
            init_val = body_fun(i, init_val)
        return init_val
    static = _is_static(lower) and _is_static(upper)
    if not static:
        if unroll is not None:
            raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically known.")
        return _while_form(lower, upper, body_fun, init_val)
    length = max(int(upper) - int(lower), 0)
    (_, result), _ = scan.scan_named(
        body_fun,
        (int(lower), init_val),
        None,
        length,
        unroll=1 if unroll is None else unroll,
        shown=_state_names(init_val),
        adapt=_counted_step,
    )
    return result


def _counted_step(body_fun: Callable[..., Any]) -> Callable[..., Any]:
    """A step of ``scan`` that counts."""

    def step(state: Any, _: Any) -> Any:
        i, value = state
        return (arithmetic.add(i, _one(i)), body_fun(i, value)), None

    return step


def _while_form(lower: Any, upper: Any, body_fun: Callable[..., Any], init_val: Any) -> Any:
    return _loop(_in_bounds, body_fun, (lower, upper, init_val), _counted_body)[2]


def _in_bounds(state: Any) -> Any:
    i, end, _ = state
    return logic.lt(i, end)


def _counted_body(body_fun: Callable[..., Any]) -> Callable[..., Any]:
    """A body of ``while_loop`` that counts."""

    def step(state: Any) -> Any:
        i, end, value = state
        return arithmetic.add(i, _one(i)), end, body_fun(i, value)

    return step


def _one(i: Any) -> Any:
    aval = bodies.aval_of(i)
    return (1.0 if aval.dtype.kind == "f" else 1) if aval.weak_type else aval.dtype.type(1)


def _bounds(lower: Any, upper: Any) -> tuple[Any, Any]:
    """Both bounds in one dtype."""
    avals = [bodies.aval_of(bound) for bound in (lower, upper)]
    types = [aval.dtype for aval in avals]
    if any(aval.shape for aval in avals):
        raise TypeError("lower and upper arguments to fori_loop must be scalars")
    if avals[0].weak_type != avals[1].weak_type and all(t.kind in "iu" for t in types):
        dtype = types[0] if avals[1].weak_type else types[1]
    elif types[0] != types[1]:
        raise TypeError(
            f"lower and upper arguments to fori_loop must have equal types, got {types[0].name} and {types[1].name}"
        )
    else:
        dtype = types[0]
    if dtypes.issubdtype(dtype, np.complexfloating) or dtypes.is_words(dtype):
        raise TypeError(f"lower and upper arguments to fori_loop must be real numbers, got {dtype.name}")
    return _as_bound(lower, dtype), _as_bound(upper, dtype)


def _as_bound(bound: Any, dtype: Any) -> Any:
    aval = bodies.aval_of(bound)
    if aval.dtype == dtype:
        return bound
    if isinstance(bound, int):
        return dtypes.canonicalize_dtype(dtype).type(bound)
    return convert.convert(bound, dtype, False)


def _is_static(bound: Any) -> bool:
    return not isinstance(bound, Tracer)


def _state_names(init_val: Any) -> Callable[[], list[str]]:
    """Names of the leaves of (counter, state) for error texts."""
    count = runtime.tree_flatten(init_val)[1].num_leaves
    return lambda: [f"loop_carry[{index}]" for index in range(count + 1)]
