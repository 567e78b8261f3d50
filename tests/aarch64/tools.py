"""The tools that run kernels for AArch64 on an x86-64 processor, and the harness that they build and run.

Debian: ``apt install g++ g++-aarch64-linux-gnu qemu-user``.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from weft._base import target

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "weft" / "runtime" / "src"
CROSS, NATIVE = "aarch64-linux-gnu-g++", "g++"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
# as the native module is compiled; what the harness never calls needs Python, and is left out by the linker
FLAGS = (
    *("-std=gnu++20", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-Wno-missing-field-initializers"),
    *("-static", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"),
)


def emulator() -> str | None:
    return next((name for name in EMULATORS if shutil.which(name)), None)


def skip_without_tools() -> None:
    """Skip, with the reason, where AArch64 cannot be emulated beside a processor with AVX2."""
    missing = [name for name in (CROSS, NATIVE) if shutil.which(name) is None]
    missing += [] if emulator() else ["qemu-aarch64"]
    missing += [] if Path(python_headers(), "Python.h").exists() else ["Python.h"]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (Debian: g++, g++-aarch64-linux-gnu, qemu-user, python3-dev)")
    try:
        here = target._host()
    except target.UnsupportedTargetError as error:
        pytest.skip(str(error))
    if not here.triple.startswith("x86_64"):
        pytest.skip("compares with the bits of x86-64-v3, which this processor cannot run")


def python_headers() -> str:
    return sysconfig.get_paths()["include"]


def rooms() -> list[Path]:
    """The folders of the native module's sources."""
    return [SOURCES, *sorted(folder for folder in SOURCES.iterdir() if folder.is_dir())]


def build(compiler: str, to: Path) -> Path:
    """The harness for the compiler's processor, as a static program."""
    sources = [Path(__file__).with_name("harness.cpp"), SOURCES / "machine_code" / "loader.cpp"]
    command = [
        compiler,
        *FLAGS,
        *(f"-I{room}" for room in rooms()),
        f"-I{python_headers()}",
        *map(str, sources),
        "-o",
        str(to),
    ]
    subprocess.run(command, check=True, timeout=300)
    return to


def run(command: list[str], data: bytes, folder: Path) -> bytes:
    """What the harness makes of a file of programs."""
    programs, results = folder / "programs", folder / "results"
    programs.write_bytes(data)
    subprocess.run([*command, str(programs), str(results)], check=True, timeout=300)
    return results.read_bytes()
