"""Accesses with a mask: elements where it is False are not read and not written, and may lie outside of the array.

    a:f32[4] = masked_get[indices=...] ref mask other start      masked_set[indices=...] ref value mask start

Where every position is known to lie inside they are a plain access and a choice; otherwise each element is read or
written by its own position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.control import grid_blocks
from weft.core import avals as avals_module
from weft.core.ref_types import AbstractRef
from weft.effects import ref_indexing, refs
from weft.effects.ref_indexing import Index
from weft.effects.refs import Ref, RefPrimitive
from weft.experimental.pallas import spaces
from weft.operations.data_movement.shape import shape_of
from weft.operations.pointwise.convert import convert


def load(
    ref: Any, idx: Any = ..., *, mask: Any = None, other: Any = None, cache_modifier: str | None = None,
    eviction_policy: str | None = None, volatile: bool = False,
) -> Any:  # fmt: skip
    """``ref[idx]``; where ``mask`` is False nothing is read, and the result is ``other`` (undefined without it).

    ``mask`` has the shape of the result, or one that broadcasts to it; ``other`` needs a mask. The remaining options
    are hints for a GPU, which change nothing.

    >>> def kernel(x_ref, out_ref):
    ...     columns = 4 * pallas.program_id(0) + jnp.arange(4)
    ...     out_ref[...] = pallas.load(x_ref, columns, mask=columns < 5, other=-1.0)
    >>> out = weft.ShapeDtypeStruct((8,), "float32")
    >>> pallas.pallas_call(kernel, out, grid=2, out_specs=pallas.BlockSpec((4,), lambda i: i))(jnp.arange(5.0))
    Array([ 0.,  1.,  2.,  3.,  4., -1., -1., -1.], dtype=float32)
    """
    if mask is None:
        if other is not None:
            raise ValueError("[load] `other` is what is read where `mask` is False, and there is no mask")
        return refs.get(ref, idx)
    target = _target("load", ref)
    indices, operands, found = refs._access(ref, idx)
    mask = _as_mask("load", mask, found.shape)
    other = spaces.undefined((), found.dtype) if other is None else _as_other(other, found)
    return masked_get_p.bind(target, mask, other, *operands, indices=indices)


def store(ref: Any, idx: Any, val: Any = None, *, mask: Any = None, eviction_policy: str | None = None) -> None:
    """``ref[idx] = val``; nothing is written where ``mask`` is False.

    ``store(ref, val)`` writes to all of a reference. A number is written to every element.
    """
    if val is None:
        idx, val = ..., idx
    target = _target("store", ref)
    indices, operands, found = refs._access(ref, idx)
    if not avals_module.get_aval(val).shape and found.shape:
        val = lax.broadcast_in_dim(convert(val, found.dtype, False), found.shape, ())
    if mask is None:
        return refs.set(ref, idx, val)
    indices, operands, val = refs._prepared("swap", ref, idx, val)
    masked_set_p.bind(target, val, _as_mask("store", mask, found.shape), *operands, indices=indices)
    return None


def swap(ref: Any, idx: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> Any:
    """Write as ``store`` does, and give back what was there before: ``val`` where ``mask`` is False."""
    if mask is None:
        return refs.swap(ref, idx, val)
    before = load(ref, idx, mask=mask, other=val)
    store(ref, idx, val, mask=mask)
    return before


def _target(name: str, ref: Any) -> Any:
    target = refs._checked(name, ref)
    if type(target) is refs.View:
        raise NotImplementedError(
            f"[{name}] a mask with a reference that is seen as {target.aval}: read it whole first"
        )
    return target


def _as_mask(name: str, mask: Any, extents: tuple[int, ...]) -> Any:
    aval = avals_module.get_aval(mask)
    if aval.dtype.kind != "b":
        raise TypeError(f"[{name}] a mask is an array of booleans, got {avals_module.short_text(aval)}")
    return _broadcast(name, "mask", mask, extents)


def _as_other(other: Any, found: Any) -> Any:
    aval = avals_module.get_aval(other)
    if aval.dtype != found.dtype and not aval.weak_type:
        raise ValueError(f"[load] `other` is of dtype {aval.dtype.name}, the reference of {found.dtype.name}")
    other = convert(other, found.dtype, False)
    return _broadcast("load", "other", other, found.shape) if aval.shape else other


def _broadcast(name: str, what: str, value: Any, extents: tuple[int, ...]) -> Any:
    own = avals_module.get_aval(value).shape
    if own == extents:
        return value
    try:
        fits = np.broadcast_shapes(own, extents) == extents
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"[{name}] `{what}` of shape {own} does not broadcast to the shape of the access, {extents}")
    lead = len(extents) - len(own)
    kept = [d for d, n in enumerate(own) if n == extents[lead + d]]
    value = lax.squeeze(value, [d for d in range(len(own)) if d not in kept])
    return lax.broadcast_in_dim(value, extents, [lead + d for d in kept])


# -- positions --------------------------------------------------------------------------------------------------------


def positions(index: Index, operands: Sequence[Any], found: tuple[int, ...]) -> list[Any]:
    """For each dimension of the array the positions of the elements selected, in the shape of the result."""
    given = iter(operands)
    taken = [next(given) if region is None or region.start is None else None for region in index]
    arrays = [x for region, x in zip(index, taken, strict=True) if region is None]
    common = np.broadcast_shapes(*[avals_module.get_aval(x).shape for x in arrays]) if arrays else ()
    arrays_at = [d for d, region in enumerate(index) if region is None]
    together = bool(arrays_at) and arrays_at[-1] - arrays_at[0] == len(arrays_at) - 1
    lead = sum(1 for region in index[: arrays_at[0]] if region is not None) if together else 0
    made, dim = [], 0
    for region, x in zip(index, taken, strict=True):
        if region is None:
            ints = _broadcast("ref", "index", convert(x, np.dtype(np.int32), False), common)
            made.append(lax.broadcast_in_dim(ints, found, list(range(lead, lead + len(common)))))
            continue
        at = dim if dim < lead else dim + len(common)
        offsets = np.arange(0, region.size * region.stride, region.stride, dtype=np.int32)
        steps = lax.broadcast_in_dim(offsets, found, (at,))
        start = np.int32(region.start or 0) if x is None else convert(x, np.dtype(np.int32), False)
        made.append(lax.add(steps, lax.broadcast_in_dim(start, found, ())))
        dim += 1
    return made


def is_inside(index: Index, extents: Sequence[int]) -> bool:
    """Whether all positions are known, and inside."""
    return all(
        region is not None and region.start is not None and region.start >= 0
        and region.start + (region.size - 1) * region.stride < extent
        for region, extent in zip(index, extents, strict=True)
    )  # fmt: skip


def _split(value: Any, indices: Sequence[Index], operands: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """(what all indices but the last select, the operands of those, the operands of the last)."""
    count = sum(1 for region in indices[-1] if region is None or region.start is None)
    outer, own = list(operands[: len(operands) - count]), list(operands[len(operands) - count :])
    return ref_indexing.read(value, indices[:-1], outer), outer, own


def _whole(aval: AbstractRef, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    return indices or (tuple([ref_indexing.Region(0, n) for n in aval.shape]),)


def _run_get(ref: Ref, mask: Any, other: Any, *operands: Any, indices: tuple[Index, ...]) -> Any:
    indices = _whole(ref._aval, indices)
    value, _, own = _split(ref._value, indices, operands)
    extents = shape_of(value)
    found = shape_of(mask)
    if not avals_module.get_aval(other).shape:
        other = lax.broadcast_in_dim(other, found, ())
    if is_inside(indices[-1], extents):
        return lax.select_n(mask, other, ref_indexing.read(value, indices[-1:], own))
    key = positions(indices[-1], own, found)
    return lax.select_n(mask, other, value.at[tuple(key)].get(mode="fill", fill_value=grid_blocks.unset(value.dtype)))


def _run_set(ref: Ref, new: Any, mask: Any, *operands: Any, indices: tuple[Index, ...]) -> list[Any]:
    indices = _whole(ref._aval, indices)
    value, outer, own = _split(ref._value, indices, operands)
    extents = shape_of(value)
    if is_inside(indices[-1], extents):
        before = ref_indexing.read(value, indices[-1:], own)
        value = ref_indexing.write(value, indices[-1:], own, lax.select_n(mask, before, new))
    else:
        key = outside_where(lax.bitwise_not(mask), positions(indices[-1], own, shape_of(mask)), extents)
        value = value.at[tuple(key)].set(new, mode="drop")
    refs._store(ref, value, outer, indices[:-1], False)
    return []


def outside_where(flags: Any, key: list[Any], extents: Sequence[int]) -> list[Any]:
    """The positions, where the marked ones are moved behind the end, so that nothing is written there."""
    if not key:
        return key
    end = lax.broadcast_in_dim(np.int32(extents[0]), shape_of(flags), ())
    return [lax.select_n(flags, key[0], end), *key[1:]]


def _type_get(aval: AbstractRef, mask: Any, other: Any, *operands: Any, indices: tuple[Index, ...]) -> Any:
    return refs._inner(aval, indices, operands)


masked_get_p = RefPrimitive("masked_get", _run_get, _type_get)
masked_set_p = RefPrimitive("masked_set", _run_set, lambda *avals, **params: [], multiple_results=True)
