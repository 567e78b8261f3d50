"""The sum of docs/NUMERICS.md with terms that are rounded once, in NumPy: what products are compared with bit for bit.

Fused multiply-adds of ``float64`` are those of S. Boldo and G. Melquiond, "Emulation of a FMA and correctly-rounded
sums: proved algorithms using rounding to odd" (IEEE Transactions on Computers 57, 2008), on T. J. Dekker's product.
"""

from __future__ import annotations

import numpy as np

BLOCK, CHAIN_BYTES = 512, 64


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """``a * b + c`` of float32 or float64, rounded once (barring what overflows or vanishes on the way)."""
    if c.dtype == np.float32:
        return _odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(np.float32)
    high = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    low = a_low * b_low - (((high - a_high * b_high) - a_low * b_high) - a_high * b_low)
    near, far = _two_sum(c, low)
    total, left = _two_sum(high, near)
    return total + _odd_sum(far, left)


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and what it lacks."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of float64, where it is not exact the neighbour whose last bit is 1."""
    total, left = _two_sum(a, b)
    even = (total.view(np.int64) & 1) == 0
    towards = np.nextafter(total, np.where(left > 0, np.inf, -np.inf))
    return np.where((left != 0) & even, towards, total)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A float64 as the sum of two of 26 bits."""
    scaled = x * np.float64(2**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a[m, k] @ b[k, n]`` in the stated order; half precisions are summed and returned in float32."""
    if a.dtype.kind in "iu":
        return a @ b
    m, k, n = *a.shape, b.shape[1]
    if a.dtype.itemsize == 2:
        a, b = a.astype(np.float32), b.astype(np.float32)
    chains = CHAIN_BYTES // a.dtype.itemsize if m == 1 or n == 1 else 1
    total = np.zeros((m, n), a.dtype)
    for start in range(0, k, BLOCK * chains):
        stop = min(k, start + BLOCK * chains)
        sums = np.stack([_chain(a[:, start + c : stop : chains], b[start + c : stop : chains]) for c in range(chains)])
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        total = sums[0] if start == 0 else total + sums[0]
    return total


def _chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "c":
        real = _chain(np.real(a), np.real(b)) - _chain(np.imag(a), np.imag(b))
        imag = _chain(np.real(a), np.imag(b)) + _chain(np.imag(a), np.real(b))
        return np.stack([real, imag], axis=-1).view(a.dtype)[..., 0]
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[1]):
        total = fma(a[:, i, None], b[None, i], total)
    return total
