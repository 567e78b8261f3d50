"""Rows of ``field.py``: programs with holes, read from the text files of ``programs/``.

A file has kinds, ``== KIND | OPTIONS``, and under each its rows: a line ``name: inputs`` and the body of a function,
indented; after a line ``numba`` the whole function as numba would be given it.

    rms norm: x[n d] normal; g[d] positive shared
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + {s}) * g

Inputs have a name, extents as letters or numbers, a law by which elements are drawn, what an index is below, and
``shared`` for what has no batch under ``vmap``. Holes: ``{a}`` to ``{d}`` are numbers of about one, ``{s}`` a small
one, ``{k}`` a small integer, ``{axis}`` an axis, ``{steps}`` a count of steps, ``{f}`` and ``{g}`` smooth functions.
Options are the fields of ``Row``: ``most=3000``, ``steps=5-100``, ``dims=n:2-500,k:2-9``, ``elementwise``, ``no_grad``,
``dtypes=float32*8,float64``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ELEMENTS = (300, 4_000_000)  # elements of a program's first input
FOLDER = Path(__file__).resolve().parent / "programs"
_DTYPES = ("float32",) * 8 + ("float64",)


@dataclass(frozen=True)
class Row:
    """A program with holes."""

    kind: str
    name: str
    inputs: str
    body: str
    numba: str = ""  # the whole function, in numba's form
    most: int = ELEMENTS[1]  # elements of the first input
    scales: bool = True  # makes sense with a million of them
    grad: bool = True
    vmap: bool = True
    jit: bool = True
    elementwise: bool = False  # numba's loop is made from the body
    dtypes: tuple[str, ...] = _DTYPES
    steps: tuple[int, int] = (5, 100)
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    grows: str = ""  # the extent that is larger at the second shape; otherwise the first one


def _options(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        match name:
            case "most":
                found[name] = int(value)
            case "steps":
                found[name] = _range(value)
            case "dims":
                found[name] = {part[0]: _range(part[2:]) for part in value.split(",")}
            case "dtypes":
                parts = [part.partition("*") for part in value.split(",")]
                found[name] = tuple(dtype for dtype, _, times in parts for _ in range(int(times or 1)))
            case "grows":
                found[name] = value
            case "elementwise":
                found[name] = True
            case "no_scales" | "no_grad" | "no_vmap" | "no_jit":
                found[name[3:]] = False
            case _:
                raise ValueError(f"[field] unknown option {word!r} of a kind of programs.")
    return found


def _range(text: str) -> tuple[int, int]:
    low, high = text.split("-")
    return int(low), int(high)


def _read(text: str) -> Iterator[Row]:
    for section in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        heading, _, rows = section.partition("\n")
        kind, _, options = heading.partition(" | ")
        for row in re.split(r"\n\n(?=\S)", rows.strip("\n")):
            first, _, rest = row.partition("\n")
            name, _, inputs = first.partition(": ")
            body, _, numba = rest.partition("\n  numba\n")
            yield Row(kind, name, inputs, textwrap.dedent(body), textwrap.dedent(numba), **_options(options))


def _kinds() -> dict[str, list[Row]]:
    """The rows by kind, and the kinds made of others: gradients, and ``vmap``."""
    rows = [row for path in sorted(FOLDER.glob("*.txt")) for row in _read(path.read_text())]
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.kind, []).append(row)
    found["gradients"] = [row for row in rows if row.grad and row.kind != "small calls"]
    found["vmap"] = [row for row in rows if row.vmap and row.kind not in ("small calls", "eager calls")]
    return found


KINDS = _kinds()
