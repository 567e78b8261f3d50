"""InterpretParams: what ``interpret`` of ``pallas_call`` may ask for besides running the cells one after the other."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from weft import config
from weft._base.record import Record

_WORDS = {
    "out_of_bounds_reads": ("raise", "uninitialized"),
    "uninitialized_memory": ("nan", "zero"),
    "uninitialized_reads": ("allow", "raise"),
}


class InterpretParams(Record):
    """Run a kernel cell by cell on the host, with checks: IndexError names the cell, the line and the index.

    A write outside of a reference is an error, and so is a block that does not exist. A read outside is an error, or
    with ``out_of_bounds_reads="uninitialized"`` gives what memory holds that nobody has written: NaN (for integers the
    least one), or zero with ``uninitialized_memory="zero"``. ``uninitialized_reads="raise"`` forbids to read it.
    ``grid_point_recorder`` is called with the numbers of each cell and 0. Cells that differ along a parallel axis and
    write one element are an error, and so is a wait for a semaphore of ``scratch_shapes`` that nobody has signalled.
    The other options are for a TPU's cores and change nothing.

    >>> def kernel(x_ref, out_ref):
    ...     out_ref[...] = x_ref[pallas.ds(pallas.program_id(0) + 2, 2)]
    >>> out = weft.ShapeDtypeStruct((2,), "float32")
    >>> pallas.pallas_call(kernel, out, grid=1, interpret=pallas.tpu.InterpretParams())(jnp.ones(3))
    Traceback (most recent call last):
        ...
    IndexError: [pallas_call] cell (0,) ...: the kernel reads outside of the reference args[0] of shape (3,)
    """

    detect_races: bool = False
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    uninitialized_reads: str = "allow"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Any = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"

    def check(self) -> None:
        """ValueError for a word that is none."""
        for name, legal in _WORDS.items():
            if getattr(self, name) not in legal:
                raise ValueError(f"[InterpretParams] {name} is one of {legal}, got {getattr(self, name)!r}")


def enable_poison_buffers(new_val: bool = True) -> None:
    """For JAX's programs, without effect: memory that nobody has written is always filled with NaN."""
    del new_val


_PLAIN = InterpretParams()


def force_tpu_interpret_mode(params: InterpretParams = _PLAIN) -> AbstractContextManager[None]:
    """Within, on this thread, kernels that are made are run cell by cell with checks, whatever they ask for.

    >>> with pallas.tpu.force_tpu_interpret_mode():
    ...     pallas.pallas_call(lambda o: None, weft.ShapeDtypeStruct((2,), "float32"))()
    Array([nan, nan], dtype=float32)
    """
    return config.context("pallas_tpu_interpret_mode", params)


def set_tpu_interpret_mode(params: InterpretParams | None = _PLAIN) -> None:
    """``force_tpu_interpret_mode`` from now on; None ends it."""
    config.update("pallas_tpu_interpret_mode", params)


def reset_tpu_interpret_mode_state() -> None:
    """For JAX's programs, without effect: a kernel that was stopped by an error leaves no state behind."""
