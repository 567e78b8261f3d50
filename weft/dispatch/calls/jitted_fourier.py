"""``lax.fft``: the discrete Fourier transform over the last dimensions, under JAX's inner ``jit``.

fft(f32[8], "fft", (8,))  ->  jit[name=fft]: convert_element_type, fft
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import core, runtime
from weft import operations as lax
from weft.dispatch.calls import jit as jit_module
from weft.operations import fourier, static
from weft.operations.algorithms import FftType


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> runtime.Array:
    """The discrete Fourier transform of ``x`` over its last ``len(fft_lengths)`` dimensions, at most three.

    ``fft_type`` is FFT, IFFT (divided by the number of elements), RFFT (of real numbers: ``n // 2 + 1`` frequencies of
    the last dimension) or IRFFT (its inverse), as ``FftType`` or by name; ``fft_lengths`` are the extents of those
    dimensions, for IRFFT of the result's. Integers and small floats are converted; the transform itself is computed in
    float32 or float64. ValueError for another name, for complex operands of RFFT and for lengths that are not those
    of ``x``.

    >>> lax.fft(np.float32([1, 0, 0, 0]), "rfft", (4,)).tolist()
    [(1+0j), (1+0j), (1+0j)]
    """
    kind = fourier.as_fft_type(fft_type)
    lengths = static.integers(fft_lengths, "fft", "fft_lengths")
    return _fft(x, fft_type=kind, fft_lengths=lengths)


def _as_fft(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    aval = core.get_aval(x)
    dtype = fourier.operand_dtype(aval.dtype, fft_type)
    if aval.dtype != dtype:
        x = lax.convert_element_type(x, dtype)
    if not fft_lengths:
        return x
    return fourier.fft_p.bind(x, fft_type=fft_type, fft_lengths=fft_lengths)


_as_fft.__name__ = "fft"
_fft = jit_module.jit(_as_fft, static_argnames=("fft_type", "fft_lengths"))
