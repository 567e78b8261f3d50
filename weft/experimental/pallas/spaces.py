"""Memory spaces, and the types of the references that ``scratch_shapes`` and ``run_scoped`` ask for.

A processor's caches are its own affair, so that the space of a reference changes no result; it is kept, and printed.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft._base.record import Record
from weft.control import grid_blocks
from weft.core.ref_types import BLOCK, AbstractRef
from weft.operations.data_movement import assemble


class Space(enum.Enum):
    """A memory. Called with a shape and a dtype it is the type of a reference: ``ANY((8,), "float32")``."""

    def __str__(self) -> str:
        return self.value

    def __call__(self, shape: Any, dtype: Any) -> MemoryRef:
        return memory_ref(shape, dtype, self)


class MemorySpace(Space):
    """Where a block lies."""

    ANY = "any"
    DEFAULT = "default"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"


ANY, HOST = MemorySpace.ANY, MemorySpace.HOST


class MemoryRef(Record):
    """The type of a reference that a kernel gets: of an array, in a memory space."""

    inner_aval: Any
    memory_space: Any

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)

    def get_array_aval(self) -> Any:
        return self.inner_aval

    def get_ref_aval(self) -> AbstractRef:
        return AbstractRef(self.inner_aval, self.memory_space, BLOCK)


def memory_ref(shape: Any, dtype: Any, space: Any) -> MemoryRef:
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    known = dtypes.as_dtype(dtype)
    if isinstance(known, np.dtype):
        known = dtypes.canonicalize_dtype(known)
    return MemoryRef(runtime.ShapedArray(extents, known), space)


class Semaphores(enum.Enum):
    """The memory space of semaphores."""

    SEMAPHORE = "semaphore"


class SemaphoreType(enum.Enum):
    """Kinds of semaphores: a count from zero on. Called with a shape, an array of them."""

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: tuple[int, ...] = ()) -> MemoryRef:
        return memory_ref(shape, np.int32, Semaphores.SEMAPHORE)


def is_semaphore(aval: AbstractRef) -> bool:
    return aval.memory_space is Semaphores.SEMAPHORE


def ref_type(asked: Any, what: str) -> AbstractRef:
    """The type of the reference that an entry of ``scratch_shapes``, or of ``run_scoped``, asks for."""
    if isinstance(asked, SemaphoreType):
        asked = asked(())
    if isinstance(asked, AbstractRef):
        return asked
    if isinstance(asked, MemoryRef):
        return asked.get_ref_aval()
    if hasattr(asked, "shape") and hasattr(asked, "dtype"):
        return memory_ref(asked.shape, asked.dtype, MemorySpace.ANY).get_ref_aval()
    raise TypeError(
        f"{what} asks for {asked!r}: ask for an array by its shape and dtype, as weft.ShapeDtypeStruct, "
        "pallas.ANY(shape, dtype) and pallas.tpu.VMEM(shape, dtype) do, or for a semaphore"
    )


def undefined(shape: tuple[int, ...], dtype: Any) -> Any:
    """What memory holds that nobody has written: NaN, or the least integer; False; zero where there is neither."""
    return assemble.full(shape, grid_blocks.unset(dtype), dtype)


def first_value(aval: AbstractRef) -> Any:
    """The value of a reference that has just been made: semaphores are zero, the rest undefined."""
    if is_semaphore(aval):
        return assemble.full(aval.shape, 0, aval.dtype)
    return undefined(aval.shape, aval.dtype)
