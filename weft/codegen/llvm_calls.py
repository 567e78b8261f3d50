"""Long calls into LLVM (parse, verify, emit) without llvmlite's lock, so that several threads compile in parallel.

llvmlite's own functions hold a lock while LLVM works. Here the C functions of its library (whose version is pinned) are
called directly. LLVM allows this: every module has its own context, and no two threads share a target machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

from weft import runtime
from weft._base import lazy

# C function: (type of the result, types of the arguments); a pointer to an LLVM object is a c_void_p
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "LLVMPY_ContextCreate": (c_void_p, ()),
    "LLVMPY_ContextDispose": (None, (c_void_p,)),
    "LLVMPY_ParseAssembly": (c_void_p, (c_void_p, c_char_p, POINTER(c_char_p))),
    "LLVMPY_VerifyModule": (c_int, (c_void_p, POINTER(c_char_p))),
    "LLVMPY_DisposeModule": (None, (c_void_p,)),
    "LLVMPY_TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, POINTER(c_char_p))),
    "LLVMPY_SetCommandLine": (None, (c_char_p, c_char_p)),
    "LLVMPY_GetBufferStart": (c_void_p, (c_void_p,)),
    "LLVMPY_GetBufferSize": (c_size_t, (c_void_p,)),
    "LLVMPY_DisposeMemoryBuffer": (None, (c_void_p,)),
    "LLVMPY_DisposeString": (None, (c_char_p,)),
}


class RefusedError(RuntimeError):
    """LLVM rejected the text."""


@functools.cache
def _library() -> ctypes.CDLL:
    """llvmlite's library: the one that llvmlite has loaded, with our own prototypes."""
    folder = os.path.dirname(lazy.llvm.__file__)
    library = ctypes.CDLL(os.path.join(folder, lazy.llvmlite_utils.get_library_name()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _call(name: str) -> Any:
    """A C function of llvmlite's library, without llvmlite's lock."""
    return getattr(_library(), name)


def _address(name: str) -> int:
    return _pointer(_call(name))


def _pointer(reference: Any) -> int:
    """The address that a ctypes pointer, a function or one of llvmlite's objects holds."""
    return ctypes.cast(reference, c_void_p).value or 0


def install_switches(ours: list[str], theirs: list[str]) -> None:
    """Set the switches for our emissions, and the values for all other users of llvmlite."""
    runtime.llvm_install_switches(_address("LLVMPY_SetCommandLine"), ours, theirs)


def object_of(text: bytes, machine: Any) -> bytes:
    """The relocatable object of a module."""
    return _emit(text, machine, 1)


def assembly_of(text: bytes, machine: Any) -> bytes:
    """The assembly of a module."""
    return _emit(text, machine, 0)


def _emit(text: bytes, machine: Any, is_object: int) -> bytes:
    context, module = _call("LLVMPY_ContextCreate")(), None
    try:
        with _Message() as said:
            module = _call("LLVMPY_ParseAssembly")(context, text, said.address)
            if not module or said.text:
                raise RefusedError(f"LLVM IR parsing error\n{said.text}")
        with _Message() as said:
            if _call("LLVMPY_VerifyModule")(module, said.address):
                raise RefusedError(said.text)
        with _Message() as said:
            # in native code: no Python runs while LLVM's switches have our values
            emitter, message = _address("LLVMPY_TargetMachineEmitToMemory"), ctypes.addressof(said.message)
            buffer = runtime.llvm_emit(emitter, _pointer(machine), module, is_object, message)
            if not buffer:
                raise RefusedError(said.text)
        try:
            size = _call("LLVMPY_GetBufferSize")(buffer)
            return ctypes.string_at(_call("LLVMPY_GetBufferStart")(buffer), size)
        finally:
            _call("LLVMPY_DisposeMemoryBuffer")(buffer)
    finally:
        if module:
            _call("LLVMPY_DisposeModule")(module)
        _call("LLVMPY_ContextDispose")(context)


class _Message:
    """The message of an LLVM call."""

    def __enter__(self) -> _Message:
        self.message = c_char_p(None)
        self.address = ctypes.byref(self.message)
        return self

    @property
    def text(self) -> str:
        return (self.message.value or b"").decode(errors="replace")

    def __exit__(self, *_: object) -> None:
        if self.message:
            _call("LLVMPY_DisposeString")(self.message)
