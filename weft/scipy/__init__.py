"""SciPy's functions on weft arrays; what is not built yet raises."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from weft._base import unbuilt as _unbuilt
from weft.scipy import special, stats


def __getattr__(name: str) -> _Any:
    if _unbuilt.is_documented_module(f"weft.scipy.{name}"):
        return _importlib.import_module(f"weft.scipy.{name}")
    return _unbuilt.missing("weft.scipy", name)
