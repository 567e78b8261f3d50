"""Products of operands in blocks with a scale for each: what quantised numbers of few bits are multiplied by.

scaled_dot f8[m,k], f8[k,n], scales f[m,k/32], f[k/32,n] -> bf16[m,n]     (lhs * scale) @ (rhs * scale)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.operations.contract import dot_general
from weft.operations.data_movement.shape import broadcast_in_dim, reshape
from weft.operations.pointwise.arithmetic import mul
from weft.operations.pointwise.convert import convert_element_type

__all__ = ["scaled_dot"]


def scaled(x: Any, scale: Any, dtype: Any, name: str) -> Any:
    """``x`` times ``scale`` in ``dtype``; along each dimension the extent of x is a multiple of that of scale."""
    shape, blocks = core.get_aval(x).shape, core.get_aval(scale).shape
    if len(shape) != len(blocks) or any(b == 0 or e % b for e, b in zip(shape, blocks, strict=True)):
        raise ValueError(f"[{name}] scales of shape {blocks} do not divide an operand of shape {shape} into blocks")
    split = [part for e, b in zip(shape, blocks, strict=True) for part in (b, e // b)]
    wide = reshape(convert_element_type(x, dtype), tuple(split))
    ones = [part for b in blocks for part in (b, 1)]
    factor = reshape(convert_element_type(scale, dtype), tuple(ones))
    factor = broadcast_in_dim(factor, tuple(split), tuple(range(len(split))))
    return reshape(mul(wide, factor), shape)


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: Any = None,
    preferred_element_type: Any = None,
) -> runtime.Array:
    """``dot_general(lhs * lhs_scale, rhs * rhs_scale)``, where a scale counts for a block along a contracted dimension.

    Operands are scaled and multiplied in ``preferred_element_type`` (bfloat16 by default, or float32). By default the
    last dimension of lhs and the first but batch of rhs are contracted; arrays of rank 3 have a batch in front.
    ValueError for scales that do not divide an operand.

    >>> import weft.numpy as jnp
    >>> lhs, scale = jnp.ones((1, 4)), jnp.array([[1.0, 10.0]])
    >>> weft.lax.scaled_dot(lhs, jnp.ones((4, 1)), lhs_scale=scale, preferred_element_type="float32").tolist()
    [[22.0]]
    """
    dtype = np.dtype(dtypes.bfloat16 if preferred_element_type is None else preferred_element_type)
    if dtype not in (np.dtype(dtypes.bfloat16), np.dtype(np.float32)):
        raise ValueError(f"[scaled_dot] preferred_element_type must be bfloat16 or float32, got {dtype}")
    ranks = core.get_aval(lhs).ndim, core.get_aval(rhs).ndim
    if dimension_numbers is None:
        if ranks not in ((2, 2), (3, 3)):
            raise ValueError(f"[scaled_dot] operands of ranks {ranks} need dimension_numbers")
        batch = tuple(range(ranks[0] - 2))
        dimension_numbers = (((ranks[0] - 1,), (ranks[0] - 2,)), (batch, batch))
    for number, (operand, scale) in enumerate(((lhs, lhs_scale), (rhs, rhs_scale))):
        if scale is None:
            continue
        shape, blocks = core.get_aval(operand).shape, core.get_aval(scale).shape
        contracted = tuple(dimension_numbers[0][number])
        if len(shape) == len(blocks) and any(
            e != b for d, (e, b) in enumerate(zip(shape, blocks, strict=True)) if d not in contracted
        ):
            raise ValueError(f"[scaled_dot] scales {blocks} of {shape} may differ along contracted dimensions only")
    lhs, rhs = (
        convert_element_type(x, dtype) if scale is None else scaled(x, scale, dtype, "scaled_dot")
        for x, scale in ((lhs, lhs_scale), (rhs, rhs_scale))
    )
    return dot_general(lhs, rhs, dimension_numbers, preferred_element_type=dtype)
