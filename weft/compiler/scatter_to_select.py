"""Scatters of one window into each row of a constant array become selects on the index of every element.

    y = zeros.at[arange(n), j].add(u)   ->   y = where(iota == j, 0 + u, 0)

Rows are the batches of the scatter (``batched_scatters`` finds those that index vectors count).

The derivative of a cross-entropy is such an array. It is written in full anyway; as an elementwise value it can be
fused with its readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.affine_indices import is_fill
from weft.core import kinds
from weft.core.eval import eval_jaxpr
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.rewrite import Makers

Walks = tuple[int | None, ...]  # for each dimension of the array the updates' dimension along it, or None


def scatter_to_select(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scatters as selects."""
    return expansions.expand(closed, (kinds.Scatter,), _rewritten)


def _rewritten(equation: JaxprEqn, makers: Makers) -> tuple[Walks, Callable[..., Any]] | None:
    """The layout of updates in the array, and a function that replaces the scatter; None: it stays."""
    array, indices, updates = equation.invars
    if isinstance(array, Literal) or not is_fill(array, makers) or not updates.aval.size:
        return None
    kind, params = equation.primitive.kind, equation.params
    if params["update_consts"]:
        return None
    windows = kind.windows([array.aval, indices.aval, updates.aval], equation.outvars[0].aval, params)
    walks = _walks(windows, array.aval, indices.aval, updates.aval)
    if walks is None:
        return None
    return walks, _selected(windows, walks, kind.clips(params), kind.update(params))


def _walks(windows: kinds.Windows, array: Any, indices: Any, updates: Any) -> Walks | None:
    """None if two windows may overlap, or one covers part of a dimension."""
    walks = [None if dim in windows.starts and walk is not None and updates.shape[walk] == 1 else walk
             for dim, walk in enumerate(windows.moved)]  # fmt: skip
    if any(walk is not None and updates.shape[walk] != n for walk, n in zip(walks, array.shape, strict=True)):
        return None
    if any(walks[dim] is not None or (indices.dtype.itemsize < 4 and array.shape[dim] > 127)
           for dim in windows.starts):  # fmt: skip
        return None
    alone = all(dim in walks or updates.shape[dim] == 1 for dim in windows.batch)
    # a batch of 1 is treated like larger ones
    is_batch = bool(windows.batch) and not any(dim in walks for dim in windows.batch)
    return tuple(walks) if alone and None in walks and not is_batch else None


def _selected(windows: kinds.Windows, walks: Walks, clips: bool, update: Any) -> Callable[..., Any]:
    there = [walk for walk in walks if walk is not None]

    def spread(value: Any, dims: list[int], shape: tuple[int, ...]) -> Any:
        """A value whose dimensions are those of the updates named by ``dims``, in the array's order and shape."""
        value = lax.squeeze(value, [place for place, dim in enumerate(dims) if dim not in there])
        dims = [dim for dim in dims if dim in there]
        order = sorted(range(len(dims)), key=lambda place: walks.index(dims[place]))
        placed = sorted([walks.index(dim) for dim in dims])
        return lax.broadcast_in_dim(lax.transpose(value, order), shape, placed)

    def function(array: Any, indices: Any, updates: Any) -> Any:
        shape, new = array.shape, spread(updates, list(range(updates.ndim)), array.shape)
        if update is not None:
            new = eval_jaxpr(update, (), array, new)[0]
        chosen = None
        for k, (dim, most) in enumerate(zip(windows.starts, windows.most, strict=True)):
            if walks[dim] is not None:
                continue
            start = lax.index_in_dim(indices, k, indices.ndim - 1, keepdims=False)
            if clips:
                start = lax.clamp(np.asarray(0, start.dtype), start, np.asarray(most, start.dtype))
            place = lax.broadcasted_iota(start.dtype, shape, dim)
            here = lax.eq(place, spread(start, list(windows.batch), shape))
            chosen = here if chosen is None else lax.bitwise_and(chosen, here)
        return lax.select_n(chosen, array, new)

    return function
