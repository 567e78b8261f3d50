"""Code generation: from loops to LLVM text with explicit vectors, and to an object file for the runtime's loader."""

from weft.codegen.compile import Object, assembly, compile_nest, compile_text, helper_names, text_of
from weft.codegen.cost import cost, scratch_bytes

__all__ = ["Object", "assembly", "compile_nest", "compile_text", "cost", "helper_names", "scratch_bytes", "text_of"]
