"""Elementwise results of rolled arrays, region by region: no rolled array is made.

    b = roll a 1; c = add a b   ->   c = concatenate (a[:1] + a[-1:]) (a[1:] + a[:-1])

A roll reads one stretch of its array in each region that its ends cut; what is computed from several of them is put
together from the regions that all of their ends cut. The regions share no element, so that nothing is computed twice.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft import operations as lax
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.rewrite import Index, Makers
from weft.record import NamedTuple

LEAST_SIZE = 1 << 14  # smaller arrays would rather have fewer kernels
MOST_REGIONS = 27
MOST_EQUATIONS = 512  # of all regions of a result
MOST_INNER = 128  # computed where they are read, of a result; by recursion, which a longer chain would exhaust
MOST_NESTED = 16  # rolls of rolls
LEAST_SHARE = 0.75  # of the elements, in the largest region


class Roll(NamedTuple):
    """Element i along ``dim`` is element (i + cut) % extent of ``source``."""

    source: Any
    dim: int
    cut: int


def _rolls_of(known: Index) -> dict[Any, Roll]:
    """The rolled arrays that elementwise equations read."""
    equations = known.eqns
    joined = [equation for equation in equations if equation.primitive is lax.concatenate_p]
    if not joined:
        return {}
    read = {v for e in equations if isinstance(e.primitive.kind, kinds.Elementwise)
            for v in e.invars if type(v) is not Literal}  # fmt: skip
    found: dict[Any, Roll] = {}
    depth: Counter[Any] = Counter()  # of rolled arrays; others have none
    for equation in joined:
        roll = _roll(equation, known.makers)
        if roll is not None and depth[roll.source] < MOST_NESTED:
            found[equation.outvars[0]] = roll
            depth[equation.outvars[0]] = depth[roll.source] + 1
    return found if any(out in read for out in found) else {}


def _roll(equation: Any, makers: Makers) -> Roll | None:
    parts: list[Any] = [makers.of(v) for v in equation.invars]
    if len(parts) != 2 or any(part is None or part.primitive is not lax.slice_p for part in parts):
        return None
    (end, start), source, dim = parts, parts[0].invars[0], equation.params["dimension"]
    if type(source) is Literal or start.invars[0] is not source or source.aval.shape != equation.outvars[0].aval.shape:
        return None
    if any(set(part.params["strides"] or (1,)) != {1} for part in parts):
        return None
    cut, extent = end.params["start_indices"][dim], source.aval.shape[dim]
    whole = end.params["limit_indices"][dim] == extent and start.params["limit_indices"][dim] == cut
    return Roll(source, dim, cut) if whole and start.params["start_indices"][dim] == 0 else None


def rolls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such results put together."""
    known = rewrite.index(closed.jaxpr)
    found, equations = _rolls_of(known), known.eqns
    if not found:
        return closed
    simple = {out: e for e in equations if isinstance(e.primitive.kind, kinds.Elementwise) for out in e.outvars
              if len(e.outvars) == 1 and all(v.aval.shape in ((), out.aval.shape) for v in e.invars)}  # fmt: skip
    inner, sizes = _inner(equations, simple, closed.jaxpr.outvars)
    regions = _Regions(found, inner)
    result: list[Any] = []
    for equation in equations:
        out = equation.outvars[0] if equation.outvars else None
        ends = out in simple and out not in inner and sizes[out] <= MOST_INNER
        made = regions.assembled(equation) if ends else None
        result += [equation] if made is None else made
    return closed if len(result) == len(equations) else rewrite.with_equations(closed, result)


def _inner(
    equations: Sequence[Any], simple: dict[Any, Any], outvars: Sequence[Any]
) -> tuple[dict[Any, Any], Counter[Any]]:
    """The elementwise equations all of whose readers are elementwise too and lead to one result; how many, by it."""
    ends: dict[Any, set[Any]] = {v: {v} for v in outvars if type(v) is not Literal}  # variable -> where it leads
    inner: dict[Any, Any] = {}
    sizes: Counter[Any] = Counter()
    for equation in reversed(equations):
        out = equation.outvars[0] if equation.outvars else None
        led = {out}
        if out in simple and len(ends.get(out, ())) == 1 and ends[out] != {out}:
            inner[out], led = equation, ends[out]
            sizes.update(led)
        for v in equation.invars:
            if type(v) is not Literal:
                ends.setdefault(v, set()).update(led if out in simple else {v})
    return inner, sizes


class _Regions:
    """``inner``: equations that are computed where they are read."""

    def __init__(self, rolls: dict[Any, Roll], inner: dict[Any, Any]) -> None:
        self.rolls, self.inner = rolls, inner
        self.cuts: dict[Any, frozenset[tuple[int, int]]] = {}
        self.known: dict[Any, Any] = {}
        self.made: list[Any] = []

    def assembled(self, equation: Any) -> list[Any] | None:
        """Equations for its result; None where no roll, or too many regions, are in it."""
        shape = equation.outvars[0].aval.shape
        cuts = self._cuts_of(equation)
        bounds = [sorted({0, extent, *[at for d, at in cuts if d == dim]}) for dim, extent in enumerate(shape)]
        largest = math.prod([max(b - a for a, b in itertools.pairwise(ends)) for ends in bounds if len(ends) > 1])
        size, count = math.prod(shape), math.prod([len(ends) - 1 for ends in bounds])
        if not cuts or size < LEAST_SIZE or count > MOST_REGIONS or largest < LEAST_SHARE * size:
            return None
        self.made, self.known = [], {}
        self._joined(equation, bounds, ())
        if len(self.made) > MOST_EQUATIONS:
            return None
        return [*self.made[:-1], self.made[-1].replace(outvars=equation.outvars)]

    def _cuts_of(self, equation: Any) -> frozenset[tuple[int, int]]:
        return frozenset().union(*[self._cuts(v) for v in equation.invars if type(v) is not Literal])

    def _cuts(self, variable: Any) -> frozenset[tuple[int, int]]:
        """(dimension, position) of the ends of stretches that are read as one."""
        if variable not in self.cuts:
            found: frozenset[tuple[int, int]] = frozenset()
            if variable in self.rolls:
                source, dim, cut = self.rolls[variable]
                extent = variable.aval.shape[dim]
                inner = {(d, (at - cut) % extent if d == dim else at) for d, at in self._cuts(source)}
                found = frozenset({*inner, (dim, extent - cut)})
            elif variable in self.inner:
                found = self._cuts_of(self.inner[variable])
            self.cuts[variable] = found
        return self.cuts[variable]

    def _joined(self, equation: Any, bounds: Sequence[Sequence[int]], region: tuple[tuple[int, int], ...]) -> Any:
        dim = len(region)
        if dim == len(bounds):
            return self._computed(equation, region)
        parts = [self._joined(equation, bounds, (*region, ends)) for ends in itertools.pairwise(bounds[dim])]
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].aval.shape)
        shape[dim] = sum(part.aval.shape[dim] for part in parts)
        return self._made(equation, parts, lax.concatenate_p, {"dimension": dim}, shape)

    def _computed(self, equation: Any, region: tuple[tuple[int, int], ...]) -> Any:
        operands = [v if type(v) is Literal else self._read(v, region, equation) for v in equation.invars]
        shape = [stop - start for start, stop in region]
        return self._made(equation, operands, equation.primitive, equation.params, shape)

    def _read(self, variable: Any, region: tuple[tuple[int, int], ...], reader: Any) -> Any:
        if not variable.aval.shape:
            return variable
        if variable in self.rolls:
            source, dim, cut = self.rolls[variable]
            extent = variable.aval.shape[dim]
            move = cut if region[dim][1] <= extent - cut else cut - extent
            moved = region[dim][0] + move, region[dim][1] + move
            return self._read(source, (*region[:dim], moved, *region[dim + 1 :]), reader)
        found = self.known.get((variable, region))
        if found is None:
            if variable in self.inner:
                found = self._computed(self.inner[variable], region)
            else:
                starts, limits = zip(*region, strict=True)
                params = {"start_indices": starts, "limit_indices": limits, "strides": None}
                found = self._made(reader, [variable], lax.slice_p, params, [b - a for a, b in region])
            self.known[variable, region] = found
        return found

    def _made(self, like: Any, operands: Sequence[Any], primitive: Any, params: Any, shape: Sequence[int]) -> Any:
        dtype_of = operands[0] if primitive in (lax.slice_p, lax.concatenate_p) else like.outvars[0]
        out = Var(dtype_of.aval.update(shape=tuple(shape)))
        self.made.append(JaxprEqn(list(operands), [out], primitive, params, source=like.source))
        return out
