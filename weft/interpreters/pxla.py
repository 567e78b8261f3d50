"""weft.interpreters.pxla: JAX's names of computations on several devices, of which weft has one."""

from __future__ import annotations

from typing import Any

from weft._base import unbuilt

ArrayMapping = dict[Any, int]
MeshAxisName = Any
Index = tuple[Any, ...]


def __getattr__(name: str) -> Any:
    return unbuilt.missing("weft.interpreters.pxla", name)
