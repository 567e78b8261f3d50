"""The form of arrays: reshape, transpose, squeeze, flip, roll, repeat, tile, broadcast.

Nothing here computes; each function is a view or a few of them, and none if nothing changes::

    reshape(f32[3,4], (-1,))   ->  reshape[new_sizes=(12,)]
    roll(f32[5], 1)            ->  jit[name=_roll_static]: two slices and a concatenate
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, errors, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.core.symbolic import open_sizes
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, small_copies
from weft.numpy.pointwise import arithmetic

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit


def _warn_of_others(name: str, a: Any) -> None:
    """A warning for what is no array, as a list is, and is measured as NumPy does."""
    if not promotion.is_arraylike(a):
        errors.warn(f"{name} requires ndarray or scalar arguments, got {type(a)} at position 0.", DeprecationWarning)


def shape(a: Any) -> tuple[int, ...]:
    """The extents of ``a`` as a tuple.

    >>> shape(3)
    ()
    """
    _warn_of_others("shape", a)
    return open_sizes.shape_for(promotion.shape_of(promotion.unwrapped(a)))


def ndim(a: Any) -> int:
    """The number of axes of ``a``.

    >>> ndim(3)
    0
    """
    _warn_of_others("ndim", a)
    return len(promotion.shape_of(a))


def size(a: Any, axis: int | Sequence[int] | None = None) -> int:
    """The number of elements of ``a``, or the extent of one axis.

    >>> size(3)
    1
    """
    _warn_of_others("size", a)
    extents = open_sizes.shape_for(promotion.shape_of(a))
    if axis is None:
        return math.prod(extents)
    dims = axes.canonical_axes(axis, len(extents), repeats=True)
    if len(set(dims)) < len(dims):
        raise ValueError(f"repeated axis: {axis}")
    return math.prod(extents[d] for d in dims)


def resolve_shape(extents: tuple[int, ...], wanted: Any) -> tuple[int, ...]:
    """The new shape with -1 replaced; TypeError if the sizes do not agree."""
    wanted = axes.canonical_shape(wanted)
    total, known = math.prod(extents), math.prod(n for n in wanted if n != -1)
    if wanted.count(-1) > 1:
        raise TypeError(f"can only specify one unknown axis size with a `-1` value, got {wanted}")
    if -1 in wanted:
        if known == 0 or total % known:
            is_open = known and open_sizes.thread.session is not None  # it divides for some values of unknown sizes
            raise (errors.InconclusiveDimensionOperation if is_open else TypeError)(
                f"cannot reshape array of shape {extents} (size {total}) into shape {wanted} because the product of "
                f"specified axis sizes ({known}) does not evenly divide {total}"
            )
        return tuple(total // known if n == -1 else n for n in wanted)
    if known != total:
        raise TypeError(f"cannot reshape array of shape {extents} (size {total}) into shape {wanted} (size {known})")
    return wanted


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Array:
    """The same elements under another shape. One extent may be -1; ``order`` is ``C`` or ``F``.

    TypeError if the number of elements differs.

    >>> reshape(3, (1, 1)).shape
    (1, 1)
    """
    if out_sharding is not None:
        return devices.placed(lambda: reshape(a, shape, order, copy=copy), out_sharding=out_sharding)
    promotion.check_arraylike("reshape", a)
    if copy is False:
        raise ValueError("jax.numpy.reshape: copy=False is not supported.")
    extents = promotion.shape_of(a)
    wanted = resolve_shape(extents, shape)
    if order == "C":
        if wanted == extents:
            return promotion.as_array(a)
        found = small_copies.reshaped(a, wanted)
        return found if found is not None else _reshape(a, shape=wanted)
    if order == "F":
        reverse = tuple(range(len(extents)))[::-1]
        turned = lax.reshape(a, wanted[::-1], reverse if len(extents) > 1 else None)
        return lax.transpose(turned, tuple(range(len(wanted)))[::-1])
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


@functools.partial(inline, static_argnames=("shape",))
def _reshape(a: Any, *, shape: tuple[int, ...]) -> Any:
    return lax.reshape(a, shape)


@functools.partial(jit, inline=True, static_argnames=("order",))
def _transpose(a: Any, *, order: tuple[int, ...]) -> Any:
    return lax.transpose(a, order)


@functools.partial(jit, inline=True, static_argnames=("shape",))
def _broadcast_to(a: Any, *, shape: tuple[int, ...]) -> Any:
    return promotion.broadcast_to(promotion.as_array(a), shape)


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Array:
    """``a`` as a rank-1 array.

    >>> ravel(3).tolist()
    [3]
    """
    if out_sharding is not None:
        return devices.placed(lambda: ravel(a, order), out_sharding=out_sharding)
    promotion.check_arraylike("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    extents = promotion.shape_of(a)
    if order == "F" and len(extents) > 1:
        return lax.reshape(a, (math.prod(extents),), tuple(range(len(extents)))[::-1])
    return promotion.another(reshape(a, (math.prod(extents),), order), a)


def transpose(a: Any, axes: Any = None) -> Array:
    """``a`` with its axes in another order, by default reversed.

    >>> transpose(weft.numpy.ones((2, 3))).shape
    (3, 2)
    """
    promotion.check_arraylike("transpose", a)
    rank = len(promotion.shape_of(a))
    order = tuple(range(rank))[::-1] if axes is None else tuple(_index(d, rank) for d in axes)
    return permuted(a, order)


def _index(axis: Any, rank: int) -> int:
    return _axes_module.canonical_axis(axis, rank)


_axes_module = axes


def permuted(a: Any, order: tuple[int, ...]) -> Array:
    """``a`` transposed, or ``a`` itself if the order is kept."""
    return promotion.as_array(a) if order == tuple(range(len(promotion.shape_of(a)))) else _transpose(a, order=order)


def permute_dims(a: Any, /, axes: Any) -> Array:
    """``a`` with its axes in another order, the same as ``transpose``.

    >>> permute_dims(weft.numpy.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Array:
    """The last two axes exchanged; ValueError below rank 2.

    >>> matrix_transpose(weft.numpy.ones((2, 3, 4))).shape
    (2, 4, 3)
    """
    promotion.check_arraylike("matrix_transpose", x)
    x = promotion.unwrapped(x)
    rank = len(promotion.shape_of(x))
    if rank < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got ndim={rank}")
    return lax.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


@functools.partial(jit, inline=True, static_argnames=("axis1", "axis2"))
def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """Two axes exchanged.

    >>> swapaxes(weft.numpy.ones((2, 3)), 0, 1).shape
    (3, 2)
    """
    promotion.check_arraylike("swapaxes", a)
    order = np.arange(len(promotion.shape_of(a))).tolist()
    positions = [operator.index(axis1), operator.index(axis2)]
    for axis in positions:
        if not -len(order) <= axis < len(order):
            raise IndexError(f"index {axis} is out of bounds for axis 0 with size {len(order)}")
    order[positions[0]], order[positions[1]] = order[positions[1]], order[positions[0]]
    return permuted(a, tuple(order))


def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """Axes moved to other positions, the rest keeping their order.

    >>> moveaxis(weft.numpy.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    promotion.check_arraylike("moveaxis", a)
    rank = len(promotion.shape_of(a))
    order = (_moved_one if type(source) is type(destination) is int else _moved)(rank, source, destination)
    return promotion.another(permuted(a, order), a)


def _moved(rank: int, source: Any, destination: Any) -> tuple[int, ...]:
    """The order of the axes in ``moveaxis``."""
    sources, targets = axes.canonical_axes(source, rank), axes.canonical_axes(destination, rank)
    if len(sources) != len(targets):
        raise ValueError(f"Inconsistent number of elements: {len(sources)} vs {len(targets)}")
    order = [d for d in range(rank) if d not in sources]
    for target, own in sorted(zip(targets, sources, strict=True)):
        order.insert(target, own)
    return tuple(order)


_moved_one = functools.lru_cache(maxsize=256)(_moved)


@jit(static_argnames=("axis", "start"))
def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """One axis moved to before ``start``; kept for NumPy's sake, ``moveaxis`` says it better.

    >>> rollaxis(weft.numpy.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    promotion.check_arraylike("rollaxis", a)
    rank = len(promotion.shape_of(a))
    start = operator.index(start)
    if not -rank <= start <= rank:
        raise ValueError(f"start={start} must satisfy {-rank}<=start<={rank}")
    start = start + rank if start < 0 else start
    axis = axes.canonical_axis(axis, rank)
    return moveaxis(a, axis, start - 1 if start > axis else start)


def expand_dims(a: Any, axis: Any) -> Array:
    """New axes of extent 1 at the given positions of the result.

    >>> expand_dims(3, 0).shape
    (1,)
    """
    promotion.check_arraylike("expand_dims", a)
    return _expand_dims(a, axis=axes.as_tuple(axis))


@functools.partial(jit, inline=True, static_argnames=("axis",))
def _expand_dims(a: Any, *, axis: tuple[int, ...]) -> Any:
    return lax.expand_dims(a, axis)


def squeeze(a: Any, axis: Any = None) -> Array:
    """Axes of extent 1 removed: all of them, or those given. ValueError if one is longer.

    >>> squeeze(weft.numpy.ones((1, 2, 1))).shape
    (2,)
    """
    promotion.check_arraylike("squeeze", a)
    return _squeeze(a, axis=None if axis is None else axes.as_tuple(axis))


@functools.partial(jit, inline=True, static_argnames=("axis",))
def _squeeze(a: Any, *, axis: Any) -> Any:
    extents = promotion.shape_of(a)
    if axis is None:
        axis = tuple(d for d, n in enumerate(extents) if n == 1)
    return lax.squeeze(a, axes.canonical_axes(axis, len(extents))) if axis else promotion.as_array(a)


def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Array:
    """``array`` repeated along new and extent-1 axes to have ``shape``; ValueError if that cannot be.

    >>> broadcast_to(1, (2,)).tolist()
    [1, 1]
    """
    if out_sharding is not None:
        return devices.placed(lambda: broadcast_to(array, shape), out_sharding=out_sharding)
    promotion.check_arraylike("broadcast_to", array)
    return _broadcast_to(array, shape=axes.canonical_shape(shape))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to; ValueError if there is none.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    found = [axes.canonical_shape(s) for s in shapes]
    if any(extent < 0 for shape in found for extent in shape):
        raise TypeError(f"[broadcast_shapes] extents must not be negative, got {found}")
    return promotion.broadcast_shapes(*found)


def broadcast_arrays(*args: Any) -> list[Array]:
    """All arguments broadcast to one shape.

    >>> [a.shape for a in broadcast_arrays(1, weft.numpy.ones(2))]
    [(2,), (2,)]
    """
    promotion.check_arraylike("broadcast_arrays", *args)
    target = promotion.broadcast_shapes(*(promotion.shape_of(a) for a in args))
    return [promotion.another(promotion.broadcast_to(promotion.as_array(a), target), a) for a in args]


def _at_least(name: str, a: Any) -> Any:
    promotion.check_arraylike(name, a)
    rank = len(promotion.shape_of(a))
    if name == "atleast_1d":
        return lax.expand_dims(a, (0,)) if rank == 0 else promotion.as_array(a)
    if name == "atleast_2d":
        return a if rank >= 2 else lax.expand_dims(a, (0,) if rank else (0, 1))
    if rank == 0:
        return lax.expand_dims(a, (0, 1, 2))
    if rank == 1:
        return lax.expand_dims(a, (0, 2))
    return lax.expand_dims(a, (2,)) if rank == 2 else a


def _at_least_function(name: str, rank: int) -> Any:
    def one(a: Any) -> Any:
        return _at_least(name, a)

    one.__name__ = name
    single = jit(one)

    def function(*arys: Any) -> Any:
        promotion.check_arraylike(name, *arys)
        results = [single(a) for a in arys]
        return results[0] if len(results) == 1 else results

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The arguments with at least {rank} axes, new ones having extent 1; one argument gives one array.\n\n"
        f"    >>> {name}(3).shape\n    {(1,) * rank}\n    "
    )
    return function


atleast_1d = _at_least_function("atleast_1d", 1)
atleast_2d = _at_least_function("atleast_2d", 2)
atleast_3d = _at_least_function("atleast_3d", 3)


def flip(m: Any, axis: Any = None) -> Array:
    """The elements in reverse order along ``axis`` (None: all axes).

    >>> flip(weft.numpy.arange(3)).tolist()
    [2, 1, 0]
    """
    promotion.check_arraylike("flip", m)
    if type(m) is runtime.Array:
        found = small_copies.in_reverse(m, axes.canonical_axes(axis, m.ndim, repeats=True))
        if found is not None:
            return found
    return _flip(m, axis=axes.static_axes(axis))


@jit(static_argnames=("axis",))
def _flip(m: Any, *, axis: Any) -> Any:
    return lax.rev(promotion.as_array(m), axes.canonical_axes(axis, len(promotion.shape_of(m)), repeats=True))


def fliplr(m: Any) -> Array:
    """The elements in reverse order along the second axis.

    >>> fliplr(weft.numpy.eye(2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    promotion.check_arraylike("fliplr", m)
    return _flip(m, axis=1)


def flipud(m: Any) -> Array:
    """The elements in reverse order along the first axis.

    >>> flipud(weft.numpy.eye(2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    promotion.check_arraylike("flipud", m)
    return _flip(m, axis=0)


@jit(static_argnames=("k", "axes"))
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """``m`` turned by ``k`` quarter turns in the plane of two axes, from the first towards the second.

    >>> rot90(weft.numpy.ones((2, 3))).shape
    (3, 2)
    """
    promotion.check_arraylike("rot90", m)
    rank = len(promotion.shape_of(m))
    if rank < 2:
        raise ValueError("rot90 requires its first argument to have ndim at least two, but got first argument of")
    first, second = (_axes_module.canonical_axis(d, rank) for d in axes)
    if first == second:
        raise ValueError("Axes must be different")
    turns = k % 4
    if turns == 0:
        return promotion.as_array(m)
    if turns == 2:
        return flip(flip(m, first), second)
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return lax.transpose(flip(m, second), order) if turns == 1 else flip(lax.transpose(m, order), second)


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """The elements moved by ``shift`` along ``axis`` (None: in the flattened array), around the ends.

    ``shift`` may be traced; several shifts need as many axes.

    >>> roll(weft.numpy.arange(3), 1).tolist()
    [2, 0, 1]
    """
    promotion.check_arraylike("roll", a)
    if type(shift) is int and (type(axis) is int or (axis is None and len(promotion.shape_of(a)) == 1)):
        dims = axes.canonical_axes(axis, len(promotion.shape_of(a)))
        found = small_copies.rolled(a, shift, dims[0])
        return found if found is not None else _roll_static(a, shift=(shift,), axis=dims)
    if isinstance(axis, list):
        axis = tuple(axis)
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), promotion.shape_of(a))
    axis = axes.canonical_axes(axis, len(promotion.shape_of(a)), repeats=True)
    if isinstance(shift, core.Tracer) or hasattr(shift, "unsafe_buffer_pointer"):
        return _roll_dynamic(promotion.as_array(a), shift, axis=axis)
    shifts = np.broadcast_to(np.atleast_1d(np.asarray(shift)), (len(np.atleast_1d(shift)),))
    amounts = np.broadcast_shapes(shifts.shape, (len(axis),))[0]
    dims = np.broadcast_to(np.asarray(axis), (amounts,)).tolist()
    return _roll_static(a, shift=tuple(np.broadcast_to(shifts, (amounts,)).tolist()), axis=tuple(dims))


@jit(static_argnames=("shift", "axis"))
def _roll_static(a: Any, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    a = promotion.as_array(a)
    for amount, dim in zip(shift, axis, strict=True):
        extent = promotion.shape_of(a)[dim]
        cut = -amount % extent if extent else 0
        if cut or open_sizes.thread.session is not None:
            a = lax.concatenate(
                [lax.slice_in_dim(a, cut, extent, axis=dim), lax.slice_in_dim(a, 0, cut, axis=dim)], dim
            )
    return a


@jit(static_argnames=("axis",))
def _roll_dynamic(a: Any, shift: Any, *, axis: tuple[int, ...]) -> Any:
    amounts = promotion.broadcast_to(shift, promotion.broadcast_shapes(promotion.shape_of(shift), (len(axis),)))
    dims = np.broadcast_to(np.asarray(axis), promotion.shape_of(amounts)).tolist()
    for position, dim in enumerate(dims):
        amount = lax.squeeze(lax.slice_in_dim(amounts, position, position + 1), (0,))
        extent, dtype = promotion.shape_of(a)[dim], np.dtype(np.int32)
        amount = promotion.convert(amount, dtype)
        divisor = lax.max(np.asarray(extent, dtype), np.asarray(1, dtype))
        offset = arithmetic.remainder(amount, divisor)
        doubled = lax.concatenate([a, a], dim)
        a = lax.dynamic_slice_in_dim(doubled, lax.sub(np.asarray(extent, dtype), offset), extent, axis=dim)
    return a


@functools.partial(inline, static_argnames=("repeats", "axis"))
def repeat_evenly(a: Any, *, repeats: int, axis: int | None) -> Array:
    """Each element ``repeats`` times along ``axis`` (None: of the flattened array)."""
    if axis is None:
        a, axis = ravel(a), 0
    a = promotion.as_array(a)
    if promotion.shape_of(a) == ():
        a = lax.reshape(a, (1,))
    extents = promotion.shape_of(a)
    dim = axes.canonical_axis(axis, len(extents))
    kept = tuple(d if d <= dim else d + 1 for d in range(len(extents)))
    spread = lax.broadcast_in_dim(a, (*extents[: dim + 1], repeats, *extents[dim + 1 :]), kept)
    return lax.reshape(spread, (*extents[:dim], extents[dim] * repeats, *extents[dim + 1 :]))


def tile(A: Any, reps: Any) -> Array:
    """``A`` laid out ``reps`` times along each axis; missing repetitions and axes count as 1.

    >>> tile(weft.numpy.arange(2), 2).tolist()
    [0, 1, 0, 1]
    """
    promotion.check_arraylike("tile", A)
    counts = (operator.index(reps),) if axes.is_one(reps) else tuple(operator.index(r) for r in reps)
    return _tile(A, reps=counts)


@functools.partial(inline, static_argnames=("reps",))
def _tile(a: Any, *, reps: tuple[int, ...]) -> Any:
    rank = len(promotion.shape_of(a))
    if rank < len(reps):
        a = lax.expand_dims(a, tuple(range(len(reps) - rank)))
    reps = (1,) * (rank - len(reps)) + reps
    return lax.tile(promotion.as_array(a), reps)


@jit(static_argnames=("new_shape",))
def resize(a: Any, new_shape: Any) -> Array:
    """The elements of ``a`` repeated, or cut off, to fill ``new_shape`` in row-major order.

    >>> resize(weft.numpy.arange(2), (3,)).tolist()
    [0, 1, 0]
    """
    promotion.check_arraylike("resize", a)
    wanted = axes.canonical_shape(new_shape)
    if any(n < 0 for n in wanted):
        raise ValueError("all elements of `new_shape` must be non-negative")
    a = ravel(a)
    count, total = promotion.shape_of(a)[0], math.prod(wanted)
    if count == 0 or total == 0:
        return lax.full(wanted, 0, promotion.dtype_of(a))
    a = lax.tile(a, (-(-total // count),))
    if promotion.shape_of(a)[0] > total:
        a = lax.slice_p.bind(a, start_indices=(0,), limit_indices=(total,), strides=None)
    return reshape(a, wanted)


def isscalar(element: Any) -> bool:
    """Whether ``element`` is a Python or NumPy number, or an array of rank 0.

    >>> isscalar(3.0)
    True
    """
    if np.isscalar(element):
        return True
    return promotion.is_arraylike(element) and promotion.shape_of(element) == ()


def iterable(y: Any) -> bool:
    """Whether ``iter(y)`` works.

    >>> iterable([1])
    True
    """
    try:
        iter(y)
    except TypeError:
        return False
    return True
