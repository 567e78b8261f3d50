"""weft.interpreters.mlir: lowerings of primitives, under JAX's names.

    mlir.register_lowering(p, mlir.lower_fun(function, multiple_results=False))

The function is traced when a program with the primitive is compiled, and its equations replace the primitive. A
lowering ``(context, *values, **params)`` may use ``context.avals_in``, ``emit_python_callback``, and other lowerings;
weft's compiler has no MLIR, so that one that builds MLIR by hand raises NotImplementedError when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weft import runtime
from weft.core import kinds
from weft.core.primitive import Primitive
from weft.core.programs.eval import eval_jaxpr
from weft.effects.callbacks import FlatCallback, io_callback_p, pure_callback_p
from weft.effects.user_primitives import ByHandError, ModuleContext
from weft.effects.user_primitives import LoweringContext as LoweringRuleContext

LoweringRule = Callable[..., Any]
Value = Any
Token = Any
_PLATFORMS = frozenset(("cpu", "gpu", "cuda", "rocm", "tpu", "METAL", "mps", "oneapi"))
_for_cpu: set[Primitive] = set()  # primitives whose lowering was registered for this platform by name


class TokenSet:
    """JAX's tokens of ordered effects: none, since the steps of weft's programs keep their order."""

    def effects(self) -> frozenset[Any]:
        return frozenset()

    def subset(self, effects: Any) -> TokenSet:
        return self


def register_lowering(
    prim: Primitive, rule: LoweringRule, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> None:
    """Use ``rule`` when a program with ``prim`` is compiled; one for a platform goes before one for all.

    Rules for other platforms than "cpu" are not needed here. NotImplementedError for a platform that nobody knows, and
    for operations of weft's own, which the compiler knows by their kind.
    """
    if platform is not None and platform not in _PLATFORMS:
        raise NotImplementedError(
            f"Registering an MLIR lowering rule for primitive {prim} for an unknown platform {platform}. Known "
            f"platforms are: {', '.join(sorted(_PLATFORMS))}."
        )
    if platform not in (None, "cpu"):
        return
    if type(prim.kind) is not kinds.Opaque:
        raise NotImplementedError(
            f"[register_lowering] {prim} is an operation of weft's own, whose machine code cannot be replaced. Make a "
            "primitive of your own with weft.extend.core.Primitive(name)"
        )
    if platform is None and prim in _for_cpu:
        return
    if platform == "cpu":
        _for_cpu.add(prim)
    prim.lowering = rule


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LoweringRule:
    """The lowering that computes what ``fun(*values, **params)`` does; a sequence of results unless said otherwise."""

    def lowered(ctx: LoweringRuleContext, *args: Any, **params: Any) -> Any:
        made = fun(*args, **params)
        return list(made) if multiple_results else [made]

    return lowered


def jaxpr_subcomp(ctx: Any, jaxpr: Any, name_stack: Any, tokens: Any, consts: Any, *args: Any, **_: Any) -> Any:
    """(the results of a program inside a lowering, tokens)."""
    return eval_jaxpr(jaxpr, [_single(const) for const in consts], *[_single(arg) for arg in args]), tokens


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def emit_python_callback(
    ctx: LoweringRuleContext,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[Any, Any, Any]:
    """(results, token, what is kept alive) of a call of ``callback(*arrays)``, which gives a sequence of arrays."""
    values = [_single(x) for x in operands]
    call = FlatCallback(callback, runtime.tree_flatten((tuple(values), {}))[1])
    results = tuple([aval.strip_weak_type() for aval in result_avals])
    if has_side_effect:
        outs = io_callback_p.bind(
            *values, callback=call, result_avals=results, sharding=None, ordered=token is not None
        )
    else:
        outs = pure_callback_p.bind(*values, callback=call, result_avals=results, sharding=None, vmap_method=None)
    return outs, token, callback


# -- MLIR by hand -----------------------------------------------------------------------------------------------------


def _by_hand(name: str) -> Callable[..., NoReturn]:
    def raises(*args: Any, **kwargs: Any) -> NoReturn:
        raise ByHandError(f"it calls mlir.{name}")

    raises.__name__ = raises.__qualname__ = name
    raises.__doc__ = f"JAX's mlir.{name} builds MLIR, which weft does not have: NotImplementedError."
    return raises


class _TypeOfHandwork(type):
    """Classes of MLIR: they can be named (in annotations), and raise when they are used."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _by_hand(f"ir.{cls.__name__}.{name}")


class _Handwork:
    """The module ``ir`` of MLIR's Python bindings: its names exist, and raise when they are used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _TypeOfHandwork(name, (), {"__init__": _by_hand(f"ir.{name}"), "__module__": __name__})


ir: Any = _Handwork()
_BUILDERS = frozenset((
    "aval_to_ir_type", "aval_to_ir_types", "call_lowering", "core_call_lowering", "dense_bool_array", "dense_int_array",
    "dense_int_elements", "dtype_to_ir_type", "flatten_ir_types", "flatten_ir_values", "i32_attr", "i64_attr",
    "ir_attribute", "ir_constant", "ir_constants", "lower_jaxpr_to_fun", "lower_jaxpr_to_module", "make_ir_context",
    "merge_mlir_modules", "module_to_bytecode", "module_to_string", "register_constant_handler", "shape_tensor",
    "token_type", "unflatten_ir_values_like_types",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _BUILDERS:
        return _by_hand(name)
    raise AttributeError(f"module 'weft.interpreters.mlir' has no attribute {name!r}")


__all__ = [
    "LoweringRule", "LoweringRuleContext", "ModuleContext", "Token", "TokenSet", "Value", "emit_python_callback", "ir",
    "jaxpr_subcomp", "lower_fun", "register_lowering",
]  # fmt: skip
