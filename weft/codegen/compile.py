"""Loops to machine code: the text of a nest through LLVM's code generator to a relocatable object.

LLVM runs no IR passes here: the text is already vectors. It is parsed and verified every time, because bad IR must
raise and never abort; a copy of the text lies in a crash file while LLVM runs, so that an abort leaves what made it.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
from dataclasses import dataclass
from typing import Any

from weft import errors, lazy, runtime
from weft.codegen import nest as nest_writer
from weft.loops import ir
from weft.target import Target

SYMBOL = "k"

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


@dataclass(frozen=True, slots=True)
class Object:
    """Machine code of one nest: a relocatable ELF object and the text it came from."""

    bytes: bytes
    symbol: str
    llvm_text: str


@functools.cache
def _llvm() -> Any:
    """llvmlite.binding with the native targets and our switches set."""
    binding = lazy.llvm
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    for switch in SWITCHES:
        binding.set_option("weft", switch)
    return binding


@functools.cache
def _machine(target: Target) -> Any:
    """The TargetMachine, made once (0.15 ms)."""
    binding = _llvm()
    if target.triple != binding.get_default_triple():
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    # optimisation level 0 aborts on mask registers; 2 and 3 are no faster than 1
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, reloc="pic", codemodel="small"
    )


def text_of(nest: ir.Nest, target: Target) -> str:
    """LLVM text of a nest."""
    return nest_writer.NestWriter(nest, target, helper_names()).text(SYMBOL)


@functools.cache
def helper_names() -> tuple[str, ...]:
    return tuple(runtime.helper_names())


def compile_nest(nest: ir.Nest, target: Target) -> Object:
    """Machine code for a nest; sizes are its run-time parameters."""
    return compile_text(text_of(nest, target), target, nest.name)


def compile_text(text: str, target: Target, name: str = "kernel") -> Object:
    """Machine code for one function written by ``NestWriter``."""
    binding, crash = _llvm(), _crash_file()
    with _lock:
        _remember(crash, text)
        try:
            context = binding.create_context()
            module = _parse(binding, text, name, context)
            return Object(_machine(target).emit_object(module), SYMBOL, text)
        finally:
            _remember(crash, "")


def _parse(binding: Any, text: str, name: str, context: Any) -> Any:
    try:
        module = binding.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        message = f"[codegen] kernel {name} is not valid LLVM: {error}"
        raise errors.InternalError(message, stage="llvm", dump=_dump(text)) from error
    return module


def assembly(compiled: Object, target: Target) -> str:
    """The assembly of a compiled nest."""
    binding = _llvm()
    with _lock:
        context = binding.create_context()
        return _machine(target).emit_assembly(_parse(binding, compiled.llvm_text, "kernel", context))


# what an abort leaves behind


@functools.cache
def _crash_file() -> int:
    """A file that is unlinked unless the process dies: its name holds the process id."""
    folder = os.environ.get("WEFT_CRASH_DIR") or os.path.join(tempfile.gettempdir(), f"weft-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, f"crash-{os.getpid()}.ll")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)


def _remember(crash: int, text: str) -> None:
    data = text.encode()
    os.pwrite(crash, data, 0)
    os.ftruncate(crash, len(data))


def _dump(text: str) -> str:
    handle, path = tempfile.mkstemp(prefix="weft-kernel-", suffix=".ll")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return path
