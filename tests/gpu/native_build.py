"""Builds the C++ of these tests with the system's compiler, once for each state of sources, processor and compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-frounding-math", "-ffp-contract=off", "-Wall", "-Wextra"]


def compiler() -> str | None:
    """The C++ compiler, or None where there is none."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


@lru_cache(maxsize=1)
def native_flag() -> list[str]:
    """-march=native where the compiler knows it, so that 32 lanes are a few vectors and fma is one instruction."""
    program = compiler()
    assert program is not None
    known = subprocess.run(
        [program, "-march=native", "-E", "-x", "c++", os.devnull], capture_output=True, text=True
    ).returncode
    return ["-march=native"] if known == 0 else []


def processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def cache_folder() -> Path:
    """A folder of this user for what was built; WEFT_TEST_BUILDS names another."""
    chosen = os.environ.get("WEFT_TEST_BUILDS")
    folder = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"weft-test-builds-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class Part(NamedTuple):
    """Sources, and the headers on which each of them depends."""

    sources: list[Path]
    headers: list[Path]


def build(name: str, parts: list[Part], link: list[str]) -> Path:
    """The shared library ``name``; objects, the library and the machine's headers, compiled once for all, are kept."""
    program = compiler()
    assert program is not None, "there is no C++ compiler"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    flags = [*FLAGS, *native_flag()]
    common = "\n".join([version, *flags, processor()]).encode()
    folder = cache_folder()

    def made(stem: str, suffix: str, inputs: list[Path], arguments: list[str]) -> Path:
        """What the compiler makes of these arguments, unless it is there already."""
        digest = hashlib.sha256(common + b"".join(path.read_bytes() for path in inputs)).hexdigest()[:24]
        target = folder / digest / f"{stem}{suffix}"
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            part = target.with_name(f"{target.name}.{os.getpid()}")
            run([program, *flags, *arguments, "-o", str(part)])
            part.replace(target)
        return target

    machine = sorted((HERE / "machine").glob("*.h"))
    text = "".join(f'#include "{HERE / "machine" / header}"\n' for header in ("decode.h", "launch.h"))
    digest = hashlib.sha256(common + text.encode() + b"".join(path.read_bytes() for path in machine)).hexdigest()[:24]
    everything = folder / digest / "machine.h"
    everything.parent.mkdir(exist_ok=True)
    everything.write_text(text)
    compiled = made("machine.h", ".gch", [*machine, everything], ["-x", "c++-header", str(everything)])
    shutil.copy(everything, compiled.with_suffix(""))
    jobs = [(source, part.headers) for part in parts for source in part.sources]

    def one(job: tuple[Path, list[Path]]) -> Path:
        source, headers = job
        arguments = ["-include", str(compiled.with_suffix("")), "-c", str(source)]
        return made(source.stem, ".o", [source, *machine, *headers], arguments)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(one, jobs))
    return made(name, "", objects, ["-shared", *map(str, objects), *link])


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def machine() -> Part:
    """The machine, without what Python calls."""
    folder = HERE / "machine"
    sources = [path for path in sorted(folder.glob("*.cpp")) if path.name != "interface.cpp"]
    return Part(sources, [])
