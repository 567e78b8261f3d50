"""The type stub of the native module names what the module has, no more and no less."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import weft
from weft import runtime

STUB = Path(weft.__file__).with_name("runtime") / "_native.pyi"
TREE = ast.parse(STUB.read_text())
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}
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
    stubbed = {name for name in declared(TREE.body) - OTHERS if not name.startswith("_")}
    assert present == stubbed


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.startswith("_")])
def test_members(name: str) -> None:
    members = {member for member in declared(CLASSES[name].body) if not member.startswith("__")}
    missing = members - set(dir(getattr(runtime, name)))
    assert not missing
