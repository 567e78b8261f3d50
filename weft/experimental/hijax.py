"""weft.experimental.hijax: JAX's interface to types of one's own inside programs, of which weft has those of arrays."""

from __future__ import annotations

from typing import Any

from weft._base import unbuilt
from weft.core.ref_types import AbstractRef
from weft.extend.core.types import AbstractValue, ShapedArray
from weft.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal

__all__ = ["AbstractRef", "AbstractValue", "ShapedArray", "Zero", "instantiate_zeros", "is_undefined_primal"]


def __getattr__(name: str) -> Any:
    return unbuilt.missing("weft.experimental.hijax", name)
