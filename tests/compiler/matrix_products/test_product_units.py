"""Units of kernels of products: from the build, from disk, from LLVM the same; damaged and old ones are not used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import codegen, runtime
from weft._base import target
from weft.codegen.cpu import products
from weft.codegen.cpu.products import tables
from weft.compiler.matrix_products import product_units
from weft.compiler.storage import disk

INSTRUCTIONS = {"x86-64-v4": ["v3", "v4"], "x86-64-v3": ["v3", "v4"], "aarch64": ["neon"]}[target.host().name]
UNIT = f"{INSTRUCTIONS[0]}_Bi"  # of the smallest

# A product of bytes, whose unit is not beside the module: its result, and how often LLVM was asked.
PROGRAM = """
import json, sys
import numpy as np
from weft import numpy as wnp
from weft.compiler.matrix_products import product_units
product_units.FOLDER = sys.argv[1]
asked, compiled = [], product_units.compiled
product_units.compiled = lambda *unit: asked.append(unit[0]) or compiled(*unit)
a = np.arange(200, dtype=np.uint8).reshape(10, 20)
print(json.dumps([wnp.matmul(a, a.T, preferred_element_type=np.int32).tolist(), asked]))
"""
A = np.arange(200).reshape(10, 20)


def answer(folder: Path, **more: str) -> list[Any]:
    """What a process prints that finds files of units in a folder."""
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def content(unit: str) -> bytes:
    """What is in the file of a unit."""
    return Path(product_units.FOLDER, products.file_name(unit, products.unit_key(unit))).read_bytes()


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_a_build_brings_every_unit(instructions: str) -> None:
    for unit in tables.units(instructions):
        code = product_units.installed(unit, products.unit_key(unit))
        assert code is not None, f"{product_units.FOLDER} has no {unit} of these sources: build the native module again"
        runtime.link_kernel(code, codegen.SYMBOL)  # nothing but code and constants, wherever they are


def test_compiled_ones_are_equal() -> None:
    key = products.unit_key(UNIT)
    assert products.sealed(key, product_units.compiled(UNIT, key)) == content(UNIT)


def test_units_of_other_processors_are_what_the_loader_takes() -> None:
    unit = "neon_ef"
    runtime.link_kernel(product_units.compiled(unit, products.unit_key(unit)), codegen.SYMBOL)


def test_without_a_file_llvm_is_asked_and_the_cache_keeps_it(tmp_path: Path) -> None:
    cache = {"WEFT_CACHE": "on", "WEFT_CACHE_DIR": str(tmp_path)}
    first = answer(tmp_path, WEFT_COMPILE="isolated", **cache)
    second = answer(tmp_path, **cache)
    assert first[0] == second[0] == (A @ A.T).tolist()
    assert len(first[1]) == 1 and second[1] == []
    assert disk.DiskCache(str(tmp_path), 1 << 30, bytes(16)).verify().removed == []


def test_damaged_and_old_files_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, whole, other = products.unit_key(UNIT), content(UNIT), content(f"{INSTRUCTIONS[0]}_bi")
    path = tmp_path / products.file_name(UNIT, key)
    monkeypatch.setattr(product_units, "FOLDER", str(tmp_path))
    for at in (0, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert product_units.installed(UNIT, key) is None
    path.write_bytes(whole[:-1])
    assert product_units.installed(UNIT, key) is None
    path.write_bytes(other)
    assert product_units.installed(UNIT, key) is None
    path.write_bytes(whole)
    assert product_units.installed(UNIT, key) == whole[len(key) + products.CHECKSUM :]


def test_keys_follow_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tables.py", "tiles.py"):
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(products, "__file__", str(tmp_path / "__init__.py"))
    keys = {products.unit_key("v4_ff"), products.unit_key("v4_FF"), products.unit_key("v4_ff", "0.50.0")}
    (tmp_path / "tiles.py").write_text("2")
    assert len({*keys, products.unit_key("v4_ff")}) == 4


def test_threads_that_need_a_unit_at_once_compile_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, whole = [], content(UNIT)[len(products.unit_key(UNIT)) + products.CHECKSUM :]
    started = threading.Barrier(4)
    monkeypatch.setattr(product_units, "_found", {})
    monkeypatch.setattr(product_units, "FOLDER", "/nowhere")
    monkeypatch.setattr(product_units, "compiled", lambda *unit: asked.append(unit) or whole)
    found = []

    def find() -> None:
        started.wait()
        found.append(product_units.kernel(UNIT))

    threads = [threading.Thread(target=find) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1 and len(set(map(id, found))) == 1


def test_what_cannot_be_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert product_units.kernel("v4_Ul") is None
    with pytest.raises(
        weft.errors.InternalError, match=r"(?s)LLVM made no kernels v9_ff: .* ended with 1 and said: .*KeyError"
    ):
        product_units.compiled("v9_ff", bytes(32))


@pytest.mark.parametrize(
    ("finder", "message"),
    [("lambda unit: 1 // 0", "ZeroDivisionError"), ("len", "TypeError: [gemm] a unit is a Kernel, got"),
     ("lambda unit: None", "ValueError: [gemm] no kernels multiply dtype f to dtype f")],
)  # fmt: skip
def test_errors_of_the_finder_are_those_of_the_product(finder: str, message: str) -> None:
    program = f"""
from weft import runtime, numpy as wnp
from weft.compiler.plans import libraries
runtime.set_unit_finder({finder})
wnp.eye(9) @ wnp.eye(9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert message in done.stderr
