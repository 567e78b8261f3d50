"""The PTX machine from Python: texts are loaded, kernels launched on arrays, with checks and counts."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tests.gpu.native_build import HERE, Part, build, machine

UNINITIALISED, RACES, DIVERGENCE, WRITTEN_ONCE = 1, 2, 4, 8
ALL_CHECKS = UNINITIALISED | RACES | DIVERGENCE
PIPES = ("fma", "alu", "integer", "special", "fp64", "memory", "control", "tensor")
ROOM = 4000


class MachineError(Exception):
    """What the machine found wrong with a text or a launch; ``kind`` says which check."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Options(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("checks", "resident", "counted", "shared")] + [
        (name, ctypes.c_uint64) for name in ("seed", "steps", "blocks")
    ]


_WHOLE = ("instructions", "accesses", "sectors", "bytes", "read_sectors", "written_sectors", "atomics")
_WHOLE += ("shared_accesses", "shared_passes", "blocks", "code_bytes")


class Counts(ctypes.Structure):
    """What a launch did; sectors have 32 bytes, slots are instructions of the hardware for each pipe, of warps."""

    _fields_ = [
        ("slots", ctypes.c_double * len(PIPES)),
        ("issued", ctypes.c_double),
        ("block_cycles", ctypes.c_double),
        ("longest_cycles", ctypes.c_double),
    ] + [(name, ctypes.c_uint64) for name in _WHOLE]


class Entry(NamedTuple):
    """What a text says of a kernel."""

    max_threads: int
    min_blocks: int
    shared_bytes: int
    local_bytes: int
    param_bytes: int
    is_entry: int


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    path = build("libptxmachine.so", [machine(), Part([HERE / "machine" / "interface.cpp"], [])], [])
    lib = ctypes.CDLL(str(path))
    lib.machine_load.restype = ctypes.c_void_p
    lib.machine_allocate.restype = ctypes.c_uint64
    lib.machine_symbol.restype = ctypes.c_uint64
    lib.machine_touched.restype = ctypes.c_uint64
    return lib


class Buffer:
    """Device memory: new, or a copy of an array."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address: int = library().machine_allocate(ctypes.c_uint64(nbytes))
        assert self.address, f"the machine's device has no room for {nbytes} bytes"
        weakref.finalize(self, library().machine_free, ctypes.c_uint64(self.address))

    @classmethod
    def of(cls, array: np.ndarray) -> Buffer:
        array = np.ascontiguousarray(array)
        buffer = cls(array.nbytes)
        buffer.write(array)
        return buffer

    def write(self, array: np.ndarray) -> None:
        done = library().machine_write(
            ctypes.c_uint64(self.address), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(array.nbytes)
        )
        assert done == 0

    def read(self, shape: Any, dtype: Any) -> np.ndarray:
        out = np.empty(shape, dtype)
        done = library().machine_read(
            ctypes.c_uint64(self.address), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(out.nbytes)
        )
        assert done == 0
        return out

    def touched(self) -> tuple[int, int]:
        """Sectors that the last counted launch read and wrote."""
        read, written = (library().machine_touched(ctypes.c_uint64(self.address), k) for k in (0, 1))
        return read, written

    def is_written(self) -> bool:
        """Whether every byte was written."""
        return library().machine_unwritten(ctypes.c_uint64(self.address), ctypes.c_uint64(self.nbytes)) == 0


class Module:
    """A PTX text in the machine; ``approximate``: instructions whose last bits are the hardware's are taken."""

    def __init__(self, text: str, approximate: bool = False) -> None:
        error = ctypes.create_string_buffer(ROOM)
        self.text = text
        self.handle = library().machine_load(text.encode(), int(approximate), error, ctypes.c_size_t(ROOM))
        if not self.handle:
            raise MachineError("text", error.value.decode())
        weakref.finalize(self, library().machine_unload, ctypes.c_void_p(self.handle))

    def entry(self, name: str) -> Entry:
        values = (ctypes.c_uint32 * 6)()
        if library().machine_function(ctypes.c_void_p(self.handle), name.encode(), values):
            raise MachineError("text", f"there is no function {name}")
        return Entry(*values)

    def names(self) -> list[str]:
        text = ctypes.create_string_buffer(1 << 16)
        library().machine_names(ctypes.c_void_p(self.handle), text, ctypes.c_size_t(1 << 16))
        return text.value.decode().split()

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        checks: int = ALL_CHECKS,
        shared: int = 0,
        seed: int = 0,
        resident: int = 8,
        steps: int = 0,
        blocks: int = 0,
        counted: int = 0,
    ) -> Counts:
        """Runs a kernel. Arguments are buffers, int (64 bits) and NumPy scalars.

        ``counted``: 1: loads come from memory, 2: from the second-level cache, where times are concerned.
        """
        params = b""
        for argument in arguments:
            if isinstance(argument, Buffer):
                value = np.uint64(argument.address)
            elif isinstance(argument, int):
                value = np.int64(argument)
            else:
                value = argument
            raw = value.tobytes()
            params += b"\0" * (-len(params) % len(raw)) + raw
        options = _Options(checks, resident, int(counted), shared, seed, steps, blocks)
        counts, kind, error = Counts(), ctypes.create_string_buffer(64), ctypes.create_string_buffer(ROOM)
        given = (name.encode(), _three(grid), _three(block), params, ctypes.c_uint64(len(params)))
        out = (ctypes.byref(counts), kind, error, ctypes.c_size_t(ROOM))
        failed = library().machine_launch(ctypes.c_void_p(self.handle), *given, ctypes.byref(options), *out)
        if failed:
            raise MachineError(kind.value.decode(), error.value.decode())
        return counts


def _three(extent: int | Sequence[int]) -> Any:
    extents = [extent] if isinstance(extent, int) else list(extent)
    return (ctypes.c_uint32 * 3)(*[*extents, 1, 1][:3])
