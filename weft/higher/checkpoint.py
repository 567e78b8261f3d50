"""checkpoint (remat): a function whose derivative computes its inner values again instead of keeping them.

    b:f32[3] = checkpoint[differentiated=False jaxpr={...} policy=None prevent_cse=True] a

Linearised, the equation of the tangents reads the arguments alone; its transpose computes forward, then backward. The
arguments pass a barrier, so that what is computed again is not found to be there already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft import runtime
from weft.core import kinds, tracebacks
from weft.core import trace as tracing
from weft.core.avals import get_aval
from weft.core.jaxpr import ClosedJaxpr, DebugInfo
from weft.core.primitive import Primitive
from weft.core.tangents import Zero, is_undefined
from weft.higher import calls, signature
from weft.higher import jit as jit_module
from weft.operations import effects
from weft.transforms import jvp, transpose

checkpoint_p = Primitive(
    "checkpoint", kinds.Higher(inline=lambda params: params["jaxpr"]), multiple_results=True, memoize=False
)
checkpoint_p.def_effectful_abstract_eval(lambda *in_avals, jaxpr, **params: (jaxpr.out_avals, jaxpr.effects))
checkpoint_p.print_params = lambda params: {**params, "jaxpr": params["jaxpr"].jaxpr}


def _bind(closed: ClosedJaxpr, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    program, captured = calls.close_over(closed)
    return checkpoint_p.bind(*captured, *operands, jaxpr=program, **params)


def _jvp_checkpoint(primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, **params: Any) -> tuple[list[Any], list[Any]]:
    live = tuple([type(t) is not Zero for t in tangents])
    program, out_live = jvp.jvp_jaxpr(jaxpr, live)
    outs = _bind(program, [*primals, *[t for t in tangents if type(t) is not Zero]], params)
    made = iter(outs[len(out_live) :])
    pairs = zip(outs, out_live, strict=False)
    return outs[: len(out_live)], [next(made) if has else Zero.from_primal_value(x) for x, has in pairs]


def _linearize_checkpoint(live: tuple[bool, ...], *primals: Any, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    """The values now; of the tangents one equation that computes what it needs from the arguments."""
    outs = _bind(jaxpr, primals, params)
    program, out_live = jvp.jvp_jaxpr(jaxpr, live)
    tangents_only = program.jaxpr.memoize(
        "tangents_only", lambda both: both.replace(outvars=both.outvars[len(out_live) :])
    )

    def record(*tangents: Any) -> list[Any]:
        closed = ClosedJaxpr(tangents_only, program.consts)
        return _bind(closed, [*primals, *tangents], {**params, "differentiated": True}) if any(out_live) else []

    return outs, out_live, record


def _transpose_checkpoint(cts: Any, *operands: Any, jaxpr: ClosedJaxpr, prevent_cse: Any, **params: Any) -> list[Any]:
    linear = tuple([is_undefined(x) for x in operands])
    live = tuple([type(ct) is not Zero for ct in cts])
    program, in_live = transpose.transpose_jaxpr(jaxpr, linear, live)
    known = [x for x in operands if not is_undefined(x)]
    if prevent_cse and known:
        known = effects.optimization_barrier_p.bind(*known)
    given = [*known, *[ct for ct in cts if type(ct) is not Zero]]
    made = iter(_bind(program, given, {**params, "prevent_cse": prevent_cse}))
    has_ct = iter(in_live)
    return [next(made) if is_linear and next(has_ct) else None for is_linear in linear]


checkpoint_p.jvp, checkpoint_p.linearize = _jvp_checkpoint, _linearize_checkpoint
checkpoint_p.transpose = _transpose_checkpoint


def checkpoint(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[..., Any]:
    """``fun``, whose inner values are computed again when it is differentiated backward, not kept.

    Arguments named by ``static_argnums`` or ``static_argnames`` are passed as they are. Raises NotImplementedError for
    a ``policy`` that keeps some values.

    >>> f = weft.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    >>> print(weft.grad(f)(0.0))
    1.0
    """
    jit_module.check_callable(fun)
    if policy is not None:
        raise NotImplementedError("[checkpoint] policies that keep some values are not built yet: pass policy=None")
    roles = signature.resolve_roles(fun, static_argnums or None, static_argnames or None, None, None)

    @functools.wraps(fun)
    @tracebacks.boundary
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        call = signature.split_call(roles, args, kwargs)
        leaves, in_tree = runtime.tree_flatten((call.args, call.kwargs))
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            given, named = runtime.tree_unflatten(in_tree, list(values))
            given, named = signature.join_call(call.statics, call.count, given, named)
            outs, out_tree = runtime.tree_flatten(fun(*given, **named))
            return outs

        info = DebugInfo("checkpoint / remat", jit_module.source_of(fun))
        closed, _ = tracing.trace_to_jaxpr(flat, [get_aval(leaf) for leaf in leaves], info)
        params = {"differentiated": False, "policy": None, "prevent_cse": prevent_cse}
        return runtime.tree_unflatten(out_tree, _bind(closed, leaves, params))

    return checkpointed
