"""The call primitive ``jit``: one equation that holds the jaxpr of the function it calls.

    c:f32[3] = jit[name=f jaxpr={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }] d

Equal inner functions share one jaxpr object (from the trace cache of ``dispatch.calls.jit``), so that it is printed
once and compiled once. Values of the enclosing trace that the function captured become operands (``close_over``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff import jvp, linearize, transpose
from weft.core import kinds
from weft.core.effects import Effects
from weft.core.programs import eval as eval_module
from weft.core.programs import printer
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, Var
from weft.core.ref_types import ProgramPrimitive, is_ref
from weft.core.tangents import Zero, is_undefined
from weft.core.tracing import source_info
from weft.core.tracing.trace import EvalTrace, current
from weft.core.tracing.tracer import Tracer

jit_p = ProgramPrimitive(
    "jit", kinds.Higher(inline=lambda params: params["jaxpr"]), multiple_results=True, memoize=False
)  # fmt: skip


def _type_jit(*in_avals: Any, jaxpr: ClosedJaxpr, **params: Any) -> tuple[list[Any], Effects]:
    expected = jaxpr.in_avals
    if len(in_avals) != len(expected):
        raise TypeError(f"[jit] {params.get('name', 'the function')} takes {len(expected)} values, got {len(in_avals)}")
    return jaxpr.out_avals, jaxpr.effects


jit_p.def_effectful_abstract_eval(_type_jit)


def _shown(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters as printed: those at their default are left out."""
    shown = {"name": params["name"], "jaxpr": params["jaxpr"]}
    if any(params.get("donated_invars", ())):
        shown["donated_invars"] = params["donated_invars"]
    if params.get("keep_unused"):
        shown["keep_unused"] = True
    return shown


jit_p.print_rule = printer.jit_rule(_shown)


# -- derivatives: a call becomes calls of derived programs ---------------------------------------


def _bind_jit(closed: ClosedJaxpr, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Call a program with the name and options of a ``jit`` equation."""
    program, captured = close_over(closed)
    operands = [*captured, *operands]
    return jit_p.bind(*operands, jaxpr=program, **{**params, "donated_invars": (False,) * len(operands)})


def _jvp_jit(primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, **params: Any) -> tuple[list[Any], list[Any]]:
    live = tuple([type(t) is not Zero for t in tangents])
    program, out_live = jvp.jvp_jaxpr(jaxpr, live)
    outs = _bind_jit(program, [*primals, *[t for t in tangents if type(t) is not Zero]], params)
    count = len(out_live)
    made = iter(outs[count:])
    pairs = zip(outs[:count], out_live, strict=True)
    return outs[:count], [next(made) if has else Zero.from_primal_value(x) for x, has in pairs]


def _linearize_jit(live: tuple[bool, ...], *primals: Any, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    """Two calls: the first computes the results and the residuals, the second the tangents."""
    split = linearize.linearize_jaxpr(jaxpr, live)
    forwarded, program = split.known.jaxpr.memoize("given_back", _without_forwarded)
    made = iter(_bind_jit(ClosedJaxpr(program, split.known.consts), primals, params))
    results = [next(made) if index is None else primals[index] for index in forwarded]
    residuals = split.find_residuals(primals, results)

    def record(*tangents: Any) -> list[Any]:
        return _bind_jit(split.linear, [*residuals, *tangents], params) if any(split.out_live) else []

    return results[: len(split.out_live)], split.out_live, record


def _without_forwarded(jaxpr: Jaxpr) -> tuple[list[int | None], Jaxpr]:
    """(for each result the input that it is, or None; the program of the other results)."""
    inputs = {v: index for index, v in enumerate(jaxpr.invars)}
    forwarded = [inputs.get(atom) if type(atom) is Var else None for atom in jaxpr.outvars]
    computed = [atom for atom, index in zip(jaxpr.outvars, forwarded, strict=True) if index is None]
    return forwarded, jaxpr.replace(outvars=computed)


def _transpose_jit(cts: Any, *operands: Any, jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    linear = tuple([is_undefined(x) for x in operands])
    live = tuple([type(ct) is not Zero for ct in cts])
    program, in_live = transpose.transpose_jaxpr(jaxpr, linear, live)
    known = [x for x in operands if not is_undefined(x)]
    made = iter(_bind_jit(program, [*known, *[ct for ct in cts if type(ct) is not Zero]], params))
    has_ct = iter(in_live)
    return [next(made) if is_linear and next(has_ct) else None for is_linear in linear]


jit_p.jvp, jit_p.linearize, jit_p.transpose = _jvp_jit, _linearize_jit, _transpose_jit


def close_over(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """(the program with constants as leading operands, their values), if a traced value or a reference is among them.

    A program that captured only arrays is returned unchanged, with no values.
    """
    if not any(isinstance(const, Tracer) or is_ref(const) for const in closed.consts):
        return closed, []
    return ClosedJaxpr(closed.jaxpr.memoize("close_over", constvars_as_invars)), list(closed.consts)


def constvars_as_invars(jaxpr: Jaxpr) -> Jaxpr:
    debug_info = jaxpr.debug_info
    if debug_info is not None and debug_info.arg_names is not None:
        names = ("",) * len(jaxpr.constvars) + debug_info.arg_names
        debug_info = DebugInfo(debug_info.traced_for, debug_info.func_src_info, names, debug_info.result_paths)
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars], debug_info=debug_info)


def call(
    closed: ClosedJaxpr,
    args: Sequence[Any],
    *,
    name: str,
    donated_invars: Sequence[bool] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
) -> list[Any]:
    """Call a traced function on flat values: a ``jit`` equation, or its equations themselves with ``inline``."""
    if inline and not isinstance(current(), EvalTrace):
        return eval_module.eval_jaxpr(closed.jaxpr, closed.consts, *args)
    program, captured = close_over(closed)
    donated = tuple(donated_invars) if donated_invars is not None else (False,) * len(args)
    return jit_p.bind(
        *captured,
        *args,
        jaxpr=program,
        name=name,
        donated_invars=(False,) * len(captured) + donated,
        keep_unused=keep_unused,
        inline=inline,
    )


class named_scope:
    """Name the operations recorded inside, as a context manager or a decorator.

    >>> with weft.named_scope("attention"):
    ...     y = jnp.sin(1.0)
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError("named_scope name argument must be a string.")
        self.name = name
        self._open: list[Any] = []

    def __enter__(self) -> None:
        scope = source_info.name_scope(self.name)
        scope.__enter__()
        self._open.append(scope)

    def __exit__(self, *exception: Any) -> None:
        self._open.pop().__exit__(*exception)

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        return named_call(fun, name=self.name)


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """``fun`` with its operations under a name, by default its own."""
    scope = name if name is not None else fun.__name__

    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        with source_info.name_scope(scope):
            return fun(*args, **kwargs)

    return named
