"""The kernel form: a small jaxpr that becomes one loop nest.

A kernel has a space of axes, some of them reduced, and equations whose values are read at *accesses*. An access gives,
for each dimension of the value, the axis that indexes it, a start and a step. Views disappear into accesses; a value
read at two accesses is computed twice. An access to a variable that the kernel does not compute is a load.

    c:f32[b] = reduce_sum[axes=(1,)] a; d:f32[b,n] = div a c
    axes (b, n reduced); a at (b, n), c at (b), d at (b, n)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from weft._base.record import NamedTuple, Record
from weft.core import kinds
from weft.core.index_maps import CONSTANT, FIXED, Affine, IndexMap, constant
from weft.core.programs import jaxpr as jaxprs
from weft.core.programs.jaxpr import JaxprEqn
from weft.loops.index_math import UNIT, Sizes

Access = IndexMap  # its axes are keys of the kernel's axes

Tree = Literal["row", "column", "scan", "order"]  # how a kernel combines elements (``reduction_tree``)


class Constant:
    """A literal inside a kernel. Unlike a ``Literal`` it is hashable: it is compared by identity."""

    __slots__ = ("aval", "literal", "val")

    def __init__(self, literal: jaxprs.Literal) -> None:
        self.val, self.aval, self.literal = literal.val, literal.aval, literal


class Node(NamedTuple):
    """A value at an access. ``atom`` is a variable or a ``Constant``."""

    atom: Any
    access: Access


class Axis(Record):
    """One dimension of a kernel's space."""

    key: int
    symbol: int
    extent: int


class Output(Record):
    """A value stored: ``node`` into ``target`` at ``access``; ``starts`` or ``targets`` move the region at run time."""

    node: Node
    target: Any
    access: Access
    starts: Any = None  # the dynamic_update_slice equation whose clamped starts shift the region
    targets: Targets | None = None  # for a scatter: where windows start; ``node`` is then the update of each element


class Targets(Record):
    """Where the windows of a scatter start: its equation, and a node for each component of an index vector."""

    equation: JaxprEqn
    components: tuple[Node, ...]


class Kernel(Record):
    """One fused kernel, the output of ``fuse`` and the input of ``lower``.

    ``axes`` in logical order. ``reduced`` are the keys of reduced (or scanned) axes, outer to inner; the last
    ``run`` of them are flattened into one dimension. ``nodes`` gives the operand nodes of every computed node.
    """

    name: str
    axes: tuple[Axis, ...]
    reduced: tuple[int, ...]
    run: int
    tree: Tree | None
    equations: tuple[Any, ...]  # in program order
    nodes: dict[Node, tuple[Node, ...]]
    dynamic: dict[Any, Any]  # variable read through a dynamic_slice -> its equation
    outputs: tuple[Output, ...]
    refusals: tuple[tuple[JaxprEqn, str], ...] = ()  # what stays outside, and why


def reachable(nodes: Mapping[Node, Sequence[Node]], wanted: Iterable[Node]) -> set[Node]:
    """The wanted nodes and all nodes that they depend on."""
    stack = list(wanted)
    found = set(stack)
    while stack:
        for operand in nodes.get(stack.pop(), ()):
            if operand not in found:
                found.add(operand)
                stack.append(operand)
    return found


def component_access(windows: kinds.Windows, indices: Any, component: int, access: Access, sizes: Sizes) -> Access:
    """The access of one component of the index vectors, given the access of the windows."""
    uses = [
        FIXED if symbol == UNIT else access[dim]
        for dim, symbol in zip(windows.batch, sizes.symbols(indices)[:-1], strict=True)
    ]
    return (*uses, constant(component))


def window_access(windows: kinds.Windows, array: Any, access: Access, sizes: Sizes) -> Access:
    """The access of the array, without the run-time starts, given the access of the windows."""
    return tuple(
        [
            FIXED if dim is None or symbol == UNIT else access[dim]
            for dim, symbol in zip(windows.moved, sizes.symbols(array), strict=True)
        ]
    )


def elementwise_access(operand: Any, out: Any, access: Access, sizes: Sizes) -> Access:
    """The access of an elementwise operand: constant along the dimensions in which it is broadcast."""
    shape, out_shape = operand.aval.shape, out.aval.shape
    if not shape:
        return ()
    symbols = sizes.symbols(operand)
    if shape == out_shape and UNIT not in symbols:
        return access
    return tuple(
        FIXED if symbol == UNIT or extent != out_extent else use
        for use, symbol, extent, out_extent in zip(access, symbols, shape, out_shape, strict=True)
    )


def describe(kernel: Kernel) -> str:
    """The kernel as text: its space, its equations, its outputs, and why fusion ended there."""
    role = f"({kernel.tree or 'reduced'})"
    names = {axis.key: f"i{number}" for number, axis in enumerate(kernel.axes)}
    axes = " ".join(
        f"{names[axis.key]}:{axis.extent}{role if axis.key in kernel.reduced else ''}" for axis in kernel.axes
    )
    lines = [f"kernel {kernel.name} [{axes}]"]
    lines += [f"  {line}" for line in str(as_jaxpr(kernel)).splitlines()]
    for output in kernel.outputs:
        element = ", ".join(_use_text(use, names) for use in output.access)
        verb = f"{output.targets.equation.primitive.name} to" if output.targets else "store"
        lines.append(f"  {verb} [{element}] of {output.target.aval.str_short()}")
    reasons = [f"{equation.primitive.name} stays outside: {reason}" for equation, reason in kernel.refusals]
    lines += [f"  # {reason}" for reason in dict.fromkeys(reasons)]
    return "\n".join(lines)


def as_jaxpr(kernel: Kernel) -> jaxprs.Jaxpr:
    """The equations of a kernel as a program of its own."""
    made = {v for equation in kernel.equations for v in equation.outvars}
    operands = [v for equation in kernel.equations for v in equation.invars if not isinstance(v, jaxprs.Literal)]
    stored = [output.node.atom for output in kernel.outputs]
    leaves = [v for v in (*operands, *stored) if v not in made and not isinstance(v, Constant)]
    outvars = [v.literal if isinstance(v, Constant) else v for v in stored]
    return jaxprs.Jaxpr([], list(dict.fromkeys(leaves)), outvars, kernel.equations)


def _use_text(use: Affine, names: dict[int, str]) -> str:
    if use.axis == CONSTANT:
        return str(use.start)
    step = names[use.axis] if use.step == 1 else f"{use.step}*{names[use.axis]}"
    return f"{use.start}+{step}" if use.start else step
