"""Loops to machine code: LLVM text with explicit vectors, then an object for the runtime's loader."""

from weft.codegen.compile import Object, assembly, compile_nest, compile_text, helper_names, text_of
from weft.codegen.cost import cost, scratch_bytes

__all__ = ["Object", "assembly", "compile_nest", "compile_text", "cost", "helper_names", "scratch_bytes", "text_of"]
