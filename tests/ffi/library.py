"""The foreign functions of handlers.cc, compiled once for each state of source and headers, and registered."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.gpu.native_build import cache_folder, compiler

SOURCE = Path(__file__).parent / "handlers.cc"
TYPED = [
    "scale_shift",
    "rms_norm",
    "totals",
    "in_place",
    "raw",
    "effect",
    "throws",
    "throws_number",
    "context",
    "needs_stream",
    "later",
    "slow",
    "token_step",
    "kinds_of",
]  # functions of one stage


@functools.cache
def built() -> Path:
    """The library; skips the test where there is no compiler, or no headers."""
    program = compiler()
    try:
        headers = Path(weft.ffi.include_dir())
    except FileNotFoundError as error:
        pytest.skip(str(error))
    if program is None:
        pytest.skip("there is no C++ compiler")
    inputs = [SOURCE, *sorted((headers / "xla/ffi/api").glob("*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()[:24]
    made = cache_folder() / f"ffi-handlers-{digest}.so"
    if not made.exists():
        part = made.with_suffix(f".{os.getpid()}")
        command = [
            program,
            "-std=c++17",
            "-w",
            "-O0",
            "-fPIC",
            "-shared",
            f"-I{headers}",
            str(SOURCE),
            "-o",
            str(part),
            "-pthread",
        ]
        subprocess.run(command, check=True, timeout=120)
        part.replace(made)
    return made


def register(api: Any, library: ctypes.CDLL) -> None:
    """Everything in the library, with weft.ffi or jax.ffi."""
    for name in ("count_type_id", "count_type_info"):
        getattr(library, name).restype = ctypes.c_void_p
    registration = {
        "type_id": api.pycapsule(ctypes.c_void_p(library.count_type_id())),
        "type_info": api.pycapsule(ctypes.c_void_p(library.count_type_info())),
    }
    api.register_ffi_type("Count", registration)
    for name in TYPED:
        api.register_ffi_target(name, api.pycapsule(getattr(library, name)), platform="cpu")
    stages = {"instantiate": api.pycapsule(library.count_begins), "execute": api.pycapsule(library.count_on)}
    api.register_ffi_target("count", stages, platform="cpu")


@functools.cache
def loaded() -> ctypes.CDLL:
    """The library, with its functions registered in weft."""
    library = ctypes.CDLL(str(built()))
    library.counts_living.restype = library.calls_made.restype = ctypes.c_int64
    library.stages_seen.restype = ctypes.c_char_p
    register(weft.ffi, library)
    letters = {"instantiate": "i", "prepare": "p", "initialize": "n", "execute": "e"}
    stages = {stage: getattr(library, f"note_{letter}") for stage, letter in letters.items()}
    weft.ffi.register_ffi_target("note", stages)
    for name in ("add_pointers", "text_pointers"):
        weft.ffi.register_ffi_target(name, getattr(library, name), api_version=0)
    return library


@functools.cache
def loaded_in_jax(folder: Path) -> Any:
    """jax, in which the functions of a second copy of the library are registered."""
    jax = pytest.importorskip("jax")
    jax.devices()  # before it has a backend it keeps registrations, and hands down functions before their types
    copy = folder / "handlers_of_jax.so"
    shutil.copy(built(), copy)
    register(jax.ffi, ctypes.CDLL(str(copy)))
    return jax
