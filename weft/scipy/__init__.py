"""SciPy's functions on weft arrays; what is not built yet raises."""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy
from weft._base import unbuilt as _unbuilt

if _typing.TYPE_CHECKING:
    from weft.scipy import special, stats


def __getattr__(name: str) -> _typing.Any:
    if _unbuilt.is_documented_module(f"weft.scipy.{name}"):
        return _lazy.submodule(f"weft.scipy.{name}")
    return _unbuilt.missing("weft.scipy", name)
