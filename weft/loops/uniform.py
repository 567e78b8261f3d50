"""Uniform values: those that are the same in every lane, among them the offsets of uniform accesses.

An offset that does not depend on the vector dimension is computed once, in a scalar register, before the vector loop or
at the start of its body, and becomes an address. From a vector of equal offsets a lane would have to be extracted
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.loops import ir


def moving(nest: ir.Nest, inner: Sequence[int] = ()) -> frozenset[int]:
    """The values that may differ from lane to lane, or along the parallel dimensions ``inner``."""
    if nest.vector is None:
        return frozenset()
    dims = [nest.vector, *inner, *nest.digits]
    across = nest.dims[nest.vector].role == "parallel"  # every lane has reductions of its own
    found: set[int] = set()
    for phase in nest.phases:
        for s in (*phase.before, *phase.body):
            found.update(_moved(s, nest, dims, found))
        if across:
            found.update(out for reduction in phase.reductions for out in reduction.outs)
    return frozenset(found)


def _moved(s: ir.Statement, nest: ir.Nest, dims: Sequence[int], found: set[int]) -> Iterable[int]:
    match s:
        case ir.Load(out, operand):
            return (out,) if any(nest.operands[operand].strides[d] for d in dims) else ()
        case ir.LoadAt(out, operand, offset, inside):
            return (out,) if {offset, inside} & found or any(nest.operands[operand].strides[d] for d in dims) else ()
        case ir.IndexOf(out, dim):
            return (out,) if dim in dims else ()
        case ir.Apply(out):
            return (out,) if not found.isdisjoint(s.args) else ()
        case ir.RowLoad(out):
            return (out,)
        case ir.Scan(outs):
            return outs
    return ()


def places(nest: ir.Nest, inner: Sequence[int] = ()) -> frozenset[int]:
    """The offsets that are not in ``moving``, and the values from which they are computed."""
    statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]
    if {ir.LoadAt, ir.Update}.isdisjoint(map(type, statements)):
        return frozenset()
    differ = moving(nest, inner)
    wanted: set[int] = set()
    for s in reversed(statements):
        if isinstance(s, ir.LoadAt | ir.Update):
            wanted.add(s.offset)
        if isinstance(s, ir.Update) and s.inside is not None:
            wanted.add(s.inside)
        if getattr(s, "out", None) in wanted and s.out not in differ:  # type: ignore[union-attr]
            wanted.update(ir.arguments(s))
    return frozenset(wanted - differ)
