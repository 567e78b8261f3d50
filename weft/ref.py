"""weft.ref: mutable references to arrays, under JAX's names."""

from __future__ import annotations

from weft.core.ref_types import AbstractRef
from weft.effects.refs import Ref, addupdate, empty_ref, free_ref, freeze, get, new_ref, set, swap

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]
