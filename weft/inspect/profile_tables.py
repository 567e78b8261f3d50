"""A profile as tables: calls, steps and source lines, on a terminal (rich) and as HTML."""

from __future__ import annotations

import html as html_text
import io
import linecache
import os
from typing import Any

from weft._base import lazy
from weft.inspect.profiling import Profile, Times

_STYLE = (
    "<style>.weft-profile{font:13px/1.5 system-ui,sans-serif}"
    ".weft-profile table{border-collapse:collapse;margin:.6em 0}"
    ".weft-profile td,.weft-profile th{padding:.15em .9em .15em 0;text-align:right;border-bottom:1px solid #8883}"
    ".weft-profile td:first-child,.weft-profile th:first-child,.weft-profile td.t{text-align:left}"
    ".weft-profile caption{text-align:left;font-weight:600}.weft-profile code{font:12px ui-monospace,monospace}</style>"
)
Rows = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def quantity(number: float, unit: str) -> str:
    """Three digits and a prefix."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}" if number else ""


def _share(times: Times, seconds: float) -> str:
    return f"{100 * times.total / seconds:.1f}" if seconds else ""


def rows(found: Profile, most: int) -> list[Rows]:
    """Title, heads and rows of each table."""
    calls = [
        (p.name, f"{p.times.runs:,}", duration(p.times.total), _share(p.times, found.seconds), duration(p.times.mean),
         duration(p.times.least))
        for p in found.calls[:most]
    ]  # fmt: skip
    steps = []
    for program, step in found.kernels[:most]:
        mean = step.times.mean
        rate = quantity(step.nbytes / mean, "B/s") if mean and step.nbytes else ""
        speed = quantity(step.operations / mean, "op/s") if mean and step.operations else ""
        steps.append(
            (step.name, step.what, program.name, f"{step.times.runs:,}", duration(step.times.total),
             _share(step.times, found.seconds), duration(mean), rate, speed)
        )  # fmt: skip
    lines = [
        (f"{os.path.basename(file)}:{number}" if file else "(no line)", duration(seconds),
         f"{100 * seconds / found.seconds:.1f}" if found.seconds else "", linecache.getline(file, number).strip()[:90])
        for (file, number), seconds in list(found.lines.items())[:most]
    ]  # fmt: skip
    heads = ("step", "kind", "program", "runs", "total", "%", "mean", "memory", "arithmetic")
    return [
        (f"programs, of {duration(found.seconds)}", ("program", "runs", "total", "%", "mean", "best"), calls),
        ("steps", heads, steps),
        ("source lines", ("line", "total", "%", "source"), lines),
    ]


def tables(found: Profile, most: int) -> Any:
    """The tables for rich."""
    made = []
    for title, heads, body in rows(found, most):
        table = lazy.rich_table.Table(title=title, title_justify="left")
        for head in heads:
            table.add_column(head, justify="left" if head in ("step", "kind", "program", "line", "source") else "right")
        for row in body:
            table.add_row(*map(lazy.rich_text.Text, row))
        made.append(table)
    return lazy.rich_console.Group(*made)


def text(found: Profile, most: int) -> str:
    """The tables as plain text."""
    console = lazy.rich_console.Console(file=io.StringIO(), width=140)
    console.print(tables(found, most))
    return console.file.getvalue()


def html(found: Profile, most: int) -> str:
    """The tables as a piece of HTML."""
    parts = [_STYLE, "<div class=weft-profile>"]
    for title, heads, body in rows(found, most):
        parts.append(f"<table><caption>{html_text.escape(title)}</caption><tr>")
        parts += [f"<th>{head}</th>" for head in heads]
        for row in body:
            parts.append("<tr>" + "".join([f"<td>{html_text.escape(cell)}</td>" for cell in row]) + "</tr>")
        parts.append("</table>")
    return "".join([*parts, "</div>"])
