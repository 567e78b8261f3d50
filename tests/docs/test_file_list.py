"""docs/ARCHITECTURE.md lists every file of weft with the first sentence that the file has today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_list_of_files_is_up_to_date(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, str(DOCS / "file_list.py"), "--print"]
    made = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    page = DOCS / "ARCHITECTURE.md"
    if request.config.getoption("--update-golden"):
        page.write_text(made, encoding="utf-8")
    assert made == page.read_text(encoding="utf-8"), (
        "the list in docs/ARCHITECTURE.md is stale: run `python docs/file_list.py` or this test with --update-golden"
    )
