"""weft.scipy.stats: distributions as modules of functions; the normal and the uniform one are built."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from weft import unbuilt as _unbuilt
from weft.scipy.stats import norm, uniform


def __getattr__(name: str) -> _Any:
    if _unbuilt.is_documented_module(f"weft.scipy.stats.{name}"):
        return _importlib.import_module(f"weft.scipy.stats.{name}")
    return _unbuilt.missing("weft.scipy.stats", name)
