"""Lists the values that a function stores for its backward pass, and where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import runtime
from weft.autodiff import derivatives
from weft.autodiff.remat_policy import name_p
from weft.core.programs.jaxpr import DebugInfo, Literal
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive, flat_functions, function_names, signature


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[Any, str]]:
    """(type, origin as text) of every value that the pullback of ``f`` at these arguments would keep."""
    leaves, in_tree = runtime.tree_flatten((args, kwargs))

    def residuals(*values: Any) -> list[Any]:
        given, named = runtime.tree_unflatten(in_tree, list(values))
        (_, pullback), _ = derivatives.vjp_flat(lambda args, kwargs: f(*args, **kwargs), (given, named), False)
        return pullback.residuals

    info = DebugInfo("saved_residuals", function_names.source_of(f))
    closed, _ = tracing.trace_to_jaxpr(residuals, [flat_functions.check_leaf(leaf) for leaf in leaves], info)
    jaxpr = closed.jaxpr
    wanted = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    found = [(atom.aval, "from a literal") for atom in jaxpr.outvars if isinstance(atom, Literal)]
    found += [(v.aval, "from a constant") for v in jaxpr.constvars if v in wanted]
    call = signature.Call(args, kwargs, (), len(args))
    for index, v in enumerate(jaxpr.invars):
        if v in wanted:
            found.append((v.aval, f"from the argument {signature.leaf_path(f, call, index)}"))
    for eqn in jaxpr.eqns:
        for v in eqn.outvars:
            if v not in wanted:
                continue
            text = f"output of {eqn.primitive.name}"
            if eqn.primitive is name_p:
                text = f"named '{eqn.params['name']}'"
            elif eqn.primitive is call_primitive.jit_p:
                text = f"output of jitted function '{eqn.params['name']}'"
            found.append((v.aval, f"{text} from {eqn.source_info}"))
    return found


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print a line for each value that the pullback of ``f`` would store: its type and where it comes from.

    >>> from weft.ad_checkpoint import print_saved_residuals
    >>> print_saved_residuals(weft.checkpoint(lambda x: jnp.sin(jnp.sin(x))), 1.0)
    f32[] from the argument x
    """
    for aval, text in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short()} {text}")
