"""weft.scipy.sparse: iterative solvers (``linalg``)."""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy
from weft._base import unbuilt as _unbuilt

if _typing.TYPE_CHECKING:
    from weft.scipy.sparse import linalg

_NAMES = _lazy.Names("weft.scipy.sparse", {}, submodules="linalg")


def __getattr__(name: str) -> _typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.scipy.sparse", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.submodules})
