"""LLVM's code generator: text of one function in, a relocatable object or its assembly out.

No IR passes run: the text is already vectors. It is parsed and verified every time, because bad IR must raise and
never abort; a copy of the text lies in a crash file while LLVM runs, so that an abort leaves what made it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tempfile
import threading
from typing import Any

from weft import errors, lazy
from weft.target import Target

# Process-global switches of LLVM's code generator, each measured: together they take a third to a half off the
# compile time and cost no run time. Another user of llvmlite in the process compiles with them too.
SWITCHES = (
    "-disable-lsr",  # loop strength reduction: our addresses are already one add and one scaled index
    "-enable-misched=false",  # the machine scheduler; out-of-order cores do not need it
    "-disable-post-ra",  # post-register-allocation scheduling
    "-disable-machine-cse",  # the text repeats nothing worth finding
    "-disable-cgp",  # IR-level preparation of address modes
    "-disable-block-placement",  # blocks are written in order, cold ones marked
    "-disable-branch-fold",  # no equal tails
    "-disable-tail-duplicate",
    "-disable-early-taildup",
)

_lock = threading.Lock()
# a fork waits until LLVM is idle, so that the child finds neither the lock held nor LLVM's state half changed
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@functools.cache
def _binding() -> Any:
    """llvmlite.binding with the native target and our switches set."""
    binding = lazy.llvm
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    for switch in SWITCHES:
        binding.set_option("weft", switch)
    return binding


@functools.cache
def _machine(target: Target) -> Any:
    """The TargetMachine, made once (0.15 ms)."""
    binding = _binding()
    if target.triple.split("-")[0] != binding.get_default_triple().split("-")[0]:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    # optimisation level 0 aborts on mask registers; 2 and 3 are no faster than 1
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, reloc="pic", codemodel="small"
    )


def emit_object(text: str, target: Target, name: str) -> bytes:
    """The object file of a module."""
    with _lock:
        return _emit(text, name, lambda module: _machine(target).emit_object(module))


def emit_assembly(text: str, target: Target) -> str:
    """The assembly of a module."""
    with _lock:
        return _emit(text, "kernel", lambda module: _machine(target).emit_assembly(module))


def _emit(text: str, name: str, emit: Any) -> Any:
    binding, crash = _binding(), _crash_file()
    _remember(crash, text)
    try:
        context = binding.create_context()
        module = binding.parse_assembly(text, context)
        module.verify()
        return emit(module)
    except RuntimeError as error:
        message = f"[codegen] kernel {name} is not valid LLVM: {error}"
        raise errors.InternalError(message, stage="llvm", dump=dump(text)) from error
    finally:
        _remember(crash, "")


# what an abort leaves behind

_crash: tuple[int, int, str] | None = None  # process, descriptor, path


def crash_path(process: int) -> str:
    """Where process number ``process`` keeps the text that LLVM is working on."""
    folder = os.environ.get("WEFT_CRASH_DIR") or os.path.join(tempfile.gettempdir(), f"weft-{os.getuid()}")
    return os.path.join(folder, f"crash-{process}.ll")


def _crash_file() -> int:
    """An open file, removed when the process ends in good order."""
    global _crash
    process = os.getpid()
    if _crash is None or _crash[0] != process:  # after a fork the child has its own
        path = crash_path(process)
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.lstat(folder).st_uid != os.getuid():  # its owner could lead our writes elsewhere
            raise PermissionError(f"[codegen] {folder} is another user's; set WEFT_CRASH_DIR to a folder of yours.")
        _sweep(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        _crash = process, os.open(path, flags, 0o600), path
        atexit.register(_forget, process, path)
    return _crash[1]


def _sweep(folder: str) -> None:
    """Remove the empty files of processes that were killed outside LLVM."""
    for name in os.listdir(folder):
        number = name.removeprefix("crash-").removesuffix(".ll")
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if number.isdigit() and not os.path.exists(f"/proc/{number}") and os.path.getsize(path) == 0:
                os.unlink(path)


def _forget(process: int, path: str) -> None:
    if process == os.getpid() and os.path.exists(path):
        os.unlink(path)


def _remember(crash: int, text: str) -> None:
    data = text.encode()
    os.pwrite(crash, data, 0)
    os.ftruncate(crash, len(data))


def dump(text: str) -> str:
    """Write a text to a new file, for an error to name."""
    handle, path = tempfile.mkstemp(prefix="weft-kernel-", suffix=".ll")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path
