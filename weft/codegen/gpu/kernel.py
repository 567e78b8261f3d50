"""The text of a nest or a routine for a GPU: one module, with a function for each way in which threads may share it.

    define ptx_kernel void @points(ptr addrspace(1) %o0, ..., ptr addrspace(1) %scratch, i64 %w0, ...)

Parameters: the address of each operand, that of working memory, then the words of the nest and of ``loops.gpu.grid``,
and a guard: the address of an int32, and two numbers between which it lies if the kernel is to do anything; 0: it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS
from weft.codegen import module_text
from weft.codegen.gpu import loops, starts
from weft.codegen.gpu.block_rows import BlockRowWriter
from weft.codegen.gpu.cut_columns import CutColumnWriter
from weft.codegen.gpu.cut_rows import CutRowWriter
from weft.codegen.gpu.held_products import HeldProductWriter
from weft.codegen.gpu.long_sorts import LongSortWriter
from weft.codegen.gpu.points import PointWriter, grid_words
from weft.codegen.gpu.products import ProductWriter
from weft.codegen.gpu.resident import STACK, ResidentWriter
from weft.codegen.gpu.scans import ScanWriter
from weft.codegen.gpu.short_rows import ShortRowWriter
from weft.codegen.gpu.short_sorts import ENTRIES, ShortSortWriter
from weft.codegen.gpu.target_runs import RunWriter
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.gpu.tensor_products import TensorWriter
from weft.codegen.gpu.tile_products import TileProductWriter
from weft.codegen.gpu.tiles import TileWriter
from weft.codegen.gpu.vector_products import VectorWriter
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.gpu import grid, grid_products, grid_sorts, grid_starts, resident
from weft.loops.routines import routine

GUARD = [
    "%open = icmp eq ptr addrspace(1) %guard, null",
    "br i1 %open, label %entry, label %guarded",
    "guarded:",
    "%word = load i32, ptr addrspace(1) %guard",
    "%low = trunc i64 %range to i32",
    "%high64 = lshr i64 %range, 32",
    "%high = trunc i64 %high64 to i32",
    "%above = icmp sge i32 %word, %low",
    "%below = icmp sle i32 %word, %high",
    "%inside = and i1 %above, %below",
    "br i1 %inside, label %entry, label %closed",
    "closed:",
    "ret void",
]
HEAD = 'target triple = "nvptx64-nvidia-cuda"'


Part = ir.Nest | routine.Routine | grid_products.Product | grid_sorts.Sorting


def text_of(nest: Part | resident.Resident | grid_starts.Starts | grid_starts.Moved, target: Target) -> str:
    """LLVM text of all entries."""
    if isinstance(nest, grid_starts.Moved):
        return _text_of(nest.nest, target, *starts.moved(nest))
    return _text_of(nest, target, [f"ptr addrspace(1) %o{k}" for k in range(len(nest.operands))])


def _text_of(
    nest: Part | resident.Resident | grid_starts.Starts, target: Target, operands: list[str], moves: Sequence[str] = ()
) -> str:
    """``operands``: their parameters; ``moves``: what comes before all else."""
    most, tables = GPU_THREADS, list[str]()
    if isinstance(nest, resident.Resident):
        most, n_words = nest.threads, nest.n_words
        whole = ResidentWriter(nest, target, called)
        entries, tables = {loops.ENTRY: whole.write()}, whole.tables
    elif isinstance(nest, grid_products.Product):
        n_words = grid_products.n_words(nest) + (grid_words(nest.epilogue.nest) if nest.epilogue is not None else 0)
        entries = {name: entry(nest, name, target) for name in grid_products.entries(nest)}
    elif isinstance(nest, grid_sorts.Sorting):
        n_words = grid_sorts.N_WORDS
        entries = {name: entry(nest, name, target) for name in grid_sorts.entries(nest)}
    elif isinstance(nest, grid_starts.Starts):
        n_words = grid_starts.n_words(nest)
        entries = {"starts": starts.write(nest, target)}
    elif isinstance(nest, routine.Routine):
        n_words = nest.trips + nest.extents + len(nest.scalars)
        entries = {loops.ENTRY: loops.writer(nest, target).write()}
    else:
        n_words = grid_words(nest)
        entries = {name: _written(nest, target, *given) for name, given in _entries(nest).items()}
    words = [f"i64 %w{k}" for k in range(n_words)]
    guard = ["ptr addrspace(1) %guard", "i64 %range"]
    parameters = ", ".join([*operands, "ptr addrspace(1) %scratch", *words, *guard])
    lines, functions, declarations, cold = [HEAD, *tables], dict[str, str](), dict[str, str](), False
    for name, writer in entries.items():
        table, loads, body = module_text.constants(writer, name, "ret void")
        most = grid.most_threads(nest, name) if isinstance(nest, ir.Nest) else most
        head = f'define ptx_kernel void @{name}({parameters}) nounwind "nvvm.maxntid"="{most}" {{'
        body = "\n".join(["entry:", *moves, *loads, body, "}"])
        lines += [*table, head, *STACK.findall(body), *GUARD, STACK.sub("", body)]
        functions |= writer.functions
        declarations |= writer.declarations
        cold = cold or writer.cold_branches
    lines += [*functions.values(), *declarations.values()]
    if cold:
        lines.append('!0 = !{!"branch_weights", i32 1, i32 100000}')
    return "\n".join([*lines, ""])


def called(call: resident.Call, target: Target) -> Writer:
    """The entry of a kernel that a loop runs."""
    if call.held is not None:
        return HeldProductWriter(call.kernel, target, call.held).write()
    return entry(call.kernel, call.entry, target)


def entry(nest: Part, name: str, target: Target) -> Writer:
    """One entry of a kernel; ``point``: a thread for each point of a nest."""
    if isinstance(nest, grid_products.Product):
        return _product(nest, name, target).write()
    if isinstance(nest, grid_sorts.Sorting):
        return (ShortSortWriter if name in ENTRIES else LongSortWriter)(nest, target, name).write()
    if isinstance(nest, routine.Routine):
        return loops.writer(nest, target).write()
    if name != resident.POINT:
        return _written(nest, target, *_entries(nest)[name])
    points = (RunWriter if _has_runs(nest) else PointWriter)(nest, target, 1)
    points.form = points.form.replace(per_thread=1)
    return points.write()


def _product(product: grid_products.Product, name: str, target: Target) -> ProductWriter:
    if product.form == "vector":
        return VectorWriter(product, target)
    return (TensorWriter if product.form == "tensor" else TileProductWriter)(product, target, name)


def _entries(nest: ir.Nest) -> dict[str, tuple[Any, ...]]:
    """The writer of each entry, and what it is given behind nest and target."""
    how = grid.form(nest)
    if not how.teams:
        found: dict[str, tuple[Any, ...]] = {"points": (RunWriter if _has_runs(nest) else PointWriter, 1)}
        if how.scans:
            found |= {name: (ScanWriter, name) for name in ("scans", "clear")}
        if how.columns:
            found |= {name: (CutColumnWriter, name) for name in ("column_parts", "column_whole")}
        if how.turned >= 0:
            found["tiles"] = (TileWriter,)
        if how.wide:
            found["wide"] = (PointWriter, grid.PER_THREAD)
        return found
    found = {"warps": (TeamWriter,), "blocks": (BlockRowWriter, "blocks")}
    if grid.held_threads(nest):
        found["held"] = (BlockRowWriter, "held")
    if grid.may_be_short(nest):
        found["short"] = (ShortRowWriter,)
    if nest.split:
        found |= {name: (CutRowWriter, name) for name in ("parts", "whole")}
    return found


def _has_runs(nest: ir.Nest) -> bool:
    return bool(nest.dims) and nest.dims[0].runs


def _written(nest: ir.Nest, target: Target, writer: Any, *more: Any) -> Writer:
    return writer(nest, target, *more).write()
