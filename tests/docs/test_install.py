"""What a newcomer sees while ``make demo`` installs weft: which stage, how many files of how many, what failed."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "packaging" / "install.py"
SAID = {
    "Collecting numpy>=2.0": "looking for numpy",
    "  Downloading llvmlite-0.45.1-cp311-manylinux.whl (56.3 MB)": "downloading llvmlite (56.3 MB)",
    "  Installing build dependencies: started": "installing the tools of the build",
    "  *** Configuring CMake...": "looking for the compiler and its options",
    "  *** Building project with Ninja...": "compiling the first files",
    "  [1/4] Building CXX object CMakeFiles/_native.dir/weft/runtime/src/a.cpp.o": "compiled 1 of 4 files: a.cpp",
    "  a warning of the compiler": "compiled 1 of 4 files: a.cpp",
    "  [2/4] Building CXX object CMakeFiles/_native.dir/weft/runtime/src/b.cpp.o":
        "compiled 2 of 4 files, waiting for c.cpp, d.cpp",
    "[ 75%] Building CXX object CMakeFiles/_native.dir/weft/runtime/src/c.cpp.o":
        "compiled 75 % of the files, waiting for d.cpp",
    "  [4/4] Linking CXX shared module _native.so": "linking the native module",
    "Installing collected packages: numpy, rich, weft": "installing 3 packages",
    "Installing collected packages: weft": "installing weft",
}  # fmt: skip


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", INSTALL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LAST_FILES", 2)
    return module


def test_lines_of_pip_and_ninja_become_stages(install: ModuleType) -> None:
    progress = install.Progress({"a.cpp", "b.cpp", "c.cpp", "d.cpp"})
    for line, stage in SAID.items():
        progress.read(line + "\n")
        assert progress.stage == stage


PROJECT = """
[project]
dependencies = ["rich>=1"]
[project.optional-dependencies]
demo = ["plots; sys_platform == 'linux'"]
test = ["checks"]
"""


def checkout(tmp_path: Path, code: int) -> dict[str, Any]:
    """How the program is started in a checkout; its pips say two lines, and the one that builds weft ends with code."""
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "install.py").write_text(INSTALL.read_text())
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "weft" / "runtime" / "src").mkdir(parents=True)
    (tmp_path / "pip.py").write_text(
        "import sys, time\nbuilds = sys.argv[-1] == '.'\n"
        "print('  [1/4] Building CXX object a.cpp.o' if builds else 'Collecting rich')\n"
        f"print(sys.argv[4:])\ntime.sleep(1)\nsys.exit({code} if builds else 0)\n"
    )
    command = [sys.executable, tmp_path / "packaging" / "install.py", "demo"]
    return {"args": command, "cwd": tmp_path, "env": {"PYTHONPATH": str(tmp_path)}}


@pytest.mark.parametrize("code", [0, 3])
def test_the_end_is_told_where_no_terminal_is(tmp_path: Path, code: int) -> None:
    done = subprocess.run(**checkout(tmp_path, code), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    stages = r"(starting pip|compiled 1 of 4 files: a.cpp); (starting pip|looking for rich)"
    assert re.search(rf"^\[ +\d+ s\] {stages}$", done.stdout, re.M), done.stdout
    assert sorted((tmp_path / "build" / "install.log").read_text().splitlines()) == [
        "packages: Collecting rich",
        """packages: ['rich>=1', "plots; sys_platform == 'linux'"]""",
        "weft:   [1/4] Building CXX object a.cpp.o",
        "weft: ['--no-deps', '-e', '.']",
    ]
    last = re.findall(r"\[ +\d+ s\] (.*)\n", done.stdout)[-1]
    assert last.startswith("the installation failed; its last stage was: compiled 1 of 4" if code else "installed")
    assert done.stdout.endswith("a.cpp.o\n['--no-deps', '-e', '.']\n") == bool(code)


def test_on_a_terminal_one_line_is_written_again_and_again(tmp_path: Path) -> None:
    """It is cut at the terminal's width, and what the one before it had left is erased."""
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 20))
    done = subprocess.run(**checkout(tmp_path, 0), stdout=terminal, stderr=subprocess.PIPE, text=True)
    os.close(terminal)
    assert done.returncode == 0, done.stderr
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    head, *lines = re.sub(r"\r\n", "\n", said).split("\r")
    assert head.endswith("\n") and len(lines) > 1
    assert all(re.fullmatch(r"\[ +\d+ s\] [a-z1 ]+\x1b\[K\n?", line) for line in lines), lines
    assert re.fullmatch(r"\[ +\d+ s\] compiled 1\x1b\[K", lines[-2])  # of "compiled 1 of 4 files", in 19 columns
    assert lines[-1].endswith("installed\x1b[K\n") and "\n" not in "".join(lines[:-1])
