"""Steps of a plan as launches of a GPU: kernels, products, sorts, loops. All other steps stay the host's.

kernel exp [4096x1024] 0+0 1+0    ->    launch points of 4096 blocks of 256 threads: kernel exp ...
"""

from __future__ import annotations

from typing import Any

from weft._base.target_model import GPU_WORDS
from weft.compiler.gpu import device_starts, library_products, resident_cells, resident_loops
from weft.compiler.matrix_products.contraction import dtype_of
from weft.compiler.plans import instructions
from weft.compiler.plans.steps import Control, FusedEpilogue, Launched, Native, Plan, Run
from weft.loops.gpu import grid, grid_products, grid_sorts
from weft.loops.nests import Lowered


def launched(
    planned: Plan, inner: resident_loops.Inner | None = None, library: Any = None, together: bool | None = None
) -> Plan:
    """The plan with launches instead of what threads of a GPU can do; ``inner`` gives plans of programs in it.

    Without ``inner`` a loop may be one kernel, whose threads find run-time offsets themselves. ``library``: who may
    have large products (``context.Context.library``). ``together``: products and their epilogues are one launch.
    """
    together = inner is not None if together is None else together
    entries = [one for entry in planned.instructions for one in _apart(entry, together, library)]
    found = planned.replace(instructions=[_launched(entry, inner, library) for entry in entries], on_gpu=True)
    return found if inner is None else device_starts.device_starts(found)


def of_kernel(low: Lowered) -> tuple[bytes, tuple[grid.Grid, ...], tuple[int, ...], int] | None:
    """Parameters, grids, operands whose addresses count and bytes of working memory; None if the host should run it."""
    return _of(low) if grid.fits(low) else None


def _of(low: Lowered) -> tuple[bytes, tuple[grid.Grid, ...], tuple[int, ...], int]:
    found = grid.launches(low)
    return low.params.block() + found.words, found.grids, found.wide, found.scratch_bytes


def _apart(entry: Any, together: bool, library: Any) -> list[Any]:
    """A product and its epilogue as one launch, or as two instructions: what is part of a loop, or the host's."""
    if not isinstance(entry, FusedEpilogue) or not entry.run.lowered.gpu:
        return [entry]
    gemm, run = entry.product, entry.run
    if (whole := library_products.product(entry, library)) is not None:
        return [whole]
    if (alone := library_products.product(gemm, library)) is not None:
        return [alone, run]
    kernel = _product_of(gemm) if together else None
    if kernel is None:
        return [gemm, run]
    low = run.lowered
    read = [k for k, binding in enumerate(low.operands) if binding.role == "in"]
    made = [k for k in read if run.operands[k] == gemm.c]
    operand = grid_products.operand_of(low, made)
    if operand is None:
        return [gemm, run]
    params, grids = grid_products.launches(kernel, gemm)
    kernel = kernel.replace(epilogue=grid_products.Epilogue(low.nest, operand))
    params += low.params.block() + grid.launches(low).words
    locations = (gemm.a, gemm.b, *run.operands)
    found = Launched(entry, kernel, locations, params, grids, grid_products.aligned(kernel))
    return [found] if found.n_words <= GPU_WORDS else [gemm, run]


def _product_of(gemm: instructions.Gemm) -> grid_products.Product | None:
    return grid_products.product(gemm, dtype_of(gemm.source), dtype_of(gemm.result))


def _launched(entry: Any, inner: resident_loops.Inner | None, library: Any) -> Any:
    if isinstance(entry, Control) and inner is not None:
        if resident_cells.is_of_cells(entry):
            return resident_cells.resident_cells(entry, inner)
        return resident_loops.resident_loop(entry, inner) or entry
    if isinstance(entry, Run) and entry.lowered.gpu:
        return Launched(entry, entry.lowered.nest, entry.operands, *_of(entry.lowered))
    if isinstance(entry, Native) and grid.runs(entry.lowered.routine):
        routine, locations = entry.lowered.routine, tuple([location for location, _ in entry.locations])
        return Launched(entry, routine, locations, entry.params(), grid.launches_of(routine, entry.lowered.extents))
    if isinstance(entry, instructions.Gemm):
        by_library = library_products.product(entry, library)
        if by_library is not None:
            return by_library
        kernel = _product_of(entry)
        if kernel is not None:
            params, grids = grid_products.launches(kernel, entry)
            wide = grid_products.aligned(kernel)
            return Launched(entry, kernel, (entry.a, entry.b, entry.c), params, grids, wide)
        if dtype_of(entry.result).itemsize == 2:  # the host has no kernel that rounds (``products``)
            raise NotImplementedError(
                f"[compile] a product of {dtype_of(entry.source)} with 2**31 or more rows, columns, terms or tiles of "
                "its result is not built for GPUs; multiply parts of them"
            )
    if isinstance(entry, instructions.Sort):
        kernel = grid_sorts.sorting(entry)
        if kernel is not None:
            params, grids, scratch_bytes = grid_sorts.launches(kernel, entry)
            return Launched(entry, kernel, grid_sorts.locations(entry), params, grids, (), scratch_bytes)
    return entry
