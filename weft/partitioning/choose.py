"""Chooses how the devices share an equation: along which axes each factor is cut.

Where operands and results agree, nothing moves. Where they do not, every combination of what they ask for is weighed,
and the one that moves the fewest bytes is taken. ``reason`` says in words why a value moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.core.sharding.factors import Dims, Factors
from weft.partitioning import moves
from weft.partitioning.specs import Assigned, Axes, Sizes, Spec, assigned_by, of_dims, shard_bytes

_MOST_COMBINATIONS = 256


class Choice(NamedTuple):
    """What each device reads (``operands``) and makes (``results``), and which axes' results are to be combined."""

    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]
    reduced: tuple[tuple[Axes, str], ...]


def choose(
    factors: Factors, avals: Sequence[Any], operands: Sequence[Spec], out_avals: Sequence[Any], results: Sequence[Spec],
    sizes: Sizes,
) -> Choice:  # fmt: skip
    """How to compute an equation whose operands lie as ``operands`` and whose results are wanted as ``results``."""
    asked: dict[int, list[Axes]] = {}
    rows = (*zip(factors.operands, operands, strict=True), *zip(factors.results, results, strict=True))
    for dims, spec in rows:
        for factor, axes in assigned_by(dims, spec, factors.extents, sizes):
            if factor >= 0 and axes not in asked.setdefault(factor, []):
                asked[factor].append(axes)
    only: Assigned = {factor: found[0] for factor, found in asked.items()}
    if all(len(found) == 1 for found in asked.values()):
        choice = _choice(factors, only, sizes)
        # if the operation itself is a sum, the work is always shared; for rows by index the cost is weighed
        if choice is not None and not (choice.reduced and factors.passes):
            return choice
    best, least = _choice(factors, {}, sizes), float("inf")
    for combination in _combinations(asked):
        choice = _choice(factors, combination, sizes)
        if choice is None:
            continue
        bytes_moved = _cost(choice, avals, operands, out_avals, results, sizes)
        if bytes_moved < least:
            best, least = choice, bytes_moved
    assert best is not None
    return best


def _combinations(asked: dict[int, list[Axes]]) -> Any:
    """The ways to cut a factor: as one operand or result asks, along the first axes of that, or not at all."""
    options = []
    for found in asked.values():
        shorter = [axes[:count] for axes in found for count in range(len(axes) - 1, -1, -1)]
        options.append(list(dict.fromkeys([*found, *shorter])))
    rows = itertools.islice(itertools.product(*options), _MOST_COMBINATIONS)
    return [dict(zip(asked, row, strict=True)) for row in rows]


def _choice(factors: Factors, assigned: Assigned, sizes: Sizes) -> Choice | None:
    """The specs that follow; None if an axis would be used twice, or a dimension cannot be cut so."""
    used = [axis for axes in assigned.values() for axis in axes]
    if len(set(used)) != len(used) and not _independent(factors, assigned):
        return None
    extents = factors.extents
    found = []
    for dims in (*factors.operands, *factors.results):
        spec = of_dims(dims, assigned, extents, sizes)
        if not all(type(dim) is int for dim in dims) and not _is_said(dims, spec, assigned):
            return None
        found.append(spec)
    count = len(factors.operands)
    reduced: dict[str, Axes] = {}
    for factor, combiner in factors.reduced.items():
        axes = assigned.get(factor, ())
        if axes:
            reduced[combiner] = reduced.get(combiner, ()) + axes
    return Choice(
        tuple(found[:count]), tuple(found[count:]), tuple([(axes, combiner) for combiner, axes in reduced.items()])
    )


def _independent(factors: Factors, assigned: Assigned) -> bool:
    """Whether two factors may be cut along one axis, since no value has both (as the operands of a barrier)."""
    group = list(range(len(factors.extents)))
    for dims in (*factors.operands, *factors.results):
        parts = [part for dim in dims for part in (dim if isinstance(dim, tuple) else (dim,)) if part >= 0]
        joined = {group[part] for part in parts}
        group = [min(joined) if number in joined else number for number in group]
    used = [(group[factor], axis) for factor, axes in assigned.items() for axis in axes]
    return len(set(used)) == len(used)


def _is_said(dims: Dims, spec: Spec, assigned: Assigned) -> bool:
    """Whether a spec can say how factors are cut: an inner factor of a dimension only if the outer ones are used up."""
    parts = [part for dim in dims for part in (dim if isinstance(dim, tuple) else (dim,))]
    wanted = {axis for part in parts if part >= 0 for axis in assigned.get(part, ())}
    return wanted == {axis for axes in spec for axis in axes}


def _cost(
    choice: Choice, avals: Sequence[Any], operands: Sequence[Spec], out_avals: Sequence[Any], results: Sequence[Spec],
    sizes: Sizes,
) -> float:  # fmt: skip
    """The bytes that a device receives; a little is added for work that devices do in common."""
    total = 0.0
    for aval, old, new in zip(avals, operands, choice.operands, strict=True):
        if old != new:
            total += moves.cost(moves.moves(old, new), shard_bytes(aval, old, sizes), sizes)
        total += 1e-6 * shard_bytes(aval, new, sizes)
    for aval, made, wanted in zip(out_avals, choice.results, results, strict=True):
        total += moves.cost(steps_of_result(choice.reduced, made, wanted), shard_bytes(aval, made, sizes), sizes)
        total += 1e-6 * shard_bytes(aval, made, sizes)
    return total


def steps_of_result(reduced: Sequence[tuple[Axes, str]], made: Spec, wanted: Spec) -> tuple[moves.Move, ...]:
    """The steps from a result as it is made to how it is wanted."""
    if not reduced:
        return moves.moves(made, wanted) if made != wanted else ()
    ((axes, combiner),) = reduced
    return moves.combined(axes, combiner, made, wanted)
