"""docs/WALKTHROUGH.md shows what the compiler makes today: it is written anew here, and compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_walkthrough_is_up_to_date(request: pytest.FixtureRequest) -> None:
    """In a process of its own, for the processor that the script names, whatever machine the tests run on."""
    command = [sys.executable, str(DOCS / "walkthrough.py"), "--print"]
    made = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", env=dict(os.environ)).stdout
    page = DOCS / "WALKTHROUGH.md"
    if request.config.getoption("--update-golden"):
        page.write_text(made, encoding="utf-8")
    assert made == page.read_text(encoding="utf-8"), (
        "docs/WALKTHROUGH.md is stale: run `python docs/walkthrough.py` or this test with --update-golden, and review"
    )
