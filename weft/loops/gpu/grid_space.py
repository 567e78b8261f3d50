"""The space of a body on a GPU: threads over its points, or teams of threads over rows that are reduced.

    x[4096, 1000].sum(1)    ->    a team of threads for each of 4096 rows: a warp, or a block where rows are long
    exp x                   ->    a thread for each point, or for four of them side by side

All loops are in the nest, and none is iterated by the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.loops import ir
from weft.loops.body import Body
from weft.loops.collapse import Loop, collapse, reduced_loops
from weft.loops.reduction_tree import GROUP_BLOCKS
from weft.loops.schedules.cpu_space import Space, has_sorted_targets, ordered_block


def grid_space(body: Body) -> Space:
    """The loops of a body on a GPU."""
    parallel = collapse(body.free, body)
    reduced, digits = reduced_loops(body)
    runs = False
    if reduced and _is_free(body):
        parallel, reduced, digits = collapse(body.axes, body), [], []
    elif not digits and has_sorted_targets(body, parallel, reduced):
        parallel, reduced, runs = [Loop("parallel", reduced[0].axes), *parallel], [], True
    if body.tree == "column" and not parallel:
        parallel = [Loop("parallel")]
    loops = [*parallel, *reduced, *digits]
    vector = len(parallel) - 1 if parallel and not _in_teams(body) and not digits and not runs else None
    extents, nowhere = [None] * len(loops), [None] * len(body.operands)
    block = ordered_block(body) if reduced else 0
    long = _is_long(block, reduced)
    return Space((), parallel, reduced, digits, extents, vector, nowhere, _splits(body), runs=runs, long=long)


def _is_free(body: Body) -> bool:
    """Whether updates may come in any order, and so from any thread."""
    updates = [s for s in body.statements if isinstance(s, ir.Update)]
    return bool(updates) and all(s.free is not None and s.guard is None for s in updates)


def _is_long(block: int, reduced: Sequence[Loop]) -> bool:
    """Whether blocks of the tree go by groups."""
    sides = [loop.extent for loop in reduced]
    return bool(block) and math.prod(sides[:-1]) * -(-sides[-1] // block) > GROUP_BLOCKS


def _in_teams(body: Body) -> bool:
    """Whether threads share a row."""
    return body.tree == "row"


def _splits(body: Body) -> bool:
    """Whether rows may be cut at borders of blocks: what follows the only reductions is done once for each row."""
    reducing = [phase for phase in body.phases if phase[2]]
    only_first = len(reducing) == 1 and bool(body.phases[0][2]) and not any(phase[1] for phase in body.phases[1:])
    stores = any(isinstance(s, ir.Store | ir.Update | ir.Guard) for s in body.phases[0][1])
    return only_first and not stores and not body.rows
