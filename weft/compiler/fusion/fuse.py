"""Fusion: decides which equations become one kernel (loop nest), and which stay separate steps.

Equations are visited in reverse order, so that all users of a value are known when its equation is visited. A value
used by one group joins it if it can. A value used by several is recomputed in each if that is cheap, becomes an
additional output of one of them, or merges them; otherwise it is stored. Finally groups that read the same array are
merged.

    d = sub a c; e = exp d; f = reduce_sum[axes=(1,)] e; g = div e f      one kernel: (b | n lanes), 2 phases
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._base.target import Target
from weft.compiler.fusion import groups, movement_groups, windows
from weft.compiler.fusion.grouping import FUSABLE, Grouping
from weft.compiler.fusion.groups import Group
from weft.compiler.fusion.kernels import Kernels, Step, in_order, kernel_of
from weft.core import kinds
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.loops import kernel
from weft.loops.index_math import UNIT
from weft.loops.kernel import Node
from weft.loops.schedules.thresholds import LONG, SHORT

DUPLICATE_COST = 2.0  # values up to this cost are recomputed in each of several kernels instead of stored
LOOK_BACK = 24  # equations searched for the reductions that a value depends on
MAX_MERGES = 8  # groups that one shared value may merge


def fuse(jaxpr: Jaxpr, on: Target) -> Kernels:
    """The kernels of a simplified program."""
    return _Fusion(jaxpr, on).run()


def without_fuse(jaxpr: Jaxpr, on: Target) -> Kernels:
    """One kernel for every equation, to bisect a wrong answer (``WEFT_SKIP=fuse``)."""
    return _Fusion(jaxpr, on, alone=True).run()


class _Fusion(Grouping):
    """Visits the equations, and decides for each which groups compute it."""

    def run(self) -> Kernels:
        for equation in reversed(self.jaxpr.eqns):
            self._visit(equation)
        if not self.alone:
            self._merge_siblings()
        groups.run_readers_first(self.groups, self.users_of)
        steps = tuple([self._step(group) for group in in_order(self.groups)])
        return Kernels(self.jaxpr, steps, self.aliases, self.dims.sizes)

    def _visit(self, equation: JaxprEqn) -> None:
        kind = equation.primitive.kind
        outs = equation.outvars
        if not equation.effects and not any(self.is_needed(v) for v in outs):
            return
        if isinstance(kind, FUSABLE) and not (isinstance(kind, kinds.Identity) and kind.barrier):
            self._visit_fusable(equation, kind)
        elif isinstance(kind, (kinds.Reshape, kinds.Identity)) or windows.writes_nothing(equation):
            movement_groups.alias(self, equation)
        elif isinstance(kind, kinds.Assemble):
            movement_groups.pieces(self, equation, kind)
        elif isinstance(kind, kinds.DynamicSlice):
            movement_groups.dynamic_slice(self, equation)
        elif isinstance(kind, kinds.DynamicUpdateSlice):
            movement_groups.update(self, equation)
        elif isinstance(kind, kinds.Scatter):
            movement_groups.scatter(self, equation)
        else:
            movement_groups.step(self, equation)

    # fusable equations

    def _visit_fusable(self, equation: JaxprEqn, kind: Any) -> None:
        users = self.readers(equation)
        stored = not self.stored.isdisjoint(equation.outvars)
        if isinstance(kind, kinds.View):
            in_memory = self.users_of(equation.outvars[0])
            users = [g for g in users if g.step is not None or not self.absorb(g, equation) or in_memory.get(g)]
            if not users and not stored:
                return
            if movement_groups.is_same_order(self, equation):
                movement_groups.alias(self, equation)
                return
        elif len(users) == 1 and not stored:
            picks = self._picks_from_rows(users[0], equation)
            if not picks and self.absorb(users[0], equation):
                return
            if picks:
                self.root(equation)
                self.groups[-1].picks = True
                return
        elif users and (self._duplicate(equation, kind, users, stored) or self._share(equation, users)):
            return
        self.root(equation)

    def _duplicate(self, equation: JaxprEqn, kind: Any, users: list[Group], stored: bool) -> bool:
        """Recompute a cheap value in each of its users."""
        if stored or any(group.step is not None for group in users):
            return False
        if isinstance(kind, kinds.Elementwise):
            is_picked = any(group.picks for group in users)
            if kind.cost > DUPLICATE_COST or (self._arrays_read(equation) > 1 and not is_picked):
                return False
        elif not isinstance(kind, (kinds.Generate, kinds.Identity)):
            return False
        left = [group for group in users if not self.absorb(group, equation)]
        if left:
            self.root(equation)
        return True

    def _arrays_read(self, equation: JaxprEqn) -> int:
        """The number of operands that cost memory traffic: all but those with fewer dimensions than the result, such as
        a row for all rows, or one value per row."""
        rank, found = self._rank(equation.outvars[0]), 0
        for atom in equation.invars:
            while (maker := self.makers.of(atom)) is not None:
                if not isinstance(maker.primitive.kind, (kinds.View, kinds.Reshape)):
                    break
                atom = maker.invars[0]
            found += type(atom) is not Literal and bool(atom.aval.shape) and self._rank(atom) >= rank
        return found

    def _rank(self, variable: Any) -> int:
        return sum(symbol != UNIT for symbol in self.dims.symbols(variable))

    def _share(self, equation: JaxprEqn, users: list[Group]) -> bool:
        """Let one user compute the value for all, as an additional output; merge users that can be one kernel."""
        kernels = [group for group in users if group.step is None and not group.copies and group.tree != "order"]
        if not kernels:
            return False
        for other in kernels[1:MAX_MERGES]:
            groups.merge(kernels[0].leader(), other.leader(), self.absorber)
        if isinstance(equation.primitive.kind, kinds.Reduction) and self._join_picks(equation, kernels, users):
            return True
        users = list({group.leader(): None for group in users})
        stored = any(v in self.stored for v in equation.outvars)
        for group in list({g.leader(): None for g in kernels})[:MAX_MERGES]:
            if len(users) == 1 and not stored:
                return self.absorb(group, equation)
            if not self._follows_other_rows(group, equation) and self._adopt(group, equation, users):
                return True
        return False

    def _join_picks(self, equation: JaxprEqn, kernels: list[Group], users: list[Group]) -> bool:
        """Merge an elementwise kernel with one that gathers from its rows, if both read one reduction."""
        found = [group for group in kernels if group.merged_into is None]
        if len(found) != 2 or len(users) != 2 or len(equation.outvars) != 1 or equation.outvars[0] in self.stored:
            return False
        rows, picks = sorted(found, key=lambda group: group.picks)
        out = equation.outvars[0]
        if not picks.picks or rows.tree or groups.depends(rows, picks) or groups.depends(picks, rows):
            return False
        if not any(picks.covers(out, access) for access in picks.wanted[out]) or not self.absorb(rows, equation):
            return False
        if not groups.merge(rows, picks, self.absorber):
            rows.outputs += [kernel.Output(Node(out, access), out, access) for access in rows.wanted[out]]
            self.stored_by(out, rows)
        return True

    def _follows_other_rows(self, group: Group, equation: JaxprEqn) -> bool:
        """Whether a value depends on reductions that a reducing group cannot include in its own loops.

        Stored by a separate kernel, it is one more phase of their rows, and their operands need not be stored.
        """
        return self._origins(group, equation)[0]

    def _picks_from_rows(self, group: Group, equation: JaxprEqn) -> bool:
        """Whether a value depends on reductions that a group cannot include and on gathers: a separate kernel gathers
        from rows that are in cache."""
        return (
            self.gathers
            and isinstance(equation.primitive.kind, kinds.Elementwise)
            and all(self._origins(group, equation))
        )

    def _origins(self, group: Group, equation: JaxprEqn) -> tuple[bool, bool]:
        """(whether a value depends on reductions over other rows than a group's, whether it also depends on gathers).

        Many short rows are reduced across lanes, which gathers would prevent: such reductions do not count.
        """
        if group.tree not in ("row", "column"):
            return False, False
        by_key = {axis.key: axis for axis in group.axes}
        own = [(by_key[key].symbol, by_key[key].extent) for key in group.reduced]
        stack, seen, others, gathers, long_rows = [equation], {equation}, False, False, False
        while stack and len(seen) <= LOOK_BACK:
            for atom in stack.pop().invars:
                maker = self.makers.of(atom)
                if maker is None or maker in seen or self.users_of(atom):
                    continue
                kind = maker.primitive.kind
                if isinstance(kind, kinds.Reduction):
                    facts = groups.ReductionFacts(maker, self.dims)
                    others |= [(facts.symbols[dim], facts.shape[dim]) for dim in facts.moving] != own
                    left = [n for dim, n in enumerate(facts.shape) if dim not in facts.axes]
                    row = [facts.shape[dim] for dim in facts.moving]
                    long_rows |= math.prod(row) > SHORT or math.prod(left) < LONG
                elif isinstance(kind, kinds.Gather):
                    gathers = True
                elif isinstance(kind, (kinds.Elementwise, kinds.View, kinds.Reshape)):
                    seen.add(maker)
                    stack.append(maker)
        return others, gathers and long_rows

    def _adopt(self, group: Group, equation: JaxprEqn, users: Sequence[Group]) -> bool:
        """Compute and store every output of an equation inside one of its users."""
        outs = [v for v in equation.outvars if self.is_needed(v)]
        of_rows = isinstance(equation.primitive.kind, kinds.Reduction) and not group.reduced
        found = [[a for a in group.wanted.get(v, ()) if group.covers(v, a, of_rows)] for v in outs]
        if not all(found):
            return False
        accesses = [candidates[0] for candidates in found]
        if group.run > 1 and not all(
            self.absorber.run_is_whole(group, v, a) for v, a in zip(outs, accesses, strict=True)
        ):
            return False
        if any(user is not group and groups.depends(group, user) for user in users):
            return False
        if any(self.users_of(v).get(group) for v in outs):
            return False
        if not self.absorb(group, equation):
            return False
        for out, access in zip(outs, accesses, strict=True):
            group.outputs.append(kernel.Output(Node(out, access), out, access))
            self.stored_by(out, group)
        return True

    # siblings, result

    def _merge_siblings(self) -> None:
        """Merge groups over one space that read the same array."""
        first: dict[Any, list[Group]] = {}
        for group in sorted(self.groups, key=lambda group: group.order):
            if group.merged_into is not None or group.step is not None:
                continue
            space = tuple([(axis.symbol, axis.extent) for axis in group.axes])
            inner = {node.atom for node in group.nodes}
            is_point = all(axis.symbol == self.dims.lone for axis in group.axes)
            for variable in list(group.wanted):
                if variable not in inner and (variable.aval.shape or is_point):
                    twins = first.setdefault((space, variable), [])
                    merged = any(groups.merge(twin.leader(), group.leader(), self.absorber) for twin in twins)
                    if not merged and len(twins) < MAX_MERGES:
                        twins.append(group)

    def _step(self, group: Group) -> Step:
        if group.step is not None:
            return Step(None, group.step, tuple(group.copies))
        return Step(kernel_of(group), None, tuple(group.copies))
