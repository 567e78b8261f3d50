"""The public names of the stages of compilation: ``jit(f).trace(x)``, ``.lower()``, ``.compile()``."""

from __future__ import annotations

from weft.dispatch.programs.ahead_of_time import ArgInfo, Compiled, CompilerOptions, Lowered, Traced, Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
