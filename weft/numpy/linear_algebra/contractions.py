"""Products that sum over axes: dot, matmul, inner, outer, tensordot, einsum and their kin.

Operands keep their dtypes; the product is accumulated and returned in their common one (``preferred_element_type``)::

    matmul(f32[2,3,4], f32[2,4,5])  ->  dot_general[dimension_numbers=(([2], [1]), ([0], [0]))]
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit

_STATIC = ("precision", "preferred_element_type")
Numbers = tuple[tuple[Any, Any], tuple[Any, Any]]


def _preferred(name: str, preferred: Any, *args: Any) -> tuple[Any, bool]:
    """The dtype of the product and whether it is weak."""
    if preferred is None:
        return dtypes.result_type(*args, return_weak_type_flag=True)
    return dtypes.check_user_dtype(preferred, name), False


def _product(a: Any, b: Any, numbers: Numbers, precision: Any, preferred: Any, weak_type: bool) -> Any:
    result = lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=preferred)
    return promotion.convert(result, preferred, weak_type)


def dot(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """Sum of products over the last axis of ``a`` and the last but one (or only) axis of ``b``.

    Rank 0 multiplies. TypeError if the extents differ.

    >>> dot(2, 3).item()
    6
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: dot(a, b, precision=precision, preferred_element_type=preferred_element_type),
            out_sharding=out_sharding,
        )
    return _dot(a, b, precision=precision, preferred_element_type=preferred_element_type)


@functools.partial(inline, static_argnames=_STATIC)
def _dot(a: Any, b: Any, *, precision: Any, preferred_element_type: Any) -> Any:
    promotion.check_arraylike("dot", a, b)
    preferred, weak_type = _preferred("dot", preferred_element_type, a, b)
    left, right = len(promotion.shape_of(a)), len(promotion.shape_of(b))
    contracted: tuple[Any, Any] = ((), ())
    if left and right:
        contracted = ((left - 1,), (max(right - 2, 0),))
    return _product(a, b, (contracted, ((), ())), precision, preferred, weak_type)


def _aligned_product(
    a: Any, b: Any, contracted: tuple[int, int], free: tuple[int | None, int | None], options: dict[str, Any]
) -> Any:
    """A product whose other axes are batch axes, aligned from the right; extents of 1 are squeezed, not repeated."""
    shapes = (promotion.shape_of(a), promotion.shape_of(b))
    batches = [
        [d for d in range(len(extents)) if d not in (contracted[side], free[side])]
        for side, extents in enumerate(shapes)
    ]
    rank = max(map(len, batches))
    squeezed: tuple[list[int], list[int]] = ([], [])
    shared: list[tuple[int, int]] = []
    order: list[tuple[str, int]] = []
    for position in range(rank):
        here = [position - (rank - len(batch)) for batch in batches]
        left = batches[0][here[0]] if here[0] >= 0 else None
        right = batches[1][here[1]] if here[1] >= 0 else None
        if left is not None and right is not None and shapes[0][left] == 1 != shapes[1][right]:
            squeezed[0].append(left)
            left = None
        elif left is not None and right is not None and shapes[1][right] == 1 != shapes[0][left]:
            squeezed[1].append(right)
            right = None
        elif left is not None and right is not None and shapes[0][left] == 1:
            squeezed[0].append(left)
            squeezed[1].append(right)
            order.append(("one", position))
            continue
        if left is not None and right is not None:
            if shapes[0][left] != shapes[1][right]:
                raise ValueError(f"Incompatible shapes for broadcasting: {shapes[0]} and {shapes[1]}")
            order.append(("batch", len(shared)))
            shared.append((left, right))
        else:
            order.append(("a", left) if left is not None else ("b", right))  # type: ignore[arg-type]
    return _ordered_product(a, b, contracted, free, squeezed, shared, order, options)


def _ordered_product(
    a: Any,
    b: Any,
    contracted: tuple[int, int],
    free: tuple[int | None, int | None],
    squeezed: tuple[list[int], list[int]],
    shared: list[tuple[int, int]],
    order: list[tuple[str, int]],
    options: dict[str, Any],
) -> Any:
    """dot_general after the squeezes, then one transpose into the wanted order of axes."""
    operands, positions = [], []
    for side, x in enumerate((a, b)):
        kept = [d for d in range(len(promotion.shape_of(x))) if d not in squeezed[side]]
        positions.append({d: i for i, d in enumerate(kept)})
        operands.append(lax.squeeze(x, tuple(squeezed[side])) if squeezed[side] else x)
    numbers = (
        ((positions[0][contracted[0]],), (positions[1][contracted[1]],)),
        (tuple(positions[0][left] for left, _ in shared), tuple(positions[1][right] for _, right in shared)),
    )
    result = _product(operands[0], operands[1], numbers, **options)
    produced: list[tuple[str, int]] = [("batch", i) for i in range(len(shared))]
    for side, letter in enumerate("ab"):
        used = {contracted[side], *(pair[side] for pair in shared)}
        produced += [(letter, d) for d in positions[side] if d not in used]
    wanted = order + [(letter, d) for letter, d in zip("ab", free, strict=True) if d is not None]
    permutation = tuple(produced.index(axis) for axis in wanted if axis[0] != "one")
    result = rearrange.permuted(result, permutation)
    single = tuple(d for d, axis in enumerate(wanted) if axis[0] == "one")
    return lax.expand_dims(result, single) if single else result


def matmul(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """Matrix product over the last two axes; leading axes are broadcast; rank-1 operands are vectors.

    ValueError for rank 0, TypeError if the inner extents differ.

    >>> matmul(weft.numpy.eye(2), weft.numpy.ones(2)).tolist()
    [1.0, 1.0]
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: matmul(a, b, precision=precision, preferred_element_type=preferred_element_type),
            out_sharding=out_sharding,
        )
    return _matmul(a, b, precision=precision, preferred_element_type=preferred_element_type)


@functools.partial(inline, static_argnames=_STATIC)
def _matmul(a: Any, b: Any, *, precision: Any, preferred_element_type: Any) -> Any:
    promotion.check_arraylike("matmul", a, b)
    ranks = [len(promotion.shape_of(x)) for x in (a, b)]
    for position, rank in enumerate(ranks):
        if rank < 1:
            raise ValueError(f"matmul input operand {position} must have ndim at least 1, but it has ndim {rank}")
    preferred, weak_type = _preferred("matmul", preferred_element_type, a, b)
    contracted = (ranks[0] - 1, max(ranks[1] - 2, 0))
    free = (ranks[0] - 2 if ranks[0] > 1 else None, ranks[1] - 1 if ranks[1] > 1 else None)
    options = {"precision": precision, "preferred": preferred, "weak_type": weak_type}
    return _aligned_product(a, b, contracted, free, options)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Sum of products of all elements of two arrays of one size, the first conjugated.

    >>> vdot(1j, 1j).item()
    (1+0j)
    """
    return _vdot(a, b, precision=precision, preferred_element_type=preferred_element_type)


@functools.partial(inline, static_argnames=_STATIC)
def _vdot(a: Any, b: Any, *, precision: Any, preferred_element_type: Any) -> Any:
    promotion.check_arraylike("vdot", a, b)
    if dtypes.issubdtype(promotion.dtype_of(a), np.complexfloating):
        a = lax.conj(a)
    return dot(
        rearrange.ravel(a), rearrange.ravel(b), precision=precision, preferred_element_type=preferred_element_type
    )


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Sum of products along one axis, the first operand conjugated; the other axes are broadcast.

    >>> vecdot(weft.numpy.ones(3), weft.numpy.ones(3)).item()
    3.0
    """
    return _vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


@functools.partial(inline, static_argnames=(*_STATIC, "axis"))
def _vecdot(x1: Any, x2: Any, *, axis: int, precision: Any, preferred_element_type: Any) -> Any:
    promotion.check_arraylike("vecdot", x1, x2)
    if not promotion.shape_of(x1) or not promotion.shape_of(x2):
        raise errors.AxisError(
            f"vector dimension must be at least 1; got shapes {promotion.shape_of(x1)}, {promotion.shape_of(x2)}"
        )
    given = promotion.shape_of(x1), promotion.shape_of(x2)
    x1, x2 = rearrange.moveaxis(x1, axis, -1), rearrange.moveaxis(x2, axis, -1)
    if promotion.shape_of(x1)[-1] != promotion.shape_of(x2)[-1]:
        raise ValueError(f"axes must match; got shapes {given[0]} and {given[1]} with {axis=}")
    if dtypes.issubdtype(promotion.dtype_of(x1), np.complexfloating):
        x1 = lax.conj(x1)
    preferred, weak_type = _preferred("vecdot", preferred_element_type, x1, x2)
    contracted = (len(promotion.shape_of(x1)) - 1, len(promotion.shape_of(x2)) - 1)
    options = {"precision": precision, "preferred": preferred, "weak_type": weak_type}
    return _aligned_product(x1, x2, contracted, (None, None), options)


def _check_core(name: str, x1: Any, x2: Any, core: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """ValueError unless both operands have the named trailing axes, one extent to a name."""
    extents: dict[str, int] = {}
    for x, names in zip((x1, x2), core, strict=True):
        shape = promotion.shape_of(x)
        if len(shape) < len(names):
            raise ValueError(
                f"{name}: input with shape {shape} does not have enough dimensions for all core dimensions {names}"
            )
        for axis, extent in zip(names, shape[len(shape) - len(names) :], strict=True):
            if extents.setdefault(axis, extent) != extent:
                raise ValueError(f"{name}: inconsistent size for core dimension {axis!r}: {extents[axis]} vs {extent}")


@jit
def matvec(x1: Any, x2: Any, /) -> Array:
    """Products of matrices (the last two axes of ``x1``) with vectors (the last axis of ``x2``).

    >>> matvec(weft.numpy.eye(2), weft.numpy.ones(2)).tolist()
    [1.0, 1.0]
    """
    promotion.check_arraylike("matvec", x1, x2)
    _check_core("matvec", x1, x2, (("n", "m"), ("m",)))
    preferred, weak_type = _preferred("matvec", None, x1, x2)
    ranks = [len(promotion.shape_of(x)) for x in (x1, x2)]
    options = {"precision": None, "preferred": preferred, "weak_type": weak_type}
    return _aligned_product(x1, x2, (ranks[0] - 1, ranks[1] - 1), (ranks[0] - 2, None), options)


@jit
def vecmat(x1: Any, x2: Any, /) -> Array:
    """Products of conjugated vectors (the last axis of ``x1``) with matrices (the last two axes of ``x2``).

    >>> vecmat(weft.numpy.ones(2), weft.numpy.eye(2)).tolist()
    [1.0, 1.0]
    """
    promotion.check_arraylike("vecmat", x1, x2)
    _check_core("vecmat", x1, x2, (("n",), ("n", "m")))
    if dtypes.issubdtype(promotion.dtype_of(x1), np.complexfloating):
        x1 = lax.conj(x1)
    preferred, weak_type = _preferred("vecmat", None, x1, x2)
    ranks = [len(promotion.shape_of(x)) for x in (x1, x2)]
    options = {"precision": None, "preferred": preferred, "weak_type": weak_type}
    return _aligned_product(x1, x2, (ranks[0] - 1, ranks[1] - 2), (None, ranks[1] - 1), options)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Sum of products over the last axes of both operands; rank 0 multiplies.

    >>> inner(weft.numpy.ones(3), weft.numpy.ones(3)).item()
    3.0
    """
    return _inner(a, b, precision=precision, preferred_element_type=preferred_element_type)


@functools.partial(inline, static_argnames=_STATIC)
def _inner(a: Any, b: Any, *, precision: Any, preferred_element_type: Any) -> Any:
    promotion.check_arraylike("inner", a, b)
    if not promotion.shape_of(a) or not promotion.shape_of(b):
        target = None if preferred_element_type is None else dtypes.check_user_dtype(preferred_element_type, "inner")
        left, right = promotion.promote_args("inner", a, b)
        product = _bool_or_number_product(left, right)
        return product if target is None else promotion.convert(product, target)
    return tensordot(a, b, (-1, -1), precision=precision, preferred_element_type=preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Array:
    """Every element of ``a`` times every element of ``b``, both flattened.

    >>> outer(weft.numpy.arange(2), weft.numpy.arange(2)).tolist()
    [[0, 0], [0, 1]]
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.outer is not supported.")
    return _outer(a, b)


@inline
def _outer(a: Any, b: Any) -> Any:
    promotion.check_arraylike("outer", a, b)
    a, b = promotion.promote_dtypes(a, b)
    a, b = rearrange.ravel(a), rearrange.ravel(b)
    return _bool_or_number_product(lax.expand_dims(a, (1,)), lax.expand_dims(b, (0,)))


def _bool_or_number_product(x: Any, y: Any) -> Any:
    return lax.mul(x, y) if promotion.dtype_of(x) != np.bool_ else lax.bitwise_and(x, y)


@jit
def kron(a: Any, b: Any) -> Array:
    """Kronecker product: blocks of ``b`` scaled by the elements of ``a``.

    >>> kron(weft.numpy.arange(2), weft.numpy.ones(2)).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    promotion.check_arraylike("kron", a, b)
    a, b = promotion.promote_dtypes(a, b)
    missing = len(promotion.shape_of(a)) - len(promotion.shape_of(b))
    if missing < 0:
        a = lax.expand_dims(a, tuple(range(-missing)))
    elif missing > 0:
        b = lax.expand_dims(b, tuple(range(missing)))
    rank = len(promotion.shape_of(a))
    extents = [m * n for m, n in zip(promotion.shape_of(a), promotion.shape_of(b), strict=True)]
    a = lax.expand_dims(a, tuple(range(1, 2 * rank, 2)))
    b = lax.expand_dims(b, tuple(range(0, 2 * rank, 2)))
    return lax.reshape(lax.mul(a, b), tuple(extents))


def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Sum of products over several axes: the last ``axes`` of ``a`` with the first of ``b``, or two lists of axes.

    >>> tensordot(weft.numpy.ones(3), weft.numpy.ones(3), 1).item()
    3.0
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: tensordot(a, b, axes, precision=precision, preferred_element_type=preferred_element_type),
            out_sharding=out_sharding,
        )
    if not isinstance(axes, int):
        axes = _two_sides(axes)
    return _tensordot(a, b, axes=axes, precision=precision, preferred_element_type=preferred_element_type)


def _two_sides(given: Any) -> tuple[tuple[int, ...], ...]:
    """The axes of both operands of ``tensordot``."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(
            f"tensordot axes argument must be an int, a pair of ints, or a pair of lists/tuples of ints, got {given!r}"
        )
    lists = [isinstance(side, tuple | list) for side in given]
    if lists[0] != lists[1]:
        raise TypeError(
            f"tensordot requires both axes lists to be either ints, tuples or lists, got {given[0]} and {given[1]}"
        )
    return tuple(tuple(operator.index(d) for d in side) if lists[0] else (operator.index(side),) for side in given)


@functools.partial(inline, static_argnames=(*_STATIC, "axes"))
def _tensordot(a: Any, b: Any, *, axes: Any, precision: Any, preferred_element_type: Any) -> Any:
    promotion.check_arraylike("tensordot", a, b)
    ranks = [len(promotion.shape_of(x)) for x in (a, b)]
    preferred, weak_type = _preferred("tensordot", preferred_element_type, a, b)
    if isinstance(axes, int):
        if axes > min(ranks):
            raise TypeError(
                f"Number of tensordot axes (axes {axes}) exceeds input ranks "
                f"({promotion.shape_of(a)} and {promotion.shape_of(b)})"
            )
        contracted = (tuple(range(ranks[0] - axes, ranks[0])), tuple(range(axes)))
    else:
        if len(axes) != 2 or len(axes[0]) != len(axes[1]):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {axes[0]} and {axes[1]}.")
        contracted = (_canonical(axes[0], ranks[0]), _canonical(axes[1], ranks[1]))
    return _product(a, b, (contracted, ((), ())), precision, preferred, weak_type)


def _canonical(side: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(axes.canonical_axis(d, rank) for d in side)


@jit(static_argnames=("axisa", "axisb", "axisc", "axis"))
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """Vector product along an axis of extent 3 (or 2, whose missing component is 0); others are broadcast.

    >>> cross(weft.numpy.eye(3)[0], weft.numpy.eye(3)[1]).tolist()
    [0.0, 0.0, 1.0]
    """
    promotion.check_arraylike("cross", a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = rearrange.moveaxis(a, axisa, -1), rearrange.moveaxis(b, axisb, -1)
    extents = promotion.shape_of(a)[-1], promotion.shape_of(b)[-1]
    if extents[0] not in (2, 3) or extents[1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    a, b = promotion.promote_dtypes(a, b)
    if extents == (2, 2):
        return lax.sub(_times(_component(a, 0), _component(b, 1)), _times(_component(a, 1), _component(b, 0)))
    left = [_component(a, d) for d in range(extents[0])]
    right = [_component(b, d) for d in range(extents[1])]
    for side in (left, right):
        if len(side) == 2:
            side.append(lax.full_like(side[0], 0))
    parts = [lax.sub(_times(left[i], right[j]), _times(left[j], right[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    parts = [lax.expand_dims(promotion.convert(part, promotion.dtype_of(part)), (0,)) for part in parts]
    joined = lax.concatenate(parts, 0)
    return rearrange.moveaxis(joined, 0, axisc)


def _component(x: Any, position: int) -> Any:
    extents = promotion.shape_of(x)
    start = (0,) * (len(extents) - 1) + (position,)
    part = lax.slice(x, start, (*extents[:-1], position + 1))
    return lax.squeeze(part, (len(extents) - 1,))


def _times(x: Any, y: Any) -> Any:
    return lax.mul(*promotion.promote_shapes(x, y))
