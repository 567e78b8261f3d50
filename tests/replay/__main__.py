"""Replay: the generated text of many programs, stored before a refactoring and compared after it.

    python -m tests.replay store FOLDER            # all programs, for every target and for this machine
    python -m tests.replay compare BEFORE AFTER    # exit status 1 and the differences, if there are any

``--targets`` and ``--only`` (an expression that labels contain) choose fewer. A folder has, for each target, digests by
label and the compressed texts.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TARGETS = ("x86-64-v4", "x86-64-v3", "aarch64", "host")
MOST_LINES = 40  # of a difference that is shown
MOST_SHOWN = 5  # differences


def store(folder: Path, targets: Sequence[str] = TARGETS, only: str = "") -> None:
    """Store the texts for every target, each in a process of its own."""
    for name in targets:
        environment = {**os.environ, "WEFT_CHECK": "0"}
        command = [sys.executable, "-m", "tests.replay.texts", str(folder), name, only]
        subprocess.run(command, check=True, cwd=Path(__file__).resolve().parents[2], env=environment)


def _texts(folder: Path, name: str) -> dict[str, str]:
    with gzip.open(folder / f"{name}.texts.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


def compare(before: Path, after: Path) -> list[str]:
    """What differs between two folders: lines to read, none if all texts are equal."""
    lines, shown = [], 0
    for file in sorted(before.glob("*.digests.json")):
        name = file.name.removesuffix(".digests.json")
        old, new = json.loads(file.read_text()), json.loads((after / file.name).read_text())
        for label in sorted(old.keys() ^ new.keys()):
            lines.append(f"{name}: {label} is in one of the folders only")
        changed = [label for label in old if label in new and old[label] != new[label]]
        lines += [f"{name}: {label} differs" for label in changed[:MOST_LINES]]
        lines += [f"{name}: {len(changed)} programs differ"] if changed else []
        if changed and shown < MOST_SHOWN:
            texts = _texts(before, name), _texts(after, name)
            for label in changed[: MOST_SHOWN - shown]:
                shown += 1
                old_lines, new_lines = [each[label].splitlines() for each in texts]
                diff = difflib.unified_diff(old_lines, new_lines, f"{label}, before", f"{label}, after", lineterm="")
                lines += list(diff)[:MOST_LINES]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("command", choices=("store", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if given.command == "compare":
        lines = compare(*given.folders)
        print("\n".join(lines) or "no text differs")
        return 1 if lines else 0
    store(given.folders[0].resolve(), given.targets.split(","), given.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
