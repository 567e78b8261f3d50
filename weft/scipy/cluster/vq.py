"""weft.scipy.cluster.vq: the nearest entry of a code book for every observation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base import unbuilt as _unbuilt
from weft.numpy import promotion

__getattr__ = _unbuilt.fallback("weft.scipy.cluster.vq")


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """For every observation the number of the nearest code, int32, and its distance.

    ``obs`` is ``[n, d]`` and ``code_book`` ``[k, d]``, or both vectors of numbers. ``check_finite`` changes nothing.
    ValueError for other ranks, TypeError for different ``d``.

    >>> [x.tolist() for x in vq(np.float32([[0, 0], [3, 4]]), np.float32([[0, 0], [3, 3]]))]
    [[0, 1], [0.0, 1.0]]
    """
    promotion.check_arraylike("scipy.cluster.vq.vq", obs, code_book)
    obs, code_book = promotion.promote_dtypes_inexact(obs, code_book)
    shape, codes = promotion.shape_of(obs), promotion.shape_of(code_book)
    if len(shape) != len(codes):
        raise ValueError(f"Observation and code_book should have the same rank. [vq] got {shape} and {codes}")
    if len(shape) not in (1, 2):
        raise ValueError(f"ndim different than 1 or 2 are not supported. [vq] got {shape}")
    if len(shape) == 1:
        obs, code_book = wnp.expand_dims(obs, 1), wnp.expand_dims(code_book, 1)
    elif shape[1] != codes[1]:
        raise TypeError(f"[vq] observations have {shape[1]} features, codes {codes[1]}")
    difference = wnp.expand_dims(obs, 1) - wnp.expand_dims(code_book, 0)
    distance = wnp.sqrt(wnp.sum(wnp.square(wnp.abs(difference)), axis=-1))
    return wnp.argmin(distance, axis=1).astype(np.int32), wnp.min(distance, axis=1)
