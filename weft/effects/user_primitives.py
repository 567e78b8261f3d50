"""Primitives that users make: what runs one on concrete values, and what replaces it in a compiled program.

On concrete values a primitive's ``impl`` runs; a primitive that has only a lowering is compiled. In a compiled program
an equation becomes the program of its ``lowering``, a function ``(context, *values, **params)`` that is traced here::

    c = multiply_add a b 1.0    ->    d = mul a b; c = add d 1.0

Without a lowering it becomes a call of ``impl``, a step that holds the GIL, as a callback does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import runtime
from weft.core import avals
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn
from weft.core.tracing.trace import eval_context, trace_to_jaxpr
from weft.effects.callbacks import FlatCallback, io_callback_p, pure_callback_p
from weft.operations.pointwise.convert import convert_element_type


class ByHandError(NotImplementedError):
    """A lowering builds MLIR, and weft's compiler has no MLIR."""


class ModuleContext:
    """What a lowering may ask of the program around it, under JAX's names."""

    platforms = ("cpu",)

    def __init__(self) -> None:
        self.keepalives: list[Any] = []

    def add_keepalive(self, value: Any) -> None:
        """Nothing to do: a program keeps the functions that it calls alive."""

    def replace(self, **changes: Any) -> ModuleContext:
        return self


class LoweringContext:
    """What a lowering is told of the equation: its primitive and types, under JAX's names."""

    tokens_in = tokens_out = traceback = axis_size_env = jaxpr_eqn_ctx = None
    name_stack = ""
    dim_var_values: tuple[Any, ...] = ()
    platforms = None

    def __init__(self, primitive: Any, avals_in: Sequence[Any], avals_out: Sequence[Any]) -> None:
        self.primitive = primitive
        self.avals_in = tuple(avals_in)
        self.avals_out = tuple(avals_out)
        self.module_context = ModuleContext()

    def set_tokens_out(self, tokens: Any) -> None:
        """Nothing to do: ordered effects need no tokens, since the steps of a program keep their order."""

    def is_forward_compat(self) -> bool:
        return False


def run(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The results of ``impl`` on concrete values."""
    if not primitive.has_impl:
        name = primitive.name
        raise NotImplementedError(
            f"Evaluation rule for '{name}' not implemented. Register one: {name}_p.def_impl(function), or "
            f"mlir.register_lowering({name}_p, mlir.lower_fun(function))"
        )
    out = primitive.impl(*args, **params)
    return list(out) if primitive.multiple_results else out


def lowered_equation(eqn: JaxprEqn) -> ClosedJaxpr:
    """The program that replaces an equation."""
    return lowered(eqn.primitive, [x.aval for x in eqn.invars], [x.aval for x in eqn.outvars], eqn.params)


def lowered(primitive: Any, in_avals: Sequence[Any], out_avals: Sequence[Any], params: dict[str, Any]) -> ClosedJaxpr:
    """The program of a primitive on operands of these types."""
    rule = primitive.lowering
    if rule is None and not primitive.has_impl:
        name = primitive.name
        raise NotImplementedError(
            f"MLIR translation rule for primitive '{name}' not found for platform cpu. It has no lowering and no impl, "
            f"so that it cannot be computed: register mlir.register_lowering({name}_p, mlir.lower_fun(function, "
            f"multiple_results={primitive.multiple_results})), or give it {name}_p.def_impl(function)"
        )
    context = LoweringContext(primitive, in_avals, out_avals)

    def flat(*values: Any) -> list[Any]:
        made = _lowered_by(rule, context, values, params) if rule else _called(primitive, values, out_avals, params)
        outs = [value for result in made for value in (result if isinstance(result, (list, tuple)) else [result])]
        if len(outs) != len(out_avals):
            raise TypeError(
                f"[lowering] the lowering of '{primitive.name}' gives {len(outs)} results, its abstract evaluation "
                f"{len(out_avals)}. Is multiple_results of mlir.lower_fun that of the primitive?"
            )
        return [_fitted(primitive, x, aval) for x, aval in zip(outs, out_avals, strict=True)]

    return trace_to_jaxpr(flat, in_avals)[0]


def _lowered_by(rule: Any, context: LoweringContext, values: Sequence[Any], params: dict[str, Any]) -> Any:
    try:
        return rule(context, *values, **params)
    except ByHandError as error:
        name = context.primitive.name
        raise NotImplementedError(
            f"[lowering] the lowering of '{name}' builds MLIR by hand ({error}), and weft's compiler has no MLIR. "
            f"Register a function of arrays instead: mlir.register_lowering({name}_p, mlir.lower_fun(function, "
            f"multiple_results={context.primitive.multiple_results}))"
        ) from error


def _fitted(primitive: Any, value: Any, aval: Any) -> Any:
    """A result of a lowering in the type that the abstract evaluation promised: its weakness may differ."""
    found = avals.get_aval(value)
    if (found.shape, found.dtype) != (aval.shape, aval.dtype):
        raise TypeError(
            f"[lowering] the lowering of '{primitive.name}' gives {avals.long_text(found)} where its abstract "
            f"evaluation promises {avals.long_text(aval)}"
        )
    if found.weak_type == aval.weak_type:
        return value
    return convert_element_type(value, aval.dtype) if found.weak_type else value


def _called(primitive: Any, values: Sequence[Any], out_avals: Sequence[Any], params: dict[str, Any]) -> Any:
    """A call of ``impl`` when the program runs; one with an effect if the primitive has any."""

    def call(*concrete: Any) -> Any:
        with eval_context():
            out = primitive.impl(*concrete, **params)
        return list(out) if primitive.multiple_results else [out]

    call.__name__ = primitive.name
    _, effects = primitive.typed(tuple([avals.get_aval(x) for x in values]), params)
    callback = FlatCallback(call, runtime.tree_flatten((tuple(values), {}))[1])
    results = tuple([aval.strip_weak_type() for aval in out_avals])
    if effects:
        return io_callback_p.bind(*values, callback=callback, result_avals=results, sharding=None, ordered=True)
    return pure_callback_p.bind(*values, callback=callback, result_avals=results, sharding=None, vmap_method=None)
