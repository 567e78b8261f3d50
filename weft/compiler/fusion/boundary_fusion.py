"""Fuses kernels that write slabs one element wide with the kernel that writes the rows between them.

    y = x.at[1:-1, 1:-1].add(f(x)):  the columns y[1:-1, 0] and y[1:-1, -1] are stored by the kernel of y[1:-1, 1:-1]

As separate kernels they would load a cache line for every element, and take it from the core that wrote the row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from weft.compiler.fusion.kernels import Kernels, Step
from weft.core.programs.jaxpr import Var
from weft.errors import InternalError
from weft.loops import ir
from weft.loops.nests import Lowered, Params

Entry = tuple[Step, Lowered | None]


def boundary_fusion(kernels: Kernels, lowered: Sequence[Lowered | None]) -> tuple[Kernels, list[Lowered | None]]:
    """The same program with fewer steps; extents decide."""
    if kernels.guards is not None:  # each kernel has a guard of its own
        return kernels, list(lowered)
    computed = {v for step in kernels.steps if step.kernel is None for v in step.equation.outvars}
    kept: list[Entry] = []
    for entry in zip(kernels.steps, lowered, strict=True):
        while kept:
            found = _joined(kept[-1], entry, computed) or _joined(entry, kept[-1], computed)
            if found is None:
                break
            entry = found
            kept.pop()
        kept.append(entry)
    steps = tuple([step for step, _ in kept])
    return kernels.replace(steps=steps), [low for _, low in kept]


def _joined(main: Entry, slab: Entry, computed: set[Var]) -> Entry | None:
    """``main`` with the stores of ``slab``, or None if that is not a slab of its rows."""
    rows, edge = main[1], slab[1]
    if rows is None or edge is None or main[0].copies or slab[0].copies or not (_is_map(rows) and _is_map(edge)):
        return None
    if len(rows.extents) != len(edge.extents) or rows.outer != edge.outer or edge.nest.edges:
        return None
    if rows.extents[:-1] != edge.extents[:-1] or edge.extents[-1] != 1 or rows.extents[-1] == 1:
        return None
    # extents that merely happen to be equal: another shape would give another program
    if _symbols(main) != _symbols(slab):
        return None
    made = [{b.variable for b in low.operands if b.role == "out"} for low in (rows, edge)]
    read = {b.variable for low in (rows, edge) for b in low.operands if b.role == "in"}
    if made[0] != made[1] or read & (computed | made[0]):
        return None
    return main[0], _with_edge(rows, edge)


def _symbols(entry: Entry) -> list[int]:
    kernel = entry[0].kernel
    return [axis.symbol for axis in kernel.axes[:-1]] if kernel else []


def _is_map(low: Lowered) -> bool:
    """Whether a nest is elementwise, with lanes along its last dimension."""
    return _maps(low.nest) and not any(b.starts for b in low.operands)


@functools.lru_cache(1024)
def _maps(nest: ir.Nest) -> bool:
    return nest.is_map


def _with_edge(rows: Lowered, edge: Lowered) -> Lowered:
    """The nest of ``rows`` that also stores ``edge``, once for each row."""
    merged = _merged(rows.nest, edge.nest)
    bindings = [b._replace(strides=(*b.strides[:-1], 0)) for b in edge.operands]
    operands = (*rows.operands, *bindings)
    words = list(rows.extents)
    for kind, binding in zip(merged.operands, operands, strict=True):
        words += [step for step, given in zip(binding.strides, kind.strides, strict=True) if given == ir.RUNTIME]
    params = Params(tuple(words), (*rows.params.scalars, *edge.params.scalars))
    return Lowered(rows.name, merged, operands, rows.extents, rows.outer, params)


@functools.lru_cache(256)
def _merged(nest: ir.Nest, added: ir.Nest) -> ir.Nest:
    (phase,) = added.phases
    first = 1 + max(getattr(s, "out", -1) for s in nest.statements())
    setup, points = (
        tuple([_renumbered(s, first, len(nest.operands), len(nest.scalars)) for s in statements])
        for statements in (added.setup, (*phase.before, *phase.body))
    )
    still = [ir.Operand(o.dtype, o.role, (*o.strides[:-1], 0)) for o in added.operands]
    return nest.replace(
        operands=(*nest.operands, *still),
        scalars=(*nest.scalars, *added.scalars),
        setup=(*nest.setup, *setup),
        edges=(*nest.edges, *points),
    )


def _renumbered(s: ir.Statement, first: int, operand: int, scalar: int) -> ir.Statement:
    """The statement with values, operands and scalars renumbered to follow those of another nest."""
    match s:
        case ir.Load():
            return ir.Load(s.out + first, s.operand + operand)
        case ir.Store():
            return ir.Store(s.operand + operand, s.value + first)
        case ir.Param():
            return ir.Param(s.out + first, s.index + scalar, s.dtype)
        case ir.Apply():
            return s.replace(out=s.out + first, args=tuple([arg + first for arg in s.args]))
    raise InternalError(f"{s} on the edge of rows", stage="boundary_fusion")
