"""The compiler: from jaxprs to programs that the runtime runs; its caches and the reference interpreter.

Its modules are loaded when one of these names is first used: a saved program is read without a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base import lazy

if TYPE_CHECKING:
    from weft.compiler.evaluation import clear_caches, evaluate, evaluate_compiled
    from weft.compiler.pipeline import Program, compile_jaxpr, stats

__all__ = ["Program", "clear_caches", "compile_jaxpr", "evaluate", "evaluate_compiled", "stats"]

__getattr__ = lazy.Names(
    "weft.compiler",
    {
        "compiler.evaluation": "clear_caches evaluate evaluate_compiled",
        "compiler.pipeline": "Program compile_jaxpr stats",
    },
).find
