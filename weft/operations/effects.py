"""Operations that compute nothing: copy, stop_gradient, optimization_barrier, dce_sink.

Their outputs are their operands (kinds.Identity); fusion stops at a barrier.
"""

from __future__ import annotations

from typing import Any

from weft import core, runtime
from weft.core import kinds
from weft.core.primitive import ALL
from weft.core.tangents import Zero
from weft.runtime import Array

__all__ = [
    "copy",
    "copy_p",
    "dce_sink",
    "dce_sink_p",
    "optimization_barrier",
    "optimization_barrier_p",
    "stop_gradient",
    "stop_gradient_p",
]

ArrayLike = Any


def _same(x: Any) -> Any:
    return x


copy_p = core.Primitive("copy", kind=kinds.Identity(copies=True))
copy_p.def_abstract_eval(lambda x: runtime.ShapedArray(x.shape, x.dtype, x.weak_type))
copy_p.linear = ALL
copy_p.transpose = lambda ct, x: (copy_p.bind(ct),)


def copy(x: ArrayLike) -> Array:
    """The operand; arrays are immutable, so that nothing needs copying.

    >>> lax.copy(np.float32([1, 2])).tolist()
    [1.0, 2.0]
    """
    return copy_p.bind(x)


stop_gradient_p = core.Primitive("stop_gradient", kind=kinds.Identity())
stop_gradient_p.def_abstract_eval(_same)
stop_gradient_p.partials = (None,)
stop_gradient_p.transpose = None


def stop_gradient(x: Any) -> Any:
    """The operand (a tree of arrays), which differentiation treats as constant. Python numbers are returned unchanged.

    >>> lax.stop_gradient(np.float32([1, 2])).tolist()
    [1.0, 2.0]
    """
    leaves, treedef = runtime.tree_flatten(x)
    numbers = (bool, int, float, complex)
    return runtime.tree_unflatten(
        treedef, [leaf if type(leaf) in numbers else stop_gradient_p.bind(leaf) for leaf in leaves]
    )


optimization_barrier_p = core.Primitive(
    "optimization_barrier", kind=kinds.Identity(barrier=True), multiple_results=True
)
optimization_barrier_p.def_abstract_eval(lambda *avals: list(avals))


def _barrier_jvp(primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
    """Nonzero tangents pass a separate barrier."""
    out = optimization_barrier_p.bind(*primals)
    passed = iter(_barrier([t for t in tangents if type(t) is not Zero]))
    return out, [t if type(t) is Zero else next(passed) for t in tangents]


def _barrier(values: list[Any]) -> list[Any]:
    return optimization_barrier_p.bind(*values) if values else []


def _barrier_transpose(cts: Any, *operands: Any) -> list[Any]:
    passed = iter(_barrier([ct for ct in cts if type(ct) is not Zero]))
    return [ct if type(ct) is Zero else next(passed) for ct in cts]


optimization_barrier_p.jvp = _barrier_jvp
optimization_barrier_p.transpose = _barrier_transpose


def optimization_barrier(operand: Any, /) -> Any:
    """The operand (a tree of arrays); nothing before it is fused with anything after it.

    >>> [x.tolist() for x in lax.optimization_barrier((np.int32([1]), np.int32([2])))]
    [[1], [2]]
    """
    leaves, treedef = runtime.tree_flatten(operand)
    if not leaves:
        return operand
    return runtime.tree_unflatten(treedef, optimization_barrier_p.bind(*leaves))


def _nothing(*values: Any, **params: Any) -> tuple[()]:
    return ()


# No result: the program shows that the values are wanted, and compiled code leaves it out.
dce_sink_p = core.Primitive(
    "dce_sink", kind=kinds.Effect(_nothing, admit=lambda params: False), multiple_results=True, memoize=False
)
dce_sink_p.def_abstract_eval(lambda *in_avals, **params: [])
dce_sink_p.jvp = lambda primals, tangents, **params: (dce_sink_p.bind(*primals, **params), [])
dce_sink_p.transpose = lambda cts, *operands, **params: [None] * len(operands)
dce_sink_p.batch = lambda size, values, dims, **params: (dce_sink_p.bind(*values, **params), [])


def dce_sink(val: Any) -> None:
    """Mark a tree of arrays as used, so that printed and lowered programs keep what computes them.

    >>> print(weft.make_jaxpr(lambda x: lax.dce_sink(lax.sin(x)))(1.0))
    { lambda ; a:f32[]. let
        b:f32[] = sin a
        dce_sink[prevent_mlir_dce=False] b
      in () }
    """
    dce_sink_p.bind(*runtime.tree_flatten(val)[0], prevent_mlir_dce=False)
