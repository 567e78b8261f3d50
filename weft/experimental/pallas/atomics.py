"""Atomic updates of references: each element of the value in turn updates the element that its index names.

    a:i32[4] = atomic[indices=... kind=add] ref value mask index

The result is what each found. Two elements that name one position work one after the other, in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft.control import while_loop
from weft.core import avals as avals_module
from weft.core.ref_types import AbstractRef
from weft.effects import ref_indexing, refs
from weft.effects.ref_indexing import Index
from weft.effects.refs import Ref, RefPrimitive
from weft.experimental.pallas import masked
from weft.operations.data_movement.shape import shape_of
from weft.operations.pointwise.convert import convert

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lax.add,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "xchg": lambda old, new: new,
}


def _atomic(kind: str, ref: Any, idx: Any, val: Any, mask: Any) -> Any:
    name = f"atomic_{kind}"
    target = refs._checked(name, ref)
    indices, operands, found = refs._access(ref, idx)
    if not (dtypes.issubdtype(found.dtype, np.number) or found.dtype.kind == "b"):
        raise TypeError(f"[{name}] there are no atomic updates of {found.dtype.name}")
    if kind in ("and", "or", "xor") and found.dtype.kind not in "biu":
        raise TypeError(f"[{name}] takes integers and booleans, the reference is of {found.dtype.name}")
    if not avals_module.get_aval(val).shape and found.shape:
        val = lax.broadcast_in_dim(convert(val, found.dtype, False), found.shape, ())
    indices, operands, val = refs._prepared("swap", ref, idx, val)
    if mask is None and not any(avals_module.get_aval(x).shape for x in operands):  # no element is named twice
        before = refs.get(ref, idx)
        refs.set(ref, idx, _COMBINE[kind](before, val))
        return before
    if mask is None:
        mask = lax.full(found.shape, True, np.dtype(bool))
    else:
        mask = masked._as_mask(name, mask, found.shape)
    return atomic_p.bind(target, val, mask, *operands, indices=indices, kind=kind)


def atomic_add(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] += val`` and give what was there before; an element that ``idx`` names twice gets both values.

    >>> def count(x_ref, out_ref):
    ...     out_ref[...] = jnp.zeros_like(out_ref[...])
    ...     _ = pallas.triton.atomic_add(out_ref, x_ref[...], 1)
    >>> pallas.pallas_call(count, weft.ShapeDtypeStruct((3,), "int32"))(jnp.array([0, 2, 2, 0, 2]))
    Array([2, 0, 3], dtype=int32)
    """
    return _atomic("add", x_ref_or_view, idx, val, mask)


def atomic_max(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] = max(ref[idx], val)`` and give what was there before."""
    return _atomic("max", x_ref_or_view, idx, val, mask)


def atomic_min(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] = min(ref[idx], val)`` and give what was there before."""
    return _atomic("min", x_ref_or_view, idx, val, mask)


def atomic_and(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] &= val`` and give what was there before."""
    return _atomic("and", x_ref_or_view, idx, val, mask)


def atomic_or(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] |= val`` and give what was there before."""
    return _atomic("or", x_ref_or_view, idx, val, mask)


def atomic_xor(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] ^= val`` and give what was there before."""
    return _atomic("xor", x_ref_or_view, idx, val, mask)


def atomic_xchg(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
    """Do ``ref[idx] = val`` and give what was there before."""
    return _atomic("xchg", x_ref_or_view, idx, val, mask)


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Write ``val`` to a scalar reference (as ``ref.at[i]``) if it holds ``cmp``, and give what was there before."""
    refs._checked("atomic_cas", ref)
    found = ref.aval
    if found.shape:
        raise ValueError(f"[atomic_cas] takes a reference to one element, as ref.at[i], got {found}")
    before = refs.get(ref, ...)
    cmp, val = [convert(x, found.dtype, False) for x in (cmp, val)]
    refs.set(ref, ..., lax.select_n(lax.eq(before, cmp), before, val))
    return before


# -- on values --------------------------------------------------------------------------------------------------------


def _run(ref: Ref, new: Any, mask: Any, *operands: Any, indices: tuple[Index, ...], kind: str) -> Any:
    combine = _COMBINE[kind]
    indices = masked._whole(ref._aval, indices)
    value, outer, own = masked._split(ref._value, indices, operands)
    extents = shape_of(value)
    if masked.is_inside(indices[-1], extents):
        before = ref_indexing.read(value, indices[-1:], own)
        changed = ref_indexing.write(value, indices[-1:], own, lax.select_n(mask, before, combine(before, new)))
    else:
        key = masked.positions(indices[-1], own, shape_of(mask))
        before, changed = _one_by_one(value, key, new, mask, combine)
        if kind in ("add", "max", "min"):  # without a use of what was there before, the loop above is dropped
            at = value.at[tuple(masked.outside_where(lax.bitwise_not(mask), key, extents))]
            changed = getattr(at, kind)(new, mode="drop")
    refs._store(ref, changed, outer, indices[:-1], False)
    return before


def _one_by_one(value: Any, key: list[Any], new: Any, mask: Any, combine: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """(what each element found, the array afterwards)."""
    found = shape_of(mask)
    count = int(np.prod(found))
    flat = [lax.reshape(x, (count,)) for x in (*key, new, mask)]
    ones = (1,) * len(key)

    def step(k: Any, state: Any) -> Any:
        array, seen = state
        *at, own, flag = [lax.dynamic_index_in_dim(x, k, 0, keepdims=False) for x in flat]
        before = lax.reshape(lax.dynamic_slice(array, at, ones), ())
        after = lax.select_n(flag, before, combine(before, own))
        array = lax.dynamic_update_slice(array, lax.reshape(after, ones), at)
        return array, lax.dynamic_update_index_in_dim(seen, before, k, 0)

    start = (value, lax.full((count,), 0, value.dtype))
    array, seen = while_loop.fori_loop(0, count, step, start)
    return lax.reshape(seen, found), array


def _type(aval: AbstractRef, new: Any, mask: Any, *operands: Any, indices: tuple[Index, ...], kind: str) -> Any:
    return refs._type_swap(aval, new, *operands, indices=indices)


atomic_p = RefPrimitive("atomic", _run, _type)
