"""Moves reshapes of elementwise results to their operands, so that elementwise chains are not interrupted.

A reshape of an array in memory is free; a reshape of a computed value ends a kernel:

    b = sin a; c = reshape b; d = exp c   ->   a2 = reshape a; b2 = sin a2; d = exp b2

A reshape that cannot move (of a broadcast, as ``repeat`` and ``tile`` make, or of a product of broadcasts) moves to the
results instead; the value would have to be stored for it:

    b:f32[n,3] = broadcast a; c:f32[3n] = reshape b; d = exp c   ->   e:f32[n,3] = exp b; d = reshape e

So does a broadcast of such a value: elements repeated along two dimensions are stored once, and not the half of them
before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import operations
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.programs.rewrite import Index

_IN_MEMORY = (
    kinds.Contraction, kinds.StridedContraction, kinds.External, kinds.Exchange, kinds.Assemble,
    kinds.DynamicUpdateSlice, kinds.Cumulative, kinds.Reshape, kinds.Reduction, kinds.Loop, kinds.Branch,
)  # fmt: skip


def reshapes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with reshapes of elementwise results moved to their operands, those of broadcasts to the results."""
    closed = _after_broadcasts(closed)
    known = rewrite.index(closed.jaxpr)
    sinker = _Sinker(known)
    equations = sinker.run()
    return rewrite.with_equations(closed, equations) if sinker.moved or len(equations) != len(known.eqns) else closed


def _after_broadcasts(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with elementwise equations on reshaped broadcasts computed before the reshape."""
    known = rewrite.index(closed.jaxpr)
    delayed: dict[Any, Any] = {}  # variable -> the value that it is a reshape of
    repeated = set[Any]()  # those that are views
    sinker, result, changed = _Sinker(known), list[Any](), False
    for equation in known.eqns:
        out = equation.outvars[0] if equation.outvars else None
        early = _early(equation, delayed, sinker)
        again = None if early is not None else _broadcast_again(equation, delayed, repeated)
        if again is not None:
            changed, delayed[out] = True, again.outvars[0]
            repeated.add(again.outvars[0])
            result += [again, _reshaped(again.outvars[0], None, out, equation)]
        elif early is not None:
            changed, delayed[out] = True, Var(equation.outvars[0].aval.update(shape=delayed[early[0]].aval.shape))
            result += _before_reshape(equation, delayed, known.makers)
        else:
            result.append(equation)
            if sinker.is_reshape(equation) and _cannot_sink(equation.invars[0], sinker):
                delayed[out] = delayed.get(equation.invars[0], equation.invars[0])
                maker = known.makers.of(equation.invars[0])
                if maker is not None and isinstance(maker.primitive.kind, kinds.View):
                    repeated.add(delayed[out])
        sinker.note(equation)
    return rewrite.with_equations(closed, result) if changed else closed


def _cannot_sink(atom: Any, sinker: _Sinker) -> bool:
    """Whether a value repeats elements, or is computed from values under other shapes: it would be stored."""
    maker = sinker.makers.of(atom)
    if maker is None or not maker.invars or not atom.aval.shape:
        return False
    if isinstance(maker.primitive.kind, kinds.View):
        return 1 < maker.invars[0].aval.size < atom.aval.size
    return isinstance(maker.primitive.kind, kinds.Elementwise) and sinker.uses[atom] == 1 and not sinker.sinkable[atom]


def _early(equation: JaxprEqn, delayed: dict[Any, Any], sinker: _Sinker) -> list[Any] | None:
    """The operands that are delayed, if the equation can be computed before their reshape."""
    if not delayed or not isinstance(equation.primitive.kind, kinds.Elementwise) or len(equation.outvars) != 1:
        return None
    arrays = [atom for atom in equation.invars if not isinstance(atom, Literal) and atom.aval.shape]
    found = [atom for atom in arrays if atom in delayed]
    shapes = {delayed[atom].aval.shape for atom in found}
    if len(shapes) != 1 or any(atom.aval.shape != equation.outvars[0].aval.shape for atom in arrays):
        return None
    return found if all(atom in delayed or sinker.sinkable.get(atom, True) for atom in arrays) else None


def _broadcast_again(equation: JaxprEqn, delayed: dict[Any, Any], repeated: set[Any]) -> JaxprEqn | None:
    """A broadcast of a reshaped broadcast, before the reshape."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.View) or isinstance(operand := equation.invars[0], Literal):
        return None
    early = delayed.get(operand)
    if early is None or early not in repeated:
        return None
    out = equation.outvars[0].aval
    uses = kind.index_map(operand.aval, out, equation.params)
    axes = [use.axis for use in uses]
    if sorted(set(axes)) != axes or not out.size or any((use.start, use.step) != (0, 1) for use in uses):
        return None
    if any(out.shape[use.axis] != extent for use, extent in zip(uses, operand.aval.shape, strict=True)):
        return None
    groups = _groups(early.aval.shape, operand.aval.shape)
    if groups is None:
        return None
    split = dict(zip(axes, groups, strict=True))
    shape, dims = list[int](), list[int]()
    for axis, extent in enumerate(out.shape):
        group = split.get(axis)
        dims += range(len(shape), len(shape) + len(group or ()))
        shape += [extent] if group is None else group
    params = {"shape": tuple(shape), "broadcast_dimensions": tuple(dims), "sharding": None}
    made = Var(out.update(shape=tuple(shape)))
    return JaxprEqn([early], [made], operations.broadcast_in_dim_p, params, source=equation.source)


def _groups(shape: Sequence[int], joined: Sequence[int]) -> list[list[int]] | None:
    """The extents that are joined to each of ``joined``; None if a reshape does more than to join extents."""
    groups, left = list[list[int]](), list(shape)
    for extent in joined:
        group = list[int]()
        while left and (math.prod(group) < extent or not group):
            group.append(left.pop(0))
        if math.prod(group) != extent:
            return None
        groups.append(group)
    if left and (not groups or math.prod(left) != 1):
        return None
    return [*groups[:-1], [*groups[-1], *left]] if left else groups


def _before_reshape(equation: JaxprEqn, delayed: dict[Any, Any], makers: rewrite.Makers) -> list[JaxprEqn]:
    """The equation on values that are reshaped afterwards; other arrays are reshaped before it."""
    out, made = equation.outvars[0], list[JaxprEqn]()
    early = delayed[out]
    operands: list[Any] = []
    for atom in equation.invars:
        if isinstance(atom, Literal) or not atom.aval.shape:
            operands.append(atom)
        elif atom in delayed:
            operands.append(delayed[atom])
        else:
            operands.append(Var(atom.aval.update(shape=early.aval.shape)))
            made.append(_reshaped(atom, makers.get(atom), operands[-1], equation))
    computed = JaxprEqn(operands, [early], equation.primitive, equation.params, equation.effects, equation.source)
    return [*made, computed, _reshaped(early, None, out, equation)]


def _is_one_value(equation: JaxprEqn) -> bool:
    """Whether an equation broadcasts one value, which can be had under any shape."""
    return isinstance(equation.primitive.kind, kinds.View) and not equation.invars[0].aval.shape


def _reshaped(atom: Any, maker: JaxprEqn | None, out: Any, like: JaxprEqn) -> JaxprEqn:
    """An equation that gives a value under another shape."""
    if maker is not None and _is_one_value(maker):
        params = {"shape": out.aval.shape, "broadcast_dimensions": (), "sharding": None}
        return JaxprEqn(maker.invars, [out], operations.broadcast_in_dim_p, params, source=maker.source)
    params = {"new_sizes": out.aval.shape, "dimensions": None, "sharding": None}
    return JaxprEqn([atom], [out], operations.reshape_p, params, source=like.source)


class _Sinker:
    """The reshapes moved so far."""

    def __init__(self, known: Index) -> None:
        self.equations, self.makers, self.uses = known.eqns, known.makers, known.uses
        self.positions = {equation: position for position, equation in enumerate(known.eqns)}
        self.read = {v for equation in known.eqns for v in rewrite.variables(equation.invars)}
        self.sinkable: dict[Any, bool] = {}
        self.moved: dict[tuple[Any, tuple[int, ...]], Any] = {}

    def run(self) -> list[Any]:
        result: list[Any] = []
        for equation in self.equations:
            operand = equation.invars[0] if equation.invars else None
            if self.is_reshape(equation) and equation.outvars[0] in self.read and self._is_chain(operand):
                self._chain(operand, equation.outvars[0].aval.shape, equation.outvars[0], equation, result)
            else:
                result.append(equation)
            self.note(equation)
        return result

    def note(self, equation: JaxprEqn) -> None:
        """Record whether reshapes of the results can be moved to the operands."""
        for out in equation.outvars:
            self.sinkable[out] = self._may_sink(equation, out)

    def is_reshape(self, equation: JaxprEqn) -> bool:
        """Whether an equation is an alias of the same dtype, rather than one that reinterprets the bytes."""
        if not isinstance(equation.primitive.kind, kinds.Reshape):
            return False
        return equation.invars[0].aval.dtype == equation.outvars[0].aval.dtype

    def _is_chain(self, atom: Any) -> bool:
        maker = self.makers.get(atom)
        return maker is not None and isinstance(maker.primitive.kind, kinds.Elementwise) and self.sinkable[atom]

    def _may_sink(self, equation: JaxprEqn, out: Any) -> bool:
        kind = equation.primitive.kind
        if not isinstance(kind, kinds.Elementwise):
            return isinstance(kind, _IN_MEMORY) or _is_one_value(equation)
        if self.uses[out] != 1 or not out.aval.shape:
            return False
        return all(
            isinstance(atom, Literal) or not atom.aval.shape
            or (atom.aval.shape == out.aval.shape and self.sinkable.get(atom, True))
            for atom in equation.invars
        )  # fmt: skip

    def _chain(self, atom: Any, shape: tuple[int, ...], goal: Any, reshape: JaxprEqn, result: list[Any]) -> None:
        """Equations that compute ``atom`` under another shape, as ``goal``; without recursion, chains may be long."""
        order: list[tuple[Any, Any]] = []
        stack = [(atom, goal)]
        while stack:
            variable, name = stack.pop()
            order.append((variable, name))
            maker = self.makers.get(variable)
            if maker is None or not isinstance(maker.primitive.kind, kinds.Elementwise):
                continue
            for operand in maker.invars:
                if not isinstance(operand, Literal) and operand.aval.shape and (operand, shape) not in self.moved:
                    self.moved[operand, shape] = Var(operand.aval.update(shape=shape))
                    stack.append((operand, self.moved[operand, shape]))
        for variable, name in sorted(order, key=self._position):
            result.append(self._under_shape(variable, shape, name, reshape))

    def _position(self, pair: tuple[Any, Any]) -> int:
        maker = self.makers.get(pair[0])
        return -1 if maker is None else self.positions[maker]

    def _under_shape(self, variable: Any, shape: tuple[int, ...], name: Any, reshape: JaxprEqn) -> Any:
        maker = self.makers.get(variable)
        if maker is None or not isinstance(maker.primitive.kind, kinds.Elementwise):
            return _reshaped(variable, maker, name, reshape)
        operands = [
            atom if isinstance(atom, Literal) or not atom.aval.shape else self.moved[atom, shape]
            for atom in maker.invars
        ]
        return JaxprEqn(operands, [name], maker.primitive, maker.params, maker.effects, maker.source)
