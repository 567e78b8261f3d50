"""Code generation: from loops to LLVM text with explicit vectors, and to an object file for the runtime's loader."""

from weft.codegen.compile import Object, assembly, compile_nest, compile_text, text_of

__all__ = ["Object", "assembly", "compile_nest", "compile_text", "text_of"]
