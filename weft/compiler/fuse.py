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
from weft.compiler import assemble, groups, windows
from weft.compiler.dimensions import dimensions, matched
from weft.compiler.groups import Absorber, Group
from weft.compiler.kernels import Kernels, Step, in_order, kernel_of
from weft.core import kinds, rewrite
from weft.core.index_maps import CONSTANT, FIXED, Affine, Piece
from weft.core.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.errors import InternalError
from weft.loops import kernel
from weft.loops.index_math import UNIT
from weft.loops.kernel import Access, Node
from weft.loops.thresholds import LONG, SHORT

DUPLICATE_COST = 2.0  # values up to this cost are recomputed in each of several kernels instead of stored
LOOK_BACK = 24  # equations searched for the reductions that a value depends on
MAX_MERGES = 8  # groups that one shared value may merge

FUSABLE = (
    kinds.Elementwise, kinds.View, kinds.Generate, kinds.Reduction, kinds.Cumulative, kinds.Identity, kinds.Gather,
)  # fmt: skip


def fuse(jaxpr: Jaxpr, on: Target) -> Kernels:
    """The kernels of a simplified program."""
    return _Fusion(jaxpr, on).run()


def without_fuse(jaxpr: Jaxpr, on: Target) -> Kernels:
    """One kernel for every equation, to bisect a wrong answer (``WEFT_SKIP=fuse``)."""
    return _Fusion(jaxpr, on, alone=True).run()


class _Fusion:
    """The state of fusion: the users of each value, and the group that computes it."""

    def __init__(self, jaxpr: Jaxpr, on: Target, alone: bool = False) -> None:
        self.jaxpr, self.dims = jaxpr, dimensions(jaxpr)
        dims, known = self.dims, rewrite.index(jaxpr)
        self.places = {equation: place for place, equation in enumerate(jaxpr.eqns)}
        self.absorber = Absorber(dims, self.places, known.makers, on.model.second_cache)
        self.made = {v for e in jaxpr.eqns if isinstance(e.primitive.kind, FUSABLE) for v in e.outvars}
        self.makers, self.uses = known.makers, known.uses
        self.groups: list[Group] = []
        self.users: dict[Any, dict[Group, bool]] = {}  # True: the group needs the value in memory
        self.stored: set[Any] = set(known.outputs)
        self.aliases: dict[Any, Any] = {}
        self.later_effect: Group | None = None
        self.alone = alone  # let no equation join another
        self.gathers = kinds.Gather in known.kinds
        self.updates = groups.small_updates(jaxpr.eqns, known.kinds)

    def run(self) -> Kernels:
        for equation in reversed(self.jaxpr.eqns):
            self._place(equation)
        if not self.alone:
            self._merge_siblings()
        groups.run_readers_first(self.groups, self._users_of)
        steps = tuple([self._step(group) for group in in_order(self.groups)])
        return Kernels(self.jaxpr, steps, self.aliases, self.dims.sizes)

    def _place(self, equation: JaxprEqn) -> None:
        kind = equation.primitive.kind
        outs = equation.outvars
        if not equation.effects and not any(self._is_needed(v) for v in outs):
            return
        if isinstance(kind, FUSABLE) and not (isinstance(kind, kinds.Identity) and kind.barrier):
            self._place_fusable(equation, kind)
        elif isinstance(kind, (kinds.Reshape, kinds.Identity)) or windows.writes_nothing(equation):
            self._place_alias(equation)
        elif isinstance(kind, kinds.Assemble):
            self._place_pieces(equation, kind)
        elif isinstance(kind, kinds.DynamicSlice):
            self._place_dynamic_slice(equation)
        elif isinstance(kind, kinds.DynamicUpdateSlice):
            self._place_update(equation)
        elif isinstance(kind, kinds.Scatter):
            self._place_scatter(equation)
        else:
            self._place_step(equation)

    # users

    def _is_needed(self, variable: Any) -> bool:
        return variable in self.stored or bool(self.users.get(variable))

    def _users_of(self, variable: Any) -> dict[Group, bool]:
        """The current users of a variable (groups may have been merged since they were recorded)."""
        noted = self.users.get(variable)
        if not noted:
            return {}
        if any(group.merged_into is not None for group in noted):
            found: dict[Group, bool] = {}
            for group, in_memory in noted.items():
                found[group.leader()] = found.get(group.leader(), False) or in_memory
            self.users[variable] = noted = found
        return noted

    def _users(self, equation: JaxprEqn) -> list[Group]:
        if len(equation.outvars) == 1:
            return list(self._users_of(equation.outvars[0]))
        return list({group: None for out in equation.outvars for group in self._users_of(out)})

    def _use(self, variable: Any, group: Group, in_memory: bool) -> None:
        noted = self.users.setdefault(variable, {})
        noted[group] = noted.get(group, False) or in_memory

    def _note_users(self, group: Group, equation: JaxprEqn) -> None:
        """Record that a group computes an equation: it uses the operands, and no longer the outputs."""
        for atom in equation.invars:
            if type(atom) is not Literal:
                self.users.setdefault(atom, {}).setdefault(group, False)
        if isinstance(equation.primitive.kind, kinds.Gather):
            self._store(equation.invars[0], group)
        for out in equation.outvars:
            noted = self._users_of(out)
            if not noted.get(group):
                noted.pop(group, None)

    def _store(self, atom: Any, group: Group | None) -> None:
        """Require a value in memory (for a step, or as another's alias)."""
        if type(atom) is Literal:
            raise InternalError("a literal where an array is needed", stage="fuse", node=str(atom))
        self.stored.add(atom)
        if group is not None:
            self._use(atom, group, True)

    def _made(self, variable: Any, group: Group) -> None:
        """Record that ``group`` stores ``variable``: every group that reads it runs later."""
        for user in self._users_of(variable):
            if user is not group:
                user.run_after((group,))

    def _absorb(self, group: Group, equation: JaxprEqn) -> bool:
        if self.alone:
            return False
        updated = groups.reads_updated(group, equation, self.updates)
        reason = groups.UPDATED if updated else self.absorber.absorb(group, equation)
        if reason is None:
            self._note_users(group, equation)
            return True
        group.refusals.append((equation, reason))
        return False

    # fusable equations

    def _place_fusable(self, equation: JaxprEqn, kind: Any) -> None:
        users = self._users(equation)
        stored = not self.stored.isdisjoint(equation.outvars)
        if isinstance(kind, kinds.View):
            in_memory = self._users_of(equation.outvars[0])
            users = [g for g in users if g.step is not None or not self._absorb(g, equation) or in_memory.get(g)]
            if not users and not stored:
                return
            if self._is_same_order(equation):
                self._place_alias(equation)
                return
        elif len(users) == 1 and not stored:
            picks = self._picks_from_rows(users[0], equation)
            if not picks and self._absorb(users[0], equation):
                return
            if picks:
                self._root(equation)
                self.groups[-1].picks = True
                return
        elif users and (self._duplicate(equation, kind, users, stored) or self._share(equation, users)):
            return
        self._root(equation)

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
        left = [group for group in users if not self._absorb(group, equation)]
        if left:
            self._root(equation)
        return True

    def _arrays_read(self, equation: JaxprEqn) -> int:
        """The number of operands that cost memory traffic: broadcast rows, and one value per row, do not."""
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
                return self._absorb(group, equation)
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
        if not any(picks.covers(out, access) for access in picks.wanted[out]) or not self._absorb(rows, equation):
            return False
        if not groups.merge(rows, picks, self.absorber):
            rows.outputs += [kernel.Output(Node(out, access), out, access) for access in rows.wanted[out]]
            self._made(out, rows)
        return True

    def _follows_other_rows(self, group: Group, equation: JaxprEqn) -> bool:
        """Whether a value depends on reductions that a reducing group cannot include in its own loops.

        Stored by a separate kernel, it is one more phase of their rows, and their operands need not be stored.
        """
        return self._origins(group, equation)[0]

    def _picks_from_rows(self, group: Group, equation: JaxprEqn) -> bool:
        """Whether a value depends on such reductions and on gathers, which a separate kernel makes from cached rows."""
        return (
            self.gathers
            and isinstance(equation.primitive.kind, kinds.Elementwise)
            and all(self._origins(group, equation))
        )

    def _origins(self, group: Group, equation: JaxprEqn) -> tuple[bool, bool]:
        """(whether a value depends on reductions over other rows than a group's, whether it also depends on gathers).

        Many short rows are reduced across lanes, which gathers would prevent: such reductions do not count.
        """
        if group.tree not in ("lanes", "rows"):
            return False, False
        by_key = {axis.key: axis for axis in group.axes}
        own = [(by_key[key].symbol, by_key[key].extent) for key in group.reduced]
        stack, seen, others, gathers, long_rows = [equation], {equation}, False, False, False
        while stack and len(seen) <= LOOK_BACK:
            for atom in stack.pop().invars:
                maker = self.makers.of(atom)
                if maker is None or maker in seen or self._users_of(atom):
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
        outs = [v for v in equation.outvars if self._is_needed(v)]
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
        if any(self._users_of(v).get(group) for v in outs):
            return False
        if not self._absorb(group, equation):
            return False
        for out, access in zip(outs, accesses, strict=True):
            group.outputs.append(kernel.Output(Node(out, access), out, access))
            self._made(out, group)
        return True

    def _root(self, equation: JaxprEqn) -> None:
        """A new group, which stores the results of the equation."""
        group = self._new_group(equation)
        outs = [v for v in equation.outvars if self._is_needed(v)]
        access: Access = ()
        if isinstance(equation.primitive.kind, kinds.Reduction):
            access = self._reduction_space(group, equation)
        else:
            group.axes, access = groups.axis_for_dimensions(self.dims, outs[0])
            if isinstance(equation.primitive.kind, kinds.Cumulative):
                access = self._scan_space(group, equation, access)
        for out in outs:
            group.want(Node(out, access))
        reason = self.absorber.absorb(group, equation)
        if reason is not None:
            raise InternalError(f"no kernel can be made: {reason}", stage="fuse", node=str(equation))
        self._note_users(group, equation)
        for out in outs:
            group.outputs.append(kernel.Output(Node(out, access), out, access))
            self._made(out, group)

    def _reduction_space(self, group: Group, equation: JaxprEqn) -> Access:
        """Parallel axes for the kept dimensions; the reduction adds its own when it joins."""
        group.axes, access = groups.axis_for_dimensions(self.dims, equation.outvars[0])
        return access

    def _scan_space(self, group: Group, equation: JaxprEqn, access: Access) -> Access:
        """A scan needs an axis even along a structural unit dimension."""
        dim = equation.primitive.kind.axis(equation.params)
        if access[dim].axis != CONSTANT:
            return access
        axis = groups.new_axis(self.dims.sizes.fresh(), 1)
        group.axes = [*group.axes, axis]
        return (*access[:dim], Affine(axis.key), *access[dim + 1 :])

    def _new_group(self, equation: JaxprEqn) -> Group:
        group = Group(self.places[equation])
        self.groups.append(group)
        return group

    # the other kinds

    def _is_same_order(self, equation: JaxprEqn) -> bool:
        """Whether a view only drops or adds unit dimensions: then it is an alias."""
        operand, out = equation.invars[0], equation.outvars[0]
        if type(operand) is Literal or operand.aval.size != out.aval.size or not out.aval.size:
            return False
        index_map = self.dims.index_maps[equation]
        moved = [dim for dim, extent in zip(index_map, operand.aval.shape, strict=True) if extent != 1]
        order = [dim.axis for dim in moved]
        return all(dim.start == 0 and dim.step == 1 and dim.axis != CONSTANT for dim in moved) and order == sorted(
            order
        )

    def _place_alias(self, equation: JaxprEqn) -> None:
        """Reshapes and barriers: the operand's buffer under another name; groups may read through unit dimensions."""
        barrier = isinstance(equation.primitive.kind, kinds.Identity)
        for operand, out in zip(equation.invars, equation.outvars, strict=False):
            if not self._is_needed(out):
                continue
            users = dict(self._users_of(out))
            left = [
                group
                for group, in_memory in users.items()
                if barrier or group.step is not None or not self._see_through(group, equation) or in_memory
            ]
            if left or out in self.stored or barrier:
                self.aliases[out] = operand
                self._store(operand, None)
                for group in left:
                    self._use(operand, group, True)

    def _see_through(self, group: Group, equation: JaxprEqn) -> bool:
        """Let a group read through a reshape that only adds or drops unit dimensions."""
        operand, out = equation.invars[0], equation.outvars[0]
        # a value that is in memory anyway is as dense under its new shape
        if operand not in self.made or self.alone or operand.aval.dtype != out.aval.dtype:
            return False
        pairs = dict(matched(operand.aval.shape, out.aval.shape))
        unmatched = [extent for dim, extent in enumerate(operand.aval.shape) if dim not in pairs]
        unmatched += [extent for dim, extent in enumerate(out.aval.shape) if dim not in pairs.values()]
        if type(operand) is Literal or any(extent != 1 for extent in unmatched) or not operand.aval.size:
            return False
        accesses = list(group.wanted.get(out, ()))
        moved = [
            tuple([access[pairs[dim]] if dim in pairs else FIXED for dim in range(operand.aval.ndim)])
            for access in accesses
        ]
        for access, used in zip(accesses, moved, strict=True):
            group.nodes[Node(out, access)] = (Node(operand, used),)
            group.want(Node(operand, used))
        group.equations[equation] = self.places[equation]
        self._note_users(group, equation)
        return True

    def _place_pieces(self, equation: JaxprEqn, kind: kinds.Assemble) -> None:
        out = equation.outvars[0]
        pieces = kind.pieces([atom.aval for atom in equation.invars], out.aval, equation.params)
        seen = [self._see_piece(group, equation, pieces) for group in self._users(equation)]
        if out not in self.stored and all(seen):
            return
        if not self.alone and windows.in_short_rows(self.dims, equation, pieces):
            self._see_piece(self._stored(equation), equation, pieces)
            return
        earlier: list[Group] = []
        last, written = None, ()  # the group before, and the access it writes
        for piece, operand in assemble.regions(equation, self._only_here):
            group = self._new_group(equation)
            group.run_after(earlier)
            group.axes, uses, own = windows.piece_space(self.dims, piece, operand, out)
            node = self._leaf(group, operand, own)
            group.outputs.append(kernel.Output(node, out, uses))
            self._made(out, group)
            if piece.fill:
                earlier = [group]
            elif last and windows.interleaved(written, uses) and groups.merge(last.leader(), group, self.absorber):
                group = group.leader()
            last, written = (group, uses) if not piece.fill else (None, ())

    def _only_here(self, atom: Any) -> Any:
        """The equation of a value that is read once in the program, or None."""
        if type(atom) is Literal or self.alone or atom in self.stored or self.uses[atom] != 1:
            return None
        return self.makers.get(atom)

    def _see_piece(self, group: Group, equation: JaxprEqn, pieces: Sequence[Piece]) -> bool:
        """Let a group read through an assembled array: one piece at each access, or all pieces of short rows."""
        out = equation.outvars[0]
        if group.step is not None or self.alone or self._users_of(out).get(group):
            return False
        found = windows.pieces_read(self.dims, group, equation, pieces)
        if found is None:
            return False
        for access, nodes in found.items():
            group.nodes[Node(out, access)] = nodes
            for node in nodes:
                if not isinstance(node.atom, kernel.Constant):
                    group.want(node)
                    self._use(node.atom, group, False)
        group.equations[equation] = self.places[equation]
        self._users_of(out).pop(group, None)
        return True

    def _leaf(self, group: Group, operand: Any, access: Access) -> Node:
        """The node that a group stores when it stores an operand of its step."""
        if type(operand) is Literal:
            return Node(kernel.Constant(operand), ())
        node = Node(operand, access)
        group.want(node)
        self._use(operand, group, False)
        return node

    def _place_dynamic_slice(self, equation: JaxprEqn) -> None:
        """A load with a run-time base, in each kernel that uses it."""
        out = equation.outvars[0]
        users = [g for g in self._users(equation) if g.step is None]
        users = [g for g in users if not groups.reads_updated(g, equation, self.updates)]
        for group in users:
            group.dynamic[out] = equation
        noted = self._users_of(out)
        for group in users:
            if not noted.get(group):
                noted.pop(group)
        if out in self.stored or noted:
            root = self._stored(equation)
            root.dynamic[out] = equation
            users = [*users, root]
        for group in users:
            for atom in equation.invars:
                if type(atom) is not Literal:
                    self._store(atom, group)

    def _place_update(self, equation: JaxprEqn) -> None:
        """Copy the array (the plan drops the copy if the array is dead), then write the region."""
        array, update, *starts = equation.invars
        out = equation.outvars[0]
        group = self._new_group(equation)
        group.copies = [(array, out)]
        for atom in (array, *starts):
            if type(atom) is not Literal:
                self._store(atom, group)
        symbols = self.dims.sizes.symbols(out)
        own = self.dims.symbols(update)
        uses = []
        for dim, extent in enumerate(update.aval.shape):
            if symbols[dim] == UNIT:
                uses.append(FIXED)
                continue
            symbol = own[dim] if own and own[dim] != UNIT else self.dims.sizes.fresh()
            group.axes.append(groups.new_axis(symbol, extent))
            uses.append(Affine(group.axes[-1].key))
        node = self._leaf(group, update, tuple(uses))
        group.outputs.append(kernel.Output(node, out, tuple(uses), equation))
        self._made(out, group)

    def _place_scatter(self, equation: JaxprEqn) -> None:
        """Copy the array as for an update (or write its fill value), then update it window by window.

        Dimensions along which different points always update different elements are parallel: those that windows cover
        in full, and those that the array shares with the indices. The others are serial, in order.
        """
        array, indices, updates = equation.invars
        out = equation.outvars[0]
        group = self._new_group(equation)
        maker = self.makers.of(array)
        if maker is not None and isinstance(maker.primitive.kind, kinds.View) and not maker.invars[0].aval.shape:
            group.run_after((self._filled(equation, maker.invars[0]),))
        else:
            group.copies = [(array, out)]
            self._store(array, group)
        found, sizes = self.dims.windows[equation], self.dims.sizes
        space = windows.scatter_space(self.dims, equation)
        group.axes, group.reduced, group.run, group.tree = list(space.axes), list(space.ordered), 1, "order"
        node = self._leaf(group, updates, space.access)
        components = [
            Node(indices, kernel.component_access(found, indices, k, space.access, sizes))
            for k in range(len(found.starts))
        ]
        for component in components:
            group.want(component)
        self._use(indices, group, False)
        access = kernel.window_access(found, out, space.access, sizes)
        group.outputs.append(kernel.Output(node, out, access, None, kernel.Places(equation, tuple(components))))
        self._made(out, group)

    def _stored(self, equation: JaxprEqn) -> Group:
        """A group that stores the equation's result, of which it wants every element."""
        out = equation.outvars[0]
        group = self._new_group(equation)
        group.axes, access = groups.axis_for_dimensions(self.dims, out)
        group.want(Node(out, access))
        group.outputs.append(kernel.Output(Node(out, access), out, access))
        self._made(out, group)
        return group

    def _filled(self, equation: JaxprEqn, value: Any) -> Group:
        """A group that fills the equation's result with one value."""
        out = equation.outvars[0]
        group = self._new_group(equation)
        group.axes, access = groups.axis_for_dimensions(self.dims, out)
        group.outputs.append(kernel.Output(self._leaf(group, value, ()), out, access))
        self._made(out, group)
        return group

    def _place_step(self, equation: JaxprEqn) -> None:
        group = self._new_group(equation)
        group.step = equation
        if isinstance(equation.primitive.kind, kinds.Loop):  # the loop updates its state in the memory of the results
            parts = equation.primitive.kind.parts(equation.params)
            first = parts.n_cond_consts + parts.n_consts
            state = equation.invars[first : first + parts.n_carry]
            group.copies = list(zip(state, equation.outvars[: parts.n_carry], strict=True))
        if equation.effects:  # effects keep the program's order
            if self.later_effect is not None:
                self.later_effect.run_after((group,))
            self.later_effect = group
        for atom in equation.invars:
            if type(atom) is not Literal:
                self._store(atom, group)
        for out in equation.outvars:
            self._made(out, group)

    # siblings, order, result

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
