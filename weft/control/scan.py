"""scan: applies a body along the leading axis of its input and passes a state from step to step.

    b:f32[] c:f32[3] = scan[jaxpr={...} length=3 num_carry=1 num_consts=0 reverse=False unroll=1] 0.0 x

Operands: the body's captures, the state, the input. The body takes captures, state and one element of the input, and
returns the state and one element of the output. A part of the state that the body returns unchanged becomes a captured
value, and an output that is the input itself is not stacked again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from weft import config, errors, runtime
from weft._base import lazy
from weft.control import bodies, carry, held_refs
from weft.control.bodies import Body
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, Literal
from weft.core.ref_types import ProgramPrimitive
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import flat_functions, function_names
from weft.operations.data_movement import assemble, shape

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")


def _loop_parts(params: dict[str, Any]) -> kinds.LoopParts:
    return kinds.LoopParts(
        body=params["jaxpr"],
        n_consts=params["num_consts"],
        n_carry=params["num_carry"],
        trips=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )


def _mapped(params: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    return {**params, "jaxpr": function(params["jaxpr"])}


scan_p = ProgramPrimitive("scan", kinds.Loop(parts=_loop_parts, mapped=_mapped), multiple_results=True, memoize=False)


def _type_scan(
    *avals: Any, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, reverse: bool, unroll: int
) -> Any:
    moving = num_consts + num_carry
    expected = jaxpr.in_avals
    if len(avals) != len(expected):
        raise TypeError(f"[scan] the loop takes {len(expected)} values, got {len(avals)}")
    for index, (given, wanted) in enumerate(zip(avals, expected, strict=True)):
        element = given if index < moving else element_aval(given, length)
        if element is None or not bodies.same_type(element, wanted):
            raise TypeError(f"[scan] operand {index} is {given.str_short()}, the body takes {wanted.str_short()}")
    for before, after in zip(expected[num_consts:moving], jaxpr.out_avals[:num_carry], strict=True):
        if not bodies.same_type(before, after):
            raise TypeError(f"[scan] the body takes {before.str_short()} and returns {after.str_short()}")
    stacked = [stacked_aval(aval, length) for aval in jaxpr.out_avals[num_carry:]]
    return [*jaxpr.out_avals[:num_carry], *stacked], jaxpr.effects


scan_p.def_effectful_abstract_eval(_type_scan)


def _lifted(args: tuple[Any, ...], params: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not params["jaxpr"].consts:
        return args, params
    program, captured = bodies.without_constants(params["jaxpr"])
    return (*captured, *args), {**params, "jaxpr": program, "num_consts": len(captured) + params["num_consts"]}


scan_p.lift = _lifted


def element_aval(aval: Any, length: int) -> Any:
    """The type of one element along the leading axis; None if there is no axis of that length."""
    if not aval.shape or aval.shape[0] != length:
        return None
    if getattr(aval, "explicit_sharding", None) is not None:  # a reference has none
        return lazy.explicit.without_dimension(aval, 0)
    return aval.update(shape=aval.shape[1:])


def stacked_aval(aval: Any, length: int) -> Any:
    if getattr(aval, "explicit_sharding", None) is not None:  # a reference has none
        return lazy.explicit.with_dimension(aval, 0, length)
    return aval.update(shape=(length, *aval.shape))


@overload
def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carry, Y]: ...


@overload
def scan(
    f: Callable[[Carry, Any], tuple[Carry, Y]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Carry, Y]: ...


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply ``carry, y = f(carry, x)`` along the leading axis of ``xs``; returns the last carry and all ``y`` stacked.

    ``init`` and ``xs`` are trees of arrays. All leaves of ``xs`` have the same leading extent, which is ``length`` if
    that is given (required if ``xs`` has no leaves). ``reverse`` runs from the last element to the first. With
    ``unroll`` above 1 an elementwise loop of few steps is compiled as one kernel; otherwise the compiler decides.
    TypeError if a type in the carry changes (naming the leaf) or ``f`` does not return a pair, ValueError for lengths
    that disagree.

    >>> lax.scan(lambda total, x: (total + x, total), 0.0, jnp.arange(4.0))
    (Array(6., dtype=float32), Array([0., 0., 1., 3.], dtype=float32, weak_type=True))
    """
    if not callable(f):
        raise TypeError("lax.scan: f argument should be a callable.")
    return scan_named(f, init, xs, length, reverse=reverse, unroll=unroll)


def scan_named(
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: int | None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    shown: Callable[[], list[str]] | None = None,
    adapt: bodies.Adapter | None = None,
) -> tuple[Any, Any]:
    """``scan`` of ``adapt(f)``; ``shown`` names the leaves of the state in error texts."""
    values, tree = runtime.tree_flatten(init)
    held = held_refs.apart(values, tree)
    if held is not None:
        return _holding(held, f if adapt is None else adapt(f), xs, length, reverse=reverse, unroll=unroll)
    inputs, xs_tree = runtime.tree_flatten(xs)
    avals = [bodies.aval_of(value) for value in values]
    length = leading_extent(inputs, length)
    unroll = _unroll(unroll, length)
    if config.read("disable_jit"):
        return _run_in_python(f if adapt is None else adapt(f), init, xs, xs_tree, length, reverse)
    elements = [element_aval(bodies.aval_of(x), length) for x in inputs]
    in_tree = runtime.tree_flatten((init, xs))[1]

    bodies.check_refs([f], in_tree, [*values, *inputs], "scan")

    def trace(types: list[Any]) -> tuple[Body, Any, list[Any]]:
        body = bodies.trace_body(f, in_tree, [*types, *elements], "scan", adapt)
        state_tree = _state_tree(body)
        return body, state_tree, body.out_avals[: state_tree.num_leaves]

    names = shown or carry.argument_paths(f, (tree, xs_tree), 0)
    body, values = carry.settled(trace, values, avals, tree, "scan body function", names, function_names.is_own(f))
    bodies.check_refs([f], in_tree, [*values, *inputs], "scan", [body])
    outs = _bind(body, values, inputs, length, reverse, unroll)
    ys_tree = body.out_tree.children()[1]
    state = runtime.tree_unflatten(tree, outs[: len(values)])
    return state, flat_functions.rebuilt(ys_tree, outs[len(values) :])


def _holding(
    held: held_refs.Held, f: Callable[..., Any], xs: Any, length: int | None, **options: Any
) -> tuple[Any, Any]:
    """``scan`` with references in its state."""

    def step(rest: list[Any], x: Any) -> tuple[Any, Any]:
        state, y = f(held.whole(rest), x)
        return held.rest_of(state, "The body of a scan"), y

    rest, ys = scan_named(step, held.rest, xs, length, **options)
    return held.whole(rest), ys


def _state_tree(body: Body) -> Any:
    """The structure of the state that a body returns; TypeError if it returns no pair."""
    children = body.out_tree.children()
    data = body.out_tree.node_data()
    if data is None or data[0] is not tuple or len(children) != 2:
        found = runtime.tree_unflatten(body.out_tree, body.out_avals)
        raise TypeError(f"scan body output must be a pair, got {_shown(found)}.")
    return children[0]


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list, dict)):
        return str(value)
    weak = "~" if getattr(value, "weak_type", False) else ""
    return f"{weak}{value.str_short(short_dtypes=False)}" if hasattr(value, "str_short") else str(value)


def leading_extent(inputs: Sequence[Any], length: Any) -> int:
    """The number of steps; ValueError if it is not known or the inputs disagree."""
    extents = []
    for x in inputs:
        aval = bodies.aval_of(x)
        if not aval.shape:
            raise ValueError(f"scan got value with no leading axis to scan over: {x}.")
        extents.append(aval.shape[0])
    if isinstance(length, Tracer):
        raise errors.ConcretizationTypeError(
            length,
            "The `length` argument of scan must be known while tracing; a loop of a number of steps known only when it "
            "runs is a fori_loop or while_loop.",
        )
    if length is not None:
        try:
            length = int(length)
        except (TypeError, ValueError) as error:
            raise TypeError(f"[scan] `length` must be an int known while tracing, got {length!r}") from error
        if length < 0:
            raise ValueError(f"[scan] `length` must not be negative, got {length}")
        if any(extent != length for extent in extents):
            raise ValueError(
                f"scan got `length` argument of {length} which disagrees with leading axis sizes {extents}."
            )
        return length
    if len(set(extents)) > 1:
        raise ValueError(
            f"scan got values with different leading axis sizes: {', '.join([str(extent) for extent in extents])}."
        )
    if not extents:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    return extents[0]


def _unroll(unroll: Any, length: int) -> int:
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    try:
        count = operator.index(unroll)
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError("`unroll` must be a `bool` or a non-negative `int`.")
    return max(count, 1)


def _bind(body: Body, values: list[Any], inputs: list[Any], length: int, reverse: bool, unroll: int) -> list[Any]:
    """Record the equation, without unchanged state and without outputs that are an input."""
    jaxpr, n_captured, n_carry = body.closed.jaxpr, len(body.captured), len(values)
    state = jaxpr.invars[n_captured : n_captured + n_carry]
    elements = dict(zip(jaxpr.invars[n_captured + n_carry :], inputs, strict=True))
    kept_on = [out is before for out, before in zip(jaxpr.outvars, state, strict=False)]
    results: list[Any] = [value if on else None for value, on in zip(values, kept_on, strict=True)]
    results += [None if isinstance(out, Literal) else elements.get(out) for out in jaxpr.outvars[n_carry:]]
    known = [result is not None for result in results]
    captured = [*body.captured, *(value for value, on in zip(values, kept_on, strict=True) if on)]
    moving = [value for value, on in zip(values, kept_on, strict=True) if not on]
    program = body.closed
    if any(known):
        constant = [v for v, on in zip(state, kept_on, strict=True) if on]
        carried = [v for v, on in zip(state, kept_on, strict=True) if not on]
        invars = [*jaxpr.invars[:n_captured], *constant, *carried, *jaxpr.invars[n_captured + n_carry :]]
        program = ClosedJaxpr(bodies.pruned(jaxpr.replace(invars=invars, debug_info=None), known))
    made = iter(
        scan_p.bind(
            *captured,
            *moving,
            *inputs,
            jaxpr=program,
            length=length,
            num_consts=len(captured),
            num_carry=len(moving),
            reverse=bool(reverse),
            unroll=unroll,
        )
    )
    return [result if there else next(made) for result, there in zip(results, known, strict=True)]


def _run_in_python(
    f: Callable[..., Any], state: Any, xs: Any, xs_tree: Any, length: int, reverse: bool
) -> tuple[Any, Any]:
    """The loop as Python runs it, under ``disable_jit``."""
    if length == 0:
        raise ValueError("zero-length scan is not supported in disable_jit() mode because the output type is unknown.")
    inputs = runtime.tree_flatten(xs)[0]
    rows: list[Any] = [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        element = runtime.tree_unflatten(xs_tree, [shape.index_in_dim(x, i, 0, keepdims=False) for x in inputs])
        state, rows[i] = f(state, element)
    tree = runtime.tree_flatten(rows[0])[1]
    columns = zip(*(runtime.tree_flatten(row)[0] for row in rows), strict=True)
    stacked = [assemble.concatenate([shape.expand_dims(y, (0,)) for y in column], 0) for column in columns]
    return state, runtime.tree_unflatten(tree, stacked)
