"""Matrix products as a NumPy program, in the order of docs/NUMERICS.md for any layout of the operands.

NumPy's own products use a library: their last bits depend on the strides of the operands and on the processor.
"""

from __future__ import annotations

import numpy as np

BLOCK, CHAIN_BYTES = 512, 64  # terms of a block; bytes of one term of every chain


def product(a: np.ndarray, b: np.ndarray, *, in_chains: bool = True) -> np.ndarray:
    """``a[..., m, k] @ b[..., k, n]`` of one dtype, every element summed in the order of a matrix product.

    A ``float32`` term and its sum are rounded once, with about one exception in 2**29, ``float64`` ones twice. Products
    of half precisions are those of their ``float32`` values. ``in_chains=False``: one chain, for vectors too.

    >>> product(np.ones((2, 600), np.float32), np.ones((600, 1), np.float32)).tolist()
    [[600.0], [600.0]]
    """
    if a.dtype.kind not in "fc":
        return np.matmul(a, b)
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    chains = CHAIN_BYTES // a.dtype.itemsize if in_chains and (m == 1 or n == 1) else 1
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*shape, m, n), a.dtype)
    for start in range(0, k, BLOCK * chains):
        terms = slice(start, start + BLOCK * chains)
        sums = _chains(a[..., terms], b[..., terms, :], chains)
        while sums.shape[-3] > 1:  # chain c is combined with chain c + half of them
            half = sums.shape[-3] // 2
            sums = sums[..., :half, :, :] + sums[..., half:, :, :]
        total = sums[..., 0, :, :] if start == 0 else total + sums[..., 0, :, :]
    return total


def _chains(a: np.ndarray, b: np.ndarray, chains: int) -> np.ndarray:
    """The sums ``[..., chains, m, n]`` of one block; chain c has the terms c, c + chains, ..."""
    if a.dtype.kind == "c":
        first, second = _chains(np.real(a), np.real(b), chains), _chains(np.imag(a), np.imag(b), chains)
        third, fourth = _chains(np.real(a), np.imag(b), chains), _chains(np.imag(a), np.real(b), chains)
        return np.stack([first - second, third + fourth], axis=-1).view(a.dtype)[..., 0]
    left, right = np.moveaxis(a, -1, -2).astype(np.float64)[..., None], b.astype(np.float64)[..., None, :]
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    sums = np.zeros((*shape, chains, a.shape[-2], b.shape[-1]), a.dtype)
    for start in range(0, a.shape[-1], chains):
        terms = left[..., start : start + chains, :, :] * right[..., start : start + chains, :, :]
        found = sums[..., : terms.shape[-3], :, :]
        found[...] = terms + found
    return sums
