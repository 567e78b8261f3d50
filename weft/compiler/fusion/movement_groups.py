"""Groups for what moves data or is no kernel: aliases, assembled arrays, windows, scatters, steps.

y = concatenate a b     ->  a group for each piece, or the pieces read in place by the groups that use y
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.fusion import assemble, groups, windows
from weft.compiler.fusion.dimensions import matched
from weft.compiler.fusion.grouping import Grouping
from weft.compiler.fusion.groups import Group
from weft.compiler.plans import foreign
from weft.core import kinds
from weft.core.index_maps import CONSTANT, FIXED, Affine, Piece
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.loops import kernel
from weft.loops.index_math import UNIT
from weft.loops.kernel import Node


def is_same_order(grouping: Grouping, equation: JaxprEqn) -> bool:
    """Whether a view only drops or adds unit dimensions: then it is an alias."""
    operand, out = equation.invars[0], equation.outvars[0]
    if type(operand) is Literal or operand.aval.size != out.aval.size or not out.aval.size:
        return False
    index_map = grouping.dims.index_maps[equation]
    moved = [dim for dim, extent in zip(index_map, operand.aval.shape, strict=True) if extent != 1]
    order = [dim.axis for dim in moved]
    return all(dim.start == 0 and dim.step == 1 and dim.axis != CONSTANT for dim in moved) and order == sorted(order)


def alias(grouping: Grouping, equation: JaxprEqn) -> None:
    """Reshapes and barriers: the operand's buffer under another name; groups may read through unit dimensions."""
    barrier = isinstance(equation.primitive.kind, kinds.Identity)
    for operand, out in zip(equation.invars, equation.outvars, strict=False):
        if not grouping.is_needed(out):
            continue
        users = dict(grouping.users_of(out))
        left = [
            group
            for group, in_memory in users.items()
            if barrier or group.step is not None or not _see_through(grouping, group, equation) or in_memory
        ]
        if left or out in grouping.stored or barrier:
            grouping.aliases[out] = operand
            grouping.store(operand, None)
            for group in left:
                grouping.use(operand, group, True)


def _see_through(grouping: Grouping, group: Group, equation: JaxprEqn) -> bool:
    """Let a group read through a reshape that only adds or drops unit dimensions."""
    operand, out = equation.invars[0], equation.outvars[0]
    # a value that is in memory anyway is as dense under its new shape
    if operand not in grouping.made or grouping.alone or operand.aval.dtype != out.aval.dtype:
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
    group.equations[equation] = grouping.positions[equation]
    grouping.note_users(group, equation)
    return True


def pieces(grouping: Grouping, equation: JaxprEqn, kind: kinds.Assemble) -> None:
    out = equation.outvars[0]
    pieces = kind.pieces([atom.aval for atom in equation.invars], out.aval, equation.params)
    seen = [_see_piece(grouping, group, equation, pieces) for group in grouping.readers(equation)]
    if out not in grouping.stored and all(seen):
        return
    if not grouping.alone and windows.in_short_rows(grouping.dims, equation, pieces):
        _see_piece(grouping, grouping.storing(equation), equation, pieces)
        return
    earlier: list[Group] = []
    last, written = None, ()  # the group before, and the access it writes
    for piece, operand in assemble.regions(equation, lambda atom: _only_here(grouping, atom)):
        group = grouping.new_group(equation)
        group.run_after(earlier)
        group.axes, uses, own = windows.piece_space(grouping.dims, piece, operand, out)
        node = grouping.leaf(group, operand, own)
        group.outputs.append(kernel.Output(node, out, uses))
        grouping.stored_by(out, group)
        if piece.fill:
            earlier = [group]
        elif last and windows.interleaved(written, uses) and groups.merge(last.leader(), group, grouping.absorber):
            group = group.leader()
        last, written = (group, uses) if not piece.fill else (None, ())


def _only_here(grouping: Grouping, atom: Any) -> Any:
    """The equation of a value that is read once in the program, or None."""
    if type(atom) is Literal or grouping.alone or atom in grouping.stored or grouping.uses[atom] != 1:
        return None
    return grouping.makers.get(atom)


def _see_piece(grouping: Grouping, group: Group, equation: JaxprEqn, pieces: Sequence[Piece]) -> bool:
    """Let a group read through an assembled array: one piece at each access, or all pieces of short rows."""
    out = equation.outvars[0]
    if group.step is not None or grouping.alone or grouping.users_of(out).get(group):
        return False
    found = windows.pieces_read(grouping.dims, group, equation, pieces)
    if found is None:
        return False
    for access, nodes in found.items():
        group.nodes[Node(out, access)] = nodes
        for node in nodes:
            if not isinstance(node.atom, kernel.Constant):
                group.want(node)
                grouping.use(node.atom, group, False)
    group.equations[equation] = grouping.positions[equation]
    grouping.users_of(out).pop(group, None)
    return True


def dynamic_slice(grouping: Grouping, equation: JaxprEqn) -> None:
    """A load with a run-time base, in each kernel that uses it."""
    out = equation.outvars[0]
    users = [g for g in grouping.readers(equation) if g.step is None]
    users = [g for g in users if not groups.reads_updated(g, equation, grouping.updates)]
    for group in users:
        group.dynamic[out] = equation
    noted = grouping.users_of(out)
    for group in users:
        if not noted.get(group):
            noted.pop(group)
    if out in grouping.stored or noted:
        root = grouping.storing(equation)
        root.dynamic[out] = equation
        users = [*users, root]
    for group in users:
        for atom in equation.invars:
            if type(atom) is not Literal:
                grouping.store(atom, group)


def update(grouping: Grouping, equation: JaxprEqn) -> None:
    """Copy the array (the plan drops the copy if the array is dead), then write the region."""
    array, update, *starts = equation.invars
    out = equation.outvars[0]
    group = grouping.new_group(equation)
    group.copies = [(array, out)]
    for atom in (array, *starts):
        if type(atom) is not Literal:
            grouping.store(atom, group)
    symbols = grouping.dims.sizes.symbols(out)
    own = grouping.dims.symbols(update)
    uses = []
    for dim, extent in enumerate(update.aval.shape):
        if symbols[dim] == UNIT:
            uses.append(FIXED)
            continue
        symbol = own[dim] if own and own[dim] != UNIT else grouping.dims.sizes.fresh()
        group.axes.append(groups.new_axis(symbol, extent))
        uses.append(Affine(group.axes[-1].key))
    node = grouping.leaf(group, update, tuple(uses))
    group.outputs.append(kernel.Output(node, out, tuple(uses), equation))
    grouping.stored_by(out, group)


def scatter(grouping: Grouping, equation: JaxprEqn) -> None:
    """Copy the array as for an update (or write its fill value), then update it window by window.

    Dimensions along which different points always update different elements are parallel: those that windows cover
    in full, and those that the array shares with the indices. The others are serial, in order.
    """
    array, indices, updates = equation.invars
    out = equation.outvars[0]
    group = grouping.new_group(equation)
    maker = grouping.makers.of(array)
    if maker is not None and isinstance(maker.primitive.kind, kinds.View) and not maker.invars[0].aval.shape:
        group.run_after((grouping.filling(equation, maker.invars[0]),))
    else:
        group.copies = [(array, out)]
        grouping.store(array, group)
    found, sizes = grouping.dims.windows[equation], grouping.dims.sizes
    space = windows.scatter_space(grouping.dims, equation)
    group.axes, group.reduced, group.run, group.tree = list(space.axes), list(space.ordered), 1, "order"
    node = grouping.leaf(group, updates, space.access)
    components = [
        Node(indices, kernel.component_access(found, indices, k, space.access, sizes)) for k in range(len(found.starts))
    ]
    for component in components:
        group.want(component)
    grouping.use(indices, group, False)
    access = kernel.window_access(found, out, space.access, sizes)
    group.outputs.append(kernel.Output(node, out, access, None, kernel.Targets(equation, tuple(components))))
    grouping.stored_by(out, group)


def step(grouping: Grouping, equation: JaxprEqn) -> None:
    group = grouping.new_group(equation)
    group.step = equation
    if isinstance(equation.primitive.kind, kinds.Loop):  # the loop updates its state in the memory of the results
        parts = equation.primitive.kind.parts(equation.params)
        first = parts.n_cond_consts + parts.n_consts
        state = equation.invars[first : first + parts.n_carry]
        group.copies = list(zip(state, equation.outvars[: parts.n_carry], strict=True))
    if (handler := foreign.handler_of(equation)) is not None:
        group.copies = [(equation.invars[i], equation.outvars[o]) for i, o in handler.aliases]
    if equation.effects:  # effects keep the program's order
        if grouping.later_effect is not None:
            grouping.later_effect.run_after((group,))
        grouping.later_effect = group
    for atom in equation.invars:
        if type(atom) is not Literal:
            grouping.store(atom, group)
    for out in equation.outvars:
        grouping.stored_by(out, group)
