"""``strided_product``: sums of products of elements that lie at strides, as windows of an array do.

What convolutions are lowered to; no function of the public interface, so it has no derivatives of its own. Padding
and holes are made before, by ``pad``.

    rows ((3, 1),), columns (), summed ((2, 1, 1),)  of f32[4] f32[2] -> f32[3]    x[i] w[0] + x[i + 1] w[1]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import core, runtime
from weft.core import kinds
from weft.core.product_spaces import ProductSpace
from weft.operations import product_sums
from weft.operations.contract import common_dtype, contraction_dtype
from weft.runtime import Array


def _typing(
    lhs: Any,
    rhs: Any,
    *,
    space: ProductSpace,
    preferred_element_type: np.dtype | None,
    precision: Any = None,
    exchanged: bool = False,
) -> Any:
    if space.error is not None:
        raise ValueError(f"[strided_product] {space.error}")
    for word, aval, reach in zip(("left", "right"), (lhs, rhs), space.reach, strict=True):
        if reach > aval.size:
            raise ValueError(
                f"[strided_product] the {word} operand {aval.str_short()} has {aval.size} elements, but element "
                f"{reach - 1} is read; pad it before"
            )
    dtype = common_dtype(lhs.dtype, rhs.dtype) if preferred_element_type is None else preferred_element_type
    return runtime.ShapedArray(space.shape, dtype, lhs.weak_type and rhs.weak_type)


def _reference(
    lhs: Any,
    rhs: Any,
    *,
    space: ProductSpace,
    preferred_element_type: np.dtype | None,
    precision: Any = None,
    exchanged: bool = False,
) -> Any:
    """The windows copied into matrices, and these multiplied."""
    lhs, rhs = np.asarray(lhs), np.asarray(rhs)
    out_dtype = preferred_element_type or common_dtype(lhs.dtype, rhs.dtype)
    dtype = contraction_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    batch = [extent for extent, _, _ in space.batch]
    (m, n), k = space.sizes, space.terms
    rows, columns = [(e, s, 0) for e, s in space.rows], [(e, 0, s) for e, s in space.columns]
    a = _matrices(lhs, [*space.batch, *rows, *space.summed], 0, space).astype(dtype).reshape([*batch, m, k])
    b = _matrices(rhs, [*space.batch, *space.summed, *columns], 1, space).astype(dtype).reshape([*batch, k, n])
    with np.errstate(all="ignore"):
        out = product_sums.product(a, b, in_chains=False).reshape([extent for extent, _, _ in space.axes])
        out = np.real(out) if out.dtype.kind == "c" and np.dtype(out_dtype).kind != "c" else out
        return np.ascontiguousarray(out if space.order is None else out.transpose(space.order)).astype(out_dtype)


def _matrices(array: np.ndarray, loops: Any, side: int, space: ProductSpace) -> np.ndarray:
    """The elements of an operand that the loops reach, one dimension for each loop."""
    shape = [loop[0] for loop in loops]
    if math.prod(shape) == 0:
        return np.zeros(shape, array.dtype)
    at = np.full(shape, space.starts[side])
    for index, loop in zip(np.ogrid[tuple(slice(extent) for extent in shape)], loops, strict=True):
        at += index * loop[side + 1]
    return array.ravel()[at]


strided_product_p = core.Primitive("strided_product", kind=kinds.StridedContraction(reference=_reference))
strided_product_p.def_abstract_eval(_typing)
# it is made when programs are compiled, after they have been differentiated and mapped
strided_product_p.jvp, strided_product_p.transpose = None, None


def strided_product(
    lhs: Any, rhs: Any, space: ProductSpace, *, preferred_element_type: np.dtype | None = None, precision: Any = None
) -> Array:
    """The sums over ``space.summed``, for each index of its other loops; operands are their elements in memory.

    The order of a sum is that of a matrix product (docs/NUMERICS.md), of one chain where an operand is a vector too.
    An operand that is too short, or a negative stride, is a ValueError.
    """
    asked = {} if precision is None else {"precision": precision}
    return strided_product_p.bind(lhs, rhs, space=space, preferred_element_type=preferred_element_type, **asked)
