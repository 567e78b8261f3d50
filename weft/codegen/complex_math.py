"""Complex arithmetic and functions on pairs of registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.codegen.lanes import V

if TYPE_CHECKING:
    from weft.codegen.emitter import Emitter

Pair = tuple[V, ...]


def multiply(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]
