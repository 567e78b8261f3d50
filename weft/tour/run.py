"""The tour's main job: run every part, print it with rich, write the report and the page of the training program.

In: where the report goes. Out: the exit status; 0 when every part ran and every answer agreed with NumPy's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import weft
from weft._base import lazy
from weft.tour import digits, learning, programs, report

LARGEST_ERROR = 1e-4  # largest error of float32 programs, relative to the answers' root mean square


def duration(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def print_stages(console: Any, stages: programs.Stages) -> None:
    then = "fused into" if stages.kernels else "compiled by the plugin as"
    for title, text in (("jaxpr of sum(x**2 + sin(x))", stages.jaxpr), (then, stages.kernel.strip())):
        console.print(lazy.rich_panel.Panel(lazy.rich_text.Text(text), title=title, title_align="left"))
    table = lazy.rich_table.Table("stage", "milliseconds", title=f"on the way to {stages.kernels or 'another'} kernel")
    for name, milliseconds in stages.milliseconds.items():
        table.add_row(name, f"{milliseconds:.2f}")
    console.print(table)
    console.print(
        f"a warm call on 1,000,000 elements takes {duration(stages.warm)}, NumPy {duration(stages.numpy)}: "
        f"[bold]{stages.numpy / stages.warm:.1f} times faster[/bold]\n"
    )


def print_comparisons(console: Any, rows: list[programs.Comparison]) -> None:
    table = lazy.rich_table.Table("program", "first call", "warm", "eager", "NumPy", "NumPy/warm", "error")
    for row in rows:
        table.add_row(
            f"{row.name} {row.size:,}",
            *(duration(t) for t in (row.cold, row.warm, row.eager, row.numpy)),
            f"{row.numpy / row.warm:.2f}",
            f"{row.largest_error:.1e}",
        )
    console.print(table)


def print_misses(console: Any, misses: list[programs.Miss]) -> None:
    for miss in misses:
        verdict = "[yellow]traces[/yellow]" if miss.traced else "[green]reuses[/green]"
        console.print(f"  {miss.call:32} {verdict}")
        for line in miss.explanation:
            console.print(line, style="dim", markup=False, highlight=False)


def print_digits(console: Any, result: digits.Digits) -> None:
    console.print(
        f"  {result.images} images, {digits.COMPONENTS} components by {digits.ITERATIONS} steps of power iteration\n"
        f"  accuracy on the held-out third: weft [bold]{result.accuracy:.4f}[/bold], NumPy {result.accuracy_numpy:.4f}"
        f" ({result.disagreements} labels differ)\n"
        f"  first run {duration(result.first)}, again {duration(result.warm)}, NumPy {duration(result.numpy)}\n"
    )


def print_learning(console: Any, result: learning.Learning) -> None:
    title = "jaxpr of the gradient of one image's loss"
    console.print(lazy.rich_panel.Panel(lazy.rich_text.Text(result.jaxpr), title=title, title_align="left"))
    ratio = result.per_example_loop / result.per_example_vmap
    console.print(
        f"  {learning.STEPS} steps of softmax regression, the gradient taken by weft.grad, by hand in NumPy\n"
        f"  accuracy on the held-out third: weft [bold]{result.accuracy:.4f}[/bold], NumPy {result.accuracy_numpy:.4f};"
        f" largest error of a weight {result.largest_error:.1e}\n"
        f"  first run {duration(result.first)}, again {duration(result.warm)}, NumPy {duration(result.numpy)}\n"
        f"  {learning.LOOPED} gradients, one for each image: vmap {duration(result.per_example_vmap)}, a loop over the"
        f" jitted gradient {duration(result.per_example_loop)}: [bold]{ratio:.0f} times faster[/bold]\n"
    )


def print_inspected(console: Any, page: Path) -> None:
    """Write the page of the training program, in which source, equations, steps and machine code are linked."""
    inspected = learning.inspected()
    inspected.save(page)
    for finding in inspected.findings[:3]:
        console.print(f"  {finding}", markup=False, highlight=False)
    console.print(f"  all its forms, linked and measured: {page.resolve()}\n")


def run(target: Path, platform: str | None = None) -> int:
    """Run the whole tour, by default on the CPU, and write the report to ``target``."""
    if platform is not None:
        weft.config.update("platforms", platform)
    console = lazy.rich_console.Console()
    begin = time.perf_counter()
    console.print(f"[bold]weft {weft.__version__}[/bold] on {programs.machine()}\n")

    console.rule("(a) from Python to one fused kernel", align="left")
    with console.status("tracing and compiling"):
        stages = programs.stages_of_a_program()
    print_stages(console, stages)

    console.rule("(b) cold, warm and eager beside NumPy", align="left")
    products = []
    for row in lazy.rich_progress.track(programs.matrix_products(), "matrix products", total=4, console=console):
        products.append(row)
    selu = programs.selu_on_a_million()
    print_comparisons(console, [*products, selu])

    console.rule("(c) what traces again, and why", align="left")
    misses = programs.what_retraces()
    print_misses(console, misses)

    console.rule("(d) an error and its cure", align="left")
    error, cure = programs.the_error_and_its_cure()
    console.print(error, style="red", markup=False, highlight=False)
    console.print(cure, style="green", markup=False, highlight=False)

    console.rule("(e) handwritten digits", align="left")
    with console.status("fitting and classifying"):
        result = digits.classify_digits()
    print_digits(console, result)

    console.rule("(f) grad and vmap", align="left")
    with console.status("learning"):
        learned = learning.learn_digits()
    print_learning(console, learned)

    page = report.page(stages, products, selu, misses, (error, cure), result, learned)
    target.write_text(page, encoding="utf-8")
    if weft.default_backend() == "cpu":
        console.rule("(g) what the training program became", align="left")
        print_inspected(console, target.with_name(f"{target.stem}-inspect.html"))
    console.print(f"{time.perf_counter() - begin:.1f} s in all; the report with its plots is at {target.resolve()}")
    return verdict(console, [*products, selu], result, learned)


def verdict(console: Any, rows: list[programs.Comparison], result: digits.Digits, learned: learning.Learning) -> int:
    wrong = [f"{row.name} {row.size}" for row in rows if not row.largest_error <= LARGEST_ERROR]
    if result.accuracy != result.accuracy_numpy:
        wrong.append("digits")
    if not max(learned.largest_error, learned.per_example_error) <= LARGEST_ERROR:
        wrong.append("gradients")
    if wrong:
        console.print(f"[red]answers differ from NumPy's: {', '.join(wrong)}[/red]")
    return 1 if wrong else 0
