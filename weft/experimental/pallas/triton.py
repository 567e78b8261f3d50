"""weft.experimental.pallas.triton: masked accesses and atomic updates, and the parameters of kernels for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from weft import operations as lax
from weft._base.record import Record
from weft.experimental.pallas import masked
from weft.experimental.pallas.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
)
from weft.experimental.pallas.inside import dot

__all__ = [
    "CompilerParams", "approx_tanh", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor", "debug_barrier", "dot", "elementwise_inline_asm", "load", "max_contiguous", "store",
]  # fmt: skip


class CompilerParams(Record):
    """Hints for a GPU: how many warps run a cell, and in how many stages loads are pipelined. They change no result."""

    num_warps: int | None = None
    num_stages: int | None = None


def load(
    ref: Any, *, mask: Any = None, other: Any = None, cache_modifier: str | None = None,
    eviction_policy: str | None = None, volatile: bool = False,
) -> Any:  # fmt: skip
    """All of a reference or of a part of one (``ref.at[idx]``); ``other`` where ``mask`` is False.

    What is masked off may lie outside of the array. The remaining options are hints, which change no result.
    """
    return masked.load(ref, ..., mask=mask, other=other)


def store(ref: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> None:
    """Write ``val`` to a reference, or a part of one (``ref.at[idx]``), where ``mask`` is True."""
    masked.store(ref, ..., val, mask=mask)


def debug_barrier() -> None:
    """All of a cell's work before comes before all after: so it is here."""


def approx_tanh(x: Any) -> Any:
    """tanh, which a GPU may approximate; here with all bits."""
    return lax.tanh(x)


def max_contiguous(x: Any, values: Sequence[int] | int) -> Any:
    """``x``. The user says that so many of its values follow each other: a hint, which changes no result."""
    del values
    return x


def elementwise_inline_asm(asm: str, *, args: Any, constraints: str, pack: int, result_shape_dtypes: Any) -> NoReturn:
    """Assembly in a kernel: NotImplementedError, since a kernel of weft runs on processors of several kinds."""
    raise NotImplementedError(
        "pallas.triton.elementwise_inline_asm: assembly of one processor would not run on the others; write the "
        f"operation with weft.numpy or weft.lax instead of {asm!r}"
    )
