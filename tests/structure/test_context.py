"""What a compilation reads beside its jaxpr is in one object: the compiler's rooms ask nothing else for it.

Programs are found again, in the process and on disk, by their jaxpr and that object (``compiler.context``). A pass that
asked for an option, a device or a variable of the environment by itself would be used again where it answers otherwise.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.structure.test_structure import PACKAGE, ROOT, module_name, parse

ROOMS = ("compiler", "loops", "codegen")
COMPILING = sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))
# what the state of the process is read by: attributes of these modules, and any name for the first two
STATE = {
    "config": frozenset(("read", "token", "values_of", "x64_enabled", "all_values", "mesh_state", "bound_axes")),
    "os": frozenset(("environ", "getenv", "getpid", "cpu_count")),
    "devices": frozenset(("process_index", "process_count", "many_processes", "device_count", "local_device_count",
                          "cpu_count", "devices", "local_devices", "cpu_devices", "default_backend")),
    "processes": frozenset(("rank", "size", "job")),
    "platform": frozenset(("machine", "processor", "uname")),
}  # fmt: skip

# A module that reads state, and why what it reads does not decide what a jaxpr is compiled to.
ALLOWED = {
    "weft.compiler.context": "it is the object",
    "weft.compiler.storage.disk": "where the cache on disk lies, and how large it may be",
    "weft.compiler.storage.stored": "whether programs are kept on disk",
    "weft.compiler.progress": "whether long compilations are shown",
    "weft.compiler.storage.cache": "how many threads run LLVM at once, and whether in a child process",
    "weft.compiler.evaluation": "runs operations: it makes the keys of its programs itself",
    "weft.compiler.storage.saved": "loads files, for the device that they name",
    "weft.compiler.expansions": "traces functions under the options of this thread, which are its key",
    "weft.codegen.compile": "whether LLVM runs in a child process",
    "weft.codegen.isolate": "the child process",
    "weft.codegen.llvm": "where crash files lie",
}


def reads(tree: ast.AST) -> list[str]:
    return [
        f"{node.lineno}: {node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in STATE.get(node.value.id, ())
    ]


def test_the_compiler_reads_no_state_but_its_context() -> None:
    found = {module_name(path): reads(parse(path)) for path in COMPILING if module_name(path) not in ALLOWED}
    assert not any(found.values()), (
        f"what decides about a program is in compiler.context: {[(name, said) for name, said in found.items() if said]}"
    )


def test_exceptions_read_state() -> None:
    """An exception that has become unnecessary goes."""
    for module in ALLOWED:
        path = (ROOT / Path(*module.split("."))).with_suffix(".py")
        assert reads(parse(path)), f"{module} reads no state any more"


@pytest.mark.parametrize(
    ("text", "count"),
    [("config.read('fast')", 1), ("os.environ['A']", 1), ("devices.process_index()", 1), ("context.current()", 0)],
)
def test_reading_state_is_found(text: str, count: int) -> None:
    assert len(reads(ast.parse(text))) == count
