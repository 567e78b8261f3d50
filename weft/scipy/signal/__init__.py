"""weft.scipy.signal: convolutions and spectra of arrays."""

from __future__ import annotations

from typing import Any as _Any

from weft._base import lazy as _lazy
from weft._base import unbuilt as _unbuilt

_NAMES = _lazy.Names(
    "weft.scipy.signal",
    {
        "scipy.signal.convolutions": "convolve convolve2d correlate correlate2d fftconvolve",
        "scipy.signal.spectra": "csd detrend istft stft welch",
    },
)


def __getattr__(name: str) -> _Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.scipy.signal", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})
