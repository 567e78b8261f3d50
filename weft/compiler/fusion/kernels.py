"""The result of fusion: the steps of a program in order, each a kernel or a single equation.

In: the groups of equations from ``fuse`` (``groups``). Out: for each group a ``Kernel`` in the form for
``loops.lower``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base.record import Record
from weft.compiler.fusion.groups import Group
from weft.compiler.matrix_products.product_loops import StridedOperand
from weft.core import index_maps, kinds
from weft.core.index_maps import Affine
from weft.core.programs.jaxpr import Jaxpr
from weft.loops import kernel
from weft.loops.index_math import Sizes
from weft.loops.kernel import Kernel, Node

UNNAMED = (kinds.View, kinds.Assemble)  # kinds left out of a kernel's name


class Step(Record):
    """One thing to run: a kernel (after copies of whole arrays), or a single equation.

    ``order``: the axis of the equation's result at each axis of what is written (``viewed_operands``).
    ``views``: for a product's operands that are views, where they are read (``viewed_operands``).
    """

    kernel: Kernel | None
    equation: Any  # a JaxprEqn, None where there is a kernel
    copies: tuple[tuple[Any, Any], ...] = ()
    order: tuple[int, ...] | None = None
    views: tuple[StridedOperand | None, StridedOperand | None] = (None, None)


class Kernels(Record):
    """A program after fusion. ``aliases``: variables that are another one's buffer under another shape."""

    jaxpr: Jaxpr
    steps: tuple[Step, ...]
    aliases: dict[Any, Any]
    sizes: Sizes
    guards: Any = None  # where kernels tell what their tests found (``compiler.checks.guards``)
    process: int = 0  # which one of several runs it, where it exchanges messages with others

    def describe(self) -> str:
        lines = []
        for step in self.steps:
            lines += [f"copy {a.aval.str_short()}" for a, _ in step.copies]
            lines.append(kernel.describe(step.kernel) if step.kernel else f"call {step.equation}")
            lines += [f"  operand {i} is read in place" for i, view in enumerate(step.views) if view is not None]
        return "\n".join(lines)


def kernel_of(group: Group) -> Kernel:
    """The kernel of a group; a reversed scan iterates its dimension backwards."""
    equations = sorted(group.equations, key=group.equations.__getitem__)
    nodes, outputs = group.nodes, tuple(group.outputs)
    if group.reverse:
        along = next(axis for axis in group.axes if axis.key == group.reduced[0])
        backwards = {axis.key: Affine(axis.key) for axis in group.axes}
        backwards[along.key] = Affine(along.key, along.extent - 1, -1)

        def seen(node: Node) -> Node:
            return Node(node.atom, index_maps.compose(node.access, backwards))

        nodes = {seen(node): tuple(map(seen, operands)) for node, operands in nodes.items()}
        outputs = tuple(
            [kernel.Output(seen(o.node), o.target, index_maps.compose(o.access, backwards)) for o in outputs]
        )
    named = [*equations, *[o.targets.equation for o in outputs if o.targets]]
    names = list(dict.fromkeys(e.primitive.name for e in named if not isinstance(e.primitive.kind, UNNAMED)))
    return Kernel(
        name="_".join(names[-3:]) or "copy",
        axes=tuple(group.axes),
        reduced=tuple(group.reduced),
        run=group.run,
        tree=group.tree,
        equations=tuple(equations),
        nodes=nodes,
        dynamic=group.dynamic,
        outputs=outputs,
        refusals=tuple(group.refusals),
    )


def in_order(found: Sequence[Group]) -> list[Group]:
    """The groups in topological order; program order where that is free."""
    leaders = sorted((g for g in found if g.merged_into is None), key=lambda group: group.order)
    done: set[Group] = set()
    order: list[Group] = []
    for start in leaders:
        stack = [start]
        while stack:
            group = stack[-1]
            if group in done:
                stack.pop()
                continue
            waiting = [b.leader() for b in group.before if b.leader() not in done and b.leader() is not group]
            if waiting:
                stack.extend(sorted(waiting, key=lambda other: -other.order))
                continue
            done.add(group)
            order.append(group)
            stack.pop()
    return order
