"""Writes ``weft/experimental/nan_operations.py``: the operations after which ``checkify`` looks for NaN.

    python docs/nan_operations.py

A program is to fail where it fails in JAX, which is asked for its own. The samples of tests/operations tell those that
can make a NaN of numbers; a test compares the two, and fails where the file is stale.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from jax._src import checkify

TARGET = Path(__file__).resolve().parents[1] / "weft" / "experimental" / "nan_operations.py"
HEAD = '"""The operations after which ``checkify`` looks for NaN: written by docs/nan_operations.py."""\n'
MORE = {"add_any"}  # the sum of cotangents, which JAX writes as ``add``


def text() -> str:
    """The text of the file."""
    names = sorted(MORE | {primitive.name for primitive in checkify.nan_primitives})
    lines = textwrap.fill(" ".join(names), 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return f'{HEAD}\nfrom __future__ import annotations\n\nNAMES = """\n{lines}\n"""\n'


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
