"""The compiler: from jaxprs to programs that the runtime runs; its caches and the reference interpreter."""

from weft.compiler import stored
from weft.compiler.evaluate import clear_caches, evaluate, evaluate_compiled
from weft.compiler.pipeline import Program, compile_jaxpr, stats

__all__ = ["Program", "clear_caches", "compile_jaxpr", "evaluate", "evaluate_compiled", "stats", "stored"]
