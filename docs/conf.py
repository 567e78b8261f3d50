"""Sphinx's settings for the site that ``make docs`` builds from this folder; they write the API reference too."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import api_reference  # noqa: E402 - found beside this file, which Sphinx runs from elsewhere
import run_notebooks  # noqa: E402 - as above

project = "weft"
author = "the weft developers"
version = release = re.search(r'^version = "(.*)"', (DOCS.parent / "pyproject.toml").read_text(), re.M)[1]  # type: ignore[index] - it is there
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
exclude_patterns = ["gallery/*.txt"]
html_theme = "furo"
html_title = f"weft {version}"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = html_show_copyright = False
maximum_signature_line_length = 110
toc_object_entries_show_parents = "hide"
nitpicky = True

# Guides that lie outside of this folder, by the pages that show them.
OUTSIDE = {"benchmarks/NOTES.md": "benchmarks.md", "CONTRIBUTING.md": "contributing.md"}


def resolve_links(app: Any, docname: str, source: list[str]) -> None:
    """A link that leaves this folder becomes the page that shows its file, or plain text where there is none."""
    root, up = DOCS.parent, "../" * docname.count("/")
    text = source[0]
    if docname.startswith("notebooks/"):
        text = run_notebooks.as_markdown(text, docname.partition("/")[2] + ".ipynb")
    if docname == "contributing":  # CONTRIBUTING.md stands in the root, so its links begin there
        text = re.sub(r"\]\((?=[a-z]+/|[A-Z]+\.md)", "](../", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"))
        text = text.replace("](../docs/", "](")

    def replaced(match: re.Match[str]) -> str:
        target = match[2].removeprefix("../")
        if target in OUTSIDE:
            return f"[{match[1]}]({up}{OUTSIDE[target]})"
        return f"`{target}`" if (root / target).exists() else match[0]

    source[0] = re.sub(r"\[([^\]]*)\]\((\.\./[^)#\s]*)\)", replaced, text)


def setup(app: Any) -> None:
    api_reference.write(DOCS / "reference")
    app.connect("source-read", resolve_links)
