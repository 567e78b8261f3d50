"""The type stub of the native module names what the module has, no more and no less."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import weft
import weft.numpy
from weft import runtime

FOLDER = Path(weft.__file__).with_name("runtime")
TREE = ast.parse((FOLDER / "_native.pyi").read_text())
ARRAY_TREE = ast.parse((FOLDER / "_array.pyi").read_text())
CLASSES = {node.name: node for node in [*TREE.body, *ARRAY_TREE.body] if isinstance(node, ast.ClassDef)}
OTHERS = {"Leaf", "_T"}


def declared(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_names() -> None:
    present = {name for name in vars(runtime._native) if not name.startswith("_")}
    stubbed = {name for name in {*declared(TREE.body), "Array"} - OTHERS if not name.startswith("_")}
    assert present == stubbed


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.startswith("_")])
def test_members(name: str) -> None:
    dir(weft.Array)  # loads the methods that weft.numpy installs
    present = {member for member in dir(getattr(runtime, name)) if not member.startswith("_")}
    bases = [CLASSES[base.id] for base in CLASSES[name].bases if isinstance(base, ast.Name) and base.id in CLASSES]
    stubbed = {member for node in (CLASSES[name], *bases) for member in declared(node.body)}
    assert present == {member for member in stubbed if not member.startswith("_")}


def test_parameters() -> None:
    """A function of C++ says its parameters in its docstring, the stub in its types: they are as many."""
    owners = [(runtime._native, TREE.body), *[(getattr(runtime, name, None), CLASSES[name].body) for name in CLASSES]]
    found = []
    for owner, body in owners:
        for node in body:
            if not isinstance(node, ast.FunctionDef):
                continue
            said = re.match(
                rf"{node.name}\(([\w=, ]*)\)", getattr(getattr(owner, node.name, None), "__doc__", "") or ""
            )
            names = [part.split("=")[0].strip() for part in said[1].split(",")] if said else []
            if said and all(name.isidentifier() for name in names if name):
                found.append(node.name)
                written = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                written = [argument for argument in written if argument.arg != "self"]
                assert len(written) == len([name for name in names if name]), node.name
    assert len(found) > 90


def test_the_array_stub_is_complete() -> None:
    """Every public member of arrays, with the parameters of the function that computes it."""
    array = weft.numpy.ones(2)
    dir(weft.Array)  # loads the methods that weft.numpy installs
    present = {name for name in dir(array) if not name.startswith("_")}
    stubbed = {name for name in declared(CLASSES["Array"].body) if not name.startswith("_")}
    assert present == stubbed
    for node in CLASSES["Array"].body:
        method = getattr(runtime.Array, node.name, None) if isinstance(node, ast.FunctionDef) else None
        if not inspect.isfunction(method) or isinstance(method, property) or node.name.startswith("_"):
            continue
        taken = list(inspect.signature(method).parameters)[1:]
        if "kwargs" not in taken:
            written = [*node.args.posonlyargs, *node.args.args[1:], *node.args.kwonlyargs]
            written += [argument for argument in (node.args.vararg,) if argument is not None]
            assert {argument.arg for argument in written} == set(taken), node.name
