"""Saved programs, written: what ``saved`` reads, made of a compiled program, its kernels and its constants.

The machine code of a kernel is what the cache on disk has of it, or is made anew from its nest.
"""

from __future__ import annotations

import os
from typing import Any

from weft import codegen, dtypes
from weft.compiler import pipeline
from weft.compiler.storage import cache, disk, saved, stored
from weft.core.caches.plain_values import NotPlainError
from weft.dispatch import devices
from weft.dispatch.programs import executables
from weft.dispatch.programs.ahead_of_time import Compiled


class _FileWriter(stored.ProgramWriter):
    """Kernels by their machine code, so that the file needs no other."""

    def __init__(self) -> None:
        super().__init__()
        self.most_constant_bytes = float("inf")

    def kernel(self, entry: cache.Compiled) -> int:
        return self.kernels.setdefault(_object_of(entry), len(self.kernels))


def _object_of(entry: cache.Compiled) -> tuple[bytes, str]:
    """(machine code, symbol) of a kernel."""
    if entry.nest is not None:
        made = codegen.compile_nest(entry.nest, entry.target)
        return made.bytes, made.symbol
    store = disk.current()
    found = store.load(entry.key) if store is not None and entry.key is not None else None
    if found is None:
        raise NotPlainError("the cache on disk, from which a kernel of it came, does not have that kernel any more")
    return found.bytes, found.symbol


def save(compiled: Compiled, path: Any) -> None:
    """Write a compiled program to a file (the target of a symbolic link), which appears whole or not at all."""
    content = to_bytes(compiled)
    if compiled.saved_trees() is None:
        raise NotImplementedError(
            "[save] the arguments or results are containers of your own, which no file can hold: use "
            "weft.experimental.serialize_executable.serialize, and give their structures to deserialize_and_load"
        )
    path = os.path.realpath(os.fsdecode(path))
    temporary = os.path.join(os.path.dirname(path), f".weft-{os.urandom(8).hex()}")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # less what the umask takes away
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def to_bytes(compiled: Compiled) -> bytes:
    """The content of the file; NotImplementedError, with the reason, for what cannot be saved."""
    arguments, bound = compiled.parts()
    writer = _FileWriter()
    try:
        program = _program(writer, bound)
        consts = writer.consts([devices.OWN.place(const) for const in bound.consts])
        facts = (
            arguments.trace.name, compiled.saved_trees(), [writer.aval(aval) for aval in arguments.avals],
            [writer.aval(aval) for aval in arguments.trace.out_avals], bound.kept, arguments.donated, bound.donated,
            arguments.paths(), *_device(bound), bound.place & 1,
        )  # fmt: skip
        for aval in writer.avals:
            if dtypes.is_extended(aval.dtype) and saved.key_dtype(aval.dtype.name) != aval.dtype:
                raise NotPlainError(f"{saved.OTHER_KEYS} ({aval.dtype.name})")
        return saved.pack(writer.content(program, consts, facts))
    except NotPlainError as reason:
        raise NotImplementedError(f"[save] {arguments.trace.name} cannot be saved: {reason}") from None


def _device(bound: executables.Compiled) -> tuple[str, int]:
    """(platform, number in it) of the device that a program is for."""
    if type(bound.place) is not int:
        raise NotPlainError("its results lie on several devices")
    device: Any = getattr(bound.program, "device", devices.CPU)
    backend = device.client
    return (device.platform if backend is None else backend.name), device.id


def _program(writer: _FileWriter, bound: executables.Compiled) -> Any:
    program = bound.program
    if program.compile_new is not None:
        program = program.whole()
    if isinstance(program, pipeline.Program) and program.stages.context.device:
        raise NotPlainError("it runs on a device whose programs are not kept in files")
    if isinstance(program, pipeline.Program):
        return writer.program(program)
    if hasattr(program, "steps"):
        raise NotPlainError("it has steps on the host, which call Python or libraries of this process")
    if hasattr(program, "native"):
        numbers = [[writer.aval(aval) for aval in avals] for avals in (program.in_avals, program.out_avals)]
        content = program.native.serialize()
        return ("plugin", *_device(bound), program.platform_version, content, program.name, *numbers)
    raise NotPlainError("it came from a file, and a file keeps only the machine code")
