"""Modules are imported in one order, so that threads that import at the same time cannot wait for each other.

CPython locks a module while it is imported, and a package before its modules: where two threads take the locks of a
cycle from two sides, one of them gets an error, or a module whose import has not ended.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.test_structure import ROOT, SOURCES, module_name, parse

STRESS = os.environ.get("WEFT_STRESS") == "1"
NAMES = {module_name(path): path for path in SOURCES}
# Nobody imports a module of these packages before the package itself, which therefore may import its own.
ENTERED_WHOLE = {
    "weft.codegen",
    "weft.codegen.vector_math",
    "weft.extend.core",
    "weft.inspect",
    "weft.launch",
}


@functools.cache
def loaded_later(package: str) -> dict[str, str]:
    """The names of a package that load another module, and that module."""
    if NAMES[package].name != "__init__.py":
        return {}
    return getattr(getattr(importlib.import_module(package), "_NAMES", None), "modules", {})


def imports_of(path: Path) -> Iterator[str]:
    """What a module's import imports, packages before their modules."""
    for node in parse(path).body:  # those for type checkers alone stand deeper
        for child in ast.walk(node) if isinstance(node, ast.With) else (node,):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module in NAMES:
                yield child.module
                table = loaded_later(child.module)
                yield from (table.get(alias.name, f"{child.module}.{alias.name}") for alias in child.names)


@functools.cache
def imported() -> dict[str, set[str]]:
    return {name: {other for other in imports_of(path) if other in NAMES} - {name} for name, path in NAMES.items()}


def waits_for() -> dict[str, set[str]]:
    """For each module, those whose locks its import takes while it holds its own."""
    graph = {}
    for name, others in imported().items():
        parents = {name.rpartition(".")[0]} & set(NAMES)
        graph[name] = {*others, *parents} - {other for other in ENTERED_WHOLE if name.startswith(f"{other}.")}
    return graph


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found, left = {start}, [start]
    while left:
        for other in graph[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def test_imports_have_no_cycle() -> None:
    graph = waits_for()
    loaded = reached(graph, "weft")  # before anything else of weft can be imported
    for name in loaded:
        del graph[name]
    for name in graph:
        graph[name] -= loaded
    cycles = [name for name in graph for other in graph[name] if name in reached(graph, other)]
    assert not cycles, f"{cycles} import each other: packages name their modules by lazy.Names and import none"
    assert len(graph) > 150


def test_no_one_enters_by_a_side_door() -> None:
    for package in ENTERED_WHOLE:
        for name, others in imported().items():
            entered = [other for other in others if other.startswith(f"{package}.")]
            inside = name == package or name.startswith(f"{package}.") or package in others
            assert inside or not entered, f"{name} imports {entered} without {package}"


FIRST_USES = """
import faulthandler, importlib, os, random, sys, threading, traceback
import weft

pick = random.Random(int(sys.argv[1]))
modules = '''numpy lax nn random scipy scipy.special scipy.stats scipy.linalg scipy.sparse.linalg scipy.cluster.vq
    scipy.spatial.transform scipy.signal scipy.stats.norm nn.initializers experimental.sparse lax.linalg numpy.linalg
    numpy.fft numpy.subscripts.taking debug image ops flatten_util inspect stages custom_derivatives compiler
    random.sampling nn.activations example_libraries.stax'''.split()
uses = [
    lambda: weft.jit(lambda x: x + 1)(3.0), lambda: weft.numpy.ones((2, 2)) @ weft.numpy.ones((2, 2)) + 1,
    lambda: weft.grad(lambda x: x * x)(2.0), lambda: weft.random.normal(weft.random.key(0), (2,)),
    lambda: list(weft.numpy.ones(2)), lambda: weft.make_jaxpr(lambda x: x.sum() + list(x)[0])(weft.numpy.ones(2)),
    lambda: weft.nn.initializers.zeros, lambda: weft.lax.linalg.cholesky, lambda: weft.numpy.linalg.inv,
    lambda: weft.scipy.special.erf, lambda: weft.scipy.linalg.expm, lambda: weft.scipy.stats.norm.pdf,
    lambda: importlib.import_module('weft.experimental.sparse').BCOO,
    lambda: "argsort" in dir(weft.numpy.zeros(1)) or 1 / 0,
]
jobs = []
for _ in range(16):
    jobs.append([lambda name=pick.choice(modules): importlib.import_module("weft." + name) for _ in range(4)])
    jobs[-1].insert(pick.randrange(5), pick.choice(uses))
together, failed = threading.Barrier(16), []

def run(job):
    together.wait()
    try:
        for part in job:
            part()
    except BaseException:
        failed.append(traceback.format_exc())

sys.setswitchinterval(pick.choice([1e-6, 1e-5, 1e-4, 5e-3]))
threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(100)
if any(thread.is_alive() for thread in threads):
    faulthandler.dump_traceback()
    os._exit(3)
print("".join(failed[:1]))
sys.exit(bool(failed))
"""


@pytest.mark.parametrize("seed", range(200 if STRESS else 2))
def test_sixteen_threads_use_weft_first(seed: int) -> None:
    environment = {**os.environ, "WEFT_CHECK": "0", "WEFT_CACHE": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USES, str(seed)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
