"""The programs of docs/EXPORT.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "EXPORT.md"


def test_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jaxlib", reason="saved files hold an artifact that jaxlib writes")
    names: dict[str, object] = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(program, names)
    assert "stablehlo.sine" in capsys.readouterr().out
