"""The groups of equations that become kernels and steps, and which of them compute and use each value.

``fuse`` fills it, equation by equation, in reverse order: the users of a value are known when its equation is visited.
"""

from __future__ import annotations

from typing import Any

from weft._base.target import Target
from weft.compiler.fusion import groups
from weft.compiler.fusion.dimensions import dimensions
from weft.compiler.fusion.groups import Absorber, Group
from weft.core import kinds
from weft.core.index_maps import CONSTANT, Affine
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.errors import InternalError
from weft.loops import kernel
from weft.loops.kernel import Access, Node

FUSABLE = (
    kinds.Elementwise, kinds.View, kinds.Generate, kinds.Reduction, kinds.Cumulative, kinds.Identity, kinds.Gather,
)  # fmt: skip


class Grouping:
    """The users of each value, and the group that computes it."""

    def __init__(self, jaxpr: Jaxpr, on: Target, alone: bool = False) -> None:
        self.jaxpr, self.dims = jaxpr, dimensions(jaxpr)
        dims, known = self.dims, rewrite.index(jaxpr)
        self.positions = {equation: position for position, equation in enumerate(jaxpr.eqns)}
        self.absorber = Absorber(dims, self.positions, known.makers, on.model.second_cache)
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

    def is_needed(self, variable: Any) -> bool:
        return variable in self.stored or bool(self.users.get(variable))

    def users_of(self, variable: Any) -> dict[Group, bool]:
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

    def readers(self, equation: JaxprEqn) -> list[Group]:
        if len(equation.outvars) == 1:
            return list(self.users_of(equation.outvars[0]))
        return list({group: None for out in equation.outvars for group in self.users_of(out)})

    def use(self, variable: Any, group: Group, in_memory: bool) -> None:
        noted = self.users.setdefault(variable, {})
        noted[group] = noted.get(group, False) or in_memory

    def note_users(self, group: Group, equation: JaxprEqn) -> None:
        """Record that a group computes an equation: it uses the operands, and no longer the outputs."""
        for atom in equation.invars:
            if type(atom) is not Literal:
                self.users.setdefault(atom, {}).setdefault(group, False)
        if isinstance(equation.primitive.kind, kinds.Gather):
            self.store(equation.invars[0], group)
        for out in equation.outvars:
            noted = self.users_of(out)
            if not noted.get(group):
                noted.pop(group, None)

    def store(self, atom: Any, group: Group | None) -> None:
        """Require a value in memory (for a step, or as another's alias)."""
        if type(atom) is Literal:
            raise InternalError("a literal where an array is needed", stage="fuse", node=str(atom))
        self.stored.add(atom)
        if group is not None:
            self.use(atom, group, True)

    def stored_by(self, variable: Any, group: Group) -> None:
        """Record that ``group`` stores ``variable``: every group that reads it runs later."""
        for user in self.users_of(variable):
            if user is not group:
                user.run_after((group,))

    def new_group(self, equation: JaxprEqn) -> Group:
        group = Group(self.positions[equation])
        self.groups.append(group)
        return group

    def leaf(self, group: Group, operand: Any, access: Access) -> Node:
        """The node that a group stores when it stores an operand of its step."""
        if type(operand) is Literal:
            return Node(kernel.Constant(operand), ())
        node = Node(operand, access)
        group.want(node)
        self.use(operand, group, False)
        return node

    def absorb(self, group: Group, equation: JaxprEqn) -> bool:
        """Let a group compute an equation in its loops; False if it cannot, with the reason noted."""
        if self.alone:
            return False
        updated = groups.reads_updated(group, equation, self.updates)
        reason = groups.UPDATED if updated else self.absorber.absorb(group, equation)
        if reason is None:
            self.note_users(group, equation)
            return True
        group.refusals.append((equation, reason))
        return False

    def root(self, equation: JaxprEqn) -> None:
        """A new group, which stores the results of the equation."""
        group = self.new_group(equation)
        outs = [v for v in equation.outvars if self.is_needed(v)]
        # a reduction adds its own axes when it joins
        of = equation.outvars if isinstance(equation.primitive.kind, kinds.Reduction) else outs
        group.axes, access = groups.axis_for_dimensions(self.dims, of[0])
        if isinstance(equation.primitive.kind, kinds.Cumulative):
            access = self._scan_space(group, equation, access)
        for out in outs:
            group.want(Node(out, access))
        reason = self.absorber.absorb(group, equation)
        if reason is not None:
            raise InternalError(f"no kernel can be made: {reason}", stage="fuse", node=str(equation))
        self.note_users(group, equation)
        for out in outs:
            group.outputs.append(kernel.Output(Node(out, access), out, access))
            self.stored_by(out, group)

    def _scan_space(self, group: Group, equation: JaxprEqn, access: Access) -> Access:
        """A scan needs an axis even along a structural unit dimension."""
        dim = equation.primitive.kind.axis(equation.params)
        if access[dim].axis != CONSTANT:
            return access
        axis = groups.new_axis(self.dims.sizes.fresh(), 1)
        group.axes = [*group.axes, axis]
        return (*access[:dim], Affine(axis.key), *access[dim + 1 :])

    def storing(self, equation: JaxprEqn) -> Group:
        """A group that computes and stores every element of the equation's result."""
        out = equation.outvars[0]
        group = self.new_group(equation)
        group.axes, access = groups.axis_for_dimensions(self.dims, out)
        group.want(Node(out, access))
        group.outputs.append(kernel.Output(Node(out, access), out, access))
        self.stored_by(out, group)
        return group

    def filling(self, equation: JaxprEqn, value: Any) -> Group:
        """A group that fills the equation's result with one value."""
        out = equation.outvars[0]
        group = self.new_group(equation)
        group.axes, access = groups.axis_for_dimensions(self.dims, out)
        group.outputs.append(kernel.Output(self.leaf(group, value, ()), out, access))
        self.stored_by(out, group)
        return group
