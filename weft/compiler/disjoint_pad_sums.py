"""Sums of padded arrays with disjoint regions become one concatenation of the regions.

The gradient of x[0], x[1], ... is a sum with one padded array for every slice, whose cost is quadratic in their number.
If regions are disjoint, every element is one value plus zeros; the bits of that sum are kept.

    a = pad x 0.0 (0, 1, 0); b = pad y 0.0 (1, 0, 0); c = add_any a b   ->   c = concatenate (x + 0.0) (y + 0.0)
"""

from __future__ import annotations

import bisect
import operator
from typing import Any

from weft import operations as lax
from weft.compiler import algebra
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var


class _Sum:
    """Arrays padded with one number, with disjoint regions along one dimension, in order."""

    def __init__(self, dim: int, fill: Literal, start: int, stop: int, atom: Any) -> None:
        self.dim, self.fill, self.rows = dim, fill, [(start, stop, atom)]

    def take(self, other: _Sum) -> bool:
        """Add another sum's regions; False, with no change, if they overlap."""
        if self.dim != other.dim or not all(self._is_free(start, stop) for start, stop, _ in other.rows):
            return False
        for row in other.rows:
            self.rows.insert(self._place(row[0]), row)
        return True

    def _place(self, start: int) -> int:
        return bisect.bisect_left(self.rows, start, key=lambda row: row[0])

    def _is_free(self, start: int, stop: int) -> bool:
        place = self._place(start)
        before = place == 0 or self.rows[place - 1][1] <= start
        return before and (place == len(self.rows) or stop <= self.rows[place][0])


def disjoint_pad_sums(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such sums as concatenations."""
    known = rewrite.index(closed.jaxpr)
    equations, uses = known.eqns, known.uses
    if sum([isinstance(equation.primitive.kind, kinds.Assemble) for equation in equations]) < 2:
        return closed
    sums: dict[Any, _Sum] = {}  # variable -> the sum that it is
    for equation in equations:
        if isinstance(equation.primitive.kind, kinds.Assemble):
            found = _padded(equation)
            if found is not None:
                sums[equation.outvars[0]] = found
        elif isinstance(kind := equation.primitive.kind, kinds.Elementwise) and len(equation.invars) == 2:
            left, right = (None if isinstance(v, Literal) or uses[v] != 1 else sums.get(v) for v in equation.invars)
            if left is None or right is None or left is right:
                continue
            if not (algebra.is_identity(kind, left.fill) and algebra.is_identity(kind, right.fill)):
                continue
            if len(left.rows) < len(right.rows):
                left, right = right, left
            if left.take(right):
                for v in equation.invars:
                    del sums[v]
                sums[equation.outvars[0]] = left
    result: list[Any] = []
    for equation in equations:
        found = None if not equation.outvars or len(equation.invars) != 2 else sums.get(equation.outvars[0])
        found = found if isinstance(equation.primitive.kind, kinds.Elementwise) else None
        result += [equation] if found is None else _concatenated(found, equation)
    return closed if all(map(operator.is_, result, equations)) else rewrite.with_equations(closed, result)


def _padded(equation: JaxprEqn) -> _Sum | None:
    """A pad by a number along one dimension."""
    out = equation.outvars[0].aval
    pieces = equation.primitive.kind.pieces([v.aval for v in equation.invars], out, equation.params)
    if len(pieces) != 2 or not pieces[0].fill:
        return None
    (value, operand), body = (equation.invars[piece.operand] for piece in pieces), pieces[1]
    region, cut = body.region, [dim for dim, extent in enumerate(body.region.extent) if extent != out.shape[dim]]
    if len(cut) != 1 or isinstance(operand, Literal) or not isinstance(value, Literal):
        return None
    if region.extent != operand.aval.shape or not region.is_dense or not operand.aval.size:
        return None
    return _Sum(cut[0], value, region.start[cut[0]], region.stop[cut[0]], operand)


def _concatenated(found: _Sum, equation: JaxprEqn) -> list[Any]:
    """The sum's regions plus zero, and zeros between them, joined as the result of ``equation``."""
    out = equation.outvars[0]
    fill, kind = found.fill, equation.primitive.kind
    made: list[Any] = []
    parts: list[Any] = []

    def gap(extent: int) -> None:
        shape = (*out.aval.shape[: found.dim], extent, *out.aval.shape[found.dim + 1 :])
        parts.append(Var(out.aval.update(shape=shape)))
        params = {"shape": shape, "broadcast_dimensions": (), "sharding": None}
        made.append(JaxprEqn([fill], [parts[-1]], lax.broadcast_in_dim_p, params, source=equation.source))

    end = 0
    for start, stop, atom in found.rows:
        if start > end:
            gap(start - end)
        if not algebra.changes_nothing(kind, fill):  # -0.0 and the others' zeros are +0.0
            parts.append(Var(atom.aval))
            made.append(equation.replace(invars=[atom, fill], outvars=[parts[-1]]))
        else:
            parts.append(atom)
        end = stop
    if end < out.aval.shape[found.dim]:
        gap(out.aval.shape[found.dim] - end)
    made.append(JaxprEqn(parts, [out], lax.concatenate_p, {"dimension": found.dim}, source=equation.source))
    return made
