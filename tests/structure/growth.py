"""Growth stops by rule: what is counted of the sources, and the table with the most that each count may be.

    python -m tests.structure.growth                        # the counts, beside the table's
    python -m tests.structure.growth --write                # write the table anew, with the numbers that have fallen
    python -m tests.structure.growth --write --raise NAME   # and with this one raised

A number of ``growth.json`` may fall. It may rise only in a commit whose message says what the new thing replaces.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, NATIVE, TABLE = ROOT / "weft", ROOT / "weft" / "runtime" / "src", Path(__file__).with_name("growth.json")
CORE = ("compiler", "loops", "codegen", "dispatch")  # their counts are exact, but for a few lines
CLASS_LINES = 300  # of a class; those that are larger stand in the table
Counts = dict[str, int]

# What the program of a first call is, and what Python does meanwhile. LLVM and other threads are not counted.
FIRST_JIT = """
import gc, sys
import numpy as np
import weft
import weft.numpy as jnp
weft.jit(lambda x: x + 1)(np.ones(3, np.float32))  # the compiler is imported, and threads are started
x, f = np.ones(1000, np.float32), weft.jit(lambda x: jnp.sum(x**2 + jnp.sin(x)))
calls, files = [0], set()
def seen(frame, event, _):
    if event == "call":
        calls[0] += 1
        files.add(frame.f_code.co_filename)
gc.disable()
sys.setprofile(seen)
f(x)
sys.setprofile(None)
print(calls[0], len([file for file in files if not file.startswith("<")]))
"""


@functools.cache
def counted() -> Counts:
    """Every count by its name."""
    return {
        "passes": _passes(),
        "schedule forms": _schedule_forms(),
        **{f"constants: {room}": count for room, count in _constants().items()},
        "figures of the target model": _figures(),
        "classes with retire()": len([1 for _, node in _classes() if _has_method(node, "retire")]),
        "lax.x_p in compiler": sum(len(re.findall(r"\blax\.\w+_p\b", text)) for text in _texts("compiler")),
        "target.host() outside of dispatch/devices/__init__.py": sum(_asks_the_host(path) for path in _parsed()),
        **{f"lines: {room}": count for room, count in _lines().items()},
        "largest knowledge circle": max(map(len, circles(known_by(PACKAGE)))),
        **{f"class: {name}": lines for name, lines in _large_classes()},
        **_first_jit(),
    }


# -- what is counted --------------------------------------------------------------------------------------------------


@functools.cache
def _parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(), str(path)) for path in sorted(PACKAGE.rglob("*.py"))}


def _texts(room: str) -> list[str]:
    return [path.read_text() for path in _parsed() if _room(path) == room]


def _room(path: Path) -> str:
    """The folder of the package in which a file lies; files beside it are in ``weft``."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "weft"


def _value(path: str, name: str) -> ast.expr:
    """What a module assigns to a name."""
    for node in _parsed()[PACKAGE / path].body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert node.value is not None  # type: ignore[attr-defined] - of an assignment
            return node.value  # type: ignore[attr-defined] - of an assignment
    raise LookupError(f"{path} has no {name}")


def _passes() -> int:
    calls = [node for node in ast.walk(_value("compiler/passes/pass_list.py", "PASSES")) if isinstance(node, ast.Call)]
    return len([1 for node in calls if ast.unparse(node.func) == "_pass"])


def _schedule_forms() -> int:
    """Ways in which the vectors of a tile reach memory together: the members of a union."""
    return 1 + len(
        [1 for node in ast.walk(_value("loops/schedules/decisions.py", "Tile")) if isinstance(node, ast.BitOr)]
    )


def _constants() -> Counts:
    """Numbers with a name in capitals, room by room; and those of C++ (``kName``)."""
    found: Counts = dict.fromkeys(CORE, 0)
    for path, tree in _parsed().items():
        if _room(path) in found:
            found[_room(path)] += sum(map(_named_numbers, tree.body))
    found["runtime/src"] = sum(_native_constants(path.read_text()) for path in NATIVE.rglob("*.[ch]*"))
    return found


def _figures() -> int:
    """Named numbers of the target model, the fields of a row of it, and what the native runtime is handed."""
    body = _parsed()[PACKAGE / "_base" / "target_model.py"].body
    fields = [node for row in body if isinstance(row, ast.ClassDef) for node in row.body]
    handed = _value("_base/target_model.py", "RUNTIME")
    assert isinstance(handed, ast.Dict)
    own = sum(map(_named_numbers, body)) + len([1 for node in fields if isinstance(node, ast.AnnAssign)])
    return own + len(handed.keys)


def _named_numbers(node: ast.stmt) -> int:
    if not isinstance(node, ast.Assign) or not _is_numbers(node.value):
        return 0
    names = [name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return len([name for name in names if name.id.isupper()])


def _is_numbers(node: ast.expr) -> bool:
    """Whether an expression is made of numbers: ``1 << 20``, ``(2, 3, 4)``."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Tuple, ast.expr_context)
    parts = list(ast.walk(node))
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return bool(values) and plain and all(isinstance(part, allowed) for part in parts)


def _native_constants(text: str) -> int:
    found = 0
    for line in text.splitlines():
        if re.match(r"(?:static |inline )*constexpr ", line):
            found += len(re.findall(r"\bk[A-Z]\w*(?= = (?:[-\d.]|u?int\d+_t\{\d|size_t\{\d))", line.partition("//")[0]))
    return found


def _asks_the_host(path: Path) -> int:
    """How often a file asks for the target of this process, which only a device is to know."""
    if path.relative_to(PACKAGE).as_posix() in ("dispatch/devices/__init__.py", "_base/target.py"):
        return 0
    return len(re.findall(r"\btargets?\.host\(\)", path.read_text()))


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path, tree in _parsed().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield f"{_module(path)}.{node.name}", node


def _has_method(node: ast.ClassDef, name: str) -> bool:
    return any(isinstance(child, ast.FunctionDef) and child.name == name for child in node.body)


def _large_classes() -> list[tuple[str, int]]:
    sizes = [(name, (node.end_lineno or 0) - node.lineno + 1) for name, node in _classes()]
    return [(name, lines) for name, lines in sizes if lines > CLASS_LINES]


def _lines() -> Counts:
    found: Counts = {}
    for path in _parsed():
        found[_room(path)] = found.get(_room(path), 0) + path.read_text().count("\n")
    found["runtime/src"] = sum(path.read_text().count("\n") for path in NATIVE.rglob("*.[ch]*"))
    return found


def _first_jit() -> Counts:
    """Python functions called, and files that have them, by the first call of sum(x**2 + sin x)."""
    environment = {**os.environ, "WEFT_CACHE": "off", "WEFT_CHECK": "0", "WEFT_SYNC": ""}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_JIT], check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    calls, files = map(int, done.stdout.split())
    return {"first jit: calls": calls, "first jit: files": files}


# -- circles of knowledge ---------------------------------------------------------------------------------------------


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def known_by(package: Path) -> dict[str, set[str]]:
    """For every module the modules that it imports, for the type checker alone too."""
    trees = {_module(path): tree for path, tree in _parsed().items() if path.is_relative_to(package)}
    return {name: set(_imports(tree, trees.keys())) - {name} for name, tree in trees.items()}


def _imports(tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    """The modules that one imports: of ``from package import module`` the module, not the package."""
    blocks = [node.body for node in tree.body if isinstance(node, ast.If | ast.With)]
    for node in (*tree.body, *itertools.chain(*blocks)):
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names if alias.name in modules]
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [name for name in below if name in modules] or [str(node.module)]


def circles(known: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected parts of a graph: who is in one can be reached from all in it (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        path.append(name)
        for other in sorted(known[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in path:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = path.index(name)
            found.append(set(path[at:]))
            del path[at:]

    for name in sorted(known):
        if name not in order:
            visit(name)
    return found


# -- the table --------------------------------------------------------------------------------------------------------


def slack(name: str) -> float:
    """The share by which a count may be more than the table says, where it follows each feature or is noisy."""
    if name.startswith("lines: "):
        return 0.01 if name.removeprefix("lines: ") in CORE else 0.15
    return 0.03 if name.startswith("first jit") else 0.0


def table() -> Counts:
    return json.loads(TABLE.read_text())


def exceeded(found: Counts, most: Counts) -> list[str]:
    """What is more than the table allows, in words."""
    return [
        f"{name}: {count}, and the table allows {most.get(name, CLASS_LINES if name.startswith('class') else 0)}"
        for name, count in found.items()
        if count > most.get(name, 0) * (1 + slack(name))
    ]


def written(found: Counts, most: Counts, raised: Iterable[str]) -> Counts:
    """The next table: numbers that have fallen, new ones, and those that are to rise. Rooms that grow keep theirs."""
    return {name: count if name in raised else min(count, most.get(name, count)) for name, count in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.structure.growth", description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--raise", dest="raised", action="append", default=[], metavar="NAME")
    given = parser.parse_args()
    found, most = counted(), table() if TABLE.exists() else {}
    for name, count in found.items():
        print(f"{name:40} {count:7} {most.get(name, 'new'):>7}")
    if given.write:
        TABLE.write_text(json.dumps(written(found, most, given.raised), indent=2) + "\n")


if __name__ == "__main__":
    main()
