"""Vector math: every function once, as branch-free expressions over ``lanes.V`` (cold blocks for rare lanes)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.codegen.lanes import V

if TYPE_CHECKING:
    from weft.codegen.emitter import Emitter

NAMES: dict = {}


def function(emit: Emitter, name: str, *args: V) -> V:
    raise TypeError(f"[codegen] no vector function named {name!r}.")
