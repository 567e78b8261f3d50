"""Programs that differ from an earlier one in sizes alone: its kernels and their layouts, bound to the new sizes.

What fuse, lower and schedule decide depends on a program's shape-free description (``flat``), so that it is decided
once. A ``Template`` is made of a compiled program; its ``bind`` gives the kernels of another one. It holds where the
sizes have the same pattern, and where some that were told apart are 0 or 1 now: loops of no step or one. With
``WEFT_CHECK=1`` every program that is recalled is compiled as well, and both must agree.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import contraction, like_kernels, pad_sums, plan, rolls, verify
from weft.compiler import flat as flats
from weft.compiler.flat import Flat
from weft.compiler.fuse import Kernels, Step
from weft.compiler.interpret import interpret
from weft.compiler.walks import Chain, Stage, walk
from weft.core import kinds
from weft.core.budget import BUDGET
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from weft.errors import InternalError
from weft.loops import indexed, starts
from weft.loops import interpret as loops
from weft.loops.index_math import UNIT, Sizes
from weft.loops.kernel import CONSTANT, Access, Kernel
from weft.loops.lower import Draft
from weft.loops.schedule import ALONG, Layout, Lowered
from weft.record import NamedTuple
from weft.runtime import ShapedArray

_BYTES, _EQUATION_BYTES = 1500, 600  # measured: a description with its template, each equation
LARGE = 1 << 16  # elements of arrays whose kernels are worth more than a compilation where they become of one shape
_SIZELESS = (  # kinds of which kernels have no size from the parameters
    kinds.Elementwise, kinds.Reduction, kinds.Contraction, kinds.Identity, kinds.Reshape, kinds.Gather, kinds.Scatter,
    kinds.Generate, kinds.DynamicSlice, kinds.DynamicUpdateSlice,
)  # fmt: skip
_SORTS = (lax.sort_p, lax.sort_order_p)
_CALLED = (kinds.Contraction, kinds.External, kinds.Loop, kinds.Routine, kinds.Branch)
_BOUNDING = (lax.clamp_p, lax.min_p, lax.max_p, lax.le_p, lax.ge_p, lax.lt_p, lax.gt_p)  # by what may be a size
_known: dict[Any, dict[tuple[int, ...], Description]] = {}  # by what is alike but for sizes, then by their pattern


@dataclass(slots=True)
class _Place:
    """Where a walk begins, of the classes of sizes (``loops.starts``)."""

    rest: int
    terms: tuple[tuple[int, int], ...]

    def at(self, sizes: Sequence[int]) -> int:
        return self.rest + sum([often * sizes[number] for number, often in self.terms])


class _Within(NamedTuple):
    """Whether a place in an assembled array is in a piece, by the classes of where that starts and how long it is."""

    place: int
    terms: tuple[tuple[int, int], ...]
    start: int
    extent: int

    def at(self, size: Callable[[int], int]) -> _Within:
        """The same where classes are sizes."""
        place = self.place + sum([often * size(number) for number, often in self.terms])
        return _Within(place, (), size(self.start), size(self.extent))

    def pays(self) -> bool:
        return self.start <= self.place < self.start + self.extent


@dataclass(slots=True)
class _Operand:
    """A buffer of a kernel: which variable, and how it is walked."""

    variable: int
    role: str
    access: Access
    dtype: np.dtype
    region: tuple[int | tuple[int, ...], ...] | None  # of an assembled array: the classes whose sums it starts at
    moved: int | None  # what of the template moves it


@dataclass(slots=True)
class _Moved:
    """A slice or an update whose starts, read at run time, move operands; ``operands`` may be literals of its own."""

    equation: JaxprEqn
    operands: list[int | Literal]
    result: int

    def bind(self, flat: Flat) -> JaxprEqn:
        literals = flat.literals
        atoms = [
            n if isinstance(n, Literal) else literals[-n - 1] if n < 0 else flat.variable(n) for n in self.operands
        ]
        return self.equation.replace(invars=atoms, outvars=[flat.variable(self.result)])


@dataclass(slots=True)
class _Measure:
    """A scalar made of sizes (``loops.indexed.Measure``); ``window``: the class of the window's extent."""

    array: int
    dim: int
    window: int | None

    def value(self, flat: Flat, sizes: Sequence[int], dtype: np.dtype) -> int:
        shape = flat.avals[self.array].shape
        if self.window is None:
            return math.prod(shape[self.dim + 1 :])
        return min(shape[self.dim] - sizes[self.window], int(np.iinfo(dtype).max))


@dataclass(slots=True)
class _Recipe:
    """One kernel: ``extents`` gives for each axis the class of its extent."""

    kernel: Kernel  # a stand-in with the name and the axes' symbols alone
    layout: Layout
    operands: list[_Operand]
    extents: dict[int, int]
    scalars: list[
        tuple[np.dtype, Any, int | _Measure | _Place | None]
    ]  # dtype, value, number of the literal that it is
    copies: list[tuple[int, int]]

    def follow(self, flat: Flat, sizes: Sequence[int], first: Lowered) -> tuple[Step, Lowered]:
        """The same for a kernel like that of ``first``."""
        variable, literals = flat.variable, flat.literals
        sources = [
            (dtype, source) for dtype, _, source in self.scalars if isinstance(source, int)
        ]  # all that are alike
        scalars = [(dtype, literals[-source - 1].val) for dtype, source in sources]
        low = like_kernels.follow(first, [variable(o.variable) for o in self.operands], scalars)
        if low is None:
            return self.bind(flat, sizes, ())
        copies = tuple([(variable(source), variable(target)) for source, target in self.copies])
        return Step(self.kernel, None, copies), low

    def bind(self, flat: Flat, sizes: Sequence[int], moved: Sequence[JaxprEqn]) -> tuple[Step, Lowered]:
        avals = flat.avals
        walked = []
        for operand in self.operands:
            offset, stride, strides = 0, 1, {ALONG: 1}
            shape, access, region = avals[operand.variable].shape, operand.access, operand.region
            for dim in range(len(shape) - 1, -1, -1):
                axis, start, step = access[dim]
                if type(start) is _Place:
                    start = start.at(sizes)
                if region is not None:
                    at = region[dim]
                    start = sizes[at] if isinstance(at, int) else sum([sizes[n] for n in at])
                offset += start * stride
                if axis != CONSTANT:
                    strides[axis] = strides.get(axis, 0) + stride * step
                stride *= shape[dim]
            by = None if operand.moved is None else moved[operand.moved]
            walked.append((flat.variable(operand.variable), operand.role, offset, strides, by, operand.dtype))
        literals = flat.literals
        scalars = [
            (dtype, value if source is None else literals[-source - 1].val if isinstance(source, int)
             else source.at(sizes) if isinstance(source, _Place) else source.value(flat, sizes, dtype))
            for dtype, value, source in self.scalars
        ]  # fmt: skip
        low = self.layout.bind(walked, scalars, {key: sizes[number] for key, number in self.extents.items()})
        copies = tuple([(flat.variable(source), flat.variable(target)) for source, target in self.copies])
        return Step(self.kernel, None, copies), low


@dataclass(slots=True)
class _Call:
    """One equation that is no kernel; its parameters are those of row ``row``, if no rewrite made it."""

    equation: JaxprEqn
    row: int | None
    operands: list[int]
    results: list[int]
    order: tuple[int, ...] | None
    views: list[tuple[int, list[tuple[int, Any]]] | None]  # of each operand: the array, and each view with its index
    copies: list[tuple[int, int]]

    def bind(self, flat: Flat, sizes: Sequence[int], _: Sequence[JaxprEqn]) -> tuple[Step, None]:
        """Raises _Fixed where a product cannot be walked at these sizes (an extent of 1 has no stride)."""
        operands, results = ([flat.variable(n) for n in numbers] for numbers in (self.operands, self.results))
        kind = self.equation.primitive.kind
        if self.row is None:
            like = self.equation
        else:
            like = flat.loop(self.row) if isinstance(kind, kinds.Loop | kinds.Routine) else flat.rows[self.row][0]
        equation = like.replace(invars=operands, outvars=results)
        if isinstance(kind, kinds.Loop):
            copies = [(flat.variable(source), flat.variable(target)) for source, target in self.copies]
            return Step(None, equation, tuple(copies)), None
        if not isinstance(equation.primitive.kind, kinds.Contraction):
            return Step(None, equation), None
        left, right = [None if view is None else _chain(flat, sizes, *view) for view in self.views]
        if all(v.aval.size for v in operands) and contraction.loops_of(equation, (left, right), self.order) is None:
            raise _Fixed
        return Step(None, equation, (), self.order, (left, right)), None


def _chain(flat: Flat, sizes: Sequence[int], source: int, stages: Sequence[tuple[int, Any]]) -> Chain:
    """The views of an operand at these sizes."""
    found = []
    for number, index in stages:
        if index is not None:
            index = tuple([(dim, start.at(sizes) if type(start) is _Place else start) for dim, start in index])
        found.append(Stage(flat.variable(number), index))
    return Chain(flat.variable(source), tuple(found))


@dataclass(slots=True)
class Template:
    """The kernels of a program without its sizes; ``equations`` counts those left after simplify.

    ``made``: the variables that rewrites made, numbered after the program's own, with the classes of their extents.
    """

    recipes: list[_Recipe | _Call]
    made: list[tuple[ShapedArray, list[int]]]
    aliases: list[tuple[int, int]]
    outvars: list[int]
    equations: int
    decisions: list[tuple[Any, Any]]  # objects with ``at``, whose sizes are classes, and ``pays``; what they said
    moved: list[_Moved]
    loops: list[tuple[int, bool]]  # rows, and whether they are routines
    leaders: list[int | None]  # of each recipe
    joins: bool = False  # whether kernels become one (``edges``)

    def holds(self, flat: Flat, sizes: Sequence[int]) -> bool:
        """Whether the same is decided at other sizes."""
        return all(price.at(sizes.__getitem__).pays() == pays for price, pays in self.decisions) and all(
            isinstance(flat.loop(row).primitive.kind, kinds.Routine) == is_routine for row, is_routine in self.loops
        )

    def bind(self, flat: Flat, sizes: Sequence[int]) -> tuple[Kernels, list[Lowered | None]]:
        """The kernels and their calls for a program like the one it was made of, at the sizes of its classes.

        Raises _Fixed where these ask for others; ``flat`` is then as it was.
        """
        described = len(flat.avals)
        try:
            return self._bind(flat, sizes)
        except _Fixed:
            del flat.avals[described:]
            for number in [number for number in flat.variables if number >= described]:
                del flat.variables[number]
            raise

    def _bind(self, flat: Flat, sizes: Sequence[int]) -> tuple[Kernels, list[Lowered | None]]:
        flat.avals += [aval.update(shape=tuple([sizes[n] for n in classes])) for aval, classes in self.made]
        variable = flat.variable
        inputs = [variable(number) for number in range(flat.constants + flat.invars)]
        outvars = [variable(number) for number in self.outvars]
        jaxpr = Jaxpr(inputs[: flat.constants], inputs[flat.constants :], outvars, ())
        moved = [entry.bind(flat) for entry in self.moved] if self.moved else ()
        bound: list[tuple[Step, Lowered | None]] = []
        for recipe, leader in zip(self.recipes, self.leaders, strict=True):
            first = None if leader is None else bound[leader][1]
            if first is not None and isinstance(recipe, _Recipe):
                bound.append(recipe.follow(flat, sizes, first))
            else:
                bound.append(recipe.bind(flat, sizes, moved))
        aliases = {variable(name): variable(source) for name, source in self.aliases}
        return Kernels(jaxpr, tuple([step for step, _ in bound]), aliases, Sizes()), [low for _, low in bound]


class Description:
    """What programs are like, known by identity; ``template`` is there once one of them was compiled.

    ``classes``: the template's sizes among one's own, where it is that of a pattern which tells more sizes apart.
    ``other`` is of programs of the same pattern for whose sizes something else is decided.
    """

    __slots__ = ("__weakref__", "classes", "other", "template", "uses")

    def __init__(self) -> None:
        self.other: Description | None = None
        self.template: Template | None = None
        self.classes: tuple[int, ...] | None = None
        self.uses = 0

    def holds(self, flat: Flat) -> bool:
        """Whether its template, if there is one, is that of a program of its pattern."""
        template, classes = self.template, self.classes
        if template is None or not (template.decisions or template.loops):
            return True
        return template.holds(flat, _sizes_of(flat, classes))

    def bind(self, flat: Flat) -> tuple[Kernels, list[Lowered | None]] | None:
        """The kernels of a program that is so, and their calls; None, and no template any more, if it needs others."""
        template, classes = self.template, self.classes
        if template is None:  # another thread has dropped it
            return None
        try:
            return template.bind(flat, _sizes_of(flat, classes))
        except _Fixed:
            self.template = self.classes = None
            return None


def _sizes_of(flat: Flat, classes: tuple[int, ...] | None) -> Sequence[int]:
    return flat.sizes if classes is None else [flat.sizes[n] for n in classes]


def description(flat: Flat, token: int) -> Description | None:
    """The description that stands for all programs like ``flat`` under a configuration; None if it cannot be a key."""
    key = (token, flat.key)
    try:
        alike = _known.setdefault(key, {})
    except TypeError:  # an unhashable parameter
        return None
    found = alike.get(flat.pattern)
    if found is None:
        found = Description()
        for pattern, other in list(alike.items()):
            if other.template is not None and other.classes is None:
                found.classes = _instance(pattern, flat)
                if found.classes is not None:
                    found.template = other.template
                    break
        alike[flat.pattern] = found
        place = functools.partial(_drop, key, flat.pattern)
        BUDGET.keep(found, _BYTES + _EQUATION_BYTES * len(flat.rows), place, _uses)
    found.uses += 1
    while not found.holds(flat):
        other = found.other
        if other is None:
            other = found.other = Description()
            place = functools.partial(_drop_other, weakref.ref(found))
            BUDGET.keep(other, _BYTES + _EQUATION_BYTES * len(flat.rows), place, _uses)
        found = other
        found.uses += 1
    return found


def _instance(general: tuple[int, ...], flat: Flat) -> tuple[int, ...] | None:
    """The class in ``flat`` of each class of a pattern, if all that sets them apart is that some sizes are 0 or 1.

    Sizes may meet but for those of large arrays, literals be equal, or ones for which something could be done: it would
    gain little.
    """
    classes = {0: 0, 1: 1}
    for theirs, own in zip(general, flat.pattern, strict=True):
        if theirs != flats.OPEN and classes.setdefault(theirs, theirs if theirs <= -flats.OWN else own) != own:
            return None
    sizes = [classes[n] for n in range(sum([n >= 0 for n in classes]))]
    met = {flat.sizes[own] for own, often in Counter(sizes).items() if own > 1 and often > 1}
    if met and any(aval.size >= LARGE and not met.isdisjoint(aval.shape) for aval in flat.avals):
        return None
    return tuple(sizes)


def _drop(key: Any, pattern: tuple[int, ...], found: Description) -> None:
    alike = _known.get(key, {})
    if alike.get(pattern) is found:
        del alike[pattern]
        if not alike:
            del _known[key]


def _drop_other(before: weakref.ref[Description], other: Description) -> None:
    """Those that follow it stay."""
    found = before()
    if found is not None and found.other is other:
        found.other = other.other


def _uses(found: Description) -> int:
    return found.uses


def template(
    flat: Flat, kernels: Kernels, drafts: Sequence[Draft | None], lowered: Sequence[Lowered | None]
) -> Template | None:
    """What was decided for ``flat``, whose ``jaxpr`` was compiled; None if more than sizes may change it."""
    eqns = kernels.jaxpr.eqns
    if not pad_sums.leaves_alone(eqns):  # it looks at more of the sizes than their pattern
        return None
    if any(rolled.aval.size >= rolls.LEAST_SIZE for rolled in rolls.rolls_of(eqns)):  # so are regions
        return None
    if len(kernels.jaxpr.constvars) != flat.constants:
        return None
    try:
        return _Maker(flat, kernels).made(drafts, lowered)
    except _Fixed:
        return None


class _Fixed(Exception):
    """A size in a program that is not told by its description."""


class _Maker:
    """One template under construction."""

    def __init__(self, flat: Flat, kernels: Kernels) -> None:
        self.flat, self.kernels = flat, kernels
        self.numbers: dict[Any, int] = {variable: number for number, variable in flat.variables.items()}
        self.new: list[tuple[ShapedArray, list[int]]] = []
        self.moved: dict[JaxprEqn, int] = {}
        self.loops: list[tuple[int, bool]] = []
        self.decided: list[tuple[Any, Any]] = []
        self.literals = {id(literal): -1 - index for index, literal in enumerate(flat.literals)}
        self.rows = {first: row for row, (_, _, first, _) in enumerate(flat.rows)}
        self.rewritten = {eqn for eqn in kernels.jaxpr.eqns if self._row(eqn) is None}
        sorts = [eqn for eqn in self.rewritten if eqn.primitive in _SORTS]
        self.turned = {v for eqn in sorts for v in (*eqn.invars, *eqn.outvars) if isinstance(v, Var)}  # as flat knows
        for eqn in self.rewritten:
            self._check(eqn)
        self.assembled = {
            out: eqn
            for eqn in kernels.jaxpr.eqns
            if isinstance(eqn.primitive.kind, kinds.Assemble)
            for out in eqn.outvars
        }
        self.pieces = {out: flats.pieces(eqn) for out, eqn in self.assembled.items()}
        self.symbols: dict[int, int] = {UNIT: 1}  # of dimensions equal to one that is described: its class
        for variable in self.numbers:
            if kernels.sizes.known(variable):
                classes = [flat.classes[extent] for extent in variable.aval.shape]
                self.symbols.update(zip(kernels.sizes.symbols(variable), classes, strict=True))
        for number, variable in zip(flat.outvars, kernels.jaxpr.outvars, strict=True):
            if number >= 0 and isinstance(variable, Var) and kernels.sizes.known(variable):
                classes = [flat.classes[extent] for extent in variable.aval.shape]
                self.symbols.update(zip(kernels.sizes.symbols(variable), classes, strict=True))

    def _row(self, eqn: JaxprEqn) -> int | None:
        """The row that describes an equation; operands may be others."""
        row = self.rows.get(self.numbers.get(eqn.outvars[0], -1))
        source = None if row is None else self.flat.rows[row][0]
        return row if source and source.primitive is eqn.primitive and source.params is eqn.params else None

    def _check(self, eqn: JaxprEqn) -> None:
        """Raise _Fixed if a rewrite may have put a size, or a number not known from the key, into an equation."""
        kind = eqn.primitive.kind
        if isinstance(kind, kinds.View):
            found = kind.index_map(eqn.invars[0].aval, eqn.outvars[0].aval, eqn.params)
            order = [place.out_dim for place in found if place.out_dim is not None]
            ends = [v for v in (*eqn.invars, *eqn.outvars) if isinstance(v, Var)]
            is_turned = order != sorted(order) and self.turned.isdisjoint(ends)
            if is_turned or any(place.start or place.step != 1 for place in found):
                raise _Fixed  # where dimensions are turned, narrow ones decide (schedule)
        elif not isinstance(kind, (*_SIZELESS, kinds.Routine)) and eqn.primitive not in _SORTS:
            raise _Fixed
        numbers = [v for v in eqn.invars if isinstance(v, Literal) and id(v) not in self.literals]
        fractions = [v.val for v in numbers if v.aval.dtype.kind == "f"]
        if any(value not in flats.EXACT and math.isfinite(value) for value in fractions):
            raise _Fixed
        counts = [v.val for v in numbers if v.aval.dtype.kind in "iu" and eqn.primitive in _BOUNDING]
        if any(not isinstance(value, starts.Start) and value != 0 for value in counts):
            raise _Fixed

    def made(self, drafts: Sequence[Draft | None], lowered: Sequence[Lowered | None]) -> Template:
        """Raises _Fixed."""
        recipes: list[_Recipe | _Call] = []
        nests: dict[Any, Any] = {}  # equal nests are one object, so that they are found without being compared
        for step, draft, low in zip(self.kernels.steps, drafts, lowered, strict=True):
            if step.kernel is None:
                recipes.append(self._call(step))
                continue
            if draft is None or low is None or low.layout is None:
                raise _Fixed
            layout = dataclasses.replace(low.layout, nest=nests.setdefault(low.layout.nest, low.layout.nest))
            recipes.append(self._recipe(step, draft, layout))
        jaxpr, number = self.kernels.jaxpr, self._number
        aliases = [(number(name), number(source)) for name, source in self.kernels.aliases.items()]
        decisions = [(price.at(self._of_size), pays) for price, pays in self.kernels.decisions]
        decisions += self.decided
        moved = [self._mover(equation) for equation in self.moved]
        outvars = [number(v) for v in jaxpr.outvars]
        leaders, count = like_kernels.leaders(recipes), len(jaxpr.eqns)
        return Template(recipes, self.new, aliases, outvars, count, decisions, moved, self.loops, leaders)

    def _of_size(self, extent: int) -> int:
        return self._class(0, extent)

    def _number(self, variable: Any) -> int:
        """The number of a variable; one that a rewrite made is of the sizes that the program makes equal to its own."""
        found = self.numbers.get(variable)
        if found is None:
            found = self.numbers[variable] = len(self.flat.avals) + len(self.new)
            self.new.append((variable.aval, [self._class(s) for s in self.kernels.sizes.symbols(variable)]))
        return found

    def _class(self, symbol: int, extent: int | None = None) -> int:
        """The class of a dimension, by its extent where all extents are those of the description."""
        found = self.symbols.get(symbol) if extent is None else self.flat.classes.get(extent)
        if found is None:
            raise _Fixed
        return found

    def _place(self, start: int) -> int | _Place:
        """A start at every size."""
        if not isinstance(start, starts.Start):
            return start
        classes = [self._class(-size) if size < 0 else self._class(0, size) for size, _ in start.terms]
        return _Place(start.rest, tuple(zip(classes, [often for _, often in start.terms], strict=True)))

    def _source(self, source: Any) -> int | _Measure | None:
        """What a scalar is made of; a literal that is not the program's was made of its integers."""
        if not isinstance(source, indexed.Measure):
            return self.literals.get(id(source))
        if source.window is None:
            return _Measure(self._number(source.array), source.dim, None)
        walked, dim = source.window
        window = 1 if dim is None else self._class(self.kernels.sizes.symbols(walked)[dim])
        return _Measure(self._number(source.array), source.dim, window)

    def _call(self, step: Step) -> _Call:
        eqn, kind = step.equation, step.equation.primitive.kind
        row = self._loop(eqn) if isinstance(kind, kinds.Loop | kinds.Routine) else self._row(eqn)
        if isinstance(kind, kinds.Branch) and row is None:
            raise _Fixed
        if not isinstance(kind, _CALLED) or (step.copies and not isinstance(kind, kinds.Loop)):
            raise _Fixed
        operands, results = ([self._number(v) for v in variables] for variables in (eqn.invars, eqn.outvars))
        views = [None if view is None else self._view(view) for view in step.views]
        copies = [(self._number(source), self._number(target)) for source, target in step.copies]
        return _Call(eqn, row, operands, results, step.order, views, copies)

    def _loop(self, eqn: JaxprEqn) -> int:
        """The row of a loop; noted, since sizes decide whether it is a routine."""
        row = self.rows.get(self.numbers.get(eqn.outvars[0], -1))
        if row is None or not isinstance(self.flat.rows[row][0].primitive.kind, kinds.Loop):
            raise _Fixed
        found = self.flat.loop(row)
        if found.primitive is not eqn.primitive or len(found.outvars) != len(eqn.outvars):
            raise _Fixed
        is_routine = isinstance(found.primitive.kind, kinds.Routine)
        if is_routine and len(found.invars) != len(eqn.invars):  # other scalars are known
            raise _Fixed
        if not is_routine and found.params is not eqn.params:
            raise _Fixed
        self.loops.append((row, is_routine))
        return row

    def _view(self, view: Chain) -> tuple[int, list[tuple[int, Any]]]:
        stages: list[tuple[int, Any]] = []
        for variable, index in view.stages:
            if index is not None:
                index = tuple([(dim, self._place(start)) for dim, start in index])
            stages.append((self._number(variable), index))
        return self._number(view.source), stages

    def _regions(self, variable: Any) -> Iterator[_Region]:
        """Where the pieces of an assembled array are, and those of pieces that are put together in their place."""
        for piece in self.pieces.get(variable, ()):
            yield _Region([(start,) for start in piece.start], piece.extent)
            operand = self.assembled[variable].invars[piece.operand]
            if isinstance(operand, Literal) or set(piece.step) != {1}:
                continue
            for inner in self._regions(operand):
                if len(inner.start) == len(piece.start):
                    pairs = zip(piece.start, inner.start, strict=True)
                    yield _Region([tuple([at for at in (start, *more) if at]) for start, more in pairs], inner.extent)

    def _sum(self, terms: Sequence[int]) -> int | tuple[int, ...]:
        classes = tuple([self._class(0, at) for at in terms])
        return classes[0] if len(classes) == 1 else classes

    def _mover(self, equation: JaxprEqn) -> _Moved:
        """A literal that is not the program's begins at an end."""
        atoms = [
            self._number(v) if not isinstance(v, Literal) else self.literals.get(id(v), v) for v in equation.invars
        ]
        if any(isinstance(atom, Literal) and atom.val != 0 for atom in atoms):
            raise _Fixed
        return _Moved(equation.replace(params={}), atoms, self._number(equation.outvars[0]))

    def _check_piece(self, variable: Any, access: Access) -> None:
        """Note in which pieces of an assembled array a place is, since it may be in others at other sizes.

        Raises _Fixed where a piece has gaps.
        """
        for piece in self.pieces.get(variable, ()):
            spans = zip(piece.start, piece.extent, piece.step, variable.aval.shape, access, strict=True)
            for start, n, step, whole, use in spans:
                if use.axis != CONSTANT or max(start, n) <= 1 or (start, n) == (0, whole):
                    continue
                if step != 1:
                    raise _Fixed
                place = self._place(use.start)
                rest, terms = (place, ()) if isinstance(place, int) else (place.rest, place.terms)
                self._decide(_Within(rest, terms, self._of_size(start), self._of_size(n)))

    def _decide(self, decision: Any) -> None:
        """Note what the sizes of its classes decide."""
        decided = decision, decision.at(self.flat.sizes.__getitem__).pays()
        if decided not in self.decided:
            self.decided.append(decided)

    def _recipe(self, step: Step, draft: Draft, layout: Layout) -> _Recipe:
        kernel = step.kernel
        assert kernel is not None
        for node in kernel.nodes:
            self._check_piece(node.atom, node.access)
        extents = {axis.key: axis.extent for axis in kernel.axes}
        operands = []
        for o in draft.operands:
            number, region, pieces = self._number(o.variable), None, self.pieces.get(o.variable)
            moved = None if o.starts is None else self.moved.setdefault(o.starts, len(self.moved))
            if pieces is not None:
                begins = tuple([int(use.start) for use in o.access])
                spans = tuple([extents.get(use.axis, 1) for use in o.access])
                if o.role == "in":
                    self._check_piece(o.variable, o.access)
                else:
                    region = next((r for r in self._regions(o.variable) if _is_at(r, begins, spans)), None)
                    if region is None:
                        raise _Fixed
                    region = tuple([self._sum(terms) for terms in region.start])
            access: Any = tuple([use._replace(start=self._place(use.start)) for use in o.access])
            operands.append(_Operand(number, o.role, access, o.dtype, region, moved))
        scalars = [
            (dtype, value, self._place(value) if isinstance(value, starts.Start) else self._source(source))
            for (dtype, value), source in zip(draft.scalars, draft.sources, strict=True)
        ]
        scatters = [output.places.equation for output in kernel.outputs if output.places]
        is_described = self.rewritten.isdisjoint((*kernel.equations, *scatters))
        classes = {axis.key: self._class(axis.symbol, axis.extent if is_described else None) for axis in kernel.axes}
        lanes = layout.lanes(kernel.tree) if self.flat.is_narrow else None
        if lanes is not None:
            self._decide(lanes.at(classes.__getitem__))
        shell = Kernel(kernel.name, kernel.axes, (), 0, None, (), {}, {}, ())
        copies = [(self._number(source), self._number(target)) for source, target in step.copies]
        return _Recipe(shell, layout, operands, classes, scalars, copies)


class _Region(NamedTuple):
    """A piece: the sizes whose sums it starts at, and its extent."""

    start: Sequence[tuple[int, ...]]
    extent: tuple[int, ...]


def _is_at(region: _Region, begins: Sequence[int], extent: Sequence[int]) -> bool:
    return tuple(map(sum, region.start)) == tuple(begins) and region.extent == tuple(extent)


def agree(recalled: tuple[Kernels, Sequence[Any]], compiled: tuple[Kernels, Sequence[Any]], name: str) -> None:
    """Raise InternalError unless the recalled kernels are those of the compilation."""
    texts = [list(map(_facts, kernels.steps, lowered)) for kernels, lowered in (recalled, compiled)]
    aliases = [[(a.aval, b.aval) for a, b in kernels.aliases.items()] for kernels, _ in (recalled, compiled)]
    if texts[0] != texts[1] or aliases[0] != aliases[1]:
        pairs = itertools.zip_longest(*texts)
        first = next((pair for pair in pairs if pair[0] != pair[1]), aliases)
        raise InternalError(f"a recalled program differs: {first}", stage="recall", node=name)


def gives_the_bits(recalled: tuple[Kernels, Sequence[Any]], closed: ClosedJaxpr, name: str) -> None:
    """Raise InternalError unless the recalled kernels compute what the program says (while it is small)."""
    if verify.elements(closed) >= verify.FEW_ELEMENTS or not verify.is_pure(closed):
        return
    kernels, lowered = recalled
    args = [*closed.consts, *verify.arguments(closed)]
    buffers = {v: np.ravel(arg) for v, arg in zip((*kernels.jaxpr.constvars, *kernels.jaxpr.invars), args, strict=True)}

    def buffer(variable: Any) -> np.ndarray:
        source = variable
        while source in kernels.aliases:
            source = kernels.aliases[source]
        return buffers.setdefault(source, np.zeros(source.aval.size, source.aval.dtype)).view(variable.aval.dtype)

    for step, low in zip(kernels.steps, lowered, strict=True):
        for source, target in step.copies:
            buffer(target)[:] = buffer(source)
        if low is not None:
            offsets = [b.offset + (0 if b.starts is None else _offset(b.starts, buffer)) for b in low.operands]
            loops.interpret(low, [buffer(binding.variable) for binding in low.operands], offsets)
            continue
        eqn, views = step.equation, step.views if any(step.views) else ()
        if step.order is not None:  # the equation's own result, of which this one is a transpose
            shape = [extent for _, extent in sorted(zip(step.order, eqn.outvars[0].aval.shape, strict=True))]
            eqn = eqn.replace(outvars=[Var(eqn.outvars[0].aval.update(shape=tuple(shape)))])
        one = ClosedJaxpr(Jaxpr((), eqn.invars, eqn.outvars, (eqn,)), ())
        found = interpret(one, [_read(buffer(v), v, view) for v, view in itertools.zip_longest(eqn.invars, views)])
        for variable, result in zip(step.equation.outvars, found, strict=True):
            buffer(variable)[:] = np.ravel(result if step.order is None else result.transpose(step.order))
    expected = interpret(closed, args[len(closed.consts) :])
    for index, (variable, right) in enumerate(zip(kernels.jaxpr.outvars, expected, strict=True)):
        if not verify.same_bits(buffer(variable).reshape(right.shape), right):
            raise InternalError(f"result {index} of a recalled program differs", stage="recall", node=name)


def _read(buffer: np.ndarray, variable: Any, view: Chain | None) -> np.ndarray:
    """An operand, out of the array that it is a view of."""
    found = None if view is None else walk(view)
    if found is None:
        return buffer.reshape(variable.aval.shape)
    parts, item = [part for dim in found.dims for part in dim], buffer.itemsize
    shape, strides = [extent for extent, _ in parts], [stride * item for _, stride in parts]
    return np.lib.stride_tricks.as_strided(buffer[found.offset :], shape, strides).reshape(variable.aval.shape)


def _offset(equation: JaxprEqn, buffer: Callable[[Any], np.ndarray]) -> int:
    """Elements from the beginning of an array to where a slice or an update is moved."""
    shape, region, offset = equation.invars[0].aval.shape, plan.moved_region(equation), 0
    for start, extent, size in zip(plan.starts_of(equation), shape, region, strict=True):
        at = int(start.val if isinstance(start, Literal) else buffer(start)[0])
        offset = offset * extent + min(max(at, 0), extent - size)
    return offset


def _facts(step: Step, low: Lowered | None) -> Any:
    copies = [(source.aval, target.aval) for source, target in step.copies]
    if low is None:
        eqn = step.equation
        avals = [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
        params: Any = eqn.params
        if isinstance(eqn.primitive.kind, kinds.Routine):
            lowered = params["lowered"]
            params = lowered.routine, lowered.trips, lowered.extents, [scalar.tobytes() for scalar in lowered.scalars]
        return eqn.primitive, params, avals, step.order, [view and walk(view) for view in step.views]
    operands = [
        (b.variable.aval, b.role, b.offset, b.strides, b.outer, b.dtype, b.starts and _movement(b.starts))
        for b in low.operands
    ]
    return low.nest, low.extents, low.outer, low.params, operands, copies


def _movement(equation: JaxprEqn) -> Any:
    starts = [int(v.val) if isinstance(v, Literal) else v.aval for v in plan.starts_of(equation)]
    return equation.primitive, plan.moved_region(equation), starts


def clear() -> None:
    """Forget all templates."""
    _known.clear()
