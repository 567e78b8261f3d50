"""What outlives its use as a source shows it: locks that a fork leaves held, local functions that know themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "weft").rglob("*.py"))
NATIVE = sorted((ROOT / "weft" / "runtime" / "src").rglob("*.[ch]*"))
LOCKS = re.compile(r"\bthreading\.(Lock|RLock|Condition|Event|Semaphore|BoundedSemaphore|Barrier)\(")

# Files that make locks of their own, and why a child of a fork does not wait for them.
OWN_LOCKS = {
    "weft/_base/forks.py": "a fork holds them",
    "weft/_base/debugger.py": "made anew in the child",
    "weft/compiler/progress.py": "made anew in the child",
    "weft/compiler/storage/stored.py": "held over a fork, and that of the writing thread made anew",
    "weft/compiler/storage/cache.py": "events of what other threads build, which the child forgets",
    "weft/compiler/side_by_side.py": "of one compilation, whose thread is not in the child",
}
NATIVE_LOCKS = {
    "llvm_switches.cpp": "held over a fork, made anew in the child",
    "buffer.cpp": "held over a fork",
    "fft_plan.cpp": "held over a fork",
    "profile.cpp": "made anew in the child",
    "pool.cpp": "made anew in the child",
    "lapack.cpp": "made anew in the child",
    "stream.cpp": "made anew in the child",
    "stream_tasks.h": "made anew in the child, by stream.cpp",
    "pjrt_plugin.cpp": "of one wait; a child has no plugins",
    "exchange_step.cpp": "a child takes part in no exchange",
    "fake_device.cpp": "a child asks no device for anything",
    "cuda_copies.cpp": "a child asks no device for anything",
    "cuda_device.cpp": "a child asks no device for anything",
    "cuda_device.h": "a child asks no device for anything",
    "cuda_driver.cpp": "made anew in the child",
    "cuda_graphs.cpp": "a child asks no device for anything",
    "cuda_guards.cpp": "a child asks no device for anything",
    "cuda_library.cpp": "a child asks no device for anything",
    "cuda_library.h": "a child asks no device for anything",
    "cuda_memory.cpp": "a child asks no device for anything",
    "cuda_memory.h": "a child asks no device for anything",
    "cuda_module.cpp": "a child asks no device for anything",
    "mpi.cpp": "a child takes part in no exchange",
    "foreign.h": "of one call, with which a child does not go on",
    "foreign_api.cpp": "of one future, likewise, and of threads: a child starts its own",
}


def test_no_lock_stays_held_in_a_child() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert "cached_property" not in text, f"{path}: on CPython 3.11 it has one lock, which a fork may leave held"
        if LOCKS.search(text):
            name = str(path.relative_to(ROOT))
            assert name in OWN_LOCKS, f"{path} makes a lock: use forks.held, or say here what becomes of it in a child"


def test_no_native_lock_stays_held_in_a_child() -> None:
    for path in NATIVE:
        if re.search(r"std::(mutex|shared_mutex|recursive_mutex|condition_variable)\b", path.read_text()):
            assert path.name in NATIVE_LOCKS, f"{path}: what becomes of its mutex in a child of a fork?"
    paths = {path.name: path for path in NATIVE}
    for name, what in NATIVE_LOCKS.items():
        text = paths[name].read_text()
        at_fork = "pthread_atfork" in text
        assert at_fork or not what.startswith(("held", "made")) or "by stream.cpp" in what, name


def _defined(function: ast.AST) -> dict[str, ast.AST]:
    """The functions, classes and lambdas that a function names in its own scope."""
    found: dict[str, ast.AST] = {}
    waiting = list(getattr(function, "body", []))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
            continue
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            found.update((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
            continue
        waiting.extend(ast.iter_child_nodes(node))
    return found


def _read(node: ast.AST) -> set[str]:
    """The names that a definition reads, its decorators apart."""
    decorators = {id(inner) for one in getattr(node, "decorator_list", []) for inner in ast.walk(one)}
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and id(inner) not in decorators]
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def cycles(tree: ast.AST) -> Iterator[str]:
    """Local functions that know themselves, directly or through others: each call leaves a reference cycle."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        defined = _defined(function)
        if not defined:
            continue
        knows = {name: _read(node) & set(defined) for name, node in defined.items()}
        for node in ast.walk(function):  # f.defjvp(rule) and @f.defjvp: f knows the rule
            if isinstance(node, ast.FunctionDef):
                for one in node.decorator_list:
                    if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in knows:
                        knows[one.value.id].add(node.name)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id in knows:
                    knows[owner.id] |= {arg.id for arg in node.args if isinstance(arg, ast.Name)} & set(defined)
        for name in defined:
            reached, waiting = set[str](), list(knows[name])
            while waiting:
                other = waiting.pop()
                if other not in reached:
                    reached.add(other)
                    waiting.extend(knows.get(other, ()))
            if name in reached:
                yield f"{function.name}.{name}, line {getattr(defined[name], 'lineno', 0)}"


def test_no_local_function_knows_itself() -> None:
    found = [f"{path}: {one}" for path in SOURCES for one in cycles(ast.parse(path.read_text()))]
    assert not found, f"{found} are freed by the garbage collector only: make them functions of the module"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f():\n def g(): return g()\n return g", True),
        ("def f():\n def g(): return h()\n def h(): return g()\n return g", True),
        ("def f():\n g = lambda n: g(n - 1)\n return g", True),
        ("def f():\n @jvp\n def g(): pass\n @g.defjvp\n def rule(): return g()\n return g", True),
        ("def f():\n def g(): pass\n def rule(): return g()\n g.defjvp(rule)\n return g", True),
        ("def f():\n def g(): return 1\n def h(): return g()\n return h", False),
        ("def f():\n @jvp\n def g(): pass\n @g.defjvp\n def rule(): return 1\n return g", False),
        ("def g(): return g()", False),
    ],
)
def test_functions_that_know_themselves_are_found(text: str, found: bool) -> None:
    assert bool(list(cycles(ast.parse(text)))) == found
