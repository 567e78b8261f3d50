"""The reduction trees of docs/NUMERICS.md, written with NumPy, as an oracle for generated code."""

from __future__ import annotations

import numpy as np


def lanes_tree(x: np.ndarray, combine, identity) -> np.ndarray:
    """Reduce the last axis."""
    total = np.full(x.shape[:-1], identity, x.dtype)
    for start in range(0, x.shape[-1], 8192):
        block = x[..., start : start + 8192]
        accs = np.full((*x.shape[:-1], 32), identity, x.dtype)
        for i in range(0, block.shape[-1], 32):
            part = block[..., i : i + 32]
            n = part.shape[-1]
            accs[..., :n] = combine(accs[..., :n], part)
        half = 16
        while half:
            accs = combine(accs[..., :half], accs[..., half : 2 * half])
            half //= 2
        total = combine(total, accs[..., 0])
    return total


def rows_tree(x: np.ndarray, combine, identity) -> np.ndarray:
    """Reduce the first axis."""
    total = np.full(x.shape[1:], identity, x.dtype)
    for start in range(0, x.shape[0], 256):
        acc = np.full(x.shape[1:], identity, x.dtype)
        for row in x[start : start + 256]:
            acc = combine(acc, row)
        total = combine(total, acc)
    return total
