"""Scatters of one window, in loops that may become routines, as updates of a region, which have a form in registers.

    y = scatter x [i] u   ->   old = dynamic_slice x i;   y = dynamic_update_slice x (select (0 <= i <= most) old u) i

Slices and updates move a start that is not inside; there the elements that are found are written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.core import check_scopes, kinds
from weft.core.eval import eval_jaxpr
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Makers
from weft.loops import small_values

LARGEST = small_values.LARGEST_IN_PLACE  # elements of the array; larger ones have no form in routines


def single_windows(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scatters as updates."""
    return expansions.expand(closed, (kinds.Scatter,), _rewritten)


def _rewritten(equation: JaxprEqn, _: Makers) -> tuple[Any, Callable[..., Any]] | None:
    array, indices, updates = [atom.aval for atom in equation.invars[:3]]
    kind, params = equation.primitive.kind, equation.params
    if params["update_consts"] or array.size > LARGEST or not updates.size or indices.dtype.kind != "i":
        return None
    windows = kind.windows([array, indices, updates], equation.outvars[0].aval, params)
    if "index" in check_scopes.wanted(equation):
        return None  # what is not inside is reported
    if any(updates.shape[dim] != 1 for dim in windows.batch) or indices.size != len(windows.starts):
        return None
    if any(most < 0 or most > np.iinfo(indices.dtype).max for most in windows.most):
        return None
    return windows, _updated(windows, kind.clips(params), kind.update(params))


def _updated(windows: kinds.Windows, clips: bool, update: Any) -> Callable[..., Any]:
    def function(array: Any, indices: Any, updates: Any) -> Any:
        walks = [walk for walk in windows.moved if walk is not None]
        shape = tuple([1 if walk is None else updates.shape[walk] for walk in windows.moved])
        rest = [dim for dim in range(updates.ndim) if dim not in walks]
        new = lax.reshape(lax.transpose(updates, [*rest, *walks]), shape)
        starts: list[Any] = [np.int32(0)] * array.ndim
        inside = None
        for k, (dim, most) in enumerate(zip(windows.starts, windows.most, strict=True)):
            start = lax.reshape(lax.slice_in_dim(lax.reshape(indices, (indices.size,)), k, k + 1), ())
            low, high = np.asarray(0, start.dtype), np.asarray(most, start.dtype)
            starts[dim] = lax.convert_element_type(lax.clamp(low, start, high), np.int32)
            here = lax.bitwise_and(lax.ge(start, low), lax.le(start, high))
            inside = here if inside is None else lax.bitwise_and(inside, here)
        old = lax.dynamic_slice(array, starts, shape)
        if update is not None:
            new = eval_jaxpr(update, (), old, new)[0]
        if not clips and inside is not None:
            new = lax.select_n(lax.broadcast_in_dim(inside, shape, ()), old, new)
        return lax.dynamic_update_slice(array, new, starts)

    return function
