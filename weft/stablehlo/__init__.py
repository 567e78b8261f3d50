"""weft.stablehlo: programs as StableHLO, the language that other compilers of array programs read and write."""

from __future__ import annotations

import typing

from weft._base import lazy

if typing.TYPE_CHECKING:
    from weft.stablehlo.module import Module as Module
    from weft.stablehlo.module import module_text as module_text

_NAMES = lazy.Names("weft.stablehlo", {"stablehlo.module": "Module module_text"})
__getattr__ = _NAMES.find
