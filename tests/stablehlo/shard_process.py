"""A process on 8 virtual devices: ``python -m tests.stablehlo.shard_process weft|jax FOLDER PROGRAM ...``.

It runs the programs named, writes their files into a folder, and runs all files that it finds there.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.stablehlo import shard_programs

ALONE = ("typed", "one axis", "two meshes")


def main(library: str, folder: Path, names: list[str]) -> None:
    J, export = importlib.import_module(library), importlib.import_module(f"{library}.export")
    L = shard_programs.Library(J)
    programs = {name: shard_programs.PROGRAMS[name] for name in names}
    arguments = {name: shard_programs.sharded(L, name) for name in programs}
    own, facts = {}, {}
    for name, build in programs.items():
        with context(L, name):
            exported = export.export(build(L))(*arguments[name])
        (folder / f"{library} {name}").write_bytes(exported.serialize())
        facts[name] = shard_programs.described(exported)
    found = {"own": run(L, {name: build(L) for name, build in programs.items()}, arguments)}
    for other in ("weft", "jax"):
        files = {name: folder / f"{other} {name}" for name in programs}
        read = {name: export.deserialize(bytearray(file.read_bytes())) for name, file in files.items() if file.exists()}
        found[other] = run(L, {name: one.call for name, one in read.items()}, arguments)
        own[other] = {name: shard_programs.described(one) for name, one in read.items()}
    errors = refused(L, export, folder)
    (folder / f"{library}.pickle").write_bytes(pickle.dumps((found, facts, own, errors)))


def context(L: Any, name: str) -> Any:
    return (
        L.J.set_mesh(L.typed) if name == "typed" else L.J.sharding.use_abstract_mesh(L.J.sharding.AbstractMesh((), ()))
    )


def run(L: Any, functions: dict[str, Any], arguments: dict[str, Any]) -> dict[str, list[Any]]:
    """The results of the functions; most of them are one program, which is compiled at once.

    JAX does not rename the meshes of a file that is called beside others, so that one with two is called alone.
    """
    found: dict[str, list[Any]] = {}
    for group in (*[[name] for name in ALONE], [name for name in functions if name not in ALONE]):
        names = [name for name in group if name in functions]
        if not names:
            continue
        with context(L, names[0]):
            together = L.J.jit(lambda rows, names=names: [functions[name](*row) for name, row in zip(names, rows)])
            results = together([arguments[name] for name in names])
        for name, result in zip(names, results, strict=True):
            leaves = L.J.tree_util.tree_leaves(result)
            found[name] = [
                (np.asarray(x).astype(np.float32) if x.dtype == "bfloat16" else np.asarray(x)) for x in leaves
            ]
    return found


def refused(L: Any, export: Any, folder: Path) -> list[str]:
    """The errors for another number of devices, and another mesh."""
    read = export.deserialize(bytearray((folder / "weft data parallel").read_bytes()))
    values = [value for value, _ in shard_programs.ARGUMENTS["data parallel"]]
    calls = [lambda: read.call(*values), lambda: L.J.jit(read.call)(*values), lambda: read.in_shardings_jax(L.line)]
    errors = []
    for call in calls:
        try:
            call()
        except ValueError as error:
            errors.append(str(error).partition("\n")[0])
    errors.append(str(read.in_shardings_jax(L.mesh)))
    return errors


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
