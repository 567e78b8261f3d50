"""Enumerations of algorithms that are parameters of lax functions: matrix products, random generators, transforms.

They have their own module because creating an enumeration takes longer than loading a module, and few programs
need one.
"""

from __future__ import annotations

import enum


class DotAlgorithmPreset(enum.Enum):
    """Named ``DotAlgorithm``s."""

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


class RandomAlgorithm(enum.IntEnum):
    """Generators of ``lax.rng_bit_generator``."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class FftType(enum.IntEnum):
    """Kinds of Fourier transform."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3
