"""weft.scipy.stats: distributions as modules of functions, and summaries of samples."""

from __future__ import annotations

from typing import Any as _Any

from weft._base import lazy as _lazy
from weft._base import unbuilt as _unbuilt

_NAMES = _lazy.Names(
    "weft.scipy.stats", {"scipy.stats.kernel_density": "gaussian_kde", "scipy.stats.summaries": "mode rankdata sem"}
)


def __getattr__(name: str) -> _Any:
    if name in _NAMES:
        return _NAMES.find(name)
    if _unbuilt.is_documented_module(f"weft.scipy.stats.{name}"):
        return _lazy.submodule(f"weft.scipy.stats.{name}")
    return _unbuilt.missing("weft.scipy.stats", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})
