"""``report(f, *args)``: a report on one compiled call, as text or as a self-contained HTML page.

In: a function (jitted or not) and arguments or ShapeDtypeStructs. Out: a ``Report`` with the program in each of the
five forms and the plan, milliseconds per stage, kernels, estimated cost and memory. Nothing is run.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

from weft.dispatch import ahead_of_time
from weft.dispatch import jit as jit_module

FORMS = ahead_of_time.FORMS
_STYLE = "body{font-family:sans-serif;margin:2em} pre{background:#f4f4f4;padding:1em;overflow:auto} td{padding:0 1em}"


class Report:
    """One compiled call, to be printed or shown in a notebook."""

    def __init__(self, name: str, forms: dict[str, str], facts: dict[str, dict[str, Any]]) -> None:
        self.name = name
        self.forms = forms  # form -> text
        self.facts = facts  # title -> measured or estimated numbers, by name

    def text(self, forms: Sequence[str] = FORMS) -> str:
        """The report as plain text."""
        parts = [f"{self.name}"]
        for title, values in self.facts.items():
            parts.append("\n".join([f"{title}:", *[f"  {name}: {_number(value)}" for name, value in values.items()]]))
        parts += [f"{form}:\n{self.forms[form]}" for form in forms]
        return "\n\n".join(parts)

    def html(self) -> str:
        """The report as one HTML page without references to other files."""
        rows = "".join(
            f"<h2>{html.escape(title)}</h2><table>"
            + "".join(f"<tr><td>{html.escape(name)}<td>{_number(value)}" for name, value in values.items())
            + "</table>"
            for title, values in self.facts.items()
        )
        forms = "".join(
            f"<details{' open' if form in ('jaxpr', 'kernel') else ''}><summary>{form}</summary>"
            f"<pre>{html.escape(text)}</pre></details>"
            for form, text in self.forms.items()
        )

        name = html.escape(self.name)
        head = f"<!doctype html><meta charset=utf-8><title>{name}</title><style>{_STYLE}</style>"
        return f"{head}<h1>{name}</h1>{rows}{forms}"

    _repr_html_ = html

    def __str__(self) -> str:
        return self.text(("jaxpr", "kernel", "plan"))


def _number(value: Any) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def report(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Trace and compile ``function`` for these arguments and report on it."""
    jitted: Any = function if hasattr(function, "cache_info") else jit_module.jit(function)
    compiled = jitted.lower(*args, **kwargs).compile()
    info = jitted.cache_info()
    facts = {
        "milliseconds per stage": info.milliseconds,
        "caches": {name: value for name, value in info._asdict().items() if name != "milliseconds"},
        "estimated cost": compiled.cost_analysis(),
        "memory": compiled.memory_analysis(),
    }
    types = ", ".join(aval.str_short() for aval in compiled._arguments.avals)
    forms = {form: compiled.as_text(form) for form in FORMS}
    return Report(f"{compiled.fun_name}({types})", forms, facts)


def show(function: Callable[..., Any], *args: Any, forms: Sequence[str] = ("jaxpr", "kernel"), **kwargs: Any) -> None:
    """Print ``function`` compiled for these arguments in some of its forms."""
    print(report(function, *args, **kwargs).text(forms))
