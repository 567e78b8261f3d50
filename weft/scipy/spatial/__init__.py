"""weft.scipy.spatial: rotations of three-dimensional space (``transform``)."""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy
from weft._base import unbuilt as _unbuilt

if _typing.TYPE_CHECKING:
    from weft.scipy.spatial import transform

_NAMES = _lazy.Names("weft.scipy.spatial", {}, submodules="transform")


def __getattr__(name: str) -> _typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.scipy.spatial", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.submodules})
