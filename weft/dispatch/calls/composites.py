"""composite: a function under the name of the operation that it stands for.

    b:f32[] = composite[attributes=(('scale', (3.0,), PyTreeDef(*)),) jaxpr={...} name=my.tan version=1] a

The program is what the operation means: the compiler inlines it, and vectorisation is the program's. It has no
derivative, as in JAX: a rule is written around it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import errors, runtime
from weft.core import kinds
from weft.core.programs.jaxpr import DebugInfo
from weft.core.ref_types import ProgramPrimitive
from weft.core.tracing import tracebacks
from weft.core.tracing.trace import trace_to_jaxpr
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import flat_functions, function_names

composite_p = ProgramPrimitive(
    "composite", kinds.Higher(inline=lambda params: params["jaxpr"]), multiple_results=True, memoize=False
)
composite_p.unnamed_params |= {"attributes", "version"}  # they say nothing of what is computed
composite_p.def_effectful_abstract_eval(lambda *in_avals, jaxpr, **params: (jaxpr.out_avals, jaxpr.effects))


def _no_rule(kind: str) -> Callable[..., Any]:
    def refused(*args: Any, **params: Any) -> Any:
        raise ValueError(
            f"{kind} rule for composite not implemented: {params['name']!r} is one operation of the program, whose "
            "derivative is not that of what it stands for. Use weft.custom_jvp or weft.custom_vjp around it to say one."
        )

    return refused


composite_p.jvp, composite_p.transpose = _no_rule("JVP"), _no_rule("Transpose")


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """``decomposition`` as one named operation of printed programs; what it computes stays the same.

    Positional arguments of the function that is given back are operands (trees of arrays), keyword arguments its
    attributes, which the decomposition gets too. The decomposition may not close over traced values.

    >>> tangent = lax.composite(lambda x: lax.sin(x) / lax.cos(x), name="my.tangent")
    >>> tangent(0.5)
    Array(0.5463025, dtype=float32, weak_type=True)
    """

    @functools.wraps(decomposition)
    @tracebacks.boundary
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = runtime.tree_flatten(args)
        avals = [flat_functions.check_leaf(leaf) for leaf in leaves]
        function = flat_functions.FlatFunction(lambda *trees: decomposition(*trees, **kwargs), in_tree)
        info = DebugInfo("composite", function_names.source_of(decomposition))
        closed, _ = trace_to_jaxpr(function, avals, info)
        if any(isinstance(const, Tracer) for const in closed.consts):
            raise errors.UnexpectedTracerError(
                f"Found a traced value as a constant in the decomposition for the composite op {name!r}: it closes "
                "over a value that is involved in a transformation. Pass such values as arguments of the composite."
            )
        given = {key: runtime.tree_flatten(value) for key, value in kwargs.items()}
        attributes = tuple([(key, tuple(found), tree) for key, (found, tree) in given.items()])
        outs = composite_p.bind(*leaves, jaxpr=closed, name=name, version=version, attributes=attributes)
        return runtime.tree_unflatten(function.out_tree, outs)

    return call
