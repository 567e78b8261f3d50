"""Writes the stubs (``.pyi``) that type checkers and editors read where Python alone knows the names.

    python docs/stubs.py            # write them anew
    python docs/stubs.py --print    # only print them

A package that loads its names late states them once, in its ``lazy.Names``; its stub says the same in imports, after
the imports and the constants of the package itself. A module whose functions are made from a row of a table has a stub
with their parameters. A test in tests/typing makes the stubs again and fails where one differs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from weft._base import unbuilt
from weft.scipy.stats import continuous, discrete
from weft.scipy.stats.distribution import Distribution

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "weft", "weft.experimental.sparse", "weft.extend.core", "weft.nn", "weft.numpy", "weft.random", "weft.scipy.linalg",
    "weft.scipy.stats",
)  # fmt: skip
ROWS = [row for row in (*vars(continuous).values(), *vars(discrete).values()) if isinstance(row, Distribution)]
MADE = [f"weft.scipy.stats.{row.name}" for row in ROWS]  # modules whose functions are made from a table
HEAD = '"""The names of {}, for type checkers: written by docs/stubs.py from its own table."""\n\n# fmt: off\n'


def path_of(name: str) -> Path:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".pyi") if name in MADE else path / "__init__.pyi"


def stub(name: str) -> str:
    return stub_of_functions(name) if name in MADE else stub_of_package(name)


def stub_of_functions(name: str) -> str:
    """The functions of a module with their parameters, and the first sentence that each says of itself."""
    module = importlib.import_module(name)
    blocks = [HEAD.format(name) + "from typing import Any\n\nfrom weft import Array\n"]
    for key, value in vars(module).items():
        if not key.startswith("_"):
            signature = str(inspect.signature(value)).replace("weft._base.array.Array", "Array")
            summary = (inspect.getdoc(value) or "").partition("\n")[0]
            blocks.append(f'def {key}{signature}:\n    """{summary}"""\n')
    return "\n".join(blocks)


def stub_of_package(package: str) -> str:
    module = importlib.import_module(package)
    own = "\n".join(own_lines(path_of(package).with_suffix(".py")))
    modules = [name for name in submodules(module) if not re.search(rf"\b{name}( as|:)", own)]
    later = "\n".join(lazy_lines(module, modules))
    return f"{HEAD.format(package)}{own}\n\n{later}\n\ndef __getattr__(name: str) -> _Any: ...\n"


def own_lines(path: Path) -> list[str]:
    """The constants of a package, its imports that offer names, and those that a constant needs."""
    blocks = [node.body if isinstance(node, ast.If) else [node] for node in ast.parse(path.read_text("utf-8")).body]
    statements = [statement for block in blocks for statement in block]  # those for type checkers alone too
    constants = [statement for statement in statements if is_public_constant(statement)]
    needed = {node.id for constant in constants for node in ast.walk(constant) if isinstance(node, ast.Name)}
    lines = ["from typing import Any as _Any"]
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            statement.names = [name for name in statement.names if offers(name) or (name.asname or name.name) in needed]
            if statement.names:
                lines.append(wrapped(ast.unparse(statement)))
    return lines + [ast.unparse(constant) for constant in constants]


def offers(name: ast.alias) -> bool:
    """``name as name``: so a name that comes from another module is offered to the checkers of others."""
    return name.asname == name.name


def is_public_constant(statement: ast.stmt) -> bool:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return isinstance(target, ast.Name) and (target.id == "__version__" or not target.id.startswith("_"))


def lazy_lines(module: ModuleType, modules: list[str]) -> list[str]:
    """An import for each module of the table; ``name as name`` offers a name, and so does an assignment."""
    names, renamed = module._NAMES, module._NAMES.renamed
    homes: dict[str, list[str]] = {module.__name__: [f"{name} as {name}" for name in modules]}
    for name, home in names.modules.items():
        taken = homes.setdefault(home, [])
        if renamed.get(name) not in names.modules:  # it is taken already
            taken.append(renamed.get(name) or f"{name} as {name}")
    offered = [wrapped(f"from {home} import {', '.join(homes[home])}") for home in sorted(homes) if homes[home]]
    return [*offered, *[f"{new} = {old}" for new, old in renamed.items()]]


def wrapped(statement: str) -> str:
    """An import in lines of 120 columns that end after a name."""
    source, word, names = statement.partition("import ")
    head = source + word
    lines = textwrap.wrap(names.replace(" ", "~").replace(",~", ", "), 114)
    text = f"{head}{lines[0]}" if len(head + lines[0]) <= 120 and len(lines) == 1 else ""
    return (text or f"{head}(\n    " + "\n    ".join(lines) + "\n)").replace("~", " ")


def submodules(module: ModuleType) -> list[str]:
    """The modules of a package that are read as its attributes."""
    folder, stated = path_of(module.__name__).parent, {*module._NAMES.submodules, *getattr(module, "_SUBMODULES", ())}
    files = {path.parent.name if path.stem == "__init__" else path.stem for path in folder.glob("*.py")}
    files |= {path.parent.name for path in folder.glob("*/__init__.py")} - {folder.name}
    documented = {name for name in files if unbuilt.is_documented_module(f"{module.__name__}.{name}")}
    return sorted(files & (stated | documented))


def main() -> None:
    for name in (*PACKAGES, *MADE):
        if "--print" in sys.argv:
            print(stub(name))
        else:
            path_of(name).write_text(stub(name), encoding="utf-8")


if __name__ == "__main__":
    main()
