"""Compiles a nest: writes its LLVM text and runs LLVM, here or in a child process (``WEFT_COMPILE=isolated``)."""

from __future__ import annotations

from weft import config
from weft._base import lazy
from weft._base.record import Record
from weft._base.target import Target
from weft.codegen import llvm
from weft.codegen.nests import kernel_chains
from weft.codegen.nests import nest as nest_writer
from weft.codegen.routines import lane_routines, routine_writer
from weft.loops import ir
from weft.loops.routines import routine
from weft.loops.schedules import decisions

SYMBOL = "k"


class Object(Record):
    """Machine code of one nest: a relocatable ELF object and the text it came from."""

    bytes: bytes
    symbol: str
    llvm_text: str


def text_of(nest: ir.Nest | ir.Chain | routine.Routine, target: Target) -> str:
    """LLVM text of a nest, a chain of them or a routine."""
    if target.is_gpu:
        if isinstance(nest, ir.Chain):
            raise ValueError(f"[codegen] no kernels for GPUs are written for a {type(nest).__name__}")
        return lazy.submodule("weft.codegen.gpu.kernel").text_of(nest, target)
    if isinstance(nest, ir.Chain):
        return kernel_chains.text_of(nest, target, SYMBOL)
    if isinstance(nest, routine.Routine):
        writer = lane_routines.LaneWriter if nest.lanes else routine_writer.RoutineWriter
        return writer(nest, target).text(SYMBOL)
    return nest_writer.NestWriter(decisions.of(nest, target), target).text(SYMBOL)


def compile_nest(nest: ir.Nest | ir.Chain | routine.Routine, target: Target) -> Object:
    """Machine code for a nest; sizes are its run-time parameters."""
    return compile_text(text_of(nest, target), target, nest.name)


def compile_text(text: str, target: Target, name: str = "kernel") -> Object:
    """Machine code for one function written by ``NestWriter``."""
    where = lazy.submodule("weft.codegen.isolate") if config.read("compile") == "isolated" else llvm
    if target.is_gpu:
        return Object(llvm.emit_assembly(text, target).encode(), SYMBOL, text)
    return Object(where.emit_object(text, target, name), SYMBOL, text)


def assembly(compiled: Object, target: Target) -> str:
    """The assembly of a compiled nest."""
    return llvm.emit_assembly(compiled.llvm_text, target)
