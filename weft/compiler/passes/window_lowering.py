"""Reductions of windows as elementwise operations on slices of the array, which are fused as any others are.

    b:f32[3] = reduce_window_sum[window 3, stride 2] a:f32[7]   ->   b = a[0:5:2] + a[1:6:2] + a[2:7:2]

Padding with the identity of the reduction becomes padding of the windows: they read the array without it. So no zeros
are added in the gradient of a sum of windows, which sums windows of a cotangent with zeros between its elements.

Results that are put together from regions are stored region by region. An elementwise operation on such a result, and
on no other array, is computed region by region too:

    c = mosaic a b; d = div c 9.0   ->   d = mosaic (a / 9.0) (b / 9.0)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.core import index_maps, kinds
from weft.core.index_maps import Region
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal
from weft.core.programs.rewrite import Makers, Splicer
from weft.core.window_maps import WindowMap
from weft.operations.windowed.window_folds import Fold, fold


def window_lowering(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without reductions of windows."""
    parted: set[Any] = set()  # results that are put together from regions, of one reader

    def lowered(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom]:
        atoms = _lowered(eqn, splicer)
        parted.update([v for v, out in zip(atoms, eqn.outvars, strict=True) if uses[out] == 1])
        return atoms

    uses = rewrite.index(closed.jaxpr).uses
    made = Splicer(closed, lowered, (kinds.Window,)).run()
    uses = rewrite.index(made.jaxpr).uses
    parted = {v for v in parted if not isinstance(v, Literal) and uses[v] == 1}
    if not parted:
        return made

    def in_regions(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        number = next((i for i, v in enumerate(eqn.invars) if not isinstance(v, Literal) and v in parted), None)
        maker = None if number is None else splicer.makers.of(eqn.invars[number])
        if number is None or maker is None or not isinstance(maker.primitive.kind, kinds.Assemble):
            return None
        if any(v.aval.shape and v.aval.ndim != eqn.outvars[0].aval.ndim for v in eqn.invars):
            return None
        atoms = _in_regions(eqn, number, maker, splicer)
        parted.update([v for v in atoms if uses[eqn.outvars[0]] == 1])
        return atoms

    return Splicer(made, in_regions, (kinds.Elementwise,)).run()


def _in_regions(eqn: JaxprEqn, number: int, maker: JaxprEqn, splicer: Splicer) -> Sequence[Atom]:
    """An elementwise equation, computed in each region of its operand number ``number``."""
    count = len(maker.invars)
    pieces = maker.primitive.kind.pieces([v.aval for v in maker.invars], maker.outvars[0].aval, maker.params)
    regions, shape = [piece.region for piece in pieces], maker.outvars[0].aval.shape

    def function(*operands: Any) -> Any:
        parts, others = operands[:count], operands[count:]
        made = []
        for part, region in zip(parts, regions, strict=True):
            cut = [_cut(x, region, shape) if x.ndim else x for x in others]
            cut.insert(number, part)
            made.append(eqn.primitive.bind(*cut, **eqn.params))
        return maker.primitive.bind(*made, **maker.params)

    operands = [*maker.invars, *eqn.invars[:number], *eqn.invars[number + 1 :]]
    who = eqn.primitive, number, maker.primitive, tuple(maker.params.items())
    program = expansions.expansion(who, function, tuple([v.aval for v in operands]), eqn.params)
    return splicer.splice(program, operands, eqn.source)


def _cut(array: Any, region: Region, shape: Sequence[int]) -> Any:
    """The elements of an array that a region of an array of this shape reads; extents of 1 are repeated."""
    bounds = zip(region.start, region.stop, region.step, array.shape, shape, strict=True)
    found = [(0, 1, 1) if n != full else (start, stop, step) for start, stop, step, n, full in bounds]
    return lax.slice(array, *zip(*found, strict=True))


def _lowered(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom]:
    kind = eqn.primitive.kind
    avals = [v.aval for v in eqn.invars]
    windows, operands = kind.windows(eqn.params), list(eqn.invars)
    known = kind.accumulators(avals, eqn.params)
    if known is not None:
        unpadded = _unpadded(windows, operands[0], known[0][1], splicer.makers)
        if unpadded is not None:
            windows, operands[0] = unpadded
    function = functools.partial(_fold, kind, windows, known, eqn.params)
    who = eqn.primitive, windows
    program = expansions.expansion(who, function, tuple([v.aval for v in operands]), eqn.params)
    return splicer.splice(program, operands, eqn.source)


def _fold(kind: Any, windows: WindowMap, known: Any, params: dict[str, Any], *operands: Any) -> list[Any]:
    combine = functools.partial(kind.combine, **params)
    if known is None:
        count = len(operands) // 2
        how = Fold(combine, operands[count:], starts=True, neutral=False)
        return fold(windows, operands[:count], how)
    dtypes = [x.dtype for x in operands]
    arrays = [
        lax.convert_element_type(x, dtype) if x.dtype != dtype else x
        for x, (dtype, _) in zip(operands, known, strict=True)
    ]
    empty = [np.asarray(value).astype(dtype)[()] for dtype, value in known]
    found = fold(windows, arrays, Fold(combine, empty, starts=kind.begins, neutral=True, reduce=kind.reduce))
    return [
        lax.convert_element_type(x, dtype) if x.dtype != dtype else x for x, dtype in zip(found, dtypes, strict=True)
    ]


def _unpadded(windows: WindowMap, operand: Atom, identity: Any, makers: Makers) -> tuple[WindowMap, Atom] | None:
    """(the windows in the array before its padding, that array); None if the operand is no padding by ``identity``."""
    maker = makers.of(operand)
    if maker is None or not isinstance(maker.primitive.kind, kinds.Assemble):
        return None
    out = maker.outvars[0].aval
    pieces = maker.primitive.kind.pieces([v.aval for v in maker.invars], out, maker.params)
    if len(pieces) != 2 or not pieces[0].fill or not out.size:
        return None
    (fill, source), (_, region, index_map) = (maker.invars[piece.operand] for piece in pieces), _parts(pieces[1])
    if not isinstance(fill, Literal) or not _is_same(fill.val, identity) or source.aval.shape != region.extent:
        return None
    if index_map != index_maps.identity(out.ndim):
        return None
    found = []
    for one, start, step, stop, extent in zip(
        windows.along, region.start, region.step, region.stop, out.shape, strict=True
    ):
        if one.spacing != 1 and (start, step, stop) != (0, 1, extent):
            return None
        low, high = one.low + start * one.spacing, one.high + (extent - stop) * one.spacing
        found.append(one._replace(low=low, high=high, spacing=step * one.spacing))
    return WindowMap(tuple(found)), source


def _parts(piece: Any) -> tuple[int, Any, Any]:
    return piece.operand, piece.region, piece.index_map


def _is_same(value: Any, other: Any) -> bool:
    """Equality that tells zeros of different sign apart."""
    value, other = np.asarray(value), np.asarray(other).astype(np.asarray(value).dtype)
    return bool(value == other) and bool(np.signbit(np.real(value)) == np.signbit(np.real(other)))
