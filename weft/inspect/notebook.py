"""How programs, compiled functions and counts of caches look in a notebook: small pieces of HTML without scripts."""

from __future__ import annotations

import html
import re
from typing import Any

_PRE = "overflow:auto;max-height:28em;line-height:1.35"
_TYPE = re.compile(r"(?<![\w&])([a-z]+\d*(?:_\w+)?\[[^\]\n=]*\])")  # f32[3,4]
_LONGEST = 20_000  # characters of a text that is shown


def text(title: str, body: str, opened: bool = True) -> str:
    """A text with a title that folds it; the types in it stand back."""
    left = f"\n... {len(body) - _LONGEST} more characters: print it" if len(body) > _LONGEST else ""
    shown = _TYPE.sub(r'<span style="opacity:.6">\1</span>', html.escape(body[:_LONGEST]))
    return (
        f"<details{' open' if opened else ''}><summary><b>{html.escape(title)}</b></summary>"
        f'<pre style="{_PRE}">{shown}{left}</pre></details>'
    )


def table(title: str, rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption><b>{html.escape(title)}</b></caption>{cells}</table>"


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def jaxpr(program: Any) -> str:
    """A Jaxpr or ClosedJaxpr: how large it is, and its text."""
    inner = getattr(program, "jaxpr", program)
    sizes = [_number(len(inner.eqns), "equation"), _number(len(inner.invars), "argument")]
    return text(f"jaxpr: {', '.join(sizes)}, {_number(len(inner.outvars), 'result')}", str(program))


def compiled(stage: Any) -> str:
    """A Compiled: what it costs by the compiler's account, and its kernels."""
    cost, memory = stage.cost_analysis() or {}, stage.memory_analysis()
    rows = [(name, f"{value:,.0f}") for name, value in cost.items() if isinstance(value, int | float) and value]
    for name in ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes"):
        if hasattr(memory, name):
            rows.append((name.replace("_size_in_bytes", " bytes"), f"{getattr(memory, name):,}"))
    return table("compiled function", rows) + text("plan", stage.as_text("plan"), opened=False)


def cache_info(info: Any) -> str:
    """The counts of one function's caches, and the milliseconds of every stage."""
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in zip(info._fields, info) if name != "milliseconds"]
    rows += [(f"{stage}, ms", f"{value:.2f}") for stage, value in info.milliseconds.items()]
    return table("what the caches answered", rows)
