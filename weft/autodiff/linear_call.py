"""linear_call: a linear function with its own transpose.

    b:f32[3] = linear_call[callee={...} num_callee_consts=0 num_res=1 transpose_thunk=...] residual a

Operands: the values that the function captured, the residuals, the arguments it is linear in. The tangent of a call is
the same call of the tangents; its transpose is a ``linear_call`` of the two functions in exchanged roles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo
from weft.core.ref_types import ProgramPrimitive
from weft.core.tangents import FLOAT0, Zero, is_undefined
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive, flat_functions, function_names
from weft.dispatch.calls import jit as jit_module
from weft.operations import linear

linear_call_p = ProgramPrimitive(
    "linear_call", kinds.Higher(inline=lambda params: params["callee"]), multiple_results=True, memoize=False
)
linear_call_p.unnamed_params |= {"transpose_thunk"}  # it has been used before a program is compiled
linear_call_p.def_effectful_abstract_eval(lambda *avals, callee, **params: (callee.out_avals, callee.effects))


class Pair:
    """A linear function of (residuals, arguments) and its transpose of (residuals, cotangents), with their trees."""

    __slots__ = ("function", "in_tree", "out_tree", "residual_tree", "transpose")

    def __init__(self, function: Callable[..., Any], transpose: Callable[..., Any], residual_tree: Any, in_tree: Any):
        self.function, self.transpose = function, transpose
        self.residual_tree, self.in_tree = residual_tree, in_tree
        self.out_tree: Any = None

    def __repr__(self) -> str:
        return getattr(self.transpose, "__name__", "transpose")


def linear_call(
    fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any, linear_args: Any
) -> Any:
    """``fun(residual_args, linear_args)``, whose transpose is ``fun_transpose(residual_args, cotangents)``.

    Both functions are linear in their second argument; ``fun_transpose`` gives values with the structure and types of
    ``linear_args``. There is no derivative with respect to ``residual_args``. TypeError when the transpose is used and
    gives something else.

    >>> f = lambda x: weft.custom_derivatives.linear_call(lambda r, x: r * x, lambda r, ct: r * ct, 3.0, x)
    >>> print(f(2.0), *weft.linear_transpose(f, 1.0)(5.0))
    6.0 15.0
    """
    jit_module.check_callable(fun)
    jit_module.check_callable(fun_transpose)
    residuals, residual_tree = runtime.tree_flatten(residual_args)
    leaves, in_tree = runtime.tree_flatten(linear_args)
    pair = Pair(fun, fun_transpose, residual_tree, in_tree)
    out_tree, outs = bind(pair, residuals, leaves)
    return flat_functions.rebuilt(out_tree, outs)


def bind(pair: Pair, residuals: Sequence[Any], leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
    """(the tree of the results, the results) of one call, recorded as one equation."""

    def flat(*values: Any) -> list[Any]:
        given = runtime.tree_unflatten(pair.residual_tree, list(values[: len(residuals)]))
        outs, pair.out_tree = runtime.tree_flatten(
            pair.function(given, runtime.tree_unflatten(pair.in_tree, list(values[len(residuals) :])))
        )
        return outs

    in_avals = [flat_functions.check_leaf(leaf) for leaf in (*residuals, *leaves)]
    info = DebugInfo("linear_call", function_names.source_of(pair.function))
    program, captured = call_primitive.close_over(tracing.trace_to_jaxpr(flat, in_avals, info)[0])
    outs = linear_call_p.bind(
        *captured, *residuals, *leaves,
        callee=program, num_callee_consts=len(captured), num_res=len(residuals), transpose_thunk=pair,
    )  # fmt: skip
    return pair.out_tree, outs


def _jvp(primals: Any, tangents: Any, *, num_callee_consts: int, num_res: int, **params: Any) -> Any:
    count = num_callee_consts + num_res
    if any(type(t) is not Zero for t in tangents[:count]):
        raise NotImplementedError(
            f"linear_call has no derivative with respect to residual_args, nor to what {params['transpose_thunk']!r}'s "
            "function closed over: pass as linear_args what is differentiated, or stop the gradient of the rest with "
            "lax.stop_gradient"
        )
    params |= {"num_callee_consts": num_callee_consts, "num_res": num_res}
    outs = linear_call_p.bind(*primals, **params)
    moving = tangents[count:]
    if all(type(t) is Zero for t in moving):
        return outs, [Zero.from_primal_value(out) for out in outs]
    if any(t.aval.dtype == FLOAT0 for t in moving if type(t) is Zero):
        raise TypeError("linear_call is linear in floats and complex numbers: pass integers as residual_args")
    made = linear_call_p.bind(*primals[:count], *[linear.instantiate(t) for t in moving], **params)
    return outs, made


def _transpose(
    cts: Any, *operands: Any, callee: ClosedJaxpr, num_callee_consts: int, num_res: int, transpose_thunk: Pair
) -> list[Any]:
    count, pair = num_callee_consts + num_res, transpose_thunk
    residuals, arguments = operands[num_callee_consts:count], operands[count:]
    if any(is_undefined(x) for x in operands[:count]):
        raise NotImplementedError("linear_call is not linear in residual_args, nor in what its function closed over")
    back = Pair(pair.transpose, pair.function, pair.residual_tree, pair.out_tree)
    out_tree, found = bind(back, residuals, [linear.instantiate(ct) for ct in cts])
    if out_tree != pair.in_tree:
        raise TypeError(
            "transpose output pytree structure must match that of linear inputs, got output structure "
            f"{out_tree} and input structure {pair.in_tree}."
        )
    for value, aval in zip(found, callee.in_avals[count:], strict=True):
        made = flat_functions.check_leaf(value)
        if (made.shape, made.dtype) != (aval.shape, aval.dtype):
            raise TypeError(
                f"the transpose of linear_call gave {made.str_short()} for a linear argument of type {aval.str_short()}"
            )
    return [None] * count + [x if is_undefined(a) else None for a, x in zip(arguments, found, strict=True)]


linear_call_p.jvp, linear_call_p.transpose = _jvp, _transpose
