"""Runs LLVM's code generator: from the text of a module to a relocatable object or its assembly.

No IR passes run: the text already has vectors. It is parsed and verified every time, because bad IR must raise and
never abort. While LLVM runs, the text is in a crash file, so that after an abort it can be examined.

Several threads compile at once. Each has its own ``_Compiler``: a target machine, a context for every module, a crash
file. llvmlite holds one lock around each of its calls; long calls avoid it (``llvm_calls``).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from weft import errors, runtime
from weft._base import forks, lazy, private_files
from weft._base.target import Target
from weft.codegen import llvm_calls
from weft.codegen.cpu.llvm_switches import SWITCHES

LEVEL = 1  # optimisation level: 2 and 3 give no faster code

# LLVM aborts the process if it gets no memory. Measured need: up to 6 MB, and 65 bytes per byte of text.
COMPILE_BYTES, BYTES_OF_TEXT = 16 << 20, 200

COMPILERS = 8  # threads that compile at once; more would gain little and take memory


class _Compiler:
    """The objects that one compilation uses; one thread at a time holds them."""

    def __init__(self, number: int) -> None:
        self.number, self.lock = number, forks.held("llvm")
        self.machines: dict[Target, Any] = {}
        self.crash: tuple[int, int | None] | None = None  # process, descriptor

    def machine(self, target: Target) -> Any:
        """The TargetMachine, made once (0.15 ms)."""
        if target not in self.machines:
            self.machines[target] = _new_machine(target)
        return self.machines[target]


# a fork waits until LLVM is idle, so that the child finds LLVM's state consistent
_compilers = [_Compiler(number) for number in range(COMPILERS)]
_loading = forks.held("llvm")  # taken by threads that have one


@contextlib.contextmanager
def _held_compiler() -> Iterator[_Compiler]:
    """Hold a free compiler; wait for the first one if none is free."""
    compiler = next((one for one in _compilers if one.lock.acquire(blocking=False)), None)
    if compiler is None:
        compiler = _compilers[0]
        compiler.lock.acquire()
    try:
        yield compiler
    finally:
        compiler.lock.release()


@functools.cache
def _binding() -> Any:
    """llvmlite.binding with the native target; our switches are set while we emit from now on."""
    binding = lazy.llvm
    ours = [f"-{name}={our}" for name, (our, _) in SWITCHES.items()]
    llvm_calls.install_switches(ours, [f"-{name}={own}" for name, (_, own) in SWITCHES.items()])
    binding.ffi.register_lock_callback(runtime.llvm_lock_taken, runtime.llvm_lock_released)
    # These take llvmlite's lock, so that no thread holds it from before the callbacks were installed.
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _new_machine(target: Target) -> Any:
    """A TargetMachine, made through llvmlite on a thread of its own.

    There no interrupt is raised: one within the Python code that takes llvmlite's lock would leave it taken, and all
    later emissions would wait for its release.
    """
    made: list[Any] = []
    failed: list[BaseException] = []

    def make() -> None:
        try:
            made.append(_make_machine(target))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="weft-llvm")
    try:
        thread.start()
    except RuntimeError:  # no thread can be started: limits, or the interpreter is ending
        make()
    else:
        thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _make_machine(target: Target) -> Any:
    with _loading:
        binding = _binding()
        if target.triple.split("-")[0] != binding.get_default_triple().split("-")[0]:
            binding.initialize_all_targets()
            binding.initialize_all_asmprinters()
        return binding.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=LEVEL, reloc="pic", codemodel="small"
        )


def emit_object(text: str, target: Target, name: str) -> bytes:
    """The object file of a module."""
    return _emit(text, target, name, llvm_calls.object_of)


def emit_assembly(text: str, target: Target) -> str:
    """The assembly of a module."""
    return _emit(text, target, "kernel", llvm_calls.assembly_of).decode()


def _emit(text: str, target: Target, name: str, emit: Callable[[bytes, Any], bytes]) -> bytes:
    data = text.encode()
    _check_memory(COMPILE_BYTES + BYTES_OF_TEXT * len(data), name)
    with _held_compiler() as compiler:
        machine, crash = compiler.machine(target), _crash_file(compiler)
        _remember(crash, data)
        try:
            return emit(data, machine)
        except llvm_calls.RefusedError as error:
            message = f"[codegen] kernel {name} is not valid LLVM: {error}"
            raise errors.InternalError(message, stage="llvm", dump=dump(text)) from error
        finally:
            _remember(crash, b"")


def _check_memory(nbytes: int, name: str) -> None:
    """Raise OutOfMemoryError where LLVM might abort the process."""
    if runtime.has_memory(nbytes):
        return
    runtime.trim_memory()
    if not runtime.has_memory(nbytes):
        raise errors.OutOfMemoryError(
            f"RESOURCE_EXHAUSTED: Out of memory: [{name}] compiling this kernel may take {nbytes} bytes, which the "
            "system does not give to this process (ulimit -v, or the memory of all processes)."
        )


# crash files


def crash_path(process: int, number: int = 0) -> str:
    """The file with the text that LLVM is compiling, in compiler ``number`` of a process."""
    folder = os.environ.get("WEFT_CRASH_DIR") or os.path.join(tempfile.gettempdir(), f"weft-{os.getuid()}")
    return os.path.join(folder, f"crash-{process}{f'-{number}' if number else ''}.ll")


def _crash_file(compiler: _Compiler) -> int | None:
    """An open file, removed at a normal exit; None if no folder is writable."""
    process = os.getpid()
    if compiler.crash is None or compiler.crash[0] != process:  # after a fork the child has its own
        compiler.crash = process, None
        with contextlib.suppress(OSError):
            compiler.crash = process, _open_crash_file(crash_path(process, compiler.number))
    return compiler.crash[1]


def _open_crash_file(path: str) -> int:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    why = private_files.danger(folder)
    if why is not None:
        private_files.warn_of(folder, why, "crash files", "WEFT_CRASH_DIR")
        raise PermissionError(why)
    _sweep(folder)
    handle = private_files.open_own(path, os.O_RDWR)
    os.ftruncate(handle, 0)
    atexit.register(_forget, os.getpid(), path)
    return handle


def _sweep(folder: str) -> None:
    """Remove the empty files of processes that were killed outside LLVM."""
    for name in os.listdir(folder):
        number = name.removeprefix("crash-").removesuffix(".ll").partition("-")[0]
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if number.isdigit() and not os.path.exists(f"/proc/{number}") and os.path.getsize(path) == 0:
                os.unlink(path)


def _forget(process: int, path: str) -> None:
    if process == os.getpid() and os.path.exists(path):
        os.unlink(path)


def _remember(crash: int | None, data: bytes) -> None:
    if crash is not None:
        with contextlib.suppress(OSError):  # the disk is full
            os.pwrite(crash, data, 0)
            os.ftruncate(crash, len(data))


def dump(text: str) -> str:
    """Write a text to a new file, whose path an error shows."""
    handle, path = tempfile.mkstemp(prefix="weft-kernel-", suffix=".ll")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path
