"""Writes the API reference: a page for each public module, an entry for each name, from signatures and docstrings.

Public are the names that JAX documents for a module and those that the module states. Names that only
raise NotImplementedError are listed on a page of their own.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import unbuilt  # beside this file, where Sphinx looks

import weft

# Modules whose names are not in the table of JAX's documented names.
MORE_MODULES = [
    "weft.ad", "weft.api_util", "weft.checkpoints", "weft.dlpack", "weft.experimental.jet", "weft.experimental.ode",
    "weft.experimental.rnn", "weft.experimental.shard_map", "weft.extend.core", "weft.extend.random",
    "weft.inspect", "weft.interpreters.ad", "weft.interpreters.batching", "weft.interpreters.mlir",
    "weft.interpreters.partial_eval", "weft.pjrt", "weft.ref", "weft.typing",
]  # fmt: skip
LEAST_WRITTEN = "There is no description yet."


def public_modules() -> list[str]:
    names = {*unbuilt.FUNCTIONS, *unbuilt.CLASSES, *MORE_MODULES}
    return sorted(names, key=lambda name: (name.count(".") > 0, name))


def public_names(module: str) -> list[str]:
    """The functions and classes of a module; primitives and modules aside."""
    loaded = importlib.import_module(module)
    listed = {*unbuilt.FUNCTIONS.get(module, "").split(), *unbuilt.CLASSES.get(module, "").split()}
    listed |= {name for name in stated_names(loaded) if is_ours(getattr(loaded, name, None))}
    shown = (name for name in listed if not name.startswith("_") and not name.endswith("_p"))
    return sorted(shown, key=lambda name: (name.lower(), name))


def stated_names(module: Any) -> list[str]:
    """The public names of a module: __all__, or what it defines, or all names if it only gathers some."""
    names = vars(module)
    if module is weft:
        return [*weft._NAMES.modules, *weft.config.CONTEXTS, "inspect", "jit", "make_jaxpr", "threads", "Array"]
    if "__all__" in names:
        return list(names["__all__"])
    own = [name for name, value in names.items() if getattr(value, "__module__", None) == module.__name__]
    facade = "__dir__" in names or not [name for name in own if not name.startswith("_")]
    return dir(module) if facade else own


def constants(module: str) -> list[str]:
    """Types of elements, constants and objects that are indexed: what __all__ has beside functions and classes."""
    loaded = importlib.import_module(module)
    rest = set(vars(loaded).get("__all__", ())) - set(public_names(module)) - {"annotations"}
    rest = {name for name in rest if not name.startswith("_") and not name.endswith("_p")}
    return sorted(name for name in rest if not inspect.ismodule(getattr(loaded, name)))


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
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return "" if isinstance(value, type) and text in ("(*args, **kwargs)", "(*_, **__)") else text


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
    kind = "class" if isinstance(value, type) else "function"
    head = name + (signature_of(value) if kind == "function" or is_made_by_hand(value) else "")
    doc = inspect.getdoc(value)
    if isinstance(value, np.dtype | np.generic) or not callable(value):
        kind, head, doc = "data", name, f"The {type(value).__name__} of this name."
    if isinstance(value, type):
        doc = None if doc == inspect.getdoc(value.__base__) else doc
        doc = doc if is_ours(value) else f"The same as ``{value.__module__}.{value.__name__}``."
    body = in_markdown(doc or LEAST_WRITTEN) + (members(value) if isinstance(value, type) else "")
    return f"::::{{py:{kind}}} {head}\n:canonical: {module}.{name}\n\n{body}\n::::\n"


def members(value: type) -> str:
    """The methods and properties of a class of weft that have a description, a line for each."""
    if not is_ours(value) or issubclass(value, BaseException | enum.Enum):
        return ""
    concrete = type(weft.numpy.ones(())) if value is weft.Array else value  # Array stands for tracers too
    for name in dir(concrete):
        getattr(concrete, name, None)  # methods that load their module replace them
    found = {name: member for base in reversed(concrete.__mro__) for name, member in vars(base).items()}
    lines, plain = [], []
    for name, member in sorted(found.items()):
        doc = (inspect.getdoc(member) or "").partition("\n\n")[0]
        code = getattr(member, "fget", None) or getattr(member, "__func__", member)
        native = value is weft.Array and not inspect.isfunction(code)
        if name.startswith("_") or not (native or str(getattr(code, "__module__", "")).startswith("weft")):
            continue
        if not doc:
            plain.append(f"`{name}`")
            continue
        called = signature_of(code) if inspect.isfunction(code) and not isinstance(member, property) else ""
        called = re.sub(r"^\((?:self|cls|array|arr|a|x|mesh)(?:, /)?(?:, |(?=\)))", "(", called)
        lines.append(f"- `{name}{called}`: " + prose(doc.splitlines()).replace("\n", "\n  "))
    if plain and value is weft.Array:
        lines.append(f"- as in NumPy and JAX: {', '.join(plain)}")
    return "\n\n" + "\n".join(lines) if lines else ""


def is_made_by_hand(value: type) -> bool:
    """Whether users call the class: not an error, not an enumeration, with an ``__init__`` or ``__new__`` in Python."""
    makers = (getattr(value, "__init__", None), getattr(value, "__new__", None))
    return not issubclass(value, BaseException | enum.Enum) and any(inspect.isfunction(maker) for maker in makers)


def page(module: str, built: dict[str, Any]) -> str:
    summary = (inspect.getdoc(importlib.import_module(module)) or "").partition("\n\n")[0]
    entries = [entry(module, name, value) for name, value in built.items()]
    if others := constants(module):
        entries.append("## Types and constants\n\n" + ", ".join(f"`{name}`" for name in others) + "\n")
    head = [f"# {module}\n", prose(summary.splitlines()) + "\n", f"```{{py:currentmodule}} {module}\n```\n"]
    return "\n".join([*head, *entries])


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
    listed = "\n".join(
        f"- **{module}**: {', '.join(f'`{name}`' for name in names)}" for module, names in missing.items() if names
    )
    pages["not_built"] = (
        "# Names that are not built\n\nThese names of JAX exist, so that programs that mention them can be imported. "
        f"Using one raises `NotImplementedError`.\n\n{listed}\n"
    )
    toctree = "\n".join(pages)
    pages["index"] = (
        f"# API reference\n\nEvery public name with its signature and docstring, for weft {weft.__version__}. "
        "The meaning and the order of arguments are JAX's. Examples use names as they stand in their module, "
        "`jnp` for `weft.numpy` and `np` for NumPy.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{toctree}\n```\n"
    )
    for name, text in pages.items():
        target = folder / f"{name}.md"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
