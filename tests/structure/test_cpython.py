"""Nothing of weft depends on what a version of CPython keeps to itself: bytecode, layouts of objects, private names.

No test can run on a Python that is not installed. What such a Python may change freely is therefore not used at all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.structure.test_structure import NATIVE, ROOT, SOURCES

# attributes of code objects, and of the module dis, that say how a version lays out its bytecode
BYTECODE = {"co_code", "_co_code_adaptive", "co_lnotab", "opmap", "hasconst", "hasname", "hasjrel",
            "stack_effect", "_inline_cache_entries", "co_exceptiontable"}  # fmt: skip
MODULES = {"opcode", "_opcode", "_opcode_metadata", "_testinternalcapi", "_symtable", "_imp"}
PRIVATE_IN_C = [
    r"\b_Py\w+",  # private functions
    r"\bPy_BUILD_CORE\b|pycore_|\"internal/",  # private headers
    r"->\s*(?:co|f|ob)_\w+",  # fields of code objects, frames and numbers
    r"\bPyUnstable_\w+",
]


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Lines, and what of CPython's own they use."""
    if not re.search("|".join([r"sys\s*\._", *BYTECODE, *MODULES]), text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            of_sys = isinstance(node.value, ast.Name) and node.value.id == "sys" and node.attr.startswith("_")
            if node.attr in BYTECODE or (of_sys and node.attr != "_getframe"):  # which has no other name
                yield node.lineno, node.attr
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from [(node.lineno, name) for name in names if name.partition(".")[0] in MODULES]


def _native(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in PRIVATE_IN_C:
            if found := re.search(pattern, line.partition("//")[0]):
                yield number, found[0]


def test_no_file_uses_what_cpython_keeps_to_itself() -> None:
    found = [f"{path}:{line}: {what}" for path in SOURCES for line, what in _python(path.read_text())]
    found += [f"{path}:{line}: {what}" for path in NATIVE for line, what in _native(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["code.co_code[3]", "dis.opmap['IMPORT_FROM']", "import opcode", "from _opcode import stack_effect", "sys._git"],
)
def test_what_python_would_be_found(line: str) -> None:
    assert list(_python(line))


@pytest.mark.parametrize("line", ["_PyObject_GC_New(x)", "reinterpret_cast<PyCodeObject*>(c)->co_filename"])
def test_what_c_would_be_found(line: str) -> None:
    assert list(_native(line))


def test_annotations_are_texts() -> None:
    """From Python 3.14 on a class statement has a dict of its annotations only where they are texts."""
    texts = {path: path.read_text() for path in SOURCES}
    evaluated = [path for path, text in texts.items() if "from __future__ import annotations" not in text]
    wrong = [str(path) for path in evaluated if any(map(_is_annotated, ast.walk(ast.parse(texts[path]))))]
    assert not wrong, "\n".join(wrong)


def _is_annotated(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(isinstance(line, ast.AnnAssign) for line in node.body)


def test_the_workflows_name_the_versions() -> None:
    """Released versions must pass; what is newer runs too, as far as its libraries are there."""
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    for name in ("ci", "release"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        versions = re.findall(r'"(3\.\d+)"', re.findall(r"python: \[(.*)\]", text)[0])
        assert versions == [*promised, "3.14", "3.15"], (name, versions)
        assert "allow-prereleases: true" in text and 'contains(fromJSON(\'["3.14", "3.15"]\'), matrix.python)' in text
