"""The workflows of GitHub, which cannot run here, hold no step of their own: they call what anyone can run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.every_case
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_steps_are_make_targets(path: Path) -> None:
    commands = re.findall(r"^\s*- run: (.*)$", re.sub(r"\$\{\{.*?\}\}", "X", path.read_text()), re.M)
    assert commands and "run: |" not in path.read_text()
    for command in commands:
        if command == "bash .ci/run" or "apt-get" in command:
            continue
        name, *words = command.split()
        assert name == "make", f"{path.name} runs {command!r}: put it into the Makefile"
        assert {word for word in words if "=" not in word} <= TARGETS, command


def test_ci_runs_what_is_run_here() -> None:
    assert "bash .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    (test,) = re.findall(r"^test: (.*?)  ##", (ROOT / "Makefile").read_text(), re.M)
    assert set(test.split()) == {"check", "docs", "unit", "unit-v3"}
