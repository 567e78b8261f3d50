"""jet: Taylor mode, the coefficients of a function of a truncated power series, to any order.

Values travel with their coefficients under ``JetTrace``, in the trace that encloses the call, as ``autodiff.jvp`` does
with tangents. The work for order K grows as K^2 for each operation, where derivatives of derivatives grow as 2^K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.core import avals as avals_module
from weft.core import kinds
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.tangents import plain, with_attributes
from weft.core.tracing import provenance
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import Trace, set_current
from weft.core.tracing.tracer import Tracer
from weft.experimental import taylor_rules
from weft.experimental.taylor_rules import Series
from weft.operations import linear
from weft.operations.data_movement import assemble
from weft.operations.pointwise import convert

__all__ = ["jet"]

state = tracing.state
_INLINED = frozenset(("jit", "remat2", "custom_vjp_call"))


class JetTracer(Tracer):
    """A value and the coefficients of its series, not all zero; None stands for zero."""

    __slots__ = ("primal", "terms")

    def __init__(self, trace: Trace, primal: Any, terms: list[Any]) -> None:
        self._trace = trace
        self.aval = avals_module.get_aval(primal)
        self.primal = with_attributes(primal)
        self.terms = terms

    def _origin(self) -> provenance.Origin | None:
        return self.primal._origin() if isinstance(self.primal, Tracer) else None

    def __bool__(self) -> bool:
        return bool(self.primal)


class JetTrace(Trace):
    """Operations on series; ``parent`` is the trace that encloses the call."""

    __slots__ = ("order", "parent")

    def __init__(self, parent: Trace, order: int) -> None:
        super().__init__(state.level + 1)
        self.parent = parent
        self.order = order

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        operands = [self.split(x) for x in args]
        if all(map(taylor_rules.is_constant, operands)):
            with set_current(self.parent):
                return self.parent.process(primitive, tuple([u[0] for u in operands]), params)
        if type(primitive.kind) is kinds.Higher and primitive.name in _INLINED:
            inner: ClosedJaxpr = primitive.kind.inline(params)
            return eval_jaxpr(inner.jaxpr, inner.consts, *args)
        with set_current(self.parent):
            results = taylor_rules.propagate(primitive, operands, params, self.order, _evaluate)
        outs = [self.join(w) for w in results]
        return outs if primitive.multiple_results else outs[0]

    def split(self, value: Any) -> Series:
        """A value with its coefficients."""
        if isinstance(value, JetTracer) and value._trace is self:
            return [value.primal, *value.terms]
        return [with_attributes(value), *[None] * self.order]

    def join(self, series: Series) -> Any:
        return series[0] if taylor_rules.is_constant(series) else JetTracer(self, series[0], series[1:])


def _run(function: Callable[..., Sequence[Any]], inputs: Sequence[Series], order: int) -> list[Series]:
    """A function of flat lists on series."""
    trace = JetTrace(state.trace, order)
    try:
        with set_current(trace):
            outs = [trace.split(out) for out in function(*[trace.join(u) for u in inputs])]
    finally:
        trace.valid = False
    return [[plain(w[0]), *w[1:]] for w in outs]


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], inputs: list[Series], order: int) -> list[Series]:
    return _run(lambda *args: eval_jaxpr(jaxpr, consts, *args), inputs, order)


def jet(
    fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Any], factorial_scaled: bool = True, **_: Any
) -> tuple[Any, Any]:
    """The Taylor series of ``fun`` along a curve: values and derivatives of ``fun(x(t))`` at t = 0.

    ``primals`` are the arguments x(0), arrays; ``series`` has for each of them a list of its derivatives x'(0),
    x''(0), ..., as many for all. Gives ``fun(*primals)`` and, in its structure, lists of as many derivatives of the
    results. With ``factorial_scaled=False`` all derivatives are coefficients instead, the k-th divided by k!.
    ValueError for lists of different lengths and primals that are no arrays, NotImplementedError (naming the primitive)
    for operations without a derivative.

    >>> value, derivatives = jet(jnp.exp, (0.0,), ([1.0, 0.0, 0.0],))
    >>> [float(d) for d in derivatives]
    [1.0, 1.0, 1.0]
    """
    if len(primals) != len(series):
        raise ValueError(f"[jet] {len(primals)} primals but {len(series)} series: each argument has one")
    for index, primal in enumerate(primals):
        if not avals_module.is_valid(primal):
            raise ValueError(f"primal value at position {index} is not an array")
    lengths = {len(terms) for terms in series}
    if len(lengths) > 1:
        raise ValueError("jet terms have inconsistent lengths for different arguments")
    order = lengths.pop() if lengths else 0
    factors = [math.factorial(k) if factorial_scaled else 1 for k in range(1, order + 1)]
    inputs = [_input(index, x, terms, factors) for index, (x, terms) in enumerate(zip(primals, series, strict=True))]
    tree: list[Any] = [None]

    def flat(*args: Any) -> list[Any]:
        leaves, tree[0] = runtime.tree_flatten(fun(*args))
        return leaves

    outs = _run(flat, inputs, order)
    values = [w[0] for w in outs]
    terms = [[_output(w[0], x, factor) for x, factor in zip(w[1:], factors, strict=True)] for w in outs]
    return runtime.tree_unflatten(tree[0], values), runtime.tree_unflatten(tree[0], terms)


def _input(index: int, primal: Any, terms: Sequence[Any], factors: Sequence[int]) -> Series:
    """An argument's series as coefficients."""
    aval = avals_module.get_aval(primal)
    found = [primal]
    for number, (term, factor) in enumerate(zip(terms, factors, strict=True), 1):
        own = avals_module.get_aval(term)
        if own.shape not in ((), aval.shape):
            raise ValueError(
                f"[jet] term {number} of argument {index} is {own.str_short()}, the argument {aval.str_short()}: they "
                "have one shape"
            )
        dtype = aval.dtype if dtypes.issubdtype(aval.dtype, np.inexact) else own.dtype
        given = convert.convert(term, dtype, False) if own.dtype != dtype else term
        found.append(taylor_rules.scaled(linear.broadcast_tangent(given, aval.update(dtype=dtype)), 1 / factor))
    return found


def _output(value: Any, term: Any, factor: int) -> Any:
    if term is not None:
        return taylor_rules.scaled(term, factor)
    aval = avals_module.get_aval(value)
    dtype = aval.dtype if dtypes.issubdtype(aval.dtype, np.inexact) else np.dtype(np.float32)
    return assemble.full(aval.shape, 0, dtype)
