"""The programs of CONTRIBUTING.md run, and the files that the guides name exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ["README.md", "CONTRIBUTING.md", "docs/DESIGN.md", "docs/STYLE.md", "docs/ARCHITECTURE.md", "tests/README.md",
          "docs/NUMERICS.md", "benchmarks/NOTES.md"]  # fmt: skip
SECTIONS = [section.partition("\n") for section in (ROOT / "CONTRIBUTING.md").read_text().split("\n## ")[1:]]
PROGRAMS = [(title, code) for title, _, text in SECTIONS for code in re.findall(r"```python\n(.*?)```", text, re.S)]


def test_every_kind_of_operation_has_its_program() -> None:
    titles = " ".join(title for title, _ in PROGRAMS)
    assert all(word in titles for word in ("elementwise", "view", "reduction", "library", "see what the compiler did"))


@pytest.mark.every_case
@pytest.mark.parametrize(("title", "program"), PROGRAMS, ids=[title for title, _ in PROGRAMS])
def test_program_runs(title: str, program: str) -> None:
    """In a process of its own: what it declares is no operation of weft."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.every_case
@pytest.mark.parametrize("guide", GUIDES)
def test_named_files_exist(guide: str) -> None:
    text = (ROOT / guide).read_text()
    named = re.findall(r"`((?:weft|tests|docs|benchmarks|examples)/[\w./-]+)`", text)
    linked = re.findall(r"\]\(((?!http|#)[^)#]+)", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in linked if not (ROOT / guide).parent.joinpath(link).exists()]
    assert not missing, f"{guide} names {missing}, which do not exist"


def test_every_folder_of_tests_has_its_line() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    folders = [entry.name for entry in (ROOT / "tests").iterdir() if list(entry.glob("*.py"))]
    missing = [name for name in folders if f"`{name}/`" not in text]
    assert not missing, f"tests/README.md does not say what is tested in {missing}"
