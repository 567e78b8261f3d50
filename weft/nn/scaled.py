"""Products of block-scaled operands under the names of ``weft.nn``: scaled_matmul, scaled_dot_general.

scaled_matmul f8[b,m,k], f8[b,n,k], scales f[b,m,k/32], f[b,n,k/32] -> f32[b,m,n]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as jnp
from weft import operations as lax
from weft._base.array import Array
from weft.operations import scaled_products


def _product_dtype(name: str, dtype: Any) -> np.dtype:
    wanted = np.dtype(dtype)
    if wanted not in (np.dtype(np.float32), np.dtype(np.float16), np.dtype(dtypes.bfloat16)):
        raise ValueError(f"[{name}] preferred_element_type must be float32, bfloat16 or float16, got {wanted}")
    return wanted


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Array:
    """``einsum("bmk,bnk->bmn")`` of operands that are scaled in blocks along k, computed in float32.

    ``lhs`` [b,m,k] with ``lhs_scales`` [b,m,k_a], ``rhs`` [b,n,k] with ``rhs_scales`` [b,n,k_b]: a scale counts for
    ``k / k_a`` elements. ValueError for shapes that do not fit.

    >>> a, b = jnp.array([[[1.0, 2.0, 3.0]]]), jnp.array([[[4.0, 5.0, 6.0]]])
    >>> weft.nn.scaled_matmul(a, b, jnp.array([[[0.5]]]), jnp.array([[[0.5]]])).tolist()
    [[[8.0]]]
    """
    dtype = _product_dtype("scaled_matmul", preferred_element_type)
    lhs, rhs, lhs_scales, rhs_scales = (jnp.asarray(x) for x in (lhs, rhs, lhs_scales, rhs_scales))
    if lhs.ndim != 3 or rhs.ndim != 3 or (lhs.shape[0], lhs.shape[2]) != (rhs.shape[0], rhs.shape[2]):
        raise ValueError(f"[scaled_matmul] operands must be [b,m,k] and [b,n,k], got {lhs.shape} and {rhs.shape}")
    for x, scales in ((lhs, lhs_scales), (rhs, rhs_scales)):
        if scales.ndim != 3 or scales.shape[:2] != x.shape[:2]:
            raise ValueError(f"[scaled_matmul] scales of shape {scales.shape} for an operand of shape {x.shape}")
    a = scaled_products.scaled(lhs, lhs_scales, np.float32, "scaled_matmul")
    b = scaled_products.scaled(rhs, rhs_scales, np.float32, "scaled_matmul")
    out = lax.dot_general(a, b, (((2,), (2,)), ((0,), (0,))), preferred_element_type=np.float32)
    return lax.convert_element_type(out, dtype)


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: Any = None,
    implementation: Any = None,
) -> Any:
    """``lax.dot_general`` where ``configs`` is None. NotImplementedError for quantisation by ``configs``.

    The formats that quantise (mxfp8, nvfp4) have scales or elements in dtypes that kernels cannot read yet.
    ``implementation`` makes no difference.
    """
    dtype = _product_dtype("scaled_dot_general", preferred_element_type)
    if configs is not None:
        raise NotImplementedError("[scaled_dot_general] quantisation by `configs` is not implemented: pass None")
    return lax.dot_general(jnp.asarray(lhs), jnp.asarray(rhs), dimension_numbers, preferred_element_type=dtype)
