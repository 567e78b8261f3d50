"""The kernels, loops and LLVM text of well-known programs, as files: a change of the compiler shows as a diff.

python -m pytest tests/golden --update-golden      # write them anew, then review the diff like code
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.programs import FORMS, PROGRAMS

HERE = Path(__file__).resolve().parent


@functools.cache
def texts() -> dict[str, dict[str, str]]:
    """Compiled in a process of its own, for one target."""
    environment = {**os.environ, "WEFT_TARGET": "x86-64-v4", "WEFT_CHECK": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.programs"],
        check=True,
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        env=environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, form: str, request: pytest.FixtureRequest) -> None:
    file = HERE / "texts" / f"{name}.{form}.txt"
    text = texts()[name][form].rstrip() + "\n"
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.exists(), f"{file.name} is missing: run with --update-golden"
    assert text == file.read_text(), (
        f"{file.name} differs; if that is meant, run with --update-golden and review the diff"
    )
