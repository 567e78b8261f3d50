"""Semaphores: counts from zero on, in references of int32. Cells run one after the other, so that none ever waits."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from weft.effects import refs
from weft.experimental.pallas import cells, remote, spaces
from weft.operations.pointwise.convert import convert


class DeviceIdType(enum.Enum):
    """How a device is named in ``semaphore_signal``: by its coordinates on a mesh, or by its number."""

    MESH = "mesh"
    LOGICAL = "logical"


class semaphore:
    """The dtype of semaphores, by name."""


def _count(x: Any) -> Any:
    return convert(x, np.dtype(np.int32), False)


def semaphore_read(sem_or_view: Any) -> Any:
    """The count of a semaphore (``sem`` or ``sems.at[i]``), an int32."""
    return refs.get(_checked(sem_or_view))


def semaphore_signal(
    sem_or_view: Any, inc: Any = 1, *, device_id: Any = None, device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
) -> None:  # fmt: skip
    """Add ``inc`` to the count; with ``device_id``, as in ``make_async_remote_copy``, to that of another device, inside
    of ``shard_map``. There is one core, of index 0.
    """
    if not (core_index is None or (isinstance(core_index, int) and core_index == 0)):
        raise NotImplementedError("pallas.semaphore_signal to another core: kernels of weft run on one")
    if device_id is not None:
        inc = remote.counts(inc, remote.number_of(device_id, device_id_type is DeviceIdType.MESH))
    refs.addupdate(_checked(sem_or_view), ..., _count(inc))


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Subtract ``value`` from the count (with ``decrement``).

    On a device it waits until the count has reached ``value``. Here all that a cell could wait for has run before.
    """
    if decrement:
        refs.addupdate(_checked(sem_or_view), ..., _count(-value))


def get_barrier_semaphore() -> Any:
    """A semaphore that all cells of a kernel share, zero when the first one begins."""
    return cells.get_global(spaces.SemaphoreType.REGULAR)


def _checked(sem: Any) -> Any:
    if getattr(sem, "shape", ()) != ():
        raise ValueError(f"[semaphore] takes one, as sems.at[i], got an array of them of shape {sem.shape}")
    return sem
