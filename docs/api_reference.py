"""Writes the API reference: a page for each public module, an entry for each name, from signatures and docstrings.

Public are the names that JAX documents for a module and weft has, and those of the module's ``__all__``. Names that only
raise NotImplementedError are listed on a page of their own.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import weft
from weft._base import unbuilt

OWN = {  # names of weft's own modules that JAX does not have, beside those of __all__
    "weft": ["jacfwd", "jacrev", "jacobian", "hessian", "inspect", "install_as_jax", "load", "load_ipython_extension",
             "profile", "threads", "new_ref", "empty_ref", "free_ref", "freeze", "Ref", "Shard", "ds"],
    "weft.inspect": [], "weft.pjrt": [], "weft.ref": [], "weft.ad": [],
}  # fmt: skip
LEAST_WRITTEN = "There is no description yet."


def public_modules() -> list[str]:
    names = {*unbuilt.FUNCTIONS, *unbuilt.CLASSES, *OWN}
    return sorted(names, key=lambda name: (name.count(".") > 0, name))


def public_names(module: str) -> list[str]:
    """The names of a module, primitives and modules aside."""
    loaded = importlib.import_module(module)
    listed = {*unbuilt.FUNCTIONS.get(module, "").split(), *unbuilt.CLASSES.get(module, "").split(), *OWN.get(module, [])}
    own = vars(loaded).get("__all__", [])
    listed |= {name for name in own if is_ours(getattr(loaded, name, None))}
    return sorted((name for name in listed if not name.startswith("_")), key=str.lower)


def is_ours(value: Any) -> bool:
    return callable(value) and str(getattr(value, "__module__", "")).startswith("weft")


def is_unbuilt(value: Any) -> bool:
    return (inspect.getdoc(value) or "").startswith("Not built yet")


def signature_of(value: Any) -> str:
    """The parameters without annotations; defaults that are no Python literals are written as ``...``."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [shown_parameter(p) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


class Shown:
    """A default that prints as it is to be read."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def shown_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not inspect.Parameter.empty:
        default = Shown(default.__name__ if isinstance(default, type) else repr(default))
        try:
            ast.parse(default.text, mode="eval")
        except SyntaxError:
            default = Shown("...")
    return parameter.replace(annotation=inspect.Parameter.empty, default=default)


def in_markdown(doc: str) -> str:
    """A docstring as Markdown: examples as code, characters with a meaning in Markdown as they stand."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", doc.strip("\n")):
        lines = textwrap.dedent(paragraph).splitlines()
        first = next((i for i, line in enumerate(lines) if line.lstrip().startswith(">>>")), len(lines))
        if lines[:first]:
            parts.append(prose(lines[:first]))
        if lines[first:]:
            parts.append("~~~pycon\n" + textwrap.dedent("\n".join(lines[first:])) + "\n~~~")
    return "\n\n".join(parts)


def prose(lines: list[str]) -> str:
    if all(line.startswith("    ") or not line.strip() for line in lines):
        return "~~~text\n" + textwrap.dedent("\n".join(lines)) + "\n~~~"
    pieces = re.split(r"(``.*?``|`[^`]+`)", "\n".join(line.strip() for line in lines), flags=re.S)
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_\[\]<>|{}#$~])", r"\\\1", p) for p in pieces)


def entry(module: str, name: str, value: Any) -> str:
    kind = "class" if isinstance(value, type) else "function" if callable(value) else "data"
    head = name + (signature_of(value) if kind == "function" else "")
    doc = inspect.getdoc(value) if kind != "data" else None
    if value is None or (isinstance(value, type) and doc == inspect.getdoc(value.__base__)):
        doc = None
    return f"::::{{py:{kind}}} {head}\n:canonical: {module}.{name}\n\n{in_markdown(doc or LEAST_WRITTEN)}\n::::\n"


def page(module: str, built: dict[str, Any]) -> str:
    summary = (inspect.getdoc(importlib.import_module(module)) or "").partition("\n\n")[0]
    entries = [entry(module, name, value) for name, value in built.items()]
    return "\n".join([f"# {module}\n", prose(summary.splitlines()) + "\n", f"```{{py:currentmodule}} {module}\n```\n", *entries])


def lookup(module: str) -> Iterator[tuple[str, Any]]:
    loaded = importlib.import_module(module)
    for name in public_names(module):
        yield name, getattr(loaded, name)


def write(folder: Path) -> None:
    """Write ``folder``: index.md, a page for each module with something in it, and not_built.md."""
    folder.mkdir(exist_ok=True)
    pages, missing = {}, {}
    for module in public_modules():
        names = dict(lookup(module))
        built = {name: value for name, value in names.items() if not is_unbuilt(value)}
        missing[module] = sorted(set(names) - set(built))
        if built:
            pages[module] = page(module, built)
    listed = "\n".join(f"- **{module}**: {', '.join(f'`{n}`' for n in names)}" for module, names in missing.items() if names)
    pages["not_built"] = (
        "# Names that are not built\n\nThese names of JAX exist, so that programs that mention them can be imported. "
        f"Using one raises `NotImplementedError`.\n\n{listed}\n"
    )
    toctree = "\n".join(pages)
    pages["index"] = (
        f"# API reference\n\nEvery public name, with its signature and docstring, for weft {weft.__version__}. The meaning "
        "and the order of arguments are JAX's.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{toctree}\n```\n"
    )
    for name, text in pages.items():
        target = folder / f"{name}.md"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
