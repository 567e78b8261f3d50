"""Runs the notebooks of the site: ``python docs/run_notebooks.py [--update] [notebooks]``.

Each runs in a process of its own, cell after cell, with names of its own: a cell that raises is a complaint.
``--update`` keeps what the cells print and show in the files, as Jupyter does: texts, and HTML of up to 20 kB. This
needs neither Jupyter nor IPython; what it does not know (magics, ``display``) the notebooks do not use.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
LARGEST_HTML = 20_000
LIMIT = 120  # seconds for a notebook


def notebooks() -> list[Path]:
    return sorted((DOCS / "notebooks").glob("*.ipynb"))


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def as_terminal(text: str) -> str:
    """The text that stays visible where a line is written over after a carriage return."""
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


def run_cell(code: str, names: dict[str, Any], title: str) -> list[dict[str, Any]]:
    """The outputs of a cell as Jupyter keeps them: what it prints, and the value of its last expression."""
    body = ast.parse(code, title).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) and not code.rstrip().endswith(";") else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), title, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), title, "eval"), names)  # type: ignore[attr-defined] - an Expr
        sys.modules["weft"].effects_barrier()
    outputs: list[dict[str, Any]] = []
    if text := as_terminal(printed.getvalue()):
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(text)})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        html = value._repr_html_() if hasattr(type(value), "_repr_html_") else None
        if html is not None and len(html) <= LARGEST_HTML:
            data["text/html"] = lines(html)
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def run_here(path: Path, update: bool) -> str:
    """The complaint about a notebook, "" if all of its cells run."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        try:
            outputs = run_cell(source(cell), names, f"{path.name}[{count}]")
        except Exception:
            return f"cell {count} of {path.name} raises\n{traceback.format_exc()}"
        for output in outputs:
            if "execution_count" in output:
                output["execution_count"] = count
        cell["execution_count"], cell["outputs"] = count, outputs
    if update:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return ""


def run(path: Path, update: bool = False) -> str:
    """``run_here`` in a process of its own: devices are counted once in a process."""
    command = [sys.executable, __file__, "--here", *(["--update"] if update else []), str(path)]
    environment = {"WEFT_NUM_CPU_DEVICES": "4", "PYTHONPATH": str(DOCS.parent), **os.environ}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=LIMIT)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def as_markdown(text: str, address: str) -> str:
    """A notebook as a page of the site, with its outputs."""
    parts = []
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "text/html" in data:
                parts.append("```{raw} html\n" + re.sub(r"\n\s*\n", "\n", "".join(data["text/html"])) + "\n```")
            else:
                parts.append("```text\n" + "".join(data["text/plain"]).rstrip() + "\n```")
    parts.insert(1, f"This page is a notebook: {{download}}`{address}` opens in Jupyter.\n")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="keep the outputs in the notebooks")
    parser.add_argument("--here", action="store_true", help="run them in this process")
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args()
    chosen = [path.resolve() for path in options.notebooks] or notebooks()
    if options.here:
        import weft  # noqa: F401, PLC0415 - it reads the environment, which is set by now

        complaints = [run_here(path, options.update) for path in chosen]
    else:
        with ThreadPoolExecutor(2) as pool:
            complaints = list(pool.map(functools.partial(run, update=options.update), chosen))
    complaints = [text for text in complaints if text]
    print("\n".join(complaints) or f"{len(chosen)} notebooks run")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
