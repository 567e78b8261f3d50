"""NVIDIA's assembler, of the package nvidia-cuda-nvcc-cu12: whether a text assembles, and to what."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "nvidia-cuda-nvcc-cu12"


class Assembled(NamedTuple):
    """What the assembler says of a kernel: registers of a thread, bytes spilled, shared memory and stack."""

    registers: int
    spill_stores: int
    spill_loads: int
    shared_bytes: int
    stack_bytes: int


@lru_cache(maxsize=1)
def program() -> Path | None:
    """The assembler; None where its package is not installed. WEFT_TEST_PTXAS names another."""
    chosen = os.environ.get("WEFT_TEST_PTXAS")
    if chosen:
        return Path(chosen)
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((Path(str(file.locate())) for file in files if file.name == "ptxas"), None)
    if found is None or not found.exists():
        return None
    if not os.access(found, os.X_OK):  # a wheel unpacked by a tool that keeps no modes
        copy = Path(tempfile.mkdtemp()) / "ptxas"
        shutil.copy(found, copy)
        copy.chmod(0o755)
        return copy
    return found


def needed() -> Path:
    """The assembler, or the test is skipped."""
    found = program()
    if found is None:
        pytest.skip(f"ptxas is not installed (pip install {PACKAGE})")
    return found


def assemble(text: str, cpu: str) -> dict[str, Assembled]:
    """What the kernels of a text become on ``cpu`` (sm_80, sm_90, sm_100); an AssertionError with its words if not."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.ptx"
        source.write_text(text)
        command = [str(needed()), f"-arch={cpu}", "-v", str(source), "-o", str(Path(folder) / "text.cubin")]
        done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return parse(said)


def parse(said: str) -> dict[str, Assembled]:
    """The report of ``ptxas -v``, kernel by kernel."""
    found = {}
    for part in re.split(r"Compiling entry function '", said)[1:]:
        name = part.split("'")[0]

        def number(pattern: str, part: str = part) -> int:
            match = re.search(pattern, part)
            return int(match[1]) if match else 0

        found[name] = Assembled(
            number(r"Used (\d+) registers"),
            number(r"(\d+) bytes spill stores"),
            number(r"(\d+) bytes spill loads"),
            number(r"(\d+) bytes smem"),
            number(r"(\d+) bytes stack frame"),
        )
    return found
