"""Grids of kernels over arrays with open extents: a loop over all cells, in order.

grid (cdiv(b, 128),), blocks of 128 of f32[b]   ->   pad to 128*cdiv(b, 128); for cell in 0..cdiv(b, 128): ...; cut

How cells are run apart is decided by the extents, and by index maps at all of them; where these are open cells run one
after the other, by operations that are the same for all.
"""

from __future__ import annotations

from weft.compiler import expansions
from weft.control import grid_cells
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn
from weft.stablehlo.unknown_sizes import open_equations
from weft.stablehlo.unknown_sizes.symbolic_dims import is_symbolic_dim


def cells(eqn: open_equations.OpenEqn) -> ClosedJaxpr:
    """The program of the cells of a ``grid_loop``."""
    parts = grid_cells.Parts.of([v.aval for v in eqn.invars], eqn.params)
    for aval, block in zip(parts.arrays, parts.blocks, strict=True):
        for extent, size in zip(aval.shape, block.shape, strict=True):
            if is_symbolic_dim(extent):  # into how many blocks it is padded is written nowhere in the program
                eqn.fit.session.computes_with(-(-extent // size))

    def expand(eqn: JaxprEqn) -> ClosedJaxpr:
        return expansions.traced(lambda *xs: grid_cells.in_order(*xs, **eqn.params), [v.aval for v in eqn.invars])

    program = open_equations.program(eqn, expand)
    assert program is not None
    return program
