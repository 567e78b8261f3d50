"""Library calls: other operations for small matrices and short rows; sorts along rows, of what is read and written.

    b:f32[100000,3,3] = cholesky a   ->   c = sqrt a[:,0,0]; d = a[:,1,0] / c; ...; b = stack of these
    _, b = sort[dimension=1 num_keys=1] x iota   ->   b = sort_order[dimension=1 num_keys=1 moved=() positions=int32] x
    b:f32[8,5] = sort[dimension=0] a   ->   c = transpose a; d = sort[dimension=1] c; b = transpose d

Operations along a batch are one kernel. A sort reads no operand that counts along its axis, writes no unused result,
and is one along the last axis between transposes, which fuse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.passes import sort_lowering
from weft.compiler.passes.affine_indices import affine
from weft.core import kinds
from weft.core.index_maps import Affine
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Var
from weft.core.programs.rewrite import Index, Makers, Splicer
from weft.operations.data_movement import views

_POSITIONS = frozenset(map(np.dtype, (np.int32, np.uint32, np.int64, np.uint64)))


def library_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with its library calls in this form."""
    known = rewrite.index(closed.jaxpr)
    # a small sort that is all of a program stays native, and serves all sizes
    alone = sum(not isinstance(eqn.primitive.kind, kinds.Generate) for eqn in closed.jaxpr.eqns) == 1

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        kind = eqn.primitive.kind
        function = None if kind.unrolled is None else kind.unrolled([v.aval for v in eqn.invars], eqn.params)
        if function is not None and not (alone and sort_lowering.is_small_sort(eqn)):
            return splicer.splice(expansions.of_equation(eqn, function), eqn.invars, eqn.source)
        return _sorted(eqn, splicer, known, in_rows=function is None) if _is_whole_sort(eqn) else None

    return Splicer(closed, rule, (kinds.External,)).run()


def _is_whole_sort(equation: JaxprEqn) -> bool:
    """Whether all operands are sorted, and all are results."""
    ordering = equation.primitive.kind.ordering
    found = None if ordering is None else ordering(equation.params)
    return found is not None and found.largest is None and found.moved is None


def _sorted(equation: JaxprEqn, splicer: Splicer, known: Index, in_rows: bool) -> Sequence[Atom] | None:
    """The results of a sort that reads and writes only what is needed; ``in_rows``: along the last axis."""
    sort, results = _without_counts(equation, known, splicer.makers), equation.outvars
    axis, last = sort.params["dimension"], results[0].aval.ndim - 1
    if not in_rows or axis == last:
        if sort is equation:
            return None
        splicer.emit(sort)
        return results
    order = [last if dim == axis else axis if dim == last else dim for dim in range(last + 1)]
    rows = [views.transpose(splicer.bind, x, order) for x in sort.invars]
    shape = rows[0].aval.shape
    outs = [Var(out.aval.update(shape=shape)) for out in sort.outvars]
    splicer.emit(sort.replace(invars=rows, outvars=outs, params={**sort.params, "dimension": last}))
    made = {out: views.transpose(splicer.bind, x, order) for out, x in zip(sort.outvars, outs, strict=True)}
    return [made.get(out, out) for out in results]


def _without_counts(equation: JaxprEqn, known: Index, makers: Makers) -> JaxprEqn:
    operands, n_keys = equation.invars, equation.params["num_keys"]
    wanted = [k for k, out in enumerate(equation.outvars) if known.uses[out] or out not in known.makers]
    count = next((k for k in wanted if k >= n_keys and _counts(equation, operands[k], makers)), None)
    if count is None and len(wanted) == len(operands):
        return equation
    moved = [k for k in wanted if k != count]
    needed = [k for k in range(len(operands)) if k < n_keys or k in moved]
    results = [equation.outvars[k] for k in (*moved, *([] if count is None else [count]))]
    params = {
        "dimension": equation.params["dimension"],
        "num_keys": n_keys,
        "moved": tuple([needed.index(k) for k in moved]),
        "positions": None if count is None else operands[count].aval.dtype,
    }
    return equation.replace(
        primitive=lax.sort_order_p, invars=[operands[k] for k in needed], outvars=results, params=params
    )


def _counts(equation: JaxprEqn, operand: Atom, makers: Makers) -> bool:
    if not isinstance(operand, Var) or operand.aval.dtype not in _POSITIONS:
        return False
    return affine(operand, makers) == Affine(equation.params["dimension"])
