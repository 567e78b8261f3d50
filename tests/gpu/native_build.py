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


def build(name: str, sources: list[Path], headers: list[Path], link: list[str]) -> Path:
    """The shared library ``name`` of these sources; each object and the library are kept."""
    program = compiler()
    assert program is not None, "there is no C++ compiler"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    flags = [*FLAGS, *native_flag()]
    common = hashlib.sha256("\n".join([version, *flags, processor()]).encode())
    for header in sorted(headers):
        common.update(header.read_bytes())
    folder = cache_folder()

    def compiled(source: Path) -> Path:
        digest = common.copy()
        digest.update(source.read_bytes())
        target = folder / f"{source.stem}-{digest.hexdigest()[:24]}.o"
        if not target.exists():
            part = target.with_name(f"{target.name}.{os.getpid()}")
            run([program, *flags, "-c", str(source), "-o", str(part)])
            part.replace(target)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    digest = hashlib.sha256("\n".join([*map(str, objects), *link]).encode()).hexdigest()[:24]
    place = folder / digest
    place.mkdir(exist_ok=True)
    library = place / name
    if not library.exists():
        part = library.with_name(f"{name}.{os.getpid()}")
        run([program, "-shared", "-o", str(part), *map(str, objects), *link])
        part.replace(library)
    return library


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def machine_sources() -> tuple[list[Path], list[Path]]:
    """The machine's sources, without what Python calls, and its headers."""
    folder = HERE / "machine"
    sources = [path for path in sorted(folder.glob("*.cpp")) if path.name != "interface.cpp"]
    return sources, sorted(folder.glob("*.h"))
