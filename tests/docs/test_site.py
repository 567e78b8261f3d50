"""The site's pages: their programs do what the pages say, links lead somewhere, and every public name is described."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "reference" not in path.relative_to(DOCS).parts)
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")


def own(page: Path) -> bool:
    """Written for the site; the older guides, in capitals, have tests of their own."""
    return page.stem == page.stem.lower()


def outside_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def test_programs_of_the_pages_do_what_the_pages_say(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent), "WEFT_CACHE_DIR": str(tmp_path), "WEFT_CHECK": "0"}
    command = [sys.executable, str(DOCS / "run_pages.py")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 20, done.stdout


def test_notebooks_run_and_are_small(tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_CHECK": "0"}
    command = [sys.executable, str(DOCS / "run_notebooks.py")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{len(NOTEBOOKS)} notebooks run\n" and len(NOTEBOOKS) >= 6
    for path in NOTEBOOKS:
        assert path.stat().st_size < 40_000, path.name
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert notebook["nbformat"] == 4
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert all(cell["execution_count"] for cell in cells), f"{path.name} was never run with --update"


def test_a_cell_that_raises_is_a_complaint(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["1 / 0"], "outputs": [], "execution_count": None, "metadata": {}}
    (tmp_path / "wrong.ipynb").write_text(json.dumps({"cells": [cell]}))
    command = [sys.executable, str(DOCS / "run_notebooks.py"), str(tmp_path / "wrong.ipynb")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 1 and "cell 1 of wrong.ipynb raises" in done.stdout and "ZeroDivisionError" in done.stdout


def test_every_program_has_its_form() -> None:
    """A block that the runner does not recognise would be run by nobody; one with a ? was never filled in."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import run_pages as r\n"
    code += "print([str(p) for p in r.pages() if len(list(r.blocks(t := p.read_text()))) != t.count('```python')])"
    done = subprocess.run([sys.executable, "-c", code, str(DOCS)], capture_output=True, encoding="utf-8")
    assert done.stdout == "[]\n", done.stdout + done.stderr
    unfilled = [page.name for page in PAGES if "```text\n?\n```" in page.read_text(encoding="utf-8")]
    assert not unfilled


def test_every_page_is_in_the_navigation() -> None:
    trees = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.S)
    listed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in [*PAGES, *NOTEBOOKS]} - {"index"}
    assert set(listed) == names | {"reference/index"}
    assert len(listed) == len(set(listed))


def test_links_lead_somewhere() -> None:
    modules = {"index", "not_built"}
    for page in PAGES:
        for link in LINK.findall(outside_fences(page.read_text(encoding="utf-8"))):
            target = (page.parent / link).resolve()
            if target.parent == DOCS / "reference":
                assert target.stem in modules, f"{page.name} links to {link}"
            else:
                assert target.exists(), f"{page.name} links to {link}"


def test_twenty_questions_are_answered_two_clicks_from_the_start() -> None:
    assert "(questions.md)" in (DOCS / "index.md").read_text(encoding="utf-8")
    page = (DOCS / "questions.md").read_text(encoding="utf-8")
    questions = re.findall(r"^\*\*(\d+)\. .*?\?\*\*\n(.*?)(?=\n\n|\Z)", page, re.M | re.S)
    assert [int(number) for number, _ in questions] == list(range(1, len(questions) + 1))
    assert len(questions) >= 20
    assert all(LINK.search(answer) for _, answer in questions)


def test_pages_are_short() -> None:
    """A page is one to three screens. What a program prints does not count, nor does a guide that is shown whole."""
    for page in filter(own, PAGES):
        text = re.sub(r"^```text\n.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        assert text.count("\n") <= 200, f"{page.name} has {text.count(chr(10))} lines"


def test_the_reference_describes_every_public_name(tmp_path: Path) -> None:
    code = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import api_reference as r\n"
    code += "r.write(pathlib.Path(sys.argv[2]) / 'reference')"
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, "-c", code, str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "reference").glob("*.md")}
    for module, name in (("weft", "jit"), ("weft", "vmap"), ("weft.numpy", "sin"), ("weft.lax", "scan")):
        assert f":canonical: {module}.{name}\n" in pages[module]
    lacking = [name for name, text in pages.items() if "There is no description yet." in text]
    assert not lacking, f"public names without a docstring in {lacking}"
