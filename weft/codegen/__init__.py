"""Code generation: from loops to LLVM text with explicit vectors, and to an object file for the runtime's loader."""

from weft.codegen.compile import SYMBOL, Object, assembly, compile_nest, compile_text, text_of

__all__ = ["SYMBOL", "Object", "assembly", "compile_nest", "compile_text", "text_of"]
