"""The program of one process: collectives along mesh axes between processes become exchanges.

In: a program of blocks, made by ``local`` for a mesh with one device in each process, whose collectives name axes of
that mesh. Out: the same with equations of ``exchange`` instead. A collective without a rule for it is what
``vmap`` makes of it, with the values of all processes stacked along a new dimension::

    b = psum[axes=('x',)] a:f32[4]        b:f32[4] = exchange[way=reduce combiner=sum groups=((0, 1),)] a
    b = pbroadcast[axis_name=x source=1] a        c:f32[2,4] = exchange[way=gather groups=((0, 1),)] a; b = c[1]
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._base import lazy
from weft.batching.batch_trace import map_flat
from weft.core import axis_names, kinds
from weft.core.avals import get_aval
from weft.core.axis_names import Axis
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params, joined_effects
from weft.core.programs.rewrite import Splicer
from weft.core.sharding import explicit, process_grids
from weft.core.sharding.process_grids import Grid
from weft.core.tracing.source_info import SourceInfo
from weft.core.tracing.trace import trace_to_jaxpr
from weft.dispatch import devices
from weft.operations.data_movement import shape
from weft.operations.data_movement.index import dynamic_index_in_dim
from weft.operations.pointwise import arithmetic
from weft.partitioning import programs
from weft.partitioning.exchange import EXCHANGE, Exchanges, agree

_INDEXED = (kinds.Gather, kinds.Scatter, kinds.DynamicSlice, kinds.DynamicUpdateSlice)


def program_of_process(
    closed: ClosedJaxpr, mesh: Any, ins: Sequence[Any], outs: Sequence[Any], name: str
) -> programs.Partitioned:
    """The program that this process runs on its blocks; ``ins`` and ``outs`` are shardings, None for whole values."""
    if check_scopes.asked(closed):
        _refuse_checked_indices(closed.jaxpr, name)
    grid = process_grids.grid_of(mesh)
    specs = [
        [_spec(sharding, variable.aval.ndim) for sharding, variable in zip(each, variables, strict=True)]
        for each, variables in ((ins, closed.jaxpr.invars), (outs, closed.jaxpr.outvars))
    ]
    made = programs.partition(explicit.erased(closed), grid.outer, specs[0], specs[1])
    return made._replace(local=_agreeing(exchanged(made.local, grid, itertools.count(1)), grid, name))


def _refuse_checked_indices(jaxpr: Jaxpr, name: str) -> None:
    """A process looks up in its part: there indices of other parts are out of bounds, as bad ones are."""
    for equation in jaxpr.eqns:
        if isinstance(equation.primitive.kind, _INDEXED) and "index" in check_scopes.wanted(equation):
            raise NotImplementedError(
                f"[checks] {name}: {equation.primitive.name} at {SourceInfo(equation.source)}: indices are not checked "
                'in arrays across processes. Ask for checks=("nan", "overflow") there, or check the indices in one '
                "process (WEFT_NUM_CPU_DEVICES=8)"
            )
        for inner in jaxprs_in_params(equation.params):
            _refuse_checked_indices(inner, name)


def _agreeing(closed: ClosedJaxpr, grid: Grid, name: str) -> ClosedJaxpr:
    """A program that first makes sure that all processes run it; the same if nothing in it is exchanged."""
    if EXCHANGE not in closed.effects or grid.ranks.size != devices.process_count():
        return closed
    jaxpr = closed.jaxpr
    ranks = tuple(sorted(map(int, grid.ranks.flat)))
    text = re.sub(r"0x[0-9a-f]+", "", str(jaxpr))  # addresses of functions differ
    digest = lazy.hashlib.sha256(text.encode()).digest()
    source = jaxpr.debug_info.func_src_info if jaxpr.debug_info is not None else name
    words = f"jit({name}), {source}"[:400]
    first = trace_to_jaxpr(lambda: agree(ranks, int.from_bytes(digest[:8], "little"), words) or [], [])[0].jaxpr.eqns
    return ClosedJaxpr(jaxpr.replace(eqns=[*first, *jaxpr.eqns]), closed.consts)


def _spec(sharding: Any, ndim: int) -> Any:
    return ((),) * ndim if sharding is None else process_grids.block_spec(sharding, ndim)


def exchanged(closed: ClosedJaxpr, grid: Grid, tags: Iterator[int]) -> ClosedJaxpr:
    """A program whose collectives, those of its loops and branches too, are exchanges; each gets a tag."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        kind = eqn.primitive.kind
        if isinstance(kind, (kinds.Loop, kinds.Branch)):
            return _with_exchanges_inside(eqn, kind, splicer, grid, tags)
        if eqn.primitive.axis_names is None:
            return None
        with axis_names.bound(tuple(grid.outer.items())):
            program = trace_to_jaxpr(
                functools.partial(_collective, eqn, grid, next(tags)), [v.aval for v in eqn.invars]
            )[0]
        return splicer.splice(program, eqn.invars, eqn.source)

    made = Splicer(closed, rule).run()
    effects = joined_effects(made.jaxpr.eqns)
    return ClosedJaxpr(made.jaxpr.replace(effects=effects), made.consts)


def _with_exchanges_inside(
    eqn: JaxprEqn, kind: Any, splicer: Splicer, grid: Grid, tags: Iterator[int]
) -> Sequence[Atom]:
    inner: list[ClosedJaxpr] = []

    def one(program: ClosedJaxpr) -> ClosedJaxpr:
        inner.append(exchanged(program, grid, tags))
        return inner[-1]

    params = kind.mapped(eqn.params, one)
    named = [effect for effect in eqn.effects if isinstance(effect, axis_names.NamedAxis)]
    effects = (eqn.effects - frozenset(named)).union(*[program.effects for program in inner])
    return splicer.emit(eqn.replace(params=params, effects=effects))


def _collective(eqn: JaxprEqn, grid: Grid, tag: int, *operands: Any) -> list[Any]:
    """The results of a collective."""
    primitive = eqn.primitive
    names = primitive.axis_names(eqn.params)
    groups = process_grids.groups_along(grid, names)
    exchanges = Exchanges(groups, tag % (1 << 18), primitive.name)
    rule: Callable[..., Any] | None = primitive.between
    if rule is not None:
        found = rule(exchanges, len(groups[0]), *operands, **eqn.params)
        if found is not NotImplemented:
            return [found]
    return _by_vmap(eqn, grid, names, exchanges, operands)


def _mapped(
    eqn: JaxprEqn, grid: Grid, dims: list[Any], axes: Sequence[Any], values: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """(the results for each element of the axes, where each of the axes is in them)."""
    if not axes:
        out = eqn.primitive.bind(*values, **eqn.params)
        return (list(out) if eqn.primitive.multiple_results else [out]), []
    found: list[Any] = []

    def within(*elements: Any) -> list[Any]:
        outs, inner_dims = _mapped(eqn, grid, dims, axes[1:], elements)
        found[:] = inner_dims
        return outs

    outs, out_dims = map_flat(within, Axis(grid.outer[axes[0]], axes[0]), list(values), dims)
    return outs, [out_dims, *found]


def _by_vmap(
    eqn: JaxprEqn, grid: Grid, names: Sequence[Any], exchanges: Exchanges, operands: Sequence[Any]
) -> list[Any]:
    """The values of all processes are gathered, ``vmap`` gives the result of each, and this one's is taken."""
    sizes = [grid.outer[name] for name in names]
    stacks = []
    for x in operands:
        gathered = exchanges.gather(x)
        stacks.append(shape.reshape(gathered, (*sizes, *get_aval(x).shape)))
    dims: list[Any] = [0] * len(operands)
    outs, out_dims = _mapped(eqn, grid, dims, names, stacks)
    mine = exchanges.rank()
    return [_own(out, number, out_dims, sizes, mine) for number, out in enumerate(outs)]


def _own(out: Any, number: int, out_dims: Sequence[Any], sizes: Sequence[int], mine: Any) -> Any:
    """This process's result, picked from those of all processes, which are mapped over axes (the outermost last)."""
    for at, dims in enumerate(out_dims):
        if dims[number] is None:
            continue
        inner = math.prod(sizes[at + 1 :])
        rank = mine
        if len(sizes) > 1:
            rank = arithmetic.rem(arithmetic.div(mine, np.int32(inner)), np.int32(sizes[at]))
        out = dynamic_index_in_dim(out, rank, dims[number], keepdims=False)
    return out
