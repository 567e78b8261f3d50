"""Where the values of a kernel are computed: once, once for each point, or at every reduced index, and in which phase.

A reduction runs in the phase of its operands, its users in later ones. What several phases read is recomputed in each
if that is cheap, and otherwise kept in a row buffer.

    softmax:   max in phase 0;  exp in phase 1, kept for phase 2, and their sum;  the quotient in phase 2
"""

from __future__ import annotations

import functools
from operator import itemgetter
from typing import Any

from weft.core import kinds
from weft.core.index_maps import CONSTANT
from weft.core.programs.jaxpr import JaxprEqn
from weft.loops.kernel import Kernel, Node

GATHER_COST = 4.0  # cost of a load at a computed address, per component of the index vector
KEEP_COST = 8.0  # body values below this cost are recomputed in a later phase; others get a row buffer
_NO_NODES: list[Node] = []


def _is_body(inner: frozenset[int], node: Node) -> bool:
    """Whether a value differs along some of these axes."""
    return not inner.isdisjoint(map(itemgetter(0), node.access))


class Phases:
    """The phases of one kernel."""

    def __init__(self, source: Kernel) -> None:
        self.kernel = source
        self.reduced = frozenset(source.reduced)
        self.has_axes = bool(source.axes)
        inner = self.reduced or frozenset([axis.key for axis in source.axes])
        # whether a value is computed at every reduced index, or at every point if there are none: asked for everywhere
        self.is_body = functools.cache(functools.partial(_is_body, inner)) if inner else lambda _: True
        self.available: dict[Node, int] = {}  # node -> first phase that can use it at row level
        self.wanted: dict[Node, set[int]] = {}  # body node -> phases
        self.cost: dict[Node, float] = {}
        self.kept: set[Node] = set()  # body nodes that are stored in row buffers
        self.by_variable: dict[Any, list[Node]] = {}
        for node in source.nodes:
            self.by_variable.setdefault(node.atom, []).append(node)
        self.count = self._find_phases()
        self._find_wanted()

    def nodes(self, equation: JaxprEqn) -> list[Node]:
        """The accesses of an equation's result."""
        return self.by_variable.get(equation.outvars[0], _NO_NODES)

    def is_setup(self, node: Node) -> bool:
        if self.available.get(node, 0):
            return False
        for axis, _, _ in node.access:  # noqa: SIM110 - a generator takes three times as long
            if axis != CONSTANT:
                return False
        return True

    def depth(self, node: Node) -> tuple[bool, bool, int]:
        """Where a value is computed: once at the start, once for each row (in which phase), or in the body."""
        return self.is_body(node), not self.is_setup(node), self.available.get(node, 0)

    def _find_phases(self) -> int:
        """Forward: a reduction runs in the phase of its operands; its consumers in later ones. Gives their number."""
        nodes, available, cost, reductions = self.kernel.nodes, self.available, self.cost, 0
        for equation in self.kernel.equations:
            kind = equation.primitive.kind
            for node in self.nodes(equation):
                operands = nodes[node]
                phase, spent = 0, 0.0
                for operand in operands:
                    before = available.get(operand, 0)
                    phase = before if before > phase else phase
                    spent += cost.get(operand, 0.5) if operand.access else 0.0
                if isinstance(kind, kinds.Reduction):
                    phase += 1
                    reductions, spent = max(reductions, phase), 0.0
                elif isinstance(kind, kinds.Elementwise):
                    spent += kind.cost
                elif isinstance(kind, kinds.Gather):  # a row at a computed address is as cheap to load again
                    spent += GATHER_COST * sum(self.is_body(operand) for operand in operands)
                for out in equation.outvars:
                    twin = Node(out, node.access)
                    available[twin], cost[twin] = phase, spent
        last = max((available.get(output.node, 0) for output in self.kernel.outputs), default=0)
        return max(reductions, last + 1)

    def _find_wanted(self) -> None:
        """Backward: the phases that read each body value, and which values get a row buffer."""
        wanted = self.wanted
        if not self.reduced:
            return
        for output in self.kernel.outputs:
            if self.is_body(output.node):
                wanted.setdefault(output.node, set()).add(self.available.get(output.node, 0))
            for node in output.targets.components if output.targets else ():
                if self.is_body(node):
                    wanted.setdefault(node, set()).add(0)
        for equation in reversed(self.kernel.equations):
            is_reduction = isinstance(equation.primitive.kind, kinds.Reduction)
            for node in self.nodes(equation):
                phases: set[int] = set()
                for out in equation.outvars:
                    phases |= wanted.get(Node(out, node.access), set())
                if is_reduction:
                    phases = {self.available[node] - 1}
                elif len(phases) > 1 and self._worth_keeping(equation, node):
                    self.kept.add(node)
                    phases = {min(phases)}
                for operand in self.kernel.nodes[node]:
                    if phases and self.is_body(operand):
                        wanted.setdefault(operand, set()).update(phases)

    def _worth_keeping(self, equation: JaxprEqn, node: Node) -> bool:
        kept = (kinds.Elementwise, kinds.Gather)
        return isinstance(equation.primitive.kind, kept) and self.cost[node] >= KEEP_COST
