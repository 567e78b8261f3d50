"""The page of a report: one HTML file that holds its style, script and data, and asks for nothing from elsewhere."""

from __future__ import annotations

import functools
import html
import json
from pathlib import Path
from typing import Any

_ASSETS = Path(__file__).parent / "assets"


@functools.cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def text(data: dict[str, Any]) -> str:
    """The whole page for the data of ``page_data.build``."""
    words = json.dumps(data, separators=(",", ":"), allow_nan=False, default=float).replace("<", "\\u003c")
    parts = {
        "title": html.escape(f"{data['name'].partition('(')[0]} - weft"),
        "css": _asset("page.css"),
        "data": words,
        "js": _asset("page.js"),
    }
    page = _asset("page.html")
    for name in ("title", "css", "js", "data"):  # the data last: it may contain anything
        before, _, after = page.partition(f"@{name}@")
        page = f"{before}{parts[name]}{after}"
    return page


def frame(page: str, height: int = 800) -> str:
    """The page inside a notebook, with a document of its own."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(page)}"></iframe>'
