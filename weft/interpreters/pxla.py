"""weft.interpreters.pxla: JAX's names of types for computations on several devices; other names are not built."""

from __future__ import annotations

from typing import Any

from weft._base import unbuilt

ArrayMapping = dict[Any, int]
MeshAxisName = Any
Index = tuple[Any, ...]


def __getattr__(name: str) -> Any:
    return unbuilt.missing("weft.interpreters.pxla", name)
