"""Uniform values: those that are the same in every lane, among them the offsets of uniform accesses.

An offset that does not depend on the vector dimension is computed once, in a scalar register, before the vector loop or
at the start of its body, and becomes an address. From a vector of equal offsets a lane would have to be extracted
first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from weft.loops import ir


def moving(nest: ir.Nest, inner: Sequence[int] = ()) -> frozenset[int]:
    """The values that may differ from lane to lane, or along the parallel dimensions ``inner``."""
    if nest.vector is None:
        return frozenset()
    across = nest.dims[nest.vector].role == "parallel"  # every lane has reductions of its own
    dims, found = [nest.vector, *inner, *nest.digits], set[int]()
    for phase in nest.phases:
        differing((*phase.before, *phase.body), lambda s: along(nest, dims, s), found)
        if across:
            found.update([out for reduction in phase.reductions for out in reduction.outs])
    return frozenset(found)


def along(nest: ir.Nest, dims: Collection[int], s: ir.Load | ir.LoadAt | ir.IndexOf) -> bool:
    """Whether a statement accesses other elements at other indices along ``dims``."""
    if isinstance(s, ir.IndexOf):
        return s.dim in dims
    return any(nest.operands[s.operand].strides[d] for d in dims)


def differing(
    statements: Iterable[ir.Statement],
    moves: Callable[[ir.Load | ir.LoadAt | ir.IndexOf], bool],
    found: set[int] | None = None,
) -> set[int]:
    """The values that differ where statements that ``moves`` names access other elements, added to ``found``."""
    found = set() if found is None else found
    for s in statements:
        match s:
            case ir.Load(out) | ir.LoadAt(out) | ir.IndexOf(out):
                differs = moves(s) or not found.isdisjoint(ir.arguments(s))
                found.update((out,) if differs else ())
            case ir.Apply(out):
                found.update((out,) if not found.isdisjoint(s.args) else ())
            case ir.RowLoad(out):
                found.add(out)
            case ir.Scan(outs):
                found.update(outs)
    return found


def offsets(nest: ir.Nest, inner: Sequence[int] = ()) -> frozenset[int]:
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
