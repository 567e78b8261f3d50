"""grid_loop: runs a program on blocks of whole arrays, once for each cell of a grid.

    c:f32[8,6] = grid_loop[body={...} grid=(4,) maps=({...}, {...}) blocks=(...) num_prefetched=0 ...] a b

Operands: values captured by the body, prefetched arrays, inputs, outputs as they begin. The body takes captured values,
the number of the cell along every axis of the grid, the prefetched arrays, the blocks of inputs and outputs, and
scratch arrays; it returns the blocks of outputs and the scratch arrays. An index map says where the blocks of a cell
lie. Cells run in row-major order, each on what the one before has left in outputs and scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import operations as lax
from weft import runtime
from weft.batching import batch_trace
from weft.control import bodies, grid_cells
from weft.control.grid_blocks import Blocking
from weft.control.grid_order import ARBITRARY, PARALLEL
from weft.core import avals, axis_names, kinds
from weft.core.effects import join
from weft.core.programs.eval import jaxpr_as_fun
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.ref_types import ProgramPrimitive
from weft.core.tracing.trace import trace_to_jaxpr
from weft.operations import mapped

grid_loop_p = ProgramPrimitive(
    "grid_loop", kinds.Resolve(expand=grid_cells.expanded), multiple_results=True, memoize=False
)
grid_loop_p.expansion, grid_loop_p.transpose = grid_cells.in_order, None


def grid_loop(
    prefetched: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    grid: Sequence[int],
    body: ClosedJaxpr,
    maps: Sequence[ClosedJaxpr],
    blocks: Sequence[Blocking],
    scratch: Sequence[Any] = (),
    semantics: Sequence[str] = (),
    name: str = "kernel",
    in_order: bool = False,
) -> list[runtime.Array]:
    """The outputs after ``body`` has run on every cell of a grid.

    ``body``: (numbers of the cell (int32), prefetched arrays, input blocks, output blocks, scratch arrays) -> (output
    blocks, scratch arrays). ``blocks`` and ``maps`` have an entry for each input and output; a map takes the numbers of
    the cell and the prefetched arrays, and gives an int32 for each dimension of its array. ``scratch``: the types of
    the scratch arrays. ``semantics``: "parallel" for an axis along which cells do not depend on each other, otherwise
    "arbitrary". Without ``in_order`` cells that are seen not to depend on each other may run at the same time.

    ValueError if what is given does not fit.
    """
    grid = tuple([int(n) for n in grid])
    program, captured = bodies.without_constants(body)
    for index, n in enumerate(grid):
        if n < 0:
            raise ValueError(f"[{name}] grid[{index}] is {n}: a grid has no negative number of cells")
    semantics = tuple(semantics) or (ARBITRARY,) * len(grid)
    if len(semantics) != len(grid) or not {PARALLEL, ARBITRARY}.issuperset(semantics):
        raise ValueError(
            f"[{name}] semantics are {PARALLEL!r} or {ARBITRARY!r} for each of the {len(grid)} axes of the grid, got "
            f"{semantics}"
        )
    if len(blocks) != len(maps) or len(blocks) != len(inputs) + len(outputs):
        raise ValueError(
            f"[{name}] {len(inputs)} inputs and {len(outputs)} outputs have {len(blocks)} blocks and {len(maps)} maps"
        )
    return grid_loop_p.bind(
        *captured,
        *prefetched,
        *inputs,
        *outputs,
        grid=grid,
        body=program,
        maps=tuple(maps),
        blocks=tuple(blocks),
        counts=(len(captured), len(prefetched), len(inputs)),
        scratch=tuple(scratch),
        semantics=semantics,
        name=name,
        in_order=in_order,
    )


def _type_grid_loop(*types: Any, **params: Any) -> Any:
    parts = grid_cells.Parts.of(types, params)
    name = parts.name
    for which, (aval, block, index_map) in enumerate(zip(parts.arrays, parts.blocks, parts.maps, strict=True)):
        what = f"[{name}] {parts.words(which)}"
        if len(block.shape) != aval.ndim:
            raise ValueError(
                f"{what} is {aval.str_short()}, its block has {len(block.shape)} dimensions: {block.shape}"
            )
        if any(n <= 0 for n in block.shape):
            raise ValueError(f"{what}: a block has at least one element along every dimension, got {block.shape}")
        given = [aval.str_short() for aval in index_map.out_avals]
        if len(given) != aval.ndim or any(a.shape or a.dtype.kind not in "iu" for a in index_map.out_avals):
            raise ValueError(
                f"{what}: its index map gives an integer for each of its {aval.ndim} dimensions, got {given}"
            )
        _check_types(f"{what}: its index map", index_map.in_avals, [*parts.numbers, *parts.prefetched])
    _check_types(f"[{name}] the body", parts.body.in_avals, parts.body_types())
    _check_types(f"[{name}] the body's result", parts.body.out_avals, parts.result_types(), "gives")
    return list(parts.outputs), join(parts.body.effects, *[m.effects for m in parts.maps])


grid_loop_p.def_effectful_abstract_eval(_type_grid_loop)


def _check_types(what: str, found: Sequence[Any], wanted: Sequence[Any], verb: str = "takes") -> None:
    if len(found) != len(wanted):
        raise ValueError(f"{what} {verb} {len(found)} values, but the grid has {len(wanted)} for it")
    for index, (own, given) in enumerate(zip(found, wanted, strict=True)):
        if own.shape != given.shape or own.dtype != given.dtype:
            raise ValueError(f"{what} {verb} {own.str_short()} as value {index}, but it is {given.str_short()}")


def _batch(size: int, values: list[Any], dims: list[int | None], **params: Any) -> Any:
    """One axis of the grid more, in front: its cells have slices of their own of the mapped operands."""
    parts = grid_cells.Parts.of([avals.get_aval(x) for x in values], params)
    own, ahead, n_in = parts.counts
    first = own + ahead  # of the inputs
    flags = [dim is not None for dim in dims[: first + n_in]] + [True] * len(parts.outputs)
    led = [mapped.in_front(size, x, dim) if flag else x for x, dim, flag in zip(values, dims, flags, strict=True)]

    def mine(number: Any, given: Sequence[Any], mapped_: Sequence[bool]) -> list[Any]:
        return [
            lax.dynamic_index_in_dim(x, number, 0, keepdims=False) if flag else x
            for x, flag in zip(given, mapped_, strict=True)
        ]

    def run(*args: Any) -> list[Any]:
        captured, number, rest = args[:own], args[own], args[own + 1 :]
        n = len(parts.grid)
        prefetched = mine(number, rest[n : n + ahead], flags[own:first])
        captured = mine(number, captured, flags[:own])
        return jaxpr_as_fun(parts.body)(*captured, *rest[:n], *prefetched, *rest[n + ahead :])

    def index_map(program: ClosedJaxpr, flag: bool) -> Any:
        def find(*args: Any) -> list[Any]:
            number, rest, n = args[0], args[1:], len(parts.grid)
            found = jaxpr_as_fun(program)(*rest[:n], *mine(number, rest[n:], flags[own:first]))
            return [number, *found] if flag else found

        return trace_to_jaxpr(find, [parts.number, *parts.numbers, *types[own:first]])[0]

    types = [avals.get_aval(x) for x in led]
    body_types = list(parts.body.in_avals)
    body_types[:own] = types[:own]
    body_types[own + len(parts.grid) : own + len(parts.grid) + ahead] = types[own:first]
    body_types.insert(own, parts.number)
    ways = list(zip(parts.blocks, parts.maps, flags[first:], strict=True))
    changed = {
        **params,
        "grid": (size, *parts.grid),
        "body": trace_to_jaxpr(run, body_types, of_program=True)[0],
        "maps": tuple([index_map(program, flag) for _, program, flag in ways]),
        "blocks": tuple([block.with_front() if flag else block for block, _, flag in ways]),
        "semantics": (PARALLEL, *params["semantics"]),
    }
    outs = grid_loop_p.bind(*led, **changed)
    return outs, [0] * len(outs)


def _batch_axis(axis: Any, values: list[Any], dims: list[int | None], **params: Any) -> Any:
    """Cells that combine values along the mapped axis run in step; otherwise the axis is one of the grid."""
    if axis.name is not None and axis_names.concerned(grid_loop_p, params, axis.name):
        return batch_trace.map_flat(lambda *args: grid_cells.in_order(*args, **params), axis, values, dims)
    return _batch(axis.size, values, dims, **params)


grid_loop_p.batch, grid_loop_p.batch_axis = None, _batch_axis
