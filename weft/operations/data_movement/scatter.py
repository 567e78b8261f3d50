"""scatter: windows of updates written, or combined, into an array at starts that are read from an index array.

Updates are applied in row-major order of the index vectors: the last of several updates of one element wins, and sums
are rounded in that order, unless the option ``fast`` allows any (``any_order``, a parameter of such equations alone).
Windows that are not inside are skipped, or moved inside under CLIP. Typing and the dimension numbers are XLA's
(openxla.org/xla/operation_semantics#scatter).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, core, dtypes, runtime
from weft.core import kinds
from weft.core.caches.weak_table import WeakTable
from weft.core.programs import check_scopes
from weft.operations import key_words, mapped
from weft.operations.data_movement import shape
from weft.operations.data_movement.gather import (
    check_batching,
    check_index_map,
    check_indices,
    check_sorted_dims,
    moved_dims,
    window_positions,
)
from weft.operations.general_reduce import check_elementwise, run_with_numpy
from weft.operations.later import ops
from weft.operations.pointwise import arithmetic
from weft.operations.settings import GatherScatterMode, ScatterDimensionNumbers
from weft.operations.static import canonical_shape
from weft.runtime import Array

__all__ = [
    "scatter",
    "scatter_add",
    "scatter_add_p",
    "scatter_apply",
    "scatter_max",
    "scatter_max_p",
    "scatter_min",
    "scatter_min_p",
    "scatter_mul",
    "scatter_mul_p",
    "scatter_p",
    "scatter_sub",
    "scatter_sub_p",
]

ArrayLike = Any
Params = dict[str, Any]


# ---- typing


def _check_numbers(array: Any, indices: Any, updates: Any, numbers: ScatterDimensionNumbers) -> None:
    name = "scatter"
    window_dims, inserted, index_map, batching, index_batching = numbers
    check_indices(name, indices)
    rank = indices.ndim - 1 + len(window_dims)
    if updates.ndim != rank:
        raise TypeError(f"[{name}] Updates tensor must be of rank {rank}; got {updates.ndim}, {updates.str_short()}")
    check_sorted_dims(name, "update_window_dims", window_dims, updates.ndim)
    check_sorted_dims(name, "inserted_window_dims", inserted, array.ndim)
    indexed, thin = ("scatter_dims_to_operand_dims", index_map), ("inserted_window_dims", inserted)
    check_batching(name, array, indices, batching, index_batching, "scatter_indices_batching_dims", [thin, indexed])
    window_rank = len(window_dims) + len(inserted) + len(batching)
    if window_rank != array.ndim:
        raise TypeError(
            f"[{name}] Scatter op has window of size {window_rank}; doesn't match operand of rank {array.ndim}. These "
            f"are update_window_dims, inserted_window_dims and operand_batching_dims, and {array.str_short()}"
        )
    check_index_map(name, *indexed, array, indices)


def _scatter_typing(
    array: Any, indices: Any, updates: Any, *, dimension_numbers: ScatterDimensionNumbers, **_: Any
) -> Any:
    name, numbers = "scatter", dimension_numbers
    if array.dtype != updates.dtype:
        raise TypeError(
            f"[{name}] operand and updates must have the same dtype, got {array.str_short()}, {updates.str_short()}"
        )
    _check_numbers(array, indices, updates, numbers)
    kept = [d for d in range(array.ndim) if d not in {*numbers.inserted_window_dims, *numbers.operand_batching_dims}]
    for dim, update_dim in zip(kept, numbers.update_window_dims, strict=True):
        if updates.shape[update_dim] > array.shape[dim]:
            raise TypeError(
                f"[{name}] Bounds of the window dimensions of updates must not exceed those of the operand: axis "
                f"{update_dim} of {updates.str_short()} exceeds axis {dim} of {array.str_short()}"
            )
    batch = tuple([n for dim, n in enumerate(updates.shape) if dim not in numbers.update_window_dims])
    if batch != indices.shape[:-1]:
        at = next(at for at, (n, m) in enumerate(zip(batch, indices.shape, strict=False)) if n != m)
        raise TypeError(
            f"[{name}] Bounds of the scatter dimensions of updates must be those of the indices. For scatter dimension "
            f"{at}, updates bound is {batch[at]}, indices bound is {indices.shape[at]}: {updates.str_short()} and "
            f"{indices.str_short()}"
        )
    return runtime.ShapedArray(array.shape, array.dtype, array.weak_type)


def _scatter_windows(avals: Sequence[Any], out: Any, params: Params) -> kinds.Windows:
    numbers = params["dimension_numbers"]
    array, _, updates = avals
    batching = tuple(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    moved, batch = moved_dims(
        array.ndim, updates.ndim, numbers.update_window_dims, numbers.inserted_window_dims, batching
    )
    index_map = tuple(numbers.scatter_dims_to_operand_dims)
    sizes = [1 if moved[dim] is None else updates.shape[moved[dim]] for dim in index_map]
    most = tuple([array.shape[dim] - size for dim, size in zip(index_map, sizes, strict=True)])
    return kinds.Windows(index_map, moved, batch, most)


# ---- reference


def _scatter_reference(array: Any, indices: Any, updates: Any, *, update_jaxpr: Any, **params: Any) -> np.ndarray:
    out, indices, updates = np.array(array), np.asarray(indices), np.asarray(updates)
    if not out.size or not updates.size:
        return out
    avals = [runtime.ShapedArray(x.shape, x.dtype) for x in (out, indices, updates)]
    windows = _scatter_windows(avals, avals[0], params)
    positions, inside = window_positions(windows, out.shape, indices, updates.shape)
    order = [*windows.batch, *[dim for dim in range(updates.ndim) if dim not in windows.batch]]
    positions, inside, values = [np.transpose(x, order).reshape(-1) for x in (positions, inside, updates)]
    if params["mode"] is not GatherScatterMode.CLIP:
        positions, values = positions[inside], values[inside]
    flat = out.reshape(-1)
    for turn in _rounds(positions):
        old, new = flat[positions[turn]], values[turn]
        flat[positions[turn]] = new if update_jaxpr is None else run_with_numpy(update_jaxpr, [old, new])[0]
    return flat.reshape(out.shape)


def _rounds(positions: np.ndarray) -> list[np.ndarray]:
    """The positions of updates in rounds: the first update of every element, then the second one, and so on."""
    if not positions.size:
        return []
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(first)
    turn = np.arange(len(positions)) - starts[np.cumsum(first) - 1]
    by_turn = np.argsort(turn, kind="stable")
    cuts = np.cumsum(np.bincount(turn))[:-1]
    return [order[part] for part in np.split(by_turn, cuts)]


# ---- primitives


def _lowest(dtype: np.dtype) -> Any:
    return dtypes.iinfo(dtype).min if dtypes.issubdtype(dtype, np.integer) else -np.inf


def _highest(dtype: np.dtype) -> Any:
    return dtypes.iinfo(dtype).max if dtypes.issubdtype(dtype, np.integer) else np.inf


# by combiner
_NEUTRAL: dict[str | None, Callable[[np.dtype], Any]] = {"sum": lambda dtype: 0, "max": _lowest, "min": _highest}
_MERGED: dict[str | None, Callable[[Any, Any], Any]] = {
    "sum": lambda array, parts: ops.add(array, ops.convert_element_type(ops.reduce_sum(parts, (0,)), array.dtype)),
    "max": lambda array, parts: ops.max(array, ops.reduce_max(parts, (0,))),
    "min": lambda array, parts: ops.min(array, ops.reduce_min(parts, (0,))),
}


# what threads may add to in any order: processors have an atomic addition of these
_ADDED = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def any_order(dtype: np.dtype, is_sum: bool, is_sorted: bool) -> Params:
    """The parameter of a sum that the option ``fast`` allows in any order; sorted updates are as fast in theirs."""
    allowed = is_sum and not is_sorted and dtype.name in _ADDED and config.read("fast")
    return {"any_order": True} if allowed else {}


def _free(combiner: str | None, dtype: np.dtype, params: Params) -> str | None:
    if params["unique_indices"]:
        return "once"
    return combiner if dtype.kind in "iu" or params.get("any_order") else None


def _scatter_primitive(name: str, combiner: str | None = None) -> core.Primitive:
    primitive = core.Primitive(
        name,
        kind=kinds.Scatter(
            windows=_scatter_windows,
            update=lambda params: params["update_jaxpr"],
            clips=lambda params: params["mode"] is GatherScatterMode.CLIP,
            unique=lambda params: params["unique_indices"],
            ordered=lambda params: params["indices_are_sorted"],
            reference=_scatter_reference,
            combiner=combiner,
            neutral=_NEUTRAL.get(combiner),
            merged=_MERGED.get(combiner),
            free=functools.partial(_free, combiner),
        ),
    )
    primitive.def_abstract_eval(_scatter_typing)
    return primitive


scatter_p = _scatter_primitive("scatter")
scatter_p.on_words = key_words.scatter
scatter_add_p = _scatter_primitive("scatter-add", "sum")
scatter_sub_p = _scatter_primitive("scatter-sub", "sum")
scatter_mul_p = _scatter_primitive("scatter-mul")
scatter_min_p = _scatter_primitive("scatter-min", "min")
scatter_max_p = _scatter_primitive("scatter-max", "max")


def _scatter_batch(
    primitive: Any, size: int, values: list[Any], dims: list[mapped.Dim], *, dimension_numbers: Any, **params: Any
) -> Any:
    array, indices, updates = values
    numbers = dimension_numbers
    array, updates = mapped.in_front(size, array, dims[0]), mapped.in_front(size, updates, dims[2])
    inserted = mapped.shifted(numbers.inserted_window_dims)
    starts = mapped.shifted(numbers.scatter_dims_to_operand_dims)
    array_batch, indices_batch = mapped.shifted(numbers.operand_batching_dims), numbers.scatter_indices_batching_dims
    windows = mapped.shifted(numbers.update_window_dims)
    if dims[1] is None:
        windows = (0, *windows)
    else:
        indices = mapped.at(indices, dims[1], 0)
        array_batch, indices_batch = (0, *array_batch), (0, *mapped.shifted(indices_batch))
    changed = ScatterDimensionNumbers(
        update_window_dims=tuple(windows), inserted_window_dims=tuple(inserted),
        scatter_dims_to_operand_dims=tuple(starts), operand_batching_dims=tuple(array_batch),
        scatter_indices_batching_dims=tuple(indices_batch),
    )  # fmt: skip
    return primitive.bind(array, indices, updates, dimension_numbers=changed, **params), 0


for _primitive in (scatter_p, scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p, scatter_max_p):
    _primitive.batch = functools.partial(_scatter_batch, _primitive)


@functools.lru_cache(maxsize=512)
def combination(primitive: core.Primitive, aval: Any, backward: bool = False) -> core.Jaxpr:
    """The jaxpr of ``primitive old update`` on scalars: one object, which transposed equations do not share."""
    closed, _ = core.trace_to_jaxpr(lambda old, new: [primitive.bind(old, new)], [aval, aval])
    return closed.jaxpr


def _scatter(
    primitive: core.Primitive,
    combine: core.Primitive | None,
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: str | GatherScatterMode | None,
) -> Array:
    jaxpr = None
    if combine is not None:
        dtype = core.get_aval(operand).dtype
        jaxpr = combination(combine, runtime.ShapedArray((), dtype))
    return _bound(
        primitive, operand, scatter_indices, updates, jaxpr, dimension_numbers, indices_are_sorted, unique_indices, mode
    )


def _bound(
    primitive: core.Primitive,
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    jaxpr: core.Jaxpr | None,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: str | GatherScatterMode | None,
) -> Array:
    is_sum = primitive in (scatter_add_p, scatter_sub_p)
    more = any_order(core.get_aval(operand).dtype, is_sum, indices_are_sorted)
    with check_scopes.as_given(mode if isinstance(mode, str) else None):
        return primitive.bind(
            operand,
            scatter_indices,
            updates,
            dimension_numbers=dimension_numbers,
            indices_are_sorted=bool(indices_are_sorted),
            unique_indices=bool(unique_indices),
            mode=GatherScatterMode.from_any(mode),
            update_jaxpr=jaxpr,
            update_consts=(),
            **more,
        )


# ---- public functions


def scatter(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """``operand`` with windows of ``updates`` written at the starts in ``scatter_indices``; the last one wins.

    A window that is not inside is, by ``mode``, skipped ("drop", the default), or moved inside
    ("clip"). Raises TypeError for dimension numbers that do not fit the shapes, or different dtypes.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter(np.int32([5, 6, 7]), np.int32([[2], [0], [2]]), np.int32([1, 2, 3]), numbers).tolist()
    [2, 6, 3]
    """
    return _scatter(
        scatter_p, None, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices, mode
    )


def _combining(name: str, primitive: core.Primitive, combine: core.Primitive, summary: str, example: str) -> Any:
    """Make a public function that combines updates with the old elements."""

    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array:
        return _scatter(
            primitive, combine, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
            unique_indices, mode,
        )  # fmt: skip

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{summary}

    Several updates of one element are applied in the order of their indices. Parameters and errors as ``scatter``'s.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.{name}(np.int32([5, 6, 7]), np.int32([[2], [0], [2]]), np.int32([1, 2, 3]), numbers).tolist()
    {example}
    """
    return function


scatter_add = _combining(
    "scatter_add", scatter_add_p, arithmetic.add_p, "``operand`` with windows of ``updates`` added.", "[7, 6, 11]"
)
scatter_sub = _combining(
    "scatter_sub", scatter_sub_p, arithmetic.sub_p, "``operand`` with windows of ``updates`` subtracted.", "[3, 6, 3]"
)
scatter_mul = _combining(
    "scatter_mul", scatter_mul_p, arithmetic.mul_p, "``operand`` multiplied by windows of ``updates``.", "[10, 6, 21]"
)
scatter_min = _combining(
    "scatter_min", scatter_min_p, arithmetic.min_p, "The minimum of ``operand`` and windows of ``updates``.",
    "[2, 6, 1]",
)  # fmt: skip
scatter_max = _combining(
    "scatter_max", scatter_max_p, arithmetic.max_p, "The maximum of ``operand`` and windows of ``updates``.",
    "[5, 6, 7]",
)  # fmt: skip


_computations: WeakTable[dict[Any, core.Jaxpr]] = WeakTable()


def _computation(function: Callable[[Any], Any], aval: Any) -> core.Jaxpr:
    """The jaxpr of ``function(old)`` on scalars, with an unused update; one object for each function and dtype."""
    known = _computations.get(function)
    if known is None:
        known = {}
        with contextlib.suppress(TypeError):  # not weakly referable: traced anew each time
            _computations.set(function, known)
    found = known.get(aval)
    if found is not None:
        return found

    def flat(old: Any, _: Any) -> list[Any]:
        out = function(old)
        if isinstance(out, (tuple, list, dict)) or out is None:
            raise ValueError(f"[scatter_apply] the function must return one array, got {out!r}")
        return [out]

    closed, out_avals = core.trace_to_jaxpr(flat, [aval, aval])
    if closed.consts:
        raise NotImplementedError("[scatter_apply] the function must not close over arrays or tracers; pass scalars")
    if out_avals[0].shape or out_avals[0].dtype != aval.dtype:
        raise ValueError(f"[scatter_apply] the function must return {aval.str_short()}, got {out_avals[0].str_short()}")
    check_elementwise(closed.jaxpr)
    known[aval] = closed.jaxpr
    return closed.jaxpr


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """``operand`` with ``func`` applied to windows of it; once for each time an element is in a window.

    ``update_shape`` is the shape that updates would have. ``func`` must be elementwise and keep the dtype.

    >>> numbers, indices = lax.ScatterDimensionNumbers((), (0,), (0,)), np.int32([[2], [2]])
    >>> lax.scatter_apply(np.int32([5, 6, 7]), indices, lambda v: v + 1, numbers, update_shape=(2,)).tolist()
    [5, 6, 9]
    """
    dtype = core.get_aval(operand).dtype
    jaxpr = _computation(func, runtime.ShapedArray((), dtype))
    zero, sizes = np.zeros((), dtype)[()], canonical_shape("scatter_apply", update_shape)
    updates = shape.broadcast_in_dim(zero, sizes, ()) if sizes else zero
    return _bound(
        scatter_p, operand, scatter_indices, updates, jaxpr, dimension_numbers, indices_are_sorted, unique_indices, mode
    )
