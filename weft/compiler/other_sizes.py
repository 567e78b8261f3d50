"""Programs of one kernel at other sizes: from the numbers of the new sizes, without the compiler.

Machine code has no sizes in it. A program whose equations are elementwise, reductions and broadcasts of whole arrays,
and which is one kernel, differs at other sizes in the numbers of that kernel's call only (``loops.resize``), as long as
the same extents are 1 or equal (``runtime.size_class``) and ``loops.thresholds`` answers the same. All this is checked
when a ``Resizable`` is made of a compiled program, and again at each size.

    add f32[300] f32[300], compiled    ->    the executable for f32[301] f32[301]: extents (301,), results of 1204 bytes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft import dtypes, runtime
from weft._base import lazy
from weft._base.target_model import FAR
from weft.compiler import context, contraction, link, product_sizes, resized_forms, sort_sizes, steps
from weft.compiler.instructions import Copy, Instruction, Kernel, Launch, NewOutput
from weft.compiler.steps import Run
from weft.core import index_maps, kinds
from weft.core.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.core.store import PROGRAMS, Entry
from weft.errors import InternalError
from weft.loops import costs, indexed, resize
from weft.loops.index_math import UNIT
from weft.loops.nests import Lowered

if TYPE_CHECKING:
    from weft.compiler.pipeline import Program

MOST_REDUCED = FAR - 1  # points of a reduction: fusion treats larger ones in ways of their own
MOST_UPDATED = 1 << 14  # elements of updates: more may be divided (``indexing``)
_MOST_MEMBERS = 8  # programs of a family, one for each answer of ``thresholds``
_FAMILY_BYTES, _EQUATION_BYTES, _STEP_BYTES = 4000, 400, 3000  # measured: of a family, for each equation and step

# kinds of operations that may be the same at other sizes but for numbers: two programs show it
_SHOWN = (kinds.View, kinds.Reshape, kinds.Gather, kinds.Scatter)

_Alone = product_sizes.ResizableProduct | sort_sizes.ResizableSort
Shape = tuple[int | None, ...]  # of each dimension the number of its extent among the sizes; None: 1


class Resizable:
    """One compiled program, and how to make an executable of it for other sizes of the same class."""

    def __init__(
        self, program: Program, run: Run, sizing: resize.Sizing, shapes: Sequence[Shape], inputs: Sequence[Shape]
    ) -> None:
        compiled = program.compiled[0]
        self.name, self.nest, self.sizing = program.name, run.lowered.nest, sizing
        self.copied = next((entry for entry in program.plan.instructions if type(entry) is Copy), None)
        self.itemsize = program.out_avals[0].dtype.itemsize
        self.shapes, self.inputs = shapes, inputs
        self.kernel, self.ns_per_point, self.operands = compiled.kernel, compiled.ns_per_point, run.operands
        self.n_loops = len(self.nest.dims) - len(self.nest.digits)
        self.known = [(place, dim.extent) for place, dim in enumerate(self.nest.dims) if dim.extent is not None]
        self.reduces = any(dim.role == "reduced" for dim in self.nest.dims)

    def shape(self, output: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of a result."""
        return tuple([1 if place is None else sizes[place] for place in self.shapes[output]])

    def instructions(self, sizes: Sequence[int]) -> list[Kernel | Launch | Copy] | None:
        """The call of the kernel, after the copy that it updates; None if there are too many points."""
        if self.sizing.words:
            for shape in self.inputs:
                if math.prod(product_sizes.at(shape, sizes)) >= indexed.FEW:
                    return None
        found = resize.numbers(self.sizing, sizes)
        if self.known and any(found.extents[place] != extent for place, extent in self.known):
            return None  # ``thresholds`` tells such sizes apart; this holds even if it should fail to
        points = math.prod(found.extents[: self.n_loops])
        if found.outer:
            points *= math.prod([extent for extent, _ in found.outer])
        if self.reduces and points > (MOST_REDUCED if self.copied is None else MOST_UPDATED):
            return None
        call = self._call(found, points, sizes)
        if self.copied is None or call is None:
            return call and [call]
        nbytes = math.prod(self.shape(0, sizes)) * self.itemsize
        return [tuple.__new__(Copy, (self.copied.to, self.copied.source, nbytes)), call]

    def _call(self, found: resize.Numbers, points: int, sizes: Sequence[int]) -> Kernel | Launch | None:
        """The instruction; None if the host would run it, which is another one."""
        del sizes
        split = link.split_call(self.nest, found.extents, points, self.ns_per_point)
        return tuple.__new__(Kernel, (self.kernel, self.operands, found.params, found.outer, *split))


class ResizableLaunch(Resizable):
    """One compiled program of a GPU, and how to make an executable of it for other sizes of the same class."""

    def __init__(self, low: Lowered, elements: Sequence[Sequence[resize.Term]], *described: Any) -> None:
        super().__init__(*described)
        self.low, self.elements = low, elements  # of each operand its strides
        self.where = link.lines(low.lines)

    def _call(self, found: resize.Numbers, points: int, sizes: Sequence[int]) -> Launch | None:
        strides = [tuple(resize.values(terms, sizes)) for terms in self.elements]
        operands = [b._replace(strides=s) for b, s in zip(self.low.operands, strides, strict=True)]
        low = self.low.replace(operands=tuple(operands), extents=found.extents, params=found.params)
        call = lazy.submodule("weft.compiler.launches").of_kernel(low)
        cost = points * costs.nanoseconds(self.nest)
        return None if call is None else tuple.__new__(Launch, (self.kernel, self.operands, *call, cost, self.where))


class Family(Entry):
    """Programs that differ in their sizes only, by the answers of ``thresholds``: an entry of a level of the cache."""

    __slots__ = (
        "alone", "asked", "device", "found", "given", "literals", "members", "out_avals", "refuses",
        "several", "turns", "users", "weight",
    )  # fmt: skip

    def __init__(
        self, out_avals: Sequence[Any], given: bool = False, weight: int = _FAMILY_BYTES, device: int = 0
    ) -> None:
        self.weight, self.device = weight, device  # bytes; the number of the device that runs them
        self.given = given  # whether all extents are among the sizes, those of operations without operands too
        self.out_avals = tuple(out_avals)  # of one member; of the others the shapes differ
        self.members: dict[Any, Resizable] = {}
        self.asked: resize.Asked | None = None
        self.alone: _Alone | None = None  # the only member, if it is no kernel
        self.literals: tuple[Any, ...] | None = None  # those of the members above
        self.several: resized_forms.Several | None = None  # members of several steps, or of other literals
        self.turns = False  # whether views exchange dimensions: members are of several steps
        self.refuses = False  # whether its programs are not of the kind that this is for
        self.keys = {}
        self.found = self.users = 0  # users: programs of functions

    def uses(self) -> int:
        return self.found

    def joined(self, program: Any) -> None:
        """A program of a function is a member."""
        program.kin = self
        self.users += 1

    def left(self, program: Any, release: Callable[[Any], None] = PROGRAMS.release) -> None:
        """It has gone; a family that had members and has none goes too. (At exit names of modules may be gone.)"""
        program.kin = None
        self.users -= 1
        if not self.users:
            release(self)

    def at(
        self, sizes: Sequence[int], in_avals: Sequence[Any], literals: tuple[Any, ...] = ()
    ) -> tuple[Any, tuple[Any, ...]] | None:
        """(the executable, the avals of its results) for operands with these distinct extents; None: compile it.

        ``literals``: those of the program that follow from extents.
        """
        if self.refuses:
            return None
        member = self._member(sizes) if self.literals is None or self.literals == literals else None
        made = None if member is None else member.instructions(sizes)
        if member is not None and made is not None and not context.verifies():  # then ``learn`` compares
            self.found += 1
            avals = self._results(member, sizes)
            outputs = [tuple.__new__(NewOutput, (aval.nbytes, aval)) for aval in avals]
            executable = runtime.Executable(len(in_avals), outputs, [], 0, made, member.name, in_avals, self.device)
            return executable, avals
        several = None if self.several is None else self.several.at(sizes, literals)
        if several is None or context.verifies():
            return None
        avals = self._results(several, sizes)
        executable = several.executable(sizes, in_avals, avals, literals)
        self.found += executable is not None
        return None if executable is None else (executable, avals)

    def _results(self, member: Any, sizes: Sequence[int]) -> tuple[Any, ...]:
        """The avals of the results."""
        numbered = enumerate(self.out_avals)
        return tuple([runtime.ShapedArray(member.shape(n, sizes), a.dtype, a.weak_type) for n, a in numbered])

    def _member(self, sizes: Sequence[int]) -> Resizable | _Alone | None:
        if self.asked is None:
            return self.alone
        return self.members.get(resize.answers(self.asked, sizes))

    def learn(self, program: Program, sizes: Sequence[int], literals: tuple[Any, ...] = ()) -> None:
        """Take in a program that was compiled at these sizes, with these literals that follow from them."""
        if self.refuses:
            return
        if not self.turns and self.literals in (None, literals) and self._learn_one(program, sizes):
            self.literals = literals
            if not literals:
                return
        elif _is_large(program):
            return
        if self.several is None:
            self.refuses = (
                not (_is_plain(program) and _are_all(program.source.jaxpr, _is_stepwise)) and not self.members
            )
            self.several = None if self.refuses else resized_forms.Several(self.turns)
        if self.several is not None:
            self.several.learn(program, sizes, literals)

    def _learn_one(self, program: Program, sizes: Sequence[int]) -> bool:
        """Take in a program that is one kernel, product or sort; whether it is."""
        known = self._member(sizes)
        if known is not None:  # with the option ``check``, and for large reductions
            _compare(known, program, sizes)
            return True
        made = _resizable(program, sizes, self.given)
        if made is None:
            if self.members:
                return False
            if program.stages.context.grid is not None:
                return False
            if _is_of_one(program, _is_product):
                self.alone = product_sizes.resizable(program, sizes)
            if self.alone is None and _is_of_one(program, _is_sort):
                self.alone = sort_sizes.resizable(program, sizes)
            return self.alone is not None
        asked = made.sizing.asked
        self.asked = self.asked or asked
        if len(self.members) < _MOST_MEMBERS and asked == self.asked:
            self.members[resize.answers(asked, sizes)] = made
        return True


def _is_stepwise(equation: JaxprEqn) -> bool:
    """Whether the compiler treats an equation alike at all sizes of a class in programs of several steps."""
    kind = equation.primitive.kind
    if isinstance(kind, kinds.Contraction):
        sums, batches = equation.params["dimension_numbers"]
        sides = zip(equation.invars, sums, batches, strict=True)
        free = [contraction.free_dims(x.aval.ndim, summed, batch) for x, summed, batch in sides]
        return all(free) or is_general(equation)  # of vectors, some are reductions at some sizes
    if isinstance(kind, kinds.Resolve):
        return _expands_alike(equation) is not False
    return isinstance(kind, _SHOWN) or _is_sort(equation) or is_general(equation)


def _expands_alike(equation: JaxprEqn) -> bool | None:
    """``kinds.Resolve.at_any_size`` of an equation."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Resolve) or kind.at_any_size is None:
        return False
    return kind.at_any_size([atom.aval for atom in equation.invars], equation.params)


def may_be_sized(equation: JaxprEqn) -> bool:
    """Whether the call of a kernel with this equation may follow from sizes, if two programs show that it does."""
    return isinstance(equation.primitive.kind, (kinds.Assemble, *_SHOWN)) or is_general(equation)


def weight_of(program: Program) -> int:
    """The bytes of a family that learns a program."""
    steps = len(program.kernels.steps)
    more = _STEP_BYTES * steps if steps > 1 else 0
    return _FAMILY_BYTES + _EQUATION_BYTES * len(program.source.jaxpr.eqns) + more


def _is_large(program: Program) -> bool:
    return any(low is not None and low.points > MOST_REDUCED for low in program.lowered)


def _compare(known: Resizable | _Alone, program: Program, sizes: Sequence[int]) -> None:
    """InternalError if the compiler made another program than this gives."""
    given, plan = known.instructions(sizes), program.plan
    if given is None or (isinstance(known, Resizable) and known.reduces and not resized_forms.n_loops(program)):
        return  # or few elements are combined without a loop (``unrolled_reductions``), which gives the same bits
    shapes = [known.shape(number, sizes) for number in range(len(plan.outputs))]
    same = shapes == [output.aval.shape for output in plan.outputs] and len(plan.instructions) == len(given)
    if isinstance(known, Resizable):
        run = plan.instructions[-1]
        run = run.source if type(run) is steps.Launched else run
        same = same and type(run) is Run and run.lowered.nest == known.nest
        made = link.instructions(plan, program.compiled, _no_program) if same else []
        same = same and made[:-1] == given[:-1] and _call_of(made[-1]) == _call_of(given[-1])
    else:
        same = same and plan.instructions == given
    if not same:
        raise _difference(program, sizes, f"results of shapes {shapes} by {given}")


def _call_of(instruction: Instruction) -> tuple[Any, ...]:
    """What a member of a family has in common with what the compiler makes: not the kernel, nor lines of a program."""
    return instruction[1:-1] if isinstance(instruction, Launch) else instruction[1:]


def _difference(program: Program, sizes: Sequence[int], given: str) -> InternalError:
    return InternalError(
        f"for extents {tuple(sizes)} a family gives {given}; the compiler made {program.plan.describe()}",
        stage="other_sizes",
        node=program.name,
    )


def _no_program(*_: Any) -> Any:
    raise AssertionError("a kernel runs no other program")


def _resizable(program: Program, sizes: Sequence[int], given: bool) -> Resizable | None:
    """What gives a program at other sizes; None if that is not certain."""
    plan = program.plan
    if not _is_plain(program) or not 1 <= len(plan.instructions) <= 2 or _has_fewer_loops(program):
        return None
    run = plan.instructions[-1]
    run = run.source if type(run) is steps.Launched else run
    if type(run) is not Run or plan.temps or not _is_general(program.source.jaxpr):
        return None
    if len(plan.instructions) == 2 and not _is_copy_of_operand(plan):
        return None
    if not all(type(output) is NewOutput for output in plan.outputs) or any(place[2] != -1 for place in run.operands):
        return None
    if run.lowered.sizing is None or (any(d.role == "reduced" for d in run.lowered.nest.dims) and _is_large(program)):
        return None
    places = _places(program, sizes, given)
    sizing = None if places is None else resize.placed(run.lowered.sizing, places)
    jaxpr = program.jaxpr
    if sizing is None or places is None:
        return None
    shapes, inputs = _shapes(program, jaxpr.outvars, places), _shapes(program, jaxpr.invars, places, _ranks(program))
    if shapes is None or inputs is None:
        return None
    made = _made(program, run, sizing, places, shapes, inputs)
    found = resize.numbers(sizing, sizes)
    same = found == (run.lowered.extents, run.outer, run.lowered.params)
    same = same and made is not None and all(made.shape(n, sizes) == v.shape for n, v in enumerate(program.out_avals))
    return made if same else None


def _made(
    program: Program, run: Run, sizing: resize.Sizing, places: dict[int, int | None], *shapes: Any
) -> Resizable | None:
    low = run.lowered
    if not low.gpu:
        return Resizable(program, run, sizing, *shapes)
    elements = None if low.sizing is None else resize.placed_terms(low.sizing.elements, places)
    return None if elements is None else ResizableLaunch(low, elements, program, run, sizing, *shapes)


def _has_fewer_loops(program: Program) -> bool:
    """Whether few elements are combined without a loop (``unrolled_reductions``): other sizes have one."""
    return _n_reductions(program.source.jaxpr) > _n_reductions(program.jaxpr)


def _n_reductions(jaxpr: Jaxpr) -> int:
    count = 0
    for equation in jaxpr.eqns:
        kind = equation.primitive.kind
        inner = kind.inline(equation.params) if isinstance(kind, kinds.Higher) else None
        sums = isinstance(kind, kinds.Contraction) and contraction.is_of_vectors(equation)  # becomes a reduction
        count += (sums or isinstance(kind, kinds.Reduction)) if inner is None else _n_reductions(inner.jaxpr)
    return count


def _is_copy_of_operand(plan: steps.Plan) -> bool:
    """Whether a plan begins with a copy of a whole operand to its only result."""
    copy = plan.instructions[0]
    return (
        type(copy) is Copy and len(plan.outputs) == 1 and copy.to == (plan.n_inputs, 0, -1)
        and copy.source[0] < plan.n_inputs and copy.source[1:] == (0, -1) and copy.nbytes == plan.outputs[0].aval.nbytes
    )  # fmt: skip


def _is_plain(program: Program) -> bool:
    """Whether a program has nothing but operands and results: no constants, no donation, no operand as a result."""
    if program.stages.watched or program.consts or any(program.donated):
        return False
    return not any(type(out) is Literal or out in program.jaxpr.invars for out in program.jaxpr.outvars)


def _is_of_one(program: Program, is_it: Callable[[JaxprEqn], bool]) -> bool:
    """Whether what becomes one instruction that is no kernel is that at all sizes, beside what is general."""
    return _is_plain(program) and _are_all(program.source.jaxpr, lambda e: is_it(e) or is_general(e))


def _are_all(jaxpr: Jaxpr, holds: Callable[[JaxprEqn], bool]) -> bool:
    """Whether something holds for every equation of a program without effects, those of calls included."""
    if jaxpr.effects:
        return False
    for equation in jaxpr.eqns:
        kind = equation.primitive.kind
        inner = kind.inline(equation.params) if isinstance(kind, kinds.Higher) else None
        if not holds(equation) and (inner is None or inner.consts or not _are_all(inner.jaxpr, holds)):
            return False
    return True


def _is_product(equation: JaxprEqn) -> bool:
    return isinstance(equation.primitive.kind, kinds.Contraction)


def _is_sort(equation: JaxprEqn) -> bool:
    """Whether an equation sorts, or counts, as for the positions of what is sorted."""
    kind = equation.primitive.kind
    return isinstance(kind, kinds.Generate) or (isinstance(kind, kinds.External) and kind.ordering is not None)


def _places(program: Program, sizes: Sequence[int], given: bool) -> dict[int, int | None] | None:
    """Where the extent of each symbol is among the sizes; None for an extent of 1."""
    symbols, places = program.kernels.sizes, {}
    numbers: dict[int, int | None] = {1: None} | {size: number for number, size in enumerate(sizes)}
    jaxpr = program.jaxpr
    made = [v for eqn in jaxpr.eqns for v in eqn.outvars if symbols.known(v)] if given else []
    ranks = (*_ranks(program), *[v.aval.ndim for v in made])
    for variable, rank in zip((*jaxpr.invars, *made), ranks, strict=True):
        if not symbols.known(variable):
            return None
        for symbol, extent in zip(symbols.symbols(variable)[:rank], variable.aval.shape[:rank], strict=True):
            if symbol == UNIT:
                continue
            if extent not in numbers:  # the types of the call are not those of the program: float0
                return None
            if places.setdefault(symbol, numbers[extent]) != numbers[extent]:
                return None
    return places


def _ranks(program: Program) -> list[int]:
    """The ranks of the operands as they are given: behind them, an array of keys has a dimension of their words."""
    return [variable.aval.ndim for variable in program.source.jaxpr.invars]


def _shapes(
    program: Program, variables: Sequence[Any], places: dict[int, int | None], ranks: Sequence[int] | None = None
) -> list[Shape] | None:
    symbols, shapes = program.kernels.sizes, []
    for number, variable in enumerate(variables):
        if type(variable) is Literal or not symbols.known(variable):
            return None
        found = symbols.symbols(variable)[: None if ranks is None else ranks[number]]
        if any(symbol != UNIT and symbol not in places for symbol in found):
            return None
        shapes.append(tuple([None if symbol == UNIT else places[symbol] for symbol in found]))
    return shapes


def _is_general(jaxpr: Jaxpr) -> bool:
    return not jaxpr.effects and all(map(is_general, jaxpr.eqns))


def is_general(equation: JaxprEqn) -> bool:
    """Whether the compiler treats an equation alike at all sizes of a class: see the module."""
    kind = equation.primitive.kind
    if isinstance(kind, kinds.Higher):
        inner = kind.inline(equation.params)
        return inner is not None and not inner.consts and _is_general(inner.jaxpr)
    if isinstance(kind, kinds.View):
        operand, out = equation.invars[0].aval, equation.outvars[0].aval
        uses = zip(kind.index_map(operand, out, equation.params), operand.shape, strict=True)
        return all(_is_whole(use, extent, out.shape) for use, extent in uses)
    if isinstance(kind, kinds.Gather):
        return _takes_whole_rows(equation)
    if isinstance(kind, kinds.Scatter):
        return _updates_whole_rows(equation)
    if isinstance(kind, kinds.Contraction):
        return contraction.is_of_vectors(equation) or contraction.is_outer(equation)
    if isinstance(kind, kinds.Resolve):  # the number of keys is no extent of an operand
        return bool(_expands_alike(equation)) and not any(dtypes.is_extended(v.aval.dtype) for v in equation.outvars)
    return isinstance(kind, (kinds.Elementwise, kinds.Reduction, kinds.Cumulative, kinds.Generate, kinds.Identity))


def _takes_whole_rows(equation: JaxprEqn) -> bool:
    """Whether windows have extent 1 where they are placed, and are whole elsewhere: indices of one dimension."""
    array, kind = equation.invars[0].aval, equation.primitive.kind
    windows = kind.windows([atom.aval for atom in equation.invars], equation.outvars[0].aval, equation.params)
    shape = equation.outvars[0].aval.shape
    if len(windows.starts) != 1 or windows.most != (array.shape[windows.starts[0]] - 1,):
        return False
    return all(
        (walk is None) if dim in windows.starts else (walk is not None and walk not in windows.batch
                                                      and shape[walk] == array.shape[dim])
        for dim, walk in enumerate(windows.moved)
    )  # fmt: skip


def _updates_whole_rows(equation: JaxprEqn) -> bool:
    """Whether few windows of extent 1 where they are placed, whole elsewhere, are updated in an operand."""
    array, indices, updates = [atom.aval for atom in equation.invars[:3]]
    kind, params = equation.primitive.kind, equation.params
    windows = kind.windows([atom.aval for atom in equation.invars], equation.outvars[0].aval, params)
    if len(equation.invars) != 3 or len(windows.starts) != 1 or windows.most != (array.shape[windows.starts[0]] - 1,):
        return False
    promises = indices.ndim > 1 and (kind.ordered(params) or kind.unique(params))
    if promises or updates.size > MOST_UPDATED:
        return False
    return all(
        (walk is None) if dim in windows.starts else (walk is not None and walk not in windows.batch
                                                      and updates.shape[walk] == array.shape[dim])
        for dim, walk in enumerate(windows.moved)
    )  # fmt: skip


def _is_whole(use: Any, extent: int, shape: Sequence[int]) -> bool:
    """Whether a view shows a whole dimension, or repeats its only element."""
    if use.axis == index_maps.CONSTANT:
        return extent == 1 and use.start == 0
    return (use.start, use.step) == (0, 1) and shape[use.axis] == extent
