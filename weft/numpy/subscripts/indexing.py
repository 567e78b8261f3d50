"""``x[idx]`` for every index of NumPy's: how an index is read, and which program takes its elements.

Integers, slices and None are views or one dynamic slice (``basic_indexing``), arrays one gather (``gather_indexing``).
Outside a trace the reading of an index is remembered by the types of its parts, so that ``x[i]``, ``x[i, j]``,
``x[a:b]`` and ``x[indices]`` are each a call of one compiled program with ``i``, ``a`` and ``indices`` as arguments::

    x[i]          ->  i normalised, dynamic_slice, squeeze
    x[indices]    ->  indices normalised, gather
    x[mask]       ->  outside a trace: copied by NumPy, since the size of the result is data; in it: a gather
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft import config, core, dtypes, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.core.interruptible import interruptible
from weft.core.programs import check_scopes
from weft.core.symbolic import sizes
from weft.numpy import promotion, small_copies
from weft.numpy.subscripts import basic_indexing, gather_indexing, index_items

_BOUND = 4096
_INTEGERS = frozenset((*dtypes.SIGNED, *dtypes.UNSIGNED))
LONG_INTEGERS = frozenset((dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64))  # they hold every extent
_routes: dict[tuple[Any, ...], tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]] = {}
_static_plans: dict[tuple[Any, ...], basic_indexing.IndexPlan] = {}  # (shape, items of an index as written) -> plan


class Slot(int):
    """A Python integer while its index is read: which item it is."""


def index(x: Any, idx: Any) -> Array:
    """``x[idx]``. Integers out of bounds are clamped.

    IndexError for too many indices or a mask of another shape, TypeError for what is no index,
    NonConcreteBooleanIndexError for a mask whose values are traced.
    """
    if type(idx) is runtime.Array and idx.aval.dtype in LONG_INTEGERS and idx.ndim and small_copies.may_copy():
        aval = x.aval
        if aval.ndim and aval.size < 2**31:
            layout = gather_indexing.of_rows(aval.ndim)
            return gather_indexing.apply(x, idx, layout=layout)
    if core.is_tracing() or x.size >= 2**31:  # positions in a long axis are static: int32 does not hold all of them
        return _traced(x, idx)
    if config.keys_watched and config.read("debug_key_reuse"):
        return _traced(x, idx)  # positions are static: they say which keys are taken
    if type(idx) is int and x.ndim:  # the commonest eager index
        if x.shape[0] == 0:
            raise IndexError("index is out of bounds for axis 0 with size 0")
        return basic_indexing.apply(x, idx, plan=basic_indexing.first_axis(x.ndim))
    return _eager(x, idx if type(idx) is tuple else (idx,), idx)


def _eager(x: Any, whole: tuple[Any, ...], idx: Any) -> Any:
    """``x[idx]`` outside a trace, by a remembered route if there is one."""
    if len(whole) == 1 and type(whole[0]) is runtime.Array and x.ndim and whole[0].ndim:
        indices = whole[0]
        if indices.dtype in LONG_INTEGERS:
            layout = gather_indexing.of_rows(x.ndim)
            return gather_indexing.apply(x, indices, layout=layout)
    key = (x.shape, *[kind_of(item) for item in whole])
    known = _routes.get(key) if False not in key else None
    if known is None:
        known = None if False in key else _new_route(x, whole, key)
    if known is not None:
        apply, static, sources = known
        return apply(x, *[whole[source] if type(source) is Slot else source for source in sources], **static)
    if any(map(index_items.is_mask, whole)) and _only_masks(whole):
        return _masked(x, whole)
    return get(x, idx)


def _new_route(x: Any, whole: tuple[Any, ...], key: tuple[Any, ...]) -> Any:
    """How an index of these types is taken: a compiled function, its static arguments, where its operands come from."""
    marked = tuple([Slot(k) if type(item) is int else item for k, item in enumerate(whole)])
    items = index_items.items_of(marked, x.shape)
    found = basic_indexing.plan_of(items, x.shape, eager=True)
    if found is not None:
        plan, operands = found
        apply, static = basic_indexing.apply, {"plan": plan}
    else:
        layout, operands = gather_indexing.layout_of(items, x.shape, eager=True)
        apply, static = gather_indexing.apply, {"layout": layout}
    if len(_routes) >= _BOUND:
        _routes.clear()
    sources = tuple([source_of(operand, whole) for operand in operands])
    _routes[key] = apply, static, sources
    return _routes[key]


def source_of(operand: Any, whole: tuple[Any, ...]) -> Any:
    """Which item an operand is, or the number that it always is."""
    if isinstance(operand, Slot):
        return operand
    position = next((k for k, item in enumerate(whole) if item is operand), None)
    return operand if position is None else Slot(position)


def kind_of(item: Any) -> Any:
    """The part of the key of a remembered eager index for one item; False if such an index is not remembered."""
    kind = type(item)
    if kind is int:
        return int
    if kind is runtime.Array:
        aval = item.aval
        return aval if aval.dtype in _INTEGERS else False
    if kind is np.ndarray:
        return (item.shape, item.dtype) if item.dtype.kind in "iu" else False
    return _written(item)


def _written(item: Any) -> Any:
    """An index item as part of a key: an integer, None, Ellipsis, or the numbers of a slice; False for another."""
    kind = type(item)
    if kind is slice:
        entries = (item.start, item.stop, item.step)
        return entries if all(entry is None or type(entry) is int for entry in entries) else False
    return (item,) if kind is int or item is None or item is Ellipsis else False


def _only_masks(whole: tuple[Any, ...]) -> bool:
    """Whether an index is made of known masks, and of slices, None and Ellipsis with integers."""
    return all(
        item is None
        or item is Ellipsis
        or (isinstance(item, slice) and bool(_written(item)))
        or (isinstance(item, runtime.Array | np.ndarray) and item.dtype == np.bool_ and item.ndim > 0)
        for item in whole
    )


def _masked(x: Any, whole: tuple[Any, ...]) -> Any:
    """The elements at true positions, outside a trace: a copy whose size is known only now."""
    if isinstance(x.dtype, dtypes.ExtendedDType):
        return get(x, whole)
    masks = [np.asarray(item) if index_items.is_mask(item) else item for item in whole]
    values = np.asarray(x)
    if len(masks) == 1 and masks[0].shape == values.shape[: masks[0].ndim]:
        rows = values.reshape((masks[0].size, *values.shape[masks[0].ndim :]))
        indices = interruptible(masks[0].size, np.flatnonzero, masks[0])
        return promotion.constant(interruptible(values.size, rows.take, indices, axis=0), x.weak_type, x.dtype)
    try:
        picked = interruptible(values.size, values.__getitem__, tuple(masks))
    except IndexError:
        index_items.items_of(whole, x.shape)  # says it in our words
        raise
    return promotion.constant(picked, x.weak_type, x.dtype)


def _traced(x: Any, idx: Any) -> Any:
    """``x[idx]`` in a trace; the plans of static indices are remembered."""
    shape = promotion.shape_of(x)
    key = (shape, *[_written(item) for item in (idx if type(idx) is tuple else (idx,))])
    remembered = False not in key and sizes.keeper(key) is None
    known = _static_plans.get(key) if remembered else None
    if known is not None:
        return basic_indexing.apply(x, plan=known)
    items = index_items.items_of(idx, shape)
    found = basic_indexing.plan_of(items, shape, eager=False)
    if found is None:
        return _gathered(x, items, {}, True)
    plan, integers = found
    if not integers and remembered:
        if len(_static_plans) >= _BOUND:
            _static_plans.clear()
        _static_plans[key] = plan
    return basic_indexing.apply(x, *integers, plan=plan)


def get(
    x: Any,
    idx: Any,
    mode: Any = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap_negative_indices: bool = True,
) -> Array:
    """``x[idx]``, where ``mode`` says what an index out of bounds gives: clamped, or ``fill_value`` ("fill")."""
    eager = not core.is_tracing()
    shape = promotion.shape_of(x)
    parsed = lax.GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else lax.GatherScatterMode.from_any(mode)
    items = index_items.items_of(idx, shape)
    if parsed is not lax.GatherScatterMode.FILL_OR_DROP:
        found = basic_indexing.plan_of(items, shape, eager, wrap_negative_indices)
        if found is not None:
            plan, integers = found
            return basic_indexing.apply(x, *integers, plan=plan)
    options = {
        "mode": parsed,
        "fill_value": fill_value,
        "indices_are_sorted": indices_are_sorted,
        "unique_indices": unique_indices,
    }
    with check_scopes.as_given(mode):
        return _gathered(x, items, options, wrap_negative_indices)


def _gathered(x: Any, items: list[Any], options: dict[str, Any], wrap: bool) -> Any:
    """One gather; arrays of the host are read while tracing, so that their signs are known in the program."""
    shape = promotion.shape_of(x)
    tracing = core.is_tracing() or max(shape, default=0) >= 2**31
    layout, operands = gather_indexing.layout_of(items, shape, not tracing, wrap)
    on_host = any(isinstance(operand, np.ndarray) for operand in operands)
    fill_value = options.get("fill_value")
    plain = fill_value is None or isinstance(fill_value, promotion.PYTHON_SCALARS)
    call = gather_indexing.apply if plain and not (tracing and on_host) else gather_indexing.gather
    return call(x, *operands, layout=layout, **options)


def rows(x: Any) -> Iterator[Any]:
    """The slices of a traced array along its first axis, each recorded when iteration comes to it."""
    return (lax.squeeze(lax.slice_in_dim(x, i, i + 1), (0,)) for i in range(promotion.shape_of(x)[0]))
