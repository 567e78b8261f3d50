"""The tour's report: one self-contained HTML page with its plots as inline SVG.

In: the figures of ``programs``, ``digits`` and ``learning``. Out: the page's text. Nothing is fetched by the page.
"""

from __future__ import annotations

import html
import io
from typing import Any

import numpy as np

import weft
from weft._base import lazy
from weft.tour import digits, learning, programs

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
pre { padding: .8rem 1rem; overflow-x: auto; border: 1px solid #8886; border-radius: 6px; font-size: 13px; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } svg { max-width: 100%; height: auto; background: white; }
.traces { color: #b26a00; } .reuses { color: #2e7d32; }
"""


def svg_of(figure: Any) -> str:
    """The figure as an SVG element, without the XML prologue."""
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight")
    text = file.getvalue()
    return text[text.index("<svg") :]


def figure_and_axes(width: float = 7.0, height: float = 4.2) -> tuple[Any, Any]:
    figure = lazy.matplotlib_figure.Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def plot_products(rows: list[programs.Comparison]) -> str:
    """Time against size: first call, warm, eager, NumPy."""
    figure, axes = figure_and_axes()
    sizes = [row.size for row in rows]
    for label, marker in (("cold", "s"), ("warm", "o"), ("eager", "^"), ("numpy", "x")):
        axes.loglog(sizes, [1e3 * getattr(row, label) for row in rows], marker=marker, label=label)
    axes.set_xlabel("matrix size n")
    axes.set_ylabel("milliseconds")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set_title("n x n matrix product, float32")
    axes.legend()
    return svg_of(figure)


def plot_bars(rows: list[programs.Comparison]) -> str:
    figure, axes = figure_and_axes(height=3.2)
    labels = ("cold", "warm", "eager", "numpy")
    for i, row in enumerate(rows):
        offset = (i - (len(rows) - 1) / 2) * 0.35
        axes.bar(np.arange(4) + offset, [1e3 * getattr(row, k) for k in labels], 0.35, label=f"{row.name} {row.size:,}")
    axes.set_xticks(range(4), labels)
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds")
    axes.legend()
    return svg_of(figure)


def plot_digits(result: digits.Digits) -> str:
    """The held-out images in the plane of the first two components."""
    figure, axes = figure_and_axes(height=5.0)
    points = axes.scatter(*result.projected.T, c=result.labels, cmap="tab10", s=9)
    axes.legend(*points.legend_elements(), title="digit", loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_xlabel("first component")
    axes.set_ylabel("second component")
    return svg_of(figure)


def plot_losses(result: learning.Learning) -> str:
    figure, axes = figure_and_axes(height=3.2)
    axes.semilogy(result.losses)
    axes.set_xlabel("step")
    axes.set_ylabel("cross-entropy, nats")
    return svg_of(figure)


def table(header: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return "<table>" + line(header, "th") + "".join(line(r, "td") for r in rows) + "</table>"


def comparison_table(rows: list[programs.Comparison]) -> str:
    body = [
        [
            f"{r.name} {r.size:,}",
            *(f"{1e3 * t:.4g}" for t in (r.cold, r.warm, r.eager, r.numpy)),
            f"{r.largest_error:.1e}",
        ]
        for r in rows
    ]
    return table(["program", "first call ms", "warm ms", "eager ms", "NumPy ms", "error"], body)


def misses_list(misses: list[programs.Miss]) -> str:
    items = []
    for miss in misses:
        word = "traces" if miss.traced else "reuses"
        reasons = "".join(f"<pre>{html.escape(line)}</pre>" for line in miss.explanation)
        items.append(f"<li><code>{html.escape(miss.call)}</code> <b class={word}>{word}</b>{reasons}</li>")
    return "<ul>" + "".join(items) + "</ul>"


def page(
    stages: programs.Stages,
    products: list[programs.Comparison],
    selu: programs.Comparison,
    misses: list[programs.Miss],
    error_and_cure: tuple[str, str],
    result: digits.Digits,
    learned: learning.Learning,
) -> str:
    """The whole report."""
    error, cure = (html.escape(text) for text in error_and_cure)
    milliseconds = [[name, f"{value:.2f}"] for name, value in stages.milliseconds.items()]
    accuracy = f"accuracy weft {result.accuracy:.4f}, NumPy {result.accuracy_numpy:.4f}"
    parts = [
        f"<h1>weft {weft.__version__}: the tour</h1><p>Measured on {html.escape(programs.machine())}.</p>",
        "<h2>From Python to one fused kernel</h2>",
        f"<pre>{html.escape(stages.jaxpr)}</pre><pre>{html.escape(stages.kernel)}</pre>",
        table(["stage", "milliseconds"], milliseconds),
        f"<p>A warm call takes {1e6 * stages.warm:.0f} us, NumPy {1e6 * stages.numpy:.0f} us.</p>",
        "<h2>Cold, warm and eager beside NumPy</h2>",
        plot_products(products),
        plot_bars([selu]),
        comparison_table([*products, selu]),
        "<h2>What traces again, and why</h2>",
        misses_list(misses),
        f"<h2>An error and its cure</h2><pre>{error}</pre><pre>{cure}</pre>",
        f"<h2>Handwritten digits</h2><p>{result.images} images; {accuracy}.</p>",
        plot_digits(result),
        "<h2>grad and vmap</h2>",
        f"<pre>{html.escape(learned.jaxpr)}</pre>",
        f"<p>Softmax regression on the digits, {learning.STEPS} steps: accuracy weft {learned.accuracy:.4f}, NumPy with"
        f" its gradient by hand {learned.accuracy_numpy:.4f}; {1e3 * learned.warm:.3g} ms, NumPy"
        f" {1e3 * learned.numpy:.3g} ms.</p>",
        plot_losses(learned),
        f"<p>The gradient of each of {learning.LOOPED} images: {1e6 * learned.per_example_vmap:.3g} us with vmap,"
        f" {1e6 * learned.per_example_loop:.3g} us in a loop.</p>",
    ]
    head = f'<meta charset="utf-8"><title>weft: the tour</title><style>{STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"
