"""Assigns a symbol (``loops.index_math``) to every dimension of every variable, by the kinds of the equations.

Elementwise operands are equal dimension by dimension; views keep symbols, slices make new ones; a dimension that a
broadcast adds with extent 1 is structural (``UNIT``) and equals nothing. The index maps of views are computed here
once, and kept for ``fuse``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import Record, field
from weft.core import kinds
from weft.core.index_maps import CONSTANT, IndexMap
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.loops.index_math import UNIT, Sizes


class Dimensions(Record, frozen=False):
    """The symbols of a program and the index maps of its views."""

    sizes: Sizes = field(default_factory=Sizes)
    lone: int = -1  # the symbol of the axis of a reduction over structural unit dimensions only
    index_maps: dict[Any, IndexMap] = field(default_factory=dict)
    windows: dict[Any, kinds.Windows] = field(default_factory=dict)  # of gathers and scatters
    sliced: dict[int, tuple[int, int]] = field(default_factory=dict)  # symbol of a slice -> symbol, extent of the whole
    of_slices: set[Any] = field(default_factory=set)  # arrays assembled from slices of dimensions as long as their own

    def symbols(self, atom: Any) -> tuple[int, ...]:
        return () if type(atom) is Literal else self.sizes.symbols(atom)

    def whole(self, symbol: int, extent: int, wanted: int) -> int | None:
        """The symbol of the dimension of ``wanted`` elements that a dimension is a slice of (or all of), or None."""
        while extent != wanted:
            found = self.sliced.get(symbol)
            if found is None:
                return None
            symbol, extent = self.sizes.find(found[0]), found[1]
        return symbol

    def fresh(self, variable: Any) -> None:
        """New symbols for all dimensions: nothing is known of this variable's shape."""
        self.sizes.assign(variable, [self.sizes.fresh() for _ in variable.aval.shape])


def dimensions(jaxpr: Jaxpr) -> Dimensions:
    """The symbols of every variable of a program."""
    result = Dimensions()
    result.lone = result.sizes.fresh()
    for variable in (*jaxpr.constvars, *jaxpr.invars):
        result.fresh(variable)
    for equation in jaxpr.eqns:
        rule = _RULES.get(type(equation.primitive.kind))
        if rule is not None:
            rule(result, equation)
        for out in equation.outvars:
            if not result.sizes.known(out):
                result.fresh(out)
    result.sizes.settle()
    return result


def _elementwise(result: Dimensions, equation: JaxprEqn) -> None:
    sizes = result.sizes
    shape = equation.outvars[0].aval.shape
    out = [UNIT] * len(shape)
    for operand in equation.invars:
        if type(operand) is Literal or not (own := operand.aval.shape):
            continue
        for dim, symbol in enumerate(sizes.symbols(operand)):
            if symbol != UNIT and own[dim] == shape[dim] and symbol != out[dim]:
                out[dim] = sizes.unite(out[dim], symbol)
    for dim, symbol in enumerate(out):
        if symbol == UNIT and shape[dim] != 1:
            out[dim] = sizes.fresh()
    for variable in equation.outvars:
        sizes.assign(variable, out)


def _view(result: Dimensions, equation: JaxprEqn) -> None:
    operand, out = equation.invars[0], equation.outvars[0]
    index_map = equation.primitive.kind.index_map(operand.aval, out.aval, equation.params)
    result.index_maps[equation] = index_map
    final = [UNIT if extent == 1 else -1 for extent in out.aval.shape]
    for dim, symbol, extent in zip(index_map, result.symbols(operand), operand.aval.shape, strict=True):
        if dim.axis != CONSTANT:
            whole = dim.step in (1, -1) and out.aval.shape[dim.axis] == extent
            final[dim.axis] = symbol if whole else result.sizes.fresh()
            if not whole and dim.step == 1:
                result.sliced[final[dim.axis]] = symbol, extent
    result.sizes.assign(out, [result.sizes.fresh() if symbol == -1 else symbol for symbol in final])


def _reduction(result: Dimensions, equation: JaxprEqn) -> None:
    kind = equation.primitive.kind
    axes = kind.axes(equation.params)
    count = kind.operands([a.aval for a in equation.invars]) if kind.operands else len(equation.invars)
    arrays = [a for a in equation.invars[:count] if type(a) is not Literal]
    if not arrays:
        return
    symbols = result.sizes.symbols(arrays[0])
    for other in arrays[1:]:
        for left, right in zip(symbols, result.sizes.symbols(other), strict=True):
            result.sizes.unite(left, right)
    kept = [symbol for dim, symbol in enumerate(symbols) if dim not in axes]
    for out in equation.outvars:
        result.sizes.assign(out, kept)


def _same(result: Dimensions, equation: JaxprEqn) -> None:
    for operand, out in zip(equation.invars, equation.outvars, strict=False):
        if type(operand) is not Literal:
            result.sizes.assign(out, result.sizes.symbols(operand))


def _external(result: Dimensions, equation: JaxprEqn) -> None:
    """A sort's results have the shape of its operands; nothing is known of others."""
    kind, operand = equation.primitive.kind, equation.invars[0] if equation.invars else None
    if kind.ordering is None or operand is None or type(operand) is Literal:
        return
    for out in equation.outvars:
        if out.aval.shape == operand.aval.shape and kind.ordering(equation.params).largest is None:
            result.sizes.assign(out, result.sizes.symbols(operand))


def _assemble(result: Dimensions, equation: JaxprEqn) -> None:
    out = equation.outvars[0]
    avals = [atom.aval for atom in equation.invars]
    symbols: list[int] = [UNIT] * len(out.aval.shape)
    of_slices = True
    for piece in equation.primitive.kind.pieces(avals, out.aval, equation.params):
        operand = equation.invars[piece.operand]
        if type(operand) is Literal or not operand.aval.shape:
            continue
        rows = zip(piece.index_map, result.sizes.symbols(operand), operand.aval.shape, strict=True)
        for dim, symbol, extent in rows:
            whole = None
            if dim.axis != CONSTANT and dim.step == 1:
                whole = result.whole(symbol, extent, out.aval.shape[dim.axis])
            if whole is None:
                of_slices = False
            elif whole != UNIT:
                symbols[dim.axis] = result.sizes.unite(symbols[dim.axis], whole)
    if of_slices:
        result.of_slices.add(out)
    result.sizes.assign(out, [symbol if symbol != UNIT else result.sizes.fresh() for symbol in symbols])


def _dynamic_slice(result: Dimensions, equation: JaxprEqn) -> None:
    operand, out = equation.invars[0], equation.outvars[0]
    if type(operand) is Literal:
        return
    pairs = zip(result.sizes.symbols(operand), operand.aval.shape, out.aval.shape, strict=True)
    result.sizes.assign(out, [symbol if old == new and symbol else result.sizes.fresh() for symbol, old, new in pairs])


def _windows(result: Dimensions, equation: JaxprEqn, shape: Sequence[int]) -> list[int]:
    """Symbols of windows of this shape: those of the indices, and of the dimensions of the array they cover."""
    array, indices = equation.invars[:2]
    avals = [atom.aval for atom in equation.invars]
    windows = equation.primitive.kind.windows(avals, equation.outvars[0].aval, equation.params)
    result.windows[equation] = windows
    if len(windows.starts) == 1:
        result.sizes.make_unit(result.symbols(indices)[-1])
    symbols = [-1] * len(shape)
    for dim, symbol in zip(windows.batch, result.symbols(indices)[:-1], strict=True):
        symbols[dim] = symbol
    for dim, symbol, extent in zip(windows.moved, result.symbols(array), array.aval.shape, strict=True):
        if dim is None:
            continue
        if dim in windows.batch:
            symbols[dim] = result.sizes.unite(symbols[dim], symbol)
        elif shape[dim] == extent:
            symbols[dim] = symbol
    return [result.sizes.fresh() if symbol == -1 else symbol for symbol in symbols]


def _gather(result: Dimensions, equation: JaxprEqn) -> None:
    out = equation.outvars[0]
    result.sizes.assign(out, _windows(result, equation, out.aval.shape))


def _scatter(result: Dimensions, equation: JaxprEqn) -> None:
    array, _, updates = equation.invars
    found = _windows(result, equation, updates.aval.shape)
    for left, right in zip(found, result.symbols(updates), strict=True):
        result.sizes.unite(left, right)
    result.sizes.assign(equation.outvars[0], result.symbols(array))


def _contraction(result: Dimensions, equation: JaxprEqn) -> None:
    lhs, rhs = equation.invars[:2]
    if type(lhs) is Literal or type(rhs) is Literal:
        return
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = result.sizes.symbols(lhs), result.sizes.symbols(rhs)
    for i, j in (*zip(left_sum, right_sum, strict=True), *zip(left_batch, right_batch, strict=True)):
        result.sizes.unite(left[i], right[j])
    out = [left[i] for i in left_batch]
    out += [symbol for i, symbol in enumerate(left) if i not in (*left_sum, *left_batch)]
    out += [symbol for i, symbol in enumerate(right) if i not in (*right_sum, *right_batch)]
    result.sizes.assign(equation.outvars[0], out)


def _reshape(result: Dimensions, equation: JaxprEqn) -> None:
    """Extents that correspond one to one keep their symbol; an extra extent of 1 is structural."""
    operand, out = equation.invars[0], equation.outvars[0]
    if type(operand) is Literal:
        return
    symbols = result.sizes.symbols(operand)
    final = [UNIT if extent == 1 else -1 for extent in out.aval.shape]
    for old, new in matched(operand.aval.shape, out.aval.shape):
        final[new] = symbols[old]
    result.sizes.assign(out, [result.sizes.fresh() if symbol == -1 else symbol for symbol in final])


def matched(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of dimensions that a reshape does not change: equal ones, from both ends."""
    if 0 in old:
        return []
    pairs = _front(old, new)
    done_old, done_new = (pairs[-1][0] + 1, pairs[-1][1] + 1) if pairs else (0, 0)
    back = _front(old[done_old:][::-1], new[done_new:][::-1])
    return pairs + [(len(old) - 1 - i, len(new) - 1 - j) for i, j in back]


def _front(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    pairs, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        if old[i] == new[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif old[i] == 1:
            i += 1
        elif new[j] == 1:
            j += 1
        else:
            break
    return pairs


_RULES: dict[type, Callable[[Dimensions, Any], None]] = {
    kinds.Elementwise: _elementwise,
    kinds.View: _view,
    kinds.Reshape: _reshape,
    kinds.Reduction: _reduction,
    kinds.Cumulative: _same,
    kinds.Identity: _same,
    kinds.Assemble: _assemble,
    kinds.External: _external,
    kinds.DynamicSlice: _dynamic_slice,
    kinds.DynamicUpdateSlice: _same,
    kinds.Gather: _gather,
    kinds.Scatter: _scatter,
    kinds.Contraction: _contraction,
}
