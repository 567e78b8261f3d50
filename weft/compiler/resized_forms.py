"""Programs of several steps at other sizes: the forms before the plan from numbers, and a plan for them.

Passes, fusion and scheduling take nine tenths of a compilation, and do the same at other sizes. Here every kernel's
call gets its new numbers (``loops.resize``), every variable its new type, and ``plan`` does the rest: memory, sorts,
instructions. What these forms were made for may have constants in it that equal an extent by chance, so they are
trusted only once the compiler has made the same of sizes that differ (``ResizableForms.learn``). 1.1 to 3 ms become
0.1 ms.

    kernel bits -> a; sort a, x -> y, for i32[300]    ->    the same three arrays of 301, and the instructions for them
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft._base.target_model import FAR
from weft.compiler import chain, context, link, plan, sort_lowering, steps
from weft.compiler.instructions import Copy, Fill, Gemm, NewOutput, Sort
from weft.compiler.kernels import Kernels, Step
from weft.core import kinds
from weft.core.jaxpr import Jaxpr, JaxprEqn, Literal, Var
from weft.errors import InternalError
from weft.loops import indexed, resize
from weft.loops.index_math import UNIT, Sizes
from weft.loops.nests import Binding, Lowered
from weft.loops.thresholds import Thresholds

if TYPE_CHECKING:
    from weft.compiler.pipeline import Program

MOST_POINTS = FAR - 1  # points of a kernel: fusion treats larger ones in ways of their own
_MOST_MEMBERS, _MOST_REFUTED = 8, 3
_INSTRUCTIONS = (steps.Run, steps.Chain, steps.FusedEpilogue, steps.Launched, steps.ByLibrary, Gemm, Sort, Copy, Fill)

Numbered = tuple[Any, tuple[int | None, ...]]  # a type, and of each dimension the number of its extent (None: 1)


class _Kernel:
    """A kernel of the program: what gives its call at other sizes."""

    def __init__(self, low: Lowered, sizing: resize.Sizing, elements: Sequence[tuple[resize.Term, ...]]) -> None:
        self.low, self.sizing = low, sizing
        # of each operand its strides, None where these are the same at all sizes
        self.elements = [
            (binding, terms if any(product for _, product in terms) else None)
            for binding, terms in zip(low.operands, elements, strict=True)
        ]
        self.answers: Thresholds | None = None
        self.known = [(place, dim.extent) for place, dim in enumerate(low.nest.dims) if dim.extent is not None]
        self.n_loops = len(low.nest.dims) - len(low.nest.digits)
        # scalars that are literals, by where they begin: dtype, form, the literals that it may be
        self.filled: dict[int, tuple[Any, int, tuple[int, ...]]] = {}

    def at(self, sizes: Sequence[int], variables: dict[Any, Var], literals: Sequence[Any]) -> Lowered | None:
        """The call at these sizes; None if the compiler would make another nest, or treat it in another way."""
        if resize.answers(self.sizing.asked, sizes) != self.answers:
            return None
        found = resize.numbers(self.sizing, sizes)
        if any(found.extents[place] != extent for place, extent in self.known):
            return None
        outer = tuple([extent for extent, _ in found.outer])
        if math.prod(found.extents[: self.n_loops]) * math.prod(outer) > MOST_POINTS:
            return None
        bindings = []
        for number, (binding, terms) in enumerate(self.elements):
            variable, role, offset, strides, around, starts, dtype = binding
            if terms is not None:
                strides = tuple(resize.values(terms, sizes))
            if outer:
                around = tuple([steps[number] // dtype.itemsize for _, steps in found.outer])
            fields = (variables.get(variable, variable), role, offset, strides, around, starts, dtype)
            bindings.append(tuple.__new__(Binding, fields))
        params = found.params
        if self.filled:
            block, begin = bytearray(params), len(params) - self.scalar_bytes
            for at, (dtype, form, numbers) in self.filled.items():
                if len({literals[number] for number in numbers}) > 1:
                    return None  # literals that were equal so far differ now
                scalar = _form(literals[numbers[0]], dtype, form)
                assert scalar is not None, "literals are found in kernels as numbers that are not integers"
                block[begin + at : begin + at + dtype.itemsize] = scalar
            params = bytes(block)
        gpu, lines = self.low.gpu, self.low.lines
        own = self.low.name, self.low.nest, tuple(bindings), found.extents, outer, params
        low = Lowered(*own, gpu=gpu, lines=lines)
        return None if gpu and not lazy.submodule("weft.loops.grid").fits(low) else low

    @property
    def scalar_bytes(self) -> int:
        return sum([-(-dtype.itemsize // 8) * 8 for dtype in self.low.nest.scalars])

    def fill(self, params: bytes, own: Sequence[Any], literals: Sequence[Any]) -> bool:
        """Find where literals are in the parameters, from those of another program; False if these differ otherwise."""
        before, mine = len(params) - self.scalar_bytes, len(self.low.params) - self.scalar_bytes
        of_sizes = [word[0] for word in self.sizing.words]  # no literals, even where they equal one
        at = 0
        for dtype in self.low.nest.scalars:
            first, second = self.low.params[mine + at :][: dtype.itemsize], params[before + at :][: dtype.itemsize]
            if first != second and at not in self.filled and at not in of_sizes:
                found = self._literals(dtype, (first, second), own, literals)
                if found is None:
                    return False
                self.filled[at] = found
            at += -(-dtype.itemsize // 8) * 8
        return True

    def _literals(
        self, dtype: Any, scalars: tuple[bytes, bytes], own: Sequence[Any], literals: Sequence[Any]
    ) -> tuple[Any, int, tuple[int, ...]] | None:
        """The literals that are two scalars in one form, in their two programs."""
        for form in _FORMS:
            pairs = enumerate(zip(own, literals, strict=True))
            found = [n for n, (a, b) in pairs if (_form(a, dtype, form), _form(b, dtype, form)) == scalars]
            if found:
                return dtype, form, tuple(found)
        return None


_FORMS = (1, -1, 2, -2)  # how a kernel holds a literal: itself or its inverse, or these negated


def _form(value: Any, dtype: Any, form: int) -> bytes | None:
    """The bytes of a literal in a form; None for integers: those of a kernel may be bounds of places that equal one."""
    if not dtypes.issubdtype(dtype, np.inexact):
        return None
    with np.errstate(over="ignore"):  # float16 of a large extent is infinite
        found = dtype.type(value)
    if abs(form) == 2:
        found = dtype.type(1) / found
    return np.asarray(found if form > 0 else -found, dtype).tobytes()


class ResizableForms:
    """The forms of one compiled program, and what makes an executable of them for other sizes of the same class."""

    def __init__(
        self,
        program: Program,
        sizes: Sequence[int],
        literals: Sequence[Any],
        numbering: _Numbering,
        parts: list[_Kernel | None],
        turns: bool,
    ) -> None:
        self.turns, self.literals, self.differed = turns, tuple(literals), frozenset[int]()
        self.name, self.kernels, self.parts = program.name, _light(program.kernels), parts
        context = program.stages.context
        self.device, self.on_gpu, self.library = context.device, context.grid is not None, context.library
        self.sizes, self.trusted = tuple(sizes), frozenset[int]()  # the places of sizes that were seen to differ
        self.constants, self.types = tuple(numbering.constants), numbering.types
        self.results = [numbering.types[v] for v in program.jaxpr.outvars]
        compiled, instructions = iter(program.compiled), program.plan.instructions
        self.machine_code = {nest: next(compiled) for entry in instructions if (nest := _nest_of(entry)) is not None}
        self.reducing = n_loops(program)
        self.indexed = any(part is not None and part.sizing.words for part in parts)
        for part in parts:
            if part is not None:
                part.answers = resize.answers(part.sizing.asked, self._all(sizes))

    def _all(self, sizes: Sequence[int]) -> tuple[int, ...]:
        return (*sizes, *self.constants)

    def shape(self, output: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of a result."""
        return _shape(self.results[output], self._all(sizes))

    def is_trusted(self, sizes: Sequence[int], literals: Sequence[Any]) -> bool:
        """Whether these differ only in places where others were seen to give what the compiler makes."""
        return _differing(sizes, self.sizes) <= self.trusted and _differing(literals, self.literals) <= self.differed

    def executable(
        self, sizes: Sequence[int], in_avals: Sequence[Any], out_avals: Sequence[Any], literals: Sequence[Any]
    ) -> Any:
        """What runs the program at these sizes; None if the compiler has to make it."""
        planned = self._plan(sizes, out_avals, literals)
        compiled = None if planned is None else self._compiled(planned)
        if planned is None or compiled is None:
            return None
        made = link.instructions(planned, compiled, _no_program)
        return runtime.Executable(
            len(in_avals), planned.outputs, planned.temps, planned.arena_bytes, made, self.name, in_avals, self.device
        )

    def _plan(self, sizes: Sequence[int], out_avals: Sequence[Any], literals: Sequence[Any]) -> steps.Plan | None:
        every = self._all(sizes)
        variables = {}  # those whose shape is another one
        for variable, numbered in self.types.items():
            shape = _shape(numbered, every)
            if shape != variable.aval.shape:
                aval = numbered[0]
                variables[variable] = Var(runtime.ShapedArray(shape, aval.dtype, aval.weak_type))
        largest = max([v.aval.size for v in variables.values()], default=0)
        if largest >= indexed.FEW if self.indexed else self.turns and largest > MOST_POINTS:
            return None
        lowered: list[Lowered | None] = []
        for part in self.parts:
            low = None if part is None else part.at(every, variables, literals)
            if low is None and part is not None:
                return None
            lowered.append(low)
        kernels = _renamed(self.kernels, variables)
        sorts = [step.equation for step in kernels.steps if step.equation is not None and step.equation.invars]
        if any(sort_lowering.may_be_unrolled(equation, equation.invars[0].aval.shape) for equation in sorts):
            return None
        made = plan.plan(kernels, lowered, (), out_avals, (), self.on_gpu)
        launched = lazy.submodule("weft.compiler.launches").launched
        made = launched(made, _no_program, self.library) if self.on_gpu else chain.chain(made)
        return made if _is_plain(made) else None

    def _compiled(self, planned: steps.Plan) -> list[Any] | None:
        """The machine code of the kernels of a plan; None if one has none yet."""
        nests = [nest for entry in planned.instructions if (nest := _nest_of(entry)) is not None]
        found = [self.machine_code.get(nest) for nest in nests]
        return None if None in found else found

    def learn(self, program: Program, sizes: Sequence[int], literals: Sequence[Any]) -> bool | None:
        """Whether the compiler made of these sizes what this gives (None if that is nothing): it is trusted then."""
        if self._plan(sizes, program.out_avals, literals) is None:
            return None
        if len(self.parts) != len(program.lowered) or not all(
            part is None
            or (low is not None and low.nest == part.low.nest and part.fill(low.params, self.literals, literals))
            for part, low in zip(self.parts, program.lowered, strict=True)
        ):
            return False
        given = self._plan(sizes, program.out_avals, literals)
        if given is None or not _are_equal(given, program.plan):
            return False
        self.trusted |= _differing(sizes, self.sizes)
        self.differed |= _differing(literals, self.literals)
        return True


def n_loops(program: Program) -> int:
    """The number of kernels that reduce."""
    return sum(map(_reduces, program.lowered))


def _reduces(low: Lowered | None) -> bool:
    return low is not None and any(dim.role == "reduced" for dim in low.nest.dims)


def _differing(one: Sequence[Any], other: Sequence[Any]) -> frozenset[int]:
    """The places where two lists differ."""
    return frozenset([place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b])


class Several:
    """The forms of a family's programs. They are looked at when a third program asks, as there may be none."""

    def __init__(self, turns: bool) -> None:
        self.turns = turns  # whether views exchange dimensions
        self.waiting: list[tuple[Any, Sequence[int], Sequence[Any]]] = []  # programs that were compiled, weakly held
        self.members: list[ResizableForms] = []
        self.refuted = 0  # how many were wrong

    def learn(self, program: Program, sizes: Sequence[int], literals: Sequence[Any]) -> None:
        """Note a program that was compiled."""
        if self.refuted <= _MOST_REFUTED and len(self.waiting) < _MOST_MEMBERS:
            self.waiting.append((weakref.ref(program), sizes, literals))

    def at(self, sizes: Sequence[int], literals: Sequence[Any]) -> ResizableForms | None:
        """The forms that are trusted for these sizes."""
        if len(self.waiting) + len(self.members) > 1:
            waiting, self.waiting = self.waiting, []
            for reference, *known in waiting:
                program = reference()
                if program is not None:
                    self._look_at(program, *known)
        return next((member for member in self.members if member.is_trusted(sizes, literals)), None)

    def _look_at(self, program: Program, sizes: Sequence[int], literals: Sequence[Any]) -> None:
        """Trust the forms that give this program, and drop those that give another."""
        for member in list(self.members):
            found = member.learn(program, sizes, literals)
            if found:
                return
            if found is False and n_loops(program) < member.reducing:
                return  # few elements are combined without a loop (``unrolled_reductions``), which gives the same bits
            if found is False:
                if member.is_trusted(sizes, literals) and context.verifies():
                    raise InternalError(
                        f"for extents {tuple(sizes)} a family gives another plan; the compiler made "
                        f"{program.plan.describe()}",
                        stage="resized_forms",
                        node=program.name,
                    )
                self.members.remove(member)
                self.refuted += 1
        if self.refuted > _MOST_REFUTED:
            self.members = []
        elif len(self.members) < _MOST_MEMBERS:
            made = resizable(program, sizes, literals, self.turns)
            self.members += [] if made is None else [made]


class _Numbering:
    """The number of each extent of a program's variables, among the sizes and the constants behind them."""

    def __init__(self, program: Program, sizes: Sequence[int]) -> None:
        self.symbols, self.constants = program.kernels.sizes, list[int]()
        self.numbers: dict[int, int | None] = {1: None} | {size: place for place, size in enumerate(sizes)}
        self.of_symbols: dict[int, int | None] = {UNIT: None}
        self.n_sizes = len(sizes)
        self.types: dict[Any, Numbered] = {}
        ranks = [variable.aval.ndim for variable in program.source.jaxpr.invars]
        for variable, rank in zip(program.jaxpr.invars, ranks, strict=True):
            for symbol, extent in zip(self.symbols.symbols(variable)[:rank], variable.aval.shape, strict=False):
                self.of_symbols.setdefault(symbol, self.numbers[extent])
        for variable in _variables(program):
            self.types[variable] = (variable.aval, self._places(variable))

    def _places(self, variable: Any) -> tuple[int | None, ...]:
        shape = variable.aval.shape
        if not self.symbols.known(variable):
            return tuple([self._number(extent) for extent in shape])
        places = []
        for symbol, extent in zip(self.symbols.symbols(variable), shape, strict=True):
            places.append(self.of_symbols.setdefault(symbol, self._number(extent)))
        return tuple(places)

    def _number(self, extent: int) -> int | None:
        """The number of an extent that is no operand's: of an equal size, or of a constant."""
        if extent not in self.numbers:
            self.numbers[extent] = self.n_sizes + len(self.constants)
            self.constants.append(extent)
        return self.numbers[extent]


def resizable(program: Program, sizes: Sequence[int], literals: Sequence[Any], turns: bool) -> ResizableForms | None:
    """What gives a program at other sizes, not yet trusted; None if it is not of the kind that this is for.

    ``turns``: whether views exchange dimensions, so that fusion asks how far elements of large arrays lie apart.
    """
    kernels, planned = program.kernels, program.plan
    if kernels.guards is not None or not _is_plain(planned) or not all(map(_is_simple, kernels.steps)):
        return None
    try:
        numbering = _Numbering(program, sizes)
    except KeyError:  # an operand's extent is none of the sizes: float0
        return None
    parts: list[_Kernel | None] = []
    on_gpu = program.stages.context.grid is not None
    for low in program.lowered:
        if low is None:
            parts.append(None)
            continue
        if low.sizing is None or low.gpu != on_gpu or math.prod(low.space) > MOST_POINTS:
            return None
        sizing = resize.placed(low.sizing, numbering.of_symbols)
        elements = resize.placed_terms(low.sizing.elements, numbering.of_symbols)
        if sizing is None or elements is None:
            return None
        parts.append(_Kernel(low, sizing, elements))
    made = ResizableForms(program, sizes, literals, numbering, parts, turns)
    again = made._plan(sizes, program.out_avals, literals)
    return made if again is not None and _are_equal(again, planned) else None


def _is_simple(step: Step) -> bool:
    """Whether a step is a kernel, a sort or a product of whole arrays: the same at other sizes but for numbers."""
    if step.kernel is not None:
        return True
    kind = step.equation.primitive.kind
    if isinstance(kind, kinds.Contraction):
        return step.views == (None, None)
    return isinstance(kind, kinds.External) and kind.ordering is not None


def _is_plain(planned: steps.Plan) -> bool:
    """Whether a plan has new arrays as results, and only instructions that depend on types and calls alone."""
    return all(type(output) is NewOutput for output in planned.outputs) and all(
        isinstance(entry, _INSTRUCTIONS) for entry in planned.instructions
    )


def _variables(program: Program) -> dict[Any, None]:
    """The variables whose types a plan asks for."""
    jaxpr, kernels = program.jaxpr, program.kernels
    found: list[Any] = [*jaxpr.invars, *jaxpr.outvars, *kernels.aliases, *kernels.aliases.values()]
    for step in kernels.steps:
        found += [v for pair in step.copies for v in pair]
        if step.equation is not None:
            found += [*step.equation.invars, *step.equation.outvars]
    for low in program.lowered:
        found += [] if low is None else [binding.variable for binding in low.operands]
    return {atom: None for atom in found if type(atom) is not Literal}


def _light(kernels: Kernels) -> Kernels:
    """The program after fusion without the equations of its kernels, which no plan asks for."""
    nothing: dict[str, Any] = {"axes": (), "equations": (), "nodes": {}, "outputs": (), "refusals": ()}
    made = [
        step if step.kernel is None else step.replace(kernel=step.kernel.replace(**nothing)) for step in kernels.steps
    ]
    jaxpr = Jaxpr([], kernels.jaxpr.invars, kernels.jaxpr.outvars, [])
    return Kernels(jaxpr, tuple(made), kernels.aliases, Sizes())


def _renamed(kernels: Kernels, variables: dict[Any, Var]) -> Kernels:
    """The program after fusion with other variables."""

    def new(atom: Any) -> Any:
        return atom if type(atom) is Literal else variables.get(atom, atom)

    def equation(old: JaxprEqn | None) -> Any:
        if old is None:
            return None
        return old.replace(invars=list(map(new, old.invars)), outvars=list(map(new, old.outvars)))

    jaxpr = Jaxpr([], list(map(new, kernels.jaxpr.invars)), list(map(new, kernels.jaxpr.outvars)), [])
    made = [
        step.replace(equation=equation(step.equation), copies=tuple([(new(a), new(b)) for a, b in step.copies]))
        if step.copies or step.equation is not None
        else step
        for step in kernels.steps
    ]
    return Kernels(jaxpr, tuple(made), {new(a): new(b) for a, b in kernels.aliases.items()}, kernels.sizes)


def _are_equal(one: steps.Plan, other: steps.Plan) -> bool:
    """Whether two plans are the same but for their variables."""
    same = one.temps == other.temps and one.arena_bytes == other.arena_bytes and one.outputs == other.outputs
    same = same and len(one.instructions) == len(other.instructions)
    return same and all(map(_is_equal, one.instructions, other.instructions))


def _is_equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, steps.Run):
        return (one.operands, one.outer, *_call(one.lowered)) == (other.operands, other.outer, *_call(other.lowered))
    if isinstance(one, steps.Chain):
        same = (one.rows, one.block, one.nest) == (other.rows, other.block, other.nest)
        return same and all(map(_is_equal, one.runs, other.runs))
    if isinstance(one, steps.FusedEpilogue):
        return (one.product, one.form) == (other.product, other.form) and _is_equal(one.run, other.run)
    if isinstance(one, steps.Launched):
        return one.call == other.call
    if isinstance(one, steps.ByLibrary):
        return one.made == other.made
    return one == other


def _call(low: Lowered) -> tuple[Any, ...]:
    return low.nest, low.extents, low.outer, low.params


def _nest_of(entry: Any) -> Any:
    if isinstance(entry, steps.Run):
        return entry.lowered.nest
    if isinstance(entry, steps.FusedEpilogue):
        return entry.run.lowered.nest
    return entry.nest if isinstance(entry, steps.Chain | steps.Launched) else None


def _shape(numbered: Numbered, sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple([1 if place is None else sizes[place] for place in numbered[1]])


def _no_program(*_: Any) -> Any:
    raise AssertionError("a kernel or a sort runs no other program")
