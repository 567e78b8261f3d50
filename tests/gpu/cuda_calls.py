"""The test driver from Python, call by call, as its own tests need it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np


class DriverError(Exception):
    """A call of the driver failed; ``code`` is its CUresult."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code


class Driver:
    """The library at ``path`` with a context of device 0 and a stream. Every call goes through ``call``."""

    def __init__(self, path: str, device: int = 0) -> None:
        self.lib = ctypes.CDLL(path)
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.stream = self.handle("cuStreamCreate", 1)

    def code(self, name: str, *args: Any) -> int:
        return int(getattr(self.lib, name)(*args))

    def call(self, name: str, *args: Any) -> None:
        if code := self.code(name, *args):
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(name, code, (text.value or b"?").decode())

    def handle(self, name: str, *args: Any) -> ctypes.c_void_p:
        """What a call puts in its first argument."""
        out = ctypes.c_void_p()
        self.call(name, ctypes.byref(out), *args)
        return out

    def allocate(self, nbytes: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address

    def put(self, array: np.ndarray) -> ctypes.c_uint64:
        address = self.allocate(array.nbytes)
        data = array.ctypes.data_as(ctypes.c_void_p)
        self.call("cuMemcpyHtoDAsync_v2", address, data, ctypes.c_size_t(array.nbytes), self.stream)
        return address

    def fetch(self, address: ctypes.c_uint64, shape: Any, dtype: Any) -> np.ndarray:
        out = np.empty(shape, dtype)
        data = out.ctypes.data_as(ctypes.c_void_p)
        self.call("cuMemcpyDtoHAsync_v2", data, address, ctypes.c_size_t(out.nbytes), self.stream)
        self.call("cuStreamSynchronize", self.stream)
        return out

    def link(self, text: str) -> bytes:
        """What the driver's linker makes of a PTX text."""
        linker = ctypes.c_void_p()
        self.call("cuLinkCreate_v2", 0, None, None, ctypes.byref(linker))
        raw = text.encode() + b"\0"
        self.call("cuLinkAddData_v2", linker, 1, raw, ctypes.c_size_t(len(raw)), b"k", 0, None, None)
        image, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.call("cuLinkComplete", linker, ctypes.byref(image), ctypes.byref(size))
        found = ctypes.string_at(image, size.value)
        self.call("cuLinkDestroy", linker)
        return found

    def function(self, image: bytes, name: str) -> ctypes.c_void_p:
        module = self.handle("cuModuleLoadDataEx", image, 0, None, None)
        return self.handle("cuModuleGetFunction", module, name.encode())

    def parameters(self, args: Sequence[Any]) -> Any:
        values = [a if isinstance(a, ctypes._SimpleCData) else ctypes.c_int64(int(a)) for a in args]
        pointers: Any = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        pointers.kept = values
        return pointers

    def launch(self, function: ctypes.c_void_p, grid: int, block: int, *args: Any, shared: int = 0) -> int:
        """The code of a launch on the stream."""
        return self.code(
            "cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, self.stream, self.parameters(args), None
        )
