"""Slices of computed values, at starts read at run time: what a value is computed from is sliced, the rest computed.

    b = exp a; c = dynamic_slice b i   ->   a2 = dynamic_slice a i; c = exp a2

so that ``b`` need not be stored, and no more of it is computed than is read. What is stored in any case, or read more
often than it has elements, stays whole. The bits are those of the slice: starts are clamped in the same extents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import operations as lax
from weft import runtime
from weft.compiler.gathers import unit_pairs
from weft.core import kinds, rewrite
from weft.core.index_maps import CONSTANT, Affine
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.rewrite import Builder
from weft.record import NamedTuple

MAX_PASSED = 32  # equations between a slice and what is sliced instead
_IN_PLACE = (kinds.Elementwise, kinds.View, kinds.Generate, kinds.Reduction, kinds.Cumulative, kinds.DynamicSlice)


class Part(NamedTuple):
    """What is read of a dimension: all of it (``start`` is None), or ``size`` elements from a start that is clamped."""

    start: Any
    size: int


def dynamic_slices(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such slices."""
    known = rewrite.index(closed.jaxpr)
    equations, makers, stored = known.eqns, known.makers, set(known.outputs)
    read: dict[Any, list[tuple[int, ...]]] = {}  # the shapes of a value's slices
    for equation in equations:
        if isinstance(equation.primitive.kind, kinds.DynamicSlice):
            read.setdefault(equation.invars[0], []).append(equation.outvars[0].aval.shape)
        if not isinstance(equation.primitive.kind, _IN_PLACE) and unit_pairs(equation) is None:
            stored.update(rewrite.variables(equation.invars))
    stored.update([array for array, shapes in read.items() if sum(map(math.prod, shapes)) > array.aval.size])
    result: list[Any] = []
    changed = False
    for equation in equations:
        made = None
        if isinstance(equation.primitive.kind, kinds.DynamicSlice) and equation.outvars[0].aval.size:
            made = _Pull(equation, makers, stored).made()
        result += [equation] if made is None else made
        changed = changed or made is not None
    return rewrite.with_equations(closed, result) if changed else closed


class _Pull:
    """One slice: what is made instead of it."""

    def __init__(self, equation: JaxprEqn, makers: dict[Any, Any], stored: set[Any]) -> None:
        self.equation, self.makers, self.stored = equation, makers, stored
        self.builder = Builder()
        self.builder.source = equation.source
        self.known: dict[Any, Any] = {}
        self.passed = 0
        self.kept: list[tuple[int, ...]] = []  # shapes of values that would be stored to be sliced

    def made(self) -> list[Any] | None:
        """The equations in its place, or None."""
        array, *starts = self.equation.invars
        extents = zip(starts, array.aval.shape, self.equation.outvars[0].aval.shape, strict=True)
        parts = tuple([Part(None if size == extent else start, size) for start, extent, size in extents])
        if self._operands(array, parts) is None:
            return None
        value = self._at(array, parts)
        equations = self.builder.eqns
        stored_elements = sum(map(math.prod, self.kept))
        if self.passed > MAX_PASSED or stored_elements >= array.aval.size or not equations:
            return None
        if equations[-1].outvars[0] is not value:
            return None
        equations[-1] = equations[-1].replace(outvars=self.equation.outvars)
        return equations

    def _at(self, atom: Any, parts: tuple[Part, ...]) -> Any:
        """A value so sliced."""
        if isinstance(atom, Literal) or not atom.aval.shape:
            return atom
        key = (atom, *[(id(part.start), part.size) for part in parts])  # a start may be a literal
        found = self.known.get(key)
        if found is not None:
            return found
        operands = self._operands(atom, parts) if self.passed <= MAX_PASSED else None
        if operands is None:
            found = self._sliced(atom, parts)
        else:
            self.passed += 1
            maker = self.makers[atom]
            values = [self._at(v, p) for v, p in zip(maker.invars, operands, strict=True)]
            shape = tuple([part.size for part in parts])
            if isinstance(maker.primitive.kind, kinds.Elementwise):
                whole = [
                    v if v.aval.shape in ((), shape) else self._placed(v, range(len(shape)), shape) for v in values
                ]
                found = self._bind(maker.primitive, *whole, **maker.params)
            else:
                found = self._placed(values[0], _dimensions(maker), shape)
        self.known[key] = found
        return found

    def _operands(self, atom: Any, parts: tuple[Part, ...]) -> list[tuple[Part, ...]] | None:
        """What is read of the operands of what makes a value, instead of it; None where it is sliced itself."""
        maker = self.makers.get(atom)
        if maker is None or atom in self.stored or len(maker.outvars) != 1:
            return None
        if isinstance(maker.primitive.kind, kinds.Elementwise):
            return [_stretched(v, atom, parts) for v in maker.invars]
        dims = _dimensions(maker)
        if dims is None:
            return None
        return [tuple([Part(None, 1) if dim is None else parts[dim] for dim in dims])]

    def _sliced(self, atom: Any, parts: tuple[Part, ...]) -> Any:
        maker = self.makers.get(atom)
        if maker is not None and atom not in self.stored:
            self.kept.append(atom.aval.shape)
        if all(part.start is None for part in parts):
            return atom
        starts = [part.start for part in parts]
        dtype = next(start.aval.dtype for start in starts if start is not None)
        zero = Literal(dtype.type(0), runtime.ShapedArray((), dtype))
        sizes = tuple([part.size for part in parts])
        return self._bind(
            lax.dynamic_slice_p, atom, *[zero if start is None else start for start in starts], slice_sizes=sizes
        )

    def _placed(self, value: Any, dims: Sequence[int | None] | None, shape: tuple[int, ...]) -> Any:
        """A value whose dimensions are ``dims`` of what is returned, the others repeated."""
        assert dims is not None, "only what has a place is sliced through"
        thin = tuple([place for place, dim in enumerate(dims) if dim is None])
        there = [dim for dim in dims if dim is not None]
        if thin and value.aval.shape:
            value = self._bind(lax.squeeze_p, value, dimensions=thin)
        order = tuple(sorted(range(len(there)), key=there.__getitem__))
        if order != tuple(range(len(order))):
            value = self._bind(lax.transpose_p, value, permutation=order)
        dims = tuple(sorted(there))
        return self._bind(lax.broadcast_in_dim_p, value, shape=shape, broadcast_dimensions=dims, sharding=None)

    def _bind(self, primitive: Any, *operands: Any, **params: Any) -> Any:
        return self.builder.bind(primitive, *operands, **params)[0]


def _stretched(operand: Any, out: Any, parts: Sequence[Part]) -> tuple[Part, ...]:
    """What is read of an elementwise operand, of which a dimension of extent 1 may stand for a longer one."""
    extents = zip(operand.aval.shape, out.aval.shape, parts, strict=True) if operand.aval.shape else ()
    return tuple([part if own == extent else Part(None, 1) for own, extent, part in extents])


def _dimensions(maker: JaxprEqn) -> list[int | None] | None:
    """For each dimension of a view's operand that of its result which walks it whole, or None where it has extent 1."""
    if isinstance(maker.primitive.kind, kinds.Reshape):
        pairs = unit_pairs(maker)
        by_dim = dict(pairs or ())
        return None if pairs is None else [by_dim.get(dim) for dim in range(maker.invars[0].aval.ndim)]
    if not isinstance(maker.primitive.kind, kinds.View):
        return None
    operand, out = maker.invars[0].aval, maker.outvars[0].aval
    found: list[int | None] = []
    for place, extent in zip(maker.primitive.kind.index_map(operand, out, maker.params), operand.shape, strict=True):
        fixed = place.axis == CONSTANT
        if extent != (1 if fixed else out.shape[place.axis]) or not (fixed or place == Affine(place.axis)):
            return None
        found.append(None if fixed else place.axis)
    return found
