"""Paddings by name ('SAME', 'VALID') as amounts: how far windows reach over the edges of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["padtype_to_pads"]


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: Any
) -> list[tuple[int, int]]:
    """The (low, high) padding of each dimension that 'SAME', 'SAME_LOWER' or 'VALID' stands for.

    >>> lax.padtype_to_pads((10,), (3,), (2,), 'SAME')
    [(0, 1)]
    """
    if not isinstance(padding, str):
        raise TypeError(f"[padtype_to_pads] unknown padding type: {padding}")
    word = padding.upper()
    if word == "VALID":
        return [(0, 0)] * len(in_shape)
    if word not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME' or 'SAME_LOWER', got {padding!r}.")
    pads = []
    for extent, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = int(max((-(-extent // stride) - 1) * stride + window - extent, 0))
        less, more = total // 2, total - total // 2
        pads.append((less, more) if word == "SAME" else (more, less))
    return pads
