"""Kernels for AArch64, run by an emulator, have the bits of x86-64-v3: a program for each kind of kernel.

With ``WEFT_AARCH64=all`` (``make test-aarch64``) all samples of operations too, and the native module's sources.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.aarch64 import cases, programs, samples_of_operations, tools
from tests.aarch64.samples_of_operations import Sample
from weft import config
from weft._base import target
from weft.compiler.checks import reference_interpreter

ALL = os.environ.get("WEFT_AARCH64") == "all"
ON = {name: target.named(name) for name in ("aarch64", "x86-64-v3")}
Results = list[list[np.ndarray]]
Compiled = dict[str, programs.Program]


@pytest.fixture(scope="module")
def harnesses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The command that runs the harness for each target."""
    tools.skip_without_tools()
    folder = tmp_path_factory.mktemp("harness")
    emulated = tools.build(tools.CROSS, folder / "aarch64")
    return {
        "aarch64": [str(tools.emulator()), str(emulated)],
        "x86-64-v3": [str(tools.build(tools.NATIVE, folder / "v3"))],
    }


def run(samples: Iterable[Sample], harnesses: dict[str, list[str]], folder: Path) -> tuple[Compiled, list[Results]]:
    """(the samples that the harness can run, compiled for AArch64; their results on each target)."""
    compiled: list[Compiled] = [{} for _ in ON]
    for label, function, args, wide in samples:
        with config.context("enable_x64", wide):
            made = [programs.Program(function, args, on) for on in ON.values()]
        try:
            programs.write(made)
        except programs.Unsupported:
            continue
        for program, those in zip(made, compiled, strict=True):
            those[label] = program
    found = []
    for name, those in zip(ON, compiled, strict=True):
        file = programs.write(list(those.values()))
        found.append(programs.results(list(those.values()), tools.run(harnesses[name], file, folder)))
    return compiled[0], found


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal bits; of NaN only that both are, since what an invalid operation makes has another sign on each."""
    if x.dtype.kind == "c":
        return same(np.real(x), np.real(y)) and same(np.imag(x), np.imag(y))
    both = (x != x) & (y != y)
    return np.where(both, 0, x).tobytes() == np.where(both, 0, y).tobytes()


def case(name: str) -> Sample:
    function, args = cases.CASES[name]
    return name, function, args, any(arg.dtype in (np.float64, np.int64, np.uint64) for arg in args)


def test_every_kind_of_kernel_has_the_bits_of_v3(harnesses: dict[str, list[str]], tmp_path: Path) -> None:
    compiled, (found, wanted) = run(map(case, cases.CASES), harnesses, tmp_path)
    assert list(compiled) == list(cases.CASES) and len(compiled) >= 40
    bits = [[[x.tobytes() for x in outputs] for outputs in those] for those in (found, wanted)]
    assert [name for name, own, other in zip(compiled, *bits, strict=True) if own != other] == []
    for (name, program), outputs in zip(compiled.items(), found, strict=True):  # and they are results
        for x, y in zip(outputs, reference_interpreter.interpret(program.simplified, program.operands), strict=True):
            close(name, x, y)


def close(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected, name)
        return
    half = found.dtype.itemsize == 2
    wide = [x.astype(np.complex128) for x in (found, expected)]
    np.testing.assert_allclose(*wide, rtol=2e-2 if half else 1e-4, atol=1e-5, err_msg=name)


@pytest.mark.skipif(not ALL, reason="a minute: make test-aarch64")
@pytest.mark.parametrize("samples", [samples_of_operations.elementwise, samples_of_operations.others])
def test_every_sample_has_the_bits_of_v3(
    samples: Callable[[], Iterator[Sample]], harnesses: dict[str, list[str]], tmp_path: Path
) -> None:
    compiled, (found, wanted) = run(samples(), harnesses, tmp_path)
    assert len(compiled) >= 200
    pairs = zip(compiled, found, wanted, strict=True)
    assert [label for label, own, other in pairs if not all(map(same, own, other))] == []


@pytest.mark.skipif(not ALL, reason="two minutes: make test-aarch64")
def test_the_native_module_compiles() -> None:
    tools.skip_without_tools()
    includes = [tools.python_headers(), np.get_include(), *tools.rooms()]
    flags = [*tools.FLAGS[:5], "-fsyntax-only", *(f"-isystem{folder}" for folder in includes)]
    numpy = ["-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION", "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION"]
    for source in sorted(tools.SOURCES.rglob("*.cpp")):
        subprocess.run([tools.CROSS, *flags, *numpy, "-Wall", "-Werror", str(source)], check=True, timeout=300)
