"""Moves reshapes of elementwise results to their operands, so that elementwise chains are not interrupted.

A reshape of an array in memory is free; a reshape of a computed value ends a kernel:

    b = sin a; c = reshape b; d = exp c   ->   a2 = reshape a; b2 = sin a2; d = exp b2
"""

from __future__ import annotations

from typing import Any

from weft import operations
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.rewrite import Index

_IN_MEMORY = (
    kinds.Contraction, kinds.StridedContraction, kinds.External, kinds.Assemble, kinds.DynamicUpdateSlice,
    kinds.Cumulative, kinds.Reshape, kinds.Reduction, kinds.Loop, kinds.Branch,
)  # fmt: skip


def reshapes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with reshapes of elementwise results moved to their operands."""
    known = rewrite.index(closed.jaxpr)
    sinker = _Sinker(known)
    equations = sinker.run()
    return rewrite.with_equations(closed, equations) if sinker.moved or len(equations) != len(known.eqns) else closed


class _Sinker:
    """The reshapes moved so far."""

    def __init__(self, known: Index) -> None:
        self.equations, self.makers, self.uses = known.eqns, known.makers, known.uses
        self.places = {equation: place for place, equation in enumerate(known.eqns)}
        self.read = {v for equation in known.eqns for v in rewrite.variables(equation.invars)}
        self.sinkable: dict[Any, bool] = {}
        self.moved: dict[tuple[Any, tuple[int, ...]], Any] = {}

    def run(self) -> list[Any]:
        result: list[Any] = []
        for equation in self.equations:
            operand = equation.invars[0] if equation.invars else None
            if self._is_reshape(equation) and equation.outvars[0] in self.read and self._is_chain(operand):
                self._chain(operand, equation.outvars[0].aval.shape, equation.outvars[0], equation, result)
            else:
                result.append(equation)
            for out in equation.outvars:
                self.sinkable[out] = self._may_sink(equation, out)
        return result

    def _is_reshape(self, equation: JaxprEqn) -> bool:
        """Whether an alias keeps the dtype; one that reinterprets the bytes does not."""
        if not isinstance(equation.primitive.kind, kinds.Reshape):
            return False
        return equation.invars[0].aval.dtype == equation.outvars[0].aval.dtype

    def _is_chain(self, atom: Any) -> bool:
        maker = self.makers.get(atom)
        return maker is not None and isinstance(maker.primitive.kind, kinds.Elementwise) and self.sinkable[atom]

    def _may_sink(self, equation: JaxprEqn, out: Any) -> bool:
        kind = equation.primitive.kind
        if not isinstance(kind, kinds.Elementwise):
            return isinstance(kind, _IN_MEMORY)
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
        for variable, name in sorted(order, key=self._place):
            result.append(self._under_shape(variable, shape, name, reshape))

    def _place(self, pair: tuple[Any, Any]) -> int:
        maker = self.makers.get(pair[0])
        return -1 if maker is None else self.places[maker]

    def _under_shape(self, variable: Any, shape: tuple[int, ...], name: Any, reshape: JaxprEqn) -> Any:
        maker = self.makers.get(variable)
        if maker is None or not isinstance(maker.primitive.kind, kinds.Elementwise):
            params = {"new_sizes": shape, "dimensions": None, "sharding": None}
            return JaxprEqn([variable], [name], operations.reshape_p, params, source=reshape.source)
        operands = [
            atom if isinstance(atom, Literal) or not atom.aval.shape else self.moved[atom, shape]
            for atom in maker.invars
        ]
        return JaxprEqn(operands, [name], maker.primitive, maker.params, maker.effects, maker.source)
