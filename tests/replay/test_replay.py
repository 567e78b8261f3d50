"""The replay writes the same text for the same program, and shows what differs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.aarch64 import samples_of_operations
from tests.replay import __main__ as replay
from tests.replay import texts

SAMPLES = list(samples_of_operations.elementwise())


def test_equal_sources_give_equal_texts(tmp_path: Path) -> None:
    for folder in ("before", "after"):
        assert texts.write(tmp_path / folder, "host", SAMPLES, "^(sin|cos) of float") == 6
    assert replay.compare(tmp_path / "before", tmp_path / "after") == []
    with gzip.open(tmp_path / "after" / "host.texts.gz", "rt") as file:
        assert all("define void @k(" in text and "nest " in text for text in json.load(file).values())


def test_a_change_is_shown(tmp_path: Path) -> None:
    for folder, label in (("before", "sin of float32"), ("after", "cos of float32")):
        texts.write(tmp_path / folder, "host", SAMPLES, f"^{label}$")
    for kind in ("digests.json", "texts.gz"):  # as if the one had become the other
        file = tmp_path / "after" / f"host.{kind}"
        read = gzip.decompress(file.read_bytes()) if kind == "texts.gz" else file.read_bytes()
        data = read.replace(b'"cos of float32"', b'"sin of float32"')
        file.write_bytes(gzip.compress(data) if kind == "texts.gz" else data)
    lines = replay.compare(tmp_path / "before", tmp_path / "after")
    assert lines[:2] == ["host: sin of float32 differs", "host: 1 programs differ"] and any(
        line.startswith("-nest sin") for line in lines
    )


def test_a_missing_program_is_shown(tmp_path: Path) -> None:
    for folder, label in (("before", "sin"), ("after", "(sin|cos)")):
        texts.write(tmp_path / folder, "host", SAMPLES, f"^{label} of float32$")
    assert replay.compare(tmp_path / "before", tmp_path / "after") == [
        "host: cos of float32 is in one of the folders only"
    ]
