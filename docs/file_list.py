"""Writes the list at the end of docs/ARCHITECTURE.md: every file of weft with the first sentence of its docstring.

    python docs/file_list.py            # write the list anew
    python docs/file_list.py --print    # only print it

A test in tests/docs makes it again and fails where it differs; ``--update-golden`` writes it anew.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
TITLE = "## Every file in a sentence\n"


def listed() -> str:
    """The list, folder by folder."""
    files = [*(ROOT / "weft").rglob("*.py"), *(ROOT / "weft" / "runtime" / "src").rglob("*.[ch]*")]
    folders: dict[str, list[Path]] = {}
    for file in sorted(files):
        folders.setdefault(str(file.parent.relative_to(ROOT)), []).append(file)
    parts = []
    for folder in sorted(folders):
        lines = [f"- `{file.relative_to(ROOT)}`: {sentence(file)}" for file in folders[folder]]
        parts.append("\n".join([f"### {folder}\n", *lines, ""]))
    return "\n".join(parts)


def sentence(file: Path) -> str:
    """The first sentence of a module's docstring, or of the comment that a C++ file begins with."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        opening = ast.get_docstring(ast.parse(text)) or ""
    else:
        opening = "\n".join(re.match(r"(?://.*\n)*", text)[0].replace("//", "").splitlines())  # type: ignore[index]
    paragraph = " ".join(line.strip() for line in opening.split("\n\n")[0].strip().splitlines())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`\"0-9])", paragraph)[0].rstrip(":")


def page() -> str:
    """ARCHITECTURE.md with the list as it should be."""
    before = PAGE.read_text(encoding="utf-8").partition(TITLE)[0]
    return f"{before}{TITLE}\n{listed()}"


def main() -> None:
    if "--print" in sys.argv:
        print(page(), end="")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
