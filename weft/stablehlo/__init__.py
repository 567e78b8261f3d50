"""weft.stablehlo: programs as StableHLO, the language that other compilers of array programs read and write."""

from __future__ import annotations

import typing

from weft._base import lazy

if typing.TYPE_CHECKING:
    from weft.stablehlo.module import Module as Module
    from weft.stablehlo.module import module_text as module_text
    from weft.stablehlo.module import text_and_count as text_and_count

_NAMES = lazy.Names("weft.stablehlo", {"stablehlo.module": "Module module_text text_and_count"})
__getattr__ = _NAMES.find
