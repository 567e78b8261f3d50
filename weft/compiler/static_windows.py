"""Scatters and gathers of one window at a known position become concatenations and slices.

    y = x.at[1:-1].add(f(x))   ->   concatenate(x[:1], x[1:-1] + f(x), x[-1:])
    y = gather x [2]           ->   x[2]

Scatters only if the updates cover most of the array and depend on it, or the array is one value repeated: such a
scatter would first write the whole array and then its window. Any other writes its window in place, unless a row of
the window is a few elements, which are copied in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.affine_indices import components, is_fill
from weft.core import kinds
from weft.core.eval import eval_jaxpr
from weft.core.index_maps import CONSTANT
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.rewrite import Makers

LOOK_BACK = 64  # most equations between an array and the updates that depend on it
NARROW = 32  # elements from which on a row of a window fills the lanes
MANY = 1 << 15  # elements of a window with short rows from which on they are copied rather than updated
MAX_CUT = 3  # dimensions that a window covers partly: each adds two slabs
_PASSED = (kinds.Elementwise, kinds.View, kinds.Reshape, kinds.Assemble, kinds.Identity)


def static_windows(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scatters and gathers replaced."""
    return expansions.expand(closed, (kinds.Scatter, kinds.Gather), _rewritten)


def _rewritten(equation: JaxprEqn, makers: Makers) -> tuple[tuple[int, ...], Callable[..., Any]] | None:
    """The window's start, and a function that replaces the equation; None if it is not changed."""
    return (_gathered if isinstance(equation.primitive.kind, kinds.Gather) else _scattered)(equation, makers)


def _gathered(equation: JaxprEqn, makers: Makers) -> tuple[tuple[int, ...], Callable[..., Any]] | None:
    array, indices = equation.invars
    out = equation.outvars[0].aval
    if isinstance(array, Literal) or not out.size or indices.aval.ndim != 1:
        return None
    windows = equation.primitive.kind.windows([array.aval, indices.aval], out, equation.params)
    moved = [dim for dim in windows.moved if dim is not None]
    start = _start(windows, indices, array.aval.ndim, makers)
    if start is None or windows.batch or moved != sorted(moved):
        return None
    stop = [at + (1 if dim is None else out.shape[dim]) for at, dim in zip(start, windows.moved, strict=True)]
    return start, lambda array, _: lax.reshape(lax.slice(array, start, stop), out.shape)


def _start(windows: kinds.Windows, indices: Any, ndim: int, makers: Makers) -> tuple[int, ...] | None:
    """Where the window begins, if that is known and it lies inside."""
    start = [0] * ndim
    for dim, index, most in zip(windows.starts, components(indices, makers), windows.most, strict=True):
        if index is None or index.axis != CONSTANT or not 0 <= index.start <= most:
            return None
        start[dim] = index.start
    return tuple(start)


def _scattered(equation: JaxprEqn, makers: Makers) -> tuple[tuple[int, ...], Callable[..., Any]] | None:
    array, indices, updates = equation.invars
    shape = array.aval.shape
    if isinstance(array, Literal) or not array.aval.size or not updates.aval.size or indices.aval.ndim != 1:
        return None
    kind, params = equation.primitive.kind, equation.params
    windows = kind.windows([array.aval, indices.aval, updates.aval], equation.outvars[0].aval, params)
    moved = [dim for dim in windows.moved if dim is not None]
    if windows.batch or moved != sorted(moved) or params["update_consts"]:
        return None
    start = _start(windows, indices, len(shape), makers)
    if start is None:
        return None
    extent = [1 if dim is None else updates.aval.shape[dim] for dim in windows.moved]
    short = bool(extent) and 1 < extent[-1] < min(shape[-1], NARROW) and updates.aval.size >= MANY
    if (4 if short else 2) * updates.aval.size < array.aval.size:
        return None
    cut = [d for d in range(len(shape)) if extent[d] != shape[d]]
    if not 0 < len(cut) <= MAX_CUT:
        return None
    if not short and not is_fill(array, makers) and not _is_computed_from(updates, array, makers):
        return None
    return start, _assembled(start, extent, cut, kind.update(params))


def _is_computed_from(atom: Any, array: Any, makers: Makers) -> bool:
    stack, seen = [atom], {atom} if not isinstance(atom, Literal) else set()
    while stack and len(seen) <= LOOK_BACK:
        variable = stack.pop()
        if variable is array:
            return True
        maker = makers.of(variable)
        if maker is None or not isinstance(maker.primitive.kind, _PASSED):
            continue
        for operand in maker.invars:
            if not isinstance(operand, Literal) and operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return False


def _assembled(start: Sequence[int], extent: Sequence[int], cut: Sequence[int], update: Any) -> Callable[..., Any]:
    """A function of the array, the indices and the updates."""
    stop = [at + n for at, n in zip(start, extent, strict=True)]

    def function(array: Any, _: Any, updates: Any) -> Any:
        window = lax.reshape(updates, tuple(extent)) if updates.shape != tuple(extent) else updates
        if update is not None:
            window = eval_jaxpr(update, (), lax.slice(array, start, stop), window)[0]
        for dim in reversed(cut):
            low, high = [0] * array.ndim, list(array.shape)
            for outer in cut[: cut.index(dim)]:
                low[outer], high[outer] = start[outer], stop[outer]
            parts = [
                lax.slice(array, low, [*high[:dim], start[dim], *high[dim + 1 :]]),
                window,
                lax.slice(array, [*low[:dim], stop[dim], *low[dim + 1 :]], high),
            ]
            window = lax.concatenate([part for part in parts if part.shape[dim]], dim)
        return window

    return function
