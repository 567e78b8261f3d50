"""Traces conditions, bodies and branches of control flow to jaxprs.

In: a Python function on trees. Out: a ``Body``, whose program has no constants: all values that the function captured
(arrays and values of an enclosing trace) are leading operands, listed in ``captured``.

    while_loop(cond, lambda s: s + x, s0)    body: { lambda ; x:f32[3] s:f32[3]. let ... }, captured [x]

The same function object traced for the same types gives the same program object, unless it captured a traced value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft._base.record import Record
from weft.core import avals as avals_module
from weft.core import ref_types
from weft.core.caches.weak_table import WeakTable
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, Literal, Var
from weft.core.symbolic import sizes
from weft.core.tracing.trace import trace_to_jaxpr
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import call_primitive, function_names, signature

Adapter = Callable[[Callable[..., Any]], Callable[..., Any]]
_BODIES_BOUND = 256  # traces cached per function
_bodies: WeakTable[dict[Any, Body]] = WeakTable()


class Body(Record):
    """A traced function: its program on (captured values, arguments), and the structure of its result."""

    closed: ClosedJaxpr
    captured: tuple[Any, ...]
    out_tree: Any

    @property
    def out_avals(self) -> list[Any]:
        return self.closed.out_avals


def aval_of(value: Any) -> Any:
    """The type of an operand; TypeError for other values, as for arguments of a jitted function."""
    try:
        return avals_module.get_aval(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Argument {value!r} of type {type(value)} is not a valid JAX type") from error


def trace_body(
    function: Callable[..., Any], in_tree: Any, in_avals: Sequence[Any], purpose: str, adapt: Adapter | None = None
) -> Body:
    """Trace ``function(*trees)`` on leaves of the given types; ``in_tree`` is the structure of the tuple of trees.

    With ``adapt``, ``adapt(function)`` is traced instead; the trace is still cached for the user's function.
    """
    key = (in_tree, tuple(in_avals), purpose, adapt, runtime.get_config_token())
    if sizes.keeper(key) is not None:
        return _trace(function, in_tree, in_avals, purpose, adapt)
    known = _bodies.get(function)
    if known is None:
        known = {}
        with contextlib.suppress(TypeError):  # not weakly referable: traced anew each time
            _bodies.set(function, known)
    found = known.get(key)
    if found is None:
        found = _trace(function, in_tree, in_avals, purpose, adapt)
        if not any(isinstance(value, Tracer) for value in found.captured):
            if len(known) >= _BODIES_BOUND:
                known.clear()
            known[key] = found
    return found


def check_refs(
    functions: Sequence[Callable[..., Any]], in_tree: Any, values: Sequence[Any], purpose: str,
    traced: Sequence[Body] = (),
) -> None:  # fmt: skip
    """ValueError if one reference is an operand twice; with what was traced, if it is an operand and was captured."""
    if not ref_types.are_possible() or not any(map(ref_types.is_ref, values)):
        return
    for number, function in enumerate(functions):
        text, paths = f"{function_names.source_of(function)} for {purpose}", _arg_names(function, in_tree)
        if traced:
            ref_types.check_not_captured(values, traced[number].captured, paths, text)
        else:
            ref_types.check_distinct(values, paths, text)


def forget() -> None:
    """Drop all cached traces."""
    _bodies.clear()


def _trace(
    function: Callable[..., Any], in_tree: Any, in_avals: Sequence[Any], purpose: str, adapt: Adapter | None
) -> Body:
    out: list[Any] = [None]
    run = function if adapt is None else adapt(function)

    def flat(*leaves: Any) -> list[Any]:
        args = runtime.tree_unflatten(in_tree, list(leaves))
        results, out[0] = runtime.tree_flatten(run(*args))
        return results

    info = DebugInfo(
        purpose, function_names.source_of(function), _arg_names(function, in_tree), lambda: signature.tree_paths(out[0])
    )
    closed, _ = trace_to_jaxpr(flat, in_avals, info)
    program, captured = without_constants(closed)
    return Body(program, tuple(captured), out[0])


def _arg_names(function: Callable[..., Any], in_tree: Any) -> Callable[[], list[str]]:
    """The paths of the arguments' leaves. Refers to the function weakly, since cached programs hold this."""
    reference = signature.weakly(function)

    def names() -> list[str]:
        args = runtime.tree_unflatten(in_tree, list(range(in_tree.num_leaves)))
        return signature.leaf_paths(reference(), signature.Call(tuple(args), {}, (), len(args)))

    return names


def without_constants(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """(the program with its constants as leading operands, their values)."""
    if not closed.consts:
        return closed, []
    return ClosedJaxpr(closed.jaxpr.memoize("close_over", call_primitive.constvars_as_invars)), list(closed.consts)


def with_common_captures(bodies: Sequence[Body]) -> tuple[list[ClosedJaxpr], list[Any]]:
    """The programs with one common list of captured values as leading operands; each value once, in order of use."""
    common: dict[int, Any] = {}
    for body in bodies:
        common.update({id(value): value for value in body.captured if id(value) not in common})
    numbers = {key: index for index, key in enumerate(common)}
    avals = [aval_of(value) for value in common.values()]
    programs = []
    for body in bodies:
        jaxpr, own = body.closed.jaxpr, len(body.captured)
        given = {numbers[id(value)]: v for value, v in zip(body.captured, jaxpr.invars, strict=False)}
        if own == len(avals) and list(given) == list(range(own)):
            programs.append(body.closed)
            continue
        leading = [given.get(index) or Var(aval) for index, aval in enumerate(avals)]
        programs.append(ClosedJaxpr(jaxpr.replace(invars=[*leading, *jaxpr.invars[own:]], debug_info=None)))
    return programs, list(common.values())


def converted_outputs(closed: ClosedJaxpr, avals: Sequence[Any]) -> ClosedJaxpr:
    """The program with result types ``avals``, which differ from its own at most in weakness."""
    jaxpr = closed.jaxpr
    outvars = [
        Literal(atom.val, aval) if isinstance(atom, Literal) else atom
        for atom, aval in zip(jaxpr.outvars, avals, strict=True)
    ]
    return ClosedJaxpr(jaxpr.replace(outvars=outvars), closed.consts)


def same_type(left: Any, right: Any) -> bool:
    """Equal shapes, dtypes, shardings and axes along which values vary; weakness does not count."""
    if left is right:
        return True
    same = left.shape == right.shape and left.dtype == right.dtype and varying_axes(left) == varying_axes(right)
    return same and getattr(left, "explicit_sharding", None) is getattr(right, "explicit_sharding", None)


def varying_axes(aval: Any) -> tuple[Any, ...]:
    """The mesh axes along which values of a type differ."""
    return getattr(aval, "varying", ())


def check_boolean_result(body: Body, function_name: str) -> None:
    """Raise TypeError unless a condition gives one boolean scalar."""
    if body.out_tree.num_leaves != 1 or body.out_tree.num_nodes != 1:
        raise TypeError(f"{function_name} must return a boolean scalar, but got pytree {body.out_tree}.")
    aval = body.out_avals[0]
    if aval.shape != () or aval.dtype.kind != "b":
        raise TypeError(f"{function_name} must return a boolean scalar, but got output type(s) {body.out_avals}.")


def pruned(jaxpr: Jaxpr, dropped: Sequence[bool]) -> Jaxpr:
    """The program without the results that are marked."""
    return jaxpr.replace(outvars=[v for v, drop in zip(jaxpr.outvars, dropped, strict=True) if not drop])
