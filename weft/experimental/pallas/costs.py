"""CostEstimate: what a kernel costs, in the user's words or counted from a program."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from weft import dtypes, runtime
from weft._base.record import Record
from weft.core import avals as avals_module
from weft.core import kinds
from weft.core.programs.jaxpr import Jaxpr, jaxprs_in_params
from weft.core.tracing.trace import trace_to_jaxpr

_TRANSCENDENTAL = frozenset((
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "lgamma", "log", "log1p", "logistic", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
))  # fmt: skip


class CostEstimate(Record):
    """Operations, transcendental functions and bytes of memory of a kernel."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def to_json(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self._fields}).encode()


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """The cost of ``fun(*args, **kwargs)``; ``args`` may be ``ShapeDtypeStruct``, ``kwargs`` stay as they are.

    Products count two operations for each pair of factors, elementwise functions one for each element; the bytes are
    those of arguments and results. Loops are not counted, since their number of steps is not known.

    >>> pallas.estimate_cost(lambda a, b: jnp.exp(a @ b), jnp.ones((4, 8)), jnp.ones((8, 2)))
    CostEstimate(flops=128, transcendentals=8, bytes_accessed=224, remote_bytes_transferred=0)
    """
    leaves, tree = runtime.tree_flatten(args)
    types = [
        runtime.ShapedArray(tuple(x.shape), x.dtype) if hasattr(x, "shape") else avals_module.get_aval(x)
        for x in leaves
    ]

    def flat(*values: Any) -> list[Any]:
        return runtime.tree_flatten(fun(*runtime.tree_unflatten(tree, list(values)), **kwargs))[0]

    closed, outs = trace_to_jaxpr(flat, types)
    flops, transcendentals = _counted(closed.jaxpr)
    return CostEstimate(flops, transcendentals, sum(map(_bytes, [*types, *outs])))


def _bytes(aval: Any) -> int:
    return math.prod(aval.shape) * dtypes.itemsize_bits(aval.dtype) // 8


def _counted(jaxpr: Jaxpr) -> tuple[int, int]:
    flops = transcendentals = 0
    for eqn in jaxpr.eqns:
        kind, name = eqn.primitive.kind, eqn.primitive.name
        size = math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
        if name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            flops += 2 * size * math.prod([eqn.invars[0].aval.shape[d] for d in contracted])
        elif name == "integer_pow":  # by squarings: one for each bit, and a product for each bit that is set
            power = abs(eqn.params["y"])
            flops += size * (power.bit_length() - 1 + power.bit_count()) if power > 1 else 0
        elif name in _TRANSCENDENTAL:
            transcendentals += size
        elif isinstance(kind, kinds.Elementwise) and name != "convert_element_type":
            flops += size
        elif isinstance(kind, kinds.Higher):
            for inner in jaxprs_in_params(eqn.params):
                more = _counted(inner)
                flops, transcendentals = flops + more[0], transcendentals + more[1]
    return flops, transcendentals
