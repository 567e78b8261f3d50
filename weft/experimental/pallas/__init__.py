"""weft.experimental.pallas: kernels on references to blocks of arrays, run on every cell of a grid, under JAX's names.

A kernel is traced on references, made a program of values, and run by ``control.grid_loop``, which compiles it on every
processor. ``call`` has ``pallas_call``, ``blocks`` the specs, ``specs`` what is made of them.
"""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt

if _typing.TYPE_CHECKING:
    from weft.control.grid_loop import grid_loop_p as pallas_call_p
    from weft.effects.ref_indexing import Slice as Slice, ds as ds, ds as dslice
    from weft.experimental.pallas import tpu as tpu, triton as triton
    from weft.experimental.pallas.blocks import (
        BlockDim as BlockDim,
        Blocked as Blocked,
        BlockSpec as BlockSpec,
        BoundedSlice as BoundedSlice,
        Buffered as Buffered,
        Element as Element,
        GridSpec as GridSpec,
        Indirect as Indirect,
        RevisitMode as RevisitMode,
        Squeezed as Squeezed,
        no_block_spec as no_block_spec,
        squeezed as squeezed,
    )
    from weft.experimental.pallas.call import pallas_call as pallas_call
    from weft.experimental.pallas.cells import (
        get_global as get_global,
        num_programs as num_programs,
        program_id as program_id,
    )
    from weft.experimental.pallas.costs import CostEstimate as CostEstimate, estimate_cost as estimate_cost
    from weft.experimental.pallas.inside import (
        align_to as align_to,
        broadcast_to as broadcast_to,
        cdiv as cdiv,
        debug_check as debug_check,
        debug_checks_enabled as debug_checks_enabled,
        debug_print as debug_print,
        delay as delay,
        dot as dot,
        enable_debug_checks as enable_debug_checks,
        loop as loop,
        multiple_of as multiple_of,
        next_power_of_2 as next_power_of_2,
        pallas_export_experimental as pallas_export_experimental,
        reciprocal as reciprocal,
        strides_from_shape as strides_from_shape,
        when as when,
    )
    from weft.experimental.pallas.interpret import enable_poison_buffers as enable_poison_buffers
    from weft.experimental.pallas.masked import load as load, store as store, swap as swap
    from weft.experimental.pallas.meshes import core_map as core_map, kernel as kernel
    from weft.experimental.pallas.scoped import (
        empty as empty,
        empty_like as empty_like,
        empty_ref_like as empty_ref_like,
        run_scoped as run_scoped,
        run_state as run_state,
        select_ref as select_ref,
        with_scoped as with_scoped,
    )
    from weft.experimental.pallas.semaphores import (
        DeviceIdType as DeviceIdType,
        semaphore as semaphore,
        semaphore_read as semaphore_read,
        semaphore_signal as semaphore_signal,
        semaphore_wait as semaphore_wait,
    )
    from weft.experimental.pallas.spaces import (
        ANY as ANY,
        HOST as HOST,
        MemoryRef as MemoryRef,
        MemorySpace as MemorySpace,
    )

# Modules are loaded when one of their names is first used; the imports above say the same to type checkers.
_NAMES = _lazy.Names(
    "weft.experimental.pallas",
    {
        "control.grid_loop": "pallas_call_p",
        "effects.ref_indexing": "Slice ds dslice",
        "experimental.pallas.blocks": """
            BlockDim Blocked BlockSpec BoundedSlice Buffered Element GridSpec Indirect
            RevisitMode Squeezed no_block_spec squeezed""",
        "experimental.pallas.call": "pallas_call",
        "experimental.pallas.cells": "get_global num_programs program_id",
        "experimental.pallas.costs": "CostEstimate estimate_cost",
        "experimental.pallas.inside": """
            align_to broadcast_to cdiv debug_check debug_checks_enabled debug_print delay dot
            enable_debug_checks loop multiple_of next_power_of_2 pallas_export_experimental
            reciprocal strides_from_shape when""",
        "experimental.pallas.interpret": "enable_poison_buffers",
        "experimental.pallas.masked": "load store swap",
        "experimental.pallas.meshes": "core_map kernel",
        "experimental.pallas.scoped": "empty empty_like empty_ref_like run_scoped run_state select_ref with_scoped",
        "experimental.pallas.semaphores": "DeviceIdType semaphore semaphore_read semaphore_signal semaphore_wait",
        "experimental.pallas.spaces": "ANY HOST MemoryRef MemorySpace",
    },
    renamed={"pallas_call_p": "grid_loop_p", "dslice": "ds"},
    submodules="tpu triton",
)  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.experimental.pallas", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})
