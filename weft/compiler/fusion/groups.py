"""Groups: kernels during fusion, and the rules by which an equation joins one.

A group has axes, the nodes (values at accesses) that it computes, and those that it wants from outside. ``absorb``
returns None if an equation has joined, otherwise the reason against it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft._base.target_model import FAR
from weft.compiler.fusion import hoisting
from weft.compiler.fusion.dimensions import Dimensions
from weft.core import index_maps, kinds
from weft.core.index_maps import CONSTANT, FIXED, Affine
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.programs.rewrite import Makers
from weft.loops import kernel
from weft.loops.index_math import UNIT
from weft.loops.kernel import Access, Axis, Constant, Node

MAX_DISTANCE = 32  # levels between two kernels up to which merging is tried
MAX_NODES = 192  # nodes of a group: compile time grows a little faster than its size
MAX_COST = 320.0  # instructions of the functions in a kernel: enough to hide memory; LLVM's time is quadratic in it
MAX_ORDERED_COST = 64.0  # instructions of the functions in a scatter without parallel dimensions
MAX_LEAVES = 40
MAX_PHASES = 6
MAX_GATHERED = 2  # accesses at which one kernel gathers the same value
RECOMPUTE_COST = 12.0  # cost of all additional copies of a value that is wanted at several accesses
LONG_ROW = 1 << 21  # elements; the phases of one row run on one worker, separate kernels in parallel blocks
FULL = "the kernel is full"
TOO_LONG = "the row is too long for one worker: a kernel of its own runs its blocks in parallel"
TOO_FEW = "the columns are too few for the workers, or too long for a cache: a kernel of its own runs its blocks"
CHOOSES = "it chooses between pieces by the index, which only elementwise kernels do"
UPDATED = "the array is updated in place: what is read of it is stored first"
MANY_ALIKE = 256  # number of values from which a kernel of their own takes less time than computing them one by one
SMALL_PART = 4  # a part is small if its array is this many times as large
LONG_COLUMN = 4096  # elements; every phase reads a tile of such columns from memory again
WAYS = 8  # ways of a second cache: where one line may lie
WORD = 4  # bytes of most types of elements
LONG_SIDE = 64  # rows and columns from which reading across rows costs more than transposing tiles
SCAN_COST = 2.0  # most cost that may join a scan along the last axis, whose loop has no vectors

_keys = itertools.count(1)


class Group:
    """A kernel being built."""

    def __init__(self, order: int) -> None:
        self.order = order  # position of its first root in the program
        self.axes: list[Axis] = []
        self.reduced: list[int] = []
        self.run = 0
        self.tree: kernel.Tree | None = None
        self.reverse = False
        self.nodes: dict[Node, tuple[Node, ...]] = {}
        self.equations: dict[Any, int] = {}  # equation -> its position in the program
        self.cost = 0.0  # of the functions among them
        self.wanted: dict[Any, dict[Access, None]] = {}  # variable -> accesses
        self.dynamic: dict[Any, Any] = {}
        self.outputs: list[kernel.Output] = []
        self.before: set[Group] = set()  # groups whose outputs this one reads
        self.level = 0  # less than that of every group in ``before``: a group cannot depend on one of a lower level
        self.reductions = 0
        self.merged_into: Group | None = None
        self.copies: list[tuple[Any, Any]] = []  # (source, target) copied before the kernel
        self.step: Any = None  # an equation that is not a kernel
        self.picks = False  # it gathers from rows that another kernel reduces
        self.chooses = False  # it reads pieces of assembled arrays at every point
        self.refusals: list[tuple[JaxprEqn, str]] = []

    def leader(self) -> Group:
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        return group

    def run_after(self, makers: Iterable[Group]) -> None:
        """This group reads what ``makers`` write, so that it runs later."""
        waiting = []
        for maker in makers:
            self.before.add(maker)
            waiting.append((maker.leader(), self.level + 1))
        while waiting:
            group, level = waiting.pop()
            if group is not self and group.level < level:
                group.level = level
                waiting += [(before.leader(), level + 1) for before in group.before if before.leader() is not group]

    @property
    def parallel(self) -> list[Axis]:
        return [axis for axis in self.axes if axis.key not in self.reduced]

    def want(self, node: Node) -> None:
        self.wanted.setdefault(node.atom, {})[node.access] = None

    def covers(self, variable: Any, access: Access, of_rows: bool = False) -> bool:
        """Whether an access reads each element of a variable exactly once.

        ``of_rows``: its reduction, when it joins, makes the axes that are not used here the group's reduced ones.
        """
        extents = {axis.key: axis.extent for axis in self.axes}
        if any(extents.get(use.axis, 1) != extent for use, extent in zip(access, variable.aval.shape, strict=True)):
            return False
        used = [use.axis for use in access if use.axis != CONSTANT]
        if len(set(used)) != len(used) or any(use.start or use.step != 1 for use in access if use.axis != CONSTANT):
            return False
        touches = any(key in self.reduced for key in used)
        return of_rows or len(used) == (len(self.axes) if touches or not self.reduced else len(self.parallel))


def new_axis(symbol: int, extent: int) -> Axis:
    return Axis(next(_keys), symbol, extent)


def axis_for_dimensions(dims: Dimensions, variable: Any) -> tuple[list[Axis], Access]:
    """Fresh axes for a variable's dimensions and its own access over them."""
    axes, uses = [], []
    for symbol, extent in zip(dims.sizes.symbols(variable), variable.aval.shape, strict=True):
        if symbol == UNIT:
            uses.append(FIXED)
            continue
        axes.append(new_axis(symbol, extent))
        uses.append(Affine(axes[-1].key))
    return axes, tuple(uses)


class Absorber:
    """The rules by which equations join groups, for one program; ``cache``: bytes of the target's second one."""

    def __init__(self, dims: Dimensions, positions: dict[Any, int], makers: Makers, cache: int) -> None:
        self.dims, self.positions, self.makers, self.cache = dims, positions, makers, cache

    def absorb(self, group: Group, equation: JaxprEqn) -> str | None:
        """Compute an equation's wanted values inside a group; or return the reason against it."""
        if len(group.nodes) >= MAX_NODES or len(group.wanted) - len(group.equations) > MAX_LEAVES:
            return FULL
        accesses = self._accesses(group, equation)
        nodes, wanted = group.nodes, group.wanted
        joined = _JOIN[type(equation.primitive.kind)](self, group, equation, accesses)
        if isinstance(joined, str):
            return joined
        first = equation.outvars[0]
        for access, operands in zip(accesses, joined, strict=True):
            nodes[Node(first, access)] = operands
            for atom, operand_access in operands:
                if type(atom) is not Constant:
                    wanted.setdefault(atom, {})[operand_access] = None
        group.equations[equation] = self.positions[equation]
        return None

    def _accesses(self, group: Group, equation: JaxprEqn) -> list[Access]:
        if len(equation.outvars) == 1:
            return list(group.wanted.get(equation.outvars[0], ()))
        found: dict[Access, None] = {}
        for out in equation.outvars:
            found.update(group.wanted.get(out, {}))
        return list(found)

    # one rule per kind: gives operand nodes for each access, or a reason

    def elementwise(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        cost = equation.primitive.kind.cost
        if (len(accesses) - 1) * cost > RECOMPUTE_COST:
            return f"computing it at {len(accesses)} accesses costs more than storing it"
        if cost > SCAN_COST and group.tree == "scan" and group.axes[-1].key in group.reduced:
            return "a loop in strict order has no vectors to compute it with"
        functions = cost * len(accesses) if cost > SCAN_COST else 0.0
        if group.cost and functions and group.cost + functions > MAX_COST:
            return FULL
        if functions and group.cost + functions > MAX_ORDERED_COST and group.tree == "order" and not group.parallel:
            return "updates in order run on one worker: a separate kernel computes it on all"
        if functions and any(_is_alike_in_columns(group, access) for access in accesses):
            return "it is the same in every column: computed once it is read by all"
        if functions and hoisting.is_repeated(group, accesses, equation, self.makers):
            return hoisting.REASON
        out, sizes = equation.outvars[0], self.dims.sizes
        result = []
        for access in accesses:
            nodes = []
            for operand in equation.invars:
                if type(operand) is Literal:
                    nodes.append(Node(Constant(operand), ()))
                    continue
                nodes.append(Node(operand, kernel.elementwise_access(operand, out, access, sizes)))
            result.append(tuple(nodes))
        group.cost += functions
        return result

    def view(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        operand = equation.invars[0]
        if type(operand) is Literal:
            return [(Node(Constant(operand), ()),) for _ in accesses]
        index_map = self.dims.index_maps[equation]
        found = [index_maps.compose(index_map, access) for access in accesses]
        if any(self._reads_across(group, operand, access) for access in found):
            return "it is read across its rows: a separate kernel transposes it in tiles"
        return [(Node(operand, access),) for access in found]

    def _reads_across(self, group: Group, operand: Any, access: Access) -> bool:
        """Whether a large array is read across its rows along a run: one cache line for each element."""
        run = group.reduced[-group.run :] if group.run > 1 else ()
        if not access or operand.aval.size < FAR or not run or access[-1].axis == run[-1]:
            return False
        fast = next((n for use, n in zip(access, operand.aval.shape, strict=True) if use.axis == run[-1]), 1)
        return access[-1].axis in run and min(fast, operand.aval.shape[-1]) >= LONG_SIDE

    def identity(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        return [(Node(equation.invars[0], access),) for access in accesses]

    def generate(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        return [() for _ in accesses]

    def gather(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        """Its index vectors are computed inside; the array is loaded at computed addresses."""
        windows, sizes, indices = self.dims.windows[equation], self.dims.sizes, equation.invars[1]
        if len(accesses) > MAX_GATHERED:
            return f"loading it at {len(accesses)} accesses costs more than storing it"
        if group.chooses and any(_leaves(group, equation.outvars[0].aval.shape, access) for access in accesses):
            return "beside the pieces that a group chooses from, windows may lie outside of their array"
        result = []
        for access in accesses:
            nodes = [
                Node(indices, kernel.component_access(windows, indices, k, access, sizes))
                for k in range(len(windows.starts))
            ]
            if group.run > 1 and not self.run_is_whole(group, *self._window(equation, access)):
                return "windows inside the flattened reduced axes"
            result.append(tuple(nodes))
        return result

    def reduction(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        if len(accesses) != 1:
            return "a reduction wanted at several accesses"
        facts = ReductionFacts(equation, self.dims)
        reason = self._fit(group, facts, accesses[0], equation)
        if reason is not None:
            return reason
        kept = iter(accesses[0])
        by_axis = dict(zip(facts.moving, group.reduced, strict=False))
        uses = []
        for dim in range(facts.rank):
            if dim not in facts.axes:
                uses.append(next(kept))
            elif dim in by_axis:
                uses.append(Affine(by_axis[dim]))
            else:
                uses.append(FIXED)
        group.reductions += 1
        nodes = []
        for operand in equation.invars[: facts.count]:
            if type(operand) is Literal:
                nodes.append(Node(Constant(operand), ()))
            else:
                nodes.append(Node(operand, tuple(uses)))
        return [tuple(nodes)]

    def _fit(self, group: Group, facts: ReductionFacts, access: Access, equation: JaxprEqn) -> str | None:
        """Make the group's reduced axes those of the reduction, if possible."""
        if group.chooses:
            return CHOOSES
        if group.tree in ("scan", "order"):
            return "a reduction does not join a loop in strict order"
        if any(use.start or use.step != 1 for use in access if use.axis != CONSTANT):
            return "a reduction wanted through a slice"
        used = [use.axis for use in access if use.axis != CONSTANT]
        if len(set(used)) != len(used):
            return "a reduction wanted on a diagonal"
        if group.reduced:
            return self._fit_existing(group, facts, used, equation)
        remaining = [axis for axis in group.axes if axis.key not in used]
        if not remaining:
            self._extend(group, facts, access)
            return None
        sizes = [(axis.symbol, axis.extent) for axis in remaining]
        if sizes != [(facts.symbols[dim], facts.shape[dim]) for dim in facts.moving]:
            return "its reduced axes are not those its consumer broadcasts over"
        if not used and _elements(remaining) >= LONG_ROW:
            return TOO_LONG
        if _is_cut(group, facts, used, self.cache):
            return TOO_FEW
        group.reduced, group.run, group.tree = [axis.key for axis in remaining], facts.run, facts.tree
        if group.run > 1 and not self.group_is_whole(group):
            group.reduced, group.run, group.tree = [], 0, None
            return "the consumer cuts through the flattened reduced axes"
        return None

    def _fit_existing(self, group: Group, facts: ReductionFacts, used: list[int], equation: JaxprEqn) -> str | None:
        if len(used) != len(group.parallel) or any(key in group.reduced for key in used):
            return "a reduction inside a reduction, or over fewer points than its consumer has"
        by_key = {axis.key: axis for axis in group.axes}
        sizes = [(by_key[key].symbol, by_key[key].extent) for key in group.reduced]
        mine = [(facts.symbols[dim], facts.shape[dim]) for dim in facts.moving] or [(self.dims.lone, 1)]
        if sizes != mine or facts.tree != group.tree or facts.run != group.run:
            return "a reduction over other axes"
        if group.reductions >= 4 * MAX_PHASES:
            return "too many reductions in one kernel"
        if not used and _elements(group.axes) >= LONG_ROW and self._feeds_body(group, equation):
            return TOO_LONG
        if _is_cut(group, facts, used, self.cache) and self._feeds_body(group, equation):
            return TOO_FEW
        return None

    def _feeds_body(self, group: Group, equation: JaxprEqn) -> bool:
        """Whether a phase behind a full reduction reads its result at every element."""
        found = set(equation.outvars)
        for other in sorted(group.equations, key=group.equations.__getitem__):
            if not any(atom in found for atom in other.invars if type(atom) is not Literal):
                continue
            if isinstance(other.primitive.kind, kinds.Reduction) or any(
                use.axis in group.reduced for access in group.wanted.get(other.outvars[0], ()) for use in access
            ):
                return True
            found.update(other.outvars)
        return False

    def _extend(self, group: Group, facts: ReductionFacts, access: Access) -> None:
        """Give an all-parallel group new reduced axes, in logical order where that is possible."""
        new: dict[int, Axis] = {dim: new_axis(facts.symbols[dim], facts.shape[dim]) for dim in facts.moving}
        reduced = list(new.values())
        if not reduced:  # no axis is reduced: one iteration over a single point
            reduced = [new_axis(self.dims.lone, 1)]
            group.axes = [*group.axes, *reduced]
        else:
            by_key = {axis.key: axis for axis in group.axes}
            kept = iter(access)
            order = [new.get(dim) if dim in facts.axes else by_key.get(next(kept).axis) for dim in range(facts.rank)]
            axes = [axis for axis in order if axis is not None]
            same = [axis for axis in axes if axis.key in by_key] == group.axes
            group.axes = axes if same else [*group.axes, *reduced]
        group.reduced = [axis.key for axis in reduced]
        group.run, group.tree = facts.run, facts.tree

    def run_is_whole(self, group: Group, variable: Any, access: Access) -> bool:
        """Whether the flattened axes are one dimension of a variable, or none."""
        run = group.reduced[-group.run :]
        found = [dim for dim, use in enumerate(access) if use.axis in run]
        if not found:
            return True
        if [access[dim].axis for dim in found] != run:
            return False
        symbols, shape = self.dims.symbols(variable), variable.aval.shape
        by_key = {axis.key: axis for axis in group.axes}
        for dim in range(found[0], found[-1] + 1):
            if dim not in found:
                if symbols[dim] != UNIT:
                    return False
                continue
            axis = by_key[access[dim].axis]
            if access[dim].start or access[dim].step != 1 or (symbols[dim], shape[dim]) != (axis.symbol, axis.extent):
                return False
        return True

    def group_is_whole(self, group: Group) -> bool:
        """Whether the flattened axes are one dimension of everything stored (of windows too, not of other reads)."""
        stored = [(out.target, out.access) for out in group.outputs]
        for equation in group.equations:
            if isinstance(equation.primitive.kind, kinds.Gather):
                stored += [self._window(equation, access) for access in group.wanted.get(equation.outvars[0], ())]
        return all(self.run_is_whole(group, variable, access) for variable, access in stored)

    def _window(self, equation: JaxprEqn, access: Access) -> tuple[Any, Access]:
        """The array of a gather, and the access of its windows."""
        array = equation.invars[0]
        return array, kernel.window_access(self.dims.windows[equation], array, access, self.dims.sizes)

    def cumulative(self, group: Group, equation: JaxprEqn, accesses: list[Access]) -> list[tuple[Node, ...]] | str:
        kind = equation.primitive.kind
        if len(accesses) != 1 or not group.covers(equation.outvars[0], accesses[0]):
            return "a scan wanted at several accesses or through a view"
        if group.chooses:
            return CHOOSES
        if group.tree == "order":
            return "a scan does not join the updates of a scatter"
        along = accesses[0][kind.axis(equation.params)].axis
        reverse = kind.reverse(equation.params)
        if along == CONSTANT:
            return "a scan along a structural unit dimension"
        if group.tree is None:
            if along == group.axes[-1].key and any(
                isinstance(other.primitive.kind, kinds.Elementwise) and other.primitive.kind.cost > SCAN_COST
                for other in group.equations
            ):
                return "its consumer needs vectors"
            if any(isinstance(other.primitive.kind, kinds.Generate) for other in group.equations) and reverse:
                return "an index in a reversed scan"
            group.tree, group.reduced, group.run, group.reverse = "scan", [along], 1, reverse
        elif group.tree != "scan" or group.reduced != [along] or group.reverse != reverse:
            return "a scan along another axis"
        return [tuple(Node(operand, accesses[0]) for operand in equation.invars)]


def _is_alike_in_columns(group: Group, access: Access) -> bool:
    """Whether columns read a value for each row: every tile of columns would compute it again, one lane at a time."""
    if group.tree != "column" or not group.parallel:
        return False
    extents = {axis.key: axis.extent for axis in group.axes}
    used = [use.axis for use in access if use.axis != CONSTANT]
    if group.parallel[-1].key in used or not any(key in group.reduced for key in used):
        return False
    return _elements(group.axes) >= FAR or math.prod([extents[key] for key in used]) >= MANY_ALIKE


def _is_cut(group: Group, facts: ReductionFacts, used: Sequence[int], cache: int) -> bool:
    """Whether there are too few columns for several workers, or they are too long for a cache of so many bytes."""
    if facts.tree != "column" or _elements(group.axes) < FAR:
        return False
    columns = _elements([axis for axis in group.axes if axis.key in used])
    column = _elements([axis for axis in group.axes if axis.key not in used])
    row = WORD * math.prod(facts.shape[facts.moving[-1] + 1 :]) if facts.moving else 1
    # rows a power of two apart evict each other; half of a tile may be read again
    kept = min(2 * cache // math.gcd(row, cache // WAYS), LONG_COLUMN)
    return 0 < columns < LONG_SIDE or column >= kept


def _leaves(group: Group, shape: Sequence[int], access: Access) -> bool:
    """Whether an access reaches outside of an array of that shape, as those of pieces do (``loops.assembled``)."""
    extents = {axis.key: axis.extent for axis in group.axes}
    ranges = [index_maps.indices(use, extents) for use in access]
    return any(low < 0 or high >= extent for (low, high), extent in zip(ranges, shape, strict=True))


def _elements(axes: Sequence[Axis]) -> int:
    return math.prod([axis.extent for axis in axes])


class ReductionFacts:
    """The order (docs/NUMERICS.md) of a reduction: its axes, its flattened run, and its tree (row or column)."""

    def __init__(self, equation: JaxprEqn, dims: Dimensions) -> None:
        kind = equation.primitive.kind
        avals = [atom.aval for atom in equation.invars]
        self.count = kind.operands(avals) if kind.operands else len(avals)
        self.axes = tuple(sorted(kind.axes(equation.params)))
        self.shape = avals[0].shape
        self.rank = len(self.shape)
        arrays = [atom for atom in equation.invars[: self.count] if type(atom) is not Literal]
        self.symbols: tuple[int, ...] = dims.symbols(arrays[0]) if arrays else ()
        self.moving = [dim for dim in self.axes if self.symbols[dim] != UNIT]
        run = last_run(self.axes)
        self.run = max(len([dim for dim in run if self.symbols[dim] != UNIT]), 1)
        self.tree: kernel.Tree = "row" if self.axes and self.axes[-1] == self.rank - 1 else "column"


def last_run(axes: Sequence[int]) -> tuple[int, ...]:
    """The last maximal run of adjacent axes: (0, 2, 3) -> (2, 3)."""
    first = len(axes) - 1
    while first > 0 and axes[first - 1] == axes[first] - 1:
        first -= 1
    return tuple(axes[max(first, 0) :])


_JOIN: dict[type, Any] = {
    kinds.Elementwise: Absorber.elementwise,
    kinds.View: Absorber.view,
    kinds.Identity: Absorber.identity,
    kinds.Generate: Absorber.generate,
    kinds.Gather: Absorber.gather,
    kinds.Reduction: Absorber.reduction,
    kinds.Cumulative: Absorber.cumulative,
}


def depends(group: Group, other: Group) -> bool:
    """Whether a group reads, directly or not, what another writes; searches only groups of levels in between.

    Groups far apart are assumed to depend on each other: a search would cost too much, and one kernel of both would
    extend the live ranges of its operands and results.
    """
    if group.level >= other.level:
        return False
    if other.level - group.level > MAX_DISTANCE:
        return True
    stack, seen = [group], {group}
    while stack:
        for before in stack.pop().before:
            before = before.leader()
            if before is other:
                return True
            if before.level < other.level and before not in seen:
                seen.add(before)
                stack.append(before)
    return False


def small_updates(equations: Sequence[JaxprEqn], present: Iterable[type]) -> dict[Any, list[int]]:
    """Array -> the positions of equations that update a small part of it. ``present``: the kinds of equations."""
    found: dict[Any, list[int]] = {}
    if kinds.DynamicUpdateSlice not in present and kinds.Scatter not in present:
        return found
    for position, equation in enumerate(equations):
        if isinstance(equation.primitive.kind, (kinds.DynamicUpdateSlice, kinds.Scatter)):
            array = equation.invars[0]
            of_update = 2 if isinstance(equation.primitive.kind, kinds.Scatter) else 1
            if type(array) is not Literal and equation.invars[of_update].aval.size <= array.aval.size // SMALL_PART:
                found.setdefault(array, []).append(position)
    return found


def reads_updated(group: Group, equation: JaxprEqn, updates: dict[Any, list[int]]) -> bool:
    """Whether an equation reads a small part of an array, and the group, or an earlier one, updates a small part of it.

    Read inside the group, the array could not be updated in place: all of it would be copied first. A group that
    updates one element reads before it writes.
    """
    for atom in equation.invars:
        positions = updates.get(atom) if type(atom) is not Literal else None
        if not positions or max([v.aval.size for v in equation.outvars]) > atom.aval.size // SMALL_PART:
            continue
        points = math.prod([axis.extent for axis in group.axes])
        if any(position < group.order or (position == group.order and points > 1) for position in positions):
            return True
    return False


def run_readers_first(groups: Sequence[Group], users_of: Callable[[Any], Iterable[Group]]) -> None:
    """Let readers of an array run before the group that updates it, so that the array need not be copied."""
    for group in groups:
        if group.merged_into is None:
            readers = [reader for array, _ in group.copies if type(array) is not Literal for reader in users_of(array)]
            group.run_after([r for r in readers if r is not group and not depends(r, group)])


def merge(group: Group, other: Group, absorber: Absorber) -> bool:
    """Make one kernel of two independent ones over the same space; returns whether it was possible."""
    if group is other or group.step is not None or other.step is not None or group.copies or other.copies:
        return False
    if group.tree is None and other.tree is not None:
        return merge(other, group, absorber)
    if not _spaces_agree(group, other) or len(group.nodes) + len(other.nodes) > MAX_NODES:
        return False
    if group.cost + other.cost > MAX_COST or (group.tree and other.chooses):
        return False
    if len(group.outputs) + len(other.outputs) > MAX_LEAVES or depends(group, other) or depends(other, group):
        return False
    renamed = {theirs.key: mine.key for mine, theirs in zip(_axes_for(group, other), other.axes, strict=True)}
    if group.run > 1 and other.tree is None:
        trial = Group(other.order)
        trial.axes, trial.reduced, trial.run = group.axes, group.reduced, group.run
        trial.equations = other.equations
        _take(trial, other, renamed)
        if not absorber.group_is_whole(trial):
            return False
    _take(group, other, renamed)
    group.order = min(group.order, other.order)
    group.level = max(group.level, other.level)
    group.run_after(group.before | other.before)
    group.reductions += other.reductions
    group.equations.update(other.equations)
    group.cost += other.cost
    group.refusals += other.refusals
    group.chooses |= other.chooses
    other.merged_into = group
    return True


def _axes_for(group: Group, other: Group) -> list[Axis]:
    """The axes that a group shares with another: all, or those of its rows if it gathers from them."""
    return group.parallel if other.picks and other.tree is None and group.tree == "row" else group.axes


def _spaces_agree(group: Group, other: Group) -> bool:
    if "order" in (group.tree, other.tree):  # a scatter's loop writes one array
        return False
    mine = [(axis.symbol, axis.extent) for axis in _axes_for(group, other)]
    if mine != [(axis.symbol, axis.extent) for axis in other.axes]:
        return False
    if other.tree is None:
        # a full reduction of one phase is cut into blocks that run in parallel, as the elementwise kernel did
        return group.tree is None or (group.tree == "row" and (bool(group.parallel) or group.reductions == 1))
    roles = [[axis.key in each.reduced for axis in each.axes] for each in (group, other)]
    same_tree = (group.tree, group.run, group.reverse) == (other.tree, other.run, other.reverse)
    return same_tree and roles[0] == roles[1]


def _take(group: Group, other: Group, renamed: dict[int, int]) -> None:
    known: dict[Access, Access] = {}
    moves = {old: Affine(new) for old, new in renamed.items()}

    def moved(access: Access) -> Access:
        found = known.get(access)
        if found is None:
            found = known[access] = index_maps.compose(access, moves)
        return found

    for node, operands in other.nodes.items():
        group.nodes[Node(node.atom, moved(node.access))] = tuple([Node(o.atom, moved(o.access)) for o in operands])
    for variable, accesses in other.wanted.items():
        wanted = group.wanted.setdefault(variable, {})
        for access in accesses:
            wanted[moved(access)] = None
    for out in other.outputs:
        node = Node(out.node.atom, moved(out.node.access))
        group.outputs.append(kernel.Output(node, out.target, moved(out.access), out.starts))
    group.dynamic.update(other.dynamic)
