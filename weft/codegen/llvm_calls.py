"""The long calls into LLVM (parse, verify, emit), made without llvmlite's lock so that threads compile side by side.

llvmlite's own functions hold a lock while LLVM works. Here its C functions are called directly, with the signatures
that llvmlite declares for them (its version is pinned). LLVM allows this, since every module has its own context and no
two threads share a target machine.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from weft import lazy


class RefusedError(RuntimeError):
    """LLVM does not take the text."""


@functools.cache
def _call(name: str) -> Any:
    """A C function of llvmlite, without its lock."""
    return getattr(lazy.llvm.ffi.lib, name)._cfn


def object_of(text: bytes, machine: Any) -> bytes:
    """The relocatable object of a module."""
    return _emit(text, machine, 1)


def assembly_of(text: bytes, machine: Any) -> bytes:
    """The assembly of a module."""
    return _emit(text, machine, 0)


def _emit(text: bytes, machine: Any, is_object: int) -> bytes:
    context, module = _call("LLVMPY_ContextCreate")(), None
    try:
        with _Said() as said:
            module = _call("LLVMPY_ParseAssembly")(context, text, said.address)
            if not module or said.text:
                raise RefusedError(f"LLVM IR parsing error\n{said.text}")
        with _Said() as said:
            if _call("LLVMPY_VerifyModule")(module, said.address):
                raise RefusedError(said.text)
        with _Said() as said:
            buffer = _call("LLVMPY_TargetMachineEmitToMemory")(machine, module, is_object, said.address)
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


class _Said:
    """The message of a call into LLVM."""

    def __enter__(self) -> _Said:
        self._message = ctypes.c_char_p(None)
        self.address = ctypes.byref(self._message)
        return self

    @property
    def text(self) -> str:
        return (self._message.value or b"").decode(errors="replace")

    def __exit__(self, *_: object) -> None:
        if self._message:
            _call("LLVMPY_DisposeString")(self._message)
