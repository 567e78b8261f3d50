"""Reads of parts of computed values: the operands of the computation are read instead.

    b = exp a; c = dynamic_slice b i   ->   a2 = dynamic_slice a i; c = exp a2

so that ``b`` need not be stored, and only the elements that are read are computed. ``gathers`` and ``moved_reads``
define how an array is read, and when it pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler import expansions
from weft.compiler.fusion.dimensions import matched
from weft.core import kinds
from weft.core.index_maps import CONSTANT, Affine
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.programs.rewrite import Builder, Index
from weft.operations.data_movement import views

MAX_PASSED = 32  # most equations between a read and the arrays that are read instead
_IN_PLACE = (kinds.Elementwise, kinds.View, kinds.Generate, kinds.Reduction, kinds.Cumulative)
_COMPUTED = (*_IN_PLACE, kinds.Assemble)


class Along(NamedTuple):
    """How one dimension of an array is read: ``size`` elements from the start ``column``, or from 0."""

    column: Any  # the start, or None
    walk: int | None  # the dimension of the result along it; None: ``size`` is 1
    size: int


THIN = Along(None, None, 1)
Reading = tuple[Along, ...]


class Unfit(Exception):
    """A value that cannot be computed only where it is read, or not at lower cost."""


class DefUse:
    """Def-use facts of a program; ``pulls`` has, for each kind of equation that is moved, how."""

    def __init__(self, known: Index, pulls: Mapping[type, Callable[[DefUse, JaxprEqn], Pull]]) -> None:
        self.equations, self.makers, self.pulls = known.eqns, known.makers, pulls
        self.moved: dict[Any, int] = {}  # value -> number of such equations that read it
        self.others: dict[Any, int] = {}  # value -> number of its other readers
        self.stored = set(known.outputs)  # values that are stored in any case
        for equation in self.equations:
            kind = equation.primitive.kind
            in_place = isinstance(kind, _IN_PLACE) or type(kind) in pulls
            in_place = in_place or (isinstance(kind, kinds.Reshape) and unit_pairs(equation))
            for position, atom in enumerate(equation.invars):
                if isinstance(atom, Literal):
                    continue
                counts = self.moved if type(kind) in pulls and position == 0 else self.others
                counts[atom] = counts.get(atom, 0) + 1
                if not in_place:
                    self.stored.add(atom)
        self.known: dict[Any, Any] = {}  # (value, reading, scope) -> the value so read

    def pulled(self) -> list[JaxprEqn]:
        """The equations (themselves where none is moved); those that nobody reads any more are still among them."""
        result: list[JaxprEqn] = []
        changed = False
        for equation in self.equations:
            pull = self.pulls.get(type(equation.primitive.kind))
            made = pull(self, equation).made() if pull is not None and equation.outvars[0].aval.size else None
            changed = changed or made is not None
            result += [equation] if made is None else made
        return result if changed else self.equations


class Pull:
    """One equation that reads an array: the equations that replace it, and their cost.

    Values have the result's rank, with extents of 1 along dimensions in which they are constant, or are 0-d.
    """

    scope: Any  # equal readings in the same scope are of the same elements
    reading: Reading

    def __init__(self, program: DefUse, equation: Any) -> None:
        self.program, self.equation = program, equation
        self.array, self.out = equation.invars[0], equation.outvars[0].aval
        self.builder = Builder()
        self.builder.source = equation.source
        self.known: dict[Any, Any] = {}
        self.passed = 0
        self.own_cost = self.shared_cost = 0.0
        self.loads: list[tuple[tuple[int, ...], tuple[int, ...], Reading]] = []  # shapes of values, and of arrays
        self.saved: list[tuple[int, ...]] = []  # shapes of values that would be stored otherwise

    def made(self) -> list[JaxprEqn] | None:
        """The equations that replace it, or None."""
        raise NotImplementedError

    def leaf(self, atom: Any, reading: Reading) -> Any:
        """An equation that reads a stored array in this way."""
        raise NotImplementedError

    def moved(self, affine: Affine, extent: int, viewed: Sequence[int], reading: Reading) -> Along | None:
        """How a dimension of a view's operand is read, or None."""
        if affine.axis == CONSTANT:
            return THIN if extent == 1 else None
        return reading[affine.axis] if affine == Affine(affine.axis) and extent == viewed[affine.axis] else None

    def at(self, atom: Any, reading: Reading, own: bool) -> Any:
        """A value read in this way; ``own``: only this equation reads it."""
        if isinstance(atom, Literal) or not atom.aval.shape:
            return atom
        key = (atom, reading, self.scope)
        found = self.known.get(key) or self.program.known.get(key)
        if found is not None:
            return found
        operands = self.through(atom, reading)
        if operands is None:
            found = self.leaf(atom, reading)
            self.loads.append((found.aval.shape, atom.aval.shape, reading))
            maker = self.program.makers.get(atom)
            if maker is not None and isinstance(maker.primitive.kind, _COMPUTED) and atom not in self.program.stored:
                self.saved.append(atom.aval.shape)
        else:
            self.passed += 1
            if self.passed > MAX_PASSED:
                raise Unfit
            maker = self.program.makers[atom]
            own = own and self.program.others.get(atom, 0) <= 1
            atoms = [self.at(v, r, own) for v, r in zip(maker.invars, operands, strict=True)]
            found = atoms[0]
            if isinstance(maker.primitive.kind, kinds.Elementwise):
                found = self.computed(maker, atoms)
                self.own_cost += maker.primitive.kind.cost * own
                self.shared_cost += maker.primitive.kind.cost * (not own)
        self.known[key] = found
        return found

    def through(self, atom: Any, reading: Reading) -> list[Reading] | None:
        """How the operands of a value's equation are read instead; None if the value itself must be read."""
        maker = self.program.makers.get(atom)
        if maker is None or atom in self.program.stored or len(maker.outvars) != 1:
            return None
        kind = maker.primitive.kind
        operand: Any = maker.invars[0] if maker.invars else None
        if isinstance(kind, kinds.Elementwise):
            return [_stretched(v, atom.aval.shape, reading) for v in maker.invars]
        if isinstance(kind, kinds.View):
            index_map = kind.index_map(operand.aval, atom.aval, maker.params)
            extents = zip(index_map, operand.aval.shape, strict=True)
            found: list[Any] = [self.moved(affine, extent, atom.aval.shape, reading) for affine, extent in extents]
            return None if None in found else [tuple(found)]
        if isinstance(kind, kinds.Reshape) and (pairs := unit_pairs(maker)) is not None:
            by_dim = dict(pairs)
            return [tuple([reading[by_dim[d]] if d in by_dim else THIN for d in range(operand.aval.ndim)])]
        return None

    def computed(self, maker: Any, operands: list[Any]) -> Any:
        """An elementwise equation on other operands, of one shape."""
        arrays = [position for position, v in enumerate(maker.invars) if v.aval.shape]
        shapes = {operands[position].aval.shape for position in arrays}
        if len(shapes) > 1:
            shape = tuple([max(extents) for extents in zip(*[s for s in shapes if s], strict=True)])
            operands = [self.spread(v, shape) if position in arrays else v for position, v in enumerate(operands)]
        return self.bind(maker.primitive, *operands, **maker.params)

    def arranged(self, value: Any, walks: Sequence[int | None]) -> Any:
        """A value at the result's rank; ``walks``: the result's dimension for each of its own (None: extent 1)."""
        thin = tuple([position for position, walk in enumerate(walks) if walk is None])
        there = [walk for walk in walks if walk is not None]
        if thin:
            value = views.squeeze(self.builder.bind, value, thin)
        order = sorted(range(len(there)), key=there.__getitem__)
        if order != list(range(len(order))):
            value = views.transpose(self.builder.bind, value, order)
        if len(there) == self.out.ndim:
            return value
        shape = [1] * self.out.ndim
        for walk, extent in zip(sorted(there), value.aval.shape, strict=True):
            shape[walk] = extent
        return self.viewed(value, tuple(shape), tuple(sorted(there)))

    def result(self, value: Any) -> list[JaxprEqn]:
        """The equations, with the value as the result of the replaced one."""
        equations, out = self.builder.eqns, self.equation.outvars[0]
        if value.aval.shape != self.out.shape or not equations or equations[-1].outvars[0] is not value:
            value = self.viewed(value, self.out.shape, tuple(range(value.aval.ndim)))
        equations[-1] = equations[-1].replace(outvars=[out])
        self.program.known.update({key: out if atom is value else atom for key, atom in self.known.items()})
        return equations

    def spread(self, value: Any, shape: tuple[int, ...]) -> Any:
        if value.aval.shape == shape:
            return value
        return self.viewed(value, shape, tuple(range(value.aval.ndim)))

    def viewed(self, value: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
        return views.broadcast(self.builder.bind, value, shape, dims)

    def apply(self, operation: Callable[..., Any], *operands: Any) -> Any:
        """The result of a function of ``lax`` that is one equation on its operands."""
        (eqn,) = expansions.expansion(operation, operation, tuple([v.aval for v in operands])).jaxpr.eqns
        return self.bind(eqn.primitive, *operands, **eqn.params)

    def bind(self, primitive: Any, *operands: Any, **params: Any) -> Any:
        return self.builder.bind(primitive, *operands, **params)[0]


def unit_pairs(equation: Any) -> list[tuple[int, int]] | None:
    """Corresponding dimensions of a reshape that only adds or drops dimensions of extent 1, or None."""
    operand, out = equation.invars[0], equation.outvars[0].aval
    if isinstance(operand, Literal) or operand.aval.dtype != out.dtype or not out.size:
        return None
    pairs = matched(operand.aval.shape, out.shape)
    old, new = {old for old, _ in pairs}, {new for _, new in pairs}
    extents = [n for d, n in enumerate(operand.aval.shape) if d not in old]
    extents += [n for d, n in enumerate(out.shape) if d not in new]
    return pairs if all(n == 1 for n in extents) else None


def _stretched(operand: Any, shape: Sequence[int], reading: Reading) -> Reading:
    """How an elementwise operand is read: dimensions of extent 1 are broadcast."""
    if not operand.aval.shape:
        return ()
    pairs = zip(reading, operand.aval.shape, shape, strict=True)
    return tuple([along if own == extent else THIN for along, own, extent in pairs])
