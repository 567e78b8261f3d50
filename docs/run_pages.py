"""Runs the programs of the site's pages: ``python docs/run_pages.py [--update] [pages]``.

The ``python`` blocks of a page are one program, run in order. A ``text`` block right after one says what the block
prints, or, as ``NameOfError: message``, what it raises; ``...`` stands for anything. A text block of one ``?`` is
filled in by ``--update``. All pages run in one process, each with names of its own. A page that opens with
``<!-- needs name -->`` is left out, and said to be, where that package is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent
FOLDERS = ["", "tutorials", "howto", "concepts", "ko"]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n?^```text\n(.*?)^```\n)?", re.M | re.S)
NEEDS = re.compile(r"<!-- needs (\w+) -->")
ERROR = re.compile(r"[\w.]*(?:Error|Exception|Interrupt): ")


class Block(NamedTuple):
    line: int  # of its first statement, from 1
    code: str
    expected: str | None
    start: int  # of the expected text in the page
    end: int


def pages() -> list[Path]:
    """The pages written for the site: those with names in small letters. The older guides have tests of their own."""
    found = [path for folder in FOLDERS for path in sorted((DOCS / folder).glob("*.md"))]
    return [path for path in found if path.stem == path.stem.lower()]


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        yield Block(text.count("\n", 0, match.start(1)) + 1, match[1], match[2], *match.span(2))


def outcome(block: Block, page: Path, names: dict[str, Any]) -> tuple[str, str | None]:
    """What the block prints, or the error it raises as text, and the traceback if it raised."""
    printed = io.StringIO()
    text, trace = "", None
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
            sys.modules["weft"].effects_barrier()
    except Exception as error:
        text, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    return in_block_lines(printed.getvalue() + text, block, page), trace


def in_block_lines(text: str, block: Block, page: Path) -> str:
    """Lines of the page as lines of the block, which do not change when the page does."""
    return re.sub(re.escape(str(page)) + r":(\d+)", lambda m: f"program.py:{int(m[1]) - block.line + 1}", text)


def agrees(expected: str, got: str) -> bool:
    pattern = ".*".join(re.escape(part.rstrip()) for part in re.sub(r"[ \t]+\n", "\n", expected).rstrip().split("..."))
    return re.fullmatch(pattern + r"\s*", re.sub(r"[ \t]+\n", "\n", got), re.S) is not None


def run(page: Path, update: bool = False) -> list[str]:
    """The complaints about a page, none if all is as it says."""
    text = page.read_text(encoding="utf-8")
    module = types.ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module  # where dataclasses and pickles look for the page's classes
    names = vars(module)
    complaints, filled = [], []
    for block in blocks(text):
        got, trace = outcome(block, page, names)
        if update and block.expected == "?\n":
            filled.append((block.start, block.end, got.rstrip() + "\n"))
        elif trace is not None and (block.expected is None or not ERROR.search(block.expected)):
            complaints.append(f"{page.name}:{block.line} raises\n{trace}")
        elif block.expected is not None and not agrees(block.expected, got):
            complaints.append(f"{page.name}:{block.line} says\n{block.expected}but gives\n{got}")
    for start, end, new in reversed(filled):
        text = text[:start] + new + text[end:]
    if filled:
        page.write_text(text, encoding="utf-8")
    return complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--update", action="store_true", help="fill in the text blocks that hold one ?")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_args()
    chosen = [path.resolve() for path in options.pages] or pages()
    os.environ.setdefault("WEFT_NUM_CPU_DEVICES", "4")  # for the page about several devices
    import weft  # noqa: PLC0415 - it reads the environment

    complaints = []
    for page in chosen:
        needs = NEEDS.match(page.read_text(encoding="utf-8"))
        if needs is not None and importlib.util.find_spec(needs[1]) is None:
            print(f"{page.name} is left out: {needs[1]} is not installed", file=sys.stderr)
            continue
        weft.clear_caches()
        complaints += run(page, options.update)
    print("\n".join(complaints) or f"{len(chosen)} pages run")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
