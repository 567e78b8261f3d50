"""checkpoint (remat): a function whose derivative recomputes inner values instead of storing them.

    b:f32[3] = remat2[differentiated=False jaxpr={...} policy=None prevent_cse=True] a

After linearisation, the equation of the tangents reads the arguments and the values that the policy stores
(``partial_evaluation``). Its transpose recomputes the others, then runs backward. Its operands pass a barrier, so that
common subexpression elimination does not merge the second computation with the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from weft import runtime
from weft.autodiff import jvp, partial_evaluation, remat_policy, transpose
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr
from weft.core.ref_types import ProgramPrimitive
from weft.core.tangents import Zero, is_undefined
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.dispatch.calls import call_primitive, function_names, signature
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls.flat_functions import check_leaf
from weft.operations import effects

P = ParamSpec("P")
R = TypeVar("R")


def _inlined(params: dict[str, Any]) -> ClosedJaxpr:
    """The program to inline; with a barrier at its inputs if it is a derivative's."""
    closed: ClosedJaxpr = params["jaxpr"]
    flags = params["prevent_cse"]
    if not params["differentiated"] or flags is False:
        return closed
    flags = flags if isinstance(flags, tuple) else (True,) * len(closed.jaxpr.invars)
    key: Any = ("behind a barrier", flags)
    jaxpr = closed.jaxpr.memoize(key, lambda jaxpr: _behind_barrier(jaxpr, flags))
    return ClosedJaxpr(jaxpr, closed.consts)


def _behind_barrier(jaxpr: Jaxpr, flags: tuple[bool, ...]) -> Jaxpr:
    """The program with a barrier for its flagged inputs, so that its values are not merged with earlier ones."""
    builder = rewrite.Builder()
    constvars, invars = builder.new_invars(jaxpr.constvars), builder.new_invars(jaxpr.invars)
    passed = [v for v, flag in zip(invars, flags, strict=True) if flag]
    after = iter(builder.bind(effects.optimization_barrier_p, *passed) if passed else ())
    inputs = [next(after) if flag else v for v, flag in zip(invars, flags, strict=True)]
    outvars = builder.inline(jaxpr, [*constvars, *inputs])
    return Jaxpr(constvars, invars, outvars, builder.eqns, jaxpr.effects, jaxpr.debug_info)


checkpoint_p = ProgramPrimitive("remat2", kinds.Higher(inline=_inlined), multiple_results=True, memoize=False)
checkpoint_p.def_effectful_abstract_eval(lambda *in_avals, jaxpr, **params: (jaxpr.out_avals, jaxpr.effects))
checkpoint_p.print_params = lambda params: {**params, "jaxpr": params["jaxpr"].jaxpr}


checkpoint_p.unnamed_params = frozenset(("policy",))  # it decides what is stored, not what is computed


def bind(closed: ClosedJaxpr, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Record a program as one equation; captured values come before its operands."""
    program, captured = call_primitive.close_over(closed)
    if isinstance(params["prevent_cse"], tuple):
        params = {**params, "prevent_cse": (True,) * len(captured) + params["prevent_cse"]}
    return checkpoint_p.bind(*captured, *operands, jaxpr=program, **params)


def _extended(prevent_cse: Any, count: int) -> Any:
    """The flags of operands, extended by ``count`` more."""
    return (*prevent_cse, *[True] * count) if isinstance(prevent_cse, tuple) else prevent_cse


def _jvp_checkpoint(
    primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, prevent_cse: Any, **params: Any
) -> tuple[list[Any], list[Any]]:
    live = tuple([type(t) is not Zero for t in tangents])
    program, out_live = jvp.jvp_jaxpr(jaxpr, live)
    params = {**params, "prevent_cse": _extended(prevent_cse, sum(live))}
    outs = bind(program, [*primals, *[t for t in tangents if type(t) is not Zero]], params)
    made = iter(outs[len(out_live) :])
    pairs = zip(outs, out_live, strict=False)
    return outs[: len(out_live)], [next(made) if has else Zero.from_primal_value(x) for x, has in pairs]


def _linearize_checkpoint(
    live: tuple[bool, ...], *primals: Any, jaxpr: ClosedJaxpr, prevent_cse: Any, policy: Any, **params: Any
) -> Any:
    """Compute the results and the stored values; the tangents are one equation, which recomputes the others."""
    kept = partial_evaluation.split_by_policy(jaxpr, live, policy or remat_policy.nothing_saveable)
    if tracing.is_tracing():
        outs = eval_jaxpr(kept.known.jaxpr, kept.known.consts, *primals)
    else:
        outs = bind(kept.known, primals, {**params, "prevent_cse": False, "policy": policy})
    count = len(kept.out_live)
    saved = outs[count:]

    def record(*tangents: Any) -> list[Any]:
        if not any(kept.out_live):
            return []
        flags = prevent_cse
        if isinstance(flags, tuple):
            flags = (*[True] * len(saved), *[flags[index] for index in kept.reads], *[True] * len(tangents))
        given = [*saved, *[primals[index] for index in kept.reads], *tangents]
        return bind(kept.again, given, {**params, "differentiated": True, "prevent_cse": flags, "policy": policy})

    return outs[:count], kept.out_live, record


def _transpose_checkpoint(cts: Any, *operands: Any, jaxpr: ClosedJaxpr, prevent_cse: Any, **params: Any) -> list[Any]:
    linear = tuple([is_undefined(x) for x in operands])
    live = tuple([type(ct) is not Zero for ct in cts])
    program, in_live = transpose.transpose_jaxpr(jaxpr, linear, live)
    if isinstance(prevent_cse, tuple):
        flags = [flag for flag, is_linear in zip(prevent_cse, linear, strict=True) if not is_linear]
        prevent_cse = (*flags, *[True] * sum(live))
    given = [*[x for x in operands if not is_undefined(x)], *[ct for ct in cts if type(ct) is not Zero]]
    made = iter(bind(program, given, {**params, "prevent_cse": prevent_cse}))
    has_ct = iter(in_live)
    return [next(made) if is_linear and next(has_ct) else None for is_linear in linear]


checkpoint_p.jvp, checkpoint_p.linearize = _jvp_checkpoint, _linearize_checkpoint
checkpoint_p.transpose = _transpose_checkpoint


_CONCRETE = object()


def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool | Sequence[bool] = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: Any = _CONCRETE,
) -> Callable[P, R]:
    """``fun``, whose inner values are recomputed in the backward pass instead of stored.

    ``policy`` says which are stored all the same: one of ``weft.checkpoint_policies``, or a function of a primitive,
    the types of its operands and its parameters. ``prevent_cse=False`` (or False for some of the positional arguments)
    allows the compiler to merge the recomputation with the first one; in the body of a scan this cannot happen.
    Arguments in ``static_argnums`` or ``static_argnames`` are passed unchanged. ValueError for positions that do not
    exist, NotImplementedError for ``concrete``, which JAX 0.10 removed: make the arguments static.

    >>> f = weft.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    >>> print(weft.grad(f)(0.0))
    1.0
    """
    if concrete is not _CONCRETE:
        raise NotImplementedError(
            "[checkpoint] the option `concrete` was removed in JAX 0.10; name the arguments whose values the function "
            "needs by static_argnums, e.g. weft.checkpoint(f, static_argnums=(1,))"
        )
    jit_module.check_callable(fun)
    inner: Callable[..., Any] = fun
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    roles = signature.resolve_roles(fun, None, static_argnames or None, None, None)

    @functools.wraps(fun)
    @tracebacks.boundary
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> R:
        if not all(-len(args) <= number < len(args) for number in numbers):
            raise ValueError(
                "the `static_argnums` argument to `jax.checkpoint` / `jax.remat` can only take integer values greater "
                f"than or equal to `-len(args)` and less than `len(args)`, but got {numbers}, while `len(args)` = "
                f"{len(args)}"
            )
        static = tuple(sorted({*roles.static_argnums, *[number % len(args) for number in numbers]}))
        call = signature.split_call(roles._replace(static_argnums=static), args, kwargs, hashed=False)
        leaves, in_tree = runtime.tree_flatten((call.args, call.kwargs))
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            given, named = runtime.tree_unflatten(in_tree, list(values))
            given, named = signature.join_call(call.statics, call.count, given, named)
            outs, out_tree = runtime.tree_flatten(inner(*given, **named))
            return outs

        names = _argument_names(fun, in_tree, call)
        info = DebugInfo("checkpoint / remat", function_names.source_of(fun), names)
        closed, _ = tracing.trace_to_jaxpr(flat, [check_leaf(leaf, refs=True) for leaf in leaves], info)
        params = {"differentiated": False, "policy": policy, "prevent_cse": _flags(prevent_cse, call, len(leaves))}
        return runtime.tree_unflatten(out_tree, bind(closed, leaves, params))

    return checkpointed


def _argument_names(fun: Any, in_tree: Any, call: signature.Call) -> Callable[[], list[str]]:
    """Gives the paths of the arguments' leaves. Cached programs hold it; it holds neither function nor arguments."""
    reference, statics, count = signature.weakly(fun), call.statics, call.count

    def names() -> list[str]:
        args, kwargs = runtime.tree_unflatten(in_tree, list(range(in_tree.num_leaves)))
        return signature.leaf_paths(reference(), signature.Call(args, kwargs, statics, count))

    return names


def _flags(prevent_cse: bool | Sequence[bool], call: signature.Call, count: int) -> Any:
    """``prevent_cse`` itself if it is one flag, or for a flag per positional argument the flag of every leaf."""
    if isinstance(prevent_cse, bool):
        return prevent_cse
    if len(prevent_cse) != len(call.args):
        raise ValueError(
            f"[checkpoint] prevent_cse has {len(prevent_cse)} flags for {len(call.args)} positional arguments: give "
            "one bool, or one for each"
        )
    flags: list[bool] = []
    for flag, arg in zip(prevent_cse, call.args, strict=True):
        flags += [bool(flag)] * len(runtime.tree_flatten(arg)[0])
    return (*flags, *[True] * (count - len(flags)))
