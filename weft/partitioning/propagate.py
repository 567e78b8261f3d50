"""Propagation: from the shardings of some values to one for every value of a program.

Known are the specs of inputs, results and constraints; they are never changed. Every equation passes on what it knows
of its factors (``rules``) to its other operands and results, until nothing changes: first the equations that only move
elements or compute one from those at the same index, then contractions and reductions. Where two values disagree,
the larger one wins, since it would cost more to move; in a tie the one that comes first.

    a:f32[8,16] known as (x, -)   w:f32[16,4]          b:f32[8,4] = dot_general a w     ->   b is (x, -)
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from weft.core.sharding.factors import Dims
from weft.partitioning import rows, rules
from weft.partitioning.flat import shards_of
from weft.partitioning.specs import Axes, Sizes, Spec, assigned_by, of_dimension, parts, replicated

OPEN = None  # a dimension whose axes are left to propagation


class _Node:
    """Variables that share factors: those of an equation, or those that a loop ties together."""

    __slots__ = ("dims", "extents", "is_simple", "passes", "variables")

    def __init__(self, variables: list[Var], dims: list[Dims], extents: Sequence[int], passes: bool) -> None:
        self.variables, self.dims, self.extents, self.passes = variables, dims, extents, passes
        self.is_simple = not any(type(dim) is tuple for each in dims for dim in each)


class FactoredProgram(NamedTuple):
    """A flat program with the factors of its equations, inner ones included."""

    closed: ClosedJaxpr
    factors: dict[JaxprEqn, Any]
    nodes: list[_Node]
    constraints: list[JaxprEqn]
    equal: dict[Any, Any]  # equal factors are one object
    sizes: Sizes
    asked: dict[Any, Spec]  # what programs of shards ask of their operands (by a variable for each) and results


def analysed(closed: ClosedJaxpr, sizes: Sizes | None = None) -> FactoredProgram:
    """The factors of a flat program; ``sizes`` are those of the axes of the mesh."""
    program = FactoredProgram(closed, {}, [], [], {}, sizes or {}, {})
    _analyse(closed.jaxpr, program)
    return program


def _analyse(jaxpr: Jaxpr, program: FactoredProgram) -> None:
    for eqn in jaxpr.eqns:
        links = rules.links(eqn)
        if links is not None:
            _analyse_links(eqn, links, program)
            continue
        kind = eqn.primitive.kind
        if type(kind) is kinds.Higher and _analyse_shards(eqn, program):
            continue
        found = rows.shared(eqn, rules.factors(eqn))
        key = found.operands, found.results, found.extents, *found.reduced.items()
        program.factors[eqn] = found = program.equal.setdefault(key, found)
        found = rules.kept_whole(eqn, found)
        if type(kind) is kinds.Identity and kind.constraint is not None:
            program.constraints.append(eqn)
        variables: list[Any] = []
        dims = []
        for atom, own in zip((*eqn.invars, *eqn.outvars), (*found.operands, *found.results), strict=True):
            if own and type(atom) is not Literal:
                variables.append(atom)
                dims.append(own)
        if len(variables) > 1:
            program.nodes.append(_Node(variables, dims, found.extents, found.passes))


def _analyse_shards(eqn: JaxprEqn, program: FactoredProgram) -> bool:
    """Operands and results lie as the user's program of shards says."""
    shards = shards_of(eqn, program.sizes)
    if shards is None:
        return False
    program.asked.update(zip(eqn.outvars, shards.out_specs, strict=True))
    for atom, spec in zip(eqn.invars, shards.in_specs, strict=True):
        if type(atom) is not Literal and spec:
            asked = Var(atom.aval)
            program.asked[asked] = spec
            dims = tuple(range(len(spec)))
            program.nodes.append(_Node([atom, asked], [dims, dims], atom.aval.shape, True))
    return True


def _analyse_links(eqn: JaxprEqn, links: list[rules.Link], program: FactoredProgram) -> None:
    kind: Any = eqn.primitive.kind
    if isinstance(kind, kinds.Branch):
        inner = kind.branches(eqn.params)
    else:
        parts_ = kind.parts(eqn.params)
        inner = [part for part in (parts_.cond, parts_.body) if part is not None]
    for part in inner:
        _analyse(part.jaxpr, program)
    for link in links:
        pairs = [(v, n) for v, n in zip(link.variables, link.drop, strict=True) if type(v) is not Literal]
        if not pairs:
            continue
        first, drop = pairs[0]
        extents = first.aval.shape[drop:]
        dims: list[Dims] = [(*[-1] * n, *range(len(extents))) for _, n in pairs]
        if extents and len(pairs) > 1:
            program.nodes.append(_Node([v for v, _ in pairs], dims, extents, True))


class Known:
    """The specs of variables; a dimension that is closed keeps its axes."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.specs: dict[Any, Spec] = {}
        self.closed: dict[Any, tuple[bool, ...]] = {}
        self.all_closed: set[Any] = set()
        self.results: list[Spec | None] = []  # what the user asks of results, which may be inputs too

    def set(self, variable: Any, given: Sequence[Axes | None] | None) -> None:
        """What the user asks of a variable, unless it is known already; ``OPEN`` dimensions may get axes."""
        if given is None or type(variable) is Literal or variable in self.closed:
            return
        self.specs[variable] = tuple([axes or () for axes in given])
        self.closed[variable] = closed = tuple([axes is not OPEN for axes in given])
        if all(closed):
            self.all_closed.add(variable)

    def of(self, variable: Any) -> Spec:
        if type(variable) is Literal:
            return ()
        found = self.specs.get(variable)
        return replicated(len(variable.aval.shape)) if found is None else found


def propagate(program: FactoredProgram, known: Known) -> None:
    """Give every variable of the program a spec (those without one in ``known.specs`` are not cut)."""
    for variable in program.closed.jaxpr.constvars:
        known.set(variable, replicated(len(variable.aval.shape)))
    for variable, spec in program.asked.items():
        known.set(variable, spec)
    readers: dict[Any, list[int]] = {}
    for number, node in enumerate(program.nodes):
        for variable in node.variables:
            readers.setdefault(variable, []).append(number)
    for last in (False, True):
        _run(program.nodes, known, readers, last)


def _run(nodes: list[_Node], known: Known, readers: dict[Any, list[int]], last: bool) -> None:
    """Visit nodes in order of the program, and a node again when one of its variables has changed."""
    found = {number for variable in known.specs for number in readers.get(variable, ())}
    queue = sorted([number for number in found if nodes[number].passes is not last])  # the others are settled
    waiting = set(queue)
    while queue:
        number = heapq.heappop(queue)
        waiting.discard(number)
        node = nodes[number]
        if not (last or node.passes):
            continue
        for variable in _visit(node, known):
            for other in readers[variable]:
                if other != number and other not in waiting:
                    waiting.add(other)
                    heapq.heappush(queue, other)


def _visit(node: _Node, known: Known) -> list[Var]:
    """Pass on what is known of the factors of a node; the variables that have changed."""
    best, weights = _best(node, known)
    if not best:
        return []
    changed = []
    specs = known.specs
    for variable, dims in zip(node.variables, node.dims, strict=True):
        if variable in known.all_closed:
            continue
        spec = specs.get(variable)
        if spec is None:
            spec = replicated(len(dims))
        made = _extended(variable, dims, spec, node, known, best, weights)
        if made is not spec:
            specs[variable] = made
            changed.append(variable)
    return changed


def _best(node: _Node, known: Known) -> tuple[dict[int, Axes], dict[int, int]]:
    """For each factor the axes that most bytes ask for, and these bytes."""
    best: dict[int, Axes] = {}
    weights: dict[int, int] = {}
    specs, sizes = known.specs, known.sizes
    for variable, dims in zip(node.variables, node.dims, strict=True):
        spec = specs.get(variable)
        if spec is None:
            continue
        if node.is_simple:
            offers: Any = zip(dims, spec, strict=True)
        else:
            offers = assigned_by(dims, spec, node.extents, sizes)
        size = None
        for factor, axes in offers:
            if not axes or factor < 0:
                continue
            have = best.get(factor)
            if have == axes:
                continue
            if size is None:
                size = variable.aval.size * variable.aval.dtype.itemsize
            if have is None or have == axes[: len(have)] or (have[: len(axes)] != axes and size > weights[factor]):
                best[factor] = axes
                weights[factor] = max(size, weights.get(factor, 0))
    return best, weights


def _extended(
    variable: Var, dims: Dims, spec: Spec, node: _Node, known: Known, best: dict[int, Axes], weights: dict[int, int]
) -> Spec:
    """The spec with what its factors ask for, where dimensions are open, axes unused and extents divisible."""
    wanted: list[tuple[int, int, Axes]] = []
    for at, dim in enumerate(dims):
        if type(dim) is int:
            axes = best.get(dim)
            weight = dim
        else:
            axes = of_dimension(dim, best, node.extents, known.sizes)
            weight = dim[0]  # type: ignore[index] - a dimension is an int or a tuple
        have = spec[at]
        if axes and axes != have and axes[: len(have)] == have:
            wanted.append((-weights.get(weight, 0), at, axes))
    if not wanted:
        return spec
    closed = known.closed.get(variable)
    used = {axis for axes in spec for axis in axes}
    made = list(spec)
    for _, at, axes in sorted(wanted) if len(wanted) > 1 else wanted:
        if closed is not None and closed[at]:
            continue
        have = made[at]
        added = _allowed(axes[len(have) :], used, variable.aval.shape[at] // parts(have, known.sizes), known.sizes)
        made[at] = (*have, *added)
        used.update(added)
    found = tuple(made)
    return spec if found == spec else found


def _allowed(axes: Axes, used: set[Any], extent: int, sizes: Sizes) -> Axes:
    """As many of these axes as are unused and divide the extent."""
    count = 0
    for axis in axes:
        if axis in used or extent % sizes[axis] or not extent:
            break
        extent //= sizes[axis]
        count += 1
    return axes[:count]
