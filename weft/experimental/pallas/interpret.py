"""InterpretParams: what ``interpret`` of ``pallas_call`` may ask for besides running the cells one after the other."""

from __future__ import annotations

from typing import Any

from weft._base.record import Record


class InterpretParams(Record):
    """Run a kernel cell by cell.

    ``out_of_bounds_reads``: ``"raise"`` for an error with the reference and the index, ``"uninitialized"`` for the
    nearest element. ``uninitialized_memory``: what has not been written is ``"nan"`` (the least integer) or ``"zero"``.
    The other options are for a TPU's cores and change nothing.
    """

    detect_races: bool = False
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Any = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"


def enable_poison_buffers(new_val: bool = True) -> None:
    """Fill what nobody has written with NaN: it always is."""
    del new_val
